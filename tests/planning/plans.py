"""Chains, arms and comparisons of nothing in particular, for tests that only plan."""

from __future__ import annotations

from raychains.core.spec import ChainSpec, Part, TaskSpec
from raychains.planning import Arm, Comparison
from raychains.schedules import Cyclical


def chain(number: int = 0, *, repeat: int = 0, epochs: int = 10, sampler: str = "sgld", lanes: int = 1) -> ChainSpec:
    """A chain of 10 steps of 50 data an epoch."""
    schedule = Cyclical(steps=10 * epochs, lr=0.1, cycles=1, exploration=0.5)
    return ChainSpec(
        task=TaskSpec(kind="pkg:Toy", revision=1, fingerprint="f"), sampler=Part(kind=sampler, revision=1),
        schedule=schedule.part(), steps=schedule.steps, steps_per_epoch=10, batch_size=50, seed=0, repeat=repeat,
        chain=number, lanes=lanes,
    )  # fmt: skip


def arm(name: str, chains: int, *, epochs: int = 10, repeats: int = 1, sampler: str = "sgld", lanes: int = 1) -> Arm:
    """The first ``chains`` chains of every group of repeats."""
    made = [
        [chain(c, repeat=r, epochs=epochs, sampler=sampler, lanes=lanes) for c in range(chains)] for r in range(repeats)
    ]
    groups, label = tuple(map(tuple, made)), name.title()
    return Arm(name=name, label=label, sampler=sampler, schedule="cyclical", chains=groups, length=epochs, published={})


def comparison(*arms: Arm) -> Comparison:
    return Comparison(task="toy", unit="epochs", split="test", arms=arms)
