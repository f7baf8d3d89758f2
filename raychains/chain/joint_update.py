"""One update for all rows of a pack, with each row's coefficients and noise as columns that are prepared ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.chain.isokinetic_pack import NOISE_AHEAD, Drawn
from raychains.chain.pack_row import AHEAD, Member, PackedParameters, Row
from raychains.core import gpus
from raychains.samplers import Sampler


class JointUpdate:
    """A sampler's update (`Sampler.apply`) of all rows at once.

    Args:
        joint: the sampler, of one parameter with a lane for each row.
        chain: one of the pack's kind.
        at_once: steps whose noise is needed together.
    """

    def __init__(self, joint: Sampler, chain: Member, parameters: PackedParameters, at_once: int) -> None:
        self._joint, self._parameters = joint, parameters
        theta, own = parameters.theta, chain.sampler.param_groups[0]
        self._noise = Drawn()
        joint._noise = self._noise  # type: ignore[assignment]  # the joint sampler takes prepared noise from it instead of drawing
        self._states: dict[str, tuple[Tensor, float | None]] = {
            name: (joint.state_of(theta, name), fill) for name, fill in chain.sampler.states(own).items()
        }
        """The sampler's states, as the parameters, and what each begins with: None is a copy of these."""
        self._numbers = np.zeros((AHEAD, len(chain.sampler.coefficients(own)), len(theta), 1))
        # A GPU's generator cannot go back: it draws for the very steps that are made.
        noises = chain.sampler.noises
        ahead = NOISE_AHEAD // (theta.shape[1] * max(1, noises)) if theta.is_cpu else 1
        self._noise_steps = max(1, max(1, min(AHEAD, ahead)) // at_once) * at_once
        self._noise_buffer = theta.new_zeros(self._noise_steps, noises, *theta.shape)

    @property
    def states(self) -> list[Tensor]:
        """The sampler's states of all rows."""
        return [whole for whole, _ in self._states.values()]

    def join(self, row: Row) -> None:
        """Make a chain's sampler's states views of its row."""
        state = row.chain.sampler.state
        for name, (whole, fill) in self._states.items():
            whole[row.index] = self._parameters.theta[row.index] if fill is None else fill
            for p, view in zip(row.chain.sampled.values(), self._parameters.views(whole).values(), strict=True):
                if (own := state[p].get(name)) is not None:
                    view[row.index] = own
                state[p][name] = view[row.index]

    def leave(self, row: Row) -> None:
        """Give a chain's sampler states of its own again."""
        for name, (whole, _) in self._states.items():
            for p in row.chain.sampled.values():
                row.chain.sampler.state[p][name] = row.chain.sampler.state[p][name].clone()
            whole[row.index] = 0
        self._noise_buffer[:, :, row.index] = 0
        self._numbers[:, :, row.index] = 0

    def prepare(self, rows: Sequence[Row], steps: int) -> None:
        """Make the coming steps' coefficients ready."""
        theta = self._parameters.theta
        for row in rows:
            self._numbers[:steps, :, row.index, 0] = row.numbers[row.made : row.made + steps]
            if theta.is_cpu:
                row.noise_from = self._sequence(row).position
        self._step_numbers = gpus.sent(torch.from_numpy(self._numbers[:steps]).to(theta.dtype), theta.device)

    def move(self, number: int, rows: Sequence[Row]) -> None:
        """Move all rows by the ``number``-th of the prepared steps."""
        self.apply(self._noise_of(number, rows, 1)[0], self._step_numbers[number])

    def columns(self, number: int, rows: Sequence[Row], steps: int) -> tuple[Tensor, Tensor]:
        """Return the noise, [steps, noises, rows, numbers], and the coefficients of the ``number``-th of the prepared
        steps and those after it."""
        return self._noise_of(number, rows, steps), self._step_numbers[number : number + steps]

    def apply(self, noise: Tensor, numbers: Tensor) -> None:
        """Move all rows by one step's noise [noises, rows, numbers], coefficients [coefficients, rows, 1] and their
        gradients."""
        self._noise.left = iter(noise.unbind(0))
        theta, grads = self._parameters.theta, self._parameters.grads
        self._joint.apply(self._joint.param_groups[0], numbers.unbind(0), [theta], [grads])

    # Noise

    def _sequence(self, row: Row) -> Any:
        return row.chain.sampler._noise.sequence(self._parameters.theta.dtype)

    def _noise_of(self, number: int, rows: Sequence[Row], steps: int) -> Tensor:
        if not self._noise_buffer.is_cpu:
            self._fill_noise(steps, rows)
            return self._noise_buffer[:steps]
        if number % self._noise_steps == 0:
            self._fill_noise(min(self._noise_steps, len(self._step_numbers) - number), rows)
        return self._noise_buffer[number % self._noise_steps :][:steps]

    def _fill_noise(self, steps: int, rows: Sequence[Row]) -> None:
        """Draw the noise of the next steps, at most as many as the buffer holds, from each row's own stream."""
        size = self._parameters.size
        for row in rows:
            noisy = np.flatnonzero(row.numbers[row.made : row.made + steps, 0] > 0)
            if not self._noise_buffer.is_cpu:
                for step in noisy:
                    row.chain.sampler._noise.fill(self._noise_buffer[step, :, row.index, :size])
            elif len(noisy):
                buffer = self._noise_buffer.numpy()
                drawn = np.empty((len(noisy), buffer.shape[1], size), dtype=buffer.dtype)
                self._sequence(row).fill([drawn.reshape(-1)])
                buffer[noisy, :, row.index, :size] = drawn

    def rewind(self, row: Row, made: int) -> None:
        """Set a row's stream to where the last ``made`` steps have left it; noise prepared beyond is drawn again."""
        if self._noise_buffer.is_cpu:  # a GPU draws what it needs
            noisy = int((row.numbers[row.made - made : row.made, 0] > 0).sum())
            self._sequence(row).position = row.noise_from + noisy * self._noise_buffer.shape[1] * self._parameters.size
