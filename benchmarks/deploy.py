"""Milliseconds of one prediction of an ensemble: its samples one by one, all at once by vmap, and as chunk="auto" has
it.

The three are timed in turn, so that whatever else the machine does meets all of them; the figure is each one's fastest
call.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from raychains.inference import PosteriorPredictive  # noqa: E402
from raychains.models import MLP, LeNet  # noqa: E402

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "digits MLP 64-100-100-10": (lambda: MLP(64, (100, 100), 10), (64,)),
    "LeNet, 28×28": (LeNet, (1, 28, 28)),
    "MLP 784-400-400-10": (lambda: MLP(784, (400, 400), 10), (784,)),
}
INPUTS = (1, 16, 128, 1024)


def fastest(ensemble: PosteriorPredictive, x: torch.Tensor, rounds: int) -> dict[int | str, float]:
    """Milliseconds by chunk."""
    found: dict[int | str, float] = {}
    for round_ in range(rounds + 1):
        for chunk in (1, len(ensemble), "auto"):
            ensemble.chunk = chunk
            began = time.perf_counter()
            ensemble(x)
            if x.is_cuda:
                torch.cuda.synchronize()
            took = 1e3 * (time.perf_counter() - began)
            if round_:  # the first call of each prepares
                found[chunk] = min(found.get(chunk, took), took)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(facts(), flush=True)
    print(f"{options.samples} samples, {options.device}, one thread\n")
    print(f"{'network':<26}{'inputs':>7}{'one by one':>12}{'at once':>10}{'auto':>9}   at once / one by one")
    for name, (make, shape) in NETWORKS.items():
        torch.manual_seed(0)
        networks = [make() for _ in range(options.samples)]
        ensemble = PosteriorPredictive(networks[0], [n.state_dict() for n in networks]).to(options.device)
        for n in INPUTS[:1] if options.smoke else INPUTS:
            with torch.inference_mode():
                ms = fastest(
                    ensemble, torch.randn(n, *shape, device=options.device), 1 if options.smoke else options.rounds
                )
            one, every, auto = ms[1], ms[options.samples], ms["auto"]
            print(f"{name:<26}{n:>7}{one:>12.2f}{every:>10.2f}{auto:>9.2f}   {every / one:.2f}", flush=True)


if __name__ == "__main__":
    main()
