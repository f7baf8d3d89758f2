"""When a chain reports what its samples so far are worth: at the end of each cycle."""

from __future__ import annotations

from dataclasses import dataclass

from raychains import schedules
from raychains.chain.sample_index import samples_per_keep
from raychains.core.spec import ChainSpec

REPORTS = 10
"""Reports of a chain without cycles, spread over its samples."""


@dataclass(frozen=True, kw_only=True)
class ReportStep:
    """When a chain reports: after its ``step``-th step, with so many samples of all variables drawn."""

    cycle: int
    step: int
    samples: int


def report_steps(spec: ChainSpec, reports: int = REPORTS) -> list[ReportStep]:
    """Return when a chain reports: at the end of each cycle, else ``reports`` times, spread over its samples; the last
    at its end.

    There is none before the first sample, and none of a cycle that adds no sample, but for the last.
    """
    schedule = schedules.build(spec.schedule)
    each = samples_per_keep(spec)
    kept: list[tuple[int, int]] = []
    for step in range(1, spec.steps + 1):
        setting = schedule.at(step)
        if setting.keep:
            kept.append((step, setting.cycle))
    if schedule.kind == "cyclical":
        last_of = {cycle: n for n, (_, cycle) in enumerate(kept, start=1)}
        found = [ReportStep(cycle=cycle, step=kept[n - 1][0], samples=n * each) for cycle, n in last_of.items()]
        last_cycle = schedule.cycle_count - 1
    else:
        at = sorted({-(-len(kept) * i // reports) for i in range(1, reports + 1)} - {0})
        found = [ReportStep(cycle=i, step=kept[n - 1][0], samples=n * each) for i, n in enumerate(at)]
        last_cycle = len(found) - 1
    if found and found[-1].cycle == last_cycle:
        found.pop()
    return [*found, ReportStep(cycle=last_cycle, step=spec.steps, samples=len(kept) * each)]


def cycle_count(spec: ChainSpec, reports: int = REPORTS) -> int:
    """Return the number of cycles that a chain reports, as `report_steps` numbers them: its schedule's, else its
    reports."""
    schedule = schedules.build(spec.schedule)
    return schedule.cycle_count if schedule.kind == "cyclical" else min(schedule.kept, reports)
