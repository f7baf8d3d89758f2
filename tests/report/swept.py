"""Sweeps made by hand: a grid of β × M in which one point was stopped, one failed and one is half done; and random
points."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from raychains.inference.sweep_data import Sweep
from tests.report.test_page import EVIL

BETAS, MS, SAMPLERS = (0.0, 0.25, 0.5), (2, 4, 8), ("csghmc", "snapshot-sgdm")
EPOCHS, GRADIENTS = 40, 40_000
STOPPED, FAILED, WAITING = (0.0, 8), (0.5, 2), (0.25, 8)
"""Points (β, M) of the grid that did not finish: stopped after 2 of 8 cycles, failed before the first report, half
done."""


def value(beta: float, m: int, sampler: str = "csghmc", repeat: int = 0) -> float:
    """The NLL of whole chains; at its best at β = .25, M = 4."""
    worth = 0.2 + 0.3 * (beta - 0.25) ** 2 + 0.02 * abs(math.log2(m / 4)) + 0.05 * (sampler != "csghmc")
    return worth + 0.004 * (repeat - 0.5)


def row(about: dict[str, Any], nll: float, cycle: int) -> dict[str, Any]:
    done = (cycle + 1) / about["cycles"]
    spent = {"cycle": cycle, "epoch": EPOCHS * done, "gradients": int(GRADIENTS * done), "samples": 3 * (cycle + 1)}
    return {**about, **spent, "nll": nll, "error": nll / 5}


def tables(samplers: tuple[str, ...] = ("csghmc",), **also: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of results and reports of β × M (× sampler), two repeats each."""
    results: list[dict[str, Any]] = []
    reports: list[dict[str, Any]] = []
    for point, (sampler, beta, m) in enumerate(itertools.product(samplers, BETAS, MS)):
        first = sampler == samplers[0]
        for repeat in range(2):
            about = {"point": point, "exploration": beta, "cycles": m, **also, "sampler": sampler}
            about |= {"repeat": repeat, "digest": f"{point:02d}{repeat}"}
            status, stop, reason = "finished", m, ""
            if first and (beta, m) == STOPPED:
                status, stop, reason = "stopped", 2, "not among the best third at 10 epochs"
            elif first and (beta, m) == FAILED:
                status, stop, reason = "failed", 0, f"Traceback\nthe loss is nan at step 7 {EVIL}"
            elif first and (beta, m) == WAITING and repeat:
                status, stop = "waiting", 4
            whole = value(beta, m, sampler, repeat)
            mine = [row(about, whole + 0.1 * (1 - (c + 1) / m), c) for c in range(stop)]
            reports += mine
            empty = dict.fromkeys(("cycle", "epoch", "gradients", "samples", "nll", "error"))
            results.append(
                {**(mine[-1] if mine else about | empty), "status": status, "reason": reason, "seconds": 2.5}
            )
    return results, reports


PLAN: dict[str, Any] = {"command": "sweep", "task": EVIL, "unit": "epochs", "split": "val", "metric": "nll"}
PLAN |= {"better": "lower", "options": {"epochs": EPOCHS, "val_split": 0.2, "sampler_settings": [EVIL]}}
PLAN |= {"search": "grid", "count": 9, "repeats": 2, "seed": 0, "gradients": GRADIENTS, "length": EPOCHS}
PLAN |= {"asha": {"grace": 0.25, "reduction": 3.0}, "swept": {"exploration": list(BETAS), "cycles": list(MS)}}
PLAN |= {"task_spec": {"kind": "digits"}, "notes": [f"warning: {EVIL}", f"a note {EVIL}"]}
BEST = {"task": "digits", "exploration": 0.25, "cycles": 4, "epochs": EPOCHS}


def sweep(samplers: tuple[str, ...] = ("csghmc",), **plan: Any) -> Sweep:
    results, reports = tables(samplers)
    swept = PLAN["swept"] | ({"sampler": list(samplers)} if len(samplers) > 1 else {})
    return Sweep(pd.DataFrame(results), pd.DataFrame(reports), {**PLAN, "swept": swept, **plan})


def drawn(points: int = 24) -> Sweep:
    """Random points of three options, one of which is a category; the last is stopped."""
    rng = np.random.default_rng(0)
    rows = []
    for point in range(points):
        lr, batch = float(10 ** rng.uniform(-3, 0)), str(rng.choice(["constant", "cyclical"]))
        about = {
            "point": point,
            "lr": lr,
            "temperature": float(rng.uniform(0, 1)),
            "schedule": batch,
            "sampler": "sghmc",
        }
        nll = 0.3 + 0.05 * math.log10(lr / 0.1) ** 2 + (5.0 if point == 3 else 0.0)
        status = "stopped" if point == points - 1 else "finished"
        rows.append(row({**about, "repeat": 0, "digest": str(point), "cycles": 4}, nll, 3) | {"status": status})
    swept = {"lr": "log:1e-3:1", "temperature": "uniform:0:1", "schedule": ["constant", "cyclical"]}
    return Sweep(pd.DataFrame(rows), pd.DataFrame(), {**PLAN, "swept": swept, "search": "random", "count": points})
