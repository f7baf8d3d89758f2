"""SamplePool: a run's samples as object-store references beside their durable copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from raychains.store import SampleRecord


@dataclass
class Pooled:
    """One sample of the pool; ``ref`` is None when only the durable copy is left."""

    record: SampleRecord
    ref: Any | None


class SamplePool:
    """Samples by (digest, variable, index). The object store is a cache: a reference may go, the file stays."""

    def __init__(self) -> None:
        self._chains: dict[str, dict[tuple[str, int], Pooled]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, record: SampleRecord, ref: Any | None) -> Pooled:
        """Take in one sample; a later one of the same key replaces it."""
        chain = self._chains.setdefault(record.meta.digest, {})
        before = len(chain)
        pooled = chain[record.meta.variable, record.meta.index] = Pooled(record, ref)
        self._count += len(chain) - before
        return pooled

    def remove(self, records: Iterable[SampleRecord]) -> None:
        """Take samples out that were superseded."""
        for record in records:
            chain = self._chains.get(record.meta.digest, {})
            self._count -= chain.pop((record.meta.variable, record.meta.index), None) is not None

    def select(
        self,
        chains: list[str] | None = None,
        *,
        cycle: int | None = None,
        stage: str | None = None,
        variable: str | None = None,
        first: int | None = None,
    ) -> list[Pooled]:
        """Samples of ``chains`` (all chains without it), in round-robin order: first draws of all chains first.

        Args:
            chains: digests, in the arm's order.
            cycle: keep one cycle's samples.
            stage: keep one stage's samples.
            variable: ``theta`` or another variable that the sampler draws.
            first: keep this many.
        """
        position = {d: i for i, d in enumerate(chains)} if chains is not None else None
        tests: list[Callable[[Pooled], bool]] = []
        if cycle is not None:
            tests.append(lambda p: p.record.meta.cycle == cycle)
        if stage is not None:
            tests.append(lambda p: p.record.meta.stage == stage)
        if variable is not None:
            tests.append(lambda p: p.record.meta.variable == variable)
        among = (self._chains.get(d, {}) for d in (position if position is not None else self._chains))
        found = [p for chain in among for p in chain.values() if all(test(p) for test in tests)]

        def order(p: Pooled) -> tuple[int, int, str]:
            meta = p.record.meta
            return (meta.index, position[meta.digest] if position is not None else 0, meta.digest)

        return sorted(found, key=order)[:first]
