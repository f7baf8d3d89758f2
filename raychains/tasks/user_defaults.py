"""The default settings of any task: a built-in one's own, or the options that a user's task states over general
settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from raychains import priors, samplers, tasks
from raychains.core.config import Run
from raychains.core.errors import renamed, require, unknown_name
from raychains.core.options import options_of
from raychains.core.validation import positive
from raychains.tasks.base import Task
from raychains.tasks.defaults import SMALL, STEPS, Defaults, Rates, density, density_rates, network_rates

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
LARGE_BATCH, SMALL_BATCH, SMALL_DATA = 128, 32, 10_000
"""Batch sizes of a network of one's own: 32 with fewer than 10,000 examples, where no step size has to fit it."""


def defaults_of(task: Task) -> Defaults:
    """Return the settings of a task: a built-in one's whole `Defaults`, else its options over general ones.
    The batch is no larger than the data.

    A user's ``lr`` is the step size of the ``sampler`` beside it (default csghmc); those of the others follow from it.
    A mapping gives the values of the samplers that it names and leaves those of the others.

    Raises:
        UserError: an option of the task's defaults that cannot have one, or a value out of range.
    """
    found = _stated(task)
    return dataclasses.replace(found, batch_size=min(found.batch_size, task.num_data))


def _stated(task: Task) -> Defaults:
    if isinstance(task.defaults, Defaults):
        # What subclasses of built-in tasks and functions that return one sample is another task.
        return task.defaults.on(task.num_data) if tasks.name_of(task) in tasks.NAMES else _general(task)
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
        non_cyclical=SMALL,
        sampler_settings={"emcmc": {"eta": 20 / task.num_data}},
    )
