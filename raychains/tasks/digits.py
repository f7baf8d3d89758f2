"""scikit-learn's handwritten digits under an MLP: a real classification posterior that fits a laptop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import integer
from raychains.data.augment import crop_and_flip
from raychains.data.source import Resident
from raychains.data.tabular import load_digits
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import Evaluation
from raychains.tasks.base import PredictiveTask
from raychains.tasks.defaults import Defaults, rates
from raychains.tasks.likelihoods import Classes
from raychains.tasks.splits import check_hidden, divide, sizes

CLASSES = 10
SIDE = 8
MOST_WEIGHTS = 20_000_000
HIDDEN = (100, 100)
NORMS = ("batch", "frn")
RATES = {
    **{
        "sgld": 0.3,
        "sghmc": 0.06,
        "psgld": 0.003,
        "sgnht": 0.06,
        "atmc": 0.06,
        "emcmc": 0.3,
        "swag": 0.06,
        "laplace": 0.06,
    },
    **{"entropy-sgd": 1.0, "entropy-sgld": 1.0, "sam": 0.2, "bsam": 2.0, "mclmc": 1.0},
}
"""Step sizes by sampler, but for those of a decreasing schedule."""


class Digits(PredictiveTask):
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

    name = "digits"
    # Epochs, cycles, β and samples as cSG-MCMC §5.2 has them for CIFAR; step sizes and prior tuned by us for T = 1.
    defaults = Defaults(
        lr=rates(
            RATES,
            {"sgld": 0.6, "sghmc": 0.06, "psgld": 0.001},
        ),
        epochs=200,
        batch_size=50,
        exploration=0.8,
        samples_per_cycle=3,
        repeats=5,
        weight_decay=1e-3,
        non_cyclical={"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 10},
        sampler_settings={
            "emcmc": {"eta": 0.01},
            "entropy-sgd": {"inner_steps": 5, "inner_lr": 0.3},
            "entropy-sgld": {"inner_steps": 5, "inner_lr": 0.3},
            "bsam": {"prediction_samples": 8},
        },
    )
    likelihood = Classes()

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
        integer("train", train, 1, len(labels) - 1)
        integer("split_seed", split_seed)
        self.hidden = check_hidden(hidden, images.shape[1], CLASSES, MOST_WEIGHTS)
        require(norm is None or norm in NORMS, "norm", norm, f"be {' or '.join(NORMS)}, or left out for the MLP")
        ok = norm is None or self.hidden == HIDDEN
        require(ok, "hidden", hidden, "be left out beside norm: those are the widths of the MLP")
        require(isinstance(augment, bool), "augment", augment, "be true or false")
        chosen = sizes(train, None, val_split)
        self.norm, self.augment, self.split_seed = norm, augment, split_seed
        self.train, self.val_split, self.num_data = train, chosen.val, chosen.train
        order = np.random.default_rng(split_seed).permutation(len(labels))
        images, labels = images[order], labels[order]
        parts = divide(images[:train], labels[:train], chosen, split_seed)
        self._parts = {"test": slice(train, None), "train": parts.train, **({"val": parts.val} if chosen.val else {})}
        name = f"{train}/{chosen.val}" if chosen.val else str(train)
        self.fingerprint = hashlib.sha256(images.tobytes() + labels.tobytes() + name.encode()).hexdigest()
        self._images, self._labels = torch.from_numpy(images), torch.from_numpy(labels)
        self.source = Resident(self._images[parts.train], self._labels[parts.train])

    def settings(self) -> dict[str, Any]:
        own = self._changed({"val_split": self.val_split, "norm": self.norm, "augment": self.augment})
        return {"train": self.train, "split_seed": self.split_seed, "hidden": list(self.hidden), **own}

    def named_network(self) -> dict[str, Any]:
        if self.norm is not None:
            return {"name": "small_cnn", "settings": {"size": SIDE, "classes": CLASSES, "norm": self.norm}}
        widths = {"inputs": self._images.shape[1], "hidden": list(self.hidden), "outputs": CLASSES}
        return {"name": "mlp", "settings": widths}

    def augmented(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        if not self.augment:
            return inputs
        return crop_and_flip(inputs.view(-1, 1, SIDE, SIDE), generator, padding=1, flip=False).flatten(1)

    def splits(self) -> Mapping[str, Evaluation]:
        return {name: self._split(part) for name, part in self._parts.items()}

    def _split(self, part: Any) -> Evaluation:
        inputs, labels = self._images[part], self._labels[part].numpy()
        return Classification(model=self.evaluated_model, inputs=inputs, labels=labels, classes=CLASSES)
