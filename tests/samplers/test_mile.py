"""MILE's tuner against a plain transcription; it finds a step with little bias, and survives a checkpoint at any
step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raychains.evaluation.mcmc_diagnostics import ess
from raychains.samplers import MCLMC
from tests.samplers.test_mclmc import B, flat, kick, noise_of, refresh
from tests.spread import spread

Array = np.ndarray
WIDTHS = np.array([1.0, 0.3, 2.0, 0.6, 1.5, 0.8])
DECAY, N, TEMPERATURE = 0.1, 4, 0.5


def potential(x: Array, bad: float = math.inf) -> float:
    """U/T, with a cliff beyond which it is not a number."""
    return math.nan if x[0] > bad else N / TEMPERATURE * float((0.5 * (x / WIDTHS) ** 2).sum() + 0.5 * DECAY * x @ x)


def pull(x: Array) -> Array:
    return -N / TEMPERATURE * (x / WIDTHS**2 + DECAY * x)


def closure(theta: Tensor, bad: float = math.inf) -> Callable[[], Tensor]:
    scale = torch.from_numpy(WIDTHS)

    def evaluate() -> Tensor:
        theta.grad = theta.detach() / scale**2
        loss = 0.5 * (theta.detach() / scale).square().sum()
        return torch.where(theta.detach()[0] > bad, math.nan, loss)

    return evaluate


def turn(u: Array, g: Array, length: float) -> tuple[Array, float]:
    """The textbook form of ΔK."""
    norm = float(np.linalg.norm(g))
    delta, p, d = length * norm / (len(u) - 1), float(u @ g) / norm, len(u)
    return kick(u, g, length), (d - 1) * (delta - math.log(2) + math.log(1 + p + (1 - p) * math.exp(-2 * delta)))


def transcription(
    x: Array, u: Array, h: float, noise: Callable[[], Array], tune: int, bad: float, diagonal: bool
) -> tuple[list[tuple[Array, float]], list[float]]:
    """(θ, h) after every tuning step, and L after each of the last two phases."""
    d = len(x)
    tune1, tune2 = int(0.8 * tune), int(0.1 * tune)
    aims = np.linspace(0.5, 0.1, tune1 + tune2 + 1)
    length, g, cap = max(math.sqrt(d), 15.0), pull(x), math.inf
    total, weights, averaged = 0.0, 0.0, np.zeros(3, dtype=object)
    path, rows, lengths = [], [], []
    scales, scaled = np.ones(d), tune1 + 2 * tune2 // 3 if diagonal else tune
    for k in range(tune):
        before = x, u, g
        u, gained = refresh(u, noise(), h, length), 0.0
        for share, move in ((B, 0.5), (1 - 2 * B, 0.5), (B, 0.0)):
            u, change = turn(u, g * scales, share * h)
            gained += change
            if move:
                x = x + move * h * u * scales
                g = pull(x)
        change = gained + potential(x, bad) - potential(before[0], bad)
        u = refresh(u, noise(), h, length)
        ok = math.isfinite(change)
        if not ok:
            x, u, g = before
            change = 0.0
        if k < tune1 + tune2:
            if not ok:
                cap = 0.8 * h
            xi = change**2 / (d * aims[k]) + 1e-8
            weight = math.exp(-0.5 * (math.log(xi) / (6 * 1.5)) ** 2)
            total = 99 / 101 * total + weight * xi / h**6
            weights = 99 / 101 * weights + weight
            h = min((total / weights) ** (-1 / 6), cap)
            if tune1 <= k < scaled and ok:
                averaged = averaged + h * np.array([1.0, x, x**2], dtype=object)
        else:
            rows.append(x)
        path.append((x, h))
        if k + 1 in (scaled, tune1 + tune2):
            mean, square = averaged[1] / averaged[0], averaged[2] / averaged[0]
            variances = (square - mean**2).astype(float)
        if k + 1 == scaled:
            scales, total, weights = np.sqrt(variances / variances.mean()), 0.0, 0.0
        if k + 1 == tune1 + tune2:
            length = math.sqrt(variances.sum())
            lengths.append(length)
    sizes = ess(np.stack(rows)[None], "mean")
    lengths.append(0.4 * h * float(np.mean(len(rows) / sizes)))
    return path, lengths


@pytest.mark.parametrize("preconditioner", ["none", "diagonal"])
@pytest.mark.parametrize("bad", [math.inf, 0.35])
def test_tuning_is_the_plain_transcription(bad: float, preconditioner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a cliff of NaN, which steps fall over again and again."""
    tune = 100  # with steps of this size errors grow a thousandfold in 50 steps
    theta = torch.full((6,), 0.1, dtype=torch.float64, requires_grad=True)
    own: dict[str, Any] = {"tune": tune, "preconditioner": preconditioner}
    sampler = MCLMC([theta], lr=0.2, num_data=N, temperature=TEMPERATURE, weight_decay=DECAY, seed=5, **own)
    noise = noise_of(sampler, monkeypatch, seed=7)
    first = noise()
    diagonal = preconditioner == "diagonal"
    path, lengths = transcription(np.full(6, 0.1), first / np.linalg.norm(first), 0.2, noise, tune, bad, diagonal)
    undone = 0
    for k, (x, h) in enumerate(path):
        before = theta.detach().clone()
        sampler.step(closure(theta, bad))
        undone += torch.equal(before, theta.detach())
        found = sampler.step_length()
        assert found is not None and float(found) == pytest.approx(h, rel=1e-5)
        np.testing.assert_allclose(flat([theta]), x, rtol=1e-5, atol=1e-6)
        if k == 89:
            assert float(sampler.trajectory_length()) == pytest.approx(lengths[0], rel=1e-5)  # type: ignore[arg-type]
    assert float(sampler.trajectory_length()) == pytest.approx(lengths[1], rel=1e-5)  # type: ignore[arg-type]
    assert (undone > 3) is (bad < 1), "steps over the cliff are undone"
    h, length = float(sampler.step_length()), float(sampler.trajectory_length())  # type: ignore[arg-type]
    sampler.param_groups[0]["lr"] = 7.0
    sampler.step(closure(theta))
    assert (float(sampler.step_length()), float(sampler.trajectory_length())) == (h, length)  # type: ignore[arg-type]
    assert not sampler.wants_objective


def lanes_of(theta: Tensor, widths: Tensor) -> Callable[[], Tensor]:
    def evaluate() -> Tensor:
        theta.grad = theta.detach() / widths**2
        return 0.5 * (theta.detach() / widths).square().sum(1)

    return evaluate


def tuned(
    own: dict[str, Any], steps: int, widths: Tensor, cut: int | None = None, lanes: int = 2
) -> tuple[MCLMC, Tensor]:
    theta = torch.zeros(lanes, len(widths), dtype=torch.float64, requires_grad=True)
    sampler = MCLMC([theta], lr=0.05, num_data=1, lanes=lanes, seed=1, **own)
    for k in range(steps):
        if k == cut:
            state = copy.deepcopy(sampler.state_dict())
            theta = theta.detach().clone().requires_grad_()
            sampler = MCLMC([theta], lr=9.0, num_data=3, lanes=lanes, seed=2, **own)
            sampler.load_state_dict(state)
        sampler.step(lanes_of(theta, widths))
    return sampler, theta.detach()


@cache
def phases(preconditioner: str, cut: int | None = None) -> tuple[MCLMC, Tensor]:
    own = {"tune": 200, "preconditioner": preconditioner}
    return tuned(own, 215, torch.linspace(0.2, 2.0, 5, dtype=torch.float64), cut)


@pytest.mark.parametrize(("cut", "preconditioner"), spread([1, 100, 165, 175, 190, 205], ["none", "diagonal"]))
def test_tuning_continues_bit_for_bit_from_any_phase(cut: int, preconditioner: str) -> None:
    straight, x = phases(preconditioner)
    again, y = phases(preconditioner, cut)
    assert torch.equal(x, y)
    assert torch.equal(straight.step_length(), again.step_length())  # type: ignore[arg-type]
    assert torch.equal(straight.trajectory_length(), again.trajectory_length())  # type: ignore[arg-type]


@pytest.mark.long
def test_tuned_chains_have_the_law_and_a_preconditioner_lengthens_the_step_of_unequal_widths() -> None:
    """From a step a hundred times too short, in a condition number of 1,600."""
    widths = torch.from_numpy(np.geomspace(0.05, 2.0, 12))
    steps = {}
    for preconditioner in ("none", "diagonal"):
        own: dict[str, Any] = {"tune": 1200, "energy_error": 5e-4, "preconditioner": preconditioner}
        sampler, theta = tuned(own, 1200, widths, lanes=30)
        x = theta.clone().requires_grad_()
        rest = MCLMC([x], lr=1.0, num_data=1, lanes=30, seed=2, **own)
        rest.load_state_dict(sampler.state_dict())
        total = torch.zeros_like(theta)
        for _ in range(800):
            rest.step(lanes_of(x, widths))
            total += (x.detach() / widths).square()
        ratios = (total / 800).numpy()
        error = ratios.std(0) / math.sqrt(30)
        steps[preconditioner] = float(sampler.step_length())  # type: ignore[arg-type]
        assert bool((np.abs(ratios.mean(0) - 1) < 0.06 + 4 * error).all()), (preconditioner, ratios.mean(0))
    assert steps["diagonal"] > 3 * steps["none"]
