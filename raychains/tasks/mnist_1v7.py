"""MNIST's ones against its sevens under logistic regression: a strongly log-concave posterior of real data."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from raychains.data import sets
from raychains.tasks.images import ImageTask

DIGITS = (1, 7)
"""The classes 0 and 1."""


class OneVersusSeven(ImageTask):
    """The 13,007 ones and sevens of MNIST's training images (2,163 of its test images) under softmax regression.

    The network is 784 × 2 weights without intercepts, as in Entropy-MCMC's code: a logistic regression on the difference of
    the two rows, whose Gaussian prior has twice the variance of either. Images are normalised as those of the other tasks on
    MNIST. N is the number of training images; the authors' code passes 60,000, that of all ten digits, which makes noise
    and coupling weaker than the posterior's: ``--sampler-settings num_data=60000`` has them so.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default no.

    Source: Li & Zhang 2024 (Entropy-MCMC), §6.2, after Maclaurin & Adams 2015.
    """

    dataset = "mnist"

    def read(self, split: str) -> sets.ImageSet:
        """The ones and sevens of one split, labelled 0 and 1, in the file's order."""
        data = sets.load(self.dataset, split)
        at = torch.isin(data.labels, torch.tensor(DIGITS)).nonzero()[:, 0]
        named = json.dumps([data.fingerprint, {"digits": DIGITS}])
        return sets.ImageSet(
            name=f"{data.name}-1v7",
            images=data.images[at],
            labels=(data.labels[at] == DIGITS[1]).to(torch.int64),
            classes=2,
            fingerprint=hashlib.sha256(named.encode()).hexdigest(),
            stand_in=data.stand_in,
        )

    def named_network(self) -> dict[str, Any]:
        return {"name": "linear", "settings": {"inputs": self._data.images[0].numel(), "outputs": self.classes}}
