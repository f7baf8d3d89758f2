"""Slots of clusters: what fits, what is refused in one line, and what a growing cluster is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError

from raychains import __version__
from raychains.coordination.capacity import Node
from raychains.coordination.coordinator import SlotReady
from raychains.core.config import Run
from raychains.orchestration.chains.chain_worker import ChainWorker
from raychains.orchestration.chains.messages import EvaluationConfig
from raychains.orchestration.cluster.ray_workers import RayWorkers, failure
from raychains.orchestration.cluster.resource_config import ResourceConfig, Slots
from raychains.orchestration.cluster.workers import Names
from raychains.orchestration.run import resource_wait
from raychains.orchestration.run.chain_workers import PENDING, ChainWorkers, Waiting
from raychains.orchestration.run.evaluator_pool import Evaluators
from raychains.orchestration.run.resource_wait import ResourceWait
from raychains.store import Storage
from tests.checks import refused
from tests.orchestration.recorded import Recorded

A100, T4 = Node(8, 1, "a", "A100"), Node(4, 2, "t", "T4")
MIXED = (A100, T4, Node(1, 0, "c"))


def slots_of(cluster: Recorded, **settings: Any) -> Slots:
    return ResourceConfig(**settings).slots(cluster)


def test_ray_tells_of_living_nodes_and_their_types_of_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
        return {"NodeID": name, "Alive": alive, "Resources": resources}

    kinds = {"accelerator_type:T4": 1.0}
    found = [node("t", CPU=4, GPU=2, **kinds), node("c", CPU=1), node("gone", False, CPU=64)]
    monkeypatch.setattr(ray, "nodes", lambda: found)
    assert RayWorkers().nodes() == [Node(4, 2, "t", "T4"), Node(1, 0, "c")]
    assert RayWorkers().nodes("A100") == [Node(4, 0, "t", "T4"), Node(1, 0, "c")]


def test_room_is_what_fits_node_by_node() -> None:
    cluster = Recorded(*MIXED)
    for settings, room in (
        ({}, 3),
        ({"cpus_per_chain": 2, "gpus_per_worker": 0.5}, 4),
        ({"cpus_per_chain": 4, "gpus_per_worker": 0.0}, 3),
        ({"accelerator_type": "T4"}, 2),
        ({"gpus_per_evaluator": 0.25, "evaluators": 2}, 2),
        ({"concurrent": 2}, 2),
    ):
        assert slots_of(cluster, **settings).room() == room, settings
    assert slots_of(cluster).count == 3
    cluster.found.clear()
    assert slots_of(cluster, concurrent=4).room() == 0


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"cpus_per_chain": 9, "gpus_per_worker": 0.0},
            "cpus_per_chain must be at most the CPUs of one node (8), got 9",
        ),
        ({"gpus_per_worker": 4}, "gpus_per_chain must be at most the cluster's GPUs (3), got 4"),
        ({"gpus_per_worker": 3}, "gpus_per_chain must be at most the GPUs of one node (2), got 3"),
        (
            {"cpus_per_chain": 8, "gpus_per_worker": 2},
            "cpus_per_chain must be at most the CPUs of a node with 2 GPU, got 8",
        ),
        ({"accelerator_type": "A10"}, "accelerator_type must be one of A100, T4, got 'A10'; did you mean 'A100'?"),
        (
            {"accelerator_type": "A100", "gpus_per_worker": 2},
            "gpus_per_chain must be at most the cluster's GPUs (1), got 2",
        ),
        ({"gpus_per_evaluator": 2, "gpus_per_worker": 2}, "evaluators × gpus_per_evaluator must fit"),
    ],
)
def test_what_no_node_holds_is_refused(settings: dict[str, Any], line: str) -> None:
    with refused(line):
        slots_of(Recorded(*MIXED), **settings)


@pytest.mark.parametrize("field", ["gpus_per_chain", "workers_per_chain"])
def test_more_workers_than_the_cluster_holds_are_refused_by_the_option_that_asked_for_them(field: str) -> None:
    with refused(f"{field} must be at most what the cluster holds (3), got 4"):
        ResourceConfig.of(Run(**{field: 4})).slots(Recorded(*MIXED))


def test_a_type_of_gpu_that_ray_does_not_know() -> None:
    with refused("accelerator_type must be left out", "'A100'"):
        slots_of(Recorded(Node(4, 1)), accelerator_type="A100")


def test_the_options_reach_the_resources() -> None:
    made = ResourceConfig.of(Run(accelerator_type="T4", concurrent=7, slot_timeout="2min"))
    assert (made.accelerator_type, made.concurrent, made.slot_timeout) == ("T4", 7, 120.0)
    with refused("accelerator_type must be a type of GPU"):
        ResourceConfig.of(Run(accelerator_type=" "))


def test_a_cluster_that_grows_is_asked_for_as_many_as_wait() -> None:
    cluster = Recorded(Node(2))
    cluster.growing = True
    slots = slots_of(cluster, gpus_per_worker=1.0)
    assert slots.count == slots.room() == 0 and slots.requested(9) == slots.at_once(9) == 9
    assert slots_of(cluster, gpus_per_worker=1.0, concurrent=3).requested(9) == 3
    cluster.growing = False
    fixed = slots_of(cluster)
    assert fixed.requested(9) == fixed.at_once(9) == 2 and fixed.requested(1) == 1
    cluster.found.clear()
    assert fixed.requested(9) == 0
    waits = slots_of(cluster, gpus_per_worker=1.0, concurrent=3)
    assert waits.requested(9) == 3, "a number says that they may be waited for"
    cluster.started_here = True
    cluster.found.append(Node(4))
    assert slots_of(cluster, concurrent=9).requested(9) == 4, "this machine never grows"


def test_an_evaluator_goes_where_it_costs_the_fewest_chains() -> None:
    cluster = Recorded(Node(8, 2, "a"), Node(4, 1, "b"))
    slots = slots_of(cluster, gpus_per_worker=2, gpus_per_evaluator=0.5, evaluators=2)
    work, alone = EvaluationConfig(task={}, split="test", bins=15), ResourceConfig(gpus_per_evaluator=0.5, evaluators=3)
    made = Evaluators(cluster, "store", work, 3, alone, slots=slots, names=Names("r", "abcdef99"))
    for _ in range(3):
        made.start()
    assert [actor.options.node for actor in cluster.actors] == ["b", "b", None]
    assert [actor.options.name for actor in cluster.actors] == [f"raychains/r/evaluator-{n}-abcdef" for n in range(3)]


def workers_of(cluster: Recorded, **settings: Any) -> ChainWorkers:
    resources = ResourceConfig(**settings)
    return ChainWorkers(cluster, Storage("store"), resources.slots(cluster), resources, None)


def test_a_node_without_raychains_is_one_line() -> None:
    cluster = Recorded(Node(1))
    made = workers_of(cluster)
    made.ask_for(1)
    cause = ModuleNotFoundError("No module named 'raychains'")
    text = (
        "Traceback\nRuntimeError: The actor failed to import on the worker.\nModuleNotFoundError: No module named "
        "'raychains'"
    )
    cluster.answer = failure(RayTaskError("load_user_code", text, cause))
    with refused("nodes must have raychains", __version__, "a worker has none"):
        made.take(made.references()[0])


def test_workers_that_no_chain_waits_for_are_withdrawn() -> None:
    cluster = Recorded(Node(1))
    made = workers_of(cluster, concurrent=500)
    made.ask_for(500)
    assert len(made) == len(made.pending(0)) == PENDING and made.up == 0
    for _ in range(2):
        made.withdraw(3)
        assert len(made) == len(made.pending(0)) == len(made.references()) == 3
        assert len(cluster.killed) == PENDING - 3


def test_the_slots_of_a_pack_share_a_worker_and_are_let_go_with_the_last_of_them() -> None:
    cluster = Recorded(Node(2))
    made = workers_of(cluster)
    made.ask_for(2, [Waiting("one", 5, width=4), Waiting("two", 3, width=4)])
    assert len(cluster.actors) == made.processes == 2 and len(made) == 4 + 1, (
        "one kind at a time, as far as there is room"
    )
    cluster.answer = __version__
    ready = [made.take(ref) for ref in made.references()]
    assert ready == [SlotReady(slot, "one") for slot in range(5)] and made.up == 5
    for slot in range(3):
        made.release(slot)
    assert not cluster.killed
    made.release(3)
    assert cluster.killed == cluster.actors[:1] and made.processes == 1
    made.ask_for(2, [Waiting("two", 3, width=4)])
    assert len(cluster.actors) == 3 and made.processes == 2 and len(made) == 1 + 3


def test_a_class_keeps_its_methods_under_its_runs_name() -> None:
    made = Names("digits-1").titled(ChainWorker)
    assert made.__name__ == "ChainWorker:digits-1" and made.load_user_code is ChainWorker.load_user_code


class Asked:
    """Workers of which some are up, and none of the others has a process, or all have."""

    rows = 1

    def __init__(self, up: int, pending: int) -> None:
        self.up, self._pending = up, pending

    @property
    def processes(self) -> int:
        return self.up + self._pending

    def __len__(self) -> int:
        return self.processes * self.rows

    def pending(self, seconds: float) -> list[object]:
        return [object()] * self._pending if seconds < 1000 else []


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def waiting(cluster: Recorded, up: int, pending: int, **settings: Any) -> tuple[ResourceWait, Time]:
    resources, clock = ResourceConfig(**settings), Time()
    asked: Any = Asked(up, pending)
    share = resources.gpus_per_evaluator
    return ResourceWait(resources.slots(cluster), asked, resources.slot_timeout, share, clock), clock


def test_a_run_without_room_says_so_at_once_and_ends_after_the_timeout() -> None:
    cluster = Recorded(Node(1), Node(1))
    wait, clock = waiting(cluster, 0, 1, cpus_per_chain=2, concurrent=1)
    line = "no node of the cluster has room for a chain (2 CPU): it has 2 nodes of 1 CPU; more nodes were asked for"
    assert wait.check(waiting=3, running=False) == line
    clock.now += resource_wait.TIMEOUT - 1
    assert wait.check(waiting=3, running=False) == line
    cluster.found.append(Node(2))
    clock.now += 2
    assert "others hold the room" in str(wait.check(waiting=3, running=False))
    clock.now += 1e6
    assert wait.check(waiting=3, running=False) is not None, "what others hold is waited for without end"
    cluster.found.pop()
    clock.now += 2
    assert wait.check(waiting=3, running=False) == line
    clock.now += resource_wait.TIMEOUT
    with refused("nothing could be placed for 15 min", "2 CPU", "2 nodes of 1 CPU", "`resume=True`"):
        wait.check(waiting=3, running=False)


def test_a_timeout_that_was_asked_for_ends_a_run_whose_room_others_hold() -> None:
    wait, clock = waiting(Recorded(Node(2)), 0, 2, slot_timeout=30)
    line = "others hold the room for a chain (1 CPU): of 1 node of 2 CPU is free no node"
    assert wait.check(waiting=1, running=False) == line
    clock.now += 1
    assert wait.check(waiting=0, running=True) is None
    clock.now += 1
    assert wait.check(waiting=1, running=False) == line
    clock.now += 31
    with refused("nothing could be placed for 30 s", "others hold"):
        wait.check(waiting=1, running=False)


def test_processes_that_wait_are_counted_whatever_the_chains_of_each() -> None:
    """A pack's process is several slots."""
    wait, _ = waiting(Recorded(Node(2)), 0, 2)
    wait.workers.rows = 4  # type: ignore[union-attr]
    assert "others hold the room" in str(wait.check(waiting=1, running=False))


def test_while_a_chain_runs_nothing_ends() -> None:
    wait, clock = waiting(Recorded(Node(4)), 1, 2, slot_timeout=30)
    for _ in range(3):
        clock.now += 1000
        assert "2 more slots (1 CPU) could not be had for 30 s" in str(wait.check(waiting=2, running=True))
    assert wait.check(waiting=0, running=True) is None


def test_trials_of_a_sweep_without_room_end_it_after_the_timeout_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from raychains.orchestration.cluster import ray_private
    from raychains.orchestration.tune.sweep_experiment import TrialWait

    alive = True
    monkeypatch.setattr(ray_private, "any_actor_alive", lambda: alive)
    clock, cluster = Time(), Recorded(Node(2))
    wait = TrialWait(ResourceConfig().slots(cluster), timeout=30, clock=clock)  # type: ignore[arg-type]
    assert wait.check(waiting=1, running=False) is None
    alive = False
    for seconds in (2, 19):  # Ray takes that long to start a process
        clock.now += seconds
        assert wait.check(waiting=1, running=False) is None
    clock.now += 2
    assert "others hold the room for a chain (1 CPU)" in str(wait.check(waiting=1, running=False))
    clock.now += 31
    with refused("nothing could be placed for 30 s", "others hold"):
        wait.check(waiting=1, running=False)
    cluster.found.clear()
    clock.now += 2
    assert "no node of the cluster has room for a chain" in str(wait.check(waiting=1, running=False))


def test_evaluators_without_room_are_told_of_too() -> None:
    settings = {"gpus_per_worker": 0, "concurrent": 1, "gpus_per_evaluator": 0.5, "slot_timeout": 60}
    wait, clock = waiting(Recorded(Node(4)), 0, 0, **settings)
    room = "no node of the cluster has room for an evaluator (0.5 GPU)"
    line = f"{room}: it has 1 node of 4 CPU; more nodes were asked for"
    assert wait.check(waiting=0, running=False, starved=True) == line
    assert wait.check(waiting=0, running=False) is None
    assert wait.check(waiting=0, running=False, starved=True) == line
    clock.now += 61
    with refused("nothing could be placed for 1 min", "an evaluator"):
        wait.check(waiting=0, running=False, starved=True)


def test_workers_that_have_a_process_are_waited_for_in_silence() -> None:
    cluster = Recorded(Node(4))
    cluster.unplaced_actors = 0
    wait, clock = waiting(cluster, 0, 2, slot_timeout=5)
    for _ in range(5):
        clock.now += 10
        assert wait.check(waiting=2, running=False) is None
