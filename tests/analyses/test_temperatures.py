"""Configurational temperatures of exact draws of tempered quadratics, and gradients of networks against formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raychains.analyses import temperatures
from raychains.analyses.temperatures import Gradient, network, other_half
from raychains.evaluation.base import Array
from raychains.tasks import Task
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.mixture import AXIS, VARIANCE, Mixture25
from tests.analyses import made
from tests.analyses.densities import stored
from tests.analyses.made import DIM, Made, N, data, linear, regression
from tests.chain_tasks import VariedDigits
from tests.orchestration.worlds import comparison

TASK = Gaussian(covariance=[[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]], mean=[1.0, -20.0, 0.5])


def tempered(rng: np.random.Generator, t: float, shape: tuple[int, ...]) -> Array:
    """Exact draws of exp(−U/T) of `TASK`."""
    return rng.multivariate_normal(TASK.mean, t * TASK.covariance, size=shape)


@pytest.mark.parametrize("t", [0.5, 1.0])
def test_a_quadratics_temperature_is_found(tmp_path: Path, t: float) -> None:
    """(θ−μ)·∇U/d of exact draws has mean T and variance 2T²/d."""
    rng = np.random.default_rng(0)
    context = stored(tmp_path, TASK, [tempered(rng, t, (900, 2)) for _ in range(2)], temperature=t)
    found = temperatures.rows(context)
    assert [(r["repeat"], r["kind"]) for r in found] == [(0, "configurational"), (1, "configurational")]
    for row in found:
        assert row["set"] == t and row["draws"] == 1800 and row["gradient"] == "exact" and row["notice"] == ""
        assert abs(row["estimate"] - t) < 4 * row["error"]
        assert row["error"] == pytest.approx(t * np.sqrt(2 / 3 / 1800), rel=0.25)


def test_a_hotter_chain_than_was_set_is_seen(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    context = stored(tmp_path, TASK, [tempered(rng, 1.5, (900, 1))], temperature=1.0)
    (row,) = temperatures.rows(context)
    assert row["estimate"] - 1.0 > 5 * row["error"] and abs(row["estimate"] - 1.5) < 4 * row["error"]


def test_weight_decay_is_part_of_the_potential(tmp_path: Path) -> None:
    """Draws of the Gaussian times N(0, 1/λ): without the decay's share the estimate would be another."""
    rng = np.random.default_rng(2)
    inverse = np.linalg.inv(TASK.covariance)
    covariance = np.linalg.inv(inverse + 3 * np.eye(3))
    draws = rng.multivariate_normal(covariance @ inverse @ TASK.mean, covariance, size=(3000, 1))
    context = stored(tmp_path, TASK, [draws], weight_decay=3.0)
    (row,) = temperatures.rows(context)
    assert abs(row["estimate"] - 1) < 4 * row["error"] and row["error"] < 0.05


def test_a_chain_in_one_mode_of_a_mixture_has_a_temperature_too(tmp_path: Path) -> None:
    """Its own mean is the centre, of which each half gives the other's: far from 0 the error would be 20 times as large."""
    rng = np.random.default_rng(3)
    draws = np.array([AXIS[-1], AXIS[-1]]) + np.sqrt(0.5 * VARIANCE) * rng.normal(size=(1000, 1, 2))
    context = stored(tmp_path, Mixture25(), [draws], temperature=0.5)
    (row,) = temperatures.rows(context)
    assert abs(row["estimate"] - 0.5) < 4 * row["error"] and row["error"] == pytest.approx(
        0.5 * np.sqrt(1 / 1000), rel=0.2
    )


def test_the_other_halfs_mean_is_independent_of_each_draw() -> None:
    series = np.arange(10.0).reshape(2, 5, 1)
    assert other_half(series)[..., 0].tolist() == [[3, 3, 0.5, 0.5, 0.5], [8, 8, 5.5, 5.5, 5.5]]
    assert other_half(series[:, :1]).tolist() == [[[0.0]], [[0.0]]]


def test_a_density_that_says_no_potential_has_no_temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = stored(tmp_path, TASK, [np.random.default_rng(0).normal(size=(50, 1, 3))])
    monkeypatch.setattr(Gaussian, "potential", lambda self, theta: None)
    (row,) = temperatures.rows(context)
    assert np.isnan(row["estimate"]) and "potential" in row["notice"]


# Networks


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    """A stored run whose sampler has the settings that are given."""

    def make(folder: Path, task: Task, samples: Sequence[Any], **settings: Any) -> Made:
        monkeypatch.setattr(made, "comparison", partial(comparison, **{"num_data": task.num_data, **settings}))
        return Made(folder, task, samples)

    return make


def posterior(decay: float, t: float, rng: np.random.Generator, n: int) -> Array:
    """Exact draws of [weight, bias] of the linear network under exp(−U/T), from its normal equations."""
    x, y = (v.double().numpy() for v in data(0))
    design = np.concatenate([x, np.ones((N, 1))], axis=1)
    precision = design.T @ design + N * decay * np.eye(DIM + 1)
    mean = np.linalg.solve(precision, design.T @ y)
    return rng.multivariate_normal(mean, t * np.linalg.inv(precision), size=n)


def test_networks_gradients_are_those_of_the_whole_potential(tmp_path: Path, run: Callable[..., Made]) -> None:
    """N·(mean loss + ½λ‖θ‖²) of linear regression: Xᵀ(Xθ − y) + Nλθ."""
    task = regression()
    spec = run(tmp_path, task, [(0, 0, "theta", linear(1, 2, 3, 4))], weight_decay=0.3).specs[0]
    theta = np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    x, y = (v.double().numpy() for v in data(0))
    design = np.concatenate([x, np.ones((N, 1))], axis=1)
    exact = design.T @ (design @ theta - y) + N * 0.3 * theta
    gradient = Gradient(task, spec)
    found = gradient(linear(1, 2, 3, 4), seed=5)
    assert found["weight"].numpy()[0] == pytest.approx(exact[:4], rel=1e-5)
    assert found["bias"].numpy() == pytest.approx(exact[4:], rel=1e-5)
    assert gradient.dim == 5 and gradient.over == "all training data"


def test_minibatches_are_drawn_anew_for_each_sample_and_unbiased(
    tmp_path: Path, run: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temperatures, "WHOLE", N - 1)
    monkeypatch.setattr(temperatures, "MINIBATCHES", 2)
    task = regression()
    gradient = Gradient(task, run(tmp_path, task, [(0, 0, "theta", linear(1, 2, 3, 4))]).specs[0])
    assert gradient.over == "2 minibatches of 20"
    found = np.array([gradient(linear(1, 2, 3, 4), seed=i)["weight"].numpy()[0] for i in range(100)])
    x, y = (v.double().numpy() for v in data(0))
    exact = x.T @ (x @ np.array([1.0, 2.0, 3.0, 4.0]) - y)
    assert (abs(found.mean(0) - exact) < 4 * found.std(0) / np.sqrt(100)).all() and (found.std(0) > 1).all()


def test_a_prior_of_the_tasks_own_counts(tmp_path: Path, run: Callable[..., Made]) -> None:
    with_prior, without = VariedDigits(std=0.5), VariedDigits()
    tensors = {n: t.clone() for n, t in with_prior.build_model(seed=1, lanes=1).state_dict().items()}
    sample = [(0, 0, "theta", tensors)]
    one = Gradient(with_prior, run(tmp_path / "1", with_prior, sample).specs[0])(tensors, seed=0)
    other = Gradient(without, run(tmp_path / "2", without, sample).specs[0])(tensors, seed=0)
    for name in tensors:
        torch.testing.assert_close(one[name] - other[name], tensors[name].double() / 0.25, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("t", [1.0, 0.25])
def test_a_networks_temperature_is_found_from_its_samples(tmp_path: Path, run: Callable[..., Made], t: float) -> None:
    """20 exact draws in each of two chains: (θ−c)·∇U/d has the standard error T·√(2/d/40), and a little for c."""
    draws = posterior(0.2, t, np.random.default_rng(7), 40)
    samples = [
        (i % 2, 0, "theta", {"weight": torch.tensor(d[None, :4]).float(), "bias": torch.tensor(d[4:]).float()})
        for i, d in enumerate(draws)
    ]
    it = run(tmp_path, regression(), samples, weight_decay=0.2, temperature=t)
    (row,) = temperatures.rows(it.context())
    assert row["draws"] == 40 and row["gradient"] == "all training data" and row["set"] == t
    assert row["error"] == pytest.approx(t * np.sqrt(2 / 5 / 40), rel=0.4)
    assert abs(row["estimate"] - t) < 4 * row["error"]
    (fewer,) = network(it.task, it.select(0, 0), most=6)
    assert fewer["draws"] == 6 and "standard error" in fewer["notice"] and np.isnan(fewer["error"])


def test_only_theta_is_looked_at(tmp_path: Path, run: Callable[..., Made]) -> None:
    it = run(tmp_path, regression(), [(0, 0, "anchor", linear(1.0))])
    (row,) = temperatures.rows(it.context())
    assert np.isnan(row["estimate"]) and "no θ" in row["notice"]
