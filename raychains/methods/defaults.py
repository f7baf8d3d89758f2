"""Every task's settings where a person gives none: those of the papers where they have any, else tuned by us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raychains import tasks
from raychains.errors import unknown_name


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """A task's settings where the person gives none. lr is per schedule and sampler."""

    samplers: tuple[str, ...]
    lr: Mapping[tuple[str, str], float]
    """By (schedule, sampler)."""
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 1
    cycles: int
    exploration: float
    samples_per_cycle: int | None = None
    repeats: int
    momentum: float = 0.9
    weight_decay: float = 0.0
    decreasing: Mapping[str, Any] = field(default_factory=dict)
    """``gamma``; and ``decay`` (lr / final lr), ``noise_from``, ``epochs_per_sample`` for networks."""
    sampler_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler, where its own defaults do not fit the task."""

    def rate(self, schedule: str, sampler: str) -> float:
        """The initial step size: that of the decreasing schedule for those that decay, that of the cyclical for the others."""
        near = "cyclical" if schedule in ("cyclical", "constant") else "decreasing"
        return self.lr.get((near, sampler), self.lr["cyclical", sampler])


DEFAULTS: dict[str, Defaults] = {
    # cSG-MCMC §5.1 for SGLD; the momentum forms are ours.
    "mixture25": Defaults(
        samplers=("sgld",),
        lr={
            ("cyclical", "sgld"): 0.09, ("cyclical", "sgd"): 0.09, ("cyclical", "sghmc"): 0.009, ("cyclical", "sgdm"): 0.009,
            ("decreasing", "sgld"): 0.05, ("decreasing", "sgd"): 0.05, ("decreasing", "sghmc"): 0.005, ("decreasing", "sgdm"): 0.005,
        },
        steps=50_000,
        cycles=30,
        exploration=0.25,
        repeats=10,
        decreasing={"gamma": 0.55},
    ),
    # Epochs, cycles, β and samples as cSG-MCMC §5.2 has them for CIFAR; step sizes and prior tuned by us for T = 1.
    "digits": Defaults(
        samplers=("sgld", "sghmc"),
        lr={
            ("cyclical", "sgd"): 0.3, ("cyclical", "sgld"): 0.3, ("cyclical", "sgdm"): 0.06, ("cyclical", "sghmc"): 0.06,
            ("decreasing", "sgd"): 0.6, ("decreasing", "sgld"): 0.6, ("decreasing", "sgdm"): 0.06, ("decreasing", "sghmc"): 0.06,
        },
        epochs=200,
        batch_size=50,
        cycles=4,
        exploration=0.8,
        samples_per_cycle=3,
        repeats=5,
        weight_decay=1e-3,
        decreasing={"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 10},
    ),
}  # fmt: skip


def defaults(task: str) -> Defaults:
    """The settings of a named task.

    Raises:
        UserError: an unknown task.
    """
    if task not in tasks.NAMES:
        raise unknown_name("task", task, tasks.NAMES)
    return DEFAULTS[task]
