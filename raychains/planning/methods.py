"""Methods: a name, a task and options give a `ChainSpec`. Options come before the method's settings, those before the task's."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from raychains import priors, samplers, schedules, tasks
from raychains.chain import last_layer, packable, planned_network
from raychains.chain.planned_network import Start
from raychains.chain.precision import check_task, not_exact
from raychains.core.config import Common, Run, Sampling
from raychains.core.errors import UserError, require
from raychains.core.spec import MOST_ROWS, ChainSpec, EarlyStop, Part
from raychains.core.user_code import is_path, source_of
from raychains.core.validation import integer, is_int
from raychains.data.root import root_of
from raychains.planning import ensemble_start, per_sampler, settings
from raychains.planning.ensemble_start import EnsembleStart
from raychains.priors import Gaussian, Prior
from raychains.samplers import MethodPreset
from raychains.schedules import NonCyclical, Schedule
from raychains.schedules.base import steps_in
from raychains.tasks import Task, splits
from raychains.tasks.base import check_decay
from raychains.tasks.defaults import Defaults
from raychains.tasks.defaults import defaults_of as defaults

MOST_CHAINS = 10_000
"""Chains of all arms and repeats of one plan, which lists every one of them."""
MOST_REPEATS = 1_000_000
"""Lanes hold more repeats than a plan could list chains."""
LONGER = 1000
"""Epochs, or steps of a density, by which a chain that is too short for its cycles is tried longer."""
BLOCK_DRAWS = 2000
"""Draws per stored block of a low-dimensional target."""

named = samplers.method


def noise_free(name: str) -> bool:
    """Return whether a method optimises: its temperature is 0."""
    return samplers.KINDS[named(name).kind].noisy_counterpart is not None


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
    """Epochs (steps of a density) that cost as many gradients as the chain at one gradient per step."""
    start: Start
    members: Method | None = None
    """The deep ensemble: the chain of a repeat and a number starts at the member of the same."""

    def chain(self, repeat: int, chain: int) -> ChainSpec:
        """Return the spec of one chain."""
        member = self.member(repeat, chain)
        start = member.digest if member is not None else None
        return dataclasses.replace(self.spec, repeat=repeat, chain=chain, start_chain=start)

    def member(self, repeat: int, chain: int) -> ChainSpec | None:
        """Return the spec of the chain that one chain starts at; None where it starts at none."""
        return self.members.chain(repeat, chain) if self.members is not None else None

    def members_of(self, repeats: Iterable[int], chains: Iterable[int]) -> dict[str, ChainSpec]:
        """Return the chains by digest that those of these numbers start at."""
        found = [self.member(repeat, chain) for repeat in repeats for chain in chains]
        return {spec.digest: spec for spec in found if spec is not None}

    def noise(self) -> str:
        """Return a line on the noise that sampling injects, as a standard deviation per step."""
        stds = []
        for k in self.schedule.sampling_ends():
            now, p = self.schedule.at(k), torch.nn.Parameter(torch.zeros(1))
            s = samplers.build(self.spec.sampler, [p], lr=now.lr, temperature=now.temperature, seed=0)
            stds.append(s.effective_noise_std())
        kind = self.spec.schedule.kind
        if not any(stds):
            return f"{self.sampler}, {kind}: no noise is added to the parameters"
        return f"{self.sampler}, {kind}: noise sd {stds[0]:.2g} → {stds[1]:.2g} per step while sampling"

    def _of_split(self) -> list[str]:
        """Return a line on results of a task without test examples."""
        split = unit_and_split(self.task)[1]
        what = {
            "train": "no examples but the training set's: results say nothing about others",
            "val": "no test examples: results are on the split val, which is held out from training",
        }
        return [what[split]] if split in what else []

    def _of_prior(self) -> list[str]:
        """Return a line on the prior of a user's network."""
        own = self.spec.sampler.settings
        if self.spec.prior is not None:
            prior = priors.from_json(self.spec.prior.to_json())
        elif tasks.is_own(self.spec.task) and not self.task.low_dimensional and own.get("weight_decay"):
            prior = Gaussian(std=1 / math.sqrt(own["num_data"] * own["weight_decay"]))
        else:
            return []
        return [f"prior: {priors.in_words(prior)}"]

    def notes(self) -> list[str]:
        """Return lines on its data, its prior, its chains' start and whether they are reproducible, for the printed plan."""
        packed = [f"{self.sampler}: chains run in packs of {self.spec.pack}"] if self.spec.pack > 1 else []
        return [
            *self.task.data_notes,
            *self._of_split(),
            *self._of_prior(),
            *self.start.notes,
            *packed,
            *([] if self.spec.exact else [not_exact(self.spec)]),
        ]


def make_task(options: Sampling, task: str, given_task: Task | None = None) -> Task:
    """Make the task of a name, with the data root checked before anything else is; or take the one passed as an object.

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
    # A user's function need not have the argument: the task that it makes is divided.
    divided = task not in tasks.NAMES and not tasks.takes(kind, "val_split")
    own = {"train_subset": options.train_subset, **({} if divided else {"val_split": options.val_split})}
    given |= settings.own_options(task, kind, given, **own)
    settings.check_known("task_settings", given, [kind])
    held = {"val_split": options.val_split} if divided and options.val_split else {}
    return tasks.make(task, **settings.pick(given, kind), **held)


def unit_and_split(task: Task) -> tuple[str, str]:
    """Return the unit of chains' lengths and the split that arms are evaluated on."""
    return ("steps", "target") if task.low_dimensional else ("epochs", splits.evaluated(task.splits()))


def repeats_and_lanes(options: Sampling, task: Task, name: str) -> tuple[int, int]:
    """Return how many repeats there are, and how many of them one process stacks."""
    repeats = settings.layered(options.repeats, defaults(name, task).repeats)
    require(repeats <= MOST_REPEATS, "repeats", repeats, f"be at most {MOST_REPEATS}")
    if not task.supports_lanes:
        allowed = f"be 1 for task {name}: its parameters do not stack"
        require(options.lanes in (None, 1), "lanes", options.lanes, allowed)
        return repeats, 1
    lanes = settings.layered(options.lanes, repeats)
    require(repeats % lanes == 0, "lanes", lanes, f"divide the number of repeats ({repeats})")
    return repeats, lanes


def resolve(
    options: Sampling, *, task: Task, name: str, sampler: str, schedule: str | None = None, halve: bool = False
) -> Method:
    """Resolve everything that one method's chains need: options, else the method's settings, else the task's defaults.

    Args:
        schedule: the schedule's; None is the method's own.
        halve: half the epochs or steps, as Table 2's cheaper arm has.

    Raises:
        UserError: a setting out of range.
    """
    method = named(sampler)
    base = defaults(name, task).of(method.kind)
    measures = issubclass(samplers.KINDS[method.kind], samplers.LastLayerLaplace)
    if measures:
        last_layer.check_task(task, name)
    schedule = schedules.KINDS.find(settings.layered(schedule, method.schedule)).kind
    options = dataclasses.replace(options, init_from=ensemble_start.start_of(options.init_from, method, task))
    ensemble = ensemble_start.ensemble_start(options.init_from)
    early_stop = method.early_stop
    if early_stop is not None:
        options, early_stop, halve = _stopping_early(options, early_stop, ensemble, task, name)
        ensemble = None
    of_all, options = options, per_sampler.chosen(options, sampler)
    examples = task.num_data - (early_stop.held_out(task.num_data) if early_stop is not None else 0)
    lengths = _lengths(options, base, task, name, method, halve, examples)
    temperature = 0.0 if noise_free(sampler) else settings.layered(options.temperature, base.temperature)
    lr = settings.layered(options.lr, base.rate(schedule, method.kind), method.settings.get("lr"))
    if lr is None:
        raise UserError(f"lr must be given for sampler {sampler}: task {name} has no step size for it")
    prior = _prior(options, base, task, name, method)
    part = _sampler(method, options, base, task, lengths, examples, prior)
    if method.draws is not None and options.thinning is None and not task.low_dimensional:
        left = lengths.steps - part.settings.get("tune", 0)
        options = dataclasses.replace(options, thinning=max(1, left // method.draws))
    made = _warmed_up(
        _schedule(schedule, options, base, method, lengths, lr, temperature), part.settings.get("tune", 0)
    )
    parameter = torch.nn.Parameter(torch.zeros(1))
    # Refuses what is out of range, before anything is started.
    built = samplers.build(part, [parameter], lr=made.at(1).lr, temperature=made.temperature, seed=0)
    _, lanes = repeats_and_lanes(options, task, name)
    fitting = "keep" if samplers.KINDS[method.kind].statistics_fit else "reestimate"
    if ensemble is None:
        start, members = _start(options, task, name, lanes), None
    else:
        start, members = _members(of_all, task, name)
    spec = ChainSpec(
        task=task.spec(),
        sampler=part,
        schedule=made.part(),
        steps=lengths.steps,
        steps_per_epoch=lengths.steps_per_epoch,
        batch_size=lengths.batch_size,
        seed=options.seed,
        repeat=0,
        chain=0,
        threads=options.cpus_per_chain,
        lanes=lanes,
        block_draws=BLOCK_DRAWS if task.low_dimensional else 0,
        batchnorm=settings.layered(options.batchnorm, fitting),
        precision=options.precision,  # type: ignore[arg-type]
        compile=options.compile,  # type: ignore[arg-type]
        exact=options.exact and not options.fast and options.compile == "none",
        start=start.digest,
        start_chain=members.spec.digest if members is not None else None,
        sample_only=start.sample_only,
        micro_batch=_micro_batch(options, task, name, lengths.batch_size, built.parts),
        early_stop=early_stop,
        prior=None if prior is None or _everywhere(prior) else Part.from_json(prior.to_json()),
    )
    if measures:
        last_layer.check_planned(spec, task)
    spec = dataclasses.replace(spec, pack=_pack(options, spec, task, name))
    check_task(spec, task, name)
    return Method(
        task=task,
        name=name,
        sampler=sampler,
        schedule=made,
        spec=spec,
        length=lengths.length,
        start=start,
        members=members,
    )


def _stopping_early(
    options: Sampling, preset: EarlyStop, ensemble: EnsembleStart | None, task: Task, name: str
) -> tuple[Sampling, EarlyStop, bool]:
    """Return the options of chains that stop early, with their one sample at the end; when they do; and that no arm halves them.

    Where ``init_from`` describes the ensemble, they are the very members that other arms' chains start at.

    Raises:
        UserError: a density, or a chain of several workers.
    """
    require(
        not task.low_dimensional,
        "sampler",
        ensemble_start.METHOD,
        f"be another one for task {name}: a density has no examples to hold out",
    )
    value = options.micro_batch if options.micro_batch is not None else workers_of(options)[0]
    field = "micro_batch" if options.micro_batch is not None else workers_field(options)
    whole = "be left out with a deep ensemble, whose members have a worker each"
    require(options.micro_batch is None and value == 1, field, value, whole)
    if ensemble is not None:
        options = ensemble_start.of_members(options, ensemble)
        preset = dataclasses.replace(preset, patience=ensemble.patience or preset.patience)
    last = ("samples=1", "noise_from=0.0")
    return dataclasses.replace(options, schedule_settings=last, burn_in=None), preset, False


# Lengths and the sampler


@dataclass(frozen=True, kw_only=True)
class _Lengths:
    """The length of a chain."""

    length: int
    """Epochs, or steps of a density, as a cost: with two gradients per step half as many are made."""
    gradients: int
    """Per step."""
    steps: int
    steps_per_epoch: int
    batch_size: int

    def burn_in(self, length: Any) -> int:
        """Return the steps without noise of a burn-in in the unit of ``length``."""
        require(
            is_int(length) and 0 <= length < self.length, "burn_in", length, f"be an integer in [0, {self.length - 1}]"
        )
        return length * self.steps_per_epoch // self.gradients


def _lengths(
    options: Sampling, base: Defaults, task: Task, name: str, method: MethodPreset, halve: bool, examples: int
) -> _Lengths:
    """Return how long the chain is, at the method's gradient evaluations per step, on ``examples`` of the training data."""
    gradients = samplers.KINDS[method.kind].gradients_per_step
    if base.epochs is None:
        no_data = f"be left out for task {name}, which has no epochs"
        require(options.epochs is None, "epochs", options.epochs, f"{no_data}: give steps")
        batch_size = task.minibatch
        if task.takes_batch_size:
            batch_size = settings.layered(options.batch_size, base.batch_size)
            integer("batch_size", batch_size, 1, task.num_data)
            exact = f"be {task.num_data}, all rows, for a method that tunes itself, or beside another sampler, as sghmc"
            require(not method.tuned or batch_size == task.num_data, "batch_size", batch_size, exact)
        else:
            require(options.batch_size is None, "batch_size", options.batch_size, no_data)
        unit, length, per_epoch = "steps", settings.layered(options.steps, base.steps), 1
    else:
        allowed = f"be left out for task {name}, which has data: give epochs"
        require(options.steps is None, "steps", options.steps, allowed)
        most = task.num_data
        batch_size = settings.layered(options.batch_size, most if method.full_batch else base.batch_size)
        require(batch_size <= most, "batch_size", batch_size, f"lie in [1, {most}], the number of training data")
        batch_size = min(batch_size, examples)
        length = settings.layered(options.epochs, base.epochs)
        unit, per_epoch = "epochs", math.ceil(examples / batch_size)
    assert length is not None
    given = length
    if halve:
        require(length % 2 == 0, unit, length, f"be even: one arm runs half as many {unit}")
        length //= 2
    steps, rest = divmod(length * per_epoch, gradients)
    if rest:
        even = "a multiple of 4" if halve else "even"
        raise UserError(f"{unit} must be {even} for a method with two gradients per step, got {given}")
    return _Lengths(length=length, gradients=gradients, steps=steps, steps_per_epoch=per_epoch, batch_size=batch_size)


def _sampler(
    method: MethodPreset,
    options: Sampling,
    base: Defaults,
    task: Task,
    lengths: _Lengths,
    examples: int,
    prior: Prior | None,
) -> Part:
    """Return the sampler with every setting resolved, so that a later change of a default changes no spec."""
    kind = samplers.KINDS[method.kind]
    names = settings.names_of(kind)
    values: dict[str, Any] = {n: inspect.signature(kind).parameters[n].default for n in names}
    values["num_data"] = examples
    values["weight_decay"] = settings.layered(options.weight_decay, base.weight_decay)
    if prior is not None:
        values["weight_decay"] = (
            1 / (examples * prior.std**2) if isinstance(prior, Gaussian) and _everywhere(prior) else 0.0
        )
    check_decay(task, values["weight_decay"])
    if "momentum" in names and values["momentum"] is inspect.Parameter.empty:
        values["momentum"] = base.momentum
    if "collect_every" in names:
        values["collect_every"] = lengths.steps_per_epoch
    if method.tuned:
        values["tune"] = steps_in(method.tuned, lengths.steps)
    values.update(base.sampler_settings.get(method.kind, {}))
    values.update(method.settings.get("sampler_settings", {}))
    if "momentum" in names and options.momentum is not None:
        values["momentum"] = options.momentum
    chosen = settings.pick(settings.read("sampler_settings", options.sampler_settings), kind)
    for name in chosen.keys() & {"momentum", "weight_decay"}:
        given = getattr(options, name)
        require(
            given in (None, chosen[name]), name, given, f"be given once: sampler_settings has {name}={chosen[name]}"
        )
    if prior is not None and "weight_decay" in chosen:
        raise UserError(f"prior must be left out beside weight_decay={chosen['weight_decay']} of sampler_settings")
    values.update(chosen)
    omitted = kind.omitted_defaults
    values = {n: settings.as_float(kind, n, v) for n, v in values.items() if n not in omitted or v != omitted[n]}
    return Part(kind=method.kind, revision=kind.revision, settings=values, source=source_of(kind))


DECAYING = ("laplace", "bsam")
"""Samplers that need weight decay beside gradients."""


def _prior(options: Sampling, base: Defaults, task: Task, name: str, method: MethodPreset) -> Prior | None:
    """Return the prior that the options, else the task's defaults, state; None where weight decay is the prior.

    Raises:
        UserError: a task that has one of its own, weight decay beside it, or one that does not fit the network.
    """
    texts = options.prior or (base.prior if options.weight_decay is None else ())
    if not texts:
        return None
    shown = " ".join(texts)
    given = options.weight_decay
    require(given is None, "weight_decay", given, "be left out beside `prior`: the prior counts once")
    require(not task.low_dimensional, "prior", shown, f"be left out for task {name}: it is a density")
    own = task.prior is not None or task.own_prior
    require(not own, "prior", shown, f"be left out for task {name}, which has a prior of its own")
    found = priors.read(texts)
    if not _everywhere(found):
        ok = method.kind not in DECAYING
        require(ok, "prior", shown, f"be gaussian:STD for {method.kind}, whose variances take in a weight decay")
    if options.init_from is None or not options.sample_only:
        planned_network.check_prior(task, found, shown)
    return found


def _everywhere(prior: Prior) -> bool:
    """Return whether a prior is one Gaussian on all parameters, which is a weight decay."""
    return isinstance(prior, Gaussian) and prior.match == "*"


# The schedule

ALSO_OPTIONS = {"ramp": "temperature_ramp", "noise_from": "burn_in", "a": "lr"}
"""Settings of schedules that an option of another name says, too."""


def _warmed_up(made: Schedule, tune: int) -> Schedule:
    """Return the schedule with nothing kept of the ``tune`` steps with noise in which the sampler tunes itself.

    Raises:
        UserError: a schedule with cycles, or too few steps for draws behind them.
    """
    if not tune:
        return made
    if not isinstance(made, NonCyclical):
        raise UserError(
            f"schedule must be one without cycles for a sampler that tunes itself, got {made.kind}: give constant, or tune=0"
        )
    steps = made.burn_in + tune
    require(steps < made.steps, "tune", tune, f"leave some of the {made.steps} steps for draws")
    share = max(made.warm_up, NonCyclical.noise_from_steps(steps, steps=made.steps))
    left = dataclasses.replace(made, samples=None, warm_up=share)
    samples = None if made.samples is None else min(left.room, made.samples)
    return dataclasses.replace(left, samples=samples)


def _schedule(
    kind: str, options: Sampling, base: Defaults, method: MethodPreset, lengths: _Lengths, lr: float, temperature: float
) -> Schedule:
    """Return the schedule of one method.

    Raises:
        UserError: a setting out of range, or β and a burn-in both.
    """
    if options.burn_in is not None and options.exploration is not None:
        raise UserError(
            f"burn_in must be left out beside `exploration`, got {options.burn_in}: both say how long no noise is"
        )
    apart = max(1, round(lengths.steps_per_epoch * (base.cycle_thinning if kind == "cyclical" else 1)))
    fields: dict[str, Any] = {"steps": lengths.steps, "temperature": temperature}
    fields["thinning"] = settings.layered(options.thinning, apart)
    if options.temperature_ramp is not None:
        fields["ramp"] = options.temperature_ramp
    given = settings.pick(settings.read("schedule_settings", options.schedule_settings), schedules.KINDS[kind])
    for name, value in given.items():
        option = ALSO_OPTIONS.get(name, name)
        other = getattr(options, option, None)
        once = f"be given once: schedule_settings has {name}={value}"
        require(other is None or (other == value and option == name), option, other, once)
    own = method.settings if kind == method.schedule else {}
    if method.last_epoch_measures:
        own = {**own, "burn_in": lengths.length - 1}
    try:
        if kind == "cyclical":
            return _cyclical(options, base, own, lengths, {**fields, "lr": lr, **given})
        return _non_cyclical(kind, options, base, method, own, lengths, lr, fields, given)
    except UserError as error:
        if options.temperature_ramp is None or not str(error).startswith("ramp must"):
            raise
        raise UserError(f"temperature_{error}") from None


def _cyclical(
    options: Sampling, base: Defaults, own: Mapping[str, Any], lengths: _Lengths, fields: dict[str, Any]
) -> Schedule:
    cycles = settings.layered(options.cycles, own.get("cycles"), base.cycles)
    exploration = settings.layered(options.exploration, own.get("exploration"), base.exploration)
    if options.burn_in is not None:
        cycle, silent = math.ceil(lengths.steps / max(1, cycles)), lengths.burn_in(options.burn_in)
        require(
            silent < cycle, "burn_in", options.burn_in, f"be shorter than a cycle, one of {cycles} in {lengths.length}"
        )
        exploration = silent / cycle
    chosen = {"cycles": cycles, "exploration": exploration, "samples_per_cycle": options.samples_per_cycle}
    try:
        made = schedules.Cyclical(**{**chosen, **fields})
    except UserError as error:
        asked = [options.cycles, options.exploration, options.burn_in, *(chosen.keys() & fields.keys())]
        if any(given is not None for given in asked) or not str(error).startswith(
            ("cycles must be at most", "exploration must leave")
        ):
            raise
        unit = "steps" if base.epochs is None else "epochs"
        each = lengths.steps_per_epoch / lengths.gradients
        longer = range(lengths.length + 1, lengths.length + LONGER)
        least = next((n for n in longer if _fits({**chosen, **fields, "steps": int(n * each)})), None)
        if least is None:
            raise
        why = f"by default a chain has {cycles} cycles, with noise in {1 - exploration:.0%} of each"
        raise UserError(f"{unit} must be at least {least}, got {lengths.length}: {why}") from None
    if made.samples_per_cycle is None and base.samples_per_cycle is not None:
        # The default gives way to a short sampling stage; an option does not.
        samples = own.get("samples_per_cycle", base.samples_per_cycle)
        made = dataclasses.replace(made, samples_per_cycle=min(made.room, samples))
    return made


def _fits(settings: Mapping[str, Any]) -> bool:
    """Return whether there is a cyclical schedule with these settings."""
    try:
        schedules.Cyclical(**settings)
    except UserError:
        return False
    return True


def _non_cyclical(
    kind: str,
    options: Sampling,
    base: Defaults,
    method: MethodPreset,
    own: Mapping[str, Any],
    lengths: _Lengths,
    lr: float,
    fields: dict[str, Any],
    given: dict[str, Any],
) -> Schedule:
    """Return a schedule with the task's share without noise and its number of samples, whatever the shape of the step size."""
    how = base.decreasing
    fields = {"noise_from": how.get("noise_from", 0.0), **fields}
    burn_in = settings.layered(options.burn_in, own.get("burn_in"))
    if burn_in is not None:
        burn_in = lengths.burn_in(burn_in)
        fields["noise_from"] = NonCyclical.noise_from_steps(burn_in, steps=lengths.steps)
    final = {"linear": lr / 100, "exponential": lr / 100}.get(kind)
    make: Any = schedules.KINDS[kind]
    if kind == "decreasing":
        fields["gamma"] = how["gamma"]
        named = " and ".join(sorted({"a", "b"} & given.keys()))
        if ("decay" in how or options.final_lr is not None) and not named:
            make, final = make.between, lr / how.get("decay", 1.0)
        else:
            fields |= {"a": lr, "b": 0.0}
            why = f"be left out beside the schedule's {named}, which says how the step size falls"
            require(options.final_lr is None, "final_lr", options.final_lr, why)
    if "a" not in fields:
        fields["lr"] = lr
    if final is not None:
        fields["final_lr"] = settings.layered(options.final_lr, final)
    if kind == "step":
        fields |= {"milestones": (0.5, 0.75), "factor": 0.1}
    if is_path(kind):  # an own schedule need not have all of them
        fields = {n: value for n, value in fields.items() if n in {f.name for f in dataclasses.fields(make)}}
    schedule: Schedule = make(**{**fields, **given})
    if "epochs_per_sample" in how and isinstance(schedule, NonCyclical) and schedule.samples is None:
        epochs = lengths.length / lengths.gradients
        # The draws of a method that says how many are spread over its steps: all there is room for.
        samples = schedule.room if method.draws is not None else round(epochs / how["epochs_per_sample"])
        schedule = dataclasses.replace(schedule, samples=max(1, min(schedule.room, samples)))
    return schedule


# Execution: the start, workers and micro-batches


def _start(options: Sampling, task: Task, name: str, lanes: int) -> Start:
    """Return the start that the options name.

    Raises:
        UserError: as `planned_network.start_of`, or ``sample_only`` without it or of a density.
    """
    patterns, file = " ".join(options.sample_only), options.init_from
    stays = "be left out without `init_from`: the other parameters stay where that file has them"
    require(file is not None or not patterns, "sample_only", patterns, stays)
    density = f"be left out for task {name}: it is a density"
    require(not (patterns and task.low_dimensional), "sample_only", patterns, density)
    if file is None:
        return Start()
    strict, only = options.init_strict, options.sample_only
    return planned_network.start_of(task, file, strict=strict, sample_only=only, lanes=lanes)


def _members(options: Sampling, task: Task, name: str) -> tuple[Start, Method]:
    """Return the deep ensemble that ``init_from`` names, whose members chains start at.

    Raises:
        UserError: a setting of its members out of range, a density, or a pattern that matches no parameter.
    """
    density = f"be a file for task {name}: a density has no examples for a deep ensemble to hold out"
    require(not task.low_dimensional, "init_from", options.init_from, density)
    plain = dataclasses.replace(options, compile="none")  # in packs they are not compiled
    members = resolve(plain, task=task, name=name, sampler=ensemble_start.METHOD)
    if options.compile != "none" and not members.spec.pack:
        members = resolve(options, task=task, name=name, sampler=ensemble_start.METHOD)
    chosen = tuple(sorted(set(options.sample_only)))
    notes = [planned_network.sampled_note(task, chosen)] if chosen else []
    stop = members.spec.early_stop
    assert stop is not None
    about = (
        f"each chain starts at a member of a deep ensemble: {members.spec.sampler.kind}, at most {members.length} epochs, stopped "
        f"after {stop.patience} without a lower loss on the {stop.share:.0%} of the training data that it holds out"
    )
    return Start(sample_only=chosen, notes=(about, *notes)), members


def schedule_of(options: Run, method: MethodPreset, base: Defaults) -> str:
    """Return the schedule of a method: as given, else the task's own, else the method's."""
    return options.schedule or (None if method.fixed else base.schedule) or method.schedule


def workers_of(options: Common) -> tuple[int, float | None]:
    """Return the workers of each chain and the GPUs of each; whole GPUs of a chain above one are workers of one each.

    Raises:
        UserError: both are given and do not fit, or a number out of range.
    """
    gpus, workers = options.gpus_per_chain, options.workers_per_chain
    if gpus is None or gpus <= 1 or gpus != int(gpus):
        # Two ranks on one GPU cannot exchange anything by nccl.
        fits = workers in (None, 1) or gpus in (None, 0, 1)
        require(fits, "gpus_per_chain", gpus, f"be 0 or 1 for each of several workers, or {workers}, their number")
        return workers or 1, gpus
    fits = workers is None or workers == gpus
    require(fits, "workers_per_chain", workers, f"be left out or {gpus:g} beside `gpus_per_chain={gpus:g}`")
    return int(gpus), 1.0


def workers_field(options: Common) -> str:
    """Return the option that says how many workers a chain has."""
    return "workers_per_chain" if options.workers_per_chain is not None else "gpus_per_chain"


def _micro_batch(options: Sampling, task: Task, name: str, batch_size: int, parts: int) -> int | None:
    """Return the examples of a micro-batch, None where a batch is taken whole; the sampler divides one into ``parts``.

    Raises:
        UserError: a density, a sampler that divides batches itself, or a number out of range.
    """
    workers, _ = workers_of(options)
    size = options.micro_batch
    if size is None and workers == 1:
        return None
    field, value = (workers_field(options), workers) if size is None else ("micro_batch", size)
    require(not task.low_dimensional, field, value, f"be left out for task {name}: it is a density")
    require(parts == 1, field, value, "be left out for samplers that divide a batch themselves (m_sharpness)")
    if size is None:
        size = math.ceil(batch_size / workers)
    else:
        ok = is_int(size) and 1 <= size <= batch_size
        require(ok, "micro_batch", size, f"be an integer from 1 to the batch size ({batch_size})")
    pieces = math.ceil(batch_size / size)
    require(workers <= pieces, workers_field(options), workers, f"be at most the micro-batches of a batch ({pieces})")
    return size


PACKED, SMALL = 20, 50_000
"""Chains of a pack, and parameters of a chain, up to which ``auto`` packs.

Measured on one thread of a CPU, SGHMC, by CPU time per chain and step against chains by themselves (`benchmarks/packs.py`):
with 20 chains 2.5 times as fast at 17,610 parameters in batches of 50, 3.4 times at 946 on 1,202 data; an earlier version with 5
chains 2.0 and 2.4 times, with one chain alone .9 and 1.4 times. Of samplers that move each chain by itself, with 20 chains at 17,610
parameters: SAM 1.9, bSAM 1.5, Laplace 1.1 times. Larger networks spend their steps in their products.
"""


def _pack(options: Sampling, spec: ChainSpec, task: Task, name: str) -> int:
    """Return the width of the chains' packs; 0 steps each by itself.

    Raises:
        UserError: a width for chains that cannot be packed, or no width.
    """
    compiled = task.low_dimensional and spec.compile != "none"  # packs do that
    if options.pack == "none" and not compiled:
        return 0
    workers, _ = workers_of(options)
    repeats, _ = repeats_and_lanes(options, task, name)
    why = packable.refusal(dataclasses.replace(spec, pack=1), task)
    if compiled:
        require(why is None, "compile", spec.compile, f"be none for task {name} here: {why}")
    if options.pack == "none":
        return 1
    if options.pack == "auto":
        width = min(PACKED, options.chains * repeats)
        if compiled:
            return width
        if width == 1 or workers > 1 or task.low_dimensional or why is not None:
            return 0
        return width if planned_network.parameters_of(task) <= SMALL else 0
    allowed = f"be auto, none or the number of chains in a pack, at most {MOST_ROWS}"
    ok = options.pack.isdecimal() and 1 <= int(options.pack) <= MOST_ROWS
    require(ok, "pack", options.pack, allowed)
    require(workers == 1, "pack", options.pack, "be none for chains of several workers")
    require(why is None, "pack", options.pack, f"be left out for this chain: {why}")
    return int(options.pack)


# Checks


def check_used(options: Sampling, chosen: Iterable[str], schedules_chosen: Iterable[str | None]) -> None:
    """Refuse a setting that none of the chosen methods and schedules has.

    Raises:
        UserError: momentum without a sampler that has it, a temperature without one that injects noise, or an unknown name
            among the further settings.
    """
    names = list(chosen)
    usual = [named(n).settings.get("init_from") for n in names] if options.init_from is None else [options.init_from]
    starts = [ensemble_start.METHOD] if any(map(ensemble_start.ensemble_start, usual)) else []
    per_sampler.check(options, [*names, *starts])
    kinds = [samplers.KINDS[named(n).kind] for n in names]
    text = " and ".join(sorted(set(names)))
    if options.momentum is not None and not any("momentum" in settings.names_of(k) for k in kinds):
        having = ", ".join(k for k, c in samplers.KINDS.items() if "momentum" in settings.names_of(c))
        raise UserError(f"momentum must be left out for {text}, got {options.momentum}: {having} have it")
    heated = [n for n in names if per_sampler.value(options, "temperature", n)]
    if heated and all(noise_free(n) for n in names):
        raise UserError(f"temperature must be 0 for {text}, got {options.temperature}: no noise is injected")
    settings.check_known("sampler_settings", settings.read("sampler_settings", options.sampler_settings), kinds)
    used = {s if s is not None else named(n).schedule for n in names for s in schedules_chosen}
    used |= {named(n).schedule for n in names if named(n).fixed}
    found = [schedules.KINDS.find(s) for s in used]
    settings.check_known("schedule_settings", settings.read("schedule_settings", options.schedule_settings), found)


OF_SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "cycles": ("cyclical",),
    "exploration": ("cyclical",),
    "samples_per_cycle": ("cyclical",),
    "final_lr": ("decreasing", "linear", "exponential"),
}
"""Options that only these schedules read."""


def check_scheduled(options: Sampling, kinds: Collection[str]) -> None:
    """Refuse an option that none of these schedules reads.

    Raises:
        UserError: such an option is given.
    """
    for name, having in OF_SCHEDULES.items():
        given = getattr(options, name)
        if given is not None and not set(having) & set(kinds):
            text = f"schedule{'s' * (len(kinds) > 1)} {', '.join(kinds)}"
            raise UserError(f"{name} must be left out for {text}, got {given}: it is an option of {', '.join(having)}")


def check_chains(chains: int) -> None:
    """Refuse more chains than a plan can list."""
    require(chains <= MOST_CHAINS, "chains", chains, f"be at most {MOST_CHAINS}")


def check_total(chains: int) -> None:
    """Refuse a plan of more chains, those of all arms and repeats, than can be listed in reasonable time."""
    if chains > MOST_CHAINS:
        raise UserError(
            f"chains × repeats of all arms must be at most {MOST_CHAINS}, got {chains}: split the comparison into several runs"
        )
