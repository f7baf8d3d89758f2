"""The settings of one method's chains, in layers: the user's options come before the method's, those before the
task's."""

from __future__ import annotations

import dataclasses
import inspect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

from raychains import priors, samplers, schedules
from raychains.core import settings_parser
from raychains.core.config import Sampling
from raychains.core.spec import EarlyStop, Part
from raychains.core.user_code import source_of
from raychains.planning import ensemble_start, per_sampler
from raychains.planning.ensemble_start import EnsembleStart
from raychains.priors import Gaussian, Prior
from raychains.samplers import MethodPreset, Sampler
from raychains.schedules.schedule import steps_in
from raychains.tasks import Task, name_of
from raychains.tasks.defaults import Defaults
from raychains.tasks.user_defaults import defaults_of


def layered(*values: Any) -> Any:
    """Return the first value that is given, not None: the user's, else the method's, else the task's, else a default;
    None without one."""
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The length of a chain."""

    unit: str
    """``epochs``, or ``steps`` of a density."""
    given: int
    """As the user or the task says, before an arm halves it."""
    length: int
    """In the unit, as a cost: with two gradients per step half as many are made."""
    gradients: int
    """Per step."""
    steps: int
    steps_per_epoch: int
    batch_size: int

    @property
    def halved(self) -> bool:
        """Whether the arm makes half of the epochs or steps."""
        return self.length != self.given

    def burn_in(self, length: int) -> int:
        """Return the steps without noise of a burn-in in the unit of ``length``."""
        return length * self.steps_per_epoch // self.gradients


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The parts of a chain without noise and with it."""

    cycles: int
    exploration: float
    """Share of each cycle without noise."""
    samples_per_cycle: int | None
    """The default's, as far as there is room; None keeps all of them."""
    burn_in: int | None
    """Epochs or steps without noise: at the start of a chain without cycles, else in each cycle."""


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """What the chains of one task under one method and one schedule are made from."""

    options: Sampling
    """The user's, with numbers where they have texts by sampler."""
    of_all: Sampling
    """The user's, as they hold for all samplers of a comparison."""
    task: Task
    sampler: str
    """The method's name."""
    method: MethodPreset
    base: Defaults
    """The task's defaults under the sampler."""
    schedule: str
    """The schedule's kind."""
    ensemble: EnsembleStart | None
    """The deep ensemble at whose members the chains start."""
    early_stop: EarlyStop | None
    examples: int
    """The training examples that the chain steps on, without those held out for ``early_stop``."""
    lengths: Lengths
    stages: Stages
    lr: float | None
    """None where neither the user nor the task gives one."""
    temperature: float
    prior: Prior | None
    """None where weight decay is the prior."""
    repeats: int
    lanes: int
    """Repeats that one process stacks."""

    @cached_property
    def name(self) -> str:
        """The task's name."""
        return name_of(self.task)

    @property
    def kind(self) -> type[Sampler]:
        """The sampler's class."""
        return samplers.KINDS[self.method.kind]

    @property
    def micro_batch(self) -> int | None:
        """The examples of a micro-batch, by default each worker's share of a batch; None where a batch is taken
        whole."""
        size, workers = self.options.micro_batch, self.options.workers
        return math.ceil(self.lengths.batch_size / workers) if size is None and workers > 1 else size

    @property
    def prior_text(self) -> str:
        """The prior as the user, or the task, wrote it."""
        return " ".join(self.options.prior or self.base.prior)

    @cached_property
    def of_sampler(self) -> dict[str, Any]:
        """The user's further settings of the sampler, given as NAME=VALUE."""
        return settings_parser.of_kind(self.options.sampler_settings, self.kind)

    @cached_property
    def of_schedule(self) -> dict[str, Any]:
        """The user's further settings of the schedule, given as NAME=VALUE."""
        kind = schedules.KINDS[self.schedule]
        return settings_parser.of_kind(self.options.schedule_settings, kind)


def settings_of(
    options: Sampling, *, task: Task, sampler: str, schedule: str | None = None, halve: bool = False
) -> MethodSettings:
    """Return a method's settings; `raychains.planning.compatible.check` says whether they fit together.

    Args:
        schedule: the schedule's; None is the method's own.
        halve: half the epochs or steps, as Table 2's cheaper arm has.

    Raises:
        UserError: an unknown schedule, or a text of an option that cannot be read.
    """
    method = samplers.method(sampler)
    base = defaults_of(task).of(method.kind)
    schedule = schedules.KINDS.find(layered(schedule, method.schedule)).kind
    options = dataclasses.replace(options, init_from=ensemble_start.init_from(options.init_from, method, task))
    ensemble, early_stop = ensemble_start.ensemble_start(options.init_from), method.early_stop
    if early_stop is not None:
        options, early_stop = ensemble_start.stopping_early(options, early_stop)
        ensemble, halve = None, False
    of_all, options = options, per_sampler.chosen(options, sampler)
    held_out = early_stop.held_out(task.num_data) if early_stop is not None and not task.low_dimensional else 0
    texts = options.prior or (base.prior if options.weight_decay is None else ())
    prior = priors.read(texts) if texts else None
    lr = layered(options.lr, base.rate(schedule, method.kind), method.settings.get("lr"))
    optimiser = samplers.KINDS[method.kind].noisy_counterpart is not None
    repeats = layered(options.repeats, base.repeats)
    lengths = _lengths(options, base, task, method, task.num_data - held_out, halve)
    return MethodSettings(
        options=options,
        of_all=of_all,
        task=task,
        sampler=sampler,
        method=method,
        base=base,
        schedule=schedule,
        ensemble=ensemble,
        early_stop=early_stop,
        examples=task.num_data - held_out,
        lengths=lengths,
        stages=_stages(options, base, method, schedule, lengths),
        lr=lr,
        temperature=0.0 if optimiser else layered(options.temperature, base.temperature),
        prior=prior,
        repeats=repeats,
        lanes=layered(options.lanes, repeats) if task.supports_lanes else 1,
    )


def _lengths(
    options: Sampling, base: Defaults, task: Task, method: MethodPreset, examples: int, halve: bool
) -> Lengths:
    """Return how long the chain is, at the method's gradient evaluations per step, on ``examples`` of the training
    data."""
    gradients = samplers.KINDS[method.kind].gradients_per_step
    if base.epochs is None:
        batch_size = layered(options.batch_size, base.batch_size) if task.takes_batch_size else task.minibatch
        unit, given, per_epoch = "steps", layered(options.steps, base.steps), 1
    else:
        asked = layered(options.batch_size, task.num_data if method.full_batch else base.batch_size)
        batch_size = min(asked, examples)
        unit, given, per_epoch = "epochs", layered(options.epochs, base.epochs), math.ceil(examples / batch_size)
    length = given // 2 if halve else given
    return Lengths(
        unit=unit,
        given=given,
        length=length,
        gradients=gradients,
        steps=length * per_epoch // gradients,
        steps_per_epoch=per_epoch,
        batch_size=batch_size,
    )


def _stages(options: Sampling, base: Defaults, method: MethodPreset, schedule: str, lengths: Lengths) -> Stages:
    own = method.settings if schedule == method.schedule else {}
    of_method = lengths.length - 1 if method.last_epoch_measures else own.get("burn_in")
    return Stages(
        cycles=layered(options.cycles, own.get("cycles"), base.cycles),
        exploration=layered(options.exploration, own.get("exploration"), base.exploration),
        samples_per_cycle=base.samples_per_cycle and own.get("samples_per_cycle", base.samples_per_cycle),
        burn_in=layered(options.burn_in, None if schedule == "cyclical" else of_method),
    )


def sampler_of(s: MethodSettings) -> Part:
    """Return the sampler with every setting resolved, so that a later change of a default changes no spec."""
    kind, method, base, options = s.kind, s.method, s.base, s.options
    names = settings_parser.names_of(kind)
    values: dict[str, Any] = {n: inspect.signature(kind).parameters[n].default for n in names}
    values["num_data"] = s.examples
    values["weight_decay"] = layered(options.weight_decay, base.weight_decay)
    if s.prior is not None:
        values["weight_decay"] = 1 / (s.examples * s.prior.std**2) if everywhere(s.prior) else 0.0
    if "momentum" in names and values["momentum"] is inspect.Parameter.empty:
        values["momentum"] = base.momentum
    if "collect_every" in names:
        values["collect_every"] = s.lengths.steps_per_epoch
    if method.tuned:
        values["tune"] = steps_in(method.tuned, s.lengths.steps)
    values.update(base.sampler_settings.get(method.kind, {}))
    values.update(method.settings.get("sampler_settings", {}))
    if "momentum" in names and options.momentum is not None:
        values["momentum"] = options.momentum
    values.update(s.of_sampler)
    omitted = kind.omitted_defaults
    values = {n: settings_parser.as_float(kind, n, v) for n, v in values.items() if n not in omitted or v != omitted[n]}
    return Part(kind=method.kind, revision=kind.revision, settings=values, source=source_of(kind))


def everywhere(prior: Prior) -> TypeGuard[Gaussian]:
    """Return whether a prior is one Gaussian on all parameters, which is a weight decay."""
    return isinstance(prior, Gaussian) and prior.match == "*"
