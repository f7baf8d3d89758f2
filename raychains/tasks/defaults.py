"""A task's default settings, which the task states itself as `Task.defaults`: those of the papers where they have any.

Built-in tasks state a whole `Defaults`; a user's task states values of options (`raychains.tasks.user_defaults`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raychains.core.config import Run

Rates = Mapping[tuple[str, str], float]
"""Step sizes by (schedule, sampler)."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The settings of a task where the user passes none."""

    samplers: tuple[str, ...] = ("sgld", "sghmc")
    """The methods that `raychains compare` compares."""
    run: str = "csghmc"
    """The method that `raychains run` samples with."""
    untuned: str | None = None
    """The same where the user states nothing of the steps (`STEPS`), one that needs no step size of theirs; None is
    ``run``."""
    schedule: str | None = None
    """The step size's schedule in `raychains run`; None is the method's own."""
    lr: Rates
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 1
    cycles: int = 4
    exploration: float
    samples_per_cycle: int | None = None
    cycle_thinning: float = 1.0
    """Epochs between the samples of a cycle."""
    repeats: int
    momentum: float = 0.9
    weight_decay: float = 0.0
    prior: tuple[str, ...] = ()
    """Texts of `raychains.priors.read`, instead of ``weight_decay``."""
    temperature: float = 1.0
    non_cyclical: Mapping[str, Any] = field(default_factory=dict)
    """Of all schedules but the cyclical one: ``noise_from`` and ``epochs_per_sample``, for networks; of the decreasing
    one alone: ``gamma`` and ``decay`` (lr / final lr)."""
    sampler_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler, where its own defaults do not fit the task."""
    eta_for: int | None = None
    """N that Entropy-MCMC's η holds for: with fewer data it is larger, since lr/(ηN) must not be."""
    of_sampler: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler, other values of the fields above, where its paper has other settings than the task's."""

    def method(self, options: Run) -> str:
        """Return the method of a run: as the user names it, else by what they state of its steps."""
        stated = any(getattr(options, name) not in (None, ()) for name in STEPS)
        stated |= self.epochs is None and options.batch_size is not None  # noise in a density's gradients
        return options.sampler or (self.untuned if self.untuned is not None and not stated else self.run)

    def of(self, sampler: str) -> Defaults:
        """Return the settings under one sampler."""
        return dataclasses.replace(self, **self.of_sampler.get(sampler, {}))

    def on(self, num_data: int) -> Defaults:
        """Return the settings where only some of the data are used."""
        if self.eta_for is None or num_data >= self.eta_for:
            return self
        emcmc = self.sampler_settings["emcmc"]
        more = {"emcmc": {**emcmc, "eta": emcmc["eta"] * self.eta_for / num_data}}
        return dataclasses.replace(self, sampler_settings={**self.sampler_settings, **more})

    def rate(self, schedule: str, sampler: str) -> float | None:
        """Return the initial step size: the decreasing schedule's for those that decay, the cyclical one's for the
        others.

        None for a user's sampler, which no task knows.
        """
        near = "cyclical" if schedule in ("cyclical", "constant") else "decreasing"
        return self.lr.get((near, sampler), self.lr.get(("cyclical", sampler)))


# Step sizes of all samplers from one or a few

MICROCANONICAL = 0.3
"""Length of a microcanonical sampler's step in a network's parameters; tuning begins with it."""


def rates(cyclical: Mapping[str, float], decreasing: Mapping[str, float]) -> Rates:
    """Step sizes of both schedules; an optimiser has that of the sampler whose zero-temperature limit it is."""
    found: dict[tuple[str, str], float] = {}
    for schedule, given in (("cyclical", cyclical), ("decreasing", decreasing)):
        found |= {(schedule, sampler): lr for sampler, lr in given.items()}
        found |= {(schedule, cold): given[warm] for cold, warm in (("sgd", "sgld"), ("sgdm", "sghmc"))}
    return found


def network_rates(sghmc: float, *, momentum: float = 0.9, sam: float | None = None, bsam: float | None = None) -> Rates:
    """Step sizes for a network, from SGHMC's: a step without momentum is as long as one with it in the long run.

    pSGLD divides by the gradient's size, local-entropy steps move by θ − μ: neither depends on the network's scale.
    """
    plain = round(sghmc / (1 - momentum), 12)
    sam, bsam = sghmc if sam is None else sam, plain if bsam is None else bsam
    same = {"sgld": plain, "sghmc": sghmc}
    others = {"sgnht": sghmc, "swag": sghmc, "laplace": sghmc, "atmc": sghmc, "emcmc": plain, "sam": sam, "bsam": bsam}
    others |= {"mclmc": MICROCANONICAL}
    return rates({**same, "psgld": 1e-3, **others, "entropy-sgd": 1.0, "entropy-sgld": 1.0}, {**same, "psgld": 5e-4})


def density_rates(sgld: float, *, decreasing: float, gradient: float) -> Rates:
    """Step sizes for a closed form with N = 1, from SGLD's and the usual size of a coordinate's gradient.

    At momentum .9 a tenth of SGLD's step moves as far in the long run; pSGLD divides by the gradient's size.
    """
    slow = {n: sgld / 10 for n in ("sghmc", "sgnht", "atmc", "sam", "swag")}
    slow["mclmc"] = math.sqrt(sgld)  # a length; like the root of SGLD's step it goes with the narrowest width
    local = {"entropy-sgd": 1.0, "entropy-sgld": 1.0, "bsam": sgld}  # they move by θ − μ and by a scaled gradient
    return rates(
        {"sgld": sgld, "psgld": sgld * gradient, "emcmc": sgld, **slow, **local},
        {"sgld": decreasing, "psgld": decreasing * gradient, "sghmc": decreasing / 10},
    )


def density(eta: float, **settings: Any) -> Defaults:
    """Settings for a density: η of Entropy-MCMC, and local-entropy steps and sub-batches for a target that is no
    network."""
    own = {"emcmc": {"eta": eta}, "entropy-sgd": {"inner_lr": 0.01}, "entropy-sgld": {"inner_lr": 0.01}}
    given = {"exploration": 0.5, "repeats": 10, "non_cyclical": {"gamma": 0.55}, **settings}
    return Defaults(**given, sampler_settings={**own, "bsam": {"m_sharpness": 1}})


STEPS = ("lr", "final_lr", "momentum", "schedule", "schedule_settings", "sampler_settings")
"""Options by which a user speaks of a method's steps: they are csghmc's of a network, SGHMC's of a density."""
LATE: Mapping[str, Any] = {"gamma": 1.0, "decay": 100.0, "noise_from": 0.75, "epochs_per_sample": 10}
"""cSG-MCMC §5.2: noise in the last quarter, 20 samples of 200 epochs. The step size's fall to a hundredth is ours."""
SMALL: Mapping[str, Any] = {"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 4}
"""The same for 40 epochs of a small network."""
