"""The temperature's ramp: hand-computed values, and what every kind keeps with it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raychains import schedules
from raychains.core.errors import UserError
from raychains.schedules import BURN_IN, EXPLORATION, SAMPLING, Constant, Cyclical, Schedule, ScheduleValues
from tests.checks import refused


def every(schedule: Schedule) -> list[ScheduleValues]:
    return [schedule.at(k) for k in range(1, schedule.steps + 1)]


def test_ramp_behind_a_burn_in_equals_hand_computed_values() -> None:
    got = every(Constant(lr=0.1, steps=10, noise_from=0.3, ramp=0.4, temperature=0.8))
    assert [s.temperature for s in got] == pytest.approx([0, 0, 0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8], rel=1e-15)
    assert [s.temperature for s in got[6:]] == [0.8] * 4, "in full, to the last bit"
    assert [s.stage for s in got] == [BURN_IN] * 3 + [SAMPLING] * 7, "noise is on: that is sampling, with nothing kept"
    assert [s.keep for s in got] == [False] * 6 + [True] * 4


def test_every_cycle_ramps_anew() -> None:
    got = every(Cyclical(lr=0.1, steps=16, cycles=2, exploration=0.25, ramp=0.5))
    assert [s.temperature for s in got] == [0, 0, 0.25, 0.5, 0.75, 1, 1, 1] * 2
    assert [s.stage for s in got] == ([EXPLORATION] * 2 + [SAMPLING] * 6) * 2
    assert [s.keep for s in got] == ([False] * 5 + [True] * 3) * 2


def test_a_ramp_starts_where_the_step_size_is_small_enough() -> None:
    # L = 8: lr/lr0 is 1, .96, .85, .69, .5, .31, .15, .04; below .7 from the fourth.
    got = every(Cyclical(lr=1.0, steps=8, cycles=1, exploration=0.0, sample_below=0.7, ramp=0.25))
    assert [s.temperature for s in got] == [0, 0, 0, 0.5, 1, 1, 1, 1]


def test_what_drops_more_wins_between_ramp_and_drop_first() -> None:
    common: dict[str, Any] = {"lr": 0.1, "steps": 10, "cycles": 1, "exploration": 0.0}
    for drop, ramp, unkept in [(2, 0.5, 4), (7, 0.5, 7), (0, 0.1, 0), (0, 0.0, 0)]:
        got = every(Cyclical(**common, drop_first=drop, ramp=ramp))
        assert [s.keep for s in got] == [False] * unkept + [True] * (10 - unkept)


def test_a_ramp_that_leaves_nothing_to_keep_is_refused() -> None:
    assert Constant(lr=0.1, steps=10, noise_from=0.5, ramp=0.5).kept == 1
    with refused("ramp", "0.6", "5"):
        Constant(lr=0.1, steps=10, noise_from=0.5, ramp=0.6)
    assert Cyclical(lr=0.1, steps=20, cycles=2, exploration=0.5, ramp=0.5).kept == 2
    with refused("ramp", "0.6", "5"):
        Cyclical(lr=0.1, steps=20, cycles=2, exploration=0.5, ramp=0.6)
    with refused("samples", "1", "ramp"):
        Constant(lr=0.1, steps=10, noise_from=0.5, ramp=0.5, samples=2)
    with refused("samples_per_cycle", "1"):
        Cyclical(lr=0.1, steps=20, cycles=2, exploration=0.5, ramp=0.5, samples_per_cycle=2)
    with refused("ramp", "noise_in_exploration"):
        Cyclical(lr=0.1, steps=20, cycles=2, exploration=0.5, ramp=0.1, noise_in_exploration=True)


def test_warns_when_the_short_last_cycle_never_gets_to_full_temperature() -> None:
    schedule = Cyclical(lr=0.1, steps=17, cycles=2, exploration=0.4, ramp=0.4)
    (warning,) = schedule.warnings()
    assert "8 steps instead of 9" in warning and "keeps nothing" not in warning
    (warning,) = Cyclical(lr=0.1, steps=16, cycles=3, exploration=0.4, ramp=0.5).warnings()
    assert "4 steps instead of 6" in warning and "keeps nothing" in warning


KEEPING = {"samples": st.none() | st.integers(1, 12), "noise_from": st.floats(0, 0.99)}
SHAPES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "decreasing": {"a": st.just(1.0), "b": st.just(0.0), "gamma": st.just(0.6), **KEEPING},
    "constant": {"lr": st.just(0.1), **KEEPING},
    "linear": {"lr": st.just(0.1), "final_lr": st.sampled_from([0.0, 0.1]), **KEEPING},
    "exponential": {"lr": st.just(0.1), "final_lr": st.sampled_from([0.01, 0.1]), **KEEPING},
    "step": {"lr": st.just(0.1), "milestones": st.just((0.3, 0.6)), "factor": st.just(0.1), **KEEPING},
    "cyclical": {
        "lr": st.just(0.1),
        "cycles": st.integers(1, 6),
        "exploration": st.floats(0, 0.9),
        "samples_per_cycle": st.none() | st.integers(1, 5),
        "drop_first": st.integers(0, 6),
        "sample_below": st.none() | st.floats(0.01, 0.12),
    },
}


def test_every_kind_is_tried_below() -> None:
    assert SHAPES.keys() == schedules.KINDS.keys()


@settings(max_examples=120, deadline=None, database=None, derandomize=True)
@given(
    data=st.data(),
    steps=st.integers(1, 150),
    thinning=st.integers(1, 7),
    ramp=st.just(0.0) | st.floats(0, 0.7),
    temperature=st.sampled_from([0.0, 0.3, 1.0]),
)
@pytest.mark.parametrize("kind", SHAPES)
def test_every_kind_keeps_what_it_says_at_full_temperature_only(
    kind: str, data: st.DataObject, steps: int, thinning: int, ramp: float, temperature: float
) -> None:
    own = data.draw(st.fixed_dictionaries(SHAPES[kind]))
    try:
        make: Any = schedules.KINDS[kind]
        schedule = make(steps=steps, thinning=thinning, ramp=ramp, temperature=temperature, **own)
    except UserError:
        assume(False)
    got = every(schedule)
    assert schedule.kept == sum(s.keep for s in got) >= 1
    assert all(s.stage == SAMPLING and s.temperature == temperature for s in got if s.keep)
    cycles = [[s for s in got if s.cycle == c] for c in range(schedule.cycle_count)]
    assert max(sum(s.keep for s in cycle) for cycle in cycles) <= schedule.room
    assert kind == "cyclical" or schedule.kept == (own["samples"] or schedule.kept)
    if isinstance(schedule, Cyclical):
        assert bool(schedule.warnings()) == (steps % schedule.cycle_length != 0)
    for cycle in cycles:
        kept = [i for i, s in enumerate(cycle) if s.keep]
        assert all(b - a == thinning for a, b in itertools.pairwise(kept))
        assert not kept or kept[-1] == len(cycle) - 1, "the coldest state is among what is kept"
        assert len(kept) <= (own.get("samples") or own.get("samples_per_cycle") or steps)
        noisy = [s.temperature for s in cycle if s.stage == SAMPLING]
        assert all(s.temperature == 0 for s in cycle if s.stage != SAMPLING)
        assert all(a <= b <= temperature for a, b in itertools.pairwise(noisy)), "it only grows"
        below = [t for t in noisy if t < temperature]
        rises = [b - a for a, b in itertools.pairwise([0.0, *below])]
        assert rises == pytest.approx([rises[0]] * len(rises) if rises else [], rel=1e-9), "in equal amounts"
        full = -(-ramp * len(cycles[0]) // 1)  # the ramp's length in steps, give or take rounding
        if below:
            assert len(below) <= full <= len(below) + 1 or len(noisy) == len(below)
