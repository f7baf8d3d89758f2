"""Bytes of one sample and of one checkpoint, as the store writes them, and the gradient evaluations of a chain.

A chain of each task and method makes two steps, of small batches, and is written as a worker would. But for the digits
of a loss, sizes depend neither on the machine nor on the batch.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402
from raychains.chain.chain import Chain  # noqa: E402
from raychains.chain.sample_index import expected_samples  # noqa: E402
from raychains.core import config  # noqa: E402
from raychains.planning.budget import gradient_evaluations  # noqa: E402
from raychains.planning.methods import resolve  # noqa: E402
from raychains.store import codec  # noqa: E402
from raychains.tasks.from_options import make_task  # noqa: E402

PAIRS = (
    ("digits", "csghmc"),
    ("mnist-cnn", "csghmc"),
    ("mnist-mlp", "csghmc"),
    ("mnist-mlp", "csgld"),
    ("mnist-mlp", "emcmc"),
    ("cifar10-resnetpp56", "atmc"),
    ("cifar10-resnet18", "csghmc"),
    ("cifar10-resnet18", "emcmc"),
)
BATCH = 4
"""Examples of a step of the chain that is written."""


@dataclass(frozen=True)
class Sizes:
    """Of one chain of a task and a method at their defaults."""

    parameters: int
    sample: int
    """Bytes of one sample of θ."""
    checkpoint: int
    """Bytes of one checkpoint."""
    samples: int
    """Samples that the chain keeps, of all variables."""
    gradients: int
    """Gradient evaluations of the chain."""


def measure(task: str, sampler: str) -> Sizes:
    """Run two steps of the chain and encode what it holds.

    Raises:
        UserError: an unknown task or method, or data that are not there.
    """
    set_up = config.Run(task=task, sampler=sampler)
    made = make_task(set_up, task)
    spec, small = (
        resolve(replace(set_up, batch_size=batch), task=made, sampler=sampler).chain(0, 0)
        for batch in (set_up.batch_size, BATCH)
    )
    chain = Chain(small, made)
    chain.advance(stop=lambda: chain.step >= 2)
    state, tree = codec.flatten(chain.state_dict())
    return Sizes(
        parameters=sum(p.numel() for p in chain.model.parameters()),
        sample=len(codec.encode(chain.model.state_dict(), {})),
        checkpoint=len(codec.encode(state, {"state": tree})),
        samples=expected_samples(spec),
        gradients=gradient_evaluations(spec),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only digits")
    arguments = parser.parse_args()
    print(facts())
    print("| task | method | parameters | sample | checkpoint | samples of a chain | gradient evaluations of a chain |")
    print("|---|---|---|---|---|---|---|")
    for task, sampler in PAIRS[:1] if arguments.smoke else PAIRS:
        print(line(task, sampler), flush=True)


def line(task: str, sampler: str) -> str:
    """One row of docs/how-to/cluster.md's table."""
    s = measure(task, sampler)
    sizes = " | ".join(f"{b / 1e6:.3g} MB ({b / (4 * s.parameters):.2f} × 4 P)" for b in (s.sample, s.checkpoint))
    return f"| `{task}` | `{sampler}` | {s.parameters:,} | {sizes} | {s.samples} | {s.gradients:,} |"


if __name__ == "__main__":
    main()
