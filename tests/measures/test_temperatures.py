"""Temperatures of exact draws of tempered quadratics, gradients of networks, momenta of records and of real chains."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raychains.chain.chain import Chain
from raychains.core.sample import Progress
from raychains.evaluation.evaluation import Array
from raychains.evaluation.mcmc_diagnostics import Estimate
from raychains.measures import temperatures
from raychains.measures.temperatures import Gradient, network, other_half
from raychains.schedules import Constant, Cyclical
from raychains.store import ChainStore
from raychains.tasks import Task
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.mixture import AXIS, VARIANCE, Mixture25
from tests.chain.chain_tasks import VariedDigits
from tests.measures import made
from tests.measures.densities import stored
from tests.measures.made import DIM, Made, N, data, linear, regression
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
    """Its own mean is the centre, of which each half gives the other's: far from 0 the error would be 20 times as
    large."""
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


def test_each_arm_has_the_gradients_of_its_own_task(tmp_path: Path) -> None:
    small, large = made.classifier(), made.classifier(batchnorm=True)
    runs = [
        Made(tmp_path / task.name, task, [(c, 0, "theta", made.drawn(2 * c + i, task)) for c in (0, 1) for i in (0, 1)])
        for task in (small, large)
    ]
    arm = dataclasses.replace(runs[1].comparison.arms[0], name="large")
    both = dataclasses.replace(runs[0].comparison, arms=(*runs[0].comparison.arms, arm))
    context = dataclasses.replace(
        runs[0].context(), comparison=both, groups=[(0, 0), (1, 0)], select=lambda a, g: runs[a].select(0, g)
    )
    found = [row for row in temperatures.rows(context) if row["arm"] == "large"]
    alone = temperatures.rows(runs[1].context())
    assert [(r["repeat"], r["estimate"], r["draws"]) for r in found] == [(0, alone[0]["estimate"], 4)]


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


# The estimator


def near(found: Estimate, exact: float, spread: float) -> None:
    """Within 4 standard errors of ``exact``, and the error is the one that independent draws have."""
    assert abs(found.value - exact) < 4 * found.error
    assert found.error == pytest.approx(spread, rel=0.15)


def test_configurational_temperature_of_a_density_that_is_not_gaussian() -> None:
    """U = √(1 + θ²)-like tails: θ Laplace-distributed with scale T has U = |θ|, θ·∇U = |θ|, mean T."""
    theta = np.random.default_rng(0).laplace(scale=0.6, size=(1, 20_000, 1))
    near(temperatures.configurational(theta, np.sign(theta)), 0.6, 0.6 / np.sqrt(20_000))


# Momenta

FLAT = Gaussian(covariance=[[2.0, 0.3], [0.3, 0.5]], mean=[0.0, 0.0])
CYCLES = Cyclical(lr=0.1, steps=400, cycles=2, exploration=0.5)


def record(step: int, value: float | None) -> dict[str, Any]:
    about = Progress(
        step=step,
        epoch=step - 1,
        cycle=0,
        stage="sampling",
        lr=0.1,
        temperature=1.0,
        loss=None,
        kinetic_temperature=value,
    )
    return {**about.to_json(), "seconds": 1.0}


def test_a_changing_lr_is_taken_out_exactly() -> None:
    """On a flat potential Var v follows V ← m²V + 2(1−m)·lr_k·T/N, whatever the schedule."""
    m, n = 0.9, 10.0
    variance, found, plain = 0.0, {}, {}
    for k in range(1, CYCLES.steps + 1):
        setting = CYCLES.at(k)
        variance = m**2 * variance + 2 * (1 - m) * setting.lr * setting.temperature / n
        plain[k] = n * (1 + m) * variance / (2 * setting.lr)
        if temperatures.usable(CYCLES, k, m, remembers=True):
            found[k] = plain[k] * temperatures.lr_share(CYCLES, k, m)
    assert set(found) == {*range(152, 201), *range(352, 401)}  # 51 steps after the noise sets in at 101 and 301
    assert all(value == pytest.approx(1, abs=1e-4) for value in found.values())
    assert plain[200] > 20 and plain[160] < 1.4  # the last step's lr is far below those that v remembers


def test_momenta_that_cooled_within_the_window_count_only_where_what_they_remember_is_taken_out() -> None:
    """In cycles as long as the window its first step is the same place of the cycle before, with noise."""
    length = temperatures.window(0.9)
    short = Cyclical(lr=0.1, steps=8 * length, cycles=8, exploration=0.8)
    noisy = [k for k in range(length + 1, short.steps + 1) if short.at(k).temperature > 0]
    assert len(noisy) > 60
    assert [k for k in noisy if temperatures.usable(short, k, 0.9, remembers=True)] == noisy
    assert not any(temperatures.usable(short, k, 0.9, remembers=False) for k in noisy)
    long = [k for k in range(1, CYCLES.steps + 1) if temperatures.usable(CYCLES, k, 0.9, remembers=False)]
    assert long == [*range(152, 201), *range(352, 401)]


def test_records_of_all_chains_count_from_their_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    schedule = Constant(lr=0.1, steps=300)
    context = stored(
        tmp_path,
        FLAT,
        [rng.normal(size=(300, 1, 2)) for _ in range(2)],
        schedule=schedule,
        sampler="sghmc",
        momentum=0.5,
    )
    values = rng.normal(1.2, 0.1, size=(2, 60))
    for c, spec in enumerate(context.comparison.arms[0].chains[0]):
        early = [record(5, 99.0), record(10, None)]  # before the window of 10 steps; without momenta
        told = [record(12 + 3 * i, float(v)) for i, v in enumerate(values[c])]
        ChainStore(context.store.root, spec.digest).publish_progress([*early, *told], step=300, attempt=1)
    (row,) = [r for r in temperatures.rows(context) if r["kind"] == "kinetic"]
    assert row["estimate"] == pytest.approx(values.mean(), rel=1e-6) and row["draws"] == 120 and row["set"] == 1.0
    assert row["error"] == pytest.approx(0.1 / math.sqrt(120), rel=0.3)
    assert row["gradient"] == "momenta at 120 records" and row["notice"] == ""


def test_without_such_a_record_it_is_said(tmp_path: Path) -> None:
    draws = np.random.default_rng(0).normal(size=(50, 1, 2))
    context = stored(tmp_path, FLAT, [draws], sampler="sghmc", momentum=0.9)
    (row,) = [r for r in temperatures.rows(context) if r["kind"] == "kinetic"]
    assert np.isnan(row["estimate"]) and row["draws"] == 0 and "no progress record" in row["notice"]


def test_samplers_without_momentum_have_no_row(tmp_path: Path) -> None:
    context = stored(tmp_path, FLAT, [np.random.default_rng(0).normal(size=(50, 1, 2))])
    assert [r["kind"] for r in temperatures.rows(context)] == ["configurational"]


def test_a_real_chains_records_hold_it(tmp_path: Path) -> None:
    """1,000 lanes of two coordinates: T = 1 plus the curvatures' share lr·λ/(2(1+m)), λ of the mean loss."""
    draws = np.zeros((400, 1000, 2))
    context = stored(tmp_path, FLAT, [draws], schedule=Constant(lr=0.05, steps=400), sampler="sghmc", momentum=0.9)
    spec = context.comparison.arms[0].chains[0][0]
    records = [e for e in Chain(spec) if isinstance(e, Progress)]
    assert all(isinstance(r.kinetic_temperature, float) for r in records)
    ChainStore(context.store.root, spec.digest).publish_progress(
        [{**r.to_json(), "seconds": 1.0} for r in records], step=400, attempt=1
    )
    estimate, _ = temperatures.of_chains(context.store.root, [spec])
    curvatures = 1 / np.linalg.eigvalsh(FLAT.covariance) / FLAT.num_data
    expected = float(np.mean(1 / (1 - 0.05 * curvatures / (2 * 1.9))))
    assert abs(estimate.value - expected) < 4 * estimate.error and estimate.error < 0.01
