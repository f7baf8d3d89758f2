"""A resident source gives the rows of its tensors, and an order its permutation, wherever they are.

Batches loaded ahead by threads: the bytes of a resident source, whatever the chain asks for and however slow the disk.
"""

from __future__ import annotations

import gc
import pickle
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from raychains.data.source import EpochOrder, Resident, Source, Streamed, examples
from tests.checks import refused
from tests.processes import SECONDS

CPU = torch.device("cpu")


def test_a_batch_is_the_rows_of_its_indices_in_their_order() -> None:
    x, y = torch.randint(0, 256, (9, 2, 3), dtype=torch.uint8), torch.arange(9) * 10
    source: Source = Resident(x, y)
    indices = torch.tensor([4, 0, 4, 8])
    inputs, targets = source.batch(indices)
    assert inputs.dtype == torch.uint8 and targets.tolist() == [40, 0, 40, 80]
    for row, i in zip(inputs, indices.tolist(), strict=True):
        assert torch.equal(row, x[i])
    assert len(source) == 9


def test_a_batch_is_a_copy() -> None:
    source = Resident(torch.zeros(3, 2), torch.zeros(3))
    source.batch(torch.tensor([1]))[0].add_(1)
    assert not source.inputs.any()


def test_data_and_indices_move_together() -> None:
    """On the device that only knows shapes: a source or an order that stays behind would fail there."""
    meta = torch.device("meta")
    source = Resident(torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64))
    assert source.to(meta) is source
    order = EpochOrder(5, 2, seed=0)
    assert order.to(meta) is order
    for batch, n in zip(order, (2, 2, 1), strict=True):
        inputs, targets = source.batch(batch)
        assert batch.device == inputs.device == targets.device == meta and inputs.shape == (n, 3)


def test_inputs_and_targets_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="3 inputs and 2 targets"):
        Resident(torch.zeros(3), torch.zeros(2))


# The order


def test_an_orders_values_are_torchs_permutation_of_its_seed() -> None:
    """Frozen: a change of these alters every chain."""
    expected = torch.randperm(10, generator=torch.Generator().manual_seed(3))
    assert expected.tolist() == [6, 0, 3, 7, 8, 5, 1, 9, 2, 4]
    for order in (EpochOrder(10, 4, 3), EpochOrder(10, 4, 3).to(CPU)):
        assert [b.tolist() for b in order] == [expected[:4].tolist(), expected[4:8].tolist(), expected[8:].tolist()]
        assert all(b.dtype == torch.int64 for b in order)
        with pytest.raises(IndexError):
            order[3]


def test_an_order_knows_its_own_batches_and_their_parts() -> None:
    order, same = EpochOrder(23, 5, seed=1), EpochOrder(23, 5, seed=1)
    for i, batch in enumerate(order):
        assert order.place(batch) == slice(5 * i, 5 * i + len(batch))
        assert order.place(batch.clone()) is None and same.place(batch) is None
        start = 5 * i
        for part in batch.tensor_split(2):
            assert order.place(part) == slice(start, start + len(part))
            start += len(part)
    assert order.place(order[0][::2]) is None and order.place(torch.tensor([1])) is None


N = 23
X = torch.randint(0, 256, (N, 2, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) * 7 % 5


class Slow:
    """Examples that take a random time, counted; those in ``broken`` fail."""

    def __init__(self, slow: float = 0.0, broken: tuple[int, ...] = ()) -> None:
        self.slow, self.broken = slow, broken
        self.read: list[int] = []
        self._random = random.Random(0)

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.read.append(i)
        if self.slow:
            time.sleep(self._random.random() * self.slow)
        if i in self.broken:
            raise OSError(f"the disk has no\nexample {i}")
        return X[i], int(Y[i])


def resident() -> Resident:
    return Resident(X, Y)


def same(a: Source, b: Source, batch: Tensor) -> bool:
    """Whether two sources give the same bytes."""
    pairs = list(zip(a.batch(batch), b.batch(batch), strict=True))
    return all(p.dtype == q.dtype and torch.equal(p, q) for p, q in pairs)


def ended(threads: set[threading.Thread], seconds: float = SECONDS) -> bool:
    """Whether these threads end in time."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def alive() -> set[threading.Thread]:
    """Those that load data."""
    return {t for t in threading.enumerate() if t.name.startswith("raychains-data")}


def loaded(source: Streamed) -> None:
    """Wait until nothing is being loaded."""
    for future in list(source._ahead.values()):
        future.exception(timeout=SECONDS)


# Equal to Resident


@pytest.mark.parametrize(("batch_size", "depth", "threads"), [(5, 1, 1), (5, 3, 2), (1, 4, 3), (23, 2, 1), (40, 1, 1)])
@pytest.mark.parametrize("slow", [0.0, 0.002])
def test_every_epoch_has_the_bytes_of_a_resident_source(batch_size: int, depth: int, threads: int, slow: float) -> None:
    source, other = Streamed(Slow(slow), depth=depth, threads=threads), resident()
    assert len(source) == len(other) == N
    for seed in (0, 1):
        order = EpochOrder(N, batch_size, seed)
        source.follow(order)
        assert all(same(source, other, batch) for batch in order)
    source.close()


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_resumed_chain_starts_in_the_middle_and_reads_nothing_before_it(cut: int) -> None:
    dataset = Slow(0.001)
    source, order = Streamed(dataset, depth=2), EpochOrder(N, 5, seed=2)
    dataset.read.clear()
    source.follow(order)
    for i in range(cut, len(order)):
        assert same(source, resident(), order[i])
    assert dataset.read == order.permutation[5 * cut :].tolist()


def test_parts_and_repetitions_of_a_batch_load_it_once() -> None:
    """As methods do that take several gradients of one minibatch."""
    dataset = Slow()
    source, order = Streamed(dataset, depth=1), EpochOrder(N, 8, seed=5)
    dataset.read.clear()
    source.follow(order)
    for batch in order:
        for _ in range(2):
            assert same(source, resident(), batch)
            assert all(same(source, resident(), part) for part in batch.tensor_split(3))
    assert dataset.read == order.permutation.tolist()


def test_the_same_order_again_is_not_loaded_anew() -> None:
    """A chain whose batches are the whole data keeps one order for all epochs."""
    dataset = Slow()
    source, order = Streamed(dataset), EpochOrder(N, N, seed=0)
    dataset.read.clear()
    for _ in range(4):
        source.follow(order)
        assert same(source, resident(), order[0])
    assert len(dataset.read) == N


def test_jumps_parts_and_indices_of_no_order_in_any_sequence() -> None:
    source, order = Streamed(Slow(0.001), depth=2, threads=2), EpochOrder(N, 3, seed=4)
    other = EpochOrder(N, N, seed=1)
    assert same(source, resident(), torch.tensor([3, 3, 22])), "before any order"
    source.follow(order)
    for i in (0, 1, 6, 7, 2, 3, 3, 0, 5, 4, 7):
        for batch in (order[i], order[i].clone(), order[i][::2], order[i][:0], torch.tensor([i, 1]), order[i][1:]):
            assert same(source, resident(), batch)
        assert len(source._ahead) <= 2, "what was loaded for where the chain has left is let go"
    source.follow(other)
    for empty in (other[0][:0], other[0][N:]):
        assert same(source, resident(), empty) and len(source.batch(empty)[0]) == 0


def test_a_copy_that_travelled_gives_the_same() -> None:
    source, order = Streamed(Slow(), depth=2, threads=2), EpochOrder(N, 5, seed=0)
    source.follow(order)
    source.batch(order[0])
    again = pickle.loads(pickle.dumps(source))
    assert (again.depth, again.threads) == (2, 2)
    again.follow(order)
    assert all(same(again, resident(), batch) for batch in order)


def test_moving_gives_batches_on_the_device() -> None:
    source, order = Streamed(Slow()), EpochOrder(N, 5, seed=0)
    source.follow(order)
    source.batch(order[0])
    assert source.to(torch.device("meta")) is source
    order.to(torch.device("meta"))
    assert [t.device.type for t in source.batch(order[0])] == ["meta"] * 2
    order.to(torch.device("cpu"))
    assert all(same(source.to(torch.device("cpu")), resident(), batch) for batch in order)


# Memory


@pytest.mark.parametrize("depth", [1, 3])
def test_at_most_depth_batches_are_loaded_ahead(depth: int) -> None:
    dataset = Slow()
    source, order = Streamed(dataset, depth=depth, threads=2), EpochOrder(N, 2, seed=0)
    dataset.read.clear()
    source.follow(order)
    for i, batch in enumerate(order):
        source.batch(batch)
        loaded(source)
        assert len(source._ahead) <= depth
        assert len(dataset.read) == min(N, 2 * (i + 1 + depth))


def test_batches_are_ready_before_they_are_asked_for() -> None:
    dataset = Slow()
    source, order = Streamed(dataset, depth=1), EpochOrder(N, 4, seed=0)
    source.follow(order)
    source.batch(order[0])
    loaded(source)
    dataset.broken = tuple(range(N))  # whatever is read from here on fails
    assert same(source, resident(), order[1])


# Failures


def test_an_error_in_the_dataset_surfaces_with_its_index_when_its_batch_is_asked_for() -> None:
    order = EpochOrder(N, 5, seed=0)
    bad = int(order[2][3])
    source = Streamed(Slow(broken=(bad,)), depth=4)
    source.follow(order)
    for i in (0, 1):
        assert same(source, resident(), order[i])
    for _ in range(2):
        with refused("dataset", f"index {bad}", f"OSError: the disk has no example {bad}"):
            source.batch(order[2])
    for i in (3, 4):
        assert same(source, resident(), order[i])
    with refused(f"index {bad}"):
        source.batch(torch.tensor([bad]))


class Given:
    """Examples made by a function of the index."""

    def __init__(self, example: Callable[[int], Any]) -> None:
        self.example = example

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return self.example(i)


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (lambda i: X[i], ("pairs", "Tensor", "index 3")),
        (lambda i: (X[i], 1, 2), ("pairs", "tuple", "index 3")),
        (lambda i: (X[i], "cat"), ("str", "target", "index 3")),
        (lambda i: ({"x": "cat"}, 1), ("str", "input['x']", "index 3")),
        (lambda i: ({"x": X[i], "labels": "cat"}), ("str", "target", "index 3")),
        (
            lambda i: ((X[i], X[i]) if i % 2 else (X[i],), 1),
            ("shape", "[1] uint8 [2, 3] at index 3", "index 4", "collate_fn"),
        ),
        (lambda i: (np.array([None]), 1), ("object", "input", "index 3")),
        (lambda i: (X[i, : 1 + i % 2], 1), ("shape", "uint8 [2, 3]", "index 3", "uint8 [1, 3]", "index 4")),
        (lambda i: (X[i], 1 if i % 2 else 0.5), ("type", "int64 []", "index 3", "float32 []", "index 4")),
    ],
)
def test_what_forms_no_batch_is_refused(example: Callable[[int], Any], words: tuple[str, ...]) -> None:
    with refused("dataset", *words):
        examples(Given(example), [3, 4])


def test_a_dataset_that_augments_is_refused_and_the_global_generator_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with refused("dataset", "same example", "index 0", "augmentation"):
        Streamed(Given(lambda i: (X[i] + torch.randint(0, 9, (2, 3)), 0)))
    Streamed(Given(lambda i: (torch.tensor([float("nan")]), 0)))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("field", ["depth", "threads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_bad_arguments_are_refused(field: str, value: Any) -> None:
    with refused(field, repr(value), "at least 1"):
        Streamed(Slow(), **{field: value})


def test_an_empty_dataset_has_no_batches() -> None:
    with refused("dataset", "at least one example"):
        examples(Slow(), [])


# What a dataset may give


def test_arrays_numbers_and_tensors_become_tensors_of_their_type() -> None:
    kinds = Given(lambda i: (np.full(2, i, np.float64), i / 2))
    inputs, targets = examples(kinds, [1, 2])
    assert inputs.dtype == torch.float64 and targets.dtype == torch.float32
    assert inputs.tolist() == [[1, 1], [2, 2]] and targets.tolist() == [0.5, 1.0]
    inputs, targets = examples(Given(lambda i: (torch.ones(1, requires_grad=True), np.int32(i))), [5])
    assert not inputs.requires_grad and targets.dtype == torch.int32


def test_torchs_own_datasets_are_read_and_asked_for_a_batch_at_once() -> None:
    part = Subset(TensorDataset(X, Y), list(range(5, N)))
    asked = []

    class Counted(Subset[Any]):
        def __getitems__(self, indices: list[int]) -> Any:
            asked.append(indices)
            return super().__getitems__(indices)

    counted = Counted(part, list(range(len(part))))
    source, other = Streamed(counted), Resident(X[5:], Y[5:])
    asked.clear()
    order = EpochOrder(len(part), 7, seed=0)
    source.follow(order)
    assert all(same(source, other, batch) for batch in order)
    assert asked == [b.tolist() for b in order]


def test_a_batch_reader_that_fails_or_miscounts_is_refused() -> None:
    class Wrong(Slow):
        def __getitems__(self, indices: list[int]) -> Any:
            if 9 in indices:
                raise KeyError(9)
            return [self[0]]

    with refused("dataset", "one of the indices 7, 8, 9, …", "KeyError: 9"):
        examples(Wrong(), [7, 8, 9, 10])
    with refused("dataset", "2 examples", "got 1"):
        examples(Wrong(), [1, 2])


# Threads


def test_one_thread_alone_reads_the_dataset_unless_more_are_asked_for() -> None:
    seen: set[int] = set()
    source = Streamed(Given(lambda i: (seen.add(threading.get_ident()), (X[i], 0))[1]), depth=3)
    seen.clear()
    order = EpochOrder(N, 3, seed=0)
    source.follow(order)
    for batch in order:
        source.batch(batch)
        source.batch(torch.tensor([1]))
    assert len(seen) == 1 and threading.get_ident() not in seen


def test_closing_ends_the_threads_and_a_later_batch_starts_new_ones() -> None:
    before = alive()
    source, order = Streamed(Slow(), threads=2), EpochOrder(N, 5, seed=0)
    source.follow(order)
    source.batch(order[0])
    ours = alive() - before
    assert ours
    source.close()
    assert ended(ours)
    assert all(same(source, resident(), batch) for batch in order)
    source.close()
    source.close()


def test_a_source_that_nobody_holds_leaves_no_thread_even_from_amid_a_load() -> None:
    gate, inside = threading.Event(), threading.Event()
    first = [True] * 4  # the reads of the constructor pass

    def example(i: int) -> tuple[Tensor, int]:
        if first:
            first.pop()
        elif i == stuck:
            inside.set()
            gate.wait(SECONDS)
        return X[i], 0

    order = EpochOrder(N, 5, seed=0)
    stuck = int(order[1][0])
    before = alive()
    source = Streamed(Given(example), depth=2)
    source.follow(order)
    source.batch(order[0])
    assert inside.wait(SECONDS)
    ours = alive() - before
    assert ours
    del source
    gc.collect()
    gate.set()
    assert ended(ours)
