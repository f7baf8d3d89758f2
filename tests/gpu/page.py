"""The page of `tests.gpu.check`: what was checked on a device, what failed, and speeds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any


def page(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    where = result["environment"]
    checks, failed = result["checks"], [row for row in result["checks"] + result["benchmarks"] if not row["ok"]]
    lines = [
        f"# Checks on {where['device']}",
        "",
        f"torch {where['torch']}, CUDA {where['cuda'] or '–'}; {len(checks)} checks"
        + (", in the short form" if result["short"] else "")
        + f", {len(failed)} failed.",
    ]
    if failed:
        lines += ["", *(f"- **failed**: {row['name']}: {row.get('error') or told(row)}" for row in failed)]
    if checks:
        lines += ["", "| checks of | number | failed | largest share of a tolerance |", "|---|---|---|---|"]
    groups = defaultdict(list)
    for row in checks:
        groups[row["name"].partition("/")[0], row["sampler"]].append(row)
    for (group, sampler), rows in sorted(groups.items()):
        lines.append(f"| {group} {sampler} | {len(rows)} | {sum(not r['ok'] for r in rows)} | {largest(rows)} |")
    epochs = [row for row in result["benchmarks"] if "epoch_seconds" in row]
    if epochs:
        lines += [
            "",
            "Images a second of a chain, medians of rounds:",
            "",
            "| benchmark | images a second | × a plain loop |",
            "|---|---|---|",
            *map(speed, epochs),
        ]
    return "\n".join(lines) + "\n"


def told(row: dict[str, Any]) -> str:
    return f"{row.get('measured')}, expected {row.get('expected')} ± {row.get('tolerance')}"


def largest(rows: list[dict[str, Any]]) -> str:
    """The largest share of a tolerance, among rows that have one."""
    shares = [
        abs(row["measured"] - row["expected"]) / row["tolerance"]
        for row in rows
        if row.get("tolerance") and row.get("measured") is not None
    ]
    if not shares:
        return "equal" if all(row["ok"] for row in rows) else "–"
    return f"{max(shares):.2f}"


def speed(row: dict[str, Any]) -> str:
    """A row of the benchmark's table."""
    ours, plain = (statistics.median(row[name]) for name in ("epoch_seconds", "plain_loop_epoch_seconds"))
    name, images = row["name"].removeprefix("benchmark/"), row["images"]
    return f"| {name} | {images / ours:,.0f} | {plain / ours:.2f} |"
