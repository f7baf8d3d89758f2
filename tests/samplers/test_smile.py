"""SMILE and pSMILE against a plain transcription of their whole rule, and against MCLMC where they are it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import gamma, norm
from torch import Tensor

from raychains.samplers import MCLMC, PSMILE, SMILE
from raychains.samplers.smile import gamma_quantile
from tests.samplers.test_mclmc import B, flat, kick

Array = np.ndarray
WIDTHS = np.array([1.0, 0.5, 2.0, 0.8, 1.4])
NOISE = np.array([0.3, 1.0, 0.1, 0.5, 2.0])
N, DECAY, TEMPERATURE = 3, 0.1, 0.8


class Minibatches:
    """Each step's random tilt of the loss: gradient and loss are of one minibatch."""

    def __init__(self, steps: int, tail: bool = False) -> None:
        rng = np.random.default_rng(4)
        self.tilts = rng.standard_t(2, size=(steps, 5)) * NOISE if tail else rng.normal(size=(steps, 5)) * NOISE
        self.levels = rng.normal(size=steps)
        self.shift = np.zeros(steps)

    def loss(self, x: Array, k: int) -> float:
        return float((0.5 * (x / WIDTHS) ** 2).sum() + self.tilts[k] @ x + self.levels[k] + self.shift[k])

    def slope(self, x: Array, k: int) -> Array:
        return np.nan_to_num(x / WIDTHS**2 + self.tilts[k] + DECAY * x, nan=0.0)

    def closure(self, theta: Tensor, k: int) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            x = theta.detach().numpy().copy()
            theta.grad = torch.from_numpy(x / WIDTHS**2 + self.tilts[k])
            return torch.tensor(self.loss(x, k), dtype=torch.float64)

        return evaluate


def stretch(u: Array, g: Array, length: float) -> float:
    """The textbook form of ΔK; 0 where nothing turns."""
    norm_, d = float(np.linalg.norm(g)), len(u)
    if norm_ < 1e-13:
        return 0.0
    delta, p = length * norm_ / (d - 1), float(u @ g) / norm_
    return (d - 1) * (delta - math.log(2) + math.log(1 + p + (1 - p) * math.exp(-2 * delta)))


def quantile(q: float, mean: float, s: float) -> float:
    shape, scale = mean**2 / (s**2 + 1e-6), (s**2 + 1e-6) / mean
    part = 1 / (9 * max(shape, 0.1))  # the floor is ours
    return shape * scale * (1 - part + norm.ppf(q) * math.sqrt(part)) ** 3


def transcription(
    x: Array, h: float, data: Minibatches, steps: int, *, q: float, a: float, centre: str | None = None
) -> tuple[list[Array], list[float], int]:
    """θ and h after each step, and how many steps were undone. ``centre`` None is SMILE."""
    u, g, log_p, mean, s, resets = np.zeros(5), np.zeros(5), 0.0, 0.0, 0.0, 0
    sigma, m = np.ones(5), np.zeros(5)
    path, hs = [], []
    for t in range(1, steps + 1):
        start, gained, k = x, 0.0, t - 1
        used = np.clip(sigma, 0.01, 1e4)
        used = used / np.sqrt((used**2).mean()) if centre is not None else np.ones(5)
        for share, move in ((B, 0.5), (1 - 2 * B, 0.5), (B, 0.0)):
            gained += stretch(u, g / used, share * h)
            u = kick(u, g / used, share * h)
            if move:
                x = x + move * h * u / used
                g = np.clip(-N / TEMPERATURE * data.slope(x, k), -1e6, 1e6)
        new = -N / TEMPERATURE * (data.loss(x, k) + 0.5 * DECAY * x @ x)
        energy = abs(gained - (new - log_p) * (log_p != 0))
        log_p = new
        old_mean, old_s = mean, s
        mean = float(np.clip(energy if t < 3 else 0.99 * mean + 0.01 * energy, 1e-6, 1e6))
        variance = 0.99 * s**2 * (t != 1) + 0.01 * (energy - mean) ** 2
        if t >= 5:
            variance /= 1 - 0.5 ** (t - 4)
        s = float(np.clip(math.sqrt(variance), 1e-6, 1e7))
        if t >= 10:
            undone = energy > quantile(q, old_mean, old_s)
            if undone:
                x, u, resets = start, np.zeros(5), resets + 1
            if undone or energy > quantile(1 - 2 * a / 3, old_mean, old_s):
                h *= 0.98
            elif energy < quantile(a / 3, old_mean, old_s):
                h *= 1.02
            h = float(np.clip(h, 1e-8, 10))
        if centre == "average":
            m = 0.99 * m + 0.01 * g
            sigma = np.sqrt(0.99 * sigma**2 + 0.01 * (g - m) ** 2)
        elif centre == "one":
            sigma = np.sqrt(0.99 * sigma**2 + 0.01 * (0.99 * (g - 1)) ** 2)
        sigma = np.maximum(sigma, math.sqrt(1e-7))
        path.append(x)
        hs.append(h)
    return path, hs, resets


@pytest.mark.parametrize("centre", [None, "average", "one"])
@pytest.mark.parametrize(("q", "a"), [(0.99, 0.05), (0.9, 0.3)])
def test_the_whole_rule_is_the_plain_transcription(q: float, a: float, centre: str | None) -> None:
    """Over 600 noisy steps; their noise has heavy tails in the second case."""
    steps = 600
    data = Minibatches(steps, tail=q < 0.95)
    begin = np.linspace(-1, 1, 5)
    theta = torch.from_numpy(begin.copy()).requires_grad_()
    given: dict[str, Any] = {"lr": 0.02, "num_data": N, "reset_quantile": q, "tail": a, "temperature": TEMPERATURE}
    sampler = (
        SMILE([theta], weight_decay=DECAY, **given)
        if centre is None
        else PSMILE([theta], weight_decay=DECAY, centre=centre, **given)
    )
    path, hs, resets = transcription(begin, 0.02, data, steps, q=q, a=a, centre=centre)
    for k in range(steps):
        sampler.step(data.closure(theta, k))
        np.testing.assert_allclose(flat([theta]), path[k], rtol=1e-11, atol=1e-11, err_msg=f"step {k}")
        found = sampler.step_length()
        assert found is not None and float(found) == pytest.approx(hs[k], rel=1e-12)
    assert resets > 3 and max(hs) > min(hs)


class Still(MCLMC):
    """MCLMC without refresh."""

    def _refresh(self, u: Tensor, h: Tensor, length: Tensor) -> Tensor:
        return u


def test_with_a_fixed_step_no_resets_and_exact_gradients_it_is_mclmc_without_refresh_bit_for_bit() -> None:
    def quadratic(theta: Tensor) -> Callable[[], Tensor]:
        scale = torch.from_numpy(WIDTHS)

        def evaluate() -> Tensor:
            theta.grad = theta.detach() / scale**2
            return 0.5 * (theta.detach() / scale).square().sum()

        return evaluate

    theta = torch.linspace(-1, 1, 5, dtype=torch.float64).requires_grad_()
    sampler = SMILE([theta], lr=0.2, num_data=N, tail=0.0, reset_quantile=None, weight_decay=DECAY)
    sampler.step(quadratic(theta))  # its first step begins without a direction
    other = theta.detach().clone().requires_grad_()
    mclmc = Still([other], lr=0.2, num_data=N, weight_decay=DECAY)
    state = mclmc.state_dict()
    mclmc.load_state_dict({**state, "state": sampler.state_dict()["state"]})
    for k in range(400):
        h = 0.2 if k < 200 else 0.1
        for s, p in ((sampler, theta), (mclmc, other)):
            s.param_groups[0]["lr"] = h
            s.step(quadratic(p))
        assert torch.equal(theta, other)
    assert sampler.step_length() is None and not sampler.wants_objective


def test_a_step_whose_energy_is_not_a_number_is_undone_and_counts_for_nothing() -> None:
    data = Minibatches(60)
    data.shift[30] = math.nan
    data.tilts[40, 2] = math.nan
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    sampler = SMILE([theta], lr=0.05, num_data=N, reset_quantile=None)
    for k in range(60):
        before = theta.detach().clone()
        sampler.step(data.closure(theta, k))
        assert torch.equal(theta.detach(), before) is (k == 30 or k == 40), k
    assert all(bool(torch.isfinite(v).all()) for v in sampler.state[theta].values())


def test_the_energy_before_a_stage_without_noise_is_not_compared_with_that_behind_it() -> None:
    """With a potential from before the stage, far from today's, the first step behind it would be undone."""
    data = Minibatches(60)
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    sampler = SMILE([theta], lr=0.05, num_data=N, reset_quantile=0.99, tail=0.0)
    for k in range(45):
        sampler.param_groups[0]["temperature"] = 0.0 if k >= 30 else 1.0
        sampler.step(data.closure(theta, k))
    assert "potential" not in sampler._adaptive
    other, compared = copy.deepcopy((theta, sampler))
    compared._adaptive["potential"] = torch.full((1,), 1e3, dtype=torch.float64)
    for one, by in ((theta, sampler), (other, compared)):
        by.param_groups[0]["temperature"] = 1.0
        before = one.detach().clone()
        by.step(data.closure(one, 45))
        assert torch.equal(one.detach(), before) is (by is compared)


def test_quantiles_are_near_the_gamma_laws() -> None:
    mean, s = torch.tensor([[2.0]]), torch.tensor([[1.5]])
    for q in (0.05, 0.5, 0.9, 0.99):
        exact = gamma.ppf(q, a=4 / 2.25, scale=2.25 / 2)
        assert float(gamma_quantile(q, mean, s)) == pytest.approx(exact, rel=0.02 if q > 0.1 else 0.06)


def test_quantiles_of_small_shapes_are_positive_and_of_the_right_size() -> None:
    for shape in np.geomspace(0.01, 1, 9):
        mean, s = torch.tensor([[1.0]]).double(), torch.tensor([[shape**-0.5]]).double()
        for q in (0.99, 1 - 0.1 / 3):
            exact = gamma.ppf(q, a=shape) / shape
            assert exact / 3.2 < float(gamma_quantile(q, mean, s)) < 3.2 * exact, (shape, q)


@pytest.mark.parametrize("outlier", [300.0, 3000.0, 1e5])
def test_one_large_change_of_energy_does_not_stop_the_chain(outlier: float) -> None:
    """A loss that jumps once: in the 300 steps behind no more are undone than by chance, and h stays."""
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    sampler, noise = SMILE([theta], lr=0.05, num_data=1), np.random.default_rng(0).normal(size=(401, 5))
    moved, lengths = [], []
    for k in range(401):

        def closure(k: int = k) -> Tensor:
            theta.grad = theta.detach() + torch.from_numpy(noise[k])
            return (0.5 * theta.detach() ** 2).sum() + noise[k, 0] + (outlier if k == 100 else 0.0)

        before = theta.detach().clone()
        sampler.step(closure)
        moved.append(not torch.equal(before, theta.detach()))
        lengths.append(float(sampler._adaptive["h"]))
    assert moved[102:].count(False) < 20 and lengths[-1] > 0.5 * lengths[99]


def test_a_quiet_coordinate_moves_farther_by_psmile() -> None:
    """Noise of sd .1 in one coordinate and 2 in the other: their σ are in the ratio 20, where SMILE's steps have none."""
    rng = np.random.default_rng(0)
    theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    sampler = PSMILE([theta], lr=0.01, num_data=1, tail=0.0, reset_quantile=None)
    for _ in range(1500):
        tilt = torch.from_numpy(rng.normal(size=2) * [0.1, 2.0])

        def evaluate(tilt: Tensor = tilt) -> Tensor:
            theta.grad = tilt.clone()
            return torch.zeros(())

        sampler.step(evaluate)
    sigma = sampler.state_dict()["sampler"]["adaptive"]["sigma"][0]
    assert float(sigma[1] / sigma[0]) == pytest.approx(20, rel=0.3)
    assert float(sigma[1]) == pytest.approx(2.0, rel=0.2)  # its memory of 100 steps has an error of 7 %
