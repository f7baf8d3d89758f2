"""Posterior predictive of a likelihood that is a torch distribution: counts, several labels, heavy tails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from raychains.core import gpus
from raychains.evaluation.base import Array, Metric, Reduced, normalised
from raychains.evaluation.regression import Inputs, Measured, averages, mixed, mixture_moments, outputs


class Distributed(Measured):
    """A split whose targets have a torch distribution p(y | f_θ(x)), one sample of θ at a time.

    The predictive of S samples is the mixture (1/S) Σ_s p(y | f_s(x)), or one with weights: its log density is exact,
    its mean and standard deviation are those of the samples' means and variances.

    The block of a sample is [examples, 1 + 2·targets]: log p of all targets of an example together, means, variances.

    Args:
        model: network; overwritten by each sample.
        inputs: [examples, …].
        targets: [examples] or [examples, targets].
        distribution: from outputs [n, width] to the distribution with the batch [n] and the event [targets].
        labels: targets are 0 or 1: errors are counted, too.
        fingerprint: identifies inputs, targets and likelihood.
    """

    kind = "distribution"
    numbers: ClassVar[tuple[Metric, ...]] = (
        Metric(name="rmse", label="RMSE", better="lower", digits=4),
        Metric(name="nll", label="NLL (nats)", better="lower", digits=4),
    )
    of_labels: ClassVar[tuple[Metric, ...]] = (
        Metric(name="label_error", label="Wrong labels (%)", better="lower", scale=100, digits=2),
        Metric(name="nll", label="NLL (nats)", better="lower", digits=4),
        Metric(name="brier", label="Brier score per label", better="lower", digits=4),
    )

    def __init__(
        self,
        *,
        model: nn.Module,
        inputs: Inputs,
        targets: Tensor,
        distribution: Callable[[Tensor], Distribution],
        labels: bool,
        fingerprint: str,
    ) -> None:
        flat = targets.double().reshape(len(targets), -1)
        super().__init__(model=model, inputs=inputs, targets=flat, fingerprint=fingerprint)
        self._distribution, self._labels = distribution, labels
        self._measure_by(self.of_labels if labels else self.numbers)

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return log p, means and variances, [examples of the shard, 1 + 2·targets], float64."""
        at = self._range(shard)
        out = outputs(self._model, tensors, self._inputs(shard))
        with torch.no_grad():
            found = self._distribution(out.double().reshape(len(out), -1))
            log_p = found.log_prob(self.targets[at].to(self._device))
            return gpus.array(torch.cat([log_p[:, None], found.mean, found.variance], dim=1))

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        """Return rows: ``target``, ``mean`` and ``std`` of the mixture ([n], or [n, targets]); ``squared_error`` (mean
        over targets) and ``log_p``; of labels ``label_error``, the share that is wrong at ½, and ``brier``."""
        targets = self.targets[self._range(shard)].numpy()
        stacked, w = np.stack(blocks), normalised(weights, len(blocks))
        k = targets.shape[1]
        means, variances = stacked[..., 1 : 1 + k], stacked[..., 1 + k :]
        running = mixed(stacked[..., 0], w)
        mean, std = mixture_moments(means, variances, w)
        each = {"target": targets, "mean": mean, "std": std}
        rows = {
            **{name: values[:, 0] if k == 1 else values for name, values in each.items()},
            "squared_error": ((targets - mean) ** 2).mean(1),
            "log_p": running[-1],
        }
        if self._labels:
            rows |= {"label_error": ((mean > 0.5) != (targets > 0.5)).mean(1), "brier": rows["squared_error"]}
        squared = ((targets - averages(means, w)) ** 2).mean(2).sum(1)
        return Reduced(rows=rows, curves={"rmse": squared, "nll": -running.sum(1)})
