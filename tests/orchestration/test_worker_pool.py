"""A pool's actors serve one driver after another: with the samples and results of each alone, and the same
processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from torch import Tensor, nn

import raychains as rc
from raychains import tasks
from raychains.coordination import coordinator as c
from raychains.core.config import Common
from raychains.inference.predictive import select
from raychains.measures import interpolation
from raychains.orchestration.cluster import ray_private
from raychains.orchestration.cluster.payload import Payload
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.resource_config import ResourceConfig, Slots
from raychains.orchestration.cluster.worker_pool import WorkerPool
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.chain_workers import ChainWorkers, Waiting
from raychains.orchestration.run.evaluation_worker import EvaluationWorker
from raychains.orchestration.run.evaluator_pool import Evaluators
from raychains.orchestration.run.launch import run_chains
from raychains.orchestration.run.outcome import DriverOutcome
from raychains.orchestration.run.point_evaluation import PointEvaluator
from raychains.planning import Comparison, events
from raychains.planning.points import Point
from raychains.store import ChainStore, Storage, codec
from raychains.tasks import Task
from raychains.tasks.mixture import Mixture25
from tests.measures.made import context_of, data
from tests.orchestration.recorded import Recorded
from tests.orchestration.tasks import Slowing
from tests.orchestration.worlds import Diary, comparison, stored_hashes, undisturbed_hashes
from tests.processes import until

ONE: dict[str, Any] = {"concurrent": 1, "evaluators": 1}
"""Placement: each actor that a test has to start costs seconds."""


class World:
    def __init__(self, folder: Path) -> None:
        self.root, self.pool = Storage(folder / "store"), WorkerPool("test")

    def drive(self, plan: Comparison, diary: Diary | None = None, **placement: Any) -> DriverOutcome:
        resources, lease = ResourceConfig(**ONE, **placement), Lease(self.root)
        return run_chains(plan, self.root, resources, diary or Diary(), lease=lease, workers=self.pool)

    def pids(self, plan: Comparison) -> set[int]:
        """The processes that last ran a comparison's chains."""
        stores = [ChainStore(self.root, digest) for digest in plan.chains()]
        return {store.attempt(store.last_attempt())["pid"] for store in stores}

    def asked(self, question: Any) -> Any:
        [evaluator] = [a for a in self.pool._idle if self.pool._actors[a][0] is EvaluationWorker]
        return ray.get(evaluator.__ray_call__.remote(question))

    def directly(self, plan: Comparison, task: Task) -> list[dict[str, float]]:
        """Metrics of the first arm's first view, from the stored samples in this process."""
        split = task.splits()[plan.split]
        found = sorted(
            (r.meta.index, n, store.read_sample(r.file))
            for n, spec in enumerate(plan.arms[0].chains[0])
            for store in [ChainStore(self.root, spec.digest)]
            for r in store.records()
        )
        blocks = [[split.predict(codec.decode(raw)[0], s) for s in range(split.shards)] for *_, raw in found]
        return split.summarise([split.reduce([b[s] for b in blocks], s) for s in range(split.shards)])


@pytest.fixture(scope="module")
def world(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("crew"))
    with made.pool:
        yield made


def assert_as_alone(world: World, plan: Comparison, task: Task, found: Sequence[Mapping[str, Any]]) -> None:
    assert stored_hashes(world.root, plan) == undisturbed_hashes(plan, task)
    expected = world.directly(plan, task)
    assert len(found) == len(expected) > 0
    for row, metrics in zip(found, expected, strict=True):
        assert {name: row[name] for name in metrics} == pytest.approx(metrics, rel=1e-12, nan_ok=True)


def rows(result: rc.Result) -> list[dict[str, Any]]:
    return result.results().to_dict("records")


def test_two_tasks_and_an_evaluation_have_the_same_actors_and_give_what_they_give_alone(world: World) -> None:
    pool, store = world.pool, world.root.uri
    digits, density = tasks.make("digits"), Mixture25()
    length = {"chains": 2, "repeats": 1, "epochs": 2, "cycles": 2, "samples_per_cycle": 1}
    first = rc.run(task="digits", sampler="csghmc", store=store, worker_pool=pool, **length, **ONE)
    workers, evaluator = world.pids(first.comparison), world.asked(lambda _: os.getpid())
    assert len(workers) == 1
    second = comparison(density, chains=2, steps=300)
    outcome = world.drive(second)
    held = lambda self: ([spec.kind for spec in self._tasks], [spec.kind for _, spec in self._splits])  # noqa: E731
    assert world.asked(held) == ([density.spec().kind],) * 2, "the first task's data are let go"
    assert_as_alone(world, first.comparison, digits, rows(first))
    assert_as_alone(world, second, density, outcome.views[0, 0].metrics)

    options = Common(evaluators=1)
    again = rc.evaluate(first.path, "train", measures=("interpolation",), options=options, worker_pool=pool)
    assert world.pids(second) == workers and world.asked(lambda _: os.getpid()) == evaluator
    assert_as_alone(world, again.comparison, digits, rows(again))

    def measured(split: str, points: Sequence[Point]) -> list[dict[str, float]]:
        evaluator = PointEvaluator(world.root, digits)
        return [evaluator.measure(digits.splits()[split], point) for point in points]

    given = {"select": lambda arm, group: select(world.root, again.comparison), "measure": measured}
    context = context_of(again.store, again.comparison, "train", digits, **given)
    expected = interpolation.tables(context)["interpolation"]
    found = again.store.table("interpolation").to_pylist()
    assert len(found) == len(expected) >= 2 * interpolation.POINTS
    for row, wanted in zip(found, expected, strict=True):
        assert row.keys() == wanted.keys()
        for name, value in wanted.items():
            assert row[name] == (value if isinstance(value, str | None) else pytest.approx(value, rel=1e-12)), name
    held_now = world.asked(held)
    assert set(held_now[0]) == set(held_now[1]) == {digits.spec().kind}


def halves(factor: float) -> Task:
    """A regression whose loss a hash does not see: tasks of two factors have the same spec."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return factor * (outputs.squeeze(1) - targets).square().mean()

    return Task.from_module(lambda: nn.Linear(4, 1), data(0), data(1), loss, name="halves")


def on_object(task: Task, steps: int) -> Comparison:
    plan = comparison(tasks.give(task), chains=1, steps=steps, lanes=1, block=0, num_data=60)
    [arm] = plan.arms
    specs = tuple(replace(spec, batch_size=20, steps_per_epoch=3) for spec in arm.chains[0])
    return replace(plan, split="test", arms=(replace(arm, chains=(specs,)),))


def test_an_object_with_the_spec_of_the_one_before_takes_its_place_in_every_actor(world: World) -> None:
    found = []
    for factor, steps in ((0.5, 12), (2.0, 15)):
        task = halves(factor)
        plan = on_object(task, steps)
        metrics = world.drive(plan).views[0, 0].metrics
        assert_as_alone(world, plan, task, metrics)
        found.append((plan.task_spec, metrics))
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1]


def test_actors_that_died_while_they_rested_are_replaced(world: World) -> None:
    before = comparison(Mixture25(), chains=1, steps=200)
    world.drive(before)
    [worker], evaluator = world.pids(before), world.asked(lambda _: os.getpid())
    rested = list(world.pool._idle)
    for pid in (worker, evaluator):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(ray_private.lives, rested)), "Ray to know")
    diary = Diary()
    plan = comparison(Mixture25(), chains=2, steps=240)
    outcome = world.drive(plan, diary, max_failures=0)  # it is no failure of this run's
    assert not outcome.failed and len(outcome.views) == 1
    assert stored_hashes(world.root, plan) == undisturbed_hashes(plan, Mixture25())
    assert not diary.of(events.WorkerLost) and worker not in world.pids(plan) and len(world.pids(plan)) == 1
    assert world.asked(lambda _: os.getpid()) != evaluator


class Impatient(Diary):
    def on(self, event: events.RunEvent) -> None:
        super().on(event)
        if isinstance(event, events.ChainBegan):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_run_leaves_its_worker_to_the_next_one(world: World, tmp_path: Path) -> None:
    slow = Slowing(str(tmp_path / "go"), at=1)
    plan = comparison(slow, chains=2, steps=1500, block=50)
    outcome = world.drive(plan, Impatient())
    assert outcome.stopped and not outcome.views
    begun = [d for d in plan.chains() if ChainStore(world.root, d).last_attempt()]
    assert len(begun) == 1
    store = ChainStore(world.root, begun[0])
    worker = store.attempt(1)["pid"]
    checkpoint = store.newest_checkpoint()
    assert checkpoint is not None and checkpoint["chain"]["step"] < 1500
    other = comparison(Mixture25(), chains=2, steps=260)
    assert len(world.drive(other).views) == 1
    assert world.pids(other) == {worker}
    assert stored_hashes(world.root, other) == undisturbed_hashes(other, Mixture25())


# Without Ray


PAYLOAD = Payload()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """What a pool asks Ray for, all of whose actors live."""
    made = Recorded()
    for name in ("nodes", "start", "kill", "call", "call_parts", "result", "reserve", "release"):
        monkeypatch.setattr(RayWorkers, name, lambda _, *args, name=name, **more: getattr(made, name)(*args, **more))
    monkeypatch.setattr(ray_private, "lives", lambda actor: True)
    return made


def workers_of(pool: WorkerPool, store: str = "/nowhere", payload: Payload = PAYLOAD, **changes: Any) -> ChainWorkers:
    """A driver's workers; changes are fields of its slots, its resources or both."""
    fields = {name: value for name, value in changes.items() if name in Slots.__dataclass_fields__}
    slots = Slots(**{"cpus": 1, "gpus": 0, "count": 4, "cluster": pool, **fields})
    placement = {name: value for name, value in changes.items() if name not in fields}
    return ChainWorkers(pool, Storage(store), slots, ResourceConfig(**placement), payload)


def come_up(workers: ChainWorkers, number: int, recorded: Recorded) -> None:
    recorded.answer = rc.__version__
    workers.ask_for(number)
    said = [workers.take(ref) for ref in workers.references()]
    assert sum(isinstance(message, c.SlotReady) for message in said) == number == workers.up


def test_workers_that_are_up_stay_and_one_with_a_chain_or_still_coming_up_ends(recorded: Recorded) -> None:
    pool = WorkerPool("mine")
    workers = workers_of(pool)
    come_up(workers, 2, recorded)
    assert recorded.actors[0].options.name.startswith("raychains/mine/chain-worker-0-")
    workers.ask_for(3)
    [spec] = comparison(Mixture25(), chains=1).chains().values()
    workers.start(c.Start(0, "digest", 1), spec, {})
    workers.close()
    assert recorded.killed == [recorded.actors[2], recorded.actors[0]] and not len(workers)
    another = Payload(("another",))
    following = workers_of(pool, payload=another, count=9, concurrent=1, max_failures=1)
    following.ask_for(2)
    assert len(recorded.actors) == 4, "one that was there, and a new one"
    assert [recorded.actors[n].called("load_user_code")[-1] for n in (1, 3)] == [(another,)] * 2
    pool.close()
    assert len(recorded.killed) == 4 and {id(one) for one in recorded.killed} == {id(one) for one in recorded.actors}


@pytest.mark.parametrize(
    "changes",
    [
        {"store": "/elsewhere"},
        *({"cpus": 2}, {"gpus": 0.5}, {"ranks": 2}),
        *({"data_root": "/data"}, {"checkpoint_every": 5.0}, {"on_divergence": "restart-cycle"}),
    ],
)
def test_workers_of_another_kind_take_the_place_of_idle_ones(recorded: Recorded, changes: dict[str, Any]) -> None:
    pool = WorkerPool()
    workers = workers_of(pool)
    come_up(workers, 2, recorded)
    workers.close()
    assert not recorded.killed
    workers_of(pool, **changes).ask_for(1)
    assert len(recorded.killed) == 2 and len(recorded.actors) == 2 + changes.get("ranks", 1)


def test_idle_workers_of_chains_by_themselves_give_their_cpus_to_packs_and_back(recorded: Recorded) -> None:
    pool = WorkerPool()
    workers = workers_of(pool)
    come_up(workers, 2, recorded)
    workers.close()
    packs = workers_of(pool)
    packs.ask_for(2, [Waiting("a kind", 3, 2)])
    assert recorded.killed == recorded.actors[:2] and len(recorded.actors) == 4
    assert all(isinstance(packs.take(ref), c.SlotReady) for ref in packs.references())
    packs.close()
    assert len(recorded.killed) == 2, "packs' workers rest"
    workers_of(pool).ask_for(1)
    assert len(recorded.killed) == 4 and len(recorded.actors) == 5


def test_workers_that_share_their_chains_end_with_the_run(recorded: Recorded) -> None:
    workers = workers_of(WorkerPool(), ranks=2)
    come_up(workers, 1, recorded)
    workers.close()
    assert len(recorded.killed) == 2


def test_evaluators_stay_and_are_told_what_they_work_on(recorded: Recorded) -> None:
    pool, other = WorkerPool(), comparison(Slowing("go", at=1), chains=2)

    def asked(plan: Comparison, **resources: Any) -> Evaluators:
        return Evaluators.of(
            plan, Storage("/nowhere"), ResourceConfig(**resources), PAYLOAD, workers=pool, slots=workers_of(pool).slots
        )

    with asked(comparison(Mixture25(), chains=2), evaluators=2) as one:
        one.start()
        one.start()
    with asked(other, evaluators=1) as following:
        following.start()
        [evaluator] = following.running
        assert evaluator.actor in recorded.actors and len(recorded.actors) == 2
        assert [work.task for (work,) in evaluator.actor.called("serve")][1] == other.task_spec.to_json()
    assert not recorded.killed
    asked(other, evaluators=1, gpus_per_evaluator=0.5).start()
    assert len(recorded.killed) == 2 and len(recorded.actors) == 3


def test_idle_workers_with_gpus_give_way_to_evaluators_with_gpus(recorded: Recorded) -> None:
    pool = WorkerPool()
    workers = workers_of(pool, gpus=1.0)
    come_up(workers, 2, recorded)
    workers.close()
    own = (comparison(Mixture25(), chains=2), Storage("/nowhere"))
    for gpus, killed in ((0.0, 0), (1.0, 2)):
        placement = ResourceConfig(gpus_per_evaluator=gpus, evaluators=1)
        Evaluators.of(*own, placement, PAYLOAD, workers=pool, slots=workers_of(pool).slots).start()
        assert len(recorded.killed) == killed
