"""Operators that torch dispatches, with their floating-point operations and the bytes that they read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NO_KERNEL = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
"""Operators that a GPU has no part in, beside views."""


def launches(func: Any) -> bool:
    """Return whether an operator is at least one kernel on a GPU: neither a view nor an allocation, nor without tensors."""
    arguments, returns = func._schema.arguments, func._schema.returns
    if func.overloadpacket.__name__ in NO_KERNEL or not any("Tensor" in str(x.type) for x in (*arguments, *returns)):
        return False
    return writes(func) or any(r.alias_info is None for r in returns) or not returns


def writes(func: Any) -> bool:
    """Return whether an operator writes into one of its arguments."""
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


def flops_of(name: str, args: Any, found: Any) -> float:
    """Return the floating-point operations of a product or a convolution, and 0 of any other operator.

    The counts are those of `torch.utils.flop_counter`, which takes a second and Triton to load.
    """
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        left = args[-2]
        return 2.0 * found.numel() * left.shape[-1]
    if name == "convolution":
        weight = args[1]
        return _convolution(found.shape, weight, transposed=args[6], inputs=args[0].shape)
    if name == "convolution_backward":
        outputs, inputs, weight = args[:3]
        once = _convolution(outputs.shape, weight, transposed=args[7], inputs=inputs.shape)
        return once * sum(args[-1][:2])  # of the inputs, of the weight
    return 0.0


def _convolution(outputs: torch.Size, weight: Tensor, *, transposed: bool, inputs: torch.Size) -> float:
    places = inputs if transposed else outputs
    return 2.0 * places[0] * math.prod(places[2:]) * weight.numel()


@dataclass(frozen=True)
class Operator:
    """One call of an operator that `launches`."""

    name: str
    dtype: torch.dtype
    """Its first tensor's."""
    flops: float
    """Floating-point operations of products and convolutions, a multiplication and an addition as two; 0 of all others, whose
    time is that of their bytes."""
    bytes: float
    """Size of all tensors that it was given and that it returned, each once."""


class Operators(TorchDispatchMode):
    """Notes in `called` every operator that is dispatched in the body of a ``with`` statement."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Operator] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch loads its compiler, and that Triton, which complains at the process's end

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        tensors = {id(t): t for t in tree_leaves((args, kwargs, found)) if isinstance(t, Tensor)}
        if launches(func):
            flops = flops_of(func.overloadpacket.__name__, args, found)
            first = next((t for t in tensors.values() if t.is_floating_point()), next(iter(tensors.values())))
            size = sum(t.numel() * t.element_size() for t in tensors.values())
            self.called.append(Operator(func.overloadpacket.__name__, first.dtype, flops, size))
        return found
