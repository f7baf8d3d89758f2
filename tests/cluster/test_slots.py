"""Slots of clusters as Ray describes them: what fits, what is refused in one line, and what a growing cluster is asked for."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
import ray
from ray.exceptions import RayTaskError

from raychains import __version__
from raychains.api import placement
from raychains.options import Run
from raychains.orchestration import cluster, session, shortage
from raychains.orchestration.evaluators import Evaluators
from raychains.orchestration.names import Names
from raychains.orchestration.placement import Placement
from raychains.orchestration.shortage import Shortage
from raychains.orchestration.worker import ChainWorker
from raychains.orchestration.workers import PENDING, Workers
from tests.checks import refused


def node(cpus: int, gpus: float = 0, accelerator: str | None = None, alive: bool = True) -> dict[str, Any]:
    kind = {f"accelerator_type:{accelerator}": 1.0} if accelerator else {}
    return {"NodeID": f"{cpus:056d}", "Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus, **kind}}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the cluster has: to be filled."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "nodes", lambda: found)
    monkeypatch.setattr(cluster, "ours", lambda: False)  # whatever Ray other tests of this process have started
    return found


MIXED = [node(8, 1, "A100"), node(4, 2, "T4"), node(1), node(64, 4, "H100", alive=False)]


def test_room_is_what_fits_node_by_node(nodes: list[dict[str, Any]]) -> None:
    nodes += MIXED
    assert session.slots(1, None).room() == session.slots(1, None).count == 3
    assert session.slots(2, 0.5).room() == 4 and session.slots(4, 0.0).room() == 3
    assert session.slots(1, None, accelerator_type="T4").room() == 2
    assert session.slots(1, None, 0.5, evaluators=2).room() == 2
    assert session.slots(1, None, concurrent=2).room() == 2
    nodes.clear()
    assert Placement(concurrent=4).slots().room() == 0


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"cpus_per_chain": 9, "gpus_per_chain": 0.0}, "cpus_per_chain must be at most the CPUs of one node (8), got 9"),
        ({"gpus_per_chain": 4}, "gpus_per_chain must be at most the cluster's GPUs (3), got 4"),
        ({"gpus_per_chain": 3}, "gpus_per_chain must be at most the GPUs of one node (2), got 3"),
        ({"cpus_per_chain": 8, "gpus_per_chain": 2}, "cpus_per_chain must be at most the CPUs of a node with 2 GPU, got 8"),
        ({"accelerator_type": "A10"}, "accelerator_type must be one of A100, T4, got 'A10'; did you mean 'A100'?"),
        ({"accelerator_type": "A100", "gpus_per_chain": 2}, "gpus_per_chain must be at most the cluster's GPUs (1), got 2"),
        ({"gpus_per_evaluator": 2, "gpus_per_chain": 2}, "evaluators × gpus_per_evaluator must fit"),
    ],
)  # fmt: skip
def test_what_no_node_holds_is_refused(nodes: list[dict[str, Any]], settings: dict[str, Any], line: str) -> None:
    nodes += MIXED
    with refused(line):
        Placement(**settings).slots()


def test_a_type_of_gpu_that_ray_does_not_know(nodes: list[dict[str, Any]]) -> None:
    nodes += [node(4, 1)]
    with refused("accelerator_type must be left out", "'A100'"):
        session.slots(1, None, accelerator_type="A100")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"concurrent": 0}, "concurrent must be an integer of at least 1, got 0"),
        ({"slot_timeout": "soon"}, "slot_timeout must be a finite number above 0"),
        ({"slot_timeout": "-1s"}, "slot_timeout must be a finite number above 0"),
        ({"accelerator_type": " "}, "accelerator_type must be a type of GPU"),
        (
            {"accelerator_type": "T4", "gpus_per_chain": 0.0},
            "accelerator_type must be left out where nothing holds a GPU",
        ),
    ],
)
def test_options_that_say_nothing(settings: dict[str, Any], line: str) -> None:
    with refused(line):
        placement(Run(**settings))


def test_the_options_reach_the_placement() -> None:
    made = placement(Run(accelerator_type="T4", concurrent=7, slot_timeout="2min"))
    assert (made.accelerator_type, made.concurrent, made.slot_timeout) == ("T4", 7, 120.0)


def test_a_cluster_that_grows_is_asked_for_as_many_as_wait(
    nodes: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes += [node(2)]
    monkeypatch.setattr(cluster, "grows", lambda: True)
    slots = session.slots(1, 1.0)
    assert slots.count == slots.room() == 0 and slots.wanted(9) == slots.at_once(9) == 9
    assert session.slots(1, 1.0, concurrent=3).wanted(9) == 3
    monkeypatch.setattr(cluster, "grows", lambda: False)
    fixed = session.slots(1, None)
    assert fixed.wanted(9) == fixed.at_once(9) == 2 and fixed.wanted(1) == 1
    nodes.clear()
    assert fixed.wanted(9) == 0
    assert session.slots(1, 1.0, concurrent=3).wanted(9) == 3, "a number says that they may be waited for"
    monkeypatch.setattr(cluster, "ours", lambda: True)
    nodes += [node(4)]
    assert session.slots(1, None, concurrent=9).wanted(9) == 4, "this machine never grows"


def test_an_evaluator_goes_where_it_costs_the_fewest_chains(
    nodes: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes += [node(8, 2), node(4, 1)]
    asked: list[dict[str, Any]] = []

    class Kind:
        @staticmethod
        def options(**options: Any) -> Any:
            asked.append(options)
            return MagicMock()

    alone = Placement(gpus_per_evaluator=0.5, evaluators=3)
    monkeypatch.setattr(ray, "remote", lambda kind: Kind)
    made = Evaluators("store", {}, "test", 3, alone, None, slots=Placement(
        gpus_per_chain=2, gpus_per_evaluator=0.5, evaluators=2).slots(), names=Names("r", "abcdef99"))  # fmt: skip
    for _ in range(3):
        made.start()
    where = [getattr(a["scheduling_strategy"], "node_id", "SPREAD") for a in asked]
    assert where == [f"{4:056d}", f"{4:056d}", "SPREAD"]
    assert [a["name"] for a in asked] == [f"raychains/r/evaluator-{n}-abcdef" for n in range(3)]


class Actors:
    """A class of actors of which each is another, and answers each call with another reference."""

    def options(self, **_: Any) -> Any:
        return self

    def remote(self, *_: Any, **__: Any) -> Any:
        actor = MagicMock()
        actor.ready.options().remote.side_effect = lambda: object()
        return actor


def test_a_node_without_raychains_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> None:
        cause = ModuleNotFoundError("No module named 'raychains'")
        text = "Traceback\nRuntimeError: The actor failed to import on the worker.\nModuleNotFoundError: No module named 'raychains'"
        raise RayTaskError("ready", text, cause)

    monkeypatch.setattr(ray, "remote", lambda **_: lambda kind: Actors())
    monkeypatch.setattr(ray, "get", fails)
    monkeypatch.setattr(ray, "nodes", lambda: [node(1)])
    made = Workers("store", Placement().slots(), 60.0, None)
    made.ask_for(1)
    [ready] = made.references()
    with refused("nodes must have raychains", __version__, "a worker has none"):
        made.take(ready)


def test_workers_that_no_chain_waits_for_are_withdrawn(
    nodes: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes += [node(1)]
    killed: list[Any] = []
    monkeypatch.setattr(ray, "remote", lambda **_: lambda kind: Actors())
    monkeypatch.setattr(ray, "kill", killed.append)
    made = Workers("store", Placement(concurrent=500).slots(), 60.0, None)
    made.ask_for(500)
    assert len(made) == len(made.pending(0)) == PENDING and made.up == 0
    made.withdraw(3)
    assert len(made) == len(made.pending(0)) == len(made.references()) == 3 and len(killed) == PENDING - 3
    made.withdraw(3)
    assert len(made) == 3


def test_a_class_keeps_its_methods_under_its_runs_name() -> None:
    made = Names("digits-1").titled(ChainWorker)
    assert made.__name__ == "ChainWorker:digits-1" and made.ready is ChainWorker.ready


class Asked:
    """Workers of which some are up, and none of the others has a process, or all have."""

    def __init__(self, up: int, pending: int) -> None:
        self.up, self._pending = up, pending

    def __len__(self) -> int:
        return self.up + self._pending

    def pending(self, seconds: float) -> list[object]:
        return [object()] * self._pending if seconds < 1000 else []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(cluster, "unplaced", len)
    monkeypatch.setattr(cluster, "free", lambda: [])
    return now


def test_a_run_without_room_says_so_at_once_and_ends_after_the_timeout(
    nodes: list[dict[str, Any]], clock: list[float]
) -> None:
    nodes += [node(1), node(1)]
    slots = Placement(cpus_per_chain=2, concurrent=1).slots()
    short = Shortage(slots, Asked(0, 1), None)  # type: ignore[arg-type]
    said = short.look(waiting=3, running=False)
    assert said == (
        "no node of the cluster has room for a chain (2 CPU): it has 2 nodes of 1 CPU; more nodes were asked for"
    )
    clock[0] += shortage.TIMEOUT - 1
    assert short.look(waiting=3, running=False) == said
    nodes += [node(2)]
    clock[0] += 2
    assert "others hold the room" in str(short.look(waiting=3, running=False))
    clock[0] += 1e6
    assert short.look(waiting=3, running=False) is not None, "what others hold is waited for without end"
    nodes.pop()
    clock[0] += 2
    assert short.look(waiting=3, running=False) == said
    clock[0] += shortage.TIMEOUT
    with refused("nothing could be placed for 15 min", "2 CPU", "2 nodes of 1 CPU", "--resume"):
        short.look(waiting=3, running=False)


def test_a_timeout_that_was_asked_for_ends_a_run_whose_room_others_hold(
    nodes: list[dict[str, Any]], clock: list[float]
) -> None:
    nodes += [node(2)]
    short = Shortage(Placement().slots(), Asked(0, 2), 30)  # type: ignore[arg-type]
    assert (
        short.look(waiting=1, running=False)
        == "others hold the room for a chain (1 CPU): of 1 node of 2 CPU is free no node"
    )
    clock[0] += 31
    with refused("nothing could be placed for 30 s", "others hold"):
        short.look(waiting=1, running=False)


def test_while_a_chain_runs_nothing_ends(nodes: list[dict[str, Any]], clock: list[float]) -> None:
    nodes += [node(4)]
    short = Shortage(Placement().slots(), Asked(1, 2), 30)  # type: ignore[arg-type]
    for _ in range(3):
        clock[0] += 1000
        assert "2 more slots (1 CPU) could not be had for 30 s" in str(short.look(waiting=2, running=True))
    assert short.look(waiting=0, running=True) is None


def test_evaluators_without_room_are_told_of_too(nodes: list[dict[str, Any]], clock: list[float]) -> None:
    nodes += [node(4)]
    placed = Placement(gpus_per_chain=0, concurrent=1, gpus_per_evaluator=0.5, slot_timeout=60)
    short = Shortage(placed.slots(), Asked(0, 0), 60, 0.5)  # type: ignore[arg-type]
    starved = type("Evaluators", (), {"starved": True})
    line = (
        "no node of the cluster has room for an evaluator (0.5 GPU): it has 1 node of 4 CPU; more nodes were asked for"
    )
    assert short.look(waiting=0, running=False, evaluators=starved) == line  # type: ignore[arg-type]
    assert short.look(waiting=0, running=False) is None
    assert short.look(waiting=0, running=False, evaluators=starved) == line  # type: ignore[arg-type]
    clock[0] += 61
    with refused("nothing could be placed for 1 min", "an evaluator"):
        short.look(waiting=0, running=False, evaluators=starved)  # type: ignore[arg-type]


def test_workers_that_have_a_process_are_waited_for_in_silence(
    nodes: list[dict[str, Any]], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes += [node(4)]
    monkeypatch.setattr(cluster, "unplaced", lambda actors: 0)
    short = Shortage(Placement().slots(), Asked(0, 2), 5)  # type: ignore[arg-type]
    for _ in range(5):
        clock[0] += 10
        assert short.look(waiting=2, running=False) is None
