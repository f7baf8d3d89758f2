"""The random streams of a chain: the seed of each, and those that torch's, Python's and NumPy's generators follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from raychains import tasks
from raychains.core import gpus
from raychains.core.errors import UserError
from raychains.core.rng import kept_globals, seed_globals, set_streams, streams, streams_at
from raychains.core.spec import ChainSpec
from raychains.tasks import Task

Purpose = Literal["init", "order", "augmentation", "noise", "dropout", "globals", "held-out"]
"""All random streams of a chain.

- ``init``: the first parameters, which `Task.build_model` draws.
- ``held-out``: the examples that a chain with early stopping holds out (`EarlyStopping`).
- ``order``: batches, which `Task.epoch` draws; the index is the epoch.
- ``augmentation``: `Task.loss` draws from the generator that it is given.
- ``dropout``: torch's global generators.
- ``globals``: Python's and NumPy's, from which a user's network may draw; seeded for each gradient.
- ``noise``: the sampler's `Noise`; the index is that of `Chain.restart_noise`. In a pack, too, each chain's own `Noise`
  gives its row's numbers, in the order of a single chain: `raychains.chain.pack_noise` fetches them
  ahead, and sets the stream back to the steps that were made.

With micro-batches, each has its own augmentation and dropout, whose index is its number (`MicroBatches`).
"""


def stream_seed(spec: ChainSpec, purpose: Purpose, index: int = 0) -> int:
    """Return the seed of one random stream, from (seed, repeat, chain, purpose) and never from the arm.

    Chains that two arms share therefore coincide, and adding a stream moves no other. ``index`` tells streams of
    one purpose apart (the epoch, for the data order).
    """
    text = f"raychains/{spec.seed}/{spec.repeat}/{spec.chain}/{purpose}/{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1  # torch takes 63 bits


class RandomStreams:
    """The streams that torch's, Python's and NumPy's generators follow while one chain steps."""

    def __init__(self, spec: ChainSpec, task: Task, device: torch.device) -> None:
        self._spec, self._device = spec, device
        self.augmentation = torch.Generator(device).manual_seed(stream_seed(spec, "augmentation"))
        self.dropout: list[Tensor] = streams_at(device, stream_seed(spec, "dropout"))
        """States of the streams that dropout draws from: `raychains.core.rng.streams`."""
        # Python's and NumPy's generators, from which a user's network may draw, start anew with each gradient.
        own = tasks.is_own(spec.task) and not task.low_dimensional
        self._globals = stream_seed(spec, "globals") if own else None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Set the global generators to the chain's, and back where the body ends."""
        outside = streams(self._device)
        set_streams(self._device, self.dropout)
        try:
            with nullcontext() if self._globals is None else kept_globals():
                yield
        finally:
            self.dropout = streams(self._device)
            set_streams(self._device, outside)

    def begin_gradient(self, number: int) -> None:
        """Start Python's and NumPy's generators for the chain's ``number``-th gradient, if it is of a user's
        network."""
        if self._globals is not None:
            seed_globals(self._globals, number)

    def set_dropout(self, state: Tensor) -> None:
        """Set the stream of the chain's device to where a pack has left it."""
        self.dropout = [*self.dropout[:-1], state]

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs, as entries of the chain's state."""
        return {"augmentation": self.augmentation.get_state(), "dropout": self.dropout}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse a chain's state of another kind of device.

        Raises:
            UserError: the state is of a GPU and the chain is on a CPU, or the other way round.
        """
        if len(state["dropout"]) != len(streams(self._device)):
            here, there = ("GPU", "CPU") if gpus.is_gpu(self._device) else ("CPU", "GPU")
            raise UserError(
                f"the checkpoint of chain {self._spec.digest[:12]} is of a {there}, whose random streams a {here} "
                f"does not have: resume the chain on a {there}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a chain's state, after `check_state`."""
        self.augmentation.set_state(state["augmentation"].to(torch.uint8))
        self.dropout = [s.to("cpu", torch.uint8) for s in state["dropout"]]
