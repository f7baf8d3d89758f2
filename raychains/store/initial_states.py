"""Chains' initial states: a file ``starts/<sha256>.safetensors``, immutable, one for all chains that begin at it; or
another chain's last sample."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping

from torch import Tensor

from raychains.chain import initialization
from raychains.chain.sample_index import expected_samples
from raychains.core.config import Run
from raychains.core.errors import StorageAway, UserError
from raychains.core.spec import ChainSpec
from raychains.store import codec
from raychains.store.chain_store import ChainStore
from raychains.store.filesystem import Storage

CHAIN = "chain/"
"""Before the digest of a chain that others start at."""


def file_of(digest: str) -> str:
    """Return the name of a start's file in the store."""
    return f"starts/{digest}.safetensors"


def with_file(options: Run) -> Run:
    """Return the options with a file of this process where ``init_from`` is the `file_of` a start in their store.

    Raises:
        UserError: the store has no such start.
    """
    named = re.fullmatch(file_of("([0-9a-f]{64})"), options.init_from or "")
    if named is None:
        return options
    tensors = read(Storage(options.store), named[1])
    return dataclasses.replace(options, init_from=initialization.to_file(tensors))


def publish(root: Storage, tensors: Mapping[str, Tensor]) -> str:
    """Make a start durable unless its file is there with the same bytes; return its sha256."""
    data, digest = codec.encode_and_hash(tensors, {})
    if root.size(file_of(digest)) != len(data) or root.read(file_of(digest)) != data:
        root.publish(file_of(digest), data)
    return digest


def key_of(spec: ChainSpec) -> str | None:
    """Return what `read` finds a chain's start by; None where it has none."""
    return spec.start if spec.start_chain is None else f"{CHAIN}{spec.start_chain}"


def read(root: Storage, digest: str) -> dict[str, Tensor]:
    """Return the tensors of a start.

    Args:
        digest: their sha256, or the `key_of` a chain that starts at another's last sample.

    Raises:
        UserError: the store has none of this sha256.
        StorageAway: it does not show all samples of the other chain: listings may lag behind its end.
        Corrupt: its file is torn or altered.
    """
    if digest.startswith(CHAIN):
        return _last_sample(root, digest.removeprefix(CHAIN))
    where = root.location(file_of(digest))
    try:
        tensors, description = codec.decode(root.read(file_of(digest)))
    except FileNotFoundError:
        raise UserError(
            f"start {digest[:12]}… must be in the store, got none at {where}: give its file again"
        ) from None
    except codec.Corrupt as error:
        raise codec.Corrupt(f"{where}: {error}") from None
    if description["sha256"] != digest:
        raise codec.Corrupt(f"{where} holds other tensors than its name says")
    return tensors


def _last_sample(root: Storage, digest: str) -> dict[str, Tensor]:
    store, records = ChainStore(root, digest), None
    with contextlib.suppress(FileNotFoundError):  # none of this chain's files is there
        records = store.all_records(expected_samples(store.spec()))
    if records is None:
        raise StorageAway(f"the store does not show all samples of chain {digest[:12]}, which another chain starts at")
    return store.sample(max(records, key=lambda record: record.meta.step).file)[0]


class Completion:
    """Completes samples that hold only the sampled parameters; keeps the last start in memory."""

    def __init__(self, root: Storage) -> None:
        self._root = root
        self._last: tuple[str, dict[str, Tensor]] = ("", {})

    def __call__(self, tensors: Mapping[str, Tensor], start: str | None) -> dict[str, Tensor]:
        """Return ``tensors`` with all others from the start of this key; unchanged without one.

        Raises:
            UserError: the store has no such start.
        """
        if start is None:
            return dict(tensors)
        if self._last[0] != start:
            self._last = (start, read(self._root, start))
        return {**self._last[1], **tensors}


def needed(spec: ChainSpec) -> str | None:
    """Return the `key_of` the start that completes samples of a chain; None where they are whole."""
    return key_of(spec) if spec.sample_only else None
