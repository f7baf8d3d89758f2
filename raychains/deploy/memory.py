"""How much a network's forward pass computes, and how much of that may be done at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CACHE = 4 << 20
"""Bytes of activations on a CPU that vmap takes on at once: with more, samples one by one are faster (measured)."""
SHARE = 0.5
"""Share of a GPU's free memory."""
ELSEWHERE = 256 << 20
"""Bytes on other devices, which do not tell what is free."""


def budget(device: torch.device) -> float:
    """Bytes of activations that samples may take together."""
    if device.type == "cpu":
        return CACHE
    if device.type != "cuda":
        return ELSEWHERE
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return SHARE * (free + cached)


class Counted(TorchFunctionMode):
    """Sums the bytes of the tensors that torch's functions make meanwhile, views left out: no less than lives at once.

    A dispatch mode would see more, and import torch's compiler: ten seconds before the first prediction (measured).
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        made = list(_tensors(out))
        if made:
            given = {t.untyped_storage().data_ptr() for t in _tensors([*args, *kwargs.values()])}
            fresh = [t for t in made if t.untyped_storage().data_ptr() not in given]
            self.bytes += sum(t.numel() * t.element_size() for t in fresh)
        return out


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
