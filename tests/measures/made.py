"""Runs made by hand: samples of known tensors in a store, and a context whose callables compute in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import tasks
from raychains.core.sample import Sample
from raychains.inference.predictive import Selection
from raychains.measures import Context
from raychains.orchestration.run.point_evaluation import PointEvaluator
from raychains.planning import Arm, Comparison
from raychains.planning.points import Point
from raychains.store import ChainStore, RunStore, SampleRecord, Storage
from raychains.tasks import Task
from tests.orchestration.worlds import comparison, meta

N, DIM = 60, 4


def data(seed: int, n: int = N, dim: int = DIM) -> tuple[Tensor, Tensor]:
    """Inputs [n, dim] and real targets [n]."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g)
    return x, x.sum(1) + torch.randn(n, generator=g)


def regression() -> Task:
    """A linear network under Gaussian noise of σ = 1, whose NLL is an exact quadratic of the parameters."""
    return tasks.give(
        Task.from_module(lambda: nn.Linear(DIM, 1), data(0), data(1), "gaussian", noise=1.0, name="linear")
    )


def classifier(batchnorm: bool = False) -> Task:
    """Three classes of the same inputs, by a linear network or one with BatchNorm."""
    (x, y), (x2, y2) = data(0), data(1)
    labelled = [(a, (b > 0).long() + (b > 1).long()) for a, b in ((x, y), (x2, y2))]

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(DIM, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)) if batchnorm else nn.Linear(DIM, 3)

    return tasks.give(Task.from_module(model, *labelled, name="normed" if batchnorm else "three"))


UNWEIGHTED = SimpleNamespace(weights=None)
"""A selection of which only its weights are asked."""
Drawn = tuple[int, int, str, dict[str, Tensor]]
"""(chain, cycle, variable, tensors)"""


def context_of(store: RunStore, comparison: Comparison, split: str, task: Task, **given: Any) -> Context:
    """Of the first repeats of all arms, with nothing but what is given."""
    nothing: dict[str, Any] = {
        "groups": [(a, 0) for a in range(len(comparison.arms))], "select": lambda arm, group: UNWEIGHTED,
        "evaluate": lambda split, requests: [], "predictions": lambda arm, group: iter(()),
        "measure": lambda split, points: [],
    }  # fmt: skip
    return Context(store=store, comparison=comparison, split=split, task=task, **{**nothing, **given})


class Made:
    """A stored run of one arm, or of several that share their first chains, and what an analysis of it is given.

    Args:
        folder: for the store.
        task: the samples' task.
        samples: of all chains; indices are counted per chain and variable.
        arms: numbers of chains of the arms.
    """

    def __init__(self, folder: Path, task: Task, samples: Sequence[Drawn], arms: tuple[int, ...] = ()) -> None:
        self.task, self.root = task, Storage(folder / "store")
        chains = 1 + max(chain for chain, *_ in samples)
        plan = comparison(task, chains=chains, lanes=1, block=0, steps=100, arms=arms)
        self.comparison: Comparison = dataclasses.replace(plan, split="test", arms=tuple(map(_batched, plan.arms)))
        self.specs = list(self.comparison.chains().values())
        self.records: dict[str, list[SampleRecord]] = {spec.digest: [] for spec in self.specs}
        counts: dict[tuple[int, str], int] = {}
        for chain, cycle, variable, tensors in samples:
            index = counts[chain, variable] = counts.get((chain, variable), -1) + 1
            spec = self.specs[chain]
            about = meta(spec.digest, index, variable=variable, cycle=cycle, step=index)
            store = ChainStore(self.root, spec.digest)
            if not store.last_attempt():
                store.begin(spec, 1, {})
            self.records[spec.digest].append(store.publish_sample(Sample(meta=about, tensors=tensors), 1, {})[0])
        self.measured: list[tuple[str, Point]] = []

    def context(self, split: str = "test", **settings: Any) -> Context:
        given = {"select": self.select, "predictions": self.predictions, "measure": self.measure}
        return context_of(RunStore(self.root, "made"), self.comparison, split, self.task, **given, settings=settings)

    def select(self, arm: int, group: int) -> Selection:
        chains = self.comparison.arms[arm].chains[group]
        found = [(r.meta.index, c, spec, r) for c, spec in enumerate(chains) for r in self.records[spec.digest]]
        found.sort(key=lambda f: f[:2])
        return Selection(
            root=self.root, task=self.task, arm=self.comparison.arms[arm].name,
            records=tuple((spec, record) for _, _, spec, record in found),
        )  # fmt: skip

    def predictions(self, arm: int, group: int) -> Iterator[np.ndarray[Any, Any]]:
        split = self.task.splits()["test"]
        for tensors in self.select(arm, group).completed():
            yield np.concatenate([split.predict(tensors, shard) for shard in range(split.shards)])

    def measure(self, split: str, points: Sequence[Point]) -> list[dict[str, float]]:
        self.measured += [(split, point) for point in points]
        evaluator = PointEvaluator(self.root, self.task)
        return [evaluator.measure(self.task.splits()[split], point) for point in points]


def _batched(arm: Arm) -> Arm:
    """The arm with batches of 20 examples."""
    chains = [[dataclasses.replace(s, batch_size=20, steps_per_epoch=N // 20) for s in group] for group in arm.chains]
    return dataclasses.replace(arm, chains=tuple(map(tuple, chains)))


def linear(*values: float) -> dict[str, Tensor]:
    """The linear network of `regression` with these weights, and no bias."""
    weight = torch.tensor([[float(v) for v in values] + [0.0] * (DIM - len(values))])
    return {"weight": weight, "bias": torch.zeros(1)}


def drawn(seed: int, task: Task) -> dict[str, Tensor]:
    return {n: t.clone() for n, t in task.build_model(seed=seed, lanes=1).state_dict().items()}


def nll(tensors: dict[str, Tensor], split: tuple[Tensor, Tensor]) -> float:
    """Mean negative log-likelihood of `regression`, written down directly."""
    x, y = (t.double().numpy() for t in split)
    residual = y - x @ tensors["weight"].double().numpy()[0] - float(tensors["bias"][0])
    return float(np.mean(residual**2) / 2 + np.log(2 * np.pi) / 2)
