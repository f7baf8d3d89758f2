"""The arms of cSG-MCMC's Table 2 (networks) and Table 4 (mixture), and the single arm of `raychains run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raychains import samplers, schedules
from raychains.core.config import Compare, Run
from raychains.core.errors import UserError
from raychains.planning import compatible, methods
from raychains.planning.presets import arms
from raychains.planning.presets.arms import MethodArm, Planned
from raychains.samplers import MethodPreset
from raychains.tasks import Task
from raychains.tasks.user_defaults import defaults_of

NAMES = {name: method.label for name, method in samplers.METHODS.items()}

PUBLISHED_TABLE4: Mapping[tuple[str, str, bool], str] = {
    ("sgld", "decreasing", False): "1.8 ± 0.13",
    ("sgld", "cyclical", False): "6.7 ± 0.52",
    ("sgld", "decreasing", True): "18 ± 0.47",
    ("sgld", "cyclical", True): "24.4 ± 0.22",
}
"""Mode coverage of cSG-MCMC Table 4 (10 runs ± s.e.) by (sampler, schedule, parallel): the only copy of its numbers."""


@dataclass(frozen=True)
class _Column:
    schedule: str
    parallel: bool
    halve: bool = False


DECREASING, CYCLICAL = _Column("decreasing", True), _Column("cyclical", True)
ALONE = _Column("cyclical", False)
TABLE2 = (CYCLICAL, DECREASING, _Column("decreasing", True, halve=True), ALONE)
TABLE4 = (_Column("decreasing", False), ALONE, DECREASING, CYCLICAL)


def compare(options: Compare, task: Task) -> Planned:
    """Parallel against single chains of a task: Table 2's arms for one with data, Table 4's for a density.

    Raises:
        UserError: a setting out of range.
    """
    chosen = options.sampler or defaults_of(task).samplers
    table = TABLE4 if task.low_dimensional else TABLE2
    kinds = [schedules.KINDS.find(name).kind for name in options.schedule]
    presets = {name: samplers.method(name) for name in chosen}
    columns = [(name, column) for name, preset in presets.items() for column in _columns(table, preset, kinds)]
    return _plan(options, task, presets, columns)


def _columns(table: Iterable[_Column], method: MethodPreset, kinds: Sequence[str]) -> list[_Column]:
    """Return the table's columns of a method under kinds of schedules, of which those that it lacks have a parallel
    one."""
    kinds = (method.schedule,) if method.fixed else kinds
    known = [column for column in table if column.schedule in kinds]
    return known + [_Column(kind, True) for kind in kinds if kind not in {column.schedule for column in table}]


def run(options: Run, task: Task) -> Planned:
    """Return a comparison of one arm of a task.

    Raises:
        UserError: a setting out of range.
    """
    base = defaults_of(task)
    sampler = base.method(options)
    method = samplers.method(sampler)
    schedule = schedules.KINDS.find(methods.schedule_kind(options, method, base)).kind
    if options.schedule is not None and not method.takes(schedule):
        allowed = "one without cycles" if method.early_stop is not None else method.schedule
        raise UserError(f"schedule must be {allowed} for {sampler}, got {options.schedule!r}")
    return _plan(options, task, {sampler: method}, [(sampler, _Column(schedule, True))])


def _plan(
    options: Run | Compare, task: Task, presets: Mapping[str, MethodPreset], columns: Sequence[tuple[str, _Column]]
) -> Planned:
    compatible.check_used(options, presets, [column.schedule for _, column in columns])
    made: list[MethodArm] = []
    for sampler, column in columns:
        if not column.parallel and options.chains == 1:
            continue  # the parallel arm is the single one
        method = methods.resolve(options, task=task, sampler=sampler, schedule=column.schedule, halve=column.halve)
        chains = options.chains if column.parallel else 1
        label = f"{presets[sampler].label_under(column.schedule)}, {chains} chain{'s' * (chains > 1)}"
        own_name = sampler.startswith("snapshot") or method.spec.early_stop is not None
        family = sampler if own_name else method.spec.sampler.kind
        # The published figures hold for the paper's own settings: four chains of 50,000 steps.
        as_published = task.low_dimensional and method.length == 50_000 and chains == (4 if column.parallel else 1)
        value = PUBLISHED_TABLE4.get((family, column.schedule, column.parallel)) if as_published else None
        made.append(
            MethodArm(
                method=method,
                name=f"{family}-{column.schedule}-{chains}x{method.length}",
                label=f"{label}, E/2" if column.halve else label,
                chains=chains,
                family=family,
                noise="" if column.halve else f"{sampler}, {column.schedule}",
                published={"modes": value} if value else {},
            )
        )
    return arms.planned(options.task, made)
