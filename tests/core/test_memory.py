"""Overlaps of tensors in memory, held against the addresses of every number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raychains.core.memory import overlapping


def flat(n: int = 24) -> Tensor:
    return torch.arange(float(n))


def halves() -> list[Tensor]:
    whole = flat()
    return [whole[:12], whole[12:].view(3, 4)]


def columns() -> list[Tensor]:
    table = flat().view(4, 6)
    return [table[:, :2], table[:, 2:5], table[:, 5]]


def overlapping_columns() -> list[Tensor]:
    table = flat().view(4, 6)
    return [table[:, 4:], table[:, :3], table[:, 2:3]]


def real_parts() -> list[Tensor]:
    z = torch.zeros(5, dtype=torch.complex64)
    return [z.real, z.imag]


def other_width() -> list[Tensor]:
    whole = flat()
    return [whole[:7], whole.view(torch.float64)[3:]]


def one_array_twice() -> list[Tensor]:
    array = np.zeros(6)
    return [torch.from_numpy(array), torch.from_numpy(array[5:])]


def of_an_rnn() -> list[Tensor]:
    """As cuDNN keeps weights: views of one flat tensor."""
    weights = list(nn.LSTM(3, 4, 2).parameters())
    whole = torch.zeros(sum(w.numel() for w in weights))
    return [part.view(w.shape) for part, w in zip(whole.split([w.numel() for w in weights]), weights, strict=True)]


CASES: list[tuple[Callable[[], list[Tensor]], tuple[int, int] | None]] = [
    (halves, None),
    (columns, None),
    (overlapping_columns, (1, 2)),
    (real_parts, None),
    (other_width, (0, 1)),
    (one_array_twice, (0, 1)),
    (of_an_rnn, None),
    (lambda: [flat(), flat().view(4, 6).t()], None),
    (lambda: [torch.zeros(1), torch.zeros(1).expand(3)], (1, 1)),
    (lambda: [torch.zeros(13).as_strided((4, 3), (2, 3))], (0, 0)),  # 2·3 + 3·0 = 2·0 + 3·2
    (lambda: [torch.zeros(20).as_strided((2, 2), (3, 2))], None),
    (lambda: [torch.zeros(3, device="meta"), torch.zeros(3, device="meta"), torch.zeros(0), torch.zeros(0)], None),
    (lambda: [torch.zeros(2).to_sparse(), torch.zeros(())], None),
    (lambda: [*nn.LazyLinear(3).parameters(), torch.zeros(())], None),
]


@pytest.mark.parametrize(("tensors", "pair"), CASES)
def test_a_pair_is_found_where_two_tensors_share_a_number(
    tensors: Callable[[], list[Tensor]], pair: tuple[int, int] | None
) -> None:
    found = overlapping((str(i), t) for i, t in enumerate(tensors()))
    assert (None if found is None else tuple(sorted(map(int, found)))) == pair


def addresses(t: Tensor) -> set[int]:
    """The places of all numbers of a view of one buffer."""
    places = np.array(t.storage_offset())
    for n, step in zip(t.shape, t.stride(), strict=True):
        places = np.add.outer(places, step * np.arange(n))
    return set(places.ravel().tolist())


def test_random_strided_views_are_judged_as_by_their_addresses() -> None:
    rng, whole, found = np.random.default_rng(0), torch.zeros(60), []
    for _ in range(400):
        views = []
        for _ in range(rng.integers(1, 4)):
            shape, strides = rng.integers(1, 4, 2).tolist(), rng.integers(1, 9, 2).tolist()
            views.append(whole.as_strided(shape, strides, int(rng.integers(0, 30))))
        places = [addresses(v) for v in views]
        shared = sum(v.numel() for v in views) != len(set().union(*places))
        named = overlapping((str(i), v) for i, v in enumerate(views))
        assert (named is not None) is shared
        if named is not None:
            i, j = map(int, named)
            assert len(places[i]) < views[i].numel() if i == j else places[i] & places[j]
        found.append(shared)
    assert 100 < sum(found) < 300
