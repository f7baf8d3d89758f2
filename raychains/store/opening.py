"""What a store holds of many chains, looked at by several threads: each look is a wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from raychains.positions import expected_samples
from raychains.spec import ChainSpec
from raychains.store.chains import ChainStore, SampleRecord
from raychains.store.filesystem import Root

T = TypeVar("T")

READERS = 16
"""Chains that are looked at at once: an object store takes tens of milliseconds for each answer."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One chain as the store has it."""

    records: Sequence[SampleRecord] | None
    """All of its samples; None while some are missing."""
    seconds: float = 0.0
    """Chain seconds of a finished chain."""
    last_incarnation: int = 0
    """Of an unfinished one."""


def stored(root: Root, specs: Mapping[str, ChainSpec], *, unfinished: bool = True) -> dict[str, Stored]:
    """What is there of each chain, by digest and in the order of ``specs``.

    Args:
        root: the store.
        specs: the chains by digest.
        unfinished: whether anything is to be known of chains that are not finished.
    """

    def look(digest: str) -> Stored:
        store = ChainStore(root, digest)
        records = store.all_records(expected_samples(specs[digest]))
        if records is not None:
            return Stored(records=records, seconds=store.seconds())
        return Stored(records=None, last_incarnation=store.last_incarnation() if unfinished else 0)

    return _of_each(specs, look)


def finished(root: Root, specs: Mapping[str, ChainSpec]) -> set[str]:
    """Digests of the chains of which all samples are there."""
    there = _of_each(specs, lambda digest: ChainStore(root, digest).finished(expected_samples(specs[digest])))
    return {digest for digest, whole in there.items() if whole}


def _of_each(specs: Mapping[str, ChainSpec], look: Callable[[str], T]) -> dict[str, T]:
    with ThreadPoolExecutor(READERS, thread_name_prefix="opening") as readers:
        return dict(zip(specs, readers.map(look, specs), strict=True))
