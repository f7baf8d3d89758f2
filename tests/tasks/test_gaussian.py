"""The Gaussian with full covariance: its gradient, its start, its settings, and that a chain finds its moments."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch.distributions import MultivariateNormal

from raychains import tasks
from raychains.chain import Chain
from raychains.sample import Sample
from raychains.samplers import SGLD
from raychains.schedules import Cyclical
from raychains.spec import ChainSpec, Part, TaskSpec
from raychains.tasks.gaussian import OVERDISPERSION, Gaussian
from tests.checks import refused

COVARIANCE = [[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]]
MEAN = [1.0, -2.0, 0.5]


def position(task: Gaussian, *, lanes: int, seed: int = 0) -> Any:
    model: Any = task.build_model(seed=seed, lanes=lanes)
    return model


@pytest.mark.parametrize("task", [Gaussian(covariance=COVARIANCE, mean=MEAN), Gaussian(), Gaussian(dim=1)])
def test_gradient_equals_autograd_of_torchs_own_density(task: Gaussian) -> None:
    theta = position(task, lanes=200).theta.detach().requires_grad_()
    density = MultivariateNormal(torch.from_numpy(task.mean), torch.from_numpy(task.covariance))
    (expected,) = torch.autograd.grad(-density.log_prob(theta).sum(), theta)
    torch.testing.assert_close(task.gradient(theta.detach()), expected, rtol=1e-10, atol=1e-10)
    assert task.gradient(theta.detach().float()).dtype == torch.float32


def test_backward_fills_the_gradient_with_noise_of_the_asked_sd() -> None:
    task, lanes, sd = Gaussian(covariance=COVARIANCE, mean=MEAN, gradient_noise=1.5), 50_000, 1.5
    model = position(task, lanes=lanes)
    clean, noises = task.gradient(model.theta.detach()), []
    for seed in (1, 1, 2):
        assert task.backward(model, None, torch.Generator().manual_seed(seed)) is None
        noises.append(model.theta.grad - clean)
    n = clean.numel()
    assert abs(float(noises[0].square().mean()) / sd**2 - 1) < 5 * math.sqrt(2 / n)
    assert abs(float(noises[0].mean())) < 5 * sd / math.sqrt(n)
    assert torch.equal(noises[0], noises[1]) and not torch.equal(noises[0], noises[2])


def test_covariance_from_dim_correlation_and_scale() -> None:
    np.testing.assert_allclose(Gaussian().covariance, [[1, 0.9], [0.9, 1]])
    np.testing.assert_allclose(
        Gaussian(dim=3, correlation=-0.4, scale=2).covariance, [[4, -1.6, -1.6], [-1.6, 4, -1.6], [-1.6, -1.6, 4]]
    )
    np.testing.assert_allclose(Gaussian(dim=1, scale=3.0).covariance, [[9.0]])


def test_chains_start_spread_out_around_the_target() -> None:
    task, lanes = Gaussian(covariance=COVARIANCE, mean=MEAN), 40_000
    start = position(task, lanes=lanes, seed=5).theta.detach().numpy()
    expected = OVERDISPERSION**2 * np.array(COVARIANCE)
    away = start - np.array(MEAN)
    se = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / lanes)
    assert np.abs((away.T @ away / lanes - expected) / se).max() < 5
    assert np.abs(away.mean(0) / np.sqrt(np.diag(expected) / lanes)).max() < 5
    again, other = (position(task, lanes=3, seed=s).theta for s in (5, 6))
    assert not torch.equal(again, other) and torch.equal(again, position(task, lanes=3, seed=5).theta)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"dim": 4, "correlation": 0.3, "scale": 0.7}, {"covariance": COVARIANCE, "mean": MEAN},
        {"mean": 2, "gradient_noise": 1},
    ],
)  # fmt: skip
def test_spec_rebuilds_the_task(settings: dict[str, Any]) -> None:
    task = Gaussian(**settings)
    again = tasks.build(TaskSpec.from_json(json.loads(json.dumps(task.spec().to_json()))))
    assert isinstance(again, Gaussian) and again.spec() == task.spec()
    np.testing.assert_array_equal(again.covariance, task.covariance)
    np.testing.assert_array_equal(again.mean, task.mean)
    assert again.gradient_noise == task.gradient_noise


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("dim", {"dim": 0}), ("dim", {"dim": 2.0}), ("correlation", {"correlation": 1.0}),
        ("correlation", {"dim": 3, "correlation": -0.5}), ("correlation", {"correlation": math.nan}),
        ("scale", {"scale": 0.0}), ("scale", {"scale": "1"}), ("mean", {"mean": [0.0]}), ("mean", {"mean": "ab"}),
        ("mean", {"mean": [0.0, math.inf]}), ("gradient_noise", {"gradient_noise": -1.0}),
        ("covariance", {"covariance": [[1.0, 2.0], [2.0, 1.0]]}), ("covariance", {"covariance": [[1.0, 0.1], [0, 1]]}),
        ("covariance", {"covariance": [[1.0, 2.0]]}), ("covariance", {"covariance": "x"}),
        ("covariance", {"covariance": [[1.0], [2.0, 3.0]]}), ("covariance", {"covariance": [[math.nan]]}),
        ("covariance", {"covariance": []}), ("dim", {"dim": 3, "covariance": COVARIANCE}),
        ("scale", {"scale": 1.0, "covariance": COVARIANCE}),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_one_line(field: str, settings: dict[str, Any]) -> None:
    with refused(field):
        Gaussian(**settings)


def test_a_chains_moments_are_those_of_the_lyapunov_equation() -> None:
    """SGLD at a constant step: Σ_k = (I−lr·P)Σ_k(I−lr·P) + 2·lr·I; each lane's last draw is independent of the others'."""
    lanes, lr, steps = 20_000, 0.08, 300
    task = Gaussian(covariance=COVARIANCE, mean=MEAN)
    # Cycles of a single step each keep the step size at lr.
    schedule = Cyclical(steps=steps, lr=lr, cycles=steps, exploration=0.0, thinning=1)
    spec = ChainSpec(
        task=task.spec(), sampler=Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 1}), schedule=schedule.part(),
        steps=steps, steps_per_epoch=1, batch_size=1, seed=0, repeat=0, chain=0, lanes=lanes, block_draws=1,
    )  # fmt: skip
    assert {schedule.at(k).lr for k in range(1, steps + 1)} == {lr}
    *_, last = (e for e in Chain(spec, task) if isinstance(e, Sample))
    draws = last.tensors["theta"][-1].double().numpy() - np.array(MEAN)
    contraction = np.eye(3) - lr * np.linalg.inv(COVARIANCE)
    assert np.abs(np.linalg.eigvals(contraction)).max() ** (2 * steps) < 1e-4, "the start is forgotten"
    exact = solve_discrete_lyapunov(contraction, 2 * lr * np.eye(3))
    se = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / lanes)
    assert np.abs((draws.T @ draws / lanes - exact) / se).max() < 5
    assert np.abs(draws.mean(0) / np.sqrt(np.diag(exact) / lanes)).max() < 5
