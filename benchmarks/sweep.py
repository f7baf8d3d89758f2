"""What Ray Tune costs: ten equal chains as its trials against the same ten through the Driver, on two slots.

(A) Trials of `rc.tune.trainable` in reused processes, from the moment that the first has its process to the last
chain's end. Each reports after its four cycles, and its four samples are evaluated on the split val.
(B) The same chains through Driver and ChainWorkers, evaluation off, from the moment that both workers are ready to the
last chain's end.

Both write samples and checkpoints. The figure is A / B, the median over interleaved rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402

GOAL = 1.10
OPTIONS = {"task": "digits", "sampler": "csghmc", "cycles": 4, "samples_per_cycle": 1, "val_split": 50}


def through_tune(count: int, epochs: int) -> float:
    """Return the seconds of (A)."""
    from ray import tune

    import raychains as rc
    from raychains.orchestration.cluster.session import connect

    class Watch(tune.Callback):
        """Notes when the first trial begins and when the last one ends."""

        began = ended = 0.0

        def on_trial_start(self, *_: Any, **info: Any) -> None:
            Watch.began = Watch.began or time.perf_counter()

        def on_trial_complete(self, *_: Any, **info: Any) -> None:
            Watch.ended = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        session = connect("local", cpus=2)
        try:
            found = tune.Tuner(
                rc.tune.trainable(**OPTIONS, epochs=epochs, store=f"{folder}/store"),  # type: ignore[arg-type]
                param_space={"repeat": tune.grid_search([*range(count)])},
                tune_config=tune.TuneConfig(reuse_actors=True),
                run_config=tune.RunConfig(storage_path=f"{folder}/tune", verbose=0, callbacks=[Watch()]),
            ).fit()
        finally:
            session.close()
    if found.errors or len(found) != count:
        raise SystemExit(f"a trial failed: {found.errors}")
    return Watch.ended - Watch.began


def through_driver(count: int, epochs: int) -> float:
    """Return the seconds of (B)."""
    from benchmarks.timed import timed_run
    from raychains.api import plans
    from raychains.core.config import Run

    planned = plans.run(Run(**OPTIONS, epochs=epochs, chains=1, repeats=count))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as store:
        return timed_run(planned.comparison, Path(store), slots=2).seconds


def main() -> None:
    """Measure rounds and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=10, help="equal chains (default 10)")
    parser.add_argument("--epochs", type=int, default=500, help="epochs of each (default 500)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of A and B (default 3)")
    parser.add_argument("--smoke", action="store_true", help="tiny: only whether it runs")
    given = parser.parse_args()
    if given.smoke:
        given.chains, given.epochs, given.rounds = 4, 8, 1
    print(facts())
    ratios = []
    for n in range(1, given.rounds + 1):
        a, b = through_tune(given.chains, given.epochs), through_driver(given.chains, given.epochs)
        ratios.append(a / b)
        print(f"round {n}: A {a:.2f} s, B {b:.2f} s, A / B = {ratios[-1]:.3f}", flush=True)
    print(f"median A / B = {median(ratios):.3f} (goal: at most {GOAL})")


if __name__ == "__main__":
    main()
