"""Expand a preset's variants and the user's options into a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from raychains import samplers
from raychains.core import settings_parser
from raychains.core.config import Compare
from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec
from raychains.planning import Arm, Comparison, compatible, methods
from raychains.planning.presets.named import Preset, Variant, named
from raychains.samplers import MethodPreset
from raychains.tasks.from_options import make_task

if TYPE_CHECKING:
    from raychains.tasks import Task

SETTINGS = ("sampler_settings", "schedule_settings", "task_settings")
"""Options that hold further settings as NAME=VALUE: the user's and the preset's are joined."""
CONFLICTS: Mapping[str, tuple[str, ...]] = {"exploration": ("burn_in",)}
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


@dataclass(frozen=True, kw_only=True)
class MethodArm:
    """An arm of a method's chains, before they are listed."""

    method: methods.Method
    name: str
    """As `Arm.name`; ``label``, ``published`` and ``variables`` likewise."""
    label: str
    chains: int
    """Of each group of repeats."""
    family: str = ""
    """As `Arm.sampler`; empty is the sampler's kind."""
    noise: str = ""
    """Begins the line on the noise that the method injects; empty leaves that out."""
    published: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()

    @property
    def arm(self) -> Arm:
        """The arm with the specs of its chains."""
        method, chains = self.method, range(self.chains)
        return Arm(
            name=self.name,
            label=self.label,
            sampler=self.family or method.spec.sampler.kind,
            schedule=method.spec.schedule.kind,
            chains=tuple(tuple(method.chain(group, c) for c in chains) for group in range(method.groups)),
            length=method.length,
            published=self.published,
            variables=self.variables,
        )


def planned(task: str, arms: Sequence[MethodArm], *, notes: Sequence[str] = (), split: str | None = None) -> Planned:
    """Return the comparison of arms of one task, evaluated on its usual split unless told otherwise.

    Args:
        notes: lines to begin with.

    Raises:
        UserError: more chains in all arms than a plan can list.
    """
    compatible.check_total(sum(one.chains * one.method.groups for one in arms))
    members: dict[str, ChainSpec] = {}
    starts: dict[str, Mapping[str, Tensor] | None] = {}
    notes = [*notes]
    for one in arms:
        members |= one.method.members_of(range(one.method.groups), range(one.chains))
        starts[one.method.start.digest or ""] = one.method.start.tensors
        notes += one.method.notes(one.noise)
    unit, usual = methods.unit_and_split(arms[-1].method.task)
    comparison = Comparison(
        task=task, unit=unit, split=split or usual, arms=tuple(one.arm for one in arms), starts=members
    )
    first, *further = starts.values()
    return Planned(comparison, list(dict.fromkeys(notes)), first, [start for start in further if start is not None])


def of_preset(options: Compare, task: Task | None = None) -> Planned:
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
    presets = {variant.sampler: samplers.method(variant.sampler) for variant in preset.variants}
    kinds = [schedule_of(preset, variant, presets[variant.sampler]) for variant in preset.variants]
    common = _over(options, {n: v for n, v in preset.options.items() if n in SETTINGS or _left_out(options, n)})
    compatible.check_used(common, presets, kinds)
    tasks: dict[Any, Task] = {}
    made: list[MethodArm] = []
    seen: set[str] = set()
    for variant, schedule in zip(preset.variants, kinds, strict=True):
        own = _over(common, variant.options)
        if own.task_settings not in tasks:
            tasks[own.task_settings] = make_task(own, preset.task, task)
        method = methods.resolve(own, task=tasks[own.task_settings], sampler=variant.sampler, schedule=schedule)
        label = ", ".join(filter(None, [presets[variant.sampler].label, variant.label]))
        made.append(
            MethodArm(
                method=method,
                name=f"{method.spec.sampler.kind}-{schedule}-{own.chains}x{method.length}-{variant.name}",
                label=label,
                chains=own.chains,
                noise="" if method.spec.digest in seen else label,
                variables=variant.variables,
            )
        )
        seen.add(method.spec.digest)
    return planned(preset.task, made, notes=[f"preset {preset.name}: {preset.about}"])


def schedule_of(preset: Preset, variant: Variant, method: MethodPreset) -> str:
    """Return the schedule of a preset's arm, of which ``method`` is the method."""
    if variant.schedule and method.takes(variant.schedule):
        return variant.schedule
    return method.schedule if method.fixed else preset.schedule


def _refuse_its_own(options: Compare, preset: Preset, task: Task | None) -> None:
    """Refuse the options that the preset sets itself, and those that its arms differ in."""
    own = {"sampler": options.sampler, "schedule": options.schedule}
    wrong: dict[str, Any] = {n: " ".join(v) for n, v in own.items() if tuple(v) != DEFAULTS[n]}
    if task is not None or options.task not in (DEFAULTS["task"], preset.task):
        wrong = {"task": options.task, **wrong}
    theirs = {name: settings_parser.values(getattr(options, name)) for name in SETTINGS}
    for variant in preset.variants:
        for name, value in variant.options.items():
            if name in SETTINGS:
                ours = settings_parser.texts(value)
                wrong |= {f"{name} {n}": theirs[name][n] for n in ours if n in theirs[name]}
                continue
            for other in (name, *CONFLICTS.get(name, ())):
                if not _left_out(options, other):
                    wrong[other] = getattr(options, other)
    for name, value in wrong.items():
        raise UserError(
            f"{name} must be left out beside preset {preset.name}, got {value!r}: the preset sets it for all of its "
            "arms"
        )


def _over(options: Compare, values: Mapping[str, Any]) -> Compare:
    """Return ``options`` with other values; of further settings, those that ``options`` has stay as they are."""
    joined = {name: settings_parser.texts(values[name]) for name in SETTINGS if name in values}
    for name, new in joined.items():
        new |= settings_parser.texts(getattr(options, name))
    return dataclasses.replace(options, **{**values, **joined})


def _left_out(options: Compare, name: str) -> bool:
    return bool(getattr(options, name) == DEFAULTS[name])
