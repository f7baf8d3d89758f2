"""Step sizes of the UCI tasks: every method on a grid, judged on validation examples that are held out of the training
data.

The test split is never looked at. Of each task's training examples 20 % are held out; one chain of each step size
samples with the others, and the NLL of its mixture on those held out decides, summed over both protocols (of `splits`
its first split). The temperature is 1 and the prior N(0, I): the model's, which are not chosen. Reads
RAYCHAINS_DATA/uci. The table that the tasks' defaults come from is docs/results/uci-settings.csv;
docs/reference/tasks.md names the smaller ones that longer chains need.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402
from raychains import tasks  # noqa: E402
from raychains.chain.chain import Chain  # noqa: E402
from raychains.chain.divergence import Diverged  # noqa: E402
from raychains.core.config import Run  # noqa: E402
from raychains.core.sample import Sample  # noqa: E402
from raychains.planning import methods  # noqa: E402
from raychains.tasks.user_defaults import defaults_of  # noqa: E402

TASKS = ("yacht", "airfoil", "concrete", "energy", "bikesharing", "protein")
PROTOCOLS = ("bde", "splits")
HELD_OUT = 0.2
STEPS = 8_000
"""Gradients of each chain, rounded to whole epochs; samples are of its last half or of four cycles."""
SAMPLES = 20
SLOW, FAST = (1e-4, 3e-4, 1e-3, 3e-3), (1e-3, 3e-3, 1e-2, 3e-2)
GRIDS: Mapping[tuple[str, str, str], tuple[float, ...]] = {
    ("sghmc", "cyclical", ""): SLOW,
    ("sghmc", "decreasing", ""): SLOW,
    ("sgld", "cyclical", ""): FAST,
    ("sgld", "decreasing", ""): FAST,
    ("emcmc", "cyclical", "eta=1e-4"): FAST[:-1],
    ("emcmc", "cyclical", "eta=1e-3"): FAST[:-1],
    ("psgld", "cyclical", "eps=1e-3"): (3e-4, 1e-3, 3e-3, 1e-2),
    ("deep-ensemble", "constant", ""): (1e-3, 3e-3, 1e-2),
}
"""Step sizes by method, schedule and setting."""
COLUMNS = ("task", "method", "schedule", "setting", "lr", "protocol", "val_nll", "seconds")


def judged(task: str, protocol: str, method: str, schedule: str, setting: str, lr: float, steps: int) -> float:
    """Return the NLL per validation example of one chain, in nats on the standardised scale; infinite where it
    diverges."""
    name = f"uci-{task}"
    made = tasks.make(name, protocol=protocol, val_split=HELD_OUT)
    batch = defaults_of(made).batch_size
    epochs = max(4, round(steps / math.ceil(made.num_data / batch) / 2) * 2)
    given: dict[str, Any] = {"task": name, "lr": lr, "epochs": epochs, "pack": "none", "val_split": HELD_OUT}
    given |= {"task_settings": (f"protocol={protocol}",)}
    given |= {"sampler_settings": (setting,)} if setting else {}
    if schedule != "cyclical" and method != "deep-ensemble":
        given |= {"schedule_settings": (f"samples={SAMPLES}", "noise_from=0.5"), "thinning": max(1, steps // 100)}
    chosen = methods.resolve(Run(**given), task=made, sampler=method, schedule=schedule)
    try:
        draws = [event.tensors for event in Chain(chosen.chain(0, 0), made) if isinstance(event, Sample)]
    except Diverged:
        return math.inf
    split = made.splits()["val"]
    parts = [split.reduce([split.predict(draw, shard) for draw in draws], shard) for shard in range(split.shards)]
    found = float(split.summarise(parts)[0]["nll"])
    return found if math.isfinite(found) else math.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--steps", type=int, default=STEPS, help="gradients of each chain")
    parser.add_argument("--out", type=Path, help="write a row for each chain to this CSV as soon as it is there")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs: few steps, two step sizes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(facts(), flush=True)
    rows: list[dict[str, Any]] = []
    for task in options.task:
        for (method, schedule, setting), grid in GRIDS.items():
            for lr in grid[:2] if options.smoke else grid:
                for protocol in PROTOCOLS:
                    began = time.perf_counter()
                    found = judged(
                        task, protocol, method, schedule, setting, lr, 200 if options.smoke else options.steps
                    )
                    taken = round(time.perf_counter() - began, 1)
                    values = (task, method, schedule, setting, lr, protocol, f"{found:.4f}", taken)
                    rows.append(dict(zip(COLUMNS, values, strict=True)))
            print(best(rows, task, method, schedule, setting), flush=True)
            if options.out is not None:
                write(options.out, rows)


def best(rows: list[dict[str, Any]], *of: str) -> str:
    """Return a line: the step size with the lowest sum over the protocols, and every sum."""
    sums: dict[float, float] = {}
    for row in rows:
        if tuple(row[name] for name in COLUMNS[: len(of)]) == of:
            sums[row["lr"]] = sums.get(row["lr"], 0.0) + float(row["val_nll"])
    lr = min(sums, key=sums.__getitem__)
    return f"{' '.join(filter(None, of))}: lr {lr:g} of " + ", ".join(f"{k:g} {v:.3f}" for k, v in sums.items())


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
