"""Refuse options that do not fit the task, the method or one another, before anything is built from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from raychains import samplers, schedules
from raychains.chain import last_layer
from raychains.core import settings_parser
from raychains.core.config import MOST_CHAINS, Sampling
from raychains.core.errors import UserError, require
from raychains.core.spec import Part
from raychains.planning import ensemble_start, per_sampler
from raychains.planning.method_settings import MethodSettings, everywhere
from raychains.samplers import MethodPreset
from raychains.tasks.base import check_decay

DECAYING = ("laplace", "bsam")
"""Samplers that need weight decay beside gradients."""
ALSO_OPTIONS = {"ramp": "temperature_ramp", "noise_from": "burn_in", "a": "lr"}
"""Settings of schedules that an option of another name says, too."""
OF_SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "cycles": ("cyclical",),
    "exploration": ("cyclical",),
    "samples_per_cycle": ("cyclical",),
    "final_lr": ("decreasing", "linear", "exponential"),
}
"""Options that only these schedules read."""


Rule = tuple[bool, str, object, str]
"""Whether it holds, the option, its value, and what is allowed, as `require` takes them."""


def check(s: MethodSettings, sampler: Part) -> None:
    """Refuse settings that do not fit the task, the method or one another; ``sampler`` has all of the sampler's.

    Raises:
        UserError: such a setting, named as the user wrote it.
    """
    for rules in RULES:
        for rule in rules(s):
            require(*rule)
    if s.lr is None:
        raise UserError(f"lr must be given for sampler {s.sampler}: task {s.name} has no step size for it")
    check_decay(s.task, sampler.settings.get("weight_decay", 0.0))


def _of_last_layer(s: MethodSettings) -> Iterator[Rule]:
    if issubclass(s.kind, samplers.LastLayerLaplace):
        why = last_layer.refusal(s.task)
        yield why is None, "sampler", s.kind.kind, f"be another one for task {s.name}: {why}"


def _of_density(s: MethodSettings) -> Iterator[Rule]:
    """What only networks have."""
    if not s.task.low_dimensional:
        return
    options, density = s.options, f"be left out for task {s.name}: it is a density"
    no_examples = f"be another one for task {s.name}: a density has no examples to hold out"
    yield s.early_stop is None, "sampler", ensemble_start.METHOD, no_examples
    no_members = f"be a file for task {s.name}: a density has no examples for a deep ensemble to hold out"
    yield s.ensemble is None, "init_from", options.init_from, no_members
    yield s.prior is None, "prior", s.prior_text, density
    yield not options.sample_only, "sample_only", " ".join(options.sample_only), density
    yield options.micro_batch is None, "micro_batch", options.micro_batch, density
    yield options.workers == 1, options.workers_field, options.workers, density


def _of_early_stop(s: MethodSettings) -> Iterator[Rule]:
    if s.early_stop is None:
        return
    options, whole = s.options, "be left out with a deep ensemble, whose members have a worker each"
    yield options.micro_batch is None, "micro_batch", options.micro_batch, whole
    yield options.workers == 1, options.workers_field, options.workers, whole


def _of_lengths(s: MethodSettings) -> Iterator[Rule]:
    options, lengths, most = s.options, s.lengths, s.task.num_data
    asked, given, unit = options.batch_size, lengths.given, lengths.unit
    if s.base.epochs is None:
        no_data = f"be left out for task {s.name}, which has no epochs"
        yield options.epochs is None, "epochs", options.epochs, f"{no_data}: give steps"
        yield asked is None or s.task.takes_batch_size, "batch_size", asked, no_data
        part = s.method.tuned and s.task.takes_batch_size and lengths.batch_size != most
        exact = f"be {most}, all rows, for a method that tunes itself: other samplers, such as sghmc, take minibatches"
        yield not part, "batch_size", lengths.batch_size, exact
    else:
        no_steps = f"be left out for task {s.name}, which has data: give epochs"
        yield options.steps is None, "steps", options.steps, no_steps
    fits = asked is None or asked <= most
    yield fits, "batch_size", asked, f"lie in [1, {most}], the number of training data"
    yield not lengths.halved or given % 2 == 0, unit, given, f"be even: one arm runs half as many {unit}"
    whole = lengths.length * lengths.steps_per_epoch % lengths.gradients == 0
    even = "a multiple of 4" if lengths.halved else "even"
    yield whole, unit, given, f"be {even} for a method with two gradients per step"
    once = options.burn_in is None or options.exploration is None
    yield once, "burn_in", options.burn_in, "be left out beside `exploration`: both say how long there is no noise"
    burn_in, longest = s.stages.burn_in, lengths.length - 1
    yield burn_in is None or burn_in <= longest, "burn_in", burn_in, f"be an integer in [0, {longest}]"
    if s.schedule == "cyclical" and burn_in is not None:
        cycle = math.ceil(lengths.steps / s.stages.cycles)
        shorter = f"be shorter than a cycle, one of {s.stages.cycles} in {lengths.length}"
        yield lengths.burn_in(burn_in) < cycle, "burn_in", burn_in, shorter


def _of_repeats(s: MethodSettings) -> Iterator[Rule]:
    lanes = s.options.lanes
    stacks = s.task.supports_lanes or lanes in (None, 1)
    yield stacks, "lanes", lanes, f"be 1 for task {s.name}: its parameters do not stack"
    yield s.repeats % s.lanes == 0, "lanes", lanes, f"divide the number of repeats ({s.repeats})"


def _of_prior(s: MethodSettings) -> Iterator[Rule]:
    if s.prior is None:
        return
    given = s.options.weight_decay
    yield given is None, "weight_decay", given, "be left out beside `prior`: the prior counts once"
    own = s.task.prior is not None or s.task.own_prior
    yield not own, "prior", s.prior_text, f"be left out for task {s.name}, which has a prior of its own"
    fits = everywhere(s.prior) or s.method.kind not in DECAYING
    yield fits, "prior", s.prior_text, f"be gaussian:STD for {s.method.kind}, whose variances contain the weight decay"


def _of_settings(s: MethodSettings) -> Iterator[Rule]:
    """What is given as an option and as NAME=VALUE."""
    for name in s.of_sampler.keys() & {"momentum", "weight_decay"}:
        given, value = getattr(s.options, name), s.of_sampler[name]
        yield given in (None, value), name, given, f"be given once: sampler_settings has {name}={value}"
    decay = s.of_sampler.get("weight_decay")
    both = s.prior is not None and decay is not None
    yield not both, "prior", s.prior_text, f"be left out beside weight_decay={decay} of sampler_settings"
    if named := " and ".join(sorted({"a", "b"} & s.of_schedule.keys())):
        falls = f"be left out beside the schedule's {named}, which says how the step size falls"
        yield s.options.final_lr is None, "final_lr", s.options.final_lr, falls
    for name, value in s.of_schedule.items():
        option = ALSO_OPTIONS.get(name, name)
        given = getattr(s.options, option, None)
        once = given is None or (given == value and option == name)
        yield once, option, given, f"be given once: schedule_settings has {name}={value}"


def _of_start(s: MethodSettings) -> Iterator[Rule]:
    patterns = s.options.sample_only
    stays = "be left out without `init_from`: the other parameters keep the values of that file"
    yield s.options.init_from is not None or not patterns, "sample_only", " ".join(patterns), stays


RULES = (_of_last_layer, _of_density, _of_early_stop, _of_lengths, _of_repeats, _of_prior, _of_settings, _of_start)


def check_micro_batch(s: MethodSettings, parts: int) -> None:
    """Refuse micro-batches that do not fit the batch, or a sampler that divides a batch into ``parts`` itself.

    Raises:
        UserError: such micro-batches, named as the user wrote them.
    """
    size, given, batch_size = s.micro_batch, s.options.micro_batch, s.lengths.batch_size
    if size is None:
        return
    field, workers = s.options.workers_field, s.options.workers
    asked, value = (field, workers) if given is None else ("micro_batch", given)
    require(parts == 1, asked, value, "be left out for samplers that divide a batch themselves (m_sharpness)")
    require(size <= batch_size, "micro_batch", size, f"be an integer from 1 to the batch size ({batch_size})")
    pieces = math.ceil(batch_size / size)
    require(workers <= pieces, field, workers, f"be at most the micro-batches of a batch ({pieces})")


def check_used(options: Sampling, presets: Mapping[str, MethodPreset], kinds_chosen: Iterable[str]) -> None:
    """Refuse a setting that none of the methods, by name, and of the kinds of schedules that arms have reads.

    Raises:
        UserError: momentum without a sampler that has it, a temperature without one that injects noise, an option of
            other schedules, or an unknown name among the further settings.
    """
    usual = (
        [p.settings.get("init_from") for p in presets.values()] if options.init_from is None else [options.init_from]
    )
    starts = [ensemble_start.METHOD] if any(map(ensemble_start.ensemble_start, usual)) else []
    per_sampler.check(options, [*presets, *starts])
    kinds = [samplers.KINDS[p.kind] for p in presets.values()]
    text = " and ".join(sorted(presets))
    if options.momentum is not None and not any("momentum" in settings_parser.names_of(k) for k in kinds):
        having = ", ".join(k for k, c in samplers.KINDS.items() if "momentum" in settings_parser.names_of(c))
        raise UserError(f"momentum must be left out for {text}, got {options.momentum}: {having} have it")
    heated = any(per_sampler.chosen(options, name).temperature for name in presets)
    if heated and all(kind.noisy_counterpart is not None for kind in kinds):
        raise UserError(f"temperature must be 0 for {text}, got {options.temperature}: no noise is injected")
    found = {kind: schedules.KINDS.find(kind) for kind in kinds_chosen}
    settings_parser.check_known("sampler_settings", options.sampler_settings, kinds)
    settings_parser.check_known("schedule_settings", options.schedule_settings, found.values())
    for name, reading in OF_SCHEDULES.items():
        given = getattr(options, name)
        if given is not None and found.keys().isdisjoint(reading):
            text = f"schedule{'s' * (len(found) > 1)} {', '.join(found)}"
            raise UserError(f"{name} must be left out for {text}, got {given}: it is an option of {', '.join(reading)}")


def check_total(chains: int) -> None:
    """Refuse a plan of more chains, those of all arms and repeats, than can be listed in reasonable time."""
    if chains > MOST_CHAINS:
        raise UserError(
            f"chains × repeats of all arms must be at most {MOST_CHAINS}, got {chains}: split the comparison into "
            "several runs"
        )
