"""Global random streams: torch's, which dropout draws from, and Python's and NumPy's, which a user's network may draw
from."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.core import gpus

GLOBALS = threading.RLock()
"""Held by who uses the process's global generators, or changes other state of torch's, where other threads do so
too."""


def streams(device: torch.device) -> list[Tensor]:
    """Return the states of torch's generators that dropout on ``device`` draws from: the CPU's, and the GPU's own."""
    states = [torch.get_rng_state()]
    return [*states, gpus.rng_state(device)] if gpus.is_gpu(device) else states


def set_streams(device: torch.device, states: list[Tensor]) -> None:
    """Set the generators to what `streams` returned."""
    torch.set_rng_state(states[0])
    if gpus.is_gpu(device):
        gpus.set_rng_state(device, states[1])


def streams_at(device: torch.device, seed: int) -> list[Tensor]:
    """Return the states of `streams` after both generators were seeded with ``seed``."""
    devices = [torch.device("cpu"), *([device] if gpus.is_gpu(device) else [])]
    return [torch.Generator(each).manual_seed(seed).get_state() for each in devices]


def seed_globals(seed: int, number: int = 0) -> None:
    """Start Python's and NumPy's global generators at stream ``number`` of ``seed``: a few microseconds.

    Seeding them for every gradient costs less than reading their states once, and leaves a checkpoint nothing to hold.
    """
    random.seed(seed << 32 | number)
    np.random.seed(random.getrandbits(32))


def globals_state() -> tuple[Any, ...]:
    """Return where Python's and NumPy's global generators are, to be compared."""
    return random.getstate(), repr(np.random.get_state())


@contextmanager
def kept_globals() -> Iterator[None]:
    """Set Python's and NumPy's global generators back to where they were once the body is through."""
    before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Start torch's global generator, which `torch.nn` initialises from, Python's and NumPy's at ``seed`` in the body.

    Other threads that need them wait.
    """
    with GLOBALS:
        before = torch.get_rng_state()
        torch.manual_seed(seed)
        try:
            with kept_globals():
                seed_globals(seed)
                yield
        finally:
            torch.set_rng_state(before)


@contextmanager
def kept_buffers(model: nn.Module) -> Iterator[None]:
    """Set a model's buffers, such as BatchNorm's running statistics, back to what they were once the body is
    through."""
    before = [
        (m._buffers, name, b, b.clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None
    ]
    yield
    with torch.no_grad():
        for buffers, name, b, value in before:
            buffers[name] = b.copy_(value)


class ReplayClosure:
    """A closure that evaluates one (sub-)minibatch as often as asked, each time under the same augmentation and
    dropout.

    BatchNorm's running statistics learn from the first evaluation only. It returns the loss, or what ``objective``
    makes of it under the augmentation that the gradient saw.
    """

    def __init__(
        self,
        model: nn.Module,
        augmentation: torch.Generator,
        gradient: Callable[[], Tensor | None],
        objective: Callable[[Tensor | None], Tensor] | None = None,
    ) -> None:
        self._model, self._augmentation, self._gradient, self._objective = model, augmentation, gradient, objective
        self._before: tuple[Tensor, list[Tensor]] | None = None
        self.loss: Tensor | None = None
        """Loss of the first evaluation."""

    def __call__(self) -> Tensor:
        for p in self._model.parameters():
            p.grad = None
        device = self._augmentation.device
        if self._before is None:
            self._before = (self._augmentation.get_state(), streams(device))
            self.loss = self._gradient()
            return self._value(self.loss)
        self._augmentation.set_state(self._before[0])
        set_streams(device, self._before[1])
        with kept_buffers(self._model):
            loss = self._gradient()
        return self._value(loss)

    def _value(self, loss: Tensor | None) -> Tensor:
        if self._objective is None:
            return loss if loss is not None else torch.zeros(())
        assert self._before is not None
        after = self._augmentation.get_state()
        self._augmentation.set_state(self._before[0])
        try:
            return self._objective(loss)
        finally:
            self._augmentation.set_state(after)
