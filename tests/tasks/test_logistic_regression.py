"""Bayesian logistic regression: potential, gradient and mode against autograd and scikit-learn; settings and
defaults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from raychains import tasks
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.sample import Sample
from raychains.data import tabular
from raychains.planning import methods
from raychains.samplers import METHODS
from raychains.schedules import Cyclical, Decreasing
from raychains.tasks.logistic_regression import Australian, German, Heart, LogisticPosterior, design, sigmoid
from tests.checks import refused
from tests.tasks import made_uci
from tests.tasks.made_uci import EXAMPLES, FEATURES

DIM = FEATURES + 1


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    made_uci.use(monkeypatch)


def data(task: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised inputs and labels, by torch's own operations."""
    raw = tabular.load(task.dataset)
    x = torch.from_numpy(raw.features)
    x = (x - x.mean(0)) / x.std(0, correction=0)
    return torch.cat([torch.ones(len(x), 1, dtype=torch.float64), x], 1), torch.from_numpy(raw.targets)


def potential(task: Any, theta: torch.Tensor) -> torch.Tensor:
    """−log likelihood − log prior of one θ [dim], by torch's own densities, without the prior's constant."""
    x, y = data(task)
    likelihood = torch.distributions.Bernoulli(logits=x @ theta).log_prob(y).sum()
    sd = torch.full_like(theta, task.prior_variance**0.5)
    prior = torch.distributions.Normal(torch.zeros_like(theta), sd)
    return -likelihood - (prior.log_prob(theta) - prior.log_prob(torch.zeros_like(theta))).sum()


@pytest.mark.parametrize("variance", [100.0, 0.5])
def test_potential_gradient_and_curvature_are_autograds(variance: float) -> None:
    task = Heart(prior_variance=variance)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5, DIM)) * 2
    energies, gradients = task.potential(points)
    for point, energy, gradient in zip(points, energies, gradients, strict=True):
        theta = torch.from_numpy(point).requires_grad_()
        expected = potential(task, theta)
        assert energy == pytest.approx(expected.detach().item(), rel=1e-10)
        np.testing.assert_allclose(gradient, torch.autograd.grad(expected, theta)[0].numpy(), rtol=1e-9, atol=1e-9)
        hessian: Any = torch.autograd.functional.hessian(lambda t: potential(task, t), theta.detach())
        np.testing.assert_allclose(task.posterior.hessian(point), hessian.numpy(), rtol=1e-8, atol=1e-9)


def test_full_gradient_is_the_potentials_over_n_and_the_loss_has_no_prior() -> None:
    task = Heart(prior_variance=2.0)
    model: Any = task.build_model(seed=1, lanes=6)
    loss = task.backward(model, None, torch.Generator())
    theta = model.theta.detach().numpy()
    np.testing.assert_allclose(model.theta.grad.numpy(), task.potential(theta)[1] / EXAMPLES, rtol=1e-10)
    x, y = data(task)
    p = torch.sigmoid(model.theta.detach() @ x.T)
    expected = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    assert loss is not None and float(loss) == pytest.approx(float(expected))
    assert task.minibatch == EXAMPLES and not loss.requires_grad


def test_inputs_have_mean_0_and_sd_1_behind_a_column_of_ones() -> None:
    features = np.random.default_rng(3).normal(5, [1, 100, 0.01], size=(50, 3))
    found = design(np.column_stack([features, np.full(50, 7.0)]))
    np.testing.assert_array_equal(found[:, 0], 1)
    np.testing.assert_allclose(found[:, 1:4].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(found[:, 1:4].std(0), 1)
    np.testing.assert_array_equal(found[:, 4], 0), "a constant says nothing"
    np.testing.assert_allclose(np.corrcoef(found[:, 2], features[:, 1])[0, 1], 1)


def test_the_sigmoid_overflows_nowhere() -> None:
    t = np.array([-1e4, -800.0, -1.0, 0.0, 1.0, 800.0, 1e4])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(sigmoid(t), [0, 0, 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1, 1])


@pytest.mark.parametrize("variance", [0.1, 100.0, 1e9], ids=["regularised", "ours", "nearly not"])
def test_the_mode_is_scikit_learns_optimum(variance: float) -> None:
    """Its C is the prior's variance; penalty None is a flat prior, which 10⁹ comes near to."""
    from sklearn.linear_model import LogisticRegression as Theirs

    task = Australian(prior_variance=variance)
    x, y = (t.numpy() for t in data(task))
    strength = {"C": np.inf} if variance == 1e9 else {"C": variance}
    theirs = Theirs(fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=500, **strength).fit(x, y)
    np.testing.assert_allclose(task.posterior.mode, theirs.coef_[0], rtol=1e-5, atol=1e-6)
    assert np.abs(task.posterior.gradient(task.posterior.mode)).max() < 1e-7


def test_the_mode_of_separable_data_is_found_too() -> None:
    """Whole Newton steps would overshoot: the prior alone holds the slope."""
    x = np.array([[-2.0, 1], [-1, 1], [1, 1], [2, 1]]) * 1000
    posterior = LogisticPosterior(x, [0, 0, 1, 1], 1e4)
    assert np.abs(posterior.gradient(posterior.mode)).max() < 1e-9 and posterior.mode[0] > 0


def test_the_target_split_compares_with_exact_draws() -> None:
    """Draws of the reference's own sampler under another seed have its moments within their errors."""
    task = Heart(prior_variance=4.0)
    target: Any = task.splits()["target"]
    other = task.posterior.reference(seed=7, draws=1_000)
    found, exact = target.reference, task.reference()
    assert found.r_hat.max() < 1.01 and found.ess.min() >= 2_000
    np.testing.assert_array_equal(exact.moments.mean, found.mean)
    np.testing.assert_array_equal(exact.moments.covariance, found.covariance)
    assert not exact.gaussian and exact.at(1.0, 0.0) is exact and "HMC" in exact.source
    error = found.sd * np.sqrt(1 / found.ess + 1 / other.ess)
    assert (np.abs(other.mean - found.mean) < 5 * error).all()
    assert (np.abs(other.sd / found.sd - 1) < 5 * np.sqrt(1 / found.ess + 1 / other.ess)).all()
    draws = np.random.default_rng(0).multivariate_normal(found.mean, 4 * found.covariance, size=(4_000, 2))
    for lane in target.summarise([target.reduce([target.predict({"theta": draws}, 0)], 0)]):
        assert lane["sd_ratio"] == pytest.approx(2, rel=0.05) and lane["mean_error"] < 0.2


def test_sghmc_at_a_small_step_has_the_posteriors_moments() -> None:
    task = Heart(prior_variance=4.0)
    options = Run(lr=0.3, steps=1_500, repeats=40)
    spec = methods.resolve(options, task=task, sampler="sghmc", schedule="constant").spec
    drawn = [e.tensors["theta"].numpy() for e in Chain(spec, task) if isinstance(e, Sample)]
    theta = np.concatenate(drawn)
    assert theta.shape == (1_250, 40, DIM)
    means = theta.mean(0)
    reference = task.splits()["target"].reference  # type: ignore[attr-defined]
    error = means.std(0) / math.sqrt(40) + reference.sd / np.sqrt(reference.ess)
    assert (np.abs(means.mean(0) - reference.mean) < 5 * error).all()
    np.testing.assert_allclose(theta.reshape(-1, DIM).std(0), reference.sd, rtol=0.06)


def test_the_fingerprint_of_the_target_is_that_of_data_and_prior() -> None:
    prints = [t.splits()["target"].fingerprint for t in (Heart(), Heart(5), Heart(prior_variance=1.0), German())]
    assert prints[0] == prints[1] and len(set(prints)) == 3


def resolved(sampler: str, name: str = "blr-heart", **options: Any) -> methods.Method:
    return methods.resolve(Run(**options), task=tasks.make(name), sampler=sampler)


def test_the_prior_counts_once() -> None:
    with refused("weight_decay"):
        resolved("sgld", weight_decay=0.1)


def test_defaults_keep_5000_draws_behind_1000_steps() -> None:
    plain, cyclical = resolved("sgld").schedule, resolved("csghmc").schedule
    assert isinstance(plain, Decreasing) and plain.steps == cyclical.steps == 6_000
    kept = [k for k in range(1, 6_001) if plain.at(k).keep]
    assert kept == list(range(1_001, 6_001)) and plain.at(1).temperature == 1
    assert plain.at(6_000).lr == pytest.approx(plain.at(1).lr / 10)
    assert isinstance(cyclical, Cyclical) and cyclical.kept == 5_000
    first = [cyclical.at(k) for k in range(1, 1_501)]
    assert [s.temperature for s in first] == [0.0] * 250 + [1.0] * 1_250
    assert [s.keep for s in first] == [False] * 250 + [True] * 1_250
    assert cyclical.cycle_count == 4


@pytest.mark.parametrize(
    "sampler", [name for name, preset in METHODS.items() if not (preset.early_stop or preset.last_epoch_measures)]
)
def test_every_method_samples_it(sampler: str) -> None:
    method = resolved(sampler, steps=120)
    assert any(isinstance(e, Sample) for e in Chain(method.spec, method.task))  # a non-finite draw would have raised
