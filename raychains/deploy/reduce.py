"""What an ensemble says of its inputs, from its samples' outputs: averages, and how uncertainty splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Classified(NamedTuple):
    """A classifier's posterior predictive; at least float32. Entropies are in nats."""

    probabilities: Tensor
    """p̄ = Σ_s w_s p(y | x, θ_s), [n, …, classes]."""
    entropy: Tensor
    """H[p̄], the whole uncertainty, [n, …]."""
    expected_entropy: Tensor
    """Σ_s w_s H[p(y | x, θ_s)], what stays if θ were known (aleatoric), [n, …]."""
    mutual_information: Tensor
    """I[y; θ] = entropy − expected_entropy ≥ 0, what the samples disagree about (epistemic), [n, …]."""


def classify(outputs: Iterable[tuple[Tensor, Tensor]]) -> Classified:
    """From chunks of (weights [k], logits [k, n, …, classes]) whose weights add up to 1.

    Source: Depeweg et al. 2018, Eqs. 5–6, for the split.
    """
    mean: Tensor | float = 0.0
    expected: Tensor | float = 0.0
    for weights, logits in outputs:
        p = torch.softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
        w = weights.to(p.dtype).view(-1, *[1] * (p.ndim - 1))
        mean = mean + (w * p).sum(0)  # no matrix product: autocast would take it in half precision
        expected = expected + (w[..., 0] * torch.special.entr(p).sum(-1)).sum(0)
    assert isinstance(mean, Tensor) and isinstance(expected, Tensor)
    entropy = torch.special.entr(mean).sum(-1)
    return Classified(mean, entropy, expected, (entropy - expected).clamp_min(0))  # rounding may fall below 0


class Regressed(NamedTuple):
    """A regression's posterior predictive, a mixture of Gaussians by its first two moments; at least float32."""

    mean: Tensor
    """Σ_s w_s μ_s(x), [n, outputs]."""
    variance: Tensor
    """Of the mixture: aleatoric + epistemic, [n, outputs], in the square of the target's unit."""
    aleatoric: Tensor
    """Σ_s w_s σ_s²(x), the noise's variance, [n, outputs]."""
    epistemic: Tensor
    """Σ_s w_s (μ_s(x) − mean)², the variance of the means over the samples, [n, outputs]."""


def regress(outputs: Iterable[tuple[Tensor, Tensor]], noise: Tensor) -> Regressed:
    """From chunks of (weights [k], means μ_s [k, n] or [k, n, outputs]) and the noise's average variance Σ_s w_s σ_s²."""
    shift: Tensor | None = None
    first: Tensor | float = 0.0
    second: Tensor | float = 0.0
    for weights, given in outputs:
        means = given.to(torch.promote_types(given.dtype, torch.float32)).flatten(2)
        means = means.unsqueeze(-1) if means.ndim == 2 else means
        shift = means[0] if shift is None else shift  # squares of small differences: large means would cancel
        w = weights.to(means.dtype).view(-1, 1, 1)
        first = first + (w * (means - shift)).sum(0)
        second = second + (w * (means - shift).square()).sum(0)
    assert isinstance(shift, Tensor) and isinstance(first, Tensor) and isinstance(second, Tensor)
    epistemic = (second - first.square()).clamp_min(0)
    aleatoric = noise.to(epistemic.dtype).expand_as(epistemic)
    return Regressed(shift + first, aleatoric + epistemic, aleatoric, epistemic)
