"""Reductions over the coordinates of one lane: norms and scalar thermostats are per chain, never over the stack."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def lane_sums(tensors: Iterable[Tensor], lanes: int) -> Tensor:
    """Sum over all coordinates of each lane, [lanes]; without lanes the sum of everything, [1]."""
    sums = [t.reshape(lanes, -1).sum(dim=1, dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors]
    return torch.stack([s.to(sums[0].device) for s in sums]).sum(dim=0)


def coordinates(tensors: Iterable[Tensor], lanes: int) -> int:
    """Coordinates of one lane."""
    return sum(t.numel() for t in tensors) // lanes


def spread(values: Tensor, like: Tensor) -> Tensor:
    """``values`` [lanes] (or [1]) shaped to multiply ``like`` [lanes, …], on its device."""
    return (
        values.to(like.device).reshape(-1, *([1] * (like.ndim - 1)))
        if like.ndim
        else values.reshape(()).to(like.device)
    )
