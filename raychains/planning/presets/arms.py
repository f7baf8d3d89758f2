"""Expand a preset's variants and the user's options into a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from raychains.core.config import Compare
from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec
from raychains.planning import Arm, Comparison, methods
from raychains.planning.methods import settings
from raychains.planning.presets.named import Preset, Variant, named

if TYPE_CHECKING:
    from raychains.tasks import Task

SETTINGS = ("sampler_settings", "schedule_settings", "task_settings")
"""Options that hold further settings as NAME=VALUE: the user's and the preset's are joined."""
INSTEAD: Mapping[str, tuple[str, ...]] = {"exploration": ("burn_in",)}
"""Options that set the same in another way."""
DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in dataclasses.fields(Compare)}


@dataclass(frozen=True)
class Planned:
    """A comparison and the notes that are printed with it."""

    comparison: Comparison
    notes: list[str]
    start: Mapping[str, Tensor] | None = None
    """The start of all chains, or of the first arm's, to be published with them; None: each initialises itself."""
    further: Sequence[Mapping[str, Tensor]] = ()
    """The starts of other arms, of a comparison of checkpoints."""


def plan(options: Compare, task: Task | None = None) -> Planned:
    """Return the comparison of the preset that the options name.

    Every other option but task, sampler and schedule may be passed, as far as the arms do not differ in it.

    Raises:
        UserError: an unknown preset, an option that the preset sets itself, or a setting out of range.
    """
    preset = named(str(options.preset))
    _refuse_its_own(options, preset, task)
    return arms_of(preset, options)


def arms_of(preset: Preset, options: Compare, task: Task | None = None) -> Planned:
    """Return the comparison of a preset's arms, in the order of its variants.

    Args:
        task: the task of all arms where it is given as an object.

    Raises:
        UserError: a setting out of range.
    """
    methods.check_chains(options.chains)
    methods.check_used(_common(options, preset), [v.sampler for v in preset.variants], _schedules(preset))
    methods.check_scheduled(options, _schedules(preset))
    made: dict[Any, Task] = {}
    arms: list[Arm] = []
    starts: dict[str, ChainSpec] = {}
    seen: set[str] = set()
    notes, total = [f"preset {preset.name}: {preset.about}"], 0
    for variant in preset.variants:
        methods.check_used(_over(Compare(), variant.options), [variant.sampler], [_schedule(preset, variant)])
        own = _over(_common(options, preset), variant.options)
        if own.task_settings not in made:
            made[own.task_settings] = methods.make_task(own, preset.task, task)
        made_of, schedule = made[own.task_settings], _schedule(preset, variant)
        method = methods.resolve(own, task=made_of, name=preset.task, sampler=variant.sampler, schedule=schedule)
        repeats, lanes = methods.repeats_and_lanes(own, method.task, preset.task)
        total += own.chains * (repeats // lanes)
        methods.check_total(total)
        arm = _arm(preset, variant, method, own.chains, repeats // lanes)
        starts |= method.members(range(repeats // lanes), range(own.chains))
        notes += [f"warning: {w}" for w in method.schedule.warnings()]
        if method.spec.digest not in seen and not methods.noise_free(variant.sampler):
            notes.append(f"{arm.label}: {method.noise().partition(': ')[2]}")
        notes += method.notes()
        seen.add(method.spec.digest)
        arms.append(arm)
    unit, split = methods.unit_and_split(method.task)
    comparison = Comparison(task=preset.task, unit=unit, split=split, arms=tuple(arms), starts=starts)
    return Planned(comparison, list(dict.fromkeys(notes)), method.start.tensors)


def _arm(preset: Preset, variant: Variant, method: methods.Method, chains: int, groups: int) -> Arm:
    family, label = method.spec.sampler.kind, methods.named(variant.sampler).label
    schedule = _schedule(preset, variant)
    return Arm(
        name=f"{family}-{schedule}-{chains}x{method.length}-{variant.name}",
        label=f"{label}, {variant.label}" if variant.label else label,
        sampler=family,
        schedule=schedule,
        chains=tuple(tuple(method.chain(group, c) for c in range(chains)) for group in range(groups)),
        length=method.length,
        published={},
        variables=variant.variables,
    )


def _schedule(preset: Preset, variant: Variant) -> str:
    method = methods.named(variant.sampler)
    if variant.schedule and method.takes(variant.schedule):
        return variant.schedule
    return method.schedule if method.fixed else preset.schedule


def _schedules(preset: Preset) -> list[str]:
    return list(dict.fromkeys(_schedule(preset, variant) for variant in preset.variants))


def _refuse_its_own(options: Compare, preset: Preset, task: Task | None) -> None:
    """Refuse the options that the preset sets itself, and those that its arms differ in."""
    own = {"sampler": options.sampler, "schedule": options.schedule}
    wrong: dict[str, Any] = {n: " ".join(v) for n, v in own.items() if tuple(v) != DEFAULTS[n]}
    if task is not None or options.task not in (DEFAULTS["task"], preset.task):
        wrong = {"task": options.task, **wrong}
    for variant in preset.variants:
        for name, value in variant.options.items():
            if name in SETTINGS:
                ours = settings.read(name, value)
                theirs = settings.read(name, getattr(options, name))
                wrong |= {f"{name} {n}": theirs[n] for n in ours if n in theirs}
                continue
            for other in (name, *INSTEAD.get(name, ())):
                if not _left_out(options, other):
                    wrong[other] = getattr(options, other)
    for name, value in wrong.items():
        raise UserError(
            f"{name} must be left out beside preset {preset.name}, got {value!r}: the preset sets it for all of its arms"
        )


def _common(options: Compare, preset: Preset) -> Compare:
    """Return the user's options over those that all arms have."""
    return _over(options, {n: v for n, v in preset.options.items() if n in SETTINGS or _left_out(options, n)})


def _over(options: Compare, values: Mapping[str, Any]) -> Compare:
    """Return ``options`` with other values; further settings are joined to those that are there, which come first."""
    joined: dict[str, Any] = dict(values)
    for name in SETTINGS:
        if name in values:
            there = settings.read(name, getattr(options, name))
            new = [entry for entry in values[name] if settings.read(name, [entry]).keys().isdisjoint(there)]
            joined[name] = (*getattr(options, name), *new)
    return dataclasses.replace(options, **joined)


def _left_out(options: Compare, name: str) -> bool:
    return bool(getattr(options, name) == DEFAULTS[name])
