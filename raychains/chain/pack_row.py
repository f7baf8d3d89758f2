"""The rows of a pack: their chains as a pack sees them, and the tensors that hold all chains' parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from raychains.chain.draw_capture import Block, Network
from raychains.chain.losses import Losses
from raychains.chain.random_streams import RandomStreams
from raychains.core.spec import ChainSpec
from raychains.models import stacked
from raychains.models.stacked import VECTOR
from raychains.samplers import Sampler
from raychains.schedules import Schedule, ScheduleValues
from raychains.tasks import Task

Stop = Callable[[], bool]
AHEAD = 64
"""Steps at most whose batches and numbers are prepared together."""


class Member(Protocol):
    """The chain as a pack sees it."""

    spec: ChainSpec
    task: Task
    device: torch.device
    model: nn.Module
    sampled: dict[str, nn.Parameter]
    sampler: Sampler
    schedule: Schedule
    step: int
    num_data: int
    streams: RandomStreams
    losses: Losses
    draws: Block | Network

    @property
    def done(self) -> bool:
        """True if every step has been made."""

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context around steps, in which torch's process-wide switches are as the spec says."""

    def order(self, epoch: int) -> Sequence[Any]:
        """Return an epoch's batches."""

    def logs(self, step: int) -> bool:
        """Return whether there is a progress record after ``step`` steps."""

    def measures(self, step: int) -> bool:
        """Return whether the loss on held-out examples is measured after ``step`` steps."""

    def apply(self, setting: ScheduleValues) -> None:
        """Give the sampler a step's learning rate and temperature."""

    def moved(self, steps: int, setting: ScheduleValues) -> list[Any]:
        """Note steps that were made, the last of them under ``setting``; return the events."""

    def measure_last_layer(self) -> Tensor | None:
        """Measure the last layer on the next step's batch and return its loss, if the sampler's settings are such; else
        None."""


@dataclass(eq=False)
class Row:
    """A member and its place."""

    chain: Member
    index: int
    kind: str
    """Equal for rows whose settings at a step are equal."""
    dropout: torch.Generator
    stop: Stop | None = None
    """Set while `Pack.advance` is asked for this row."""
    result: list[Any] | Exception | None = None
    held: list[Any] = field(default_factory=list)
    """Progress that waits for a sample, a stop or `HELD`: to wake a thread for each would cost more than a small
    step."""
    since: float = 0.0
    """When `Pack.advance` was asked."""
    at: int = -1
    """The step before the first of `ahead`."""
    ahead: list[ScheduleValues] = field(default_factory=list)
    """The coming steps' settings, to the next step that may have an event."""
    numbers: Any = None
    """Their coefficients, [steps, coefficients]."""
    noise_from: int = 0
    """Position of its noise where the steps began that are prepared now."""

    @property
    def made(self) -> int:
        """How many of the steps of `ahead` the chain has made."""
        return self.chain.step - self.at

    @property
    def next_setting(self) -> ScheduleValues:
        """The settings of the chain's next step."""
        return self.ahead[self.made]

    def deliver(self) -> None:
        """Return the held events from `Pack.advance`."""
        self.result, self.held = self.held, []


class PackedParameters:
    """The parameters of all rows, and their gradients: [rows, numbers] each.

    Behind the last row is one more that no chain has, and a row is of whole vectors, so that every row has the same
    bits in any place; compiled chains do without.
    """

    def __init__(self, sampled: Mapping[str, nn.Parameter], width: int, *, compiles: bool) -> None:
        like = next(iter(sampled.values()))
        self.shapes = {name: p.shape for name, p in sampled.items()}
        self.size = sum(p.numel() for p in sampled.values())
        """Numbers of one chain."""
        rows, padded = (width, self.size) if compiles else (width + 1, -(-self.size // VECTOR) * VECTOR)
        self.theta, self.grads = (torch.zeros(rows, padded, dtype=like.dtype, device=like.device) for _ in range(2))
        self.parameters, self.gradients = self.views(self.theta), self.views(self.grads)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return parameters as [rows, …], without a copy, of a buffer [rows, numbers]."""
        return stacked.views(flat, self.shapes)

    def join(self, row: Row) -> None:
        """Make a chain's parameters and gradients views of its row."""
        for name, p in row.chain.sampled.items():
            self.parameters[name][row.index] = p.detach()
            p.data = self.parameters[name][row.index]
            p.grad = self.gradients[name][row.index]

    def leave(self, row: Row) -> None:
        """Give a chain parameters of its own again."""
        for p in row.chain.sampled.values():
            p.grad = None
            p.data = p.data.clone()
        self.theta[row.index] = 0
