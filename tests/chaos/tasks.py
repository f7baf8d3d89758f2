"""Mortal tasks: the built-in ones, whose processes die where a plan says. Workers import them by path."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from raychains.evaluation.evaluation import Array, Evaluation
from raychains.tasks import Task
from raychains.tasks.digits import Digits
from raychains.tasks.linear_regression import LinearRegression
from raychains.tasks.mixture import Mixture25
from tests.chaos import hooks


class Counted(Sequence[Any]):
    """Batches, of which a chain asks for one each step: counted there, after a pause that bounds its speed."""

    def __init__(self, batches: Sequence[Any], pause: float) -> None:
        self._batches, self._pause = batches, pause

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def __getitem__(self, n: Any) -> Any:
        time.sleep(self._pause)
        hooks.step()
        return self._batches[n]


class Mortal(Task):
    """What makes a task mortal; ``folder`` holds the plan of its deaths, ``pause`` is slept in every step."""

    folder: str
    pause: float

    def settings(self) -> dict[str, Any]:
        return {"folder": self.folder, "pause": self.pause}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        hooks.arm(self.folder, str(seed))
        return super().build_model(seed=seed, lanes=lanes)  # type: ignore[safe-super]

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return Counted(super().epoch(seed=seed, batch_size=batch_size), self.pause)  # type: ignore[safe-super]

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        loss = super().backward(model, batch, generator)  # type: ignore[safe-super]
        hooks.in_step()
        return loss

    def splits(self) -> Mapping[str, Evaluation]:
        splits = super().splits()  # type: ignore[safe-super]
        hooks.arm(self.folder, "evaluator")
        for evaluation in splits.values():
            evaluation.predict = functools.partial(_predict, evaluation.predict)  # type: ignore[method-assign]
        return splits


def _predict(predict: Any, tensors: Mapping[str, Any], shard: int) -> Array:
    hooks.in_prediction()
    return predict(tensors, shard)


class MortalMixture(Mortal, Mixture25):
    """The mixture of 25 Gaussians with a noisy gradient, so that the augmentation stream moves."""

    def __init__(self, folder: str = "", pause: float = 0.0) -> None:
        super().__init__(gradient_noise=1.0)
        self.folder, self.pause = folder, pause


class MortalRegression(Mortal, LinearRegression):
    """Conjugate regression with minibatches."""

    def __init__(self, folder: str = "", pause: float = 0.0) -> None:
        super().__init__(num_data=100)
        self.folder, self.pause = folder, pause


class Paced(Digits):
    """Digits of which a chain's steps after the first ``fast`` ones take ``pause`` seconds more while a file is there.

    So chains last as long as a test needs. Files beside that one say which chains are so far.
    """

    def __init__(self, file: str, fast: int, pause: float) -> None:
        super().__init__()
        self.file, self.fast, self.pause, self._left = file, fast, pause, 0

    def settings(self) -> dict[str, Any]:
        return {"file": self.file, "fast": self.fast, "pause": self.pause}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        self._mark = Path(f"{self.file}-{seed}")
        self._left = 0 if self._mark.exists() else self.fast
        return super().build_model(seed=seed, lanes=lanes)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        if self._left:
            self._left -= 1
            if not self._left:
                self._mark.touch()
        elif os.path.exists(self.file):
            time.sleep(self.pause)
        return super().backward(model, batch, generator)


class MortalDigits(Mortal, Digits):
    """A small network on few digits: epochs, a data order, samples that are whole networks."""

    def __init__(self, folder: str = "", pause: float = 0.0, val_split: float = 0.0) -> None:
        super().__init__(train=90, hidden=[8], val_split=val_split)
        self.folder, self.pause = folder, pause

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **({"val_split": self.val_split} if self.val_split else {})}
