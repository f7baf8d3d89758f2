"""Views by evaluators: each what a direct computation from the stored samples gives, and nothing predicted twice."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.inference.predictive import Predictive, Selection, select
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.evaluator_pool import Evaluators
from raychains.orchestration.run.launch import evaluate_run, evaluate_views
from raychains.orchestration.run.outcome import DriverOutcome
from raychains.planning import Comparison, events
from raychains.planning.events import NullCallback
from raychains.planning.views import ALL, Request, View, ViewResult, key_of
from raychains.store import Storage, caches
from tests.checks import refused
from tests.orchestration.threads import ThreadWorkers, keep_this_process
from tests.orchestration.worlds import Diary
from tests.report import runs

PLACEMENT = ResourceConfig(evaluators=1, bins=7)
KINDS = ("all", "chains", "cycles", "without-chain", "first:3", "samples")


class World:
    """A finished run of two chains of two cycles of two samples, and evaluators that all tests share."""

    def __init__(self, folder: Path) -> None:
        self.comparison: Comparison = runs.single(epochs=4, chains=2, cycles=2, exploration=0.0, samples_per_cycle=2)
        runs.store_run(folder, self.comparison)
        self.folder, self.root = folder, Storage(folder)
        self.selection: Selection = select(self.root, self.comparison)
        self.metas = [record.meta for _, record in self.selection.records]
        self.evaluators = Evaluators.of(self.comparison, self.root, PLACEMENT, workers=ThreadWorkers())

    def evaluate(self, kinds: Sequence[str] = (), requests: Sequence[Request] = (), **more: Any) -> list[ViewResult]:
        outcome = evaluate_views(
            more.pop("comparison", self.comparison), self.root, PLACEMENT, NullCallback(), more.pop("split", "test"),
            kinds, requests, lease=Lease(self.root), evaluators=self.evaluators, **more,
        )  # fmt: skip
        assert not outcome.views and not outcome.stopped
        return list(outcome.requested)

    def directly(self, samples: Sequence[int], weights: Any = None, split: str = "test") -> dict[str, float]:
        evaluation = self.selection.task.splits()[split]
        evaluation.bins = PLACEMENT.bins
        tensors = [t for n, t in enumerate(self.selection.completed()) if n in samples]
        parts = [
            evaluation.reduce([evaluation.predict(t, shard) for t in tensors], shard, weights)
            for shard in range(evaluation.shards)
        ]
        [found] = evaluation.summarise(parts)
        return found

    def kept(self) -> list[Path]:
        return sorted((self.folder / "predictions").glob("*/*.safetensors"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        keep_this_process(patch)
        made = World(tmp_path_factory.mktemp("views") / "store")
        with made.evaluators:
            yield made


def members(world: World, view: View) -> list[int]:
    """Positions of a view's samples in the selection, worked out from its name."""
    kind, _, rest = view.name.partition(":")
    digests = [spec.digest for spec in world.comparison.arms[0].chains[0]]
    at = {
        "all": lambda n, m: True,
        "chain": lambda n, m: m.digest == digests[int(rest)],
        "without-chain": lambda n, m: m.digest != digests[int(rest)],
        "cycle": lambda n, m: m.cycle == int(rest),
        "first": lambda n, m: n < int(rest),
        "sample": lambda n, m: [str(digests.index(m.digest)), str(m.index), m.variable] == rest.split(":"),
    }[kind]
    return [n for n, meta in enumerate(world.metas) if at(n, meta)]


def test_every_view_is_what_its_samples_give(world: World) -> None:
    found = world.evaluate(KINDS)
    names = [result.request.view.name for result in found]
    assert names[:8] == [
        "all", "chain:0", "chain:1", "cycle:0", "cycle:1", "without-chain:0", "without-chain:1", "first:3",
    ]  # fmt: skip
    assert len(names) == 8 + 8 and len(world.metas) == 8
    labels = world.selection.task.splits()["test"]._labels  # type: ignore[attr-defined]
    inputs = world.selection.task.splits()["test"].inputs  # type: ignore[attr-defined]
    for result in found:
        mine = members(world, result.request.view)
        assert result.samples == len(mine) and result.chains == len({world.metas[n].digest for n in mine})
        assert result.metrics == [world.directly(mine)] and len(result.curves[0]["nll"]) == len(mine)
        predictive = Predictive(replace(world.selection, records=tuple(world.selection.records[n] for n in mine)))
        p = predictive(inputs)
        assert result.metrics[0]["error"] == pytest.approx((p.argmax(1) != labels).mean())
        assert result.metrics[0]["nll"] == pytest.approx(-np.log(p[np.arange(len(p)), labels]).mean(), rel=1e-5)
        np.testing.assert_allclose(result.rows["confidence"], p.max(1), rtol=1e-5)


def test_weights_are_those_of_the_samples_that_they_name(world: World) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.uniform(0.1, 5, len(world.metas))
    weights = {key_of(m): float(w) for m, w in zip(world.metas, numbers, strict=True)}
    cycle = View(name="cycle:1", kind="cycles", cycle=1)
    asked = [
        Request(arm=0, group=0, weighting="own", weights=weights, rows=False),
        Request(arm=0, group=0, view=cycle, weighting="own", weights=weights),
        Request(arm=0, group=0, weighting="equal, said", weights=dict.fromkeys(weights, 0.3)),
    ]
    everything, second, equal = world.evaluate((), asked)
    assert [r.request for r in (everything, second, equal)] == asked
    assert everything.rows == {} and len(second.rows["label"]) > 100
    inputs, labels = (getattr(world.selection.task.splits()["test"], name) for name in ("inputs", "_labels"))
    each = [Predictive(replace(world.selection, records=(r,)))(inputs) for r in world.selection.records]
    for result, mine in ((everything, range(8)), (second, members(world, cycle))):
        assert result.metrics == [world.directly(list(mine), numbers[list(mine)].tolist())]
        p = np.average([each[n] for n in mine], axis=0, weights=numbers[list(mine)])
        assert result.metrics[0]["nll"] == pytest.approx(-np.log(p[np.arange(len(p)), labels]).mean(), rel=1e-5)
    assert equal.metrics == [world.directly(range(8))] != everything.metrics


def test_only_what_is_asked_for_is_predicted_and_another_split_has_predictions_of_its_own(world: World) -> None:
    before = set(world.kept())
    view = View(name="two", kind="own", first=2)
    [result] = world.evaluate((), [Request(arm=0, group=0, view=view)], split="train")
    new = set(world.kept()) - before
    shas = {record.sha256 for _, record in world.selection.records[:2]}
    assert {path.stem for path in new} == shas and not {p.parent for p in new} & {p.parent for p in before}
    assert result.metrics == [world.directly([0, 1], split="train")]


def test_a_torn_kept_prediction_is_made_again(world: World) -> None:
    [first] = world.evaluate(["all"])
    [torn] = [p for p in world.kept() if p.stem == world.selection.records[3][1].sha256]
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-7])
    [again] = world.evaluate(["all"])
    assert again.metrics == first.metrics and torn.read_bytes() == whole
    assert all((again.rows[n] == first.rows[n]).all() for n in first.rows)


def test_a_second_evaluation_needs_no_sample(world: World, tmp_path: Path) -> None:
    first = world.evaluate(["all", "chains"])
    away: list[Path] = []
    try:
        for spec, record in world.selection.records:
            path = world.folder / "chains" / spec.digest / record.file
            path.rename(tmp_path / f"{len(away)}")
            away.append(path)
        assert len(away) == 8 and not list(world.folder.glob("chains/*/samples/*"))
        second = world.evaluate(["all", "chains", "samples"], rows=False)
    finally:
        for n, path in enumerate(away):
            (tmp_path / f"{n}").rename(path)
    assert [r.metrics for r in second[:3]] == [r.metrics for r in first] and len(second) == 3 + 8
    assert all(r.rows == {} for r in second)
    assert [r.metrics for r in second[3:]] == [[world.directly([n])] for n in range(8)]


@pytest.mark.parametrize(
    ("policy", "room", "kept"), [("none", 2, False), ("auto", 1, True), ("auto", 0.999, False), ("all", 0, True)]
)
def test_a_run_keeps_what_its_policy_says_and_finds_the_same(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, room: float, kept: bool
) -> None:
    """With ``auto`` all of its predictions, if there is room."""
    evaluation = world.selection.task.splits()["test"]
    tensors = next(world.selection.completed())
    bytes_of_all = 8 * sum(evaluation.predict(tensors, shard).nbytes for shard in range(evaluation.shards))
    monkeypatch.setattr(caches, "AUTO_BYTES", int(room * bytes_of_all))
    shutil.copytree(world.folder / "chains", tmp_path / "chains")
    root, placement = Storage(tmp_path), replace(PLACEMENT, keep_predictions=policy)
    evaluators = Evaluators.of(world.comparison, root, placement, workers=ThreadWorkers())
    outcome = evaluate_run(world.comparison, root, placement, NullCallback(), lease=Lease(root), evaluators=evaluators)
    assert len(list(tmp_path.glob("predictions/*/*"))) == (8 if kept else 0) and outcome.requested == []
    result = outcome.views[0, 0]
    assert result.request == Request(arm=0, group=0, view=ALL)
    assert result.metrics == [world.directly(range(8))] and result.samples == 8


def test_an_unfinished_chain_leaves_its_arm_out_unless_the_run_dropped_it(world: World) -> None:
    plan = runs.single(epochs=4, chains=3, cycles=2, exploration=0.0, samples_per_cycle=2)
    first, second, third = plan.chains()
    assert {first, second} == set(world.comparison.chains())

    diary = Diary()

    def drive(dropped: set[str]) -> DriverOutcome:
        how = {"lease": Lease(world.root), "dropped": dropped, "evaluators": world.evaluators}
        return evaluate_run(plan, world.root, PLACEMENT, diary, **how)

    assert not drive(set()).views and not diary.of(events.ViewDone)
    found = drive({third}).views[0, 0]
    (told,) = diary.of(events.ViewDone)
    assert (told.arm, told.metrics) == (plan.arms[0].name, found.metrics)
    assert (found.samples, found.chains, found.metrics) == (8, 2, [world.directly(range(8))])
    kinds = ["all", "chains"]
    assert world.evaluate(kinds, comparison=plan) == []
    results = world.evaluate(kinds, comparison=plan, dropped={third})
    assert [(r.request.view.name, r.samples) for r in results] == [("all", 8), ("chain:0", 4), ("chain:1", 4)]


@pytest.mark.parametrize(
    ("kinds", "request_", "words"),
    [
        (["cycle"], None, ["views", "cycle"]),
        (["first:9"], None, ["first:9", "8"]),
        ([], Request(arm=1, group=0), ["views", "arm 1"]),
        ([], Request(arm=0, group=0, view=View(name="cycle:7", cycle=7)), ["cycle:7"]),
        ([], Request(arm=0, group=0, view=View(name="first:9", first=9)), ["first:9", "8"]),
        ([], Request(arm=0, group=0, weights={}), ["weights"]),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(
    world: World, kinds: list[str], request_: Request | None, words: list[str]
) -> None:
    with refused(*words):
        world.evaluate(kinds, [request_] if request_ else [])


def test_a_lost_evaluator_is_replaced_and_costs_nothing_but_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    [first] = world.evaluate(["all"])
    world.evaluators.workers.kill(world.evaluators.running[0].actor)
    with caplog.at_level(logging.WARNING):
        [again] = world.evaluate(["all"])
    assert again.metrics == first.metrics and "evaluator was lost" in caplog.text
    assert len(world.evaluators.running) == 1
