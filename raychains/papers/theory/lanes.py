"""Lanes driven by the public samplers with an exact gradient, with added noise where a plan has it, and statistics of
groups of lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from raychains.evaluation.evaluation import Array
from raychains.samplers import Sampler
from raychains.samplers.noise import Noise
from raychains.schedules.schedule import Schedule

Tell = Callable[[int, int], None]
"""Progress: (steps done, steps in all)."""
Make = Callable[[Tensor, int], Sampler]
"""(parameter [lanes, …], seed) -> a sampler of it."""
EVERY = 512
"""Steps between two reports of progress."""


def drive(
    make: Make,
    start: Tensor,
    *,
    schedule: Schedule,
    gradient: Callable[[Tensor], Tensor],
    gradient_sd: float = 0.0,
    seed: int,
    visit: Callable[[float, Tensor], None] | None = None,
    tell: Tell = lambda done, total: None,
) -> Sampler:
    """Run a sampler over the whole schedule and return it; its parameter is the state after the last step.

    ``make`` builds it on a copy of ``start`` [lanes, …]; ``gradient`` returns ∇U of the parameter's shape, to every
    coordinate of which fresh Gaussian noise of ``gradient_sd`` is added, by a stream of its own. ``visit`` is called
    with (step size, state after the step) and must not alter the state.
    """
    ours, theirs = (int(s) for s in np.random.SeedSequence(seed).generate_state(2, np.uint64) >> np.uint64(2))
    theta = start.clone()
    sampler = make(theta, theirs)
    noise = Noise(ours)
    group = sampler.param_groups[0]
    for step in range(1, schedule.steps + 1):
        now = schedule.at(step)
        group["lr"], group["temperature"] = now.lr, now.temperature
        theta.grad = gradient(theta)
        if gradient_sd:
            theta.grad.add_(noise.like(theta), alpha=gradient_sd)
        sampler.step()
        if visit is not None:
            visit(now.lr, theta)
        if step % EVERY == 0:
            tell(step, schedule.steps)
    return sampler


def seeds(seed: int, *key: int) -> int:
    """Return a seed for one part of a plan: other keys give independent streams."""
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)[0] >> np.uint64(2))


def in_groups(lanes: Array, groups: int) -> Array:
    """Return equal groups of neighbouring lanes, [groups, …], from [lanes, …]."""
    return lanes.reshape(groups, -1, *lanes.shape[1:])


def pseudo_values(statistic: Callable[[Array], float], groups: Array) -> list[float]:
    """Return G·f(all) − (G−1)·f(all but group g) for every group [G, …]: a statistic of all lanes, so that claims have
    repeats.

    Their mean is the jackknife's estimate, without the bias of order 1/G; their standard error over √G is the
    jackknife's, so that Student's interval of them is the jackknife's interval.

    Source: Tukey 1958; Efron & Tibshirani 1993, ch. 11.
    """
    count, whole = len(groups), statistic(groups)
    left = [statistic(np.delete(groups, g, axis=0)) for g in range(count)]
    return [count * whole - (count - 1) * one for one in left]
