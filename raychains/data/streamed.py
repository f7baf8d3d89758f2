"""A data set larger than memory: background threads load the batches of an epoch's order ahead of the chain."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from raychains.data.order import EpochOrder
from raychains.errors import UserError, require

Pair = tuple[Tensor, Tensor]


class MapDataset(Protocol):
    """What torch calls a map-style dataset: (input, target) by index."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitem__(self, index: int, /) -> Any:
        """(input, target): tensors, arrays or numbers of the same shape for every index."""


class Streamed:
    """Batches of any map-style dataset, with the values and the order that `Resident` would give.

    An example must be a function of its index: randomness, such as augmentation, belongs into the task, whose
    generator resumes. At most ``depth`` batches beside the current one are in memory.

    Args:
        dataset: map-style; with ``__getitems__`` it is asked for a batch at once, as torch's loader does.
        depth: batches loaded ahead.
        threads: that load; more than one only for a dataset that may be read by several threads at once. Decoding
            and file access run beside the chain; Python code in the dataset shares the interpreter with it.

    Raises:
        UserError: a bad argument; a dataset that does not give the same first example each time.
    """

    def __init__(self, dataset: MapDataset, *, depth: int = 4, threads: int = 1) -> None:
        require(_is_int(depth), "depth", depth, "be an integer of at least 1: the batches loaded ahead")
        require(_is_int(threads), "threads", threads, "be an integer of at least 1: the threads that load batches")
        self.dataset, self.depth, self.threads = dataset, depth, threads
        self._device = torch.device("cpu")
        self._order: EpochOrder | None = None
        self._ahead: dict[int, Future[Pair]] = {}
        """Batches of the order that are loaded or being so, by number: the current one and at most `depth` after it."""
        self._current: tuple[int, Pair] | None = None
        """The batch that was asked for last, on the device: parts of it and repetitions come from here."""
        self._pool: ThreadPoolExecutor | None = None
        if len(dataset):
            _refuse_random(dataset)

    def __reduce__(self) -> Any:
        return _rebuilt, (self.dataset, self.depth, self.threads)

    def __len__(self) -> int:
        return len(self.dataset)

    def to(self, device: torch.device) -> Self:
        """Give batches on ``device`` from now on; returns itself."""
        if device != self._device:
            self._device = device
            self._forget()
        return self

    def follow(self, order: EpochOrder) -> None:
        """Load ahead in ``order``, from the first of its batches that is asked for on."""
        if order is not self._order:
            self._forget()
            self._order = order

    def batch(self, indices: Tensor) -> Pair:
        """Inputs and targets of the examples ``indices`` on the device, in their order.

        Raises:
            UserError: the dataset fails, or gives what does not form a batch; the line names the index.
        """
        order = self._order
        place = order.place(indices) if order is not None else None
        if order is None or place is None:
            return self._sent(self._submit(indices).result())
        number, start = divmod(place.start, order.batch_size)
        stop = start + place.stop - place.start
        if start == stop or stop > order.batch_size:  # of no batch, or of two
            return self._sent(self._submit(order.permutation[place]).result())
        inputs, targets = self._batch(order, number)
        return inputs[start:stop], targets[start:stop]

    def close(self) -> None:
        """End the threads, each after the batch it loads; a later `batch` starts new ones."""
        self._forget()
        if self._pool is not None:
            self._finalizer()
            self._pool = None

    def _batch(self, order: EpochOrder, number: int) -> Pair:
        """The whole batch ``number``; what comes after it is being loaded when this returns."""
        if self._current is not None and self._current[0] == number:
            return self._current[1]
        self._current = None
        window = range(number, min(number + 1 + self.depth, len(order)))
        for other in [n for n in self._ahead if n not in window]:  # the chain jumped
            self._ahead.pop(other).cancel()
        for n in window:
            if n not in self._ahead:
                start = n * order.batch_size
                self._ahead[n] = self._submit(order.permutation[start : start + order.batch_size])
        self._current = number, self._sent(self._ahead.pop(number).result())
        return self._current[1]

    def _submit(self, indices: Tensor) -> Future[Pair]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="raychains-data")
            self._finalizer = weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        return self._pool.submit(_load, self.dataset, indices, self._device.type == "cuda")

    def _sent(self, pair: Pair) -> Pair:
        inputs, targets = (t.to(self._device, non_blocking=True) for t in pair)
        return inputs, targets

    def _forget(self) -> None:
        for future in self._ahead.values():
            future.cancel()
        self._ahead.clear()
        self._current = None


def _rebuilt(dataset: MapDataset, depth: int, threads: int) -> Streamed:
    return Streamed(dataset, depth=depth, threads=threads)


def _load(dataset: MapDataset, indices: Tensor, pin: bool) -> Pair:
    wanted = indices.tolist()
    inputs, targets = examples(dataset, wanted or [0])
    inputs, targets = inputs[: len(wanted)], targets[: len(wanted)]
    return (inputs.pin_memory(), targets.pin_memory()) if pin else (inputs, targets)


def examples(dataset: MapDataset, indices: Sequence[int]) -> Pair:
    """Inputs [n, …] and targets [n, …] of the examples ``indices`` of a map-style dataset, in their order.

    Numbers become tensors of torch's default type (float32, int64), arrays keep theirs.

    Raises:
        UserError: the dataset fails, or gives what does not form a batch; the line names the index.
    """
    pairs = [_pair(example, i) for i, example in zip(indices, _items(dataset, indices), strict=True)]
    if not pairs:
        raise UserError("dataset must hold at least one example, got none")
    inputs, targets = zip(*pairs, strict=True)
    return _stacked(inputs, indices, "input"), _stacked(targets, indices, "target")


def _items(dataset: MapDataset, indices: Sequence[int]) -> Sequence[Any]:
    together = getattr(dataset, "__getitems__", None)
    if together is not None:
        try:
            found = together(list(indices))
        except Exception as error:
            raise _failed(error, f"one of the indices {_shortened(indices)}") from error
        if len(found) != len(indices):
            raise UserError(f"dataset must give {len(indices)} examples for as many indices, got {len(found)}")
        return found
    items = []
    for i in indices:
        try:
            items.append(dataset[i])
        except Exception as error:
            raise _failed(error, f"index {i}") from error
    return items


def _failed(error: Exception, where: str) -> UserError:
    text = " ".join(str(error).split())
    return UserError(f"dataset failed at {where}: {type(error).__name__}{': ' * bool(text)}{text}")


def _shortened(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:3])) + ", …" * (len(indices) > 3)


def _pair(example: Any, index: int) -> Pair:
    if not isinstance(example, tuple | list) or len(example) != 2:
        raise UserError(f"dataset must give pairs (input, target), got a {type(example).__name__} at index {index}")
    return _tensor(example[0], index, "input"), _tensor(example[1], index, "target")


def _tensor(value: Any, index: int, what: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, np.ndarray | np.generic | int | float):
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError):  # an array of objects or texts
            pass
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise UserError(
        f"dataset must give tensors, arrays or numbers, got {kind} as {what} at index {index}: convert it in the dataset"
    )


def _stacked(parts: Sequence[Tensor], indices: Sequence[int], what: str) -> Tensor:
    first = parts[0]
    for i, part in zip(indices, parts, strict=True):
        if part.shape != first.shape or part.dtype != first.dtype:
            raise UserError(
                f"dataset must give {what}s of one shape and type, got {_kind(first)} at index {indices[0]} "
                f"and {_kind(part)} at index {i}"
            )
    return torch.stack(list(parts))


def _kind(t: Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}"


def _refuse_random(dataset: MapDataset, times: int = 4) -> None:
    """Look at the first example a few times: a dataset that augments would break exact resume silently."""
    before = torch.get_rng_state()
    first, *others = (examples(dataset, [0]) for _ in range(times))
    torch.set_rng_state(before)
    for other in others:
        if not all(torch.equal(a, b) or _same_nan(a, b) for a, b in zip(first, other, strict=True)):
            raise UserError(
                "dataset must give the same example for the same index, got two different ones at index 0: "
                "leave random augmentation to the task, whose generator is resumed"
            )


def _same_nan(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.is_floating_point() and torch.allclose(a, b, 0, 0, True)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
