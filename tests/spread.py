"""Combinations of parameters: `make test` runs enough of them to meet every choice, `make test-long` the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

Axis = Mapping[str, Any] | Sequence[Any]
"""A parameter's values, by their names in the test's id or with ``str`` of each as its name."""


def spread(*axes: Axis) -> list[Any]:
    """Return every combination of one value of each axis, for `pytest.mark.parametrize`.

    Of two axes, `make test` runs each value of both; of three, each pair of values of any two. In general, whatever
    values all axes but one have, one combination is not marked long.
    """
    named = [
        list(axis.items()) if isinstance(axis, Mapping) else [(str(value), value) for value in axis] for axis in axes
    ]
    sizes = [len(axis) for axis in named]
    smallest = sizes.index(min(sizes))
    found = []
    for places in itertools.product(*map(range, sizes)):
        others = sum(places) - places[smallest]
        marks = [] if places[smallest] == others % sizes[smallest] else [pytest.mark.long]
        chosen = [axis[place] for axis, place in zip(named, places, strict=True)]
        found.append(
            pytest.param(*(value for _, value in chosen), id="-".join(name for name, _ in chosen), marks=marks)
        )
    return found


def witnessed(values: Iterable[str], *quick: str) -> list[Any]:
    """Return all values, for `pytest.mark.parametrize`; `make test` runs ``quick`` alone, `make test-long` the
    others."""
    values = list(values)
    assert quick and set(quick) <= set(values), f"{sorted(set(quick) - set(values))} are no values"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.long) for value in values]
