"""A part held out of somebody's own data: exact sizes and shares, never learned from, one identity, one line for a
mistake."""

from __future__ import annotations

import json
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import raychains as rc
from raychains import tasks
from raychains.api import plans
from raychains.core.config import Run
from raychains.core.spec import ChainSpec, TaskSpec
from raychains.data.source import EpochOrder
from raychains.store import ChainStore
from raychains.tasks import passed_tasks
from raychains.tasks.from_options import make_task
from tests.checks import refused
from tests.pool import unpaged
from tests.tasks.test_module import LABELS, TEST, TRAIN, Listed, X, Y, classify, regress, samples_of


def rows(data: Any, n: int) -> set[tuple[float, ...]]:
    """The inputs of a set of n examples."""
    found = {tuple(row) for row in data[0:n].double().tolist()}
    assert len(found) == n == len(data)
    return found


@pytest.mark.parametrize(("val_split", "held"), [(0.25, 10), (7, 7), (1, 1), (39, 39)])
def test_the_parts_are_disjoint_of_the_asked_size_and_keep_each_class_s_share(val_split: float, held: int) -> None:
    task = classify(val_split=val_split)
    assert task.num_data == 40 - held and task.settings()["val_split"] == held
    learned, kept = rows(task._train, 40 - held), rows(task._sets["val"], held)
    assert not learned & kept and learned | kept == {tuple(row) for row in X[TRAIN].double().tolist()}
    share = LABELS[TRAIN].double().mean().item()
    assert abs(int(task._sets["val"].targets.sum()) - held * share) < 1
    assert list(task.splits()) == ["test", "train", "val"] and len(task.splits()["val"]._labels) == held
    assert task.epoch(seed=0, batch_size=1).__len__() == 40 - held


def test_one_seed_gives_one_split_and_another_another_however_the_data_are_kept() -> None:
    pair = (X[TRAIN], LABELS[TRAIN])
    kept = {
        "tensors": classify(val_split=0.25),
        "number": classify(val_split=10),
        "arrays": classify(train_set=(pair[0].numpy(), pair[1].numpy()), val_split=0.25),
        "tensor dataset": classify(train_set=TensorDataset(*pair), val_split=0.25),
        "streamed": classify(train_set=Listed(*pair), resident=False, val_split=0.25),
        "divided later": classify().holding_out(0.25),
    }
    first = kept["tensors"]
    assert kept["streamed"].streamed
    assert len({t.spec() for t in kept.values()}) == 1
    for task in kept.values():
        assert torch.equal(task._sets["val"][0:10], first._sets["val"][0:10]) and torch.equal(
            task._sets["val"].targets, first._sets["val"].targets
        )
    assert len({tuple(samples_of(t)) for t in kept.values()}) == 1
    other = classify(val_split=0.25, split_seed=1)
    assert rows(other._sets["val"], 10) != rows(first._sets["val"], 10)
    assert len({t.fingerprint for t in (first, other, classify(), classify(val_split=9))}) == 4
    prints = {t.splits()[s].fingerprint for t in (first, other) for s in ("train", "val")}
    assert len(prints) == 4  # predictions that a store keeps are found by these
    again = cloudpickle.loads(cloudpickle.dumps(first))
    assert again.spec() == first.spec() and samples_of(again) == samples_of(first)


def test_chains_never_see_what_is_held_out() -> None:
    """Other values in the held-out places, huge ones, leave every sample as it is."""
    for make in (classify, regress):
        task = make(val_split=12)
        held = {tuple(row) for row in task._sets["val"][0:12].tolist()}
        poisoned = X[TRAIN].clone()
        places = [i for i, row in enumerate(poisoned.tolist()) if tuple(row) in held]
        assert len(places) == 12
        poisoned[places] = 1e10
        targets = Y[TRAIN] if make is regress else LABELS[TRAIN]
        assert samples_of(make(train_set=(poisoned, targets), val_split=12)) == samples_of(task)
        assert samples_of(make()) != samples_of(task)


def test_without_it_a_task_is_what_it_was() -> None:
    """Frozen: the parts of the identity, and the hashes of these data."""
    x, y = torch.arange(30.0).reshape(10, 3), torch.arange(10) % 2
    task = rc.Task.from_module(lambda: nn.Linear(3, 2), (x, y), (x[:4], y[:4]), name="golden", val_split=0.0)
    parts = json.loads(task.fingerprint)
    assert list(parts) == ["layout", "likelihood", "parameters", "test", "train", "version"]
    assert parts["train"] == "6c205048807a163a1d00fb0b534aae2d803a8f0635e93305fce53622e9ed7199"
    assert parts["test"] == "204fe598ef51dea04f63cfc728ba52f22d076e3eec5820a7d93f1f3071cb30d8"
    assert task.settings() == {"name": "golden", "version": "1", "loss": "cross_entropy"}
    assert list(task.splits()) == ["test", "train"]
    assert task.holding_out(0) is task and make_task(Run(task="golden", val_split=0.0), "golden", task) is task


def test_validation_data_of_its_own_are_a_split_and_part_of_the_identity() -> None:
    task = classify(val=(X[TEST], LABELS[TEST]), test_set=(X[:5], LABELS[:5]))
    assert task.num_data == 40 and np.array_equal(task.splits()["val"]._labels, LABELS[TEST].numpy())
    assert task.settings() == classify().settings()
    other = classify(val=(X[:9], LABELS[:9]), test_set=(X[:5], LABELS[:5]))
    with refused("task differs from the run's: validation data"):
        tasks.give_again(other, task.spec())
    assert samples_of(task) == samples_of(classify())  # samples learn nothing from it


def test_runs_of_an_object_divide_it_by_their_option() -> None:
    task = classify(name="divided")
    plan = plans.run(
        Run(task="divided", val_split=0.25, epochs=2, cycles=1, batch_size=10), tasks.give(task)
    ).comparison
    spec = next(iter(plan.chains().values()))
    assert spec.steps == 2 * 3 and spec.sampler.settings["num_data"] == 30
    assert spec.task == task.holding_out(10).spec()
    assert ChainSpec.from_json(json.loads(json.dumps(spec.to_json()))).digest == spec.digest
    assert tasks.build(spec.task).num_data == 30 and tasks.build(task.spec()) is task  # neither takes the other's place


def test_the_whole_object_is_enough_to_go_on_with_a_divided_run(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TaskSpec.from_json(classify(val_split=8, split_seed=3).spec().to_json())
    monkeypatch.setattr(passed_tasks, "_GIVEN", {})
    assert tasks.give_again(classify(), spec).spec() == spec and tasks.build(spec).num_data == 32
    monkeypatch.setattr(passed_tasks, "_GIVEN", {})
    tasks.give(classify())
    assert tasks.build(spec).num_data == 32
    with refused("task differs from the run's: held-out part ('8 of 40, seed 4' here, '8 of 40, seed 3' in the run)"):
        tasks.give_again(classify(val_split=8, split_seed=4), spec)
    with refused("held-out part ('none' here, '8 of 40, seed 3' in the run)", "training data"):
        tasks.give_again(classify(train_set=(X[:5], LABELS[:5])), spec)


@pytest.mark.long
def test_a_run_of_a_divided_object_samples_it_in_real_workers(store: str, ray_session: None) -> None:
    """The object travels divided; the whole one is enough to predict."""
    length = {"epochs": 4, "cycles": 2, "batch_size": 10}
    settings = {"sampler": "csghmc", "chains": 1, "lr": 0.01, "evaluators": 1, **length}
    task = classify(name="held out")
    with unpaged():
        run = rc.run(task=task, val_split=0.25, store=store, name="r", **settings)
    spec = next(iter(run.comparison.chains().values()))
    records = ChainStore(run.store.root, spec.digest).records()
    assert [r.sha256 for r in records] == samples_of(task.holding_out(10), sampler="csghmc", batch_size=10)
    passed_tasks._GIVEN.clear()  # as in another process
    again = rc.load(run.path, task=classify(name="held out"))
    wrong = again.predict(X[TEST]).argmax(1) != LABELS[TEST].numpy()
    assert run.table(full=True)["error"].iloc[0] == pytest.approx(wrong.mean())
    assert tasks.build(spec.task).splits()["val"].fingerprint == task.holding_out(10).splits()["val"].fingerprint


MISTAKES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"val_split": 1.5}, ("val_split must be a share in [0, 1) or a whole number of examples", "1.5")),
    ({"val_split": 0.0125}, ("val_split must hold out at least one of the 40 training examples", "0.0125")),
    ({"val_split": 40}, ("val_split must hold out at least one of the 40 training examples and leave one", "40")),
    ({"val_split": 0.2, "split_seed": -1}, ("split_seed must be an integer of at least 0", "-1")),
    ({"val_split": 0.2, "val": (X[:5], LABELS[:5])}, ("task 'own' has validation data of its own", "got 0.2")),
]


@pytest.mark.parametrize(("settings", "words"), MISTAKES, ids=[w[0] + str(i) for i, (_, w) in enumerate(MISTAKES)])
def test_a_mistake_is_one_line(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        classify(**settings)


def test_what_cannot_be_divided_says_so() -> None:
    listed = Listed(X[TRAIN], LABELS[TRAIN])
    listed.fingerprint = "flowers-3"
    with refused("val_split must be left out for a streamed train_set that states its fingerprint, got 0.2", "val="):
        classify(train_set=listed, resident=False, val_split=0.2)
    assert listed.asked < 40  # and it was not read to find out
    with refused("val_split must be left out, got 0.5: task 'own' holds out a part already"):
        plans.run(Run(task="own", val_split=0.5), classify(val_split=0.2))
    with refused("val_split must be left out for task Mixture25, got 0.5"):
        plans.run(Run(task="mixture25", val_split=0.5), rc.make_task("mixture25"))
    with refused("val_split must be left out for task Digits"):
        plans.run(Run(task="digits", val_split=0.5), rc.make_task("digits"))


def test_a_streamed_part_is_read_in_the_chain_s_own_order() -> None:
    """Of the whole dataset only the held-in examples are asked for, each once an epoch."""
    asked: list[int] = []

    class Counting(Listed):
        def __getitem__(self, i: int) -> tuple[Any, Any]:
            asked.append(i)
            return super().__getitem__(i)

    task = classify(train_set=Counting(X[TRAIN], LABELS[TRAIN]), resident=False, val_split=10)
    order = task.epoch(seed=5, batch_size=6)
    assert isinstance(order, EpochOrder)
    first = [task.inputs(batch) for batch in order]  # the first looks four times at its first example
    task._train.source.close()
    learned = rows(task._train, 30)
    asked.clear()
    order = task.epoch(seed=5, batch_size=6)
    second = [task.inputs(batch) for batch in order]
    task._train.source.close()
    assert len(asked) == 30 == len(set(asked))
    assert {tuple(row) for row in X[asked].double().tolist()} == learned
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_whole_groups_are_held_out_and_are_part_of_the_identity() -> None:
    groups = np.repeat([f"day {i}" for i in range(10)], 4)
    held_by_seed = set()
    for seed in range(4):
        task = classify(groups=groups, val_split=10, split_seed=seed)
        held = [
            i
            for i, x in enumerate(X[TRAIN].double().tolist())
            if tuple(x) in rows(task._sets["val"], len(task._sets["val"]))
        ]
        days = {groups[i] for i in held}
        assert len(held) == 12 == 4 * len(days), "the fewest groups that make ten examples or more"
        assert task.num_data == 28 and not rows(task._train, 28) & rows(task._sets["val"], 12)
        held_by_seed.add(frozenset(days))
    assert len(held_by_seed) > 1
    one, other = classify(groups=groups, val_split=10), classify(groups=np.roll(groups, 1), val_split=10)
    assert one.fingerprint != other.fingerprint and classify(groups=groups).fingerprint == classify().fingerprint
    nearly_all = classify(groups=groups, val_split=39)
    assert nearly_all.num_data == 4 and len(nearly_all._sets["val"]) == 36, "one group is left to learn from"
    for wrong, words in ((groups[:5], "for each of 40 examples"), (["a"] * 40, "two different ones or more")):
        with refused("groups must be", words):
            classify(groups=wrong)


def test_a_task_of_an_import_path_is_divided_again_by_the_same_seed() -> None:
    whole = tasks.make("tests.api.fit_task:make_task")
    parts = [whole.holding_out(16, seed) for seed in range(2)]
    assert parts[0].fingerprint != parts[1].fingerprint
    for part in parts:
        passed_tasks.forget()
        assert rows(tasks.build(part.spec())._sets["val"], 16) == rows(part._sets["val"], 16)
