"""Summary of a run in words: the head of its page, its budget, the exact settings of every arm, and its failures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raychains import schedules
from raychains.chain.divergence_replay import Diagnosis
from raychains.chain.precision import not_exact
from raychains.core.errors import RaychainsError, last_line
from raychains.inference.run_data import RunData
from raychains.planning import Arm, Comparison, budget
from raychains.plotting.layout import sentence
from raychains.plotting.tables import DASH, Row, Table, heads, texts
from raychains.report.run_tables import value
from raychains.schedules import Constant, Cyclical, Decreasing, Exponential, Linear, NonCyclical, Step

SHORT = 12
"""Digits of a digest on the page."""


def head(run: RunData) -> list[tuple[str, Sequence[str]]]:
    """Names and lines of the page's head."""
    comparison = run.comparison
    chains = comparison.chains().values()
    seeds = sorted({spec.seed for spec in chains})
    task = comparison.task_spec
    settings = ", ".join(f"{k} = {v}" for k, v in task.settings.items())
    return [
        ("Task", [comparison.task + (f" ({settings})" if settings else "")]),
        ("Evaluated on", [f"the split “{comparison.split}”"]),
        ("Samplers", [sentence([panel.title for panel in run.arm_styles.panels])]),
        ("Arms", [_arms(comparison.arms)]),
        ("Seed", [", ".join(map(str, seeds))]),
        ("Cost", cost(run)),
        *([("Execution", how)] if (how := execution(comparison)) else []),
        ("Environment", environment(run)),
        ("Stored at", [run.store.location()]),
        *made(run.plan),
    ]


def made(plan: Mapping[str, Any]) -> list[tuple[str, Sequence[str]]]:
    """The command line of a plan and when it was made; nothing of plans of earlier versions, which lack both."""
    if "command_line" not in plan:
        return []
    when = str(plan["made"]).replace("T", " ").replace("+00:00", " UTC")
    return [("Command", [str(plan["command_line"])]), ("Planned", [when])]


def _arms(arms: Sequence[Arm]) -> str:
    repeats = sorted({arm.repeats for arm in arms})
    text = f"{' or '.join(map(str, repeats))} repeat{'s' * (repeats != [1])}"
    return f"{len(arms)}, {text} each" if len(arms) > 1 else f"1, {text}"


def cost(run: RunData) -> list[str]:
    """The ledger: what is planned, and what sharing chains between arms saves."""
    b = budget(run.comparison)
    unit = run.comparison.unit
    lanes = max(spec.lanes for spec in run.comparison.chains().values())
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


def environment(run: RunData) -> list[str]:
    """The environments of the chains; one line when it was the same for all of them."""
    found = run.environments
    lines = [found[0][0]] if len(found) == 1 else [f"{text}: {n} chain{'s' * (n > 1)}" for text, n in found]
    if len(found) > 1:
        lines.append("chains of different environments may differ in their last bits")
    if n := run.restarted:
        lines.append(f"{n} chain{'s' * (n > 1)} continued from a checkpoint")
    if n := run.preemptions:
        lines.append(f"chains left a draining node {n} time{'s' * (n > 1)}")
    return lines or ["no chain has begun"]


def execution(comparison: Comparison) -> list[str]:
    """Initialisation, precision and exactness of the chains, as far as they are not the defaults."""
    lines: list[str] = []
    for spec in comparison.chains().values():
        if spec.precision != "fp32":
            lines.append(f"precision {spec.precision}")
        if not spec.exact:
            lines.append(not_exact(spec))
        if spec.start is not None:
            only = f"; sampled are {' '.join(spec.sample_only)}, all else stays there" if spec.sample_only else ""
            lines.append(f"chains start at tensors of sha256 {spec.start[:SHORT]}{only}")
        if (stop := spec.early_stop) is not None:
            lines.append(
                f"{spec.sampler.kind} holds {stop.share:.0%} of the training data out, stops after {stop.patience} "
                "epochs without a lower loss on them, and keeps its best weights"
            )
        if spec.start_chain is not None:
            only = f"; sampled are {' '.join(spec.sample_only)}, all else stays there" if spec.sample_only else ""
            lines.append(f"{spec.sampler.kind}: each chain starts at the last sample of another{only}")
    return list(dict.fromkeys(lines))


def headline(run: RunData) -> str | None:
    """The first metric's best arm in one sentence; None among fewer than two arms."""
    if not run.metrics or run.summary[run.metrics[0].name].notna().sum() < 2:
        return None
    metric = run.metrics[0]
    if metric.better == "neither":
        return None
    means = run.summary[metric.name].dropna()
    name = means.idxmin() if metric.better == "lower" else means.idxmax()
    ties = int((means == means[name]).sum())
    if ties > 1:
        return None
    arm = next(a for a in run.comparison.arms if a.name == name)
    extreme = "lowest" if metric.better == "lower" else "most" if metric.name == "modes" else "highest"
    total = arm.length * len(arm.chains[0])
    return (
        f"{metric.label}, {extreme}: {arm.label}, {value(run.summary, arm, metric)} "
        f"at {total:,} {run.comparison.unit} per repeat."
    )


def settings(run: RunData) -> Table:
    """The settings of every arm's first chain."""
    rows = [Row((arm.label,), texts(*_settings(arm, run.comparison.unit).values())) for arm in run.comparison.arms]
    return Table("Arm", heads(*_settings(run.comparison.arms[0], run.comparison.unit)), rows)


def _settings(arm: Arm, unit: str) -> dict[str, str]:
    spec = arm.chains[0][0]
    schedule = schedules.build(spec.schedule)
    own = spec.sampler.settings
    return {
        "Sampler": spec.sampler.kind,
        "Step size lr": _step_size(schedule),
        "m": _number(own.get("momentum")),
        "T": _number(schedule.temperature),
        "λ": _number(own.get("weight_decay")) if spec.prior is None else DASH,
        "N": _number(own.get("num_data")),
        "Batch": _number(spec.batch_size),
        "Length": f"{arm.length:,} {unit}" + (f" = {spec.steps:,} steps" if spec.steps != arm.length else ""),
        "M": _number(schedule.cycles) if isinstance(schedule, Cyclical) else DASH,
        "Without noise": _without_noise(schedule),
        "Kept per chain": f"{schedule.kept:,}" + (f" in blocks of {spec.block_draws:,}" if spec.block_draws else ""),
        "Chains": " ".join(s.digest[:SHORT] for s in arm.chains[0]),
    }


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
    elif isinstance(schedule, NonCyclical):
        text = f"first {schedule.noise_from:.0%}" if schedule.noise_from else "never"
    if not schedule.ramp:
        return text
    return (
        f"{text}; T grows over {100 * schedule.ramp:.3g}% of "
        f"{'a cycle' if isinstance(schedule, Cyclical) else 'the run'}"
    )


def _number(value: Any) -> str:
    if value is None:
        return DASH
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


# Failures


@dataclass(frozen=True)
class Failure:
    """A chain that was given up, or a divergence that fresh noise cured."""

    digest: str
    arms: list[str]
    """Labels of the arms that have the chain."""
    line: str
    details: str = ""
    """A traceback, where there is one."""


def failures(run: RunData) -> list[Failure]:
    """The run's failed chains in their order, then its cured divergences. A chain that finished since is none."""
    table = run.store.table("failed")
    reasons = {row["digest"]: str(row["reason"]) for row in table.to_pylist()} if table is not None else {}
    given_up = {d: r for d, r in reasons.items() if d not in run.finished}
    chains = run.comparison.chains()
    found = [_failed(run, digest, given_up[digest]) for digest in chains if digest in given_up]
    for digest in chains:
        sentences = [_sentence(d) for d in run.chain(digest).diagnoses()] if digest not in given_up else []
        for n, text in enumerate(sentences, start=1):
            more = f"restart {n} with fresh noise followed" if digest in run.finished else "unfinished so far"
            found.append(Failure(digest, _arms_of(run, digest), f"{text} ({more})"))
    return found


def _failed(run: RunData, digest: str, reason: str) -> Failure:
    return Failure(digest, _arms_of(run, digest), last_line(reason), reason if len(reason.splitlines()) > 1 else "")


def _sentence(diagnosis: Mapping[str, Any]) -> str:
    try:
        return Diagnosis.from_json(diagnosis).sentence()
    except (RaychainsError, TypeError, ValueError, KeyError):  # a later version's, or not ours
        return str(diagnosis.get("error", "it diverged"))


def _arms_of(run: RunData, digest: str) -> list[str]:
    arms = run.comparison.arms
    return [arm.label for arm in arms if any(spec.digest == digest for group in arm.chains for spec in group)]
