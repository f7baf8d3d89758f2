"""Specs and comparisons as JSON that is not what we wrote: a `UserError` in one line, or an object that writes itself
again."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from raychains.core.spec import ChainSpec
from raychains.planning import Comparison
from tests.fuzz import made
from tests.fuzz.rules import comes_to_one_line, examples
from tests.fuzz.test_damaged_stores import REPLACEMENTS, changed, paths

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
SPEC = next(iter(made.comparison().chains().values())).to_json()
COMPARISON = made.comparison().to_json()
how = st.sampled_from(["replace", "replace", "remove", "extra"])


def other(data: Any, number: int, how: str, new: Any) -> Any:
    """The data with one place changed; an example that changes nothing is no test."""
    places = list(paths(data))
    made = changed(data, places[number % len(places)], how, new)
    assume(repr(made) != repr(data))
    return made


@examples(100, "spec")
@given(number=st.integers(0, 10_000), how=how, new=anything | st.sampled_from(REPLACEMENTS))
@example(number=0, how="replace", new=[])
def test_any_change_of_a_spec(number: int, how: str, new: Any) -> None:
    data = other(SPEC, number, how, new)
    spec = comes_to_one_line(lambda: ChainSpec.from_json(data))
    if spec is not None and comes_to_one_line(lambda: spec.digest) is not None:
        assert ChainSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@examples(100, "spec")
@given(number=st.integers(0, 10_000), how=how, new=anything | st.sampled_from(REPLACEMENTS))
def test_any_change_of_a_comparison(number: int, how: str, new: Any) -> None:
    check(other(COMPARISON, number, how, new))


@examples(70, "spec")
@given(number=st.integers(0, 10_000), how=how, new=anything | st.sampled_from(REPLACEMENTS))
def test_any_change_of_a_chain_that_fits_its_digest(number: int, how: str, new: Any) -> None:
    """Somebody who changes a spec can change its digest as well."""
    digest, spec = next(iter(COMPARISON["chains"].items()))
    data = other(spec, number, how, new)
    read = comes_to_one_line(lambda: ChainSpec.from_json(data))
    renamed = comes_to_one_line(lambda: read.digest) if read is not None else None
    if renamed is not None:
        check(
            json.loads(json.dumps(COMPARISON).replace(digest, renamed))
            | {"chains": {**COMPARISON["chains"], renamed: data}}
        )


@examples(30, "spec")
@given(data=anything)
def test_anything_else(data: Any) -> None:
    assert comes_to_one_line(lambda: ChainSpec.from_json(data)) is None
    assert comes_to_one_line(lambda: Comparison.from_json(data)) is None


def check(data: Any) -> None:
    comparison = comes_to_one_line(lambda: Comparison.from_json(data))
    if comparison is not None:
        assert len(comparison.digest) == 64
        assert Comparison.from_json(json.loads(json.dumps(comparison.to_json()))).digest == comparison.digest
