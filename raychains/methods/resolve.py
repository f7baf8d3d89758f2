"""Names and numbers to a `ChainSpec`: the only way to a spec. What a person gives comes before the method, that before the task."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from raychains import samplers, schedules, tasks
from raychains.data.root import root_of
from raychains.errors import UserError, require, unknown_name
from raychains.execution import check_task, not_exact
from raychains.methods import settings
from raychains.methods.defaults import Defaults, defaults
from raychains.methods.names import METHODS, Named, named, noise_free
from raychains.methods.shape import Lengths, make_schedule
from raychains.methods.start import Start, start_of
from raychains.methods.workers import check_decoders, micro_batch_of
from raychains.options import Sampling
from raychains.schedules import Schedule
from raychains.schedules.base import LARGEST_LR, positive, positive_int
from raychains.spec import ChainSpec, Part
from raychains.tasks import Task
from raychains.tasks.base import check_decay

MOST_CHAINS = 10_000
"""Chains of all arms and repeats of one plan: a plan lists every one of them."""
MOST_REPEATS = 1_000_000
"""Lanes hold more repeats than a plan could list chains."""
BLOCK_DRAWS = 2000
"""Draws per stored block of a low-dimensional target."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One task under one method and one schedule, with everything resolved but repeat and chain."""

    task: Task
    name: str
    """The task's."""
    sampler: str
    """The method's name."""
    schedule: Schedule
    spec: ChainSpec
    """For repeat 0, chain 0; `chain` gives the others."""
    length: int
    """Epochs, or steps of a density, that the chain's gradients would be with one gradient per step."""
    start: Start
    """Where its chains start."""

    def chain(self, repeat: int, chain: int) -> ChainSpec:
        """The spec of one chain."""
        return dataclasses.replace(self.spec, repeat=repeat, chain=chain)

    def noise(self) -> str:
        """One line on the noise that sampling injects, as a standard deviation per step."""
        stds = []
        for k in self.schedule.sampling_ends():
            setting = self.schedule.at(k)
            p = torch.nn.Parameter(torch.zeros(1))
            s = samplers.build(self.spec.sampler, [p], lr=setting.lr, temperature=setting.temperature, seed=0)
            stds.append(s.effective_noise_std())
        return (
            f"{self.sampler}, {self.spec.schedule.kind}: noise sd {stds[0]:.2g} → {stds[1]:.2g} per step while sampling"
        )

    def notes(self) -> list[str]:
        """Lines on its data, where its chains start and whether they are reproducible, for the printed plan."""
        return [*self.task.data_notes, *self.start.notes, *([] if self.spec.exact else [not_exact(self.spec)])]


def make_task(options: Sampling, task: str, given_task: Task | None = None) -> Task:
    """The task of a name, with the data root checked before anything else is; or the one that was given as an object.

    Raises:
        UserError: an unknown task or setting, or a value that it refuses.
    """
    if given_task is not None:
        for field in ("task_settings", "train_subset"):
            value = getattr(options, field)
            require(not value, field, value, "be left out beside a task that is given as an object: make it with them")
        made = given_task if options.val_split is None else given_task.holding_out(options.val_split)
        return given_task if made is given_task else tasks.give(made)  # evaluators find it by its spec
    kind = tasks.kind_of(task)
    if options.data_root is not None:
        root_of(options.data_root)
    given = settings.read("task_settings", options.task_settings)
    # What makes a person's own task need not know of it: the task that it makes is divided.
    divided = task not in tasks.NAMES and not tasks.takes(kind, "val_split")
    own = {"train_subset": options.train_subset, **({} if divided else {"val_split": options.val_split})}
    given |= settings.own_options("task", task, kind, given, **own)
    settings.check_known("task_settings", given, [kind])
    held = {"val_split": options.val_split} if divided and options.val_split else {}
    return tasks.make(task, **settings.pick(given, kind), **held)


def repeats_and_lanes(options: Sampling, task: Task, name: str) -> tuple[int, int]:
    """How many repeats there are, and how many of them one process stacks."""
    repeats = options.repeats if options.repeats is not None else defaults(name, task).repeats
    positive_int("repeats", repeats)
    require(repeats <= MOST_REPEATS, "repeats", repeats, f"be at most {MOST_REPEATS}")
    if not task.supports_lanes:
        require(
            options.lanes in (None, 1), "lanes", options.lanes, f"be 1 for task {name}: its parameters do not stack"
        )
        return repeats, 1
    lanes = options.lanes if options.lanes is not None else repeats
    positive_int("lanes", lanes)
    require(repeats % lanes == 0, "lanes", lanes, f"divide the number of repeats ({repeats})")
    return repeats, lanes


def resolve(
    options: Sampling, *, task: Task, name: str, sampler: str, schedule: str | None = None, halve: bool = False
) -> Method:
    """Everything that one method's chains need, from what the person gave, the method and the task's defaults.

    Args:
        options: what the person gave; None means the default.
        task: the built task.
        name: its name, for the defaults.
        sampler: the method's name.
        schedule: the schedule's; None is the method's own.
        halve: half the epochs or steps, as Table 2's cheaper arm has.

    Raises:
        UserError: a setting out of range.
    """
    method = named(sampler)
    base = defaults(name, task).of(method.kind)
    schedule = schedule if schedule is not None else method.schedule
    if schedule not in schedules.KINDS:
        raise unknown_name("schedule", schedule, schedules.KINDS)
    lengths = _lengths(options, base, task, name, samplers.KINDS[method.kind].gradients_per_step, halve)
    temperature = base.temperature if options.temperature is None else options.temperature
    if noise_free(sampler):
        temperature = 0.0
    lr = options.lr if options.lr is not None else base.rate(schedule, method.kind)
    positive("lr", lr)
    require(lr <= LARGEST_LR, "lr", lr, f"be at most {LARGEST_LR:g}")
    made = make_schedule(schedule, options, base, method, lengths, lr=lr, temperature=temperature)
    part = _sampler(method, options, base, task)
    parameter = torch.nn.Parameter(torch.zeros(1))
    # Refuses what is out of range, before anything is started.
    built = samplers.build(part, [parameter], lr=made.at(1).lr, temperature=made.temperature, seed=0)
    _, lanes = repeats_and_lanes(options, task, name)
    positive_int("cpus_per_chain", options.cpus_per_chain)
    fitting = "keep" if samplers.KINDS[method.kind].statistics_fit else "reestimate"
    start = start_of(options, task, name, lanes)
    spec = ChainSpec(
        task=task.spec(), sampler=part, schedule=made.part(), steps=lengths.steps, steps_per_epoch=lengths.steps_per_epoch,
        batch_size=lengths.batch_size, seed=options.seed, repeat=0, chain=0, threads=options.cpus_per_chain, lanes=lanes,
        block_draws=BLOCK_DRAWS if task.low_dimensional else 0,
        batchnorm=options.batchnorm if options.batchnorm is not None else fitting,  # type: ignore[arg-type]
        precision=options.precision, compile=options.compile, exact=not options.fast and options.compile == "none",  # type: ignore[arg-type]
        start=start.digest, sample_only=start.sample_only,
        micro_batch=micro_batch_of(options, task, name, lengths.batch_size, built.parts),
    )  # fmt: skip
    check_task(spec, task, name)
    check_decoders(options, task, name)
    return Method(task=task, name=name, sampler=sampler, schedule=made, spec=spec, length=lengths.length, start=start)


def _lengths(options: Sampling, base: Defaults, task: Task, name: str, gradients: int, halve: bool) -> Lengths:
    """How long the chain is, at ``gradients`` gradient evaluations per step."""
    if base.epochs is None:
        no_data = f"be left out for task {name}, which has no epochs"
        require(options.epochs is None, "epochs", options.epochs, f"{no_data}: give steps")
        require(options.batch_size is None, "batch_size", options.batch_size, no_data)
        unit, length, batch_size, per_epoch = "steps", options.steps, task.minibatch, 1
        length = length if length is not None else base.steps
    else:
        require(
            options.steps is None, "steps", options.steps, f"be left out for task {name}, which has data: give epochs"
        )
        batch_size = options.batch_size if options.batch_size is not None else base.batch_size
        positive_int("batch_size", batch_size)
        most = task.num_data
        require(batch_size <= most, "batch_size", batch_size, f"lie in [1, {most}], the number of training data")
        unit, length, per_epoch = "epochs", options.epochs, math.ceil(most / batch_size)
        length = length if length is not None else base.epochs
    assert length is not None
    positive_int(unit, length)
    if halve:
        require(length % 2 == 0, unit, length, f"be even: one arm runs half as many {unit}")
        length //= 2
    steps, rest = divmod(length * per_epoch, gradients)
    if rest:
        raise UserError(f"{unit} must be even for a method with two gradients per step, got {length}")
    return Lengths(length=length, gradients=gradients, steps=steps, steps_per_epoch=per_epoch, batch_size=batch_size)


def _sampler(method: Named, options: Sampling, base: Defaults, task: Task) -> Part:
    """The sampler with every setting resolved, so that a later change of a default changes no spec."""
    kind = samplers.KINDS[method.kind]
    names = settings.names_of(kind)
    values: dict[str, Any] = {n: inspect.signature(kind).parameters[n].default for n in names}
    values["num_data"] = task.num_data
    values["weight_decay"] = base.weight_decay if options.weight_decay is None else options.weight_decay
    check_decay(task, values["weight_decay"])
    if "momentum" in names and values["momentum"] is inspect.Parameter.empty:
        values["momentum"] = base.momentum
    values.update(base.sampler_settings.get(method.kind, {}))
    if "momentum" in names and options.momentum is not None:
        values["momentum"] = options.momentum
    values.update(settings.pick(settings.read("sampler_settings", options.sampler_settings), kind))
    values = {n: settings.as_float(kind, n, v) for n, v in values.items() if n not in kind.later or v != kind.later[n]}
    return Part(kind=method.kind, revision=kind.revision, settings=values)


def check_used(options: Sampling, chosen: Iterable[str], schedules_chosen: Iterable[str | None]) -> None:
    """Refuse a setting that none of the chosen methods and schedules has.

    Raises:
        UserError: momentum without a sampler that has it, a temperature without one that injects noise, or an unknown name
            among the further settings.
    """
    names = list(chosen)
    kinds: list[Any] = [samplers.KINDS[named(n).kind] for n in names]
    text = " and ".join(sorted(set(names)))
    if options.momentum is not None and not any("momentum" in settings.names_of(k) for k in kinds):
        having = ", ".join(k for k, c in samplers.KINDS.items() if "momentum" in settings.names_of(c))
        raise UserError(f"momentum must be left out for {text}, got {options.momentum}: {having} have it")
    if options.temperature and all(noise_free(n) for n in names):
        raise UserError(f"temperature must be 0 for {text}, got {options.temperature}: no noise is injected")
    given = settings.read("sampler_settings", options.sampler_settings)
    settings.check_known("sampler_settings", given, kinds)
    wanted = {s if s is not None else named(n).schedule for n in names for s in schedules_chosen}
    wanted |= {METHODS[n].schedule for n in names if METHODS[n].fixed}
    found: list[Any] = [schedules.KINDS[s] for s in wanted if s in schedules.KINDS]
    given = settings.read("schedule_settings", options.schedule_settings)
    settings.check_known("schedule_settings", given, found)


def check_chains(chains: int) -> None:
    """Refuse fewer than one chain, and more than a plan can list."""
    positive_int("chains", chains)
    require(chains <= MOST_CHAINS, "chains", chains, f"be at most {MOST_CHAINS}")


def check_total(chains: int) -> None:
    """Refuse a plan of more chains, those of all arms and repeats, than can be listed in reasonable time."""
    if chains > MOST_CHAINS:
        raise UserError(
            f"chains × repeats of all arms must be at most {MOST_CHAINS}, got {chains}: split the comparison into several runs"
        )
