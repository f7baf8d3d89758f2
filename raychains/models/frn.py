"""Filter response normalisation and its thresholded linear unit: BatchNorm + ReLU without a dependence on the batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raychains.core.errors import require

EPS = 1e-6
"""ε."""


class FRN(nn.Module):
    """Filter response normalisation of [n, channels, h, w]: y = γ·x/√(ν² + ε) + β, ν² = mean of x² over h and w.

    ν² belongs to one example and one channel, so nothing depends on the batch, and a sample needs no running
    statistics. Parameters: ``weight`` γ [channels], starts at 1; ``bias`` β [channels], starts at 0.

    Source: Singh & Krishnan 2019, Eqs. 1–3; they learn ε only where h = w = 1.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        response = x.square().mean(dim=(2, 3), keepdim=True)
        return x * torch.rsqrt(response + EPS) * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class TLU(nn.Module):
    """Thresholded linear unit of [n, channels, h, w]: max(y, τ).

    FRN does not centre its output, so ReLU's threshold is learned: ``threshold`` τ [channels] starts at 0, i.e. as
    ReLU.

    Source: Singh & Krishnan 2019, Eq. 4.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, self.threshold.view(-1, 1, 1))


def norm_of(norm: str, channels: int) -> nn.Module:
    """The normalisation that ``norm`` (``batch`` or ``frn``) names."""
    require(norm in ("batch", "frn"), "norm", norm, "be 'batch' or 'frn'")
    return nn.BatchNorm2d(channels) if norm == "batch" else FRN(channels)


def activation_of(norm: str, channels: int) -> nn.Module:
    """The activation that goes with ``norm``: ReLU after BatchNorm, TLU after FRN."""
    return nn.ReLU() if norm == "batch" else TLU(channels)
