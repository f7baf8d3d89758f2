"""The ledger: what a comparison costs in gradient evaluations, what sharing saves, what was spent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raychains import samplers
from raychains.core.spec import ChainSpec
from raychains.planning.comparison import Comparison

if TYPE_CHECKING:
    from raychains.store import SampleRecord


@dataclass(frozen=True, kw_only=True)
class Budget:
    """All amounts are counted twice: in gradient evaluations (one epoch = N of them) and in epochs (or steps).

    Chains that stop early count with all of their steps, the most that they may make.
    """

    arms: int
    """Gradient evaluations if every arm ran its own chains, and those that they start at."""
    unique: int
    """After running each unique chain once."""
    to_run: int
    """After leaving out the chains that the store holds already."""
    arms_length: int
    unique_length: int
    to_run_length: int
    chains_of_arms: int
    unique_chains: int
    chains_to_run: int

    @property
    def saved(self) -> int:
        """Gradient evaluations saved by sharing chains between arms."""
        return self.arms - self.unique

    @property
    def saved_length(self) -> int:
        """Epochs (or steps) saved by sharing chains between arms."""
        return self.arms_length - self.unique_length


def budget(comparison: Comparison, finished: Collection[str] = ()) -> Budget:
    """The ledger of a comparison, given the digests of the chains that are finished already."""
    lengths = {digest: spec.steps // spec.steps_per_epoch for digest, spec in comparison.starts.items()}
    lengths |= {spec.digest: arm.length * spec.lanes for arm in comparison.arms for g in arm.chains for spec in g}
    unique = comparison.chains()
    of_arms = [spec for arm in comparison.arms for group in arm.chains for spec in comparison.needed(group).values()]
    to_run = [digest for digest in unique if digest not in finished]
    return Budget(
        arms=sum(gradient_evaluations(s) for s in of_arms),
        unique=sum(gradient_evaluations(s) for s in unique.values()),
        to_run=sum(gradient_evaluations(unique[d]) for d in to_run),
        arms_length=sum(lengths[s.digest] for s in of_arms),
        unique_length=sum(lengths[d] for d in unique),
        to_run_length=sum(lengths[d] for d in to_run),
        chains_of_arms=len(of_arms),
        unique_chains=len(unique),
        chains_to_run=len(to_run),
    )


def gradient_evaluations(spec: ChainSpec) -> int:
    """Per-example gradients of one chain: a method with two gradients per step, as SAM, takes two of each example."""
    return spec.examples * samplers.gradients_per_step(spec.sampler)


class Spent:
    """Gradient evaluations spent on chains, from the steps that they are known to have made.

    Args:
        finished: steps by digest that finished chains made.
    """

    def __init__(self, specs: Mapping[str, ChainSpec], finished: Mapping[str, int] | None = None) -> None:
        self._costs = {digest: (gradient_evaluations(spec), spec.steps) for digest, spec in specs.items()}
        self.made: dict[str, int] = {}
        """Gradient evaluations spent on each chain, by digest."""
        self.total = 0
        """Gradient evaluations spent on all chains."""
        self.planned = sum(cost for cost, _ in self._costs.values())
        """Gradient evaluations of all chains when they are finished: at most, until those that stop early have
        stopped."""
        for digest, step in (finished or {}).items():
            self.finish(digest, step)

    def at(self, digest: str, step: int) -> int:
        """The chain is at ``step``; what it took to come there."""
        cost, steps = self._costs[digest]
        now = cost * step // steps
        self.total += now - self.made.get(digest, 0)
        self.made[digest] = now
        return now

    def finish(self, digest: str, step: int) -> None:
        """The chain is through after ``step`` steps: what it did not need is no longer planned."""
        cost, _ = self._costs[digest]
        now = self.at(digest, step)
        self.planned -= cost - now
        self._costs[digest] = now, step


def gradients_made(spec: ChainSpec, records: Sequence[SampleRecord]) -> int:
    """Return the gradient evaluations of a finished chain, from all of its samples."""
    return gradient_evaluations(spec) * steps_made(spec, records) // spec.steps


def steps_made(spec: ChainSpec, records: Sequence[SampleRecord]) -> int:
    """Return the steps of a finished chain, from all of its samples: fewer than planned where it stopped early."""
    return spec.steps if spec.early_stop is None else max(record.meta.step for record in records)
