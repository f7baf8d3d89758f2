"""Linear combinations of samples against numpy, in every type that samples have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raychains.evaluation.vectors import combined
from tests.checks import refused


def sample(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(3, 4, generator=g).to(dtype),
        "b": torch.randn(3, generator=g).to(dtype),
        "seen": torch.tensor(seed),
    }


def test_a_combination_is_the_weighted_sum_and_integers_are_the_firsts() -> None:
    samples, c = [sample(s) for s in (5, 6, 7)], [0.2, -1.5, 2.3]
    found = combined(list(zip(c, samples, strict=True)))
    for name in ("w", "b"):
        expected = np.tensordot(c, np.stack([s[name].double().numpy() for s in samples]), 1)
        assert found[name].numpy() == pytest.approx(expected, rel=1e-6) and found[name].dtype == torch.float32
    assert int(found["seen"]) == 5


def test_half_precisions_are_rounded_once() -> None:
    samples, c = [sample(s, torch.bfloat16) for s in (0, 1, 2)], [0.1, 0.7, 0.2]
    found = combined(list(zip(c, samples, strict=True)))["w"]
    exact = sum(a * s["w"].double() for a, s in zip(c, samples, strict=True))
    assert torch.equal(found, exact.to(torch.bfloat16))  # type: ignore[union-attr]


def test_one_sample_is_itself_and_a_share_of_it_is_scaled() -> None:
    one = sample(0)
    assert all(combined([(1.0, one)])[name] is one[name] for name in one)
    assert torch.equal(combined([(0.5, one)])["w"], one["w"] / 2)


def test_other_networks_are_refused() -> None:
    one, other = sample(0), {**sample(1), "w": torch.zeros(4, 3)}
    with refused("samples", "network"):
        combined([(0.5, one), (0.5, other)])
    with refused("samples", "network"):
        combined([(0.5, one), (0.5, {"w": one["w"]})])
    with refused("terms", "1"):
        combined([])
