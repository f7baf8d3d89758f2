"""Step sizes of `raychains reproduce true-posterior`: every method on a grid, judged by the total variation to HMC's
predictive.

One chain of the study's length for each step size (of SGD and the deep ensemble one network), on another seed than the
study's. HMC's draws are made first, or read from --store, where the study finds them, too. Reads RAYCHAINS_DATA/uci.
The table that the study's step sizes come from is docs/results/posterior-settings.csv.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402
from raychains.chain.chain import Chain  # noqa: E402
from raychains.chain.divergence import Diverged  # noqa: E402
from raychains.core.config import Run  # noqa: E402
from raychains.core.sample import Sample  # noqa: E402
from raychains.inference import hmc_reference  # noqa: E402
from raychains.measures.predictive_distance import to_draws  # noqa: E402
from raychains.papers.fidelity import true_posterior as study  # noqa: E402
from raychains.planning import methods  # noqa: E402
from raychains.store import Storage  # noqa: E402
from raychains.tasks.from_options import make_task  # noqa: E402

SEED = study.SEED + 1
GRIDS = {
    "sgd": (3e-5, 1e-4, 3e-4, 1e-3),
    **dict.fromkeys(("sghmc", "csghmc"), (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
    "multiswag": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    **dict.fromkeys(("sgld", "csgld", "emcmc"), (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
    "psgld": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "deep-ensemble": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
}
"""Step sizes by method; MILE starts at the deep ensemble's and finds its own."""
LONGER = 10.0
"""Digits' are so many times as long: losses of its classes are less curved."""
COLUMNS = ("part", "method", "lr", "total_variation", "seconds")


def distance_of(part: str, scale: str, store: str) -> Any:
    """Return a part's task and the distance to HMC's draws of its posterior."""
    name, settings = study.task_of(part, scale)
    task: Any = make_task(Run(task=name, task_settings=settings), name)
    chosen = methods.resolve(Run(task=name, task_settings=settings), task=task, sampler="sgld")
    decay = float(chosen.spec.sampler.settings["weight_decay"])
    found = hmc_reference.reference(Storage(store), task, decay, "test")
    print(
        f"{part}: HMC, {found.draws.shape[1]} draws of {len(found.draws)} chains, R-hat {found.r_hat:.4f}", flush=True
    )
    return task, to_draws(found.blocks, task.predicts)


def judged(task: Any, distance: Any, part: str, scale: str, method: str, lr: float) -> float:
    """Return the total variation of one chain's predictive; infinite where it diverges."""
    name, settings = study.task_of(part, scale)
    variant = study.variant(method, part, scale)
    given: dict[str, Any] = {
        **variant.options,
        "lr": lr,
        "seed": SEED,
        "chains": 1,
        "temperature": 1.0,
        "task_settings": settings,
    }
    chosen = methods.resolve(Run(task=name, **given), task=task, sampler=variant.sampler, schedule=variant.schedule)
    split = task.splits()["test"]
    try:
        draws = [event.tensors for event in Chain(chosen.chain(0, 0), task) if isinstance(event, Sample)]
    except Diverged:
        return math.inf
    blocks = (np.concatenate([split.predict(d, shard) for shard in range(split.shards)]) for d in draws)
    points = distance.points(distance.average(blocks)).mean(axis=0)
    return float(points[distance.metrics.index("total_variation")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="+", choices=list(study.NAMES), default=list(study.NAMES))
    parser.add_argument("--store", default="runs", help="where HMC's draws are kept")
    parser.add_argument("--out", type=Path, help="write a row for each chain to this CSV as soon as it is there")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="only show that it runs: few steps of a linear network, two step sizes, one part",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(facts(), flush=True)
    scale, rows = "smoke" if options.smoke else "cpu", []
    for part in [study.IN_SMOKE] if options.smoke else options.part:
        task, distance = distance_of(part, scale, options.store)
        for method, grid in GRIDS.items():
            mine = []
            longer = LONGER if part == "digits" and method not in ("deep-ensemble", "psgld") else 1.0
            for lr in (longer * g for g in (grid[:2] if options.smoke else grid)):
                began = time.perf_counter()
                found = judged(task, distance, part, scale, method, lr)
                mine.append((part, method, f"{lr:g}", f"{found:.4f}", f"{time.perf_counter() - began:.1f}"))
            print(f"{part} {method}: " + ", ".join(f"{lr} {tv}" for _, _, lr, tv, _ in mine), flush=True)
            rows += mine
            if options.out is not None:
                with options.out.open("w", newline="") as out:
                    csv.writer(out, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
