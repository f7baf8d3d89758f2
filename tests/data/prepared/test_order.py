"""The order of learning: a permutation per epoch, mixed, cut into the same batches whoever reads it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raychains.data.prepared.order import ShardedOrder, epoch_order, permutation

ROWS = [64] * 300 + [17]
N = sum(ROWS)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.integers(1, 9), max_size=30), seed=st.integers(0, 2**63 - 1), window=st.integers(1, 40))
def test_every_epoch_is_a_permutation(rows: list[int], seed: int, window: int) -> None:
    epoch = epoch_order(rows, seed, window)
    assert sorted(epoch.indices.tolist()) == list(range(sum(rows)))
    assert sorted(epoch.place.tolist()) == list(range(len(rows)))


def test_epochs_differ_and_a_seed_repeats() -> None:
    a, b = epoch_order(ROWS, 1, 16).indices, epoch_order(ROWS, 2, 16).indices
    assert (a == epoch_order(ROWS, 1, 16).indices).all()
    assert (a != b).mean() > 0.99


def test_its_bits_are_those_of_the_published_generator() -> None:
    """Philox4x64-10 of a zero key and counter 1, from the generator's own known-answer tests' arithmetic."""
    mask, low = 2**64 - 1, []
    counter, key = [1, 0, 5, 3], [9, 0]
    for _ in range(10):
        products = (0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2])
        counter = [
            (products[1] >> 64) ^ counter[1] ^ key[0], products[1] & mask,
            (products[0] >> 64) ^ counter[3] ^ key[1], products[0] & mask,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    low = counter
    assert permutation(9, 5, 3, 4).tolist() == np.argsort(np.array(low, dtype=np.uint64), kind="stable").tolist()


@pytest.mark.parametrize("seed", range(5))
def test_order_has_nothing_to_do_with_storage(seed: int) -> None:
    """Spearman's rank correlation of N places has the standard error 1/√N = .007; whole groups move: √64 times that at
    most."""
    indices = epoch_order(ROWS, seed, 16).indices
    correlation = np.corrcoef(np.arange(N), indices)[0, 1]
    assert abs(correlation) < 0.05 or abs(correlation) < 3 * np.sqrt(1 / len(ROWS))
    assert abs(np.corrcoef(np.argsort(indices), np.arange(N))[0, 1]) < 3 * np.sqrt(1 / len(ROWS))


@pytest.mark.parametrize(("batch", "window"), [(8, 16), (32, 16), (256, 16), (64, 64)])
def test_a_batch_is_made_of_many_row_groups(batch: int, window: int) -> None:
    order = ShardedOrder(ROWS, batch, 3, window)
    group = np.repeat(np.arange(len(ROWS)), ROWS)
    full = [part for part in list(order)[:-1] if len(part) == batch]
    spans = [len(set(group[part.indices].tolist())) for part in full]
    assert np.mean(spans) >= min(batch, window) / 2
    # Of 2,400 batches of 8 some have fewer by chance; one in the shorter last window has fewer to take from.
    assert np.mean(np.array(spans[: -(64 * window // batch + 1)]) >= min(batch, window) / 2) > 0.999


def test_batches_are_the_order_cut_and_ranks_slice_them() -> None:
    order = ShardedOrder(ROWS, 100, 3, 4)
    assert len(order) == -(-N // 100)
    assert np.concatenate([p.indices for p in order]).tolist() == order.epoch.indices.tolist()
    last = order[len(order) - 1]
    for part in (order[7], last):
        slices = [part.slice(r, 3) for r in range(3)]
        assert np.concatenate([s.indices for s in slices]).tolist() == part.indices.tolist()
        assert max(map(len, slices)) - min(map(len, slices)) <= 1
    with pytest.raises(IndexError):
        order[len(order)]


def test_a_window_needs_no_more_row_groups_than_it_says() -> None:
    order = ShardedOrder(ROWS, 50, 8, 4)
    group = np.repeat(np.arange(len(ROWS)), ROWS)
    windows = order.epoch.place[group[order.epoch.indices]] // 4
    assert (np.diff(windows) >= 0).all() and np.unique(windows).tolist() == list(range(76))
