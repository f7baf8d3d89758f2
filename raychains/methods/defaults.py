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


_LOCAL: Mapping[str, Mapping[str, Any]] = {
    "entropy-sgd": {"inner_lr": 0.01},
    "entropy-sgld": {"inner_lr": 0.01},
    "bsam": {"m_sharpness": 1},
}
"""Local-entropy steps and sub-batches for densities, which have neither networks' scale nor batches to divide."""


def _rates(cyclical: Mapping[str, float], decreasing: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """By (schedule, sampler); an optimiser has the step size of the sampler that it is the zero-temperature limit of."""
    found: dict[tuple[str, str], float] = {}
    for schedule, rates in (("cyclical", cyclical), ("decreasing", decreasing)):
        found |= {(schedule, sampler): lr for sampler, lr in rates.items()}
        found |= {(schedule, cold): rates[warm] for cold, warm in (("sgd", "sgld"), ("sgdm", "sghmc"))}
    return found


def _density(sgld: float, *, decreasing: float, gradient: float) -> dict[tuple[str, str], float]:
    """For a closed form with N = 1, from SGLD's step sizes and the usual size of a coordinate's gradient.

    At momentum .9 a tenth of SGLD's step moves as far in the long run; pSGLD divides by the gradient's size.
    """
    slow = {n: sgld / 10 for n in ("sghmc", "sgnht", "atmc", "sam")}
    local = {"entropy-sgd": 1.0, "entropy-sgld": 1.0, "bsam": sgld}  # they move by θ − μ and by a scaled gradient
    return _rates(
        {"sgld": sgld, "psgld": sgld * gradient, "emcmc": sgld, **slow, **local},
        {"sgld": decreasing, "psgld": decreasing * gradient, "sghmc": decreasing / 10},
    )


DEFAULTS: dict[str, Defaults] = {
    # cSG-MCMC §5.1 for SGLD; the other methods' step sizes are ours.
    "mixture25": Defaults(
        samplers=("sgld",),
        lr=_density(0.09, decreasing=0.05, gradient=6),
        steps=50_000,
        cycles=30,
        exploration=0.25,
        repeats=10,
        decreasing={"gamma": 0.55},
        sampler_settings={"emcmc": {"eta": 0.5}, **_LOCAL},
    ),
    # Densities with known laws: settings are ours.
    "gaussian": Defaults(
        samplers=("sgld", "sghmc"),
        lr=_density(0.05, decreasing=0.2, gradient=1),
        steps=20_000,
        cycles=4,
        exploration=0.5,
        repeats=10,
        decreasing={"gamma": 0.55},
        sampler_settings={"emcmc": {"eta": 1.0}, **_LOCAL},
    ),
    # Entropy-MCMC's landscape under oracle-sized steps: near the sharp mode's limit of stability, 2/lr = 1/.1².
    "two-modes": Defaults(
        samplers=("sgld", "emcmc"),
        lr=_density(0.01, decreasing=0.01, gradient=3),
        steps=2_000,
        cycles=1,
        exploration=0.0,
        repeats=100,
        decreasing={"gamma": 0.55},
        sampler_settings={"emcmc": {"eta": 0.016}, **_LOCAL},
    ),
    "linear-regression": Defaults(
        samplers=("sgld", "sghmc"),
        lr=_density(0.01, decreasing=0.05, gradient=1),
        steps=20_000,
        cycles=4,
        exploration=0.5,
        repeats=10,
        decreasing={"gamma": 0.55},
        sampler_settings={"emcmc": {"eta": 0.002}, **_LOCAL},
    ),
    # Epochs, cycles, β and samples as cSG-MCMC §5.2 has them for CIFAR; step sizes and prior tuned by us for T = 1.
    "digits": Defaults(
        samplers=("sgld", "sghmc"),
        lr=_rates(
            {
                "sgld": 0.3, "sghmc": 0.06, "psgld": 0.003, "sgnht": 0.06, "atmc": 0.06, "emcmc": 0.3,
                "entropy-sgd": 1.0, "entropy-sgld": 1.0, "sam": 0.2, "bsam": 2.0,
            },
            {"sgld": 0.6, "sghmc": 0.06, "psgld": 0.001},
        ),
        epochs=200,
        batch_size=50,
        cycles=4,
        exploration=0.8,
        samples_per_cycle=3,
        repeats=5,
        weight_decay=1e-3,
        decreasing={"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 10},
        sampler_settings={
            "emcmc": {"eta": 0.01},
            "entropy-sgd": {"inner_steps": 5, "inner_lr": 0.3},
            "entropy-sgld": {"inner_steps": 5, "inner_lr": 0.3},
            "bsam": {"prediction_samples": 8},
        },
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
