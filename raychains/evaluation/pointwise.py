"""Posterior predictive under a likelihood of which only its loss is known: the NLL of the averaged likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation.base import Array, Evaluation, Metric, Reduced, add_curves, gather, normalised
from raychains.evaluation.regression import SHARD, Inputs, mixed, outputs

Loss = Callable[[Tensor, Tensor], Tensor]
"""(model output [n, …], targets [n, …]) to the mean over the n examples of −log p(y | x, θ)."""


class Pointwise(Evaluation):
    """A split under any likelihood −log p(y | x, θ) = loss(f_θ(x), y), evaluated example by example.

    The predictive's NLL of an example is −log (1/S) Σ_s exp(−loss_s): a density only where the loss has the constants
    that make it one. The block of a sample is its log-likelihoods [examples].

    Args:
        model: network; overwritten by each sample.
        inputs: [examples, …].
        targets: [examples, …].
        loss: the mean loss of a batch; it is asked about batches of one example.
        fingerprint: identifies inputs and targets.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="nll", label="NLL (nats)", better="lower", digits=4),)

    def __init__(self, *, model: nn.Module, inputs: Inputs, targets: Tensor, loss: Loss, fingerprint: str) -> None:
        self._model, self.inputs, self.targets, self._loss = model.eval(), inputs, targets, loss
        self._fingerprint, self._device = fingerprint, torch.device("cpu")

    @property
    def fingerprint(self) -> str:
        return f"pointwise/{self._fingerprint}"

    def to(self, device: torch.device) -> None:
        self._model, self._device = self._model.to(device), device

    @property
    def shards(self) -> int:
        return -(-len(self.targets) // SHARD)

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Log-likelihoods [examples of the shard], float64."""
        at = slice(shard * SHARD, (shard + 1) * SHARD)
        given = outputs(self._model, tensors, self.inputs[at].to(self._device))
        return log_likelihoods(self._loss, given, self.targets[at].to(self._device))

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        running = mixed(np.stack(blocks), normalised(weights, len(blocks)))
        return Reduced(rows={"log_p": running[-1]}, curves={"nll": -running.sum(1)})

    def summarise(self, parts: Sequence[Reduced]) -> list[dict[str, float]]:
        return [{"nll": -float(np.mean(gather(parts)["log_p"]))}]

    def curve(self, parts: Sequence[Reduced]) -> list[dict[str, list[float]]]:
        return [{"nll": (add_curves(parts)["nll"] / len(self.targets)).tolist()}]


@torch.no_grad()
def log_likelihoods(loss: Loss, given: Tensor, targets: Tensor) -> Array:
    """−loss of every example by itself, [n] float64, from outputs [n, …] and targets [n, …]."""
    each = [loss(given[i : i + 1], targets[i : i + 1]) for i in range(len(given))]
    return -torch.stack([e.reshape(()) for e in each]).double().cpu().numpy()
