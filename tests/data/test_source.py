"""A resident source gives the rows of its tensors, and an order its permutation, wherever they are."""

from __future__ import annotations

import pytest
import torch

from raychains.data.order import EpochOrder
from raychains.data.source import Resident, Source

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
