"""The noise of a pack: each row draws from its own chain's stream, as that chain alone does; on a CPU, steps ahead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from raychains.chain.pack_row import AHEAD, Row

NOISE_AHEAD = 8192
"""Numbers of noise at most that each chain makes ready together, if a step takes fewer: larger buffers leave the
cache."""


class PreparedNoise:
    """A source of noise that has been drawn before."""

    def __init__(self, noise: Iterable[Tensor] = ()) -> None:
        self.left = iter(noise)
        """Draws that the step has not used yet."""

    def like(self, p: Tensor) -> Tensor:
        """Return the step's next noise, [rows, numbers]."""
        return next(self.left)

    def all_like(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return `like` of each tensor."""
        return [self.like(t) for t in tensors]


class RowNoise:
    """The noise of packs of microcanonical samplers (`isokinetic_pack`): a source for all rows at once, ``ahead`` times
    of it made together."""

    def __init__(self, like: Tensor, ahead: int) -> None:
        self.moving: list[Row] = []
        ahead = ahead if like.is_cpu else 1
        self._made = like.new_zeros(ahead, *like.shape)
        self._used = ahead

    def like(self, t: Tensor) -> Tensor:
        """Return noise [rows, d], to be read; 0 in rows that do not move."""
        if self._used == len(self._made):
            for row in self.moving:
                row.chain.sampler._noise.fill(self._made[:, row.index])
            self._used = 0
        self._used += 1
        return self._made[self._used - 1]

    def rewind(self) -> None:
        """Put the streams where the noise in use has left them; the rest is made again."""
        unused, self._used = len(self._made) - self._used, len(self._made)
        for row in self.moving if self._made.is_cpu else ():
            row.chain.sampler._noise.sequence(self._made.dtype).position -= unused * self._made.shape[2]

    def move(self, rows: Sequence[Row]) -> None:
        """Draw for these rows from now on."""
        self.moving = list(rows)
        self._made.zero_()

    def seeds(self, rows: int) -> list[int]:
        """Return the seed of each row's stream; 0 of rows that do not move."""
        found = {row.index: row.chain.sampler._noise.seed for row in self.moving}
        return [found.get(index, 0) for index in range(rows)]


class StepNoise:
    """The noise of all other packs (`joint_update`): of steps that are prepared together.

    Args:
        theta: the pack's parameters, [rows, at least ``size``].
        size: numbers of one chain.
        noises: noises of one step, each of that size.
        at_once: steps whose noise is needed together.
    """

    def __init__(self, theta: Tensor, size: int, noises: int, at_once: int) -> None:
        # A GPU's generator cannot go back: it draws for the very steps that are made.
        ahead = NOISE_AHEAD // (theta.shape[1] * max(1, noises)) if theta.is_cpu else 1
        self._steps = max(1, max(1, min(AHEAD, ahead)) // at_once) * at_once
        self._buffer, self._size = theta.new_zeros(self._steps, noises, *theta.shape), size

    def prepare(self, rows: Sequence[Row]) -> None:
        """Note where the rows' streams are before the prepared steps."""
        for row in rows if self._buffer.is_cpu else ():
            row.noise_from = self._sequence(row).position

    def leave(self, row: Row) -> None:
        """Forget a row's noise."""
        self._buffer[:, :, row.index] = 0

    def of(self, number: int, rows: Sequence[Row], steps: int, prepared: int) -> Tensor:
        """Return the noise, [steps, noises, rows, numbers], of the ``number``-th of the ``prepared`` steps and those
        after it."""
        if not self._buffer.is_cpu:
            self._fill(steps, rows)
            return self._buffer[:steps]
        if number % self._steps == 0:
            self._fill(min(self._steps, prepared - number), rows)
        return self._buffer[number % self._steps :][:steps]

    def rewind(self, row: Row, made: int) -> None:
        """Set a row's stream to where the last ``made`` steps have left it; noise prepared beyond is drawn again."""
        if self._buffer.is_cpu:  # a GPU draws what it needs
            noisy = int((row.numbers[row.made - made : row.made, 0] > 0).sum())
            self._sequence(row).position = row.noise_from + noisy * self._buffer.shape[1] * self._size

    def _sequence(self, row: Row) -> Any:
        return row.chain.sampler._noise.sequence(self._buffer.dtype)

    def _fill(self, steps: int, rows: Sequence[Row]) -> None:
        """Draw the noise of the next steps, at most as many as the buffer holds."""
        for row in rows:
            noisy = np.flatnonzero(row.numbers[row.made : row.made + steps, 0] > 0)
            if not self._buffer.is_cpu:
                for step in noisy:
                    row.chain.sampler._noise.fill(self._buffer[step, :, row.index, : self._size])
            elif len(noisy):
                buffer = self._buffer.numpy()
                drawn = np.empty((len(noisy), buffer.shape[1], self._size), dtype=buffer.dtype)
                self._sequence(row).fill([drawn.reshape(-1)])
                buffer[noisy, :, row.index, : self._size] = drawn
