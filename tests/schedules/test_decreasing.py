"""The decreasing schedule: lr_k = a(b+k)^(−γ), its noise-free start and what it keeps."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from raychains.schedules import BURN_IN, SAMPLING, Decreasing, ScheduleValues
from tests.checks import refused


def kept_steps(schedule: Decreasing) -> list[int]:
    return [k for k in range(1, schedule.steps + 1) if schedule.at(k).keep]


def test_gamma_one_equals_hand_computed_values() -> None:
    schedule = Decreasing(steps=4, a=6.0, b=2.0, gamma=1.0)
    assert [schedule.at(k) for k in (1, 2, 3, 4)] == [
        ScheduleValues(pytest.approx(lr, rel=1e-15), 1.0, SAMPLING, 0, True) for lr in (2.0, 1.5, 1.2, 1.0)
    ]


def test_the_mixtures_published_step_size() -> None:
    schedule = Decreasing(steps=50_000, a=0.05, b=0.0, gamma=0.55)
    assert schedule.at(1).lr == 0.05
    assert schedule.at(100).lr == pytest.approx(0.05 * 10 ** (-1.1), rel=1e-14)
    assert schedule.kept == 50_000


@pytest.mark.parametrize("gamma", [0.51, 0.55, 0.75, 1.0])
@pytest.mark.parametrize(
    ("lr", "final_lr", "steps"), [(0.5, 0.005, 100), (0.09, 0.001, 50_000), (2.0, 1.9, 7), (1.0, 1e-6, 10)]
)
def test_between_hits_both_step_sizes(gamma: float, lr: float, final_lr: float, steps: int) -> None:
    schedule = Decreasing.between(lr=lr, final_lr=final_lr, gamma=gamma, steps=steps, noise_from=0.5)
    assert schedule.at(1).lr == pytest.approx(lr, rel=1e-9)
    assert schedule.at(steps).lr == pytest.approx(final_lr, rel=1e-9)
    lrs = [schedule.at(k).lr for k in range(1, min(steps, 200) + 1)]
    assert all(a > b for a, b in itertools.pairwise(lrs))
    assert schedule.gamma == gamma and schedule.noise_from == 0.5


def test_between_with_one_step_starts_at_lr() -> None:
    assert Decreasing.between(lr=0.3, final_lr=0.3, gamma=0.6, steps=1).at(1).lr == pytest.approx(0.3)


def test_first_150_of_200_epochs_are_noise_free_and_20_draws_are_kept() -> None:
    per_epoch = 391
    schedule = Decreasing.between(
        lr=0.5, final_lr=0.005, gamma=0.55, steps=200 * per_epoch, noise_from=0.75, samples=20, thinning=per_epoch
    )
    border = 150 * per_epoch
    assert schedule.at(1).stage == schedule.at(border).stage == BURN_IN
    assert schedule.at(1).temperature == schedule.at(border).temperature == 0.0
    assert schedule.at(border + 1).stage == schedule.at(200 * per_epoch).stage == SAMPLING
    assert schedule.at(border + 1).temperature == 1.0
    assert kept_steps(schedule) == [per_epoch * e for e in range(181, 201)]
    assert schedule.kept == 20


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", -1.0), ("lr", math.nan), ("final_lr", 0.0), ("final_lr", 0.5), ("final_lr", 0.7),
        ("gamma", 0), ("gamma", math.nan), ("gamma", "x"), ("gamma", 2.0), ("steps", 0), ("final_lr", 1e-20),
    ],
)  # fmt: skip
def test_between_refuses_in_one_line_naming_the_field(field: str, value: object) -> None:
    good: dict[str, Any] = {"lr": 0.5, "final_lr": 0.1, "gamma": 0.6, "steps": 10}
    with refused(field):
        Decreasing.between(**{**good, field: value})
