"""Names and numbers to a `ChainSpec`: every task's default settings, and the only way to a spec."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from raychains import samplers, schedules, tasks
from raychains.data.root import data_root
from raychains.errors import UserError, require, unknown_name
from raychains.options import Sampling
from raychains.schedules import Cyclical, Decreasing, Schedule
from raychains.schedules.base import is_number, positive, positive_int
from raychains.spec import ChainSpec, Part
from raychains.tasks import Task

NOISE_FREE = {"sgd", "sgdm"}
"""Samplers whose temperature is 0."""
WITH_MOMENTUM = {"sgdm", "sghmc"}
BLOCK_DRAWS = 2000
"""Draws per stored block of a low-dimensional target."""


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


@dataclass(frozen=True, kw_only=True)
class Method:
    """One task under one sampler and one schedule, with everything resolved but repeat and chain."""

    task: Task
    name: str
    sampler: str
    schedule: Schedule
    spec: ChainSpec
    """For repeat 0, chain 0; `chain` gives the others."""
    length: int
    """Epochs, or steps of a density."""

    def chain(self, repeat: int, chain: int) -> ChainSpec:
        """The spec of one chain."""
        return dataclasses.replace(self.spec, repeat=repeat, chain=chain)

    def noise(self) -> str:
        """One line on the noise that sampling injects, as a standard deviation per step."""
        kept = next(
            (k for k in range(self.schedule.steps, 0, -1) if self.schedule.at(k).stage == schedules.SAMPLING), 1
        )
        first = next((k for k in range(1, kept + 1) if self.schedule.at(k).stage == schedules.SAMPLING), kept)
        stds = []
        for k in (first, kept):
            setting = self.schedule.at(k)
            p = torch.nn.Parameter(torch.zeros(1))
            s = samplers.build(self.spec.sampler, [p], lr=setting.lr, temperature=setting.temperature, seed=0)
            stds.append(s.effective_noise_std())
        return (
            f"{self.sampler}, {self.spec.schedule.kind}: noise sd {stds[0]:.2g} → {stds[1]:.2g} per step while sampling"
        )


def defaults(task: str) -> Defaults:
    """The settings of a named task."""
    if task not in tasks.NAMES:
        raise unknown_name("task", task, tasks.NAMES)
    return DEFAULTS[task]


def make_task(options: Sampling, task: str) -> Task:
    """The task, with the data root checked before anything else is."""
    defaults(task)
    if options.data_root is not None:
        data_root(options.data_root)
    return tasks.make(task)


def repeats_and_lanes(options: Sampling, task: Task, name: str) -> tuple[int, int]:
    """How many repeats there are, and how many of them one process stacks."""
    repeats = options.repeats if options.repeats is not None else defaults(name).repeats
    positive_int("repeats", repeats)
    if not task.supports_lanes:
        require(
            options.lanes in (None, 1), "lanes", options.lanes, f"be 1 for task {name}: its parameters do not stack"
        )
        return repeats, 1
    lanes = options.lanes if options.lanes is not None else repeats
    positive_int("lanes", lanes)
    require(repeats % lanes == 0, "lanes", lanes, f"divide the number of repeats ({repeats})")
    return repeats, lanes


def resolve(options: Sampling, *, task: Task, name: str, sampler: str, schedule: str, halve: bool = False) -> Method:
    """Everything that one method's chains need, from what the person gave and the task's defaults.

    Args:
        options: what the person gave; None means the default.
        task: the built task.
        name: its name, for the defaults.
        sampler: sgd, sgdm, sgld or sghmc.
        schedule: cyclical or decreasing.
        halve: half the epochs or steps, as Table 2's cheaper arm has.

    Raises:
        UserError: a setting out of range.
    """
    if sampler not in samplers.KINDS:
        raise unknown_name("sampler", sampler, samplers.KINDS)
    if schedule not in schedules.KINDS:
        raise unknown_name("schedule", schedule, schedules.KINDS)
    base = defaults(name)
    length, batch_size, steps_per_epoch = _length(options, base, task, name)
    if halve:
        unit = "epochs" if base.epochs else "steps"
        require(length % 2 == 0, unit, length, f"be even: one arm runs half as many {unit}")
        length //= 2
    steps = length * steps_per_epoch
    temperature = 1.0 if options.temperature is None else options.temperature
    if sampler in NOISE_FREE:
        temperature = 0.0
    lr = options.lr if options.lr is not None else base.lr[(schedule, sampler)]
    positive("lr", lr)
    thinning = options.thinning if options.thinning is not None else steps_per_epoch
    made = _schedule(
        schedule, options, base, steps=steps, lr=lr, temperature=temperature, thinning=thinning, epochs=length
    )
    part = _sampler(sampler, options, base, task)
    parameter = torch.nn.Parameter(torch.zeros(1))
    samplers.build(
        part, [parameter], lr=made.at(1).lr, temperature=made.temperature, seed=0
    )  # refuses what is out of range
    _, lanes = repeats_and_lanes(options, task, name)
    positive_int("cpus_per_chain", options.cpus_per_chain)
    spec = ChainSpec(
        task=task.spec(), sampler=part, schedule=made.part(), steps=steps, steps_per_epoch=steps_per_epoch,
        batch_size=batch_size, seed=options.seed, repeat=0, chain=0, threads=options.cpus_per_chain, lanes=lanes,
        block_draws=BLOCK_DRAWS if task.low_dimensional else 0,
    )  # fmt: skip
    return Method(task=task, name=name, sampler=sampler, schedule=made, spec=spec, length=length)


def _length(options: Sampling, base: Defaults, task: Task, name: str) -> tuple[int, int, int]:
    """Epochs (or steps), batch size, steps per epoch."""
    if base.epochs is None:
        require(
            options.epochs is None,
            "epochs",
            options.epochs,
            f"be left out for task {name}, which has no data: give steps",
        )
        require(
            options.batch_size is None,
            "batch_size",
            options.batch_size,
            f"be left out for task {name}, which has no data",
        )
        steps = options.steps if options.steps is not None else base.steps
        assert steps is not None
        positive_int("steps", steps)
        return steps, 1, 1
    require(options.steps is None, "steps", options.steps, f"be left out for task {name}, which has data: give epochs")
    batch_size = options.batch_size if options.batch_size is not None else base.batch_size
    positive_int("batch_size", batch_size)
    require(
        batch_size <= task.num_data,
        "batch_size",
        batch_size,
        f"lie in [1, {task.num_data}], the number of training data",
    )
    epochs = options.epochs if options.epochs is not None else base.epochs
    positive_int("epochs", epochs)
    return epochs, batch_size, math.ceil(task.num_data / batch_size)


def _schedule(
    kind: str,
    options: Sampling,
    base: Defaults,
    *,
    steps: int,
    lr: float,
    temperature: float,
    thinning: int,
    epochs: int,
) -> Schedule:
    if kind == "cyclical":
        made = Cyclical(
            lr=lr,
            steps=steps,
            temperature=temperature,
            cycles=options.cycles if options.cycles is not None else base.cycles,
            exploration=options.exploration if options.exploration is not None else base.exploration,
            samples_per_cycle=options.samples_per_cycle,
            thinning=thinning,
        )
        if options.samples_per_cycle is None and base.samples_per_cycle is not None:
            # The default gives way to a short sampling stage; what a person asks for does not.
            made = dataclasses.replace(made, samples_per_cycle=min(made.room, base.samples_per_cycle))
        return made
    how = base.decreasing
    if "decay" not in how:
        return Decreasing(a=lr, b=0.0, gamma=how["gamma"], steps=steps, temperature=temperature, thinning=thinning)
    room = math.ceil((steps - math.ceil(how["noise_from"] * steps - 1e-9)) / thinning)
    return Decreasing.between(
        lr=lr,
        final_lr=lr / how["decay"],
        gamma=how["gamma"],
        steps=steps,
        temperature=temperature,
        noise_from=how["noise_from"],
        samples=max(1, min(room, round(epochs / how["epochs_per_sample"]))),
        thinning=thinning,
    )


def _sampler(kind: str, options: Sampling, base: Defaults, task: Task) -> Part:
    settings: dict[str, Any] = {"num_data": task.num_data}
    settings["weight_decay"] = base.weight_decay if options.weight_decay is None else options.weight_decay
    if kind in WITH_MOMENTUM:
        settings["momentum"] = base.momentum if options.momentum is None else options.momentum
    settings = {name: float(v) if name != "num_data" and is_number(v) else v for name, v in settings.items()}
    return Part(kind=kind, revision=samplers.KINDS[kind].revision, settings=settings)


def check_used(options: Sampling, chosen: Iterable[str]) -> None:
    """Refuse a setting that none of the chosen samplers has.

    Raises:
        UserError: momentum without a sampler that has it, or a temperature without one that injects noise.
    """
    names = set(chosen)
    if options.momentum is not None and not names & WITH_MOMENTUM:
        raise UserError(
            f"momentum must be left out for {' and '.join(sorted(names))}, got {options.momentum}: sgdm and sghmc have it"
        )
    if options.temperature and names <= NOISE_FREE:
        raise UserError(
            f"temperature must be 0 for {' and '.join(sorted(names))}, got {options.temperature}: no noise is injected"
        )


def check_chains(chains: int) -> None:
    """Refuse fewer than one chain."""
    positive_int("chains", chains)
