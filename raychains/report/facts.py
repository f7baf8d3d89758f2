"""What was run, in words: the head of the page, its budget, and the exact settings of every arm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from raychains import schedules
from raychains.execution import not_exact
from raychains.planning import Arm, Comparison, budget
from raychains.report.figures.layout import sentence
from raychains.report.material import Material
from raychains.report.table import DASH, value
from raychains.schedules import Constant, Cyclical, Decreasing, Exponential, Linear, Step, Straight

SHORT = 12
"""Digits of a digest that are shown."""


def head(material: Material) -> list[tuple[str, Sequence[str]]]:
    """Name and lines of each fact."""
    comparison = material.comparison
    chains = comparison.chains().values()
    seeds = sorted({spec.seed for spec in chains})
    task = comparison.task_spec
    settings = ", ".join(f"{k} = {v}" for k, v in task.settings.items())
    lines: list[tuple[str, Sequence[str]]] = [
        ("Task", [comparison.task + (f" ({settings})" if settings else "")]),
        ("Evaluated on", [f"the split “{comparison.split}”"]),
        ("Samplers", [sentence([panel.title for panel in material.looks.panels])]),
        ("Arms", [_arms(comparison.arms)]),
        ("Seed", [", ".join(map(str, seeds))]),
        ("Cost", cost(material)),
        *([("Execution", how)] if (how := execution(comparison)) else []),
        ("Environment", environment(material)),
        ("Stored at", [material.store.location()]),
    ]
    return lines


def _arms(arms: Sequence[Arm]) -> str:
    repeats = sorted({arm.repeats for arm in arms})
    text = f"{' or '.join(map(str, repeats))} repeat{'s' * (repeats != [1])}"
    return f"{len(arms)}, {text} each" if len(arms) > 1 else f"1, {text}"


def cost(material: Material) -> list[str]:
    """The ledger: what is planned, and what sharing chains between arms saves."""
    b = budget(material.comparison)
    unit = material.comparison.unit
    lanes = max(spec.lanes for spec in material.comparison.chains().values())
    stacked = f", each stacking {lanes} repeats" if lanes > 1 else ""
    in_gradients = f" = {b.unique:,} gradient evaluations" if b.unique != b.unique_length else ""
    lines = [f"{b.unique_chains} chains{stacked}: {b.unique_length:,} {unit}{in_gradients}"]
    if b.saved_length:
        chains = b.chains_of_arms - b.unique_chains
        share = b.saved_length / b.arms_length
        gradients = f" = {b.saved:,} gradient evaluations" if b.saved != b.saved_length else ""
        lines.append(
            f"saved by sharing {chains} chain{'s' * (chains > 1)} between arms: "
            f"{b.saved_length:,} {unit}{gradients}, {share:.0%} of what the arms would need by themselves"
        )
    return lines


def environment(material: Material) -> list[str]:
    """What chains ran on; one line when it was the same for all of them."""
    found = material.environments
    lines = [found[0][0]] if len(found) == 1 else [f"{text}: {n} chain{'s' * (n > 1)}" for text, n in found]
    if len(found) > 1:
        lines.append("chains of different environments may differ in their last bits")
    if n := material.restarted:
        lines.append(f"{n} chain{'s' * (n > 1)} continued from a checkpoint")
    return lines or ["no chain has begun"]


def execution(comparison: Comparison) -> list[str]:
    """Where chains start and how they run, as far as either is out of the ordinary."""
    lines: list[str] = []
    for spec in comparison.chains().values():
        if spec.precision != "fp32":
            lines.append(f"precision {spec.precision}")
        if not spec.exact:
            lines.append(not_exact(spec))
        if spec.start is not None:
            only = f"; sampled are {' '.join(spec.sample_only)}, all else stays there" if spec.sample_only else ""
            lines.append(f"chains start at tensors of sha256 {spec.start[:SHORT]}{only}")
    return list(dict.fromkeys(lines))


def headline(material: Material) -> str | None:
    """The first metric's best arm in one sentence; None among fewer than two arms."""
    if not material.metrics or material.summary[material.metrics[0].name].notna().sum() < 2:
        return None
    metric = material.metrics[0]
    if metric.better == "neither":
        return None
    means = material.summary[metric.name].dropna()
    name = means.idxmin() if metric.better == "lower" else means.idxmax()
    ties = int((means == means[name]).sum())
    if ties > 1:
        return None
    arm = next(a for a in material.comparison.arms if a.name == name)
    extreme = "lowest" if metric.better == "lower" else "most" if metric.name == "modes" else "highest"
    total = arm.length * len(arm.chains[0])
    return (
        f"{metric.label}, {extreme}: {arm.label}, {value(material.summary, arm, metric)} "
        f"at {total:,} {material.comparison.unit} per repeat."
    )


SETTINGS = (
    "Sampler",
    "Step size lr",
    "m",
    "T",
    "λ",
    "N",
    "Batch",
    "Length",
    "M",
    "Without noise",
    "Kept per chain",
    "Chains",
)
"""Columns of the settings' table."""


def settings(arm: Arm, unit: str) -> list[str]:
    """One arm's settings in the order of `SETTINGS`."""
    spec = arm.chains[0][0]
    schedule = schedules.build(spec.schedule)
    own = spec.sampler.settings
    return [
        spec.sampler.kind,
        _step_size(schedule),
        _number(own.get("momentum")),
        _number(schedule.temperature),
        _number(own.get("weight_decay")),
        _number(own.get("num_data")),
        _number(spec.batch_size),
        f"{arm.length:,} {unit}" + (f" = {spec.steps:,} steps" if spec.steps != arm.length else ""),
        _number(schedule.cycles) if isinstance(schedule, Cyclical) else DASH,
        _without_noise(schedule),
        f"{schedule.kept:,}" + (f" in blocks of {spec.block_draws:,}" if spec.block_draws else ""),
        " ".join(s.digest[:SHORT] for s in arm.chains[0]),
    ]


def raw(arm: Arm) -> str:
    """The whole spec of the arm's first chain, as stored."""
    return json.dumps(arm.chains[0][0].to_json(), indent=1, sort_keys=True, ensure_ascii=False)


def _step_size(schedule: schedules.Schedule) -> str:
    if isinstance(schedule, Cyclical):
        return f"cyclical cosine from {schedule.lr:g}"
    if isinstance(schedule, Decreasing):
        ends = f"{schedule.at(1).lr:.3g} to {schedule.at(schedule.steps).lr:.3g}"
        return f"decreasing, {ends}: {schedule.a:.4g}·({schedule.b:.4g} + k)^−{schedule.gamma:g}"
    if isinstance(schedule, Constant):
        return f"constant {schedule.lr:g}"
    if isinstance(schedule, Linear | Exponential):
        return f"{schedule.kind}, {schedule.lr:g} to {schedule.final_lr:g}"
    if isinstance(schedule, Step):
        shares = sentence([f"{100 * m:.3g}%" for m in schedule.milestones])
        return f"steps from {schedule.lr:g}, × {schedule.factor:g} after {shares}"
    return schedule.kind


def _without_noise(schedule: schedules.Schedule) -> str:
    if schedule.temperature == 0:
        return "all"
    text = DASH
    if isinstance(schedule, Cyclical):
        text = f"β = {schedule.exploration:g} of a cycle"
        if schedule.noise_in_exploration:
            text = "never"
        elif schedule.sample_below is not None:
            text = f"while lr ≥ {schedule.sample_below:g}"
    elif isinstance(schedule, Straight):
        text = f"first {schedule.noise_from:.0%}" if schedule.noise_from else "never"
    if not schedule.ramp:
        return text
    return f"{text}; T grows over {100 * schedule.ramp:.3g}% of {'a cycle' if isinstance(schedule, Cyclical) else 'the run'}"


def _number(value: Any) -> str:
    if value is None:
        return DASH
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
