"""A crew's actors serve one driver after another: with the samples and results of each alone, and the same processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import ray
from torch import Tensor, nn

import raychains as rc
from raychains import tasks
from raychains.analyses import Context, interpolation
from raychains.options import Common
from raychains.orchestration.crew import Crew
from raychains.orchestration.driver import Driver, Outcome
from raychains.orchestration.placement import Placement
from raychains.orchestration.point import Bench
from raychains.orchestration.session import Slots
from raychains.planning import Comparison
from raychains.planning import coordinator as c
from raychains.planning import listener as told
from raychains.planning.points import Point
from raychains.predictive import select
from raychains.store import ChainStore, Root, codec
from raychains.tasks import Task
from raychains.tasks.mixture import Mixture25
from tests.analyses.made import data
from tests.orchestration.tasks import Paced
from tests.orchestration.worlds import Diary, comparison, stored_hashes, undisturbed_hashes

ONE: dict[str, Any] = {"concurrent": 1, "evaluators": 1}
"""Placement: each actor that a test has to start costs seconds."""


class World:
    """A store, and the crew that works in it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.crew = Root(folder / "store"), Crew("test")

    def drive(self, plan: Comparison, diary: Diary | None = None, **placement: Any) -> Outcome:
        return Driver(plan, self.root, Placement(**ONE, **placement), diary or Diary(), crew=self.crew).run()

    def pids(self, plan: Comparison) -> set[int]:
        """The processes that last ran a comparison's chains."""
        stores = [ChainStore(self.root, digest) for digest in plan.chains()]
        return {store.incarnation(store.last_incarnation())["pid"] for store in stores}

    def asked(self, question: Any) -> Any:
        """What the one evaluator answers."""
        [evaluator] = self.crew._evaluators.running  # type: ignore[union-attr]
        return ray.get(evaluator.actor.__ray_call__.remote(question))

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
    with made.crew:
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
    crew, store = world.crew, world.root.uri
    digits, density = tasks.make("digits"), Mixture25()
    length = {"chains": 2, "repeats": 1, "epochs": 2, "cycles": 2, "samples_per_cycle": 1}
    first = rc.run(task="digits", sampler="csghmc", store=store, crew=crew, **length, **ONE)
    workers, evaluator = world.pids(first.comparison), world.asked(lambda _: os.getpid())
    assert len(workers) == 1
    second = comparison(density, chains=2, steps=300)
    outcome = world.drive(second)
    held = lambda self: ([spec.kind for spec in self._tasks], [spec.kind for _, spec in self._splits])  # noqa: E731
    assert world.asked(held) == ([density.spec().kind],) * 2, "the first task's data are let go"
    assert_as_alone(world, first.comparison, digits, rows(first))
    assert_as_alone(world, second, density, outcome.views[0, 0].metrics)

    options = Common(evaluators=1)
    again = rc.evaluate(first.path, "train", measures=("interpolation",), options=options, crew=crew)
    assert world.pids(second) == workers and world.asked(lambda _: os.getpid()) == evaluator
    assert_as_alone(world, again.comparison, digits, rows(again))

    def measured(split: str, points: Sequence[Point]) -> list[dict[str, float]]:
        bench = Bench(world.root, digits)
        return [bench.measure(digits.splits()[split], point) for point in points]

    context = Context(
        store=again.store, comparison=again.comparison, split="train", task=digits, groups=[(0, 0)],
        select=lambda arm, group: select(world.root, again.comparison), evaluate=lambda split, requests: [],
        predictions=lambda arm, group: iter(()), measure=measured,
    )  # fmt: skip
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
    for pid in (worker, evaluator):
        os.kill(pid, signal.SIGKILL)
    diary = Diary()
    plan = comparison(Mixture25(), chains=2, steps=240)
    outcome = world.drive(plan, diary, max_failures=0)  # it is no failure of this run's
    assert not outcome.failed and len(outcome.views) == 1
    assert stored_hashes(world.root, plan) == undisturbed_hashes(plan, Mixture25())
    assert len(diary.of(told.SlotGone)) == 1 and worker not in world.pids(plan) and len(world.pids(plan)) == 1
    assert world.asked(lambda _: os.getpid()) != evaluator


class Impatient(Diary):
    """Presses Ctrl-C when a chain begins."""

    def on(self, happening: told.Happening) -> None:
        super().on(happening)
        if isinstance(happening, told.ChainBegan):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_run_leaves_its_worker_to_the_next_one(world: World) -> None:
    slow = Paced(pause=0.002)
    plan = comparison(slow, chains=2, steps=1500, block=50)
    outcome = world.drive(plan, Impatient())
    assert outcome.stopped and not outcome.views
    begun = [d for d in plan.chains() if ChainStore(world.root, d).last_incarnation()]
    assert len(begun) == 1
    store = ChainStore(world.root, begun[0])
    worker = store.incarnation(1)["pid"]
    checkpoint = store.newest_checkpoint()
    assert checkpoint is not None and checkpoint["chain"]["step"] < 1500
    other = comparison(Mixture25(), chains=2, steps=260)
    assert len(world.drive(other).views) == 1
    assert world.pids(other) == {worker}
    assert stored_hashes(world.root, other) == undisturbed_hashes(other, Mixture25())


# Without Ray


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The actors that were ended; those that are started are nobody."""
    found: list[Any] = []

    def actor(*_: Any, **__: Any) -> Any:
        made = MagicMock()
        for method in (made.ready, made.start):
            method.options.return_value.remote.side_effect = lambda *_: object()
        return made

    def kind(_: Any) -> Any:
        made = MagicMock()
        made.options.return_value.remote.side_effect = actor
        return made

    monkeypatch.setattr(ray, "remote", lambda *a, **k: kind if k else kind(None))
    monkeypatch.setattr(ray, "kill", found.append)
    return found


SLOTS = Slots(cpus=1, gpus=0, count=4)
LUGGAGE: Any = ((), ())


def crew_of(number: int, slots: Slots = SLOTS, **placement: Any) -> tuple[Crew, Any]:
    """A crew whose first driver asked for so many workers."""
    crew = Crew()
    workers = crew.workers(Root("/nowhere"), slots, Placement(**placement), LUGGAGE)
    workers.ask_for(number)
    return crew, workers


def up(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda _: rc.__version__)
    for ref in workers.references():
        assert isinstance(workers.take(ref).event, c.SlotReady)


def test_workers_that_are_up_or_coming_up_rest_and_one_with_a_chain_ends(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, workers = crew_of(2)
    up(workers, monkeypatch)
    workers.ask_for(3)
    busy = workers._workers[0].actor
    workers.start(c.Start(0, "digest", 1), {}, {})
    stale = workers.references()
    with pytest.raises(ValueError, match="one driver at a time"):
        crew.workers(Root("/nowhere"), SLOTS, Placement(), LUGGAGE)
    workers.close()
    assert killed == [busy] and not len(workers)
    fewer = replace(SLOTS, count=9, concurrent=1)
    assert crew.workers(Root("/nowhere"), fewer, Placement(max_failures=1), ((), ("another",))) is workers
    workers.ask_for(3)
    assert sorted(workers._workers) == [1, 2, 3] and not any(workers.owns(ref) for ref in stale)
    assert all(w.luggage == ((), ("another",)) for w in workers._workers.values())
    crew.close()
    assert len(killed) == 4
    with pytest.raises(ValueError, match="closed"):
        crew.workers(Root("/nowhere"), SLOTS, Placement(), LUGGAGE)


def test_a_worker_that_waits_for_a_node_to_be_added_does_not_rest(killed: list[Any]) -> None:
    _, workers = crew_of(2, replace(SLOTS, grows=True))
    workers.close()
    assert len(killed) == 2


@pytest.mark.parametrize(
    ("store", "slots", "placement"),
    [
        ("/elsewhere", {}, {}),
        ("/nowhere", {"cpus": 2}, {}),
        ("/nowhere", {"gpus": 0.5}, {}),
        ("/nowhere", {"ranks": 2}, {}),
        ("/nowhere", {"others_gpus": 0.5}, {}),
        ("/nowhere", {}, {"data_root": "/data"}),
        ("/nowhere", {}, {"checkpoint_every": 5.0}),
        ("/nowhere", {}, {"on_divergence": "restart-cycle"}),
    ],
)
def test_workers_of_another_kind_take_the_place_of_those_that_rest(
    store: str, slots: dict[str, Any], placement: dict[str, Any], killed: list[Any]
) -> None:
    crew, workers = crew_of(2)
    workers.close()
    assert not killed
    other = crew.workers(Root(store), replace(SLOTS, **slots), Placement(**placement), LUGGAGE)
    assert other is not workers and len(killed) == 2 and other.store == Root(store).uri


def test_evaluators_rest_until_they_are_needed_and_are_told_once(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, other = comparison(Mixture25(), chains=2), comparison(Paced(), chains=2)
    crew = Crew()

    def asked(plan: Comparison, luggage: Any = LUGGAGE, **placement: Any) -> Any:
        return crew.evaluators(plan, Root("/nowhere"), Placement(**placement), luggage, slots=SLOTS)

    one = asked(plan, evaluators=2)
    one.start()
    one.start()
    actors = [e.actor for e in one.running]
    assert asked(plan, evaluators=1) is one and one.limit == 1 and not one.running
    one.start()
    assert [e.actor for e in one.running] == actors[:1] and not actors[0].serve.remote.called
    asked(replace(plan, split="another"), evaluators=2).start()
    assert not any(a.serve.remote.called for a in actors), "every call names its split"
    asked(other, evaluators=2).start()
    [evaluator] = one.running
    [call] = evaluator.actor.serve.remote.call_args_list
    assert call.args[0] == other.task_spec.to_json() and sum(a.serve.remote.called for a in actors) == 1
    one.start()
    assert all(a.serve.remote.call_count == 1 for a in actors)
    thing = ((), (SimpleNamespace(),))
    for _ in range(2):  # an object may be another one each time
        asked(other, thing, evaluators=1).start()
    assert sum(a.serve.remote.call_count for a in actors) == 4 and not killed
    assert asked(other, evaluators=1, gpus_per_evaluator=0.5) is not one and len(killed) == 2


def test_resting_workers_give_way_to_evaluators_with_gpus(killed: list[Any]) -> None:
    crew, workers = crew_of(2, replace(SLOTS, gpus=1.0))
    workers.close()
    plan = comparison(Mixture25(), chains=2)
    crew.evaluators(plan, Root("/nowhere"), Placement(), LUGGAGE, slots=SLOTS)
    assert not killed
    crew.evaluators(plan, Root("/nowhere"), Placement(gpus_per_evaluator=1.0), LUGGAGE, slots=SLOTS)
    assert len(killed) == 2
