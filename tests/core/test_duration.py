"""Durations: what people write, in seconds; what is none, in one line."""

from __future__ import annotations

import math

import pytest

from raychains.core.duration import seconds
from tests.checks import refused

CASES = {
    60: 60, 0.02: 0.02, "90": 90, "60s": 60, "5min": 300, "1h": 3600, "1.5h": 5400, ".5 s": 0.5, " 2 min ": 120,
}  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), CASES.items())
def test_numbers_count_seconds_and_texts_have_units(value: float | str, expected: float) -> None:
    assert seconds("checkpoint_every", value) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "value",
    [0, -1, math.nan, math.inf, True, "", "s", "0s", "-5s", "5 parsecs", "5m", "1h30", "1e400", "9" * 400, None],
)
def test_anything_else_is_refused_with_examples(value: float | str) -> None:
    with refused("checkpoint_every", "60s", "5min", "1h"):
        seconds("checkpoint_every", value)
