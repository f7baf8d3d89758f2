"""A context of analyses of predictives: a small task with any splits, its samples in memory, evaluated in this
process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation.classification import Classification, OutOfDistribution
from raychains.evaluation.evaluation import Evaluation, gather
from raychains.measures import Context, Tables, named
from raychains.planning import Comparison
from raychains.planning.views import Request, ViewKey, ViewResult
from raychains.store import RunStore, Storage
from raychains.tasks.base import Task
from raychains.tasks.splits import LazySplits
from tests.measures.made import context_of
from tests.report import runs

INPUTS, CLASSES = 5, 4


def network() -> nn.Module:
    return nn.Linear(INPUTS, CLASSES)


def inputs(seed: int, n: int, shift: float = 0.0) -> Tensor:
    return torch.randn(n, INPUTS, generator=torch.Generator().manual_seed(seed)) + shift


def labelled(seed: int, n: int, noise: float = 0.0) -> Evaluation:
    """Inputs whose labels are their largest entry; the noise comes to the inputs afterwards."""
    x = inputs(seed, n)
    labels = x[:, :CLASSES].argmax(1).numpy()
    return Classification(model=network(), inputs=x + noise * inputs(seed + 1, n), labels=labels, classes=CLASSES)


def outside(seed: int, n: int, shift: float = 0.0) -> Evaluation:
    return OutOfDistribution(model=network(), inputs=inputs(seed, n, shift))


class Small(Task):
    num_data = 10
    fingerprint = "f"
    classes = CLASSES

    def __init__(self, splits: Mapping[str, Callable[[], Evaluation]]) -> None:
        self._splits = LazySplits(splits)

    def splits(self) -> Mapping[str, Evaluation]:
        return self._splits

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        raise NotImplementedError

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        raise NotImplementedError

    def to(self, device: torch.device) -> None:
        raise NotImplementedError


def sample(seed: int, sharpness: float) -> dict[str, Tensor]:
    """A network that looks for the largest entry, more or less surely."""
    g = torch.Generator().manual_seed(seed)
    weight = sharpness * (torch.eye(CLASSES, INPUTS) + 0.3 * torch.randn(CLASSES, INPUTS, generator=g))
    return {"weight": weight, "bias": torch.zeros(CLASSES)}


class Predicted:
    """Two groups of repeats of some arms of a comparison, three samples each.

    Args:
        folder: for the run's store.
        splits: of the task, ``test`` among them.
        arms: how many of the comparison's.
        shared: whether all arms have the same samples.
    """

    def __init__(
        self, folder: Path, splits: Mapping[str, Callable[[], Evaluation]], *, arms: int = 2, shared: bool = False
    ) -> None:
        self.task = Small(splits)
        whole = runs.digits(sampler=("sghmc",))
        self.comparison = Comparison(task="small", unit="epochs", split="test", arms=whole.arms[:arms])
        self.store = RunStore(Storage(folder), "predicted")
        self.groups = [(a, g) for a in range(arms) for g in range(2)]
        self.samples = {
            (a, g): [sample(100 * (0 if shared else a) + 10 * g + s, 1.0 + (0 if shared else a)) for s in range(3)]
            for a, g in self.groups
        }
        self.asked: list[str] = []
        self.tables: Tables = {}

    def context(self, split: str = "test", **settings: Any) -> Context:
        given = {"groups": self.groups, "evaluate": self.evaluate, "predictions": self.predictions}
        return context_of(self.store, self.comparison, split, self.task, **given, settings=settings)

    def blocks(self, split: str, arm: int, group: int) -> list[np.ndarray[Any, Any]]:
        evaluation = self.task.splits()[split]
        assert evaluation.shards == 1
        return [evaluation.predict(tensors, 0) for tensors in self.samples[arm, group]]

    def probabilities(self, split: str, arm: int, group: int) -> np.ndarray[Any, Any]:
        """[samples, examples, classes], float64."""
        return np.exp(np.stack(self.blocks(split, arm, group)).astype(np.float64))

    def evaluate(self, split: str, requests: Sequence[Request]) -> list[ViewResult]:
        self.asked.append(split)
        evaluation = self.task.splits()[split]
        found = []
        for request in requests:
            parts = [evaluation.reduce(self.blocks(split, request.arm, request.group), 0)]
            found.append(
                ViewResult(
                    key=ViewKey(request.arm, request.group), request=request, samples=3, chains=1,
                    metrics=evaluation.summarise(parts), curves=evaluation.curve(parts),
                    rows=gather(parts) if request.rows else {},
                )
            )  # fmt: skip
        return found

    def predictions(self, arm: int, group: int) -> Iterator[np.ndarray[Any, Any]]:
        return iter(self.blocks("test", arm, group))

    def measured(self, name: str, **settings: Any) -> Predicted:
        """The run itself, with the tables of a measure, which are stored."""
        self.tables = named(name).tables(self.context(**settings))
        self.write(self.tables)
        return self

    def write(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """As `raychains evaluate` stores them."""
        for name, rows in tables.items():
            self.store.write_table(name, rows)
