"""The steps of a pack of chains of a density, which may be compiled, several into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from raychains.chain.compiler import compiled
from raychains.chain.draw_capture import Block
from raychains.chain.joint_update import JointUpdate
from raychains.chain.pack_row import AHEAD, PackedParameters, Row
from raychains.core import gpus
from raychains.tasks.base import LogDensity

COMPILED = 8
"""Steps of a density that one call of a compiled function makes: 8 take about 14 s to compile, and 16 some twice as
long."""


class PackedDensity:
    """Makes steps of all rows, and records the positions after each."""

    def __init__(self, task: LogDensity, parameters: PackedParameters, update: JointUpdate, *, compiles: bool) -> None:
        self._task, self._parameters, self._update, self._compiles = task, parameters, update, compiles
        self._compiled: Callable[..., Any] | None = None
        self._path = parameters.theta.new_zeros(AHEAD, *parameters.theta.shape)
        """Positions after each of the prepared steps."""

    def step(self, number: int, steps: int, rows: Sequence[Row]) -> int:
        """Make the ``number``-th of the prepared ``steps``; return how many were made, several where they are
        compiled."""
        if self._compiles and steps - number >= COMPILED:
            self._compiled_steps(number, rows)
            return COMPILED
        self._fill_gradients(self._parameters.parameters, self._parameters.gradients)
        self._update.move(number, rows)
        self._path[number] = self._parameters.theta
        return 1

    def keep(self, row: Row, made: int) -> None:
        """Give a chain its draws of the last ``made`` steps except the last one, which it keeps itself."""
        kept = [i for i in range(made - 1) if row.ahead[row.made - made + i].keep]
        if kept:
            (shape,) = self._parameters.shapes.values()
            places = gpus.sent(torch.tensor(kept), self._path.device)
            assert isinstance(row.chain.draws, Block)
            row.chain.draws.extend(self._path[places, row.index, : self._parameters.size].unflatten(1, shape))

    def _fill_gradients(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
        (points,), (filled,) = parameters.values(), gradients.values()
        filled.copy_(self._task.packed_gradient(points.flatten(0, 1)).view(points.shape))

    def _compiled_steps(self, number: int, rows: Sequence[Row]) -> None:
        """Make `COMPILED` of the prepared steps, from the ``number``-th on, by one call."""
        tensors = (*self._update.columns(number, rows, COMPILED), self._path[number : number + COMPILED])
        theta, grads, views = self._parameters.theta, self._parameters.grads, self._parameters.views
        moved = (theta, grads, *self._update.states)

        def several(noise: Tensor, numbers: Tensor, path: Tensor, *moved: Tensor) -> None:
            for i in range(COMPILED):
                self._fill_gradients(views(theta), views(grads))  # made here: others would be constants of the trace
                self._update.apply(noise[i], numbers[i])
                path[i] = theta

        if self._compiled is None:
            before = [t.clone() for t in moved]
            self._compiled = compiled(several, *tensors, *moved)
            for t, old in zip(moved, before, strict=True):
                t.copy_(old)
        self._compiled(*tensors, *moved)
