"""One update for all rows of a pack, with each row's coefficients and noise as columns that are prepared ahead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from raychains.chain.pack_noise import PreparedNoise, StepNoise
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
        self._noise = StepNoise(theta, parameters.size, chain.sampler.noises, at_once)
        self._prepared = PreparedNoise()
        joint._noise = self._prepared  # type: ignore[assignment]  # the joint sampler takes prepared noise from it instead of drawing
        self._states: dict[str, tuple[Tensor, float | None]] = {
            name: (joint.state_of(theta, name), fill) for name, fill in chain.sampler.states(own).items()
        }
        """The sampler's states, as the parameters, and what each begins with: None is a copy of these."""
        self._numbers = np.zeros((AHEAD, len(chain.sampler.coefficients(own)), len(theta), 1))

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
        self._noise.leave(row)
        self._numbers[:, :, row.index] = 0

    def prepare(self, rows: Sequence[Row], steps: int) -> None:
        """Make the coming steps' coefficients ready."""
        theta = self._parameters.theta
        self._noise.prepare(rows)
        for row in rows:
            self._numbers[:steps, :, row.index, 0] = row.numbers[row.made : row.made + steps]
        self._step_numbers = gpus.sent(torch.from_numpy(self._numbers[:steps]).to(theta.dtype), theta.device)

    def move(self, number: int, rows: Sequence[Row]) -> None:
        """Move all rows by the ``number``-th of the prepared steps."""
        noise, numbers = self.columns(number, rows, 1)
        self.apply(noise[0], numbers[0])

    def columns(self, number: int, rows: Sequence[Row], steps: int) -> tuple[Tensor, Tensor]:
        """Return the noise, [steps, noises, rows, numbers], and the coefficients of the ``number``-th of the prepared
        steps and those after it."""
        noise = self._noise.of(number, rows, steps, len(self._step_numbers))
        return noise, self._step_numbers[number : number + steps]

    def apply(self, noise: Tensor, numbers: Tensor) -> None:
        """Move all rows by one step's noise [noises, rows, numbers], coefficients [coefficients, rows, 1] and their
        gradients."""
        self._prepared.left = iter(noise.unbind(0))
        theta, grads = self._parameters.theta, self._parameters.grads
        self._joint.apply(self._joint.param_groups[0], numbers.unbind(0), [theta], [grads])

    def rewind(self, row: Row, made: int) -> None:
        """Set a row's noise to where the last ``made`` steps have left it."""
        self._noise.rewind(row, made)
