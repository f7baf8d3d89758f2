"""Constant, linear, exponential and step: torch's own schedulers, and exact ends."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from raychains.schedules import Constant, Cyclical, Exponential, Linear, NonCyclical, Schedule, Step
from tests.checks import refused

K = 60


def lrs(schedule: Schedule) -> list[float]:
    return [schedule.at(k).lr for k in range(1, schedule.steps + 1)]


def torchs(kind: Any, lr: float, steps: int = K, **arguments: Any) -> list[float]:
    """The step sizes of one of torch's schedulers."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = kind(optimizer, **arguments)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_constant_is_constant() -> None:
    assert lrs(Constant(lr=0.3, steps=K)) == [0.3] * K


@pytest.mark.parametrize("final_lr", [0.0, 0.03, 0.3])
def test_linear_equals_torchs(final_lr: float) -> None:
    theirs = torchs(
        lr_scheduler.LinearLR, 0.3, start_factor=1.0, end_factor=final_lr / 0.3, total_iters=K - 1
    )  # torch multiplies step by step, hence the tolerance
    assert lrs(Linear(lr=0.3, final_lr=final_lr, steps=K)) == pytest.approx(theirs, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("final_lr", [1e-6, 0.03, 0.3])
def test_exponential_equals_torchs(final_lr: float) -> None:
    theirs = torchs(lr_scheduler.ExponentialLR, 0.3, gamma=(final_lr / 0.3) ** (1 / (K - 1)))
    assert lrs(Exponential(lr=0.3, final_lr=final_lr, steps=K)) == pytest.approx(theirs, rel=1e-11)


def test_step_equals_torchs_with_the_milestones_in_steps() -> None:
    ours = lrs(Step(lr=0.3, milestones=(0.5, 0.75, 0.76), factor=0.1, steps=K))
    theirs = torchs(lr_scheduler.MultiStepLR, 0.3, milestones=[30, 45, 46], gamma=0.1)
    assert ours == pytest.approx(theirs, rel=1e-13)


def test_step_with_milestones_equally_far_apart_equals_torchs() -> None:
    ours = lrs(Step(lr=0.3, milestones=(0.25, 0.5, 0.75), factor=0.5, steps=K))
    assert ours == torchs(lr_scheduler.StepLR, 0.3, step_size=15, gamma=0.5)  # halving is exact


@pytest.mark.parametrize(
    ("share", "steps", "before"), [(0.7, 10, 7), (0.29, 100, 29), (0.1, 30, 3), (0.55, 100, 55), (0.5, 3, 2)]
)
def test_a_milestone_is_a_share_rounded_up_and_immune_to_rounding(share: float, steps: int, before: int) -> None:
    schedule = Step(lr=1.0, milestones=(share,), factor=0.5, steps=steps, noise_from=share)
    assert lrs(schedule) == [1.0] * before + [0.5] * (steps - before)
    assert schedule.burn_in == before


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(lr=st.floats(1e-8, 1e3), ratio=st.floats(1e-8, 1.0), steps=st.integers(2, 10**7))
def test_linear_and_exponential_reach_both_ends_exactly_and_never_rise(lr: float, ratio: float, steps: int) -> None:
    final_lr = lr * ratio
    for kind in (Linear, Exponential):
        schedule = kind(lr=lr, final_lr=final_lr, steps=steps)
        assert schedule.at(1).lr == lr and schedule.at(steps).lr == final_lr
        some = [schedule.at(1 + i * (steps - 1) // 7).lr for i in range(8)]
        assert all(b <= a * (1 + 1e-14) for a, b in itertools.pairwise(some))
    assert Linear(lr=lr, final_lr=0.0, steps=steps).at(steps).lr == 0.0


def test_a_burn_in_is_exact_where_its_share_times_the_steps_rounds_up() -> None:
    burn_in, steps = 25_857_426, 33_881_359
    assert math.ceil(burn_in / steps * steps - 1e-9) == burn_in + 1, "the plain share would be a step too long"
    share = NonCyclical.noise_from_steps(burn_in, steps=steps)
    assert Constant(lr=0.1, steps=steps, noise_from=share).burn_in == burn_in


@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(data=st.data(), steps=st.integers(1, 10**12) | st.integers(1, 300))
def test_a_burn_in_told_in_steps_is_exact(data: st.DataObject, steps: int) -> None:
    burn_in = data.draw(st.integers(0, steps - 1) | st.integers(max(0, steps - 3), steps - 1))
    share = NonCyclical.noise_from_steps(burn_in, steps=steps)
    schedule = Constant(lr=0.1, steps=steps, noise_from=share)
    assert schedule.burn_in == burn_in
    assert schedule.at(burn_in + 1).temperature == 1.0
    assert burn_in == 0 or schedule.at(burn_in).temperature == 0.0


def test_a_burn_in_in_steps_and_its_share_are_one_setting() -> None:
    assert NonCyclical.noise_from_steps(150 * 391, steps=200 * 391) == 0.75


@pytest.mark.parametrize("burn_in", [-1, 10, 11, 2.0, True, None])
def test_a_burn_in_that_leaves_no_step_is_refused(burn_in: Any) -> None:
    with refused("burn_in_steps", repr(burn_in), "9"):
        NonCyclical.noise_from_steps(burn_in, steps=10)


def test_warnings_name_what_was_hardly_meant() -> None:
    (grows,) = Linear(lr=0.1, final_lr=0.2, steps=10).warnings()
    assert "grows" in grows and "0.2" in grows
    (late,) = Step(lr=0.1, milestones=(0.5, 0.99), factor=0.1, steps=10).warnings()
    assert "1 of 2 milestones" in late
    assert not Step(lr=0.1, milestones=(0.5, 0.75), factor=0.1, steps=90).warnings()


@pytest.mark.parametrize(
    "schedule",
    [
        Cyclical(lr=0.1, steps=10, cycles=2, exploration=0.5),
        Constant(lr=0.1, steps=10),
        Exponential(lr=0.1, final_lr=0.01, steps=10),
    ],
    ids=lambda s: s.kind,
)
@pytest.mark.parametrize("step", [0, -1, 11])
def test_a_step_that_the_schedule_does_not_have_is_refused(schedule: Schedule, step: int) -> None:
    assert schedule.at(1).lr > 0 and schedule.at(10).lr > 0
    with refused("step", str(step), "1 to", "10"):
        schedule.at(step)
