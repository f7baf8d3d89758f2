"""Every kind of schedule as plain data: JSON, digests that never move, and one line for a wrong setting."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from raychains import schedules
from raychains.core.spec import Part, digest_of
from raychains.schedules import Constant, Cyclical, Decreasing, Exponential, Linear, Schedule, Step
from tests.checks import refused

FROZEN: dict[str, Schedule] = {
    "577e2af617b26e4b4b1420c34b7189b18875667310d296f86196307f63c77441": Cyclical(
        steps=8, lr=0.4, cycles=2, exploration=0.5
    ),
    "75d5b98ab2e7207ce38c9d1a6378beb8118ea929400481c50146b9b6adb20d96": Cyclical(
        steps=90, lr=0.1, cycles=3, exploration=0.1, samples_per_cycle=2, thinning=3, sample_below=0.07,
        drop_first=4, noise_in_exploration=True, temperature=0.0045,
    ),
    "9f8edc4d53f094fead03a5cb029c250b702e9f50b952a2e5ec1017609da54d9c": Decreasing(
        steps=90, a=0.1, b=3.5, gamma=0.55, noise_from=0.75, samples=4, thinning=5, temperature=0.5
    ),
    "c01f75c13e5f67f6eadd81b5d88ddfdb901d6857fdabff2583ccd01f1a76ac39": Decreasing(steps=100, a=1, b=0, gamma=1),
    "3e31c30344b64e84ce12c194876323c55df9822ca2a89ec6cbdd9e6d4f083c3c": Constant(
        lr=0.1, steps=90, noise_from=0.5, samples=3, thinning=2
    ),
    "1cebde06287e1eb731d44ad3c04c4e3cd4848714011e236d7132d3ab28fbbd26": Linear(
        lr=0.1, final_lr=0.0, steps=90, temperature=0.5
    ),
    "2363f641bfb4b7a1df6e887bd7d4939f495292b4d0090c0b70f29c389c08e39c": Exponential(
        lr=0.1, final_lr=0.01, steps=90, ramp=0.25
    ),
    "a8b7e7ebf200e7d658be7d5b9b24afdf2c1986e4018750ca660efaaca045e7be": Step(
        lr=0.1, milestones=(0.5, 0.75), factor=0.1, steps=90
    ),
}  # fmt: skip
"""By the digest of their parts. A change here orphans every sample that people have stored: raise a revision
instead."""


@pytest.mark.parametrize(("digest", "schedule"), FROZEN.items(), ids=[s.kind for s in FROZEN.values()])
def test_a_part_survives_json_and_its_digest_is_frozen(digest: str, schedule: Schedule) -> None:
    part = Part.from_json(json.loads(json.dumps(schedule.part().to_json())))
    again = schedules.build(part)
    assert again == schedule and type(again) is type(schedule) and hash(again) == hash(schedule)
    assert again.part() == part == schedule.part() and digest_of(part.to_json()) == digest
    written_out = schedules.build(Part(kind=part.kind, revision=1, settings={"ramp": 0, **part.settings}))
    assert written_out == schedule and written_out.part() == part


def test_every_kind_is_frozen() -> None:
    assert {s.kind for s in FROZEN.values()} == set(schedules.KINDS)


def test_a_ramp_is_part_of_the_digest() -> None:
    plain, ramped = (Cyclical(steps=8, lr=0.4, cycles=2, exploration=0.5, ramp=r).part() for r in (0.0, 0.25))
    assert "ramp" not in plain.settings and ramped.settings["ramp"] == 0.25
    assert digest_of(plain.to_json()) != digest_of(ramped.to_json())


def test_lists_tuples_and_whole_numbers_are_one_setting() -> None:
    a = Step(lr=1, milestones=[0.5], factor=0.1, steps=10)  # type: ignore[arg-type]
    b = Step(lr=1.0, milestones=(0.5,), factor=0.1, steps=10)
    assert a == b and digest_of(a.part().to_json()) == digest_of(b.part().to_json())


# What is refused

NAN, INF = math.nan, math.inf
GOOD: dict[str, dict[str, Any]] = {
    "cyclical": {"steps": 100, "lr": 0.1, "cycles": 4, "exploration": 0.5},
    "decreasing": {"steps": 100, "a": 0.1, "b": 0.0, "gamma": 0.55},
    "constant": {"lr": 0.1, "steps": 100},
    "linear": {"lr": 0.1, "final_lr": 0.01, "steps": 100},
    "exponential": {"lr": 0.1, "final_lr": 0.01, "steps": 100},
    "step": {"lr": 0.1, "milestones": (0.5,), "factor": 0.1, "steps": 100},
}
COMMON: dict[str, list[Any]] = {
    "lr": [0.0, -1, NAN, INF, "0.1", None, True], "steps": [0, 10.0, None], "temperature": [-1, NAN, INF, None],
    "thinning": [0, 2.5, "2"], "ramp": [1.0, -0.1, NAN, "x", True],
}  # fmt: skip
NOT_CYCLICAL: dict[str, list[Any]] = {"noise_from": [1.0, -0.1, NAN, 0.999], "samples": [0, 101, 2.0]}
OWN: dict[str, dict[str, list[Any]]] = {
    "cyclical": {
        "exploration": [1.2, 1.0, -0.1, NAN, "x"], "cycles": [0, -1, 101, 2.0, True], "samples_per_cycle": [0, 13, 1.5],
        "sample_below": [0.0, NAN, 1e-6], "drop_first": [-1, 1.0, True, 13],
    },
    "decreasing": {"a": [-0.1, 0.0, NAN], "b": [-1, NAN, INF], "gamma": [0.5, 1.1, NAN]},
    "constant": {},
    "linear": {"final_lr": [-0.1, NAN, INF, "0"], "steps": [1]},
    "exponential": {"final_lr": [0.0, -1.0, NAN, None], "steps": [1]},
    "step": {
        "milestones": [(), (0.0,), (1.0,), (0.5, 0.5), (0.7, 0.5), 0.5, "half", (NAN,), ([0.5],), (True,), {0.5: 1}],
        "factor": [0.0, 1.0, -0.5, NAN, "x"],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", schedules.KINDS)
def test_wrong_values_are_refused_in_one_line_naming_the_field(kind: str) -> None:
    make: Any = schedules.KINDS[kind]
    for wrong in (COMMON, {} if kind == "cyclical" else NOT_CYCLICAL, OWN[kind]):
        for field, values in wrong.items():
            for value in values if field != "lr" or "lr" in GOOD[kind] else []:
                with refused(field):
                    make(**{**GOOD[kind], field: value})


@pytest.mark.parametrize("kind", schedules.KINDS)
def test_a_part_that_is_incomplete_or_unknown_is_refused(kind: str) -> None:
    good = {"kind": kind, "revision": 1, **GOOD[kind]}
    for change, words in (({"kind": f"{kind}s"}, ("schedule", kind)), ({"revision": 2}, (kind, "revision", "2")),
                          ({"colour": 1}, (kind, "colour"))):  # fmt: skip
        with refused(*words):
            schedules.build(Part.from_json({**good, **change}))
    for field in GOOD[kind]:
        with refused(kind, field):
            schedules.build(Part.from_json({k: v for k, v in good.items() if k != field}))
