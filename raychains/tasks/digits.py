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

from raychains import models
from raychains.data.augment import crop_and_flip
from raychains.data.digits import load_digits
from raychains.data.order import EpochOrder
from raychains.errors import require
from raychains.evaluation.base import Evaluation
from raychains.evaluation.classification import Classification
from raychains.tasks.base import Task, seeded
from raychains.tasks.splits import divide, is_int, sizes

CLASSES = 10
SIDE = 8
MOST_WEIGHTS, MOST_LAYERS = 20_000_000, 100
HIDDEN = (100, 100)
NORMS = ("batch", "frn")


class Digits(Task):
    """Handwritten digits, 8×8 grey values in [0, 1], 10 classes; ``train`` images to learn from, the rest to test.

    Args:
        train: number of training images; the remaining ones of 1,797 are the ``test`` split.
        split_seed: seed of the random split, and of the choice of what is held out.
        hidden: widths of the MLP's hidden layers.
        val_split: share (below 1) or number of the training images that is held out as the split ``val``, each class's
            share kept.
        norm: ``batch`` or ``frn``: the small convolutional network with that normalisation in the MLP's place; default
            none, the MLP.
        augment: shift each training image at random by at most one pixel in each direction, whenever it is read.
    """

    def __init__(
        self,
        train: int = 500,
        split_seed: int = 0,
        hidden: Sequence[int] = HIDDEN,
        val_split: float = 0.0,
        norm: str | None = None,
        augment: bool = False,
    ) -> None:
        images, labels = load_digits()
        require(
            is_int(train) and train >= 1 and train < len(labels),
            "train",
            train,
            f"be an integer in [1, {len(labels) - 1}]",
        )
        require(is_int(split_seed) and split_seed >= 0, "split_seed", split_seed, "be an integer of at least 0")
        ok = isinstance(hidden, list | tuple) and all(is_int(width) and width >= 1 for width in hidden)
        require(ok, "hidden", hidden, "be a list of integers of at least 1: the widths of the hidden layers")
        weights = sum(a * b for a, b in itertools.pairwise((images.shape[1], *hidden, CLASSES)))
        allowed = f"give at most {MOST_WEIGHTS} weights"
        require(len(hidden) <= MOST_LAYERS and weights <= MOST_WEIGHTS, "hidden", hidden, allowed)
        require(norm is None or norm in NORMS, "norm", norm, f"be {' or '.join(NORMS)}, or left out for the MLP")
        ok = norm is None or tuple(hidden) == HIDDEN
        require(ok, "hidden", hidden, "be left out beside norm: those are the widths of the MLP")
        require(isinstance(augment, bool), "augment", augment, "be true or false")
        self.norm, self.augment = norm, augment
        wanted = sizes(train, None, val_split)
        self.train, self.val_split, self.num_data = train, wanted.val, wanted.train
        self.split_seed, self.hidden = split_seed, tuple(hidden)
        order = np.random.default_rng(split_seed).permutation(len(labels))
        images, labels = images[order], labels[order]
        parts = divide(images[:train], labels[:train], wanted, split_seed)
        self._learned: Any = parts.train if wanted.val else slice(0, train)
        self._held_out = parts.val
        self.fingerprint = hashlib.sha256(images.tobytes() + labels.tobytes() + self._split_name().encode()).hexdigest()
        self._images, self._labels = torch.from_numpy(images), torch.from_numpy(labels)
        self._x, self._y = self._images[self._learned], self._labels[self._learned]

    def _split_name(self) -> str:
        return f"{self.train}/{self.val_split}" if self.val_split else str(self.train)

    def settings(self) -> dict[str, Any]:
        settings = {"train": self.train, "split_seed": self.split_seed, "hidden": list(self.hidden)}
        settings |= {"val_split": self.val_split} if self.val_split else {}
        settings |= {"norm": self.norm} if self.norm is not None else {}
        return settings | ({"augment": True} if self.augment else {})

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        network = self._network()
        with seeded(seed):
            return models.build(network["name"], **network["settings"])

    def named_network(self) -> dict[str, Any]:
        return self._network()

    def _network(self) -> dict[str, Any]:
        if self.norm is not None:
            return {"name": "small_cnn", "settings": {"size": SIDE, "classes": CLASSES, "norm": self.norm}}
        sizes = {"inputs": self._images.shape[1], "hidden": list(self.hidden), "outputs": CLASSES}
        return {"name": "mlp", "settings": sizes}

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return EpochOrder(self.num_data, batch_size, seed)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        x = self.inputs(batch)
        if self.augment:
            images = x.view(-1, 1, SIDE, SIDE)
            x = crop_and_flip(images, generator, padding=1, flip=False).flatten(1)
        x = x.to(next(model.parameters()).dtype)
        loss = F.cross_entropy(model(x), self._y[batch])
        loss.backward()
        return loss.detach()

    def inputs(self, batch: Any) -> Tensor:
        return self._x[batch]

    def to(self, device: torch.device) -> None:
        self._x, self._y = self._x.to(device), self._y.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        splits = {"test": self._split(slice(self.train, None)), "train": self._split(self._learned)}
        return splits | ({"val": self._split(self._held_out)} if self.val_split else {})

    def _split(self, part: Any) -> Evaluation:
        return Classification(
            model=self._evaluated_model, inputs=self._images[part], labels=self._labels[part].numpy(), classes=CLASSES
        )

    @cached_property
    def _evaluated_model(self) -> nn.Module:
        return self.build_model(seed=0, lanes=1)
