"""The decreasing schedule: lr_k = a(b+k)^(−γ), its noise-free start and what it keeps."""

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
from raychains.schedules import BURN_IN, SAMPLING, Decreasing, Setting
from raychains.spec import Part
from tests.checks import refused


def kept_steps(schedule: Decreasing) -> list[int]:
    return [k for k in range(1, schedule.steps + 1) if schedule.at(k).keep]


def test_gamma_one_equals_hand_computed_values() -> None:
    schedule = Decreasing(steps=4, a=6.0, b=2.0, gamma=1.0)
    assert [schedule.at(k) for k in (1, 2, 3, 4)] == [
        Setting(pytest.approx(lr, rel=1e-15), 1.0, SAMPLING, 0, True) for lr in (2.0, 1.5, 1.2, 1.0)
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
        lr=0.5,
        final_lr=0.005,
        gamma=0.55,
        steps=200 * per_epoch,
        noise_from=0.75,
        samples=20,
        thinning=per_epoch,
    )
    border = 150 * per_epoch
    assert schedule.at(1).stage == schedule.at(border).stage == BURN_IN
    assert schedule.at(1).temperature == schedule.at(border).temperature == 0.0
    assert schedule.at(border + 1).stage == schedule.at(200 * per_epoch).stage == SAMPLING
    assert schedule.at(border + 1).temperature == 1.0
    assert kept_steps(schedule) == [per_epoch * e for e in range(181, 201)]
    assert schedule.kept == 20


@pytest.mark.parametrize(
    ("share", "steps", "burn_in"), [(0.7, 10, 7), (0.29, 100, 29), (0.1, 30, 3), (0.55, 100, 55), (0.5, 3, 2)]
)
def test_burn_in_is_the_share_rounded_up_and_immune_to_rounding(share: float, steps: int, burn_in: int) -> None:
    schedule = Decreasing(steps=steps, a=1.0, b=0.0, gamma=0.6, noise_from=share)
    stages = [schedule.at(k).stage for k in range(1, steps + 1)]
    assert stages == [BURN_IN] * burn_in + [SAMPLING] * (steps - burn_in)
    assert not any(schedule.at(k).keep for k in range(1, burn_in + 1))


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(
    steps=st.integers(1, 200),
    noise_from=st.floats(0, 0.99),
    samples=st.none() | st.integers(1, 30),
    thinning=st.integers(1, 9),
)
def test_kept_equals_the_count_of_keep_flags(steps: int, noise_from: float, samples: int | None, thinning: int) -> None:
    try:
        schedule = Decreasing(
            steps=steps, a=1.0, b=0.0, gamma=0.6, noise_from=noise_from, samples=samples, thinning=thinning
        )
    except UserError:
        reject()
    kept = kept_steps(schedule)
    assert schedule.kept == len(kept) >= 1
    assert samples is None or len(kept) == samples
    assert kept[-1] == steps and all(b - a == thinning for a, b in itertools.pairwise(kept))
    assert all(schedule.at(k).stage == SAMPLING for k in kept)


def test_part_survives_json() -> None:
    schedule = Decreasing(steps=90, a=0.1, b=3.5, gamma=0.55, noise_from=0.75, samples=4, thinning=5, temperature=0.5)
    again = schedules.build(Part.from_json(json.loads(json.dumps(schedule.part().to_json()))))
    assert again == schedule and isinstance(again, Decreasing)


GOOD: dict[str, Any] = {"steps": 100, "a": 0.1, "b": 0.0, "gamma": 0.55}
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("a", -0.1), ("a", 0.0), ("a", NAN), ("b", -1), ("b", NAN), ("b", INF),
        ("gamma", 0.5), ("gamma", 1.1), ("gamma", NAN),
        ("noise_from", 1.0), ("noise_from", -0.1), ("noise_from", NAN), ("noise_from", 0.999),
        ("samples", 0), ("samples", 101), ("samples", 2.0), ("thinning", 0), ("thinning", "2"),
        ("steps", 0), ("steps", 1.0), ("temperature", -1), ("temperature", NAN),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_in_one_line_naming_the_field(field: str, value: object) -> None:
    with refused(field):
        Decreasing(**{**GOOD, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", -1.0), ("lr", NAN), ("final_lr", 0.0), ("final_lr", 0.5), ("final_lr", 0.7),
        ("gamma", 0), ("gamma", NAN), ("gamma", "x"), ("gamma", 2.0), ("steps", 0),
    ],
)  # fmt: skip
def test_between_refuses_in_one_line_naming_the_field(field: str, value: object) -> None:
    good: dict[str, Any] = {"lr": 0.5, "final_lr": 0.1, "gamma": 0.6, "steps": 10}
    with refused(field):
        Decreasing.between(**{**good, field: value})
