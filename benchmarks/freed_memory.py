"""Time of a network's gradient where freed memory stays in the process, as in raychains' workers, over where it does
not.

A ResNet-20 of FRN and SiLU, 64 pictures of 32×32, one thread; plain, and with ``--compile`` also under torch.compile
(needs a C++ compiler). Each figure is the median of as many gradients, in a process of its own; the two ways take
turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from machine import facts, ratio

WAYS = {"returned": "as malloc has it", "kept": "kept"}


def gradient(way: str, compiled: bool, count: int) -> float:
    """The median seconds of a gradient in this process."""
    if way == "kept":
        from raychains.orchestration.chains.chain_worker import keep_freed_memory

        keep_freed_memory()
    import torch

    from raychains.models import ResNetFrnSilu

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ResNetFrnSilu()
    network = torch.compile(model) if compiled else model
    x, y = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    taken = []
    for _ in range(count + 3):
        model.zero_grad()
        start = time.perf_counter()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="compiled networks, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gradients", type=int, default=20)
    parser.add_argument("--smoke", action="store_true", help="only show that it runs")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "HOW"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.gradients = 1, 1
    if args.one:
        print(gradient(args.one[0], args.one[1] == "compiled", args.gradients))
        return
    print(facts())
    for how in ("plain", *["compiled"] * args.compile):
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way, taken in times.items():
                command = [sys.executable, __file__, "--one", way, how, "--gradients", str(args.gradients)]
                taken.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        for way, taken in times.items():
            print(f"{how}, freed memory {WAYS[way]}: {statistics.median(taken):.4f} s a gradient")
        print(f"{how}: kept over not kept {ratio(times['kept'], times['returned'])}", flush=True)


if __name__ == "__main__":
    main()
