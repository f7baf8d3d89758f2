"""Arithmetic of updates: each takes lists of tensors and a number, which in a pack is a column [rows, 1] for tensors
[rows, …]."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = tuple[Tensor, ...] | list[Tensor]
Number: TypeAlias = float | Tensor
"""A coefficient of an update: one number, or in a pack a column [rows, 1]."""


def scale_(tensors: list[Tensor], factor: Number) -> None:
    """Multiply tensors in place."""
    if isinstance(factor, Tensor):
        for t in tensors:
            t.mul_(factor)
    else:
        torch._foreach_mul_(tensors, factor)


def divide_(tensors: list[Tensor], divisor: Number) -> None:
    """Divide tensors in place."""
    if isinstance(divisor, Tensor):
        for t in tensors:
            t.div_(divisor)
    else:
        torch._foreach_div_(tensors, divisor)


def scaled(tensors: list[Tensor], factor: Number) -> list[Tensor]:
    """Return tensors times ``factor``."""
    if isinstance(factor, Tensor):
        return [t * factor for t in tensors]
    return list(torch._foreach_mul(tensors, factor))


def plus(tensors: list[Tensor], others: list[Tensor], factor: Number) -> list[Tensor]:
    """Return tensors plus ``factor`` times others."""
    if isinstance(factor, Tensor):
        return [torch.addcmul(t, other, factor) for t, other in zip(tensors, others, strict=True)]
    return list(torch._foreach_add(tensors, others, alpha=factor))


def add_(tensors: list[Tensor], others: list[Tensor], factor: Number) -> None:
    """Add ``factor`` times others to tensors in place."""
    if isinstance(factor, Tensor):
        for t, other in zip(tensors, others, strict=True):
            t.addcmul_(other, factor)
    else:
        torch._foreach_add_(tensors, others, alpha=factor)


def addcmul_(tensors: list[Tensor], left: Tensors, right: Tensors, factor: Number) -> None:
    """Add ``factor`` times products to tensors in place."""
    if isinstance(factor, Tensor):
        for t, x, y in zip(tensors, left, right, strict=True):
            t.addcmul_(x * factor, y)
    else:
        torch._foreach_addcmul_(tensors, left, right, value=factor)


def addcdiv_(tensors: list[Tensor], above: list[Tensor], below: list[Tensor], factor: Number) -> None:
    """Add ``factor`` times quotients to tensors in place."""
    if isinstance(factor, Tensor):
        for t, x, y in zip(tensors, above, below, strict=True):
            t.addcdiv_(x * factor, y)
    else:
        torch._foreach_addcdiv_(tensors, above, below, value=factor)


def lerp_(tensors: list[Tensor], others: list[Tensor], share: Number) -> None:
    """Move tensors in place by ``share`` of their way to others."""
    if isinstance(share, Tensor):
        for t, other in zip(tensors, others, strict=True):
            t.lerp_(other, share)
    else:
        torch._foreach_lerp_(tensors, others, share)


def positive_number(number: Number) -> bool:
    """Return whether a number is above 0; in a pack some may be."""
    return isinstance(number, Tensor) or number > 0
