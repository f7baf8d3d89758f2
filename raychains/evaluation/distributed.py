"""Posterior predictive of a likelihood that is a torch distribution: counts, several labels, heavy tails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from raychains.core import gpus
from raychains.evaluation.evaluation import Array, Metric, Reduced, normalised
from raychains.evaluation.regression import Inputs, Measured, averages, mixed, mixture_moments, outputs


class Distributed(Measured):
    """A split whose targets have a torch distribution p(y | f_θ(x)), one sample of θ at a time.

    The predictive of S samples is the mixture (1/S) Σ_s p(y | f_s(x)), or one with weights: its log density is exact,
    its mean and standard deviation are those of the samples' means and variances.

    The block of a sample is [examples, 1 + 2·m]: log p of all targets of an example together, and means and variances
    of the m numbers that are observed, which are mostly the targets themselves.

    Args:
        model: network; overwritten by each sample.
        inputs: [examples, …].
        targets: [examples, targets].
        observed: what the distribution's mean and variance are those of, [examples, m]; NaN where it is not there.
        distribution: from outputs [n, width] to the distribution with the batch [n] and the event [targets].
        labels: what is observed is 0 or 1: errors are counted, too.
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
        observed: Tensor,
        distribution: Callable[[Tensor], Distribution],
        labels: bool,
        fingerprint: str,
    ) -> None:
        super().__init__(model=model, inputs=inputs, targets=targets, fingerprint=fingerprint)
        self._distribution, self._labels, self._observed = distribution, labels, observed.numpy()
        self.width = 1 + 2 * observed.shape[1]
        self._per_example = np.isfinite(self._observed).sum() / max(1, len(targets))
        """Numbers that are observed of an example, on average."""
        self._measure_by(self.of_labels if labels else self.numbers)

    def predict(self, tensors: Mapping[str, Any], shard: int) -> Array:
        """Return log p, means and variances, [examples of the shard, 1 + 2·m], float64."""
        at = self.range_of(shard)
        out = outputs(self._model, tensors, self._inputs(shard))
        with torch.no_grad():
            found = self._distribution(out.double().reshape(len(out), -1))
            log_p = found.log_prob(self.targets[at].to(self._device))
            return gpus.array(torch.cat([log_p[:, None], found.mean, found.variance], dim=1))

    def reduce(self, blocks: Sequence[Array], shard: int, weights: Sequence[float] | None = None) -> Reduced:
        """Return rows of the mixture: ``target``, what is observed, ``mean`` and ``std`` ([n], or [n, m]), and
        ``log_p``.

        ``squared_error``, and of labels ``label_error``, wrong ones at ½, and ``brier``, are sums over what is observed
        of an example, divided by how many that are on average: their means are those over all that is observed.
        """
        observed = self._observed[self.range_of(shard)]
        stacked, w = np.stack(blocks), normalised(weights, len(blocks))
        k = observed.shape[1]
        means, variances = stacked[..., 1 : 1 + k], stacked[..., 1 + k :]
        running = mixed(stacked[..., 0], w)
        mean, std = mixture_moments(means, variances, w)
        each = {"target": observed, "mean": mean, "std": std}
        rows = {
            **{name: values[:, 0] if k == 1 else values for name, values in each.items()},
            "squared_error": self._share((observed - mean) ** 2, observed),
            "log_p": running[-1],
        }
        first = averages(means, w)  # of the first 1, 2, … samples
        if self._labels:
            rows |= {"label_error": self._share(_wrong(mean, observed), observed), "brier": rows["squared_error"]}
            curve = {"label_error": self._share(_wrong(first, observed), observed).sum(1)}
        else:
            curve = {"rmse": self._share((observed - first) ** 2, observed).sum(1)}
        return Reduced(rows=rows, curves={**curve, "nll": -running.sum(1)})

    def _share(self, values: Array, observed: Array) -> Array:
        """Return an example's part of the mean over all that is observed, times the examples: [..., n] of
        [..., n, m]."""
        with np.errstate(invalid="ignore"):  # nothing is observed
            return np.asarray(np.where(np.isnan(observed), 0.0, values).sum(-1) / self._per_example)


def _wrong(mean: Array, labels: Array) -> Array:
    """Return whether labels differ from those that are more probable, as 0 or 1; nan where the predictive is."""
    return np.where(np.isnan(mean), np.nan, (mean > 0.5) != (labels > 0.5))
