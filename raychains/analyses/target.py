"""What a density's chains sample, as their spec has it: exp(−[U(θ) + ½Nλ‖θ‖²]/T), and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raychains import schedules
from raychains.evaluation.base import Array
from raychains.evaluation.exact import Exact
from raychains.spec import ChainSpec
from raychains.tasks import Task

ROWS = 10_000
"""Points at which the potential is asked for at a time."""


@dataclass(frozen=True)
class Target:
    """The target of one chain's θ."""

    task: Task
    temperature: float
    """T of the chain; 0 for an optimiser, which is held against T = 1."""
    precision: float
    """Nλ of the sampler's weight decay λ: a prior beside the task's own."""

    @property
    def asked(self) -> float:
        """The temperature of the law that draws are held against: T, or 1 where the chain has no noise."""
        return self.temperature if self.temperature > 0 else 1.0

    @cached_property
    def exact(self) -> Exact | None:
        """What is known of it; None where nothing is."""
        known = self.task.reference()
        return None if known is None else known.at(self.asked, self.precision)

    def potential(self, theta: Array) -> tuple[Array, Array] | None:
        """U with the sampler's weight decay, [n], and its gradient, [n, dim], at ``theta`` [n, dim]; None if unknown."""
        if self.task.prior is not None:  # the task's own part alone would be another target
            return None
        energies, gradients = [], []
        for start in range(0, max(len(theta), 1), ROWS):
            points = np.asarray(theta[start : start + ROWS], dtype=np.float64)
            found = self.task.potential(points)
            if found is None:
                return None
            energies.append(found[0] + self.precision * (points**2).sum(-1) / 2)
            gradients.append(found[1] + self.precision * points)
        return np.concatenate(energies), np.concatenate(gradients)


def target_of(task: Task, spec: ChainSpec) -> Target:
    """The target of the chains of ``spec``."""
    settings = spec.sampler.settings
    precision = float(settings.get("num_data", task.num_data)) * float(settings.get("weight_decay", 0.0))
    return Target(task, float(schedules.build(spec.schedule).temperature), precision)
