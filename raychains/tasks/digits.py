"""scikit-learn's handwritten digits under an MLP: a real classification posterior that fits a laptop."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.data.digits import load_digits
from raychains.data.order import EpochOrder
from raychains.errors import require
from raychains.evaluation.base import Evaluation
from raychains.evaluation.classification import Classification
from raychains.models import MLP
from raychains.tasks.base import Task, seeded

CLASSES = 10
MOST_WEIGHTS, MOST_LAYERS = 20_000_000, 100


class Digits(Task):
    """Handwritten digits, 8×8 grey values in [0, 1], 10 classes; ``train`` images to learn from, the rest to test.

    Args:
        train: number of training images; the remaining ones of 1,797 are the ``test`` split.
        split_seed: seed of the random split.
        hidden: widths of the MLP's hidden layers.
    """

    def __init__(self, train: int = 500, split_seed: int = 0, hidden: Sequence[int] = (100, 100)) -> None:
        images, labels = load_digits()
        require(_is_int(train, 1) and train < len(labels), "train", train, f"be an integer in [1, {len(labels) - 1}]")
        require(_is_int(split_seed, 0), "split_seed", split_seed, "be an integer of at least 0")
        ok = isinstance(hidden, list | tuple) and all(_is_int(width, 1) for width in hidden)
        require(ok, "hidden", hidden, "be a list of integers of at least 1: the widths of the hidden layers")
        weights = sum(a * b for a, b in itertools.pairwise((images.shape[1], *hidden, CLASSES)))
        allowed = f"give at most {MOST_WEIGHTS} weights"
        require(len(hidden) <= MOST_LAYERS and weights <= MOST_WEIGHTS, "hidden", hidden, allowed)
        self.num_data, self.split_seed, self.hidden = train, split_seed, tuple(hidden)
        order = np.random.default_rng(split_seed).permutation(len(labels))
        images, labels = images[order], labels[order]
        self.fingerprint = hashlib.sha256(images.tobytes() + labels.tobytes() + str(train).encode()).hexdigest()
        self._images, self._labels = torch.from_numpy(images), torch.from_numpy(labels)
        self._x, self._y = self._images[:train], self._labels[:train]

    def settings(self) -> dict[str, Any]:
        return {"train": self.num_data, "split_seed": self.split_seed, "hidden": list(self.hidden)}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            return MLP(self._images.shape[1], self.hidden, CLASSES)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return EpochOrder(self.num_data, batch_size, seed)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        x = self.inputs(batch).to(next(model.parameters()).dtype)
        loss = F.cross_entropy(model(x), self._y[batch])
        loss.backward()
        return loss.detach()

    def inputs(self, batch: Any) -> Tensor:
        return self._x[batch]

    def to(self, device: torch.device) -> None:
        self._x, self._y = self._x.to(device), self._y.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"test": self._split(slice(self.num_data, None)), "train": self._split(slice(0, self.num_data))}

    def _split(self, part: slice) -> Evaluation:
        return Classification(
            model=self._evaluated_model, inputs=self._images[part], labels=self._labels[part].numpy(), classes=CLASSES
        )

    @cached_property
    def _evaluated_model(self) -> nn.Module:
        return self.build_model(seed=0, lanes=1)


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
