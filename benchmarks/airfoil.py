"""The same fit by raychains' MILE and by bde (scikit-learn-contrib): seconds, RMSE and NLL on airfoil, in turn on the
same cores.

bde's protocol: 10 members of an MLP 4 × 16 with outputs (μ, softplus σ), warm starts with early stopping, a tuner of
--warmup steps, then 1,000 steps of which every 10th is kept; NLL of the moments' Gaussian on the standardised target.
Ours are two packs of 5 chains, one per core, their steps compiled: `raychains run --task uci-airfoil --sampler mile
--pack 5 --compile default`. Each fit is a process of its own, with everything from its start to its metrics: start of
Ray, import, compilation, prediction.

--peer names a Python in whose environment bde (sklearn-contrib-bde) is installed: it runs `benchmarks/airfoil_bde.py`.
The data are in the data root (RAYCHAINS_DATA).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402

STEPS, APART, MEMBERS, GRADIENTS = 1_000, 10, 10, 2
"""Steps after the tuner, steps between draws, members, gradients of a step (each an epoch: batches are full)."""

START_LR = 0.003
"""Step size of the members at which chains start: of .001, .003 and .01 that with the lowest NLL on held-out training
examples."""


def fit(seed: int, warmup: int, pack: str, compiled: str, members: int, store: str) -> dict[str, float]:
    """Return our metrics of one fit."""
    import raychains as rc

    result = rc.run(
        task="uci-airfoil",
        sampler="mile",
        chains=members,
        pack=pack,
        compile=compiled,
        lr=f"deep-ensemble={START_LR}",
        epochs=GRADIENTS * (warmup + STEPS),
        sampler_settings=(f"tune={warmup}",),
        thinning=APART,
        seed=seed,
        store=store,
        progress=False,
    )
    row = result.table(full=True)
    return {"rmse": float(row["rmse"].iloc[0]), "nll": float(row["nll_gaussian"].iloc[0])}


def arrays() -> dict[str, Any]:
    """Return the standardised training and test examples of the task."""
    from raychains.tasks.uci import Airfoil

    task = Airfoil()
    parts = {name: task._parts[name] for name in ("train", "test")}
    return {f"{k}_{n}": v[p].tolist() for n, p in parts.items() for k, v in (("x", task._inputs), ("y", task._targets))}


def timed(command: list[str], given: str, **environment: str) -> dict[str, float]:
    """Return what a process prints in its last line, and its seconds."""
    begun = time.monotonic()
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    seconds = time.monotonic() - begun
    if done.returncode:
        sys.exit(f"{command[0]} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python with bde")
    parser.add_argument("--warmup", type=int, default=50_000, help="steps of the tuner")
    parser.add_argument("--seeds", type=int, default=5, help="fits of each")
    parser.add_argument("--pack", default="5", help="chains of a pack, or none")
    parser.add_argument("--compile", choices=("none", "default"), default="default", help="of our chains' steps")
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument(
        "--smoke", action="store_true", help="only show that it runs: two members, 20 steps of the tuner"
    )
    parser.add_argument("--fit", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.smoke:
        asked.warmup, asked.seeds, asked.members, asked.pack = 20, 1, 2, "1"
        asked.compile = "none"
    if asked.fit is not None:
        with tempfile.TemporaryDirectory() as store:
            print(json.dumps(fit(asked.fit, asked.warmup, asked.pack, asked.compile, asked.members, store)))
        return
    print(facts())
    data = arrays() if asked.peer else {}
    found: dict[str, list[dict[str, float]]] = {"raychains": [], "bde": []}
    for seed in range(asked.seeds):
        ours = [
            "--fit",
            str(seed),
            "--warmup",
            str(asked.warmup),
            "--members",
            str(asked.members),
            "--pack",
            asked.pack,
            "--compile",
            asked.compile,
        ]
        found["raychains"].append(timed([sys.executable, __file__, *ours], ""))
        if asked.peer:
            budget = {"warmup": asked.warmup, "steps": STEPS, "apart": APART, "members": asked.members}
            given = json.dumps({**data, "seed": seed, **budget})
            cores = f"--xla_force_host_platform_device_count={len(os.sched_getaffinity(0))}"
            theirs = [asked.peer, str(ROOT / "benchmarks" / "airfoil_bde.py")]
            found["bde"].append(timed(theirs, given, XLA_FLAGS=cores))
        for name, fits in found.items():
            if fits:
                print(f"seed {seed}, {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in fits[-1].items()), flush=True)
    print("| | fits | RMSE | NLL | seconds |\n|---|---|---|---|---|")
    for name, fits in found.items():
        if fits:
            print(
                f"| {name} | {len(fits)} | {_spread(fits, 'rmse')} | {_spread(fits, 'nll')} | "
                f"{_spread(fits, 'seconds')} |"
            )


def _spread(fits: list[dict[str, float]], name: str) -> str:
    """Return the mean, and the standard deviation of several."""
    values = [f[name] for f in fits]
    return f"{statistics.mean(values):.4g}" + (f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
