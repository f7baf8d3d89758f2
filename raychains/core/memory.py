"""Overlaps of tensors in memory: a number that two parameters hold would have its prior and its noise twice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy


class _Range(NamedTuple):
    """A tensor's bytes on its device, from the first to the last."""

    device: str
    start: int
    end: int
    name: str
    tensor: Tensor


def overlapping(named: Iterable[tuple[str, Tensor]]) -> tuple[str, str] | None:
    """Return the names of two tensors that share a number in memory, or None.

    A tensor that holds a number twice, as an expanded one does, overlaps with itself: its name is returned twice. Views
    of one buffer that share no number pass. So do tensors without memory of their own: empty, meta, fake, sparse and
    lazy ones.
    """
    ranges = []
    for name, tensor in named:
        start = _address(tensor)
        if not start:
            continue
        if _repeats(tensor):
            return name, name
        ranges.append(_Range(str(tensor.device), start, start + _length(tensor) * tensor.element_size(), name, tensor))
    groups: list[list[_Range]] = []  # of ranges that reach into each other
    end = 0
    for one in sorted(ranges, key=lambda r: r[:3]):
        if not groups or one.device != groups[-1][0].device or one.start >= end:
            groups.append([])
            end = 0
        groups[-1].append(one)
        end = max(end, one.end)
    return next(filter(None, (_pair(group) for group in groups if len(group) > 1)), None)


def _address(tensor: Tensor) -> int:
    """Return where the tensor's first number is stored; 0 without memory of its own."""
    if is_lazy(tensor) or tensor.layout is not torch.strided or not tensor.numel():
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:  # of fake tensors and the like
        return 0


def _length(tensor: Tensor) -> int:
    """Return the number of places from the tensor's first number to its last."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _repeats(tensor: Tensor) -> bool:
    """Return whether two indices of the tensor are one number in memory."""
    reach = 0
    for step, n in sorted((step, n) for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n > 1):
        if step <= reach:
            places = torch.arange(_length(tensor)).as_strided(tensor.shape, tensor.stride())
            return step == 0 or places.unique().numel() < tensor.numel()
        reach += (n - 1) * step
    return False


def _pair(group: list[_Range]) -> tuple[str, str] | None:
    """Return the names of two that share a number, among ranges that reach into each other: it marks every number."""
    first = group[0].start
    unit = math.gcd(*(r.start - first for r in group), *(r.tensor.element_size() for r in group))
    owners = torch.full(((max(r.end for r in group) - first) // unit,), -1, dtype=torch.int32)
    for number, one in enumerate(group):
        units = one.tensor.element_size() // unit
        own = owners.as_strided(
            (*one.tensor.shape, units), (*(s * units for s in one.tensor.stride()), 1), (one.start - first) // unit
        )
        if (taken := own[own >= 0]).numel():
            return group[int(taken[0])].name, one.name
        own.fill_(number)
    return None
