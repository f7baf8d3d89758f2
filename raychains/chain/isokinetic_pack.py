"""The microcanonical sampler's step for all rows of a pack: MCLMC, two gradients a step.

Their step is made for lanes, and a row is one: norms, h, L and every other number that adapts are those of its row.
What a step does depends on how many were made (tuning, its phases), so that the rows that move are always at one step;
a pack lets those behind catch up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raychains.chain.compiler import compiled
from raychains.chain.pack_noise import NOISE_AHEAD, PreparedNoise, RowNoise
from raychains.chain.pack_row import Row
from raychains.samplers.isokinetic import Isokinetic
from raychains.samplers.sampler import wide
from raychains.schedules import ScheduleValues

Batch = Sequence[Tensor]
"""Targets and weights of the rows' examples, and what else the network reads."""


class IsokineticRows:
    """Parameters, directions, gradients and adaptive numbers of the rows that move, and their joint step.

    Args:
        joint: the sampler, with a lane for each row.
        theta: the pack's parameters, [rows, at least ``size``].
        size: numbers of one chain.
        batch: returns that of a prepared step.
        gradient: takes parameters [rows, ``size``] and a batch's tensors; returns the losses, [rows], and their
            gradients as the parameters.
        compiles: make the joint sampler's `compilable` methods compiled functions, with the gradients that they
            evaluate.
    """

    def __init__(
        self,
        joint: Isokinetic,
        theta: Tensor,
        size: int,
        batch: Callable[[int], Batch],
        gradient: Callable[..., tuple[Tensor, Tensor]],
        *,
        compiles: bool,
    ) -> None:
        self._joint, self._batch_of, self._gradient = joint, batch, gradient
        self._theta = theta[:, :size]
        self._batch: Batch = ()
        """The batch of the step being made."""
        self._losses: list[Tensor] = []
        """The losses of that step, in the order of its evaluations."""
        self._u, self._g = (torch.zeros_like(self._theta, dtype=wide(theta.dtype)) for _ in range(2))
        self._noise = RowNoise(self._u, max(1, NOISE_AHEAD // size))
        joint._noise = self._noise  # type: ignore[assignment]  # whom its step asks
        self._begun = False
        self._functions: dict[Any, Callable[..., Any]] = {}
        """Compiled ones, by what is fixed in them."""
        self._temperature: float | None = None
        """The last step's."""
        self._compiles = False
        if compiles:
            for name, noises in joint.compilable.items():  # which its step calls
                setattr(joint, name, partial(self._compiled, getattr(type(joint), name), noises))

    def gather(self, rows: Sequence[Row]) -> None:
        """Take the states of the chains that move from now on, all of which have made the same steps."""
        if rows == self._noise.moving:
            return
        self._noise.move(rows)
        self._moving = torch.zeros(len(self._theta), 1, dtype=torch.bool, device=self._theta.device)
        for row in rows:
            self._moving[row.index] = True
        first = rows[0].chain
        self._begun = "direction" in first.sampler.state[next(iter(first.sampled.values()))]
        if self._begun:
            self._u, self._g = self._u.clone(), self._g.clone()  # a chain that left may hold what was its row
            for row in rows:
                states = [row.chain.sampler.state[p] for p in row.chain.sampled.values()]
                for whole, name in ((self._u, "direction"), (self._g, "gradient")):
                    whole[row.index] = torch.cat([s[name].reshape(-1) for s in states])
        adaptive: dict[str, Any] = {
            n: v.expand(len(self._theta), *v.shape[1:]).clone() if isinstance(v, Tensor) else v
            for n, v in _sampler(rows[0])._adaptive.items()
            if all(n in _sampler(row)._adaptive for row in rows)  # states of older versions have fewer
        }
        for row in rows:
            for name, value in adaptive.items():
                if isinstance(value, Tensor):
                    value[row.index] = _sampler(row)._adaptive[name][0]
        self._joint._adaptive = adaptive

    def forget(self) -> None:
        """Gather anew before the next step: chains have come or gone."""
        self._noise.moving = []

    def give_back(self) -> None:
        """Give every chain that moved its own states, and its noise's place."""
        self._noise.rewind()
        for row in self._noise.moving:
            at, sampler = row.index, _sampler(row)
            parts = [p.numel() for p in row.chain.sampled.values()]
            states = zip(self._u[at].split(parts), self._g[at].split(parts), strict=True)
            for p, (u, g) in zip(row.chain.sampled.values(), states, strict=True):
                sampler.state[p] |= {"direction": u.view(p.shape), "gradient": g.view(p.shape)}
            sampler._adaptive = {
                n: v[at : at + 1] if isinstance(v, Tensor) else v for n, v in self._joint._adaptive.items()
            }

    def step(self, number: int, setting: ScheduleValues) -> Tensor:
        """Make the ``number``-th of the prepared steps; return the losses where it first evaluated them, 0 in rows that
        rest."""
        joint = self._joint
        group = joint.param_groups[0]
        group.update(lr=setting.lr, temperature=setting.temperature)
        # A function is made for one temperature: not on a ramp, where each step has another.
        self._compiles, self._temperature = setting.temperature == self._temperature, setting.temperature
        self._batch, self._losses = self._batch_of(number), []

        def at(theta: Tensor) -> tuple[Tensor, Tensor]:
            losses, g = self._gradient(theta, *self._batch)
            self._losses.append(losses)
            return losses, g.to(theta.dtype) + group["weight_decay"] * theta

        start = self._theta.to(self._u.dtype, copy=True)
        if not self._begun:
            self._g = at(start)[1]
            self._u = joint._first(self._g)
            self._begun = True
        theta, self._u, self._g = joint._step(start, self._u, self._g, at)
        self._theta.copy_(torch.where(self._moving, theta, start))
        return torch.where(self._moving[:, 0], joint.shown_loss(self._losses[0]), 0.0)

    def _compiled(self, method: Callable[..., Any], noises: int, *given: Any) -> Any:
        """Return what a method of the joint sampler does, by a compiled function while it `_compiles`."""
        if not self._compiles:
            return method(self._joint, *given)
        flat, tree = pytree.tree_flatten(given)
        flat = [self._u.new_full((), v, dtype=torch.float64) if isinstance(v, float) else v for v in flat]
        drawn = [self._noise.like(self._u).clone() for _ in range(noises if self._temperature else 0)]
        inputs = [t.contiguous() for t in (*flat, *drawn, *self._batch) if isinstance(t, Tensor)]
        kind = (method, self._temperature, tree, *((t.shape, t.dtype) for t in inputs))
        if kind not in self._functions:
            self._functions[kind] = self._compile(method, flat, tree, len(drawn), inputs)
        found, losses = self._functions[kind](*inputs)
        self._losses += losses
        return found

    def _compile(
        self, method: Callable[..., Any], flat: list[Any], tree: Any, drawn: int, inputs: list[Tensor]
    ) -> Callable[..., Any]:
        """Return a compiled function of the tensors among a method's arguments, of noise and the batch, which also
        returns the losses."""
        joint = self._joint
        before = joint._noise, self._batch, self._losses

        def function(*inputs: Tensor) -> tuple[Any, list[Tensor]]:
            left = iter(inputs)
            arguments = [next(left) if isinstance(v, Tensor) else v for v in flat]
            joint._noise = PreparedNoise([next(left) for _ in range(drawn)])  # type: ignore[assignment]
            self._batch, self._losses = tuple(left), []
            return method(joint, *pytree.tree_unflatten(arguments, tree)), self._losses

        self._compiles = False  # what the method calls is part of the function
        try:
            return compiled(torch.func.functionalize(function), *inputs)
        finally:
            joint._noise, self._batch, self._losses = before
            self._compiles = True


def _sampler(row: Row) -> Isokinetic:
    assert isinstance(row.chain.sampler, Isokinetic)
    return row.chain.sampler
