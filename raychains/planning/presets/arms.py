"""Expand a preset's variants and the user's options into a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from raychains import samplers
from raychains.core.config import Compare
from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec
from raychains.planning import Arm, Comparison, compatible, methods, settings_parser
from raychains.planning.method_settings import noise_free
from raychains.planning.presets.named import Preset, Variant, named

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


class ArmList:
    """Arms one after another, with what is planned and printed with them.

    Args:
        task: the task's name.
        notes: lines to begin with.
    """

    def __init__(self, task: str, notes: Sequence[str] = ()) -> None:
        self._task, self._notes = task, [*notes]
        self._arms: list[Arm] = []
        self._chains = 0
        self._members: dict[str, ChainSpec] = {}
        self._starts: dict[str, Mapping[str, Tensor] | None] = {}

    def add(
        self,
        method: methods.Method,
        *,
        name: str,
        label: str,
        chains: int,
        family: str | None = None,
        noise: str = "",
        published: Mapping[str, str] | None = None,
        variables: tuple[str, ...] = (),
    ) -> None:
        """Add the arm of a method.

        Args:
            name: as `Arm.name`; ``label``, ``published`` and ``variables`` likewise.
            chains: of each group of repeats.
            family: as `Arm.sampler`; default the sampler's kind.
            noise: a line on the noise that the method injects.

        Raises:
            UserError: more chains in all arms than a plan can list.
        """
        groups = method.groups
        self._chains += chains * groups
        compatible.check_total(self._chains)
        self._members |= method.members_of(range(groups), range(chains))
        self._notes += [*(f"warning: {w}" for w in method.schedule.warnings()), *filter(None, [noise]), *method.notes()]
        self._starts[method.start.digest or ""] = method.start.tensors
        self._arms.append(
            Arm(
                name=name,
                label=label,
                sampler=family or method.spec.sampler.kind,
                schedule=method.spec.schedule.kind,
                chains=tuple(tuple(method.chain(group, c) for c in range(chains)) for group in range(groups)),
                length=method.length,
                published=published or {},
                variables=variables,
            )
        )

    def planned(self, task: Task, split: str | None = None) -> Planned:
        """Return the comparison of the arms, of which ``task`` is one's; evaluated on its usual split unless told
        otherwise."""
        unit, usual = methods.unit_and_split(task)
        comparison = Comparison(
            task=self._task, unit=unit, split=split or usual, arms=tuple(self._arms), starts=self._members
        )
        first, *further = self._starts.values()
        return Planned(
            comparison, list(dict.fromkeys(self._notes)), first, [start for start in further if start is not None]
        )


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
    compatible.check_used(_common(options, preset), [v.sampler for v in preset.variants], _schedules(preset))
    compatible.check_scheduled(options, _schedules(preset))
    made: dict[Any, Task] = {}
    arms = ArmList(preset.task, [f"preset {preset.name}: {preset.about}"])
    seen: set[str] = set()
    for variant in preset.variants:
        own = _over(_common(options, preset), variant.options)
        if own.task_settings not in made:
            made[own.task_settings] = methods.make_task(own, preset.task, task)
        made_of, schedule = made[own.task_settings], _schedule(preset, variant)
        method = methods.resolve(own, task=made_of, name=preset.task, sampler=variant.sampler, schedule=schedule)
        label = samplers.method(variant.sampler).label
        label = f"{label}, {variant.label}" if variant.label else label
        new = method.spec.digest not in seen and not noise_free(variant.sampler)
        seen.add(method.spec.digest)
        arms.add(
            method,
            name=f"{method.spec.sampler.kind}-{schedule}-{own.chains}x{method.length}-{variant.name}",
            label=label,
            chains=own.chains,
            noise=f"{label}: {method.noise().partition(': ')[2]}" if new else "",
            variables=variant.variables,
        )
    return arms.planned(method.task)


def _schedule(preset: Preset, variant: Variant) -> str:
    method = samplers.method(variant.sampler)
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
                ours = settings_parser.read(name, value)
                theirs = settings_parser.read(name, getattr(options, name))
                wrong |= {f"{name} {n}": theirs[n] for n in ours if n in theirs}
                continue
            for other in (name, *CONFLICTS.get(name, ())):
                if not _left_out(options, other):
                    wrong[other] = getattr(options, other)
    for name, value in wrong.items():
        raise UserError(
            f"{name} must be left out beside preset {preset.name}, got {value!r}: the preset sets it for all of its "
            "arms"
        )


def _common(options: Compare, preset: Preset) -> Compare:
    """Return the user's options over those that all arms have."""
    return _over(options, {n: v for n, v in preset.options.items() if n in SETTINGS or _left_out(options, n)})


def _over(options: Compare, values: Mapping[str, Any]) -> Compare:
    """Return ``options`` with other values; further settings are joined to those that are there, which come first."""
    joined: dict[str, Any] = dict(values)
    for name in SETTINGS:
        if name in values:
            there = settings_parser.read(name, getattr(options, name))
            new = [entry for entry in values[name] if settings_parser.read(name, [entry]).keys().isdisjoint(there)]
            joined[name] = (*getattr(options, name), *new)
    return dataclasses.replace(options, **joined)


def _left_out(options: Compare, name: str) -> bool:
    return bool(getattr(options, name) == DEFAULTS[name])
