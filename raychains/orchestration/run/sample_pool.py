"""A run's samples as object-store references next to their durable copies."""

from __future__ import annotations

from collections.abc import Iterable
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

    def recover(self, records: Iterable[SampleRecord]) -> list[Pooled]:
        """Take in durable samples, without references."""
        return [self.add(record, None) for record in records]

    def remove(self, records: Iterable[SampleRecord]) -> None:
        """Take samples out that were superseded."""
        for record in records:
            chain = self._chains.get(record.meta.digest, {})
            self._count -= chain.pop((record.meta.variable, record.meta.index), None) is not None

    def select(self, chains: list[str] | None = None, *, variable: str | None = None) -> list[Pooled]:
        """Return the samples of ``chains`` (all chains without it), in round-robin order: first draws of all chains
        first.

        Args:
            chains: digests, in the arm's order.
            variable: ``theta`` or another variable that the sampler draws; all of them without it.
        """
        position = {digest: n for n, digest in enumerate(chains if chains is not None else sorted(self._chains))}
        found = [pooled for digest in position for pooled in self._chains.get(digest, {}).values()]
        found = [pooled for pooled in found if variable in (None, pooled.record.meta.variable)]
        return sorted(found, key=lambda pooled: (pooled.record.meta.index, position[pooled.record.meta.digest]))
