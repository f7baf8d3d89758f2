"""Seconds to evaluate an ensemble on 10,000 images: a plain load-and-predict loop, one and two evaluation workers, and
again.

LeNet, 20 samples; one thread for the loop and for each worker. All have imported and predicted before; the ways take
turns, so that whatever else the machine does meets all of them. *Again* asks for another metric (a calibration error
with other bins) where predictions are kept: no network runs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import raychains as rc  # noqa: E402
from benchmarks.machine import facts, ratio  # noqa: E402
from raychains.models import LeNet  # noqa: E402
from raychains.orchestration.cluster.resource_config import ResourceConfig  # noqa: E402
from raychains.orchestration.cluster.session import connect  # noqa: E402
from raychains.orchestration.lease import Lease  # noqa: E402
from raychains.orchestration.run.evaluator_pool import Evaluators  # noqa: E402
from raychains.orchestration.run.launch import evaluate_views  # noqa: E402
from raychains.planning.events import NullCallback  # noqa: E402
from raychains.store import ChainStore  # noqa: E402

BATCH = 1000


def sampled(store: str, samples: int, images: int) -> tuple[rc.Result, tuple[torch.Tensor, torch.Tensor]]:
    """A run with so many samples of a LeNet, and its test images: noise, since nobody looks at what is predicted."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(images, 1, 28, 28, generator=generator), torch.arange(images) % 10
    task = rc.Task.from_module(LeNet, (x[:64], y[:64]), (x, y), name="noise")
    settings: dict[str, Any] = {"sampler": "sghmc", "schedule": "constant", "chains": 1, "batch_size": 64, "lr": 1e-4}
    result = rc.run(
        task=task,
        epochs=4 * samples,  # one sample every four epochs
        burn_in=0,
        store=store,
        name="run",
        keep_predictions="none",
        **settings,
    )
    return result, (x, y)


def loop(files: list[str], x: torch.Tensor, y: torch.Tensor) -> float:
    """The ensemble's NLL by a loop as people write it."""
    model, total = LeNet().eval(), torch.zeros(len(x), 10)
    with torch.no_grad():
        for file in files:
            model.load_state_dict(load_file(file))
            total += torch.cat([model(x[i : i + BATCH]).softmax(1) for i in range(0, len(x), BATCH)])
    return float(-(total / len(files))[torch.arange(len(y)), y].log().mean())


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """Seconds, and the NLL that was found."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="only show that it runs")
    options = parser.parse_args()
    rounds, images, samples = (1, 2000, 4) if options.smoke else (options.rounds, options.images, options.samples)
    torch.set_num_threads(1)
    print(facts(), flush=True)
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        session = connect("local", cpus=2)
        try:
            measure(folder, samples, images, rounds)
        finally:
            session.close()


def measure(folder: str, samples: int, images: int, rounds: int) -> None:
    """Print the ratios."""
    result, (x, y) = sampled(folder, samples, images)
    comparison, root = result.comparison, result.store.root
    (spec,) = comparison.chains().values()
    files = [str(Path(folder, "chains", spec.digest, r.file)) for r in ChainStore(root, spec.digest).records()]
    print(f"{len(files)} samples, {images:,} images, LeNet, one thread each\n", flush=True)

    def evaluated(evaluators: Evaluators, placement: ResourceConfig) -> float:
        how = {"lease": Lease(root), "evaluators": evaluators}
        outcome = evaluate_views(comparison, root, placement, NullCallback(), "test", ("all",), **how)
        return outcome.requested[0].metrics[0]["nll"]

    def workers(number: int, keep: str) -> tuple[Evaluators, ResourceConfig]:
        placement = ResourceConfig(evaluators=number, keep_predictions=keep)
        made = Evaluators.of(comparison, root, placement)
        evaluated(made, placement)  # imports, first predictions
        return made, placement

    one, two, keeping = workers(1, "none"), workers(2, "none"), workers(1, "all")
    other_bins = (keeping[0], replace(keeping[1], bins=8))
    seconds: dict[str, list[float]] = {}
    expected = loop(files, x, y)
    for _ in range(rounds):
        shutil.rmtree(Path(folder, "predictions"), ignore_errors=True)
        for name, work in (
            ("loop", lambda: loop(files, x, y)),
            ("one worker", lambda: evaluated(*one)),
            ("two workers", lambda: evaluated(*two)),
            ("keeping", lambda: evaluated(*keeping)),
            ("again", lambda: evaluated(*other_bins)),
        ):
            took, nll = timed(work)
            seconds.setdefault(name, []).append(took)
            assert np.isclose(nll, expected, rtol=1e-4), f"{name} found {nll}, the loop {expected}"
    for name, found in seconds.items():
        print(f"{name:<12} {median(found):7.2f} s   rounds: {', '.join(f'{s:.2f}' for s in found)}")

    print()
    for of, to in (("loop", "one worker"), ("one worker", "two workers"), ("one worker", "again")):
        print(f"{of} / {to}: {ratio(seconds[of], seconds[to])}")


if __name__ == "__main__":
    main()
