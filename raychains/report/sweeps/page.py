"""A sweep's HTML page: what was swept, at which cost, the best point and how to run it, the table, figures, what ended early."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import raychains
from raychains.report import page as pages
from raychains.report.style import Drawing
from raychains.report.sweeps import curves, cycles, heat, margins, rows
from raychains.report.sweeps.material import FAILED, STATUSES, STOPPED, WAITING, Point, Sweep, said, shown
from raychains.report.table import shown as with_error
from raychains.store import SweepStore
from raychains.tasks.given import MADE_BY_HAND

log = logging.getLogger(__name__)

MAKERS: Mapping[str, Callable[[Sweep], Drawing | None]] = {
    "map": heat.drawing,
    "cycles": cycles.drawing,
    "progress": curves.drawing,
    "options": margins.drawing,
}
"""By the figure's name, in the page's order."""
SHOWN = 40
"""Points in sight; the others are folded away."""
NOT_SETTINGS = {
    "grid",
    "space",
    "random",
    "optuna",
    "metric",
    "asha",
    "asha_grace",
    "asha_reduction",
    "concurrent",
    "task",
}


def write(folder: SweepStore) -> str:
    """See `raychains.report.sweeps.write`."""
    sweep = Sweep.of(folder)
    figures, failed = pages.drawn(folder, MAKERS, sweep)
    notes = [str(note) for note in sweep.plan.get("notes") or ()]
    lines = rows.build(sweep)
    text = pages.template("sweep.html.j2").render(
        style=pages.style(),
        name=folder.name,
        headline=_headline(sweep),
        facts=_facts(sweep, folder),
        warnings=[n.removeprefix("warning: ") for n in notes if n.startswith("warning: ")],
        notes=[n for n in notes if not n.startswith("warning: ")],
        command=_command(folder, sweep) if sweep.best is not None and folder.best() is not None else None,
        split=sweep.split,
        columns=rows.columns(sweep),
        rows=lines[:SHOWN],
        more=lines[SHOWN:],
        caption=rows.caption(sweep),
        figures=list(figures.values()),
        failed=failed,
        ended=[(status, _ended(sweep, status)) for status in (STOPPED, FAILED, WAITING) if sweep.count(status)],
        settings=_settings(sweep.plan),
        version=raychains.__version__,
        location=folder.location(),
    )
    return folder.write_file("report.html", text.encode(errors="replace"))  # half a surrogate pair has no bytes


def _headline(sweep: Sweep) -> str:
    best, metric = sweep.best, sweep.metric
    if best is None:
        return "No point has a result yet."
    value = with_error(best.mean[metric.name], best.error[metric.name], metric)
    return f"Best of {len(sweep.points)} points: {said(best, sweep.options)}, with {metric.label} {value} on {sweep.split}."


def _command(folder: SweepStore, sweep: Sweep) -> str:
    """What runs the best point: of a task given as an object only a script can."""
    where, spec = folder.location("best.json"), sweep.plan.get("task_spec")
    if isinstance(spec, Mapping) and spec.get("kind") == MADE_BY_HAND:
        return f'raychains.run(**{{**json.load(open({where!r})), "task": task}})'
    return f"raychains run --options {shlex.quote(where)}"


def _facts(sweep: Sweep, folder: SweepStore) -> list[tuple[str, list[str]]]:
    """The head of the page: names with a line or more each; what the plan does not say is left out."""
    plan, metric = sweep.plan, sweep.metric
    better = {"lower": "less is better", "higher": "more is better"}.get(metric.better, "")
    out: list[tuple[str, list[str]]] = []
    if task := plan.get("task"):
        out.append(("Task", [str(task)]))
    out.append(("Swept", [f"{o.label}: {_range(sweep, o.name, o.values)}" for o in sweep.options] or ["nothing"]))
    out.append(("Search", [_search(sweep)]))
    out.append(("Judged by", [f"{metric.label} on the split {sweep.split} ({better}); the test split was not read"]))
    out += [("Cost", _cost(sweep))] if _cost(sweep) else []
    if isinstance(asha := plan.get("asha"), Mapping):
        out.append(("Stopping", [_asha(asha)]))
    counts = [f"{sweep.count(s)} {s}" for s in STATUSES if sweep.count(s)]
    out.append(("Points", [", ".join(counts) if counts else "none has begun"]))
    out.append(("Store", [folder.location()]))
    return out


def _range(sweep: Sweep, name: str, values: tuple[Any, ...]) -> str:
    planned = sweep.plan.get("swept", {})
    told = planned.get(name) if isinstance(planned, Mapping) else None
    if isinstance(told, str):
        return told
    listed = told if isinstance(told, list) else values
    return ", ".join(shown(v) for v in listed)


def _search(sweep: Sweep) -> str:
    plan, points = sweep.plan, len(sweep.points)
    count = plan.get("count", points)
    repeats = plan.get("repeats", 1)
    how = {"grid": "a grid of {} points", "random": "{} points at random", "optuna": "{} points chosen by Optuna"}
    text = how.get(str(plan.get("search")), "{} points").format(count)
    text += f" × {repeats} repeats" if isinstance(repeats, int) and repeats > 1 else ""
    return text + (f", {points} begun" if isinstance(count, int) and points < count else "")


def _cost(sweep: Sweep) -> list[str]:
    plan = sweep.plan
    each, count, repeats = plan.get("gradients"), plan.get("count"), plan.get("repeats", 1)
    spent = sweep.spent
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in (each, count, repeats)):
        return [f"{spent:,.0f} gradient evaluations spent"] if spent else []
    length, unit = plan.get("length"), plan.get("unit", "epochs")
    long = f" ({length:,} {unit})" if isinstance(length, int) else ""
    planned = each * count * repeats  # type: ignore[operator]
    saved = f", {100 * (1 - spent / planned):.0f} % not spent" if planned > spent else ""
    return [
        f"every chain {each:,} gradient evaluations{long}, whatever the point",
        f"{spent:,.0f} of {planned:,} gradient evaluations{saved}",
    ]


def _asha(asha: Mapping[str, Any]) -> str:
    try:
        grace, reduction = 100 * float(asha["grace"]), float(asha["reduction"])
    except (KeyError, TypeError, ValueError):
        return "asynchronous successive halving"
    return (
        f"asynchronous successive halving: none before {grace:g} % of the epochs, of those that come to a rung the best "
        f"1/{reduction:g} go on; what it decides depends on the order in which reports arrive"
    )


def _ended(sweep: Sweep, status: str) -> list[tuple[str, str]]:
    """Points of a status and why, in a line each."""
    return [(said(p, sweep.options), _why(sweep, p)) for p in sweep.ranked if p.status == status]


def _why(sweep: Sweep, point: Point) -> str:
    if reasons := [r.splitlines()[-1] for r in point.reasons if r.strip()]:
        some = f"{point.counts[point.status]} of {point.repeats} repeats: " if point.complete else ""
        return some + "; ".join(reasons)
    return sweep.after(point) if point.epoch else "before its first report"


def _settings(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What all points share, as it was given."""
    given = plan.get("options")
    if not isinstance(given, Mapping):
        return []
    kept = {str(k): v for k, v in given.items() if k not in NOT_SETTINGS and v not in (None, [], "", False)}
    return [
        (name.replace("_", "-"), ", ".join(map(str, v)) if isinstance(v, list) else str(v))
        for name, v in sorted(kept.items())
    ]
