"""A task's default settings, which the task states itself as `Task.defaults`: those of the papers where they have any.

Built-in tasks state a whole `Defaults`; a user's task states values of options, which `defaults_of` lays over general
settings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raychains import priors, samplers
from raychains.core.config import Run
from raychains.core.errors import renamed, require, unknown_name
from raychains.core.options import options_of
from raychains.core.validation import positive
from raychains.tasks import NAMES

if TYPE_CHECKING:
    from raychains.tasks.base import Task

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
    decreasing: Mapping[str, Any] = field(default_factory=dict)
    """``gamma``; and ``decay`` (lr / final lr), ``noise_from``, ``epochs_per_sample`` for networks."""
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
    given = {"exploration": 0.5, "repeats": 10, "decreasing": {"gamma": 0.55}, **settings}
    return Defaults(**given, sampler_settings={**own, "bsam": {"m_sharpness": 1}})


STEPS = ("lr", "final_lr", "momentum", "schedule", "schedule_settings", "sampler_settings")
"""Options by which a user speaks of a method's steps: they are csghmc's of a network, SGHMC's of a density."""
LARGE_BATCH, SMALL_BATCH, SMALL_DATA = 128, 32, 10_000
"""Batch sizes of a network of one's own: 32 with fewer than 10,000 examples, where no step size has to fit it."""

LATE: Mapping[str, Any] = {"gamma": 1.0, "decay": 100.0, "noise_from": 0.75, "epochs_per_sample": 10}
"""cSG-MCMC §5.2: noise in the last quarter, 20 samples of 200 epochs. The step size's fall to a hundredth is ours."""
SMALL: Mapping[str, Any] = {"gamma": 1.0, "decay": 10.0, "noise_from": 0.75, "epochs_per_sample": 4}
"""The same for 40 epochs of a small network."""

# A user's task

OPTIONS = [
    "sampler",
    "schedule",
    "lr",
    "epochs",
    "steps",
    "batch_size",
    "cycles",
    "exploration",
    "samples_per_cycle",
    "repeats",
    "momentum",
    "weight_decay",
    "prior",
    "temperature",
]
"""The options that a user's `Task.defaults` may give values for."""
BY_SAMPLER = ("lr", "momentum", "weight_decay", "temperature", "exploration", "cycles")
"""Those that may be mappings from samplers, by name or as classes, to values."""
SCALE_FREE = ("psgld", "entropy-sgd", "entropy-sgld", "mclmc")
"""Samplers whose step size does not go with the others'."""


def defaults_of(name: str, task: Task) -> Defaults:
    """Return the settings of a task: its whole `Defaults` under a built-in name, else its options over general ones.
    The batch is no larger than the data.

    A user's ``lr`` is the step size of the ``sampler`` beside it (default csghmc); those of the others follow from it.
    A mapping gives the values of the samplers that it names and leaves those of the others.

    Raises:
        UserError: an option of the task's defaults that cannot have one, or a value out of range.
    """
    found = _stated(name, task)
    return dataclasses.replace(found, batch_size=min(found.batch_size, task.num_data))


def _stated(name: str, task: Task) -> Defaults:
    if isinstance(task.defaults, Defaults):
        # What subclasses of built-in tasks and functions that return one sample is another task.
        return task.defaults.on(task.num_data) if name in NAMES else _general(task)
    given, mapped = _given(task, task.defaults)
    run = given.pop("sampler", "csghmc")
    method = samplers.method(run)
    general = _general(task, given.get("momentum", 0.9))
    if "lr" in given:
        given["lr"] = _with_rate(general.lr, method.kind, float(given["lr"]))
    compared = (method.kind,) if "sampler" in task.defaults else general.samplers
    stated = not task.low_dimensional and bool(task.defaults.keys() & {"sampler", *STEPS})
    untuned = None if stated else task.untuned  # a density has seen to it itself
    of_sampler = {kind: {k: v for k, v in own.items() if k not in given} for kind, own in general.of_sampler.items()}
    made = dataclasses.replace(general, samplers=compared, run=run, untuned=untuned, of_sampler=of_sampler, **given)
    return _with_mapped(made, mapped, type(task).__name__)


def _given(task: Task, stated: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that a task has stated, checked, and those that are mappings from samplers."""
    given = {key: value for key, value in stated.items() if value is not None}
    about = f"among the defaults of task {type(task).__name__}"
    for key in given:
        if key not in OPTIONS:
            raise unknown_name(f"defaults of task {type(task).__name__}", key, OPTIONS)
    if "prior" in given:
        given["prior"] = priors.as_texts(given["prior"])
        decay = given.get("weight_decay")
        require(decay is None, f"weight_decay {about}", decay, "be left out beside a prior: the prior counts once")
    mapped = {key: given.pop(key) for key in dict(given) if isinstance(given[key], Mapping)}
    with renamed({key: f"{key} {about}" for key in given}):
        given = {key: options_of(Run)[key].checked(value) for key, value in given.items()}
        samplers.method(given.get("sampler", "csghmc"))
        other, unit = ("epochs", "steps") if task.low_dimensional else ("steps", "epochs")
        require(other not in given, other, given.get(other), f"be left out for this task: give {unit}")
    return given, mapped


def _with_mapped(base: Defaults, mapped: Mapping[str, Mapping[Any, Any]], task: str) -> Defaults:
    """Return the settings with values by sampler laid over them."""
    of_sampler = {kind: dict(values) for kind, values in base.of_sampler.items()}
    lr = dict(base.lr)
    for key, values in mapped.items():
        require(key in BY_SAMPLER, f"{key} among the defaults of task {task}", dict(values), "be one value")
        for sampler, value in values.items():
            kind = samplers.method(samplers.KINDS.name_of(sampler) if isinstance(sampler, type) else sampler).kind
            if key == "lr":
                positive(f"lr of {sampler} among the defaults of task {task}", value)
                lr |= {(schedule, kind): float(value) for schedule in ("cyclical", "decreasing")}
            else:
                of_sampler.setdefault(kind, {})[key] = value
    return dataclasses.replace(base, lr=lr, of_sampler=of_sampler)


def _with_rate(given: Rates, sampler: str, lr: float) -> Rates:
    """Return step sizes that go with the sampler's ``lr``; those without one here, as a user's, tell nothing of
    others."""
    known = given.get(("cyclical", sampler))
    scaled = _scaled(given, 1.0 if sampler in SCALE_FREE or known is None else lr / known)
    return {**scaled, **{(schedule, sampler): lr for schedule in ("cyclical", "decreasing")}}


def _scaled(given: Rates, factor: float) -> Rates:
    """Return step sizes times a factor, but those that do not go with the gradient's size."""
    return {at: rate * (1.0 if at[1] in SCALE_FREE else factor) for at, rate in given.items()}


def _general(task: Task, momentum: float = 0.9) -> Defaults:
    """Settings for any density or network, which are ours."""
    if task.low_dimensional:
        rates_of = density_rates(0.01, decreasing=0.05, gradient=1)
        return density(1.0, lr=rates_of, steps=20_000, batch_size=task.minibatch, untuned=task.untuned)
    own_prior = task.prior is not None or task.own_prior
    rates_of = _scaled(network_rates(0.05, momentum=momentum), 1 / task.labels_per_example)
    robust: dict[str, Any] = {"batch_size": min(SMALL_BATCH, task.num_data)} if task.num_data < SMALL_DATA else {}
    robust |= {} if own_prior else {"weight_decay": 1 / task.num_data}
    robust |= {"lr": {**rates_of, ("cyclical", "psgld"): 0.003}, "sampler_settings": {"psgld": {"eps": 0.001}}}
    return Defaults(
        untuned=task.untuned,
        of_sampler={} if task.untuned is None else {"psgld": robust},
        lr=rates_of,
        epochs=40,
        batch_size=LARGE_BATCH,
        exploration=0.8,
        samples_per_cycle=3,
        cycle_thinning=0.5,
        repeats=1,
        weight_decay=0.0 if own_prior else 1e-4,
        decreasing=SMALL,
        sampler_settings={"emcmc": {"eta": 20 / task.num_data}},
    )
