"""A sweep's HTML page: what was swept, at which cost, the best point and how to run it, the table, figures, what ended
early."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raychains.core.errors import last_line
from raychains.inference.sweep_data import Sweep, label
from raychains.planning.sweep_plan import FAILED, FINISHED, STOPPED, WAITING, shown
from raychains.plotting.style import Drawing
from raychains.plotting.tables import html, with_error
from raychains.report import run_page as pages
from raychains.report.run_summary import made
from raychains.report.sweep import curves, heat, rows
from raychains.store import SweepStore
from raychains.tasks.passed_tasks import MADE_OF_OBJECTS

FIGURES: Mapping[str, Callable[[Sweep], Drawing | None]] = {
    "map": heat.drawing,
    "cycles": curves.cycles,
    "progress": curves.progress,
    "options": heat.options,
}
"""By the figure's name, in the page's order."""
SHOWN = 40
"""Points in sight; the others are folded away."""


def write(folder: SweepStore) -> str:
    """Draw ``report.html`` and ``figures/<name>.svg|png|parquet`` of a sweep; where the page lies.

    Raises:
        UserError: there is no such sweep, or a file of it is damaged.
    """
    sweep = Sweep.of(folder)
    figures, failed = pages.drawn(folder, FIGURES, sweep)
    points = rows.build(sweep, "Rank")
    parts = {"points": points.rows[:SHOWN], "more": points.rows[SHOWN:]}
    tables = {name: html(replace(points, rows=part), name, "points") if part else "" for name, part in parts.items()}
    settings = {name: value for name, value in sorted(sweep.plan["options"].items()) if name != "task"}
    text = pages.filled(
        "sweep.html.j2",
        name=folder.name,
        headline=_headline(sweep),
        facts=_facts(sweep, folder),
        **pages.notes(sweep.plan),
        command=_command(folder, sweep) if folder.best() is not None else None,
        split=sweep.split,
        **tables,
        folded=len(parts["more"]),
        caption=rows.caption(sweep),
        figures=list(figures.values()),
        failed=failed,
        ended=[(status, ended) for status in (STOPPED, FAILED, WAITING) if (ended := _ended(sweep, status))],
        settings=[(n.replace("_", "-"), v if isinstance(v, list) else [v]) for n, v in settings.items()],
        location=folder.location(),
    )
    return folder.write_file("report.html", text)


def _headline(sweep: Sweep) -> str:
    if sweep.best is None:
        return "No point has a result yet."
    best, metric = sweep.points.loc[sweep.best], sweep.metric
    value = f"{metric.label} {with_error(best[metric.name], best[f'{metric.name}_se'], metric)}"
    return f"Best of {len(sweep.points)} points: {sweep.text(sweep.best)}, with {value} on {sweep.split}."


def _command(folder: SweepStore, sweep: Sweep) -> str:
    """Return the command that runs the best point; a task that was passed as an object needs a script."""
    where = folder.location("best.json")
    if sweep.plan["task_spec"]["kind"] in MADE_OF_OBJECTS:
        return f'raychains.run(**{{**json.load(open({where!r})), "task": task}})'
    return f"raychains run --options {shlex.quote(where)}"


def _facts(sweep: Sweep, folder: SweepStore) -> list[tuple[str, Sequence[str]]]:
    """Return the head of the page: names with a line or more each."""
    plan, metric, statuses = sweep.plan, sweep.metric, sweep.points["status"]
    better = {"lower": "less is better", "higher": "more is better"}[metric.better]
    swept = {name: plan["swept"][name] for name in sweep.options}
    swept = {name: of if isinstance(of, str) else ", ".join(map(shown, of)) for name, of in swept.items()}
    counts = [f"{n} {s}" for s in (FINISHED, STOPPED, FAILED, WAITING) if (n := (statuses == s).sum())]
    facts = {
        "Task": [plan["task"]],
        "Swept": [f"{label(name)}: {of}" for name, of in swept.items()] or ["nothing"],
        "Search": [_search(plan, len(sweep.points))],
        "Judged by": [f"{metric.label} on the split {sweep.split} ({better}); the test split was not read"],
        "Cost": _cost(sweep),
        "Stopping": [_asha(**plan["asha"])] if plan["asha"] else [],
        "Points": [", ".join(counts) if counts else "none has begun"],
        "Store": [folder.location()],
    }
    return [*((name, lines) for name, lines in facts.items() if lines), *made(plan)]


def _asha(grace: float, reduction: float) -> str:
    return (
        f"asynchronous successive halving: none before {100 * grace:g} % of the epochs, of those that come to a rung "
        f"the best 1/{reduction:g} continue; what it decides depends on the order in which reports arrive"
    )


def _search(plan: Mapping[str, Any], points: int) -> str:
    count, repeats = plan["count"], plan["repeats"]
    how = {"grid": "a grid of {} points", "random": "{} points at random", "optuna": "{} points chosen by Optuna"}
    text = how.get(plan["search"], "{} points").format(count)
    return text + f" × {repeats} repeats" * (repeats > 1) + f", {points} begun" * (points < count)


def _cost(sweep: Sweep) -> list[str]:
    plan, once = sweep.plan, sweep.results.drop_duplicates("digest")  # several points may come to one chain
    spent = float(once["gradients"].sum())
    planned = plan["gradients"] * plan["count"] * plan["repeats"]
    saved = f", {100 * (1 - spent / planned):.0f} % not spent" if planned > spent else ""
    return [
        f"every chain {plan['gradients']:,} gradient evaluations ({plan['length']:,} {plan['unit']}), whatever the "
        "point",
        f"{spent:,.0f} of {planned:,} gradient evaluations{saved}",
    ]


def _ended(sweep: Sweep, status: str) -> list[tuple[str, str]]:
    """Points of a status and why, in a line each."""
    found = []
    for number, point in sweep.points[sweep.points["status"] == status].iterrows():
        reasons = sweep.results.loc[sweep.results["point"] == number, "reason"]
        lines = dict.fromkeys(last_line(reason) for reason in reasons if reason)
        some = f"{point['ended']} of {point['chains']} repeats: " if point["whole"] else ""
        cut = sweep.after(point) if point["epoch"] else "before its first report"
        found.append((sweep.text(number), some + "; ".join(lines) if lines else cut))
    return found
