"""ASHA over reports: who is stopped, what never is, and a memory that outlives drivers. Decisions alone, without Ray's processes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from raychains.orchestration.tuning.scheduler import Halving
from raychains.planning.sweeping import Asha

LENGTH = 40


def report(epoch: float, nll: float) -> dict[str, Any]:
    return {"epoch": epoch, "cycle": int(epoch), "metrics": {"nll": nll}}


class World:
    """Trials that report to a scheduler in turn."""

    def __init__(self, before: Mapping[str, Any] | None = None, mode: str = "min") -> None:
        self.stopped: list[tuple[str, float]] = []
        self.scheduler = Halving(
            Asha(grace=0.25, reduction=2.0), metric="nll", mode=mode, length=LENGTH, before=before or {},
            stopped=lambda digest, r: self.stopped.append((digest, r["epoch"])),
        )  # fmt: skip
        self._trials: dict[str, Any] = {}

    def tell(self, digest: str, epoch: float, nll: float, *, free: bool = False) -> str:
        if digest not in self._trials:
            self._trials[digest] = SimpleNamespace(trial_id=f"t-{digest}", config={"digest": digest})
            self.scheduler.on_trial_add(None, self._trials[digest])
        flat = {
            "kind": "report", "free": free, "report/epoch": epoch, "report/cycle": int(epoch), "report/metrics/nll": nll,
        }  # fmt: skip
        return self.scheduler.on_trial_result(None, self._trials[digest], flat)


def test_the_worse_half_is_stopped_at_each_rung_and_said_so_before() -> None:
    world = World()
    assert [world.tell(d, 10, v) for d, v in (("a", 1.0), ("b", 2.0), ("c", 0.5), ("d", 1.1))] == [
        "CONTINUE", "STOP", "CONTINUE", "STOP",
    ]  # fmt: skip
    assert world.tell("a", 20, 0.8) == "CONTINUE" and world.tell("c", 20, 0.9) == "STOP"
    assert world.stopped == [("b", 10), ("d", 10), ("c", 20)]


def test_nothing_is_stopped_before_the_grace_is_over_or_at_the_end() -> None:
    world = World()
    world.tell("a", 10, 0.1)
    assert world.tell("b", 9, 5.0) == "CONTINUE"
    world.tell("a", 40, 0.1)
    assert world.tell("b", 40, 5.0) == "CONTINUE" and not world.stopped


def test_a_chain_that_costs_nothing_more_is_judged_and_not_stopped() -> None:
    world = World()
    world.tell("a", 10, 1.0)
    assert world.tell("b", 10, 5.0, free=True) == "CONTINUE"
    assert world.tell("c", 10, 2.0) == "CONTINUE"  # better than the middle of 1 and 5


def test_a_value_that_is_no_number_is_the_worst() -> None:
    world = World()
    world.tell("a", 10, 1.0)
    assert world.tell("b", 10, float("nan")) == "STOP"
    upwards = World(mode="max")
    upwards.tell("a", 10, 1.0)
    assert upwards.tell("b", 10, float("nan")) == "STOP" and upwards.tell("c", 10, 2.0) == "CONTINUE"


def test_ticks_and_ends_decide_nothing() -> None:
    world = World()
    trial = SimpleNamespace(trial_id="t", config={"digest": "a"})
    world.scheduler.on_trial_add(None, trial)
    for kind in ("tick", "end"):
        assert world.scheduler.on_trial_result(None, trial, {"kind": kind}) == "CONTINUE"


def test_a_later_driver_decides_by_what_was_reported_to_the_earlier_one() -> None:
    told = [
        ("a", 10, 1.0),
        ("b", 10, 2.0),
        ("c", 10, 0.5),
        ("a", 20, 0.8),
        ("d", 10, 0.7),
        ("d", 20, 0.9),
        ("e", 10, 0.7),
    ]
    whole = World()
    answers = [whole.tell(*t) for t in told]
    for cut in range(1, len(told)):
        before: dict[str, list[dict[str, Any]]] = {}
        for digest, epoch, nll in told[:cut]:
            before.setdefault(digest, []).append(report(epoch, nll))
        ended = {d: r for d, r in before.items() if d not in {t[0] for t in told[cut:]}}
        later = World(ended)
        again = {d: r for d, r in before.items() if d not in ended}
        for digest, reports in again.items():  # those that go on tell everything again
            for r in reports:
                later.tell(digest, r["epoch"], r["metrics"]["nll"], free=True)
        assert [later.tell(*t) for t in told[cut:]] == answers[cut:]
