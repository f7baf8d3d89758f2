"""MCLMC against a plain transcription, the exact dynamics, and the law that its step size gives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from raychains.samplers import MCLMC
from raychains.samplers.isokinetic import B, turned
from tests.checks import refused

Array = np.ndarray


# A plain transcription


def kick(u: Array, g: Array, length: float) -> Array:
    """One exact turn of u by a constant gradient g of log p."""
    norm = float(np.linalg.norm(g))
    if norm < 1e-13:
        return u
    e, delta = g / norm, length * norm / (len(u) - 1)
    p, zeta = float(u @ e), math.exp(-delta)
    new = e * (1 - zeta) * (1 + zeta + p * (1 - zeta)) + 2 * zeta * u
    return new / np.linalg.norm(new)


def refresh(u: Array, z: Array, h: float, length: float) -> Array:
    new = u + math.sqrt((math.exp(2 * (h / 2) / length) - 1) / len(u)) * z
    return new / np.linalg.norm(new)


def plain_step(
    x: Array, u: Array, g: Array, slope: Callable[[Array], Array], h: float, length: float, noise: Callable[[], Array]
) -> tuple[Array, Array, Array]:
    u = refresh(u, noise(), h, length)
    u = kick(u, g, B * h)
    x = x + h / 2 * u
    g = slope(x)
    u = kick(u, g, (1 - 2 * B) * h)
    x = x + h / 2 * u
    g = slope(x)
    u = kick(u, g, B * h)
    return x, refresh(u, noise(), h, length), g


def noise_of(sampler: MCLMC, monkeypatch: pytest.MonkeyPatch, seed: int) -> Callable[[], Array]:
    """The sampler's noise is the n-th of a stream; return a function that gives the same numbers one after another."""
    mine, theirs = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)

    def like(p: Tensor) -> Tensor:
        return torch.empty(p.shape, dtype=torch.float64).normal_(generator=mine)

    monkeypatch.setattr(sampler, "noise_like", like)
    d = sum(p.numel() for p in sampler.parameters()) // sampler.lanes
    return lambda: torch.empty(1, d, dtype=torch.float64).normal_(generator=theirs).numpy()[0]


WIDTHS = np.array([1.0, 0.5, 2.0, 0.7, 1.3, 0.9, 3.0])
N, DECAY, TEMPERATURE = 5, 0.2, 0.7


def loss_of(x: Tensor) -> Tensor:
    """A loss that is no square, of all coordinates together."""
    scaled = x / torch.from_numpy(WIDTHS)
    return 0.1 * scaled.square().sum() + 0.05 * torch.cos(scaled[0] * scaled[3]) + 0.02 * (scaled**4).sum()


def closure(params: list[Tensor], calls: list[int] | None = None) -> Callable[[], Tensor]:
    def evaluate() -> Tensor:
        if calls is not None:
            calls.append(1)
        for p in params:
            p.grad = None
        loss = loss_of(torch.cat([p.reshape(-1) for p in params]))
        loss.backward()
        return loss.detach()

    return evaluate


def parameters() -> list[Tensor]:
    """Seven coordinates in a matrix, a number and a vector."""
    x = torch.linspace(-1, 2, 7, dtype=torch.float64)
    return [part.clone().requires_grad_() for part in (x[:4].reshape(2, 2), x[4].reshape(()), x[5:])]


def flat(params: list[Tensor]) -> Array:
    return torch.cat([p.detach().reshape(-1) for p in params]).numpy()


def test_a_closure_without_backward_is_refused_and_moves_nothing() -> None:
    params = parameters()
    before = flat(params)
    with refused("closure must call backward() on the loss"):
        MCLMC(params, lr=0.1, num_data=10).step(lambda: torch.zeros(()))
    np.testing.assert_array_equal(flat(params), before)


@pytest.mark.parametrize("length", [None, 2.5])
def test_it_is_the_plain_transcription_step_for_step(length: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    params = parameters()
    sampler = MCLMC(params, lr=0.4, num_data=N, length=length, temperature=TEMPERATURE, weight_decay=DECAY)
    noise = noise_of(sampler, monkeypatch, seed=3)

    def slope(x: Array) -> Array:
        theta = torch.from_numpy(x).requires_grad_()
        (g,) = torch.autograd.grad(loss_of(theta), theta)
        return -N / TEMPERATURE * (g.numpy() + DECAY * x)

    x = flat(params)
    u, g = noise(), slope(x)
    u /= np.linalg.norm(u)
    for k in range(200):
        h = 0.4 if k < 100 else 0.1  # as a schedule changes it
        sampler.param_groups[0]["lr"] = h
        sampler.step(closure(params))
        x, u, g = plain_step(x, u, g, slope, h, 15.0 if length is None else length, noise)
        np.testing.assert_allclose(flat(params), x, rtol=1e-10, atol=1e-11)
    directions = flat([sampler.state[p]["direction"] for p in params])
    np.testing.assert_allclose(directions, u, rtol=1e-9, atol=1e-10)
    assert np.linalg.norm(directions) == pytest.approx(1, abs=1e-12)


def test_a_step_evaluates_two_gradients_and_the_first_one_a_third() -> None:
    params, calls = parameters(), []
    sampler = MCLMC(params, lr=0.1, num_data=N)
    counts = []
    for _ in range(3):
        sampler.step(closure(params, calls))
        counts.append(len(calls))
    assert counts == [3, 5, 7] and MCLMC.gradients_per_step == 2


def test_the_deterministic_part_is_reversible() -> None:
    """Steps, u ← −u, as many steps: back where they began. A trajectory of 1e30 makes the refresh vanish."""
    params = parameters()
    sampler = MCLMC(params, lr=0.3, num_data=N, length=1e30, weight_decay=DECAY, seed=1)
    sampler.step(closure(params))
    begin = flat(params)
    for _ in range(40):
        sampler.step(closure(params))
    assert np.abs(flat(params) - begin).max() > 0.5
    for p in params:
        sampler.state[p]["direction"].neg_()
    for _ in range(40):
        sampler.step(closure(params))
    np.testing.assert_allclose(flat(params), begin, rtol=0, atol=1e-10)


def test_a_turn_and_its_energy_are_the_exact_solution() -> None:
    """u′ = (1 − uuᵀ)g/(d − 1) and K′ = u·g, for a constant g."""
    rng = np.random.default_rng(0)
    d = 6
    u, g = rng.normal(size=d), 3 * rng.normal(size=d)
    u /= np.linalg.norm(u)
    for length in (1e-3, 0.2, 3.0):

        def motion(_: float, y: Array) -> Array:
            return np.append((g - y[:d] * (y[:d] @ g)) / (d - 1), y[:d] @ g)

        exact = solve_ivp(motion, (0, length), np.append(u, 0.0), rtol=1e-12, atol=1e-13, method="DOP853").y[:, -1]
        new, gained = turned(torch.from_numpy(u)[None], torch.from_numpy(g)[None], length)
        np.testing.assert_allclose(new[0], exact[:d], rtol=1e-9, atol=1e-11)
        assert float(gained) == pytest.approx(exact[d], rel=1e-9)


def test_the_change_of_energy_keeps_its_digits_in_single_precision() -> None:
    d = 270_000
    generator = torch.Generator().manual_seed(0)
    u, g = (torch.randn(1, d, dtype=torch.float64, generator=generator) for _ in range(2))
    u /= u.norm()
    exact, single = (float(turned(u.to(t), g.to(t), 0.3)[1]) for t in (torch.float64, torch.float32))
    assert single == pytest.approx(exact, abs=1e-6)


def test_a_step_conserves_energy_to_second_order() -> None:
    """ΔE over a fixed time falls by 4 with half the step: the turns' energies are those of the whole dynamics."""

    def potential(x: Array) -> float:
        return N * float(loss_of(torch.from_numpy(x)))

    def pull(x: Array) -> Tensor:
        theta = torch.from_numpy(x).requires_grad_()
        return -N * torch.autograd.grad(loss_of(theta), theta)[0][None]

    errors = []
    for h in (0.2, 0.1, 0.05):
        begin = x = flat(parameters())
        u, gained = torch.full((1, 7), 1 / math.sqrt(7), dtype=torch.float64), 0.0
        for _ in range(round(1.0 / h)):
            for share, move in ((B, 0.5), (1 - 2 * B, 0.5), (B, 0.0)):
                u, change = turned(u, pull(x), share * h)
                gained += float(change)
                x = x + move * h * u[0].numpy()
        errors.append(gained + potential(x) - potential(begin))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2) and errors[1] / errors[2] == pytest.approx(4, rel=0.1)


# Its law


def moments(widths: Array, h: float, *, lanes: int, steps: int, burn_in: int) -> tuple[Array, Array]:
    """Relative errors of the variances on N(0, diag(widths²)), from exact starts, with standard errors from the
    lanes."""
    torch.set_num_threads(1)
    scale = torch.from_numpy(widths)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(lanes, len(widths), dtype=torch.float64, generator=generator) * scale
    theta = start.requires_grad_()
    length = float(np.linalg.norm(widths))  # √ΣVar
    sampler = MCLMC([theta], lr=h, num_data=1, length=length, lanes=lanes, seed=0)

    def evaluate() -> Tensor:
        theta.grad = theta.detach() / scale**2
        return torch.zeros(())

    total = torch.zeros_like(start)
    for k in range(steps):
        sampler.step(evaluate)
        if k >= burn_in:
            total += (theta.detach() / scale).square()
    ratios = (total / (steps - burn_in)).detach().numpy()
    return ratios.mean(0) - 1, ratios.std(0) / math.sqrt(lanes)


def test_variances_of_a_condition_number_of_100_are_within_3_per_cent_at_a_small_step() -> None:
    off, error = moments(10 ** -np.linspace(0, 1, 20), 0.5, lanes=800, steps=600, burn_in=150)
    assert bool((np.abs(off) < 0.03 + 4 * error).all()) and error.max() < 0.012
    assert off.mean() == pytest.approx(-0.004, abs=0.005), "-.4 % is known of this step, ΔE²/d = 1e-5"


def test_variances_are_too_small_by_the_known_bias_at_a_large_step() -> None:
    """−2.05 % in all coordinates alike at ⟨ΔE²⟩/d = 5e-4, which h = 5.25 has in 20 dimensions."""
    off, error = moments(np.ones(20), 5.25, lanes=1000, steps=500, burn_in=100)
    assert off.mean() == pytest.approx(-0.0205, abs=5 * error.mean() / math.sqrt(20))
    assert np.abs(off - off.mean()).max() < 5 * error.max()
