"""The order of a chain's minibatches, and where they come from: tensors on its device, or a data set that is streamed.
An epoch is a random-access sequence of index tensors, so that resuming needs only a position.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from raychains.core import gpus, tree
from raychains.core.errors import UserError, format_error, shown
from raychains.core.rng import GLOBALS, kept_globals
from raychains.core.tree import Tree
from raychains.core.validation import integer


class EpochOrder(Sequence[Tensor]):
    """A permutation of ``range(n)`` cut into batches of ``batch_size``; the last may be shorter.

    The permutation depends on ``seed`` alone, so the same (seed, epoch) gives the same batches anywhere. With
    ``among``, int64 [n], it is one of those examples.
    """

    def __init__(self, n: int, batch_size: int, seed: int, among: Tensor | None = None) -> None:
        self.batch_size = batch_size
        self.permutation = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        """int64 [n], in main memory."""
        if among is not None:
            self.permutation = among[self.permutation]
        self._order = self.permutation

    def to(self, device: torch.device) -> Self:
        """Give index tensors on ``device`` from now on, beside the data; returns itself."""
        self._order = gpus.sent(self.permutation, device)
        return self

    def place(self, indices: Tensor) -> slice | None:
        """Return where in the permutation ``indices`` lies, if it is a batch of this order or a contiguous part of one.

        Found by the tensor's memory, so that nothing is compared and no device is waited for; None for any other
        tensor.
        """
        same = indices.untyped_storage().data_ptr() == self._order.untyped_storage().data_ptr()
        if not same or indices.ndim != 1 or indices.dtype != torch.int64 or not indices.is_contiguous():
            return None
        return slice(indices.storage_offset(), indices.storage_offset() + len(indices))

    def __len__(self) -> int:
        return math.ceil(len(self._order) / self.batch_size)

    def __getitem__(self, i: int) -> Tensor:  # type: ignore[override]  # no slices
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self._order[i * self.batch_size : (i + 1) * self.batch_size]


class Source(Protocol):
    """Examples by index, as pairs of inputs and targets on the chain's device.

    Inputs are a tensor [n, …], or a tree of them (`raychains.core.tree`); targets are a tensor.
    """

    def __len__(self) -> int:
        """Number of examples."""

    def batch(self, indices: Tensor) -> Pair:
        """Inputs [n, …] and targets [n, …] of the examples ``indices`` [n] int64, in their order: tensors that the
        caller may change."""

    def to(self, device: torch.device) -> Self:
        """Give batches on ``device`` from now on; returns itself."""

    def follow(self, order: EpochOrder) -> None:
        """The batches that will be asked for next, so that they can be made ready ahead."""


class Resident:
    """A data set as tensors that live on the chain's device."""

    def __init__(self, inputs: Tree, targets: Tensor) -> None:
        if tree.size(inputs) != len(targets):
            raise ValueError(f"{tree.size(inputs)} inputs and {len(targets)} targets")
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor) -> Pair:
        """Inputs and targets of the examples ``indices``, in their order."""
        indices = indices.to(self.targets.device)
        inputs, targets = tree.mapped(lambda t: t.index_select(0, indices), (self.inputs, self.targets))
        return inputs, targets

    def to(self, device: torch.device) -> Self:
        """Move the tensors to ``device``."""
        self.inputs, self.targets = tree.sent((self.inputs, self.targets), device)
        return self

    def follow(self, order: EpochOrder) -> None:
        """Nothing to make ready."""


Pair = tuple[Tree, Tensor]
"""Inputs and targets."""
Collate = Callable[[list[Any]], Any]
"""A user's function that makes a batch of a list of examples, as that of torch's ``DataLoader``."""
LABELS = "labels"
"""The entry of a dict that is its target, as Hugging Face names it."""


class MapDataset(Protocol):
    """A map-style dataset in torch's sense: (input, target) by index."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitem__(self, index: int, /) -> Any:
        """(input, target), or a dict with ``labels``: tensors, arrays or numbers of the same shapes for every index."""


class Streamed:
    """Batches of any map-style dataset, with the values and the order that `Resident` would give.

    An example must be a function of its index: randomness, such as augmentation, belongs into the task, whose
    generator resumes. At most ``depth`` batches beside the current one are in memory.

    Args:
        dataset: map-style; with ``__getitems__`` it is asked for a batch at once, as torch's loader does.
        depth: batches loaded ahead.
        threads: that load; more than one only for a dataset that may be read by several threads at once. Decoding
            and file access run beside the chain; Python code in the dataset shares the interpreter with it.
        name: of the dataset in errors.
        collate: makes a batch of a list of examples, where these have several shapes; default stacks them.

    Raises:
        UserError: a bad argument; a dataset that does not give the same first example each time.
    """

    def __init__(
        self,
        dataset: MapDataset,
        *,
        depth: int = 4,
        threads: int = 1,
        name: str = "dataset",
        collate: Collate | None = None,
    ) -> None:
        for field, value, what in (
            ("depth", depth, "batches loaded ahead"),
            ("threads", threads, "threads that load batches"),
        ):
            integer(field, value, 1, why=f": the {what}")
        self.dataset, self.depth, self.threads, self.name, self.collate = dataset, depth, threads, name, collate
        self._device = torch.device("cpu")
        self._order: EpochOrder | None = None
        self._ahead: dict[int, Future[Pair]] = {}
        """Batches of the order that are loaded or being so, by number: the current one and at most `depth` after it."""
        self._current: tuple[int, Pair] | None = None
        """The batch that was asked for last, on the device: parts of it and repetitions come from here."""
        self._pool: ThreadPoolExecutor | None = None
        if length(dataset, name):
            refuse_random(dataset, [0], name, times=3, collate=collate)

    def __reduce__(self) -> Any:
        settings: dict[str, Any] = {
            "depth": self.depth,
            "threads": self.threads,
            "name": self.name,
            "collate": self.collate,
        }
        return partial(Streamed, **settings), (self.dataset,)

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
        inputs, targets = tree.mapped(lambda t: t[start:stop].clone(), self._batch(order, number))
        return inputs, targets

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
        return self._pool.submit(_load, self.dataset, indices, self.name, gpus.is_gpu(self._device), self.collate)

    def _sent(self, pair: Pair) -> Pair:
        inputs, targets = tree.sent(pair, self._device, non_blocking=True)
        return inputs, targets

    def _forget(self) -> None:
        for future in self._ahead.values():
            future.cancel()
        self._ahead.clear()
        self._current = None


def _load(dataset: MapDataset, indices: Tensor, name: str, pin: bool, collate: Collate | None) -> Pair:
    chosen = indices.tolist()
    pair = tree.at(examples(dataset, chosen or [0], name, collate), slice(len(chosen)))
    inputs, targets = tree.mapped(gpus.pinned, pair) if pin else pair
    return inputs, targets


def examples(
    dataset: MapDataset, indices: Sequence[int], name: str = "dataset", collate: Collate | None = None
) -> Pair:
    """Inputs [n, …] and targets [n, …] of the examples ``indices`` of a map-style dataset, in their order.

    Numbers become tensors of torch's default type (float32, int64), arrays keep theirs.

    Raises:
        UserError: the dataset or ``collate`` fails, or gives what does not form a batch; the line names the set and the
            index.
    """
    found = items(dataset, indices, name)
    if not indices:
        raise UserError(f"{name} must hold at least one example, got none")
    if collate is not None:
        return _collated(collate, list(found), name)
    pairs = [_pair(example, f"at index {i}", name) for i, example in zip(indices, found, strict=True)]
    inputs, targets = zip(*pairs, strict=True)
    return _stacked(inputs, indices, name, "input"), _stacked(targets, indices, name, "target")


def _collated(collate: Collate, items: list[Any], name: str) -> Pair:
    try:
        made = collate(items)
    except Exception as error:  # of a user's function
        raise UserError(
            f"collate_fn failed on {len(items)} examples of {name}: {format_error(error, kind=True)}"
        ) from error
    inputs, targets = _pair(made, "from collate_fn", name)
    for place, leaf in [*tree.named(inputs, "inputs"), ("targets", targets)]:
        if not leaf.ndim or len(leaf) != len(items):
            raise UserError(
                f"collate_fn must give tensors [n, …] for n examples, got {tree.described(leaf)} as {place} for "
                f"{len(items)}"
            )
    return inputs, targets


def items(dataset: MapDataset, indices: Sequence[int], name: str) -> Sequence[Any]:
    """Return the examples ``indices`` of a data set as it gives them.

    Raises:
        UserError: it fails; the line names the index.
    """
    together = getattr(dataset, "__getitems__", None)
    if together is not None:
        try:
            found = together(list(indices))
        except Exception as error:
            raise UserError(
                f"{name} failed at one of the indices {_shortened(indices)}: {format_error(error, kind=True)}"
            ) from error
        if len(found) != len(indices):
            raise UserError(f"{name} must give {len(indices)} examples for as many indices, got {len(found)}")
        return found
    each = []
    for i in indices:
        try:
            each.append(dataset[i])
        except Exception as error:
            raise UserError(f"{name} failed at index {i}: {format_error(error, kind=True)}") from error
    return each


def _shortened(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:3])) + ", …" * (len(indices) > 3)


def parted(example: Any) -> Any:
    """Return (inputs, target) of a dict of inputs with ``labels``, which is Hugging Face's form; others as they are."""
    if isinstance(example, Mapping) and LABELS in example and len(example) > 1:
        return {name: value for name, value in example.items() if name != LABELS}, example[LABELS]
    return example


def without_labels(inputs: Any) -> Any:
    """Return the inputs alone of a dict that holds ``labels`` beside them; others as they are."""
    found = parted(inputs)
    return inputs if found is inputs else found[0]


def _pair(example: Any, where: str, name: str) -> Pair:
    found = parted(example)
    if not isinstance(found, tuple | list) or len(found) != 2:
        got = f"a {type(example).__name__}"
        if isinstance(example, Mapping):
            got += f" of {', '.join(map(repr, example))}"
        elif isinstance(example, tuple | list):
            got += f" of {len(example)}; several inputs are a tuple, ((a, b), target)"
        raise UserError(f"{name} must give pairs (input, target), or dicts with {LABELS!r}, got {got} {where}")
    return _tree(found[0], where, name, "input"), _tensor(found[1], where, name, "target")


def _tree(value: Any, where: str, name: str, what: str) -> Tree:
    """Return an input as a tree of tensors."""
    if isinstance(value, Mapping) and value:
        return {str(key): _tree(part, where, name, f"{what}[{key!r}]") for key, part in value.items()}
    if isinstance(value, tuple) and value:
        return tuple(_tree(part, where, name, f"{what}[{i}]") for i, part in enumerate(value))
    return _tensor(value, where, name, what)


def length(dataset: Any, name: str = "dataset") -> int:
    """Return a data set's length.

    Raises:
        UserError: it has none that Python takes for one.
    """
    try:
        return len(dataset)
    except Exception as error:  # whatever a user's __len__ raises
        raise UserError(f"{name} must have a length, got {format_error(error, kind=True)}") from None


def check_plain(value: Any, name: str, what: str, verb: str = "hold") -> None:
    """Refuse a tensor or an array that is no dense block of numbers.

    Raises:
        UserError: it is sparse or nested, masked, or on the device meta; the line begins with ``name`` and ends with
            ``what``.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise UserError(f"{name} must {verb} whole arrays, got a masked one {what}: fill its gaps, as .filled(…) does")
    if not isinstance(value, Tensor):
        return
    if value.is_nested or value.layout is not torch.strided:
        kind = "nested" if value.is_nested else "sparse"
        raise UserError(f"{name} must {verb} dense tensors, got a {kind} one {what}")
    if value.is_meta:
        raise UserError(f"{name} must {verb} tensors with values, got one on the device meta {what}")


def tensor_of(value: Any) -> Tensor:
    """Return `torch.as_tensor`, of a NumPy array that runs backwards, as x[::-1] does, too."""
    backwards = isinstance(value, np.ndarray) and min(value.strides, default=0) < 0
    return torch.as_tensor(value.copy() if backwards else value)


def device_of(device: Any) -> torch.device:
    """Return a device that a user names.

    Raises:
        UserError: torch knows or has none of it here.
    """
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
        if found.type != "meta":
            return found
        reason = "its tensors have no values"
    except Exception as error:  # torch's, of many classes
        reason = format_error(error)
    raise UserError(f"device must be one of this machine, such as 'cpu' or 'cuda', got {shown(device)}: {reason}")


def _tensor(value: Any, where: str, name: str, what: str) -> Tensor:
    check_plain(value, name, f"as {what} {where}")
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, np.ndarray | np.generic | int | float | list):
        try:
            return tensor_of(value)
        except (TypeError, ValueError):  # an array of objects or texts
            pass
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise UserError(
        f"{name} must give tensors, arrays or numbers, got {kind} as {what} {where}: convert it in the dataset"
    )


def _stacked(parts: Sequence[Tree], indices: Sequence[int], name: str, what: str) -> Tree:
    first = tree.described(parts[0])
    for i, part in zip(indices, parts, strict=True):
        if (got := tree.described(part)) != first:
            raise UserError(
                f"{name} must give {what}s of one shape and type, got {first} at index {indices[0]} and {got} at index "
                f"{i}: pad them, or give a collate_fn, which makes a batch of a list of examples"
            )
    return tree.mapped(lambda *leaves: torch.stack(leaves), *parts)


def refuse_random(
    dataset: MapDataset, indices: Sequence[int], name: str, times: int = 1, collate: Collate | None = None
) -> None:
    """Read some examples again, as often as said: a dataset that augments would break exact resume without a word.

    Raises:
        UserError: an example differs between two readings; the line names its index.
    """
    with GLOBALS, kept_globals():
        before = torch.get_rng_state()
        first, *again = (examples(dataset, indices, name, collate) for _ in range(times + 1))
        torch.set_rng_state(before)
    for other in again:
        for n, i in enumerate(indices):
            pairs = zip(tree.leaves(tree.at(first, n)), tree.leaves(tree.at(other, n)), strict=True)
            if not all(torch.equal(a, b) or _same_nan(a, b) for a, b in pairs):
                raise UserError(
                    f"{name} must give the same example for the same index, got two different ones at index {i}: "
                    "leave random augmentation to the task, whose generator is resumed"
                )


def _same_nan(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.is_floating_point() and torch.allclose(a, b, 0, 0, True)
