"""Constant, linear, exponential and step: torch's own schedulers, exact ends, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from raychains import schedules
from raychains.schedules import Constant, Exponential, Linear, Schedule, Step, Straight
from raychains.spec import Part, digest_of
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


@pytest.mark.parametrize(("share", "steps", "before"), [(0.7, 10, 7), (0.29, 100, 29), (0.5, 3, 2), (0.55, 100, 55)])
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
    share = Straight.noise_from_steps(burn_in, steps=steps)
    assert Constant(lr=0.1, steps=steps, noise_from=share).burn_in == burn_in


@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(data=st.data(), steps=st.integers(1, 10**12) | st.integers(1, 300))
def test_a_burn_in_told_in_steps_is_exact(data: st.DataObject, steps: int) -> None:
    burn_in = data.draw(st.integers(0, steps - 1) | st.integers(max(0, steps - 3), steps - 1))
    share = Straight.noise_from_steps(burn_in, steps=steps)
    schedule = Constant(lr=0.1, steps=steps, noise_from=share)
    assert schedule.burn_in == burn_in
    assert schedule.at(burn_in + 1).temperature == 1.0
    assert burn_in == 0 or schedule.at(burn_in).temperature == 0.0


def test_a_burn_in_in_steps_and_its_share_are_one_setting() -> None:
    assert Straight.noise_from_steps(150 * 391, steps=200 * 391) == 0.75


@pytest.mark.parametrize("burn_in", [-1, 10, 11, 2.0, True, None])
def test_a_burn_in_that_leaves_no_step_is_refused(burn_in: Any) -> None:
    with refused("burn_in_steps", repr(burn_in), "9"):
        Straight.noise_from_steps(burn_in, steps=10)


EVERY: list[Schedule] = [
    Constant(lr=0.1, steps=90, noise_from=0.5, samples=3, thinning=2),
    Linear(lr=0.1, final_lr=0.0, steps=90, temperature=0.5),
    Exponential(lr=0.1, final_lr=0.01, steps=90, ramp=0.25),
    Step(lr=0.1, milestones=(0.5, 0.75), factor=0.1, steps=90),
]


@pytest.mark.parametrize("schedule", EVERY, ids=lambda s: s.kind)
def test_part_survives_json(schedule: Schedule) -> None:
    part = schedule.part()
    again = schedules.build(Part.from_json(json.loads(json.dumps(part.to_json()))))
    assert again == schedule and type(again) is type(schedule) and hash(again) == hash(schedule)
    assert again.part() == part == Part.from_json(json.loads(json.dumps(part.to_json())))


DIGESTS = {
    "constant": "3e31c30344b64e84ce12c194876323c55df9822ca2a89ec6cbdd9e6d4f083c3c",
    "linear": "1cebde06287e1eb731d44ad3c04c4e3cd4848714011e236d7132d3ab28fbbd26",
    "exponential": "2363f641bfb4b7a1df6e887bd7d4939f495292b4d0090c0b70f29c389c08e39c",
    "step": "a8b7e7ebf200e7d658be7d5b9b24afdf2c1986e4018750ca660efaaca045e7be",
}


@pytest.mark.parametrize("schedule", EVERY, ids=lambda s: s.kind)
def test_digest_of_a_part_is_frozen(schedule: Schedule) -> None:
    assert digest_of(schedule.part().to_json()) == DIGESTS[schedule.kind]


def test_lists_tuples_and_whole_numbers_are_one_setting() -> None:
    a = Step(lr=1, milestones=[0.5], factor=0.1, steps=10)  # type: ignore[arg-type]
    b = Step(lr=1.0, milestones=(0.5,), factor=0.1, steps=10)
    assert a == b and digest_of(a.part().to_json()) == digest_of(b.part().to_json())


def test_warnings_name_what_was_hardly_meant() -> None:
    (grows,) = Linear(lr=0.1, final_lr=0.2, steps=10).warnings()
    assert "grows" in grows and "0.2" in grows
    (late,) = Step(lr=0.1, milestones=(0.5, 0.99), factor=0.1, steps=10).warnings()
    assert "1 of 2 milestones" in late
    assert not any(schedule.warnings() for schedule in EVERY)


NAN, INF = math.nan, math.inf
GOOD: dict[type[Schedule], dict[str, Any]] = {
    Constant: {"lr": 0.1, "steps": 100},
    Linear: {"lr": 0.1, "final_lr": 0.01, "steps": 100},
    Exponential: {"lr": 0.1, "final_lr": 0.01, "steps": 100},
    Step: {"lr": 0.1, "milestones": (0.5,), "factor": 0.1, "steps": 100},
}
SHARED = [
    ("lr", 0.0), ("lr", -1), ("lr", NAN), ("lr", INF), ("lr", "0.1"), ("lr", None), ("lr", True),
    ("noise_from", 1.0), ("noise_from", -0.1), ("noise_from", NAN), ("noise_from", 0.999),
    ("samples", 0), ("samples", 101), ("samples", 2.0), ("thinning", 0), ("thinning", "2"),
    ("ramp", 1.0), ("ramp", -0.1), ("ramp", NAN), ("ramp", "x"), ("ramp", True),
    ("steps", 0), ("steps", 1.0), ("temperature", -1), ("temperature", NAN),
]  # fmt: skip
OWN: dict[type[Schedule], list[tuple[str, Any]]] = {
    Constant: [],
    Linear: [("final_lr", -0.1), ("final_lr", NAN), ("final_lr", INF), ("final_lr", "0"), ("steps", 1)],
    Exponential: [("final_lr", 0.0), ("final_lr", -1.0), ("final_lr", NAN), ("final_lr", None), ("steps", 1)],
    Step: [
        ("milestones", ()), ("milestones", (0.0,)), ("milestones", (1.0,)), ("milestones", (0.5, 0.5)),
        ("milestones", (0.7, 0.5)), ("milestones", 0.5), ("milestones", "half"), ("milestones", (NAN,)),
        ("milestones", ([0.5],)), ("milestones", (True,)), ("milestones", {0.5: 1}),
        ("factor", 0.0), ("factor", 1.0), ("factor", -0.5), ("factor", NAN), ("factor", "x"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "field", "value"), [(kind, *wrong) for kind in GOOD for wrong in [*SHARED, *OWN[kind]]]
)
def test_wrong_value_is_refused_in_one_line_naming_the_field(kind: type[Schedule], field: str, value: object) -> None:
    with refused(field):
        kind(**{**GOOD[kind], field: value})


@pytest.mark.parametrize("kind", GOOD, ids=lambda k: k.kind)
def test_a_missing_setting_is_refused(kind: type[Schedule]) -> None:
    settings = {name: value for name, value in GOOD[kind].items() if name != "lr"}
    with refused(kind.kind, "lr"):
        schedules.build(Part(kind=kind.kind, revision=1, settings=settings))
