"""A user's data set as a chain and evaluations read it: tensors where it fits into memory, else a stream of batches."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from raychains.core import tree
from raychains.core.errors import UserError, require
from raychains.core.tree import Tree
from raychains.data.source import (
    LABELS,
    Collate,
    Pair,
    Resident,
    Source,
    Streamed,
    check_plain,
    examples,
    items,
    length,
    parted,
    refuse_random,
    tensor_of,
)
from raychains.evaluation.evaluation import Array

RESIDENT_SHARE = 0.25
"""Share of the machine's memory above which a data set is streamed."""
AT_ONCE = 1000
"""Examples that are read from a dataset at a time."""
REREAD = 64
"""Examples of a dataset, chosen at random, that are read twice to see that they are functions of their index."""


class UserDataset:
    """The examples of one split: as batches on a chain's device, and in the set's own order on the CPU.

    Data of at most `RESIDENT_SHARE` of the machine's memory are read as a whole, unless ``resident`` says otherwise.
    Those of which ``collate`` makes the batches are kept as a list of examples then.

    Raises:
        UserError: no such data, no example, or examples that do not form tensors.
    """

    def __init__(self, data: Any, name: str, resident: bool | None = None, collate: Collate | None = None) -> None:
        ok = resident is None or isinstance(resident, bool)
        require(ok, "resident", resident, "be True, False, or None to decide by size")
        require(collate is None or callable(collate), "collate_fn", collate, "be a function of a list of examples")
        self._name, self._collate = name, collate
        pair = _pair_of_tensors(data, name)
        if pair is not None and collate is not None:
            raise UserError(f"collate_fn must be left out: {name} holds its examples as tensors of one shape already")
        self._dataset = None if pair is not None else _dataset(data, name, collate)
        self._resident = pair
        small = resident if resident is not None else pair is not None or self._bytes() <= _room()
        if self._dataset is not None and small and collate is None:
            self._resident = tree.mapped(lambda *parts: torch.cat(parts), *self._read())
            self._dataset = None
        elif self._dataset is not None and small:
            self._dataset = list(items(self._dataset, range(len(self._dataset)), name))
        self._targets: Tensor | None = None if self._resident is None else self._resident[1]
        self.not_finite: list[int] = []
        """Indices of examples with NaN or infinity, as far as the data were read for their hash."""
        stated = getattr(data, "fingerprint", None)
        self.fingerprint = f"stated/{stated}" if isinstance(stated, str) else self._hash()
        """A hash of all examples; or what the data set itself states as its text ``fingerprint``, which is believed."""
        self._source: Source | None = None

    def __len__(self) -> int:
        return len(self._resident[1]) if self._resident is not None else len(self._dataset)  # type: ignore[arg-type]

    @property
    def streamed(self) -> bool:
        """True where batches are read when they are needed."""
        return self._resident is None and type(self._dataset) is not list

    @property
    def source(self) -> Source:
        """Batches on the chain's device."""
        if self._source is None:
            if self._resident is not None:
                self._source = Resident(*self._resident)
            else:
                self._source = Streamed(self._dataset, name=self._name, collate=self._collate)  # type: ignore[arg-type]
        return self._source

    @property
    def read(self) -> bool:
        """True where all targets are known without reading the data set once more."""
        return self._targets is not None

    @property
    def targets(self) -> Tensor:
        """All targets, [n, …], on the CPU."""
        if self._targets is None:
            self._targets = self._joined([y for _, y in self._read()])
        return self._targets

    def __getitem__(self, at: slice) -> Tree:
        """Return inputs of a range of examples, [n, …], on the CPU: tensors of their own."""
        return self.pair(at)[0]

    def pair(self, at: slice) -> Pair:
        """Return inputs and targets of a range of examples, as they are together in a batch: tensors of their own."""
        return self.some(range(*at.indices(len(self))))

    def first(self, n: int) -> Pair:
        """Return inputs and targets of the first ``n`` examples, or of all."""
        return self.some(range(min(n, len(self))))

    def some(self, at: Sequence[int]) -> Pair:
        """Return inputs and targets of the examples at some indices, of at least one: tensors of their own."""
        if self._resident is not None:
            if isinstance(at, range):  # a slice is copied faster than a list of indices
                inputs, targets = tree.mapped(lambda t: t[at.start : at.stop].clone(), self._resident)
            else:
                inputs, targets = tree.at(self._resident, list(at))
            return inputs, targets
        return examples(self._dataset, at, self._name, self._collate)  # type: ignore[arg-type]

    def part(self, at: Array, name: str) -> UserDataset:
        """Return the examples at positions ``at`` alone, in that order, kept as the whole is.

        Args:
            name: a text that identifies them in the whole: with its fingerprint it makes theirs.
        """
        made = copy.copy(self)
        made._source = None
        if self._resident is not None:
            made._resident = tree.at(self._resident, torch.from_numpy(at))
            made._targets = made._resident[1]
        else:
            listed = type(self._dataset) is list
            whole: Any = self._dataset
            made._dataset = [whole[i] for i in at] if listed else Subset(whole, at.tolist())
            made._targets = None if self._targets is None else self._targets[torch.from_numpy(at)]
        made.fingerprint = hashlib.sha256(f"{self.fingerprint}/{name}".encode()).hexdigest()
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Drop what is on a device, and pickle tensors as arrays, which are sent out of band without copies."""
        state = {**self.__dict__, "_source": None, "_targets": None}
        if self._resident is not None:
            state["_resident"] = tree.mapped(_Packed.of, self._resident)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._resident is not None:
            self._resident = tree.mapped(_Packed.tensor, self._resident)
            self._targets = self._resident[1]

    def _bytes(self) -> int:
        return len(self) * sum(t.nbytes for t in tree.leaves(self.first(1)))

    def _read(self) -> Iterator[Pair]:
        """Yield all examples in the dataset's order, a few at a time."""
        n = len(self)
        for start in range(0, n, AT_ONCE):
            at = range(start, min(n, start + AT_ONCE))
            yield examples(self._dataset, at, self._name, self._collate)  # type: ignore[arg-type]

    def _joined(self, targets: list[Tensor]) -> Tensor:
        """Return targets of all parts as one tensor; those that a user's function pads are padded anew, to one
        length."""
        if len({t.shape[1:] for t in targets}) > 1:
            return self.some(range(len(self)))[1]
        return torch.cat(targets)

    def _hash(self) -> str:
        """Return the sha256 of inputs and targets, however they are kept and read."""
        parts: Iterator[Pair] = iter([self._resident]) if self._resident is not None else self._read()
        hashes: list[Any] = []
        kinds: tuple[str, ...] = ()
        targets: list[Tensor] = []
        for inputs, y in parts:
            start = sum(map(len, targets))
            leaves = [*tree.named(inputs), ("", y)]
            self.not_finite += [start + i for i in sorted({i for _, t in leaves for i in _not_finite(t)})]
            now = tuple(f"{place}{t.dtype}{list(t.shape[1:])}" for place, t in leaves)
            hashes = hashes or [hashlib.sha256() for _ in leaves]
            for h, (_, t), before, kind in zip(hashes, leaves, kinds or now, now, strict=True):
                if kind != before:  # padded to another length
                    h.update(kind.encode())
                h.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().data)
            kinds = now
            targets.append(y)
        if self._targets is None:
            self._targets = self._joined(targets)
        text = "/".join([str(len(self)), *kinds, *(h.hexdigest() for h in hashes)])
        return hashlib.sha256(text.encode()).hexdigest()


def _pair_of_tensors(given: Any, name: str) -> Pair | None:
    """Return ``given`` as two tensors of the CPU; None when it is no pair of them.

    They are copies, which the caller does not change, unless they take more than `RESIDENT_SHARE` of the memory.
    """
    parts: Any = given.tensors if type(given) is TensorDataset else parted(given)
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        return None
    leaves = [*tree.named(parts[0], ""), ("", parts[1])]
    if not all(isinstance(p, Tensor | np.ndarray) and p.ndim >= 1 for _, p in leaves):
        _refuse_other_pairs(parts, name)
        return None
    for (place, part), what in zip(leaves, ["inputs"] * (len(leaves) - 1) + ["targets"], strict=True):
        check_plain(part, name, f"as {what}{place}")
    copy = sum(p.nbytes for _, p in leaves) <= _room()
    try:
        inputs, targets = tree.mapped(
            lambda p: tensor_of(p).detach().to("cpu", copy=copy).contiguous(), (parts[0], parts[1])
        )
    except (TypeError, ValueError):
        raise UserError(
            f"{name} must hold numbers, got arrays of {' and '.join(str(p.dtype) for _, p in leaves)}"
        ) from None
    for n in map(len, tree.leaves(inputs)):
        if n != len(targets) or not n:
            raise UserError(
                f"{name} must have as many inputs as targets, at least one, got {n} inputs and {len(targets)} targets"
            )
    return inputs, targets


def _refuse_other_pairs(parts: Sequence[Any], name: str) -> None:
    """Refuse inputs and targets that are no tensors; two pairs may be the examples of a data set.

    Raises:
        UserError: they are others; the line says what to do.
    """
    if all(isinstance(part, tuple | list) and len(part) == 2 for part in parts):
        return
    for part, what in zip(parts, ("inputs", "targets"), strict=True):
        if instead := _instead(part, what):
            got = f"a {type(part).__name__} as {what}: {instead}"
            raise UserError(f"{name} must be a pair of tensors or arrays (inputs, targets), got {got}")


def _instead(part: Any, what: str) -> str:
    """Return what to do with inputs or targets that are no tensor; nothing of one."""
    if isinstance(part, Tensor | np.ndarray):
        return "" if part.ndim else "its first axis must be that of examples"
    if hasattr(part, "to_numpy"):
        return "pass its .to_numpy()"
    if isinstance(part, Mapping | tuple) and what == "inputs":
        kinds = sorted({type(leaf).__name__ for leaf in tree.leaves(part)} - {"Tensor", "ndarray"})
        return f"its leaves must be arrays [n, …], got {', '.join(kinds) or 'one without an axis of examples'}"
    if isinstance(part, tuple):
        return "a target is one tensor: join several by torch.stack([a, b], 1)"
    if isinstance(part, list) and isinstance(next(iter(part), 0), Tensor | np.ndarray):
        return "stack a list of examples, or give a list of pairs (input, target) and a collate_fn that pads them"
    return "make it a tensor, as torch.as_tensor does"


def _dataset(given: Any, name: str, collate: Collate | None) -> Any:
    if isinstance(given, IterableDataset):
        raise UserError(
            f"{name} must be a map-style dataset, got an iterable one: a chain reads examples by index to be resumable"
        )
    sized = isinstance(given, Dataset) or hasattr(type(given), "__getitem__")
    if isinstance(given, str | bytes | dict | Tensor | np.ndarray) or not sized or not hasattr(given, "__len__"):
        raise UserError(
            f"{name} must be a pair of tensors (inputs, targets), a dict of tensors with {LABELS!r}, or a map-style "
            f"dataset with a length, got a {type(given).__name__}"
            f"{' of ' + ', '.join(map(repr, given)) if isinstance(given, Mapping) else ''}"
        )
    if not length(given, name):
        raise UserError(f"{name} must hold at least one example, got none")
    Streamed(given, name=name, collate=collate)  # refuses a first example that differs from one reading to the next
    if not isinstance(getattr(given, "fingerprint", None), str):  # what states its identity is believed
        n = len(given)
        some = np.random.default_rng(n).choice(n, min(REREAD, n), replace=False)
        refuse_random(given, some.tolist(), name, collate=collate)
    return given


def _not_finite(t: Tensor) -> list[int]:
    """Return the rows that hold NaN or infinity; their sum alone decides whether each is checked."""
    if not t.is_floating_point() or bool(torch.isfinite(t.sum())):
        return []
    found: list[int] = (~torch.isfinite(t)).reshape(len(t), -1).any(1).nonzero()[:, 0].tolist()
    return found


def _room() -> float:
    """Return the bytes that a resident data set may take."""
    try:
        return RESIDENT_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not on this system
        return 2e9


@dataclass(frozen=True)
class _Packed:
    """A tensor as an array of bytes."""

    raw: np.ndarray[Any, Any]
    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, t: Tensor) -> _Packed:
        """Return a tensor's."""
        return cls(t.reshape(-1).view(torch.uint8).numpy(), t.dtype, tuple(t.shape))

    def tensor(self) -> Tensor:
        """Return the tensor: a copy, for what came through shared memory may not be written to, and models may work in
        place."""
        return torch.from_numpy(self.raw.copy()).view(self.dtype).reshape(self.shape)
