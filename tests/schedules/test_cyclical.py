"""The cyclical cosine schedule against hand-computed values, and its promises over many settings."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from raychains import schedules
from raychains.errors import UserError
from raychains.schedules import EXPLORATION, SAMPLING, Cyclical, Setting
from raychains.spec import Part
from tests.checks import refused


def every_setting(schedule: Cyclical) -> list[Setting]:
    return [schedule.at(k) for k in range(1, schedule.steps + 1)]


def kept_steps(schedule: Cyclical) -> list[int]:
    return [k for k in range(1, schedule.steps + 1) if schedule.at(k).keep]


def test_two_cycles_of_four_steps_equal_hand_computed_values() -> None:
    got = every_setting(Cyclical(steps=8, lr=0.4, cycles=2, exploration=0.5, temperature=0.7))
    root = math.sqrt(0.5)  # cos(π/4)
    lrs = [0.4, 0.2 * (1 + root), 0.2, 0.2 * (1 - root)]
    assert [s.lr for s in got] == pytest.approx(lrs * 2, rel=1e-15)
    assert got[4].lr == 0.4, "the step size restarts exactly at lr"
    assert [s.stage for s in got] == [EXPLORATION, EXPLORATION, SAMPLING, SAMPLING] * 2
    assert [s.temperature for s in got] == [0.0, 0.0, 0.7, 0.7] * 2
    assert [s.cycle for s in got] == [0] * 4 + [1] * 4
    assert [s.keep for s in got] == [False, False, True, True] * 2


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.25, 0.3, 0.6, 0.7, 0.9, 0.94])
@pytest.mark.parametrize("length", [20, 30, 70, 100, 350])
def test_sampling_starts_at_the_first_step_whose_share_reaches_beta(beta: float, length: int) -> None:
    schedule = Cyclical(steps=2 * length, lr=1.0, cycles=2, exploration=beta)
    hundredths = round(100 * beta)
    for k in range(1, 2 * length + 1):
        samples = 100 * ((k - 1) % length) >= hundredths * length  # integers: no rounding at the border
        assert schedule.at(k).stage == (SAMPLING if samples else EXPLORATION), k


def test_published_network_setting_keeps_the_ends_of_the_last_three_epochs_of_each_cycle() -> None:
    per_epoch, epochs, cycles = 391, 200, 4
    schedule = Cyclical(
        steps=per_epoch * epochs,
        lr=0.5,
        cycles=cycles,
        exploration=0.8,
        samples_per_cycle=3,
        thinning=per_epoch,
    )
    assert kept_steps(schedule) == [per_epoch * e for end in (50, 100, 150, 200) for e in (end - 2, end - 1, end)]
    assert schedule.kept == 12


def test_without_thinning_the_last_steps_of_each_cycle_are_kept() -> None:
    schedule = Cyclical(steps=20, lr=1.0, cycles=2, exploration=0.5, samples_per_cycle=2)
    assert kept_steps(schedule) == [9, 10, 19, 20]


def test_thinning_counts_back_from_the_end_of_the_cycle() -> None:
    schedule = Cyclical(steps=20, lr=1.0, cycles=2, exploration=0.5, thinning=2)
    assert kept_steps(schedule) == [6, 8, 10, 16, 18, 20]


def test_drop_first_drops_the_start_of_each_sampling_stage() -> None:
    schedule = Cyclical(steps=20, lr=1.0, cycles=2, exploration=0.5, drop_first=3)
    assert kept_steps(schedule) == [9, 10, 19, 20]
    assert schedule.at(6) == Setting(schedule.at(6).lr, 1.0, SAMPLING, 0, False), "dropped steps still have noise"


def test_sample_below_replaces_beta() -> None:
    # L = 4: lr is 1, .853…, .5, .146…; strictly below .5 is only the last.
    schedule = Cyclical(steps=8, lr=1.0, cycles=2, exploration=0.0, sample_below=0.45)
    assert [s.stage for s in every_setting(schedule)] == [EXPLORATION, EXPLORATION, EXPLORATION, SAMPLING] * 2
    assert kept_steps(schedule) == [4, 8]


def test_sample_below_wins_over_a_large_beta() -> None:
    schedule = Cyclical(steps=8, lr=1.0, cycles=2, exploration=0.9, sample_below=0.9)
    assert [s.stage for s in every_setting(schedule)[:4]] == [EXPLORATION, SAMPLING, SAMPLING, SAMPLING]


def test_noise_in_exploration_keeps_the_temperature_and_nothing_else() -> None:
    quiet = every_setting(Cyclical(steps=8, lr=1.0, cycles=2, exploration=0.5))
    noisy = every_setting(Cyclical(steps=8, lr=1.0, cycles=2, exploration=0.5, noise_in_exploration=True))
    assert [s.temperature for s in noisy] == [1.0] * 8
    assert [s._replace(temperature=1.0) for s in quiet] == noisy


def test_refuses_cycles_that_would_not_all_start() -> None:
    with refused("cycles", "25", "30", "100"):
        Cyclical(steps=100, lr=1.0, cycles=30, exploration=0.25)


@pytest.mark.parametrize(("steps", "cycles"), [(100, 25), (90, 30), (120, 30)])
def test_what_the_refusal_of_30_cycles_in_100_steps_offers_is_accepted(steps: int, cycles: int) -> None:
    assert Cyclical(steps=steps, lr=1.0, cycles=cycles, exploration=0.25).cycle_count == cycles


def test_warns_of_a_last_cycle_that_is_a_stub() -> None:
    schedule = Cyclical(steps=10, lr=1.0, cycles=4, exploration=0.5)
    (warning,) = schedule.warnings()
    assert "1 steps instead of 3" in warning and "never reaches its sampling stage" in warning
    assert [s.cycle for s in every_setting(schedule)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert schedule.at(10) == Setting(1.0, 0.0, EXPLORATION, 3, False)
    assert kept_steps(schedule) == [3, 6, 9] and schedule.kept == 3


def test_warns_without_claiming_a_missing_stage_when_the_short_cycle_samples() -> None:
    (warning,) = Cyclical(steps=19, lr=1.0, cycles=2, exploration=0.5).warnings()
    assert "9 steps instead of 10" in warning and "never" not in warning


def test_does_not_warn_when_cycles_divide_the_run() -> None:
    assert Cyclical(steps=12, lr=1.0, cycles=4, exploration=0.5).warnings() == []


OPTIONAL = {
    "samples_per_cycle": st.none() | st.integers(1, 6),
    "thinning": st.integers(1, 7),
    "sample_below": st.none() | st.floats(0.05, 1.5),
    "drop_first": st.integers(0, 10),
    "noise_in_exploration": st.booleans(),
}


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(
    length=st.integers(1, 40),
    cycles=st.integers(1, 8),
    short=st.integers(0, 12),
    exploration=st.floats(0, 0.99),
    rest=st.fixed_dictionaries({}, optional=OPTIONAL),
)
def test_kept_equals_the_count_of_keep_flags(
    length: int, cycles: int, short: int, exploration: float, rest: dict[str, Any]
) -> None:
    try:
        schedule = Cyclical(
            steps=max(1, length * cycles - short), lr=1.0, cycles=cycles, exploration=exploration, **rest
        )
    except UserError:
        reject()
    got = every_setting(schedule)
    assert schedule.kept == sum(s.keep for s in got)
    assert schedule.cycle_count == len({s.cycle for s in got}) == cycles
    assert all(s.stage == SAMPLING and s.temperature == schedule.temperature for s in got if s.keep)
    assert bool(schedule.warnings()) == (schedule.steps % schedule.cycle_length != 0)
    for cycle in range(cycles):
        kept = [k for k, s in enumerate(got) if s.keep and s.cycle == cycle]
        assert all(b - a == schedule.thinning for a, b in itertools.pairwise(kept))
        if schedule.samples_per_cycle is not None:
            assert len(kept) <= schedule.samples_per_cycle
        if kept:  # the coldest state, the last of its cycle, is among what is kept
            assert kept[-1] == max(k for k, s in enumerate(got) if s.cycle == cycle)


@pytest.mark.parametrize(
    "schedule",
    [
        Cyclical(steps=8, lr=0.4, cycles=2, exploration=0.5),
        Cyclical(
            steps=90, lr=0.1, cycles=3, exploration=0.1, samples_per_cycle=2, thinning=3, sample_below=0.07,
            drop_first=4, noise_in_exploration=True, temperature=0.0045,
        ),
    ],
)  # fmt: skip
def test_part_survives_json(schedule: Cyclical) -> None:
    again = schedules.build(Part.from_json(json.loads(json.dumps(schedule.part().to_json()))))
    assert again == schedule and isinstance(again, Cyclical)
    assert again.part() == schedule.part()


GOOD: dict[str, Any] = {"steps": 100, "lr": 0.1, "cycles": 4, "exploration": 0.5}
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exploration", 1.2), ("exploration", 1.0), ("exploration", -0.1),
        ("exploration", NAN), ("exploration", "x"),
        ("cycles", 0), ("cycles", -1), ("cycles", 101), ("cycles", 2.0), ("cycles", True),
        ("lr", -0.1), ("lr", 0), ("lr", NAN), ("lr", INF), ("lr", "0.1"),
        ("steps", 0), ("steps", 10.0), ("steps", None),
        ("temperature", -1), ("temperature", NAN), ("temperature", INF), ("temperature", None),
        ("samples_per_cycle", 0), ("samples_per_cycle", 13), ("samples_per_cycle", 1.5),
        ("thinning", 0), ("thinning", 2.5),
        ("sample_below", 0.0), ("sample_below", NAN),
        ("drop_first", -1), ("drop_first", 1.0), ("drop_first", True),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_in_one_line_naming_the_field(field: str, value: object) -> None:
    with refused(field, repr(value) if not isinstance(value, str) else value):
        Cyclical(**{**GOOD, field: value})


def test_a_stage_without_room_for_a_draw_is_refused_naming_what_emptied_it() -> None:
    with refused("drop_first"):
        Cyclical(**GOOD, drop_first=12 + 1)
    with refused("sample_below"):
        Cyclical(**GOOD, sample_below=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "cyclica"}, ("schedule", "cyclical")),
        ({"revision": 2}, ("cyclical", "revision", "2")),
        ({"colour": 1}, ("cyclical", "colour")),
    ],
)
def test_build_refuses_what_it_does_not_know(change: dict[str, Any], words: tuple[str, ...]) -> None:
    data = {**Cyclical(**GOOD).part().to_json(), **change}
    with refused(*words):
        schedules.build(Part.from_json(data))


def test_build_refuses_a_missing_setting() -> None:
    with refused("cyclical", "lr"):
        schedules.build(Part(kind="cyclical", revision=1, settings={"steps": 10, "cycles": 1, "exploration": 0.5}))
