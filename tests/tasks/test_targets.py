"""What tasks say of their own target: potential and gradient, exact moments, masses of modes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, MultivariateNormal

from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.sample import Sample
from raychains.evaluation.exact import Exact, Modes, gaussian, mixture
from raychains.evaluation.moments import GaussianMoments
from raychains.planning import methods
from raychains.schedules import Cyclical
from raychains.tasks import LogDensity, Task
from raychains.tasks.digits import Digits
from raychains.tasks.gaussian import OVERDISPERSION, Gaussian
from raychains.tasks.linear_regression import LinearRegression
from raychains.tasks.mixture import Mixture25
from raychains.tasks.two_modes import RIDGE, TwoModes
from tests.chain.chain_cases import sgld_on
from tests.checks import refused

GAUSSIANS: list[Any] = [
    Gaussian(covariance=[[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]], mean=[1.0, -2.0, 0.5]),
    LinearRegression(minibatch=None, noise=0.7, prior_precision=2.0),
]


MIXTURE = MixtureSameFamily(
    Categorical(torch.ones(25, dtype=torch.float64)),
    MultivariateNormal(
        torch.tensor(list(itertools.product((-4.0, -2.0, 0.0, 2.0, 4.0), repeat=2)), dtype=torch.float64),
        0.03 * torch.eye(2, dtype=torch.float64),
    ),
)


def two_modes(sharp: float, flat: float) -> tuple[Any, Distribution]:
    variances = torch.tensor([sharp**2, flat**2], dtype=torch.float64)
    centres = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    modes = MultivariateNormal(centres, variances[:, None, None] * torch.eye(2, dtype=torch.float64))
    return TwoModes(sharp=sharp, flat=flat), MixtureSameFamily(Categorical(variances), modes)


def normal(task: Gaussian) -> tuple[Any, Distribution]:
    return task, MultivariateNormal(torch.from_numpy(task.mean), torch.from_numpy(task.covariance))


DENSITIES: list[tuple[Any, Distribution]] = [
    *(normal(task) for task in (GAUSSIANS[0], Gaussian(), Gaussian(dim=1))),
    (Mixture25(), MIXTURE),
    *(two_modes(*sd) for sd in ((0.1, 0.5), (0.3, 0.6), (0.9, 1.0))),
]


@pytest.mark.parametrize(("task", "density"), DENSITIES, ids=lambda v: type(v).__name__)
def test_energy_and_gradient_are_those_of_torchs_own_density(task: Any, density: Distribution) -> None:
    """The energy up to a constant; everywhere in a box, near the modes, and on the ridge between them."""
    dim = task.build_model(seed=0, lanes=1).theta.shape[1]
    generator = torch.Generator().manual_seed(0)
    boxes = [torch.empty(400, dim, dtype=torch.float64).uniform_(-b, b, generator=generator) for b in (10, 5, 2)]
    theta = torch.cat([*boxes, torch.linspace(-4, 4, 301, dtype=torch.float64)[:, None].expand(-1, dim)])
    theta.requires_grad_()
    energy = -density.log_prob(theta)
    (expected,) = torch.autograd.grad(energy.sum(), theta)
    torch.testing.assert_close(task.gradient(theta.detach()), expected, rtol=1e-9, atol=1e-9)
    points = theta.detach().numpy()[:1500]
    found, slope = task.potential(points)
    np.testing.assert_allclose(slope, expected[:1500], rtol=1e-9, atol=1e-9)
    assert np.ptp(found - energy.detach().numpy()[:1500]) < 1e-9
    assert task.potential(points.reshape(4, -1, dim))[0] == pytest.approx(found.reshape(4, -1), rel=1e-12)
    for dtype in (torch.float64, torch.float32):
        model = task.build_model(seed=1, lanes=5).to(dtype)
        assert task.backward(model, None, torch.Generator()) is None and model.theta.grad.dtype == dtype
        torch.testing.assert_close(model.theta.grad, task.gradient(model.theta.detach()))


def ids(value: Any) -> str:
    return type(value).__name__


@pytest.mark.parametrize(("task", "limits"), [(Mixture25(), 6.0), (TwoModes(), 4.0)], ids=ids)
def test_exact_moments_and_masses_are_the_integrals_over_the_density(task: Task, limits: float) -> None:
    """On a fine grid; a mode's mass is the integral of its responsibility, so that overlaps count right."""
    axis = np.arange(-limits, limits, 0.04)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    found, exact = task.potential(grid), task.reference()
    assert found is not None and exact is not None and exact.modes is not None
    weight = np.exp(-(found[0] - found[0].min()))
    weight /= weight.sum()
    mean = weight @ grid
    covariance = (grid - mean).T @ ((grid - mean) * weight[:, None])
    assert mean == pytest.approx(exact.moments.mean, abs=1e-6)
    assert covariance == pytest.approx(exact.moments.covariance, abs=1e-5)
    modes = exact.modes
    squared = ((grid[:, None] - modes.centres) ** 2).sum(-1)
    parts = modes.weights / modes.scales**2 * np.exp(-squared / (2 * modes.scales**2))
    share = parts / np.maximum(parts.sum(1, keepdims=True), 1e-300)
    assert weight @ share == pytest.approx(modes.weights, abs=1e-6)
    assert len(modes.names) == len(modes.weights) and not exact.gaussian


def test_gaussian_targets_say_their_moments_and_others_say_nothing() -> None:
    for task in GAUSSIANS:
        exact = task.reference()
        assert exact is not None and exact.gaussian
        assert exact.moments.mean == pytest.approx(task.mean)
        assert exact.moments.covariance == pytest.approx(task.covariance)
    network = Digits(train=90, hidden=[4])
    assert network.reference() is None and network.potential(np.zeros((1, 2))) is None


def test_a_gaussians_covariance_from_dim_correlation_and_scale() -> None:
    np.testing.assert_allclose(Gaussian().covariance, [[1, 0.9], [0.9, 1]])
    np.testing.assert_allclose(
        Gaussian(dim=3, correlation=-0.4, scale=2).covariance, [[4, -1.6, -1.6], [-1.6, 4, -1.6], [-1.6, -1.6, 4]]
    )
    np.testing.assert_allclose(Gaussian(dim=1, scale=3.0).covariance, [[9.0]])


def test_a_gaussians_chains_start_spread_out_around_the_target() -> None:
    task = GAUSSIANS[0]
    lanes = 40_000
    start = task.build_model(seed=5, lanes=lanes).get_parameter("theta").detach().numpy()
    expected = OVERDISPERSION**2 * task.covariance
    away = start - task.mean
    se = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / lanes)
    assert np.abs((away.T @ away / lanes - expected) / se).max() < 5
    assert np.abs(away.mean(0) / np.sqrt(np.diag(expected) / lanes)).max() < 5


def test_temperature_and_weight_decay_change_a_gaussian_as_the_product_of_densities() -> None:
    """exp(−[U + ½p‖θ‖²]/T) on points: its log density differs from the claimed Gaussian's by one constant."""
    task = GAUSSIANS[0]
    exact = task.reference()
    assert exact is not None
    moved = exact.at(0.3, 1.7)
    assert moved is not None and moved.gaussian
    theta = np.random.default_rng(1).normal(size=(30, 3))
    found = task.potential(theta)
    assert found is not None
    log = -(found[0] + 1.7 * (theta**2).sum(1) / 2) / 0.3
    claimed = MultivariateNormal(
        torch.from_numpy(moved.moments.mean), torch.from_numpy(moved.moments.covariance)
    ).log_prob(torch.from_numpy(theta))
    assert np.ptp(log - claimed.numpy()) < 1e-8
    assert exact.at(1.0, 0.0) is exact


def test_a_mixture_is_known_at_temperature_one_only() -> None:
    modes = Modes(
        names=("a", "b"), centres=np.array([[0.0], [4.0]]), scales=np.array([1.0, 2.0]), weights=np.array([0.25, 0.75])
    )
    exact = mixture(modes)
    assert exact.at(0.5, 0.0) is None and exact.at(1.0, 0.1) is None and exact.at(1.0, 0.0) is exact
    assert float(exact.moments.mean[0]) == 3.0
    assert float(exact.moments.covariance[0, 0]) == pytest.approx(0.25 * (1 + 9) + 0.75 * (4 + 1))
    assert isinstance(exact, Exact) and math.isclose(float(gaussian([0.0], [[4.0]]).at(1.0, 0.75).moments.sd[0]), 1.0)


class Hyperbolic(LogDensity):
    """log p = −Σ log cosh θ, written as a user does: the dimension and the log density. A coordinate's variance is
    π²/4."""

    dim = 2

    def log_density(self, theta: Tensor) -> Tensor:
        return -torch.cosh(theta).log().sum(-1)


class KnownGaussian(LogDensity):
    """Known moments, and starts and gradient noise of its own."""

    dim, gradient_noise = 1, 0.5

    def log_density(self, theta: Tensor) -> Tensor:
        return -theta.square().sum(-1) / 8

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        return torch.full((lanes, 1), 7.0, dtype=torch.float64)

    def reference(self) -> Exact:
        return gaussian([0.0], [[4.0]])


def test_a_users_density_is_its_dimension_and_its_log_density() -> None:
    task = Hyperbolic()
    theta = np.array([[0.5, -1.0], [2.0, 3.0]])
    energy, gradient = task.potential(theta)
    assert energy == pytest.approx(np.log(np.cosh(theta)).sum(-1)) and gradient == pytest.approx(np.tanh(theta))
    model: Any = task.build_model(seed=1, lanes=3)
    assert task.backward(model, None, torch.Generator()) is None
    expected = task.gradient(model.theta.detach())
    assert model.theta.grad.shape == (3, 2) and torch.equal(model.theta.grad, expected)
    options = Run(sampler="sgld", steps=2_000, lr=0.1, repeats=40)
    method = methods.resolve(options, task=task, sampler="sgld", schedule="constant")
    draws = [e for e in Chain(method.spec, task) if isinstance(e, Sample)]
    target = task.splits()["target"]
    (row, *_) = target.summarise([target.reduce([target.predict(d.tensors, 0) for d in draws], 0)])
    exact: Any = getattr(target, "reference", None)  # Hamiltonian draws from the mode
    assert exact.mean == pytest.approx([0, 0], abs=0.1) and exact.sd == pytest.approx([np.pi / 2] * 2, rel=0.05)
    assert row["sd_ratio"] < 1.1


def test_a_density_that_knows_its_moments_is_compared_with_them() -> None:
    task = KnownGaussian()
    assert isinstance(task.splits()["target"], GaussianMoments)
    model: Any = task.build_model(seed=0, lanes=20_000)
    assert (model.theta == 7).all()
    gradients = []
    for seed in (1, 1, 2):
        task.backward(model, None, torch.Generator().manual_seed(seed))
        gradients.append(model.theta.grad)
    assert torch.equal(gradients[0], gradients[1]) and not torch.equal(gradients[0], gradients[2])
    assert float(gradients[0].mean()) == pytest.approx(7 / 4, abs=5 * 0.5 / math.sqrt(20_000))
    assert float(gradients[0].std()) == pytest.approx(0.5, rel=5 / math.sqrt(40_000))
    with refused("task Task0 must define log_density()"):
        type("Task0", (LogDensity,), {"dim": 1})().potential(np.zeros((1, 1)))


def test_two_modes_are_equally_deep() -> None:
    assert TwoModes(sharp=0.3, flat=0.6).flat_share == pytest.approx(0.36 / 0.45)
    modes = torch.tensor([(-1.0, -1.0), (1.0, 1.0)], dtype=torch.float64)
    assert (-TwoModes().log_density(modes)).tolist() == pytest.approx([math.log(2 * math.pi)] * 2, abs=2e-3)


def test_two_modes_start_on_the_ridge_or_in_a_box() -> None:
    same = TwoModes().build_model(seed=1, lanes=3).get_parameter("theta").detach()
    assert torch.equal(same, torch.tensor([RIDGE] * 3, dtype=torch.float64))
    task, lanes = TwoModes(start=None), 20_000
    start = task.build_model(seed=1, lanes=lanes).get_parameter("theta").detach()
    assert float(start.abs().max()) <= 2
    # Variance of U[−2, 2] is 4/3; a sample variance of n uniforms has relative s.e. √(.8/n).
    assert abs(float(start.square().mean()) / (4 / 3) - 1) < 5 * math.sqrt(0.8 / (2 * lanes))


def test_a_chains_share_is_that_of_its_own_draws_in_the_flat_mode() -> None:
    """Modes this far apart: a draw belongs to the one on its side of the anti-diagonal."""
    task, lanes, steps = TwoModes(start=None), 8, 400
    schedule = Cyclical(steps=steps, lr=0.005, cycles=2, exploration=0.5)
    spec = sgld_on(task, schedule, lanes=lanes, block_draws=64)
    blocks = [e.tensors for e in Chain(spec, task) if isinstance(e, Sample)]
    target = task.splits()["target"]
    found = target.summarise([target.reduce([target.predict(b, 0) for b in blocks], 0)])
    draws = torch.cat([b["theta"] for b in blocks]).double().numpy()
    beyond = (draws - 1) ** 2 / 0.5**2 < (draws + 1) ** 2 / 0.1**2
    assert beyond.any() and not beyond.all()
    nearest = (((draws - 1) / 0.5) ** 2).sum(-1) < (((draws + 1) / 0.1) ** 2).sum(-1)
    np.testing.assert_allclose([lane["flat_share"] for lane in found], nearest.mean(0), atol=0.02)
    for lane in found:
        assert lane["flat_share_error"] == pytest.approx(abs(lane["flat_share"] - task.flat_share), abs=1e-9)
