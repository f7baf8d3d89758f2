"""The likelihood of a label at every position of an example: words, pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.core.errors import UserError, require
from raychains.core.validation import is_int
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.position_classification import Positions
from raychains.tasks.likelihood_base import Likelihood, check_labels, dtype_name
from raychains.tasks.user_dataset import UserDataset

AXES = {"tokens": -1, "pixels": 1}
"""Axis of the classes, by the loss's name: the orders of Hugging Face and of torch."""


class PerPosition(Likelihood):
    """log p(y | x, θ) = Σ_j log softmax(f_j)_{y_j} over the labelled positions j of an example: words, pixels, voxels.

    Outputs are logits [n, positions …, classes], or [n, classes, positions …] with ``axis=1``; labels [n, positions …].
    The loss of a batch is the mean over its n examples of that sum, so that T = 1 is the posterior. An example without
    a label has log p = 0 and counts in N.

    Args:
        axis: of the classes among the outputs' axes: -1, the last one, or 1, the one behind the examples'.
        ignore_index: the label of positions that are left out, such as padding.
    """

    predicts = "positions"

    def __init__(self, axis: int = -1, ignore_index: int = -100) -> None:
        ok = is_int(axis) and axis in (-1, 1)
        require(
            ok, "axis", axis, "be -1 or 1: classes on the last axis, as for words, or on the second one, as for pixels"
        )
        require(is_int(ignore_index), "ignore_index", ignore_index, "be an integer, the label of what is left out")
        self.axis, self.ignore_index = axis, ignore_index
        self.name = f"positions, axis {axis}, ignoring {ignore_index}"

    def width(self, outputs: Tensor) -> int:
        return outputs.shape[self.axis]

    def labels_per_example(self, targets: Tensor) -> float:
        return max(1.0, self._labelled(targets).sum().item() / len(targets))

    def _labelled(self, targets: Tensor) -> Tensor:
        return targets.long() != self.ignore_index

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        ok = outputs.ndim >= 3 and outputs.movedim(self.axis, -1).shape[:-1] == targets.shape
        ok = ok and outputs.is_floating_point() and self.width(outputs) >= 2
        if not ok or targets.is_floating_point() or targets.is_complex():
            form = "[n, positions …, classes]" if self.axis == -1 else "[n, classes, positions …]"
            raise UserError(
                f"a loss of labels per position, classes on axis {self.axis}, needs logits {form} and integer labels "
                f"[n, positions …], got outputs {list(outputs.shape)} and {dtype_name(targets)} targets "
                f"{list(targets.shape)}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        labels = targets.long()[self._labelled(targets)]
        require(len(labels) > 0, name, f"{self.ignore_index} at all positions", "have a label somewhere")
        check_labels(
            labels, self.width(outputs), name, f" or {self.ignore_index} (PerPosition(ignore_index=…) has another)"
        )

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        labels = targets.long()
        if self.axis == -1:
            logits, labels = logits.flatten(0, -2), labels.flatten()
        # Of images torch's own sum is another one at each call on a GPU.
        return F.cross_entropy(logits, labels, ignore_index=self.ignore_index, reduction="none").sum() / len(targets)

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return Positions(
            model=model,
            data=data,
            classes=classes,
            positions=math.prod((data.targets if data.read else data.first(1)[1]).shape[1:]),
            axis=self.axis,
            ignore_index=self.ignore_index,
            fingerprint=f"{data.fingerprint}/{self.name}",
        )
