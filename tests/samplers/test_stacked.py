"""A stack of L lanes is L runs: path by path with the same noise, and without influence of one lane on another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers import KINDS, Sampler
from tests.samplers.every_kind import CASES, IDS, build, force, same_bits, steps, two_groups

LANES, STEPS = 4, 13


def parameters() -> list[Tensor]:
    """Of shapes that are a matrix, a vector and a number in each lane."""
    generator = torch.Generator().manual_seed(1)
    shapes: list[tuple[int, ...]] = [(2, 3), (5,), ()]
    return [torch.randn(LANES, *s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def lane_of(tensors: list[Tensor], lane: int) -> list[Tensor]:
    return [t.detach()[lane].clone() for t in tensors]


def by_lane(sampler: Sampler) -> list[Tensor]:
    return [p for _, ps in sampler.draws() for p in ps] + sampler.parameters()


def fed(sampler: Sampler, monkeypatch: pytest.MonkeyPatch, lane: int | None) -> None:
    """Its n-th noise is the n-th of one stream for the stack; a single run gets its own lane's part."""
    calls = iter(range(10**6))

    def noise(p: Tensor) -> Tensor:
        shape = p.shape if lane is None else (LANES, *p.shape)
        whole = torch.empty(shape, dtype=p.dtype).normal_(generator=torch.Generator().manual_seed(next(calls)))
        return whole if lane is None else whole[lane]

    def add_noise(tensors: list[Tensor], std: float) -> None:
        for t in tensors if std > 0 else []:
            t.add_(noise(t), alpha=std)

    monkeypatch.setattr(sampler, "noise_like", noise)
    monkeypatch.setattr(sampler, "noises_like", lambda tensors: [noise(t) for t in tensors])
    monkeypatch.setattr(sampler, "add_noise", add_noise)


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_a_stack_with_the_noise_of_single_runs_makes_their_paths(
    kind: str, own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal noise, equal paths, to rounding; noise is iid over the stack, hence equal laws.

    bSAM and SWAG draw their noise elsewhere and are compared at T = 0.
    """
    if kind in ("bsam", "swag"):
        own = {**own, "temperature": 0.0}
    stack = two_groups(kind, parameters(), lanes=LANES, **own)
    fed(stack, monkeypatch, None)
    steps(stack, STEPS)
    for lane in range(LANES):
        single = two_groups(kind, [p.requires_grad_() for p in lane_of(parameters(), lane)], **own)
        fed(single, monkeypatch, lane)
        steps(single, STEPS)
        for a, b in zip(lane_of(by_lane(stack), lane), by_lane(single), strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-12)


def disturbed(factor: float) -> Callable[[Tensor, int, int], Tensor]:
    """Lane 0 has another gradient."""

    def changed(p: Tensor, i: int, k: int) -> Tensor:
        g = force(p, i, k)
        g[0] = factor * g[0] + (factor - 1)
        return g

    return changed


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_lanes_do_not_influence_each_other(kind: str, own: dict[str, Any]) -> None:
    """Other gradients in lane 0 leave every bit of the other lanes, draws included."""
    runs = [two_groups(kind, parameters(), lanes=LANES, seed=5, **own) for _ in range(2)]
    steps(runs[0], STEPS)
    steps(runs[1], STEPS, force=disturbed(3.0))
    a, b = (by_lane(r) for r in runs)
    assert not same_bits(lane_of(a, 0), lane_of(b, 0))
    for lane in range(1, LANES):
        assert same_bits(lane_of(a, lane), lane_of(b, lane))


# Laplace's draws are of a single chain.
@pytest.mark.parametrize("kind", [k for k in sorted(KINDS) if KINDS[k].noisy_counterpart is None and k != "laplace"])
def test_lanes_have_noise_of_their_own(kind: str) -> None:
    """From equal starts no two lanes stay equal, and over many lanes the noise is uncorrelated with a neighbour's."""
    theta = torch.zeros(4_000, 3, dtype=torch.float64, requires_grad=True)
    sampler = build(kind, [theta], lanes=4_000, seed=8, **({"inner_steps": 1} if kind == "entropy-sgld" else {}))
    steps(sampler, 3)
    rows = torch.cat([p.detach() for _, ps in sampler.draws() for p in ps], dim=1)
    assert len(torch.unique(rows[:, 0])) == 4_000
    away = rows - rows.mean(0)
    neighbours = (away[:-1] * away[1:]).sum(0) / (away**2).sum(0)
    assert float(neighbours.abs().max()) < 5 / 4_000**0.5  # s.e. of a correlation of independent rows
