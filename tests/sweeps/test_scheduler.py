"""ASHA over reports: who is stopped, what never is, and a memory that outlives drivers. Decisions alone, without Ray's processes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from raychains.orchestration.sweep import Halving
from raychains.planning.sweep_plan import Asha

LENGTH = 40


def report(epoch: float, nll: float) -> dict[str, Any]:
    return {"epoch": epoch, "cycle": int(epoch), "metrics": {"nll": nll}}


class World:
    """Trials that report to a scheduler in turn."""

    def __init__(self, earlier: Mapping[str, Any] | None = None, mode: str = "lower") -> None:
        self.stopped: list[tuple[str, float]] = []
        plan = SimpleNamespace(
            asha=Asha(grace=0.25, reduction=2.0), metric=SimpleNamespace(name="nll", better=mode), length=LENGTH
        )
        self.scheduler = Halving(plan, earlier or {}, lambda digest, r: self.stopped.append((digest, r["epoch"])))  # type: ignore[arg-type]

    def report(self, digest: str, epoch: float, nll: float) -> str:
        trial = SimpleNamespace(trial_id=f"t-{digest}")
        self.scheduler.on_trial_add(None, trial)
        result = {"digest": digest, "epoch": epoch, "cycle": int(epoch), "nll": nll}
        if epoch < LENGTH:
            return self.scheduler.on_trial_result(None, trial, result)
        self.scheduler.on_trial_complete(None, trial, result)  # as Tune does with a result that is the last
        return "CONTINUE"


def test_the_worse_half_is_stopped_at_each_rung_and_said_so_before() -> None:
    world = World()
    assert [world.report(d, 10, v) for d, v in (("a", 1.0), ("b", 2.0), ("c", 0.5), ("d", 1.1))] == [
        "CONTINUE", "STOP", "CONTINUE", "STOP",
    ]  # fmt: skip
    assert world.report("a", 20, 0.8) == "CONTINUE" and world.report("c", 20, 0.9) == "STOP"
    assert world.stopped == [("b", 10), ("d", 10), ("c", 20)]


def test_nothing_is_stopped_before_the_grace_is_over_or_at_the_end() -> None:
    world = World()
    world.report("a", 10, 0.1)
    assert world.report("b", 9, 5.0) == "CONTINUE"
    world.report("a", 40, 0.1)
    assert world.report("b", 40, 5.0) == "CONTINUE" and not world.stopped


def test_a_value_that_is_no_number_is_the_worst() -> None:
    world = World()
    world.report("a", 10, 1.0)
    assert world.report("b", 10, float("nan")) == "STOP"
    upwards = World(mode="higher")
    upwards.report("a", 10, 1.0)
    assert upwards.report("b", 10, float("nan")) == "STOP" and upwards.report("c", 10, 2.0) == "CONTINUE"


def test_a_failure_decides_nothing() -> None:
    World().scheduler.on_trial_complete(None, SimpleNamespace(trial_id="t"), {"failed": "why"})


def test_a_later_driver_decides_by_what_was_reported_to_the_earlier_one() -> None:
    reported = [
        ("a", 10, 1.0),
        ("b", 10, 2.0),
        ("c", 10, 0.5),
        ("a", 20, 0.8),
        ("d", 10, 0.7),
        ("d", 20, 0.9),
        ("e", 10, 0.7),
    ]
    whole = World()
    answers = [whole.report(*one) for one in reported]
    for cut in range(1, len(reported)):
        earlier: dict[str, list[dict[str, Any]]] = {}
        for digest, epoch, nll in reported[:cut]:
            earlier.setdefault(digest, []).append(report(epoch, nll))
        later = World(earlier)
        for (
            digest,
            reports,
        ) in earlier.items():  # those that resume report everything again, and are not judged by it again
            if digest not in {"b"}:
                assert {later.report(digest, r["epoch"], r["metrics"]["nll"]) for r in reports} == {"CONTINUE"}
        assert [later.report(*one) for one in reported[cut:]] == answers[cut:]
