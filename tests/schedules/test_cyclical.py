"""The cyclical cosine schedule against hand-computed values, and its promises over many settings."""

from __future__ import annotations

import math

import pytest

from raychains.schedules import EXPLORATION, SAMPLING, Cyclical, ScheduleValues
from tests.checks import refused


def every_setting(schedule: Cyclical) -> list[ScheduleValues]:
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
        steps=per_epoch * epochs, lr=0.5, cycles=cycles, exploration=0.8, samples_per_cycle=3, thinning=per_epoch
    )
    assert kept_steps(schedule) == [per_epoch * e for end in (50, 100, 150, 200) for e in (end - 2, end - 1, end)]
    assert schedule.kept == 12


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"samples_per_cycle": 2}, [9, 10, 19, 20]),
        ({"thinning": 2}, [6, 8, 10, 16, 18, 20]),
        ({"drop_first": 3}, [9, 10, 19, 20]),
    ],
)
def test_the_last_steps_of_each_cycle_are_kept(settings: dict[str, int], kept: list[int]) -> None:
    """Thinning counts back from the end of the cycle; dropped steps still have noise."""
    schedule = Cyclical(steps=20, lr=1.0, cycles=2, exploration=0.5, **settings)  # type: ignore[arg-type]
    assert kept_steps(schedule) == kept and schedule.at(7).temperature == 1


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
    assert schedule.at(10) == ScheduleValues(1.0, 0.0, EXPLORATION, 3, False)
    assert kept_steps(schedule) == [3, 6, 9] and schedule.kept == 3


def test_warns_without_claiming_a_missing_stage_when_the_short_cycle_samples() -> None:
    (warning,) = Cyclical(steps=19, lr=1.0, cycles=2, exploration=0.5).warnings()
    assert "9 steps instead of 10" in warning and "never" not in warning
