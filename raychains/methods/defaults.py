"""Every task's settings where a person gives none: those of the papers where they have any, else tuned by us."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raychains import tasks
from raychains.errors import unknown_name
from raychains.methods.names import named
from raychains.schedules.base import positive
from raychains.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """A task's settings where the person gives none. lr is per schedule and sampler."""

    samplers: tuple[str, ...]
    """What `raychains compare` compares."""
    run: str = "csghmc"
    """What `raychains run` samples with."""
    lr: Mapping[tuple[str, str], float]
    """By (schedule, sampler)."""
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 1
    cycles: int
    exploration: float
    samples_per_cycle: int | None = None
    cycle_thinning: float = 1.0
    """Epochs between the samples of a cycle."""
    repeats: int
    momentum: float = 0.9
    weight_decay: float = 0.0
    temperature: float = 1.0
    decreasing: Mapping[str, Any] = field(default_factory=dict)
    """``gamma``; and ``decay`` (lr / final lr), ``noise_from``, ``epochs_per_sample`` for networks."""
    sampler_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler, where its own defaults do not fit the task."""
    eta_for: int | None = None
    """N that Entropy-MCMC's η holds for: with fewer data it is larger, since lr/(ηN) must not be."""
    of_sampler: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By sampler, other values of the fields above, where its paper has other settings than the task's."""

    def of(self, sampler: str) -> Defaults:
        """The settings under one sampler."""
        return dataclasses.replace(self, **self.of_sampler.get(sampler, {}))

    def on(self, num_data: int) -> Defaults:
        """The settings where only some of the data are used."""
        if self.eta_for is None or num_data >= self.eta_for:
            return self
        emcmc = self.sampler_settings["emcmc"]
        more = {"emcmc": {**emcmc, "eta": emcmc["eta"] * self.eta_for / num_data}}
        return dataclasses.replace(self, sampler_settings={**self.sampler_settings, **more})

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


def _network(
    sghmc: float, *, momentum: float = 0.9, sam: float | None = None, bsam: float | None = None
) -> dict[tuple[str, str], float]:
    """For a network, from SGHMC's step size: a step without momentum is as long as one with it in the long run.

    pSGLD divides by the gradient's size, local-entropy steps move by θ − μ: neither depends on the network's scale.
    """
    plain = round(sghmc / (1 - momentum), 12)
    cyclical = {
        "sgld": plain, "sghmc": sghmc, "psgld": 1e-3, "sgnht": sghmc, "atmc": sghmc, "emcmc": plain,
        "entropy-sgd": 1.0, "entropy-sgld": 1.0, "sam": sghmc if sam is None else sam, "bsam": plain if bsam is None else bsam,
    }  # fmt: skip
    return _rates(cyclical, {"sgld": plain, "sghmc": sghmc, "psgld": 5e-4})


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


_LATE: Mapping[str, Any] = {"gamma": 1.0, "decay": 100.0, "noise_from": 0.75, "epochs_per_sample": 10}
"""cSG-MCMC §5.2: noise in the last quarter, 20 samples of 200 epochs. The step size's fall to a hundredth is ours."""


def _mnist(lr: float) -> Defaults:
    """Small networks on 28×28 images at T = 1. Cycles of 10 epochs have 2 with noise: a sample every half epoch."""
    return Defaults(
        samplers=("sgld", "sghmc"),
        lr=_network(lr, sam=0.1),
        epochs=40,
        batch_size=128,
        cycles=4,
        exploration=0.8,
        samples_per_cycle=3,
        cycle_thinning=0.5,
        repeats=1,
        weight_decay=1e-4,
        decreasing={"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 4},
        sampler_settings={"emcmc": {"eta": 4e-4}},
        eta_for=50_000,
    )


def _cifar(
    *, exploration: float, eta: float, rho: float, step: float = 0.5, bsam: float | None = None, bsam_rho: float = 0.01
) -> Defaults:
    """ResNet-18: β of a cycle without noise, η of Entropy-MCMC, ρ of SAM; ``step`` of other networks is ours, and bSAM's."""
    # At momentum .9 as long a step as SGHMC's at .1: ours, as are those of the samplers that no paper runs here.
    lr = _network(step / 10, sam=step / 5, bsam=step if bsam is None else bsam) | {
        (schedule, "sghmc"): step for schedule in ("cyclical", "decreasing")
    }
    return Defaults(
        samplers=("sgld", "sghmc"),
        lr=lr,
        epochs=200,
        batch_size=64,
        cycles=4,
        exploration=exploration,
        samples_per_cycle=3,
        repeats=1,
        weight_decay=5e-4,
        temperature=1 / 50_000,
        decreasing=_LATE,
        sampler_settings={
            "sghmc": {"momentum": 0.1},
            "emcmc": {"eta": eta},
            "sam": {"rho": rho},
            "bsam": {"rho": bsam_rho},
        },
        eta_for=40_000,
        of_sampler={
            "emcmc": {"batch_size": 128, "temperature": 1e-4},
            "sam": {"batch_size": 128},
            "bsam": {"batch_size": 128, "weight_decay": 40 / 200_000, "temperature": 0.25},  # N = 4 × 50,000 there
        },
    )


def _logistic(sgld: float, sghmc: float) -> Defaults:
    """Bayesian logistic regression: cSG-MCMC's 5,000 draws after 1,000 steps of burn-in, or of exploration.

    The rest is ours: steps whose draws have the posterior's spread to about 10 % (docs/blr.md), five times as long where they
    fall to a tenth.
    """
    lr = _density(sgld, decreasing=5 * sgld, gradient=0.05)
    lr |= {("cyclical", "sghmc"): sghmc, ("decreasing", "sghmc"): 5 * sghmc}
    return Defaults(
        samplers=("sgld", "sghmc"),
        run="sgld",
        lr=lr,
        steps=6_000,
        cycles=4,
        exploration=1 / 6,
        repeats=10,
        decreasing={"gamma": 0.55, "decay": 10.0, "epochs_per_sample": 1.2},
        sampler_settings={"emcmc": {"eta": 0.05}, **_LOCAL},
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
    "blr-australian": _logistic(4.0, 8.0),
    "blr-german": _logistic(2.5, 5.0),
    "blr-heart": _logistic(4.0, 6.0),
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
    # One chain of 40 epochs at these settings: 1.36 % with 12 samples on MNIST. Step sizes and prior are ours.
    "mnist-mlp": _mnist(0.05),
    "fashion-mnist-mlp": _mnist(0.05),
    "mnist-cnn": _mnist(0.02),
    # Entropy-MCMC §6.2: lr .03, batch 64, η 1, T 1 in the authors' code; epochs, prior and the local-entropy steps are ours.
    "mnist-1v7": Defaults(
        samplers=("emcmc", "entropy-sgd", "entropy-sgld", "sgld"),
        run="emcmc",
        lr=_network(0.003),
        epochs=20,
        batch_size=64,
        cycles=4,
        exploration=0.8,
        samples_per_cycle=3,
        cycle_thinning=0.25,
        repeats=1,
        weight_decay=1e-4,
        decreasing={"gamma": 1.0, "decay": 10.0, "epochs_per_sample": 0.25},
        sampler_settings={"emcmc": {"eta": 1.0}, "entropy-sgd": {"inner_lr": 0.03}, "entropy-sgld": {"inner_lr": 0.03}},
    ),
    # cSG-MCMC §5.2 and its authors' code (momentum .1, temperature 1/50,000); Entropy-MCMC, SAM and bSAM as their papers.
    "cifar10-resnet18": _cifar(exploration=0.8, eta=4e-4, rho=0.05),
    "cifar100-resnet18": _cifar(exploration=0.94, eta=8e-3, rho=0.1),
    "cifar10-resnet18-frn": _cifar(exploration=0.8, eta=4e-4, rho=0.05),
    # Small networks for machines without a GPU: the same but for the step size.
    "cifar10-resnet20": _cifar(exploration=0.8, eta=4e-4, rho=0.05, step=0.2),
    # Under bSAM's own ρ of .01 and lr .1 the LeNet errs on 66 % of CIFAR-10 (5,000 images), under these on 41 %.
    "cifar10-lenet": _cifar(exploration=0.8, eta=4e-4, rho=0.05, step=0.1, bsam=0.05, bsam_rho=0.001),
    "cifar100-lenet": _cifar(exploration=0.94, eta=8e-3, rho=0.1, step=0.1, bsam=0.05, bsam_rho=0.001),
    # Cycles of 50 epochs as in ATMC's paper, whose step sizes are unreadable in our text: step sizes and batch are ours.
    "cifar10-resnetpp56": Defaults(
        samplers=("sgnht", "atmc"),
        run="atmc",
        lr=_network(0.05),
        epochs=200,
        batch_size=128,
        cycles=4,
        exploration=0.8,
        samples_per_cycle=3,
        repeats=1,
        decreasing=_LATE,
        sampler_settings={"emcmc": {"eta": 4e-4}},
        eta_for=40_000,
    ),
}  # fmt: skip


OWN = (
    "sampler", "lr", "epochs", "steps", "batch_size", "cycles", "exploration", "samples_per_cycle", "repeats", "momentum",
    "weight_decay", "temperature",
)  # fmt: skip
"""The options that `Task.defaults` may give values for."""
SCALE_FREE = ("psgld", "entropy-sgd", "entropy-sgld")
"""Samplers whose step size does not go with the others'."""


def defaults(name: str, task: Task | None = None) -> Defaults:
    """The settings of a task: by its name where it has an entry, else its own (`Task.defaults`) over general ones.

    Args:
        name: the task's.
        task: itself, for tasks that are not built in.

    Raises:
        UserError: an unknown task, or a default of the task's own that is none.
    """
    if name in DEFAULTS:
        return DEFAULTS[name] if task is None else DEFAULTS[name].on(task.num_data)
    if task is None:
        raise unknown_name("task", name, tasks.NAMES)
    return _own(task)


def _own(task: Task) -> Defaults:
    """A person's task: what it says itself, over general settings for a network or a density, which are ours.

    Its ``lr`` is the step size of its ``sampler`` (csghmc unless it says another); those of the others follow from it.
    """
    given = dict(task.defaults)
    for key in given:
        if key not in OWN:
            raise unknown_name(f"defaults of task {type(task).__name__}", key, OWN)
    run = given.pop("sampler", "csghmc")
    kind = named(run).kind
    general = _general_density() if task.low_dimensional else _general_network(task, given.get("momentum", 0.9))
    if "lr" in given:
        lr = given.pop("lr")
        positive(f"lr among the defaults of task {type(task).__name__}", lr)
        given["lr"] = _scaled(general.lr, kind, float(lr))
    compared = (kind,) if "sampler" in task.defaults else general.samplers
    return dataclasses.replace(general, samplers=compared, run=run, **given)


def _scaled(rates: Mapping[tuple[str, str], float], sampler: str, lr: float) -> dict[tuple[str, str], float]:
    factor = 1.0 if sampler in SCALE_FREE else lr / rates["cyclical", sampler]
    return {
        (schedule, kind): lr if kind == sampler else rate * (1.0 if kind in SCALE_FREE else factor)
        for (schedule, kind), rate in rates.items()
    }


def _general_network(task: Task, momentum: float) -> Defaults:
    return Defaults(
        samplers=("sgld", "sghmc"),
        lr=_network(0.05, momentum=momentum),
        epochs=40,
        batch_size=min(128, task.num_data),
        cycles=4,
        exploration=0.8,
        samples_per_cycle=3,
        cycle_thinning=0.5,
        repeats=1,
        weight_decay=0.0 if task.prior is not None or task.own_prior else 1e-4,
        decreasing={"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 4},
        sampler_settings={"emcmc": {"eta": 20 / task.num_data}},
    )


def _general_density() -> Defaults:
    return Defaults(
        samplers=("sgld", "sghmc"),
        lr=_density(0.01, decreasing=0.05, gradient=1),
        steps=20_000,
        cycles=4,
        exploration=0.5,
        repeats=10,
        decreasing={"gamma": 0.55},
        sampler_settings={"emcmc": {"eta": 1.0}, **_LOCAL},
    )
