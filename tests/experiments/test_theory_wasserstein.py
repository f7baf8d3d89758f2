"""Theorem 2's parts: the exact law, lanes, distances, and each inequality that its constants rest on."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, linalg, stats

from raychains.errors import UserError
from raychains.evaluation.discrepancy import Gaussian, w2
from raychains.experiments.theory import bounds, recursion, wasserstein
from raychains.schedules import Cyclical

LAW = Gaussian(mean=np.array([1.0, -2.0]), covariance=np.array([[0.5, 0.2], [0.2, 0.3]]))
PRECISION = np.array([[2.0, 0.6], [0.6, 3.0]])


def test_the_recursion_agrees_with_a_plain_simulation() -> None:
    """Cyclical steps, correlated start, target and gradient noise: every moment within 5 standard errors."""
    rng, n = np.random.default_rng(1), 40_000
    noise = np.array([[1.0, 0.5], [0.5, 2.0]])
    root = np.linalg.cholesky(noise)
    schedule = Cyclical(lr=0.3, steps=12, cycles=3, exploration=0.0)
    lrs = [schedule.at(k).lr for k in range(1, 13)]
    theta = rng.multivariate_normal(LAW.mean, LAW.covariance, n)
    for lr in lrs:
        gradient = theta @ PRECISION + rng.standard_normal((n, 2)) @ root.T
        theta = theta - lr * gradient + math.sqrt(2 * lr) * rng.standard_normal((n, 2))
    law = list(recursion.laws(LAW, PRECISION, lrs, gradient_covariance=noise))[-1]
    assert np.all(np.abs(theta.mean(0) - law.mean) < 5 * law.sd / math.sqrt(n))
    error = np.sqrt((law.covariance**2 + np.outer(law.sd**2, law.sd**2)) / n)
    assert np.all(np.abs(np.cov(theta.T) - law.covariance) < 5 * error)


def test_the_recursion_ends_at_the_stationary_law_in_closed_form() -> None:
    """Var = (2α + α²s²)/(1 − (1−αλ)²) per coordinate, and the mean is (1−αλ)^k·m₀."""
    values, lr, sd = np.array([2.0, 3.0]), 0.1, 1.5
    path = list(recursion.laws(LAW, np.diag(values), [lr] * 200, gradient_covariance=sd**2))
    assert path[6].mean == pytest.approx((1 - lr * values) ** 7 * LAW.mean)
    want = (2 * lr + (lr * sd) ** 2) / (1 - (1 - lr * values) ** 2)
    assert np.diag(path[-1].covariance) == pytest.approx(want)
    assert path[-1].covariance[0, 1] == pytest.approx(0, abs=1e-12)


def test_w2_of_gaussians_by_the_matrix_root_and_by_quantiles() -> None:
    other = recursion.target(PRECISION)
    root = linalg.sqrtm(other.covariance)
    cross = np.real(linalg.sqrtm(root @ LAW.covariance @ root))
    want = LAW.mean @ LAW.mean + np.trace(LAW.covariance + other.covariance - 2 * cross)
    assert w2(LAW, other) == pytest.approx(math.sqrt(want))
    one, two = stats.norm(1.0, 0.7), stats.norm(0.0, 1.3)
    square = integrate.quad(lambda u: (one.ppf(u) - two.ppf(u)) ** 2, 0, 1)[0]
    found = w2(*(Gaussian(mean=np.array([g.mean()]), covariance=np.array([[g.var()]])) for g in (one, two)))
    assert found == pytest.approx(math.sqrt(square), rel=1e-6)


def test_the_divergence_is_the_integral() -> None:
    one, rate = stats.norm(0.4, 0.6), 2.5
    other = stats.norm(0, rate**-0.5)
    want = integrate.quad(lambda x: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), -8, 8)[0]
    law = Gaussian(mean=np.array([0.4]), covariance=np.array([[0.36]]))
    assert recursion.divergence(law, np.array([[rate]])) == pytest.approx(want)
    point = Gaussian(mean=law.mean, covariance=np.zeros((1, 1)))
    assert recursion.divergence(point, np.eye(1)) == math.inf


@pytest.mark.parametrize(("steps", "cycles"), [(20, 4), (60, 3)])
def test_the_sums_of_a_cyclical_step(steps: int, cycles: int) -> None:
    """Σα = α₀(K+M)/2 and Σα² = α₀²(3K/8 + M/2): the paper's, K/2 and 3K/8, are a little smaller."""
    schedule = Cyclical(lr=0.2, steps=steps, cycles=cycles, exploration=0.0)
    lrs = [schedule.at(k).lr for k in range(1, steps + 1)]
    assert sum(lrs) == pytest.approx(0.2 * (steps + cycles) / 2)
    assert sum(lr * lr for lr in lrs) == pytest.approx(0.04 * (3 * steps / 8 + cycles / 2))


@pytest.mark.parametrize("name", wasserstein.SCHEDULES)
def test_every_inequality_behind_theorem_2s_constants_holds_exactly(name: str) -> None:
    """Second moments, relative entropy to the diffusion, its exponential moments and contraction, on exact Gaussians."""
    plan = wasserstein.Plan()
    general, rates = plan.general, np.array(plan.eigenvalues)
    assert plan.gradient_sd**2 * 3 <= 2 * general.noise * general.gradient_at_0**2 + 1e-12
    schedule = plan.schedule(name, 60)
    lrs = [schedule.at(k).lr for k in range(1, 61)]
    assert max(lrs) <= general.largest_lr
    path = list(recursion.laws(plan.first, plan.precision, lrs, gradient_covariance=plan.gradient_sd**2))
    second = (general.c0 - general.gradient_at_0**2) / general.smooth**2
    assert max(np.trace(law.covariance) + law.mean @ law.mean for law in (plan.first, *path)) <= second
    for count in (1, 5, 20, 60):
        total, squares = sum(lrs[:count]), sum(lr * lr for lr in lrs[:count])
        fade = np.exp(-rates * total)
        variance = plan.start_variance * fade**2 + (1 - fade**2) / rates  # the diffusion's law at time S
        law, mean = path[count - 1], plan.start * fade
        gap = law.mean - mean
        entropy = np.trace(law.covariance / variance) - 3 + gap @ (gap / variance)
        entropy = (entropy + np.log(variance).sum() - np.linalg.slogdet(law.covariance)[1]) / 2
        assert 0 <= entropy <= general.c1 * squares + general.noise * general.c0 * total
        exponential = float((mean**2 / (1 - 2 * variance) - np.log(1 - 2 * variance) / 2).sum())
        assert exponential <= general.kappa + 2 * (general.offset + general.dim) * total
        assert 6 + 4 * exponential <= 6 + general.c2 * max(total, 1)
        diffusion = Gaussian(mean=mean, covariance=np.diag(variance))
        away = w2(diffusion, recursion.target(plan.precision))
        assert away <= general.c3 * math.exp(-total / general.c4)


def test_the_exponential_moment_of_the_start_is_kappa() -> None:
    one = dataclasses.replace(wasserstein.Plan(), eigenvalues=(2.0,))
    law = stats.norm(one.start, math.sqrt(one.start_variance))
    want = math.log(integrate.quad(lambda x: math.exp(x * x) * law.pdf(x), -12, 16)[0])
    assert one.general.kappa == pytest.approx(want)


def test_the_convex_bounds_agree_with_one_another() -> None:
    """Eq. 36 at a constant step is theorem 4 of Dalalyan & Karagulyan; both lie above Eq. 38 iterated."""
    convex = bounds.Convex(convex=2.0, smooth=3.0, dim=3, sd=1.0, bias=0.0)
    for lr, steps in ((0.01, 100), (0.3, 7)):
        lrs = [lr] * steps
        assert convex(2.0, lrs) == pytest.approx(convex.constant(2.0, lr, steps))
        assert convex.iterated(2.0, lrs) <= convex(2.0, lrs)
    for lr in (0.1, 0.45):  # Eq. 36 and 37
        schedule = Cyclical(lr=lr, steps=20, cycles=2, exploration=0.0)
        lrs = [schedule.at(k).lr for k in range(1, 21)]
        assert convex.iterated(2.0, lrs) <= convex(2.0, lrs)
    with pytest.raises(UserError, match="below min"):
        convex(1.0, [0.6])
    with pytest.raises(UserError, match="at most"):
        convex.constant(1.0, 0.45, 3)


def test_one_step_of_the_convex_bound_against_the_exact_law() -> None:
    """With a biased gradient: ‖E ζ‖² = δ²d moves the mean by αδ in every coordinate.

    From the target itself a small step's bias is nearly all that there is: the bound is then 1.1 times the distance.
    """
    rates, target = np.array([2.0, 3.0]), recursion.target(np.diag([2.0, 3.0]))
    away = Gaussian(mean=np.array([0.4, 0.1]), covariance=0.3 * np.eye(2))
    for law, sd, lr in ((away, 0.8, 0.01), (away, 0.8, 0.1), (away, 0.8, 0.4), (target, 0.0, 1e-4)):
        convex = bounds.Convex(convex=2.0, smooth=3.0, dim=2, sd=sd, bias=0.5)
        after = next(recursion.laws(law, np.diag(rates), [lr], gradient_covariance=sd**2))
        moved = Gaussian(mean=after.mean + lr * 0.5, covariance=after.covariance)
        bound = convex.step(w2(law, target), lr)
        assert w2(moved, target) <= bound
    assert bound < 1.2 * w2(moved, target)


@pytest.mark.parametrize("name", wasserstein.SCHEDULES)
def test_lanes_of_the_public_sampler_have_the_exact_law(name: str) -> None:
    """Every moment within 5 standard errors; moved lanes are noticed. The table's W₂ is that law's."""
    plan = wasserstein.Plan(steps=(60,), far_steps=())
    schedule = plan.schedule(name, 60)
    path = recursion.laws(
        plan.first, plan.precision, [schedule.at(k).lr for k in range(1, 61)], gradient_covariance=1.0
    )
    *_, law = path
    lanes = wasserstein.lanes(plan, schedule, seed=2)
    error = law.sd / math.sqrt(plan.lanes)
    assert np.all(np.abs(lanes.mean(0) - law.mean) < 5 * error)
    assert np.all(np.abs(lanes.mean(0) + 0.1 - law.mean) > 5 * error)
    spread = np.sqrt((law.covariance**2 + np.outer(law.sd**2, law.sd**2)) / plan.lanes)
    assert np.all(np.abs(np.cov(lanes.T) - law.covariance) < 5 * spread)
    (row,) = [r for r in wasserstein.table(plan) if r["schedule"] == name]
    assert row["w2"] == pytest.approx(w2(law, recursion.target(plan.precision)))


def smallest(rows: list[dict[str, object]], name: str) -> float:
    """Bound over exact W₂."""
    return min(r[name] / r["w2"] for r in rows if r[name] is not None)  # type: ignore[operator]


def test_every_bound_lies_above_the_exact_distance_and_the_control_leaves_it() -> None:
    rows = wasserstein.table(wasserstein.SMOKE)
    inside = [r for r in rows if r["schedule"] != wasserstein.CONTROL]
    outside = [r for r in rows if r["schedule"] == wasserstein.CONTROL]
    assert (len(inside), len(outside)) == (12, 4)
    assert all(smallest(inside, name) >= 1 for name in wasserstein.BOUNDS)
    assert smallest(outside, "bound") < 1
    tame = wasserstein.table(dataclasses.replace(wasserstein.SMOKE, outside_lr=0.05))  # stays inside the assumptions
    assert smallest([r for r in tame if r["schedule"] == wasserstein.CONTROL], "bound") >= 1


@pytest.mark.parametrize("wrong", [{"lr": 0.06}, {"start_variance": 0.5}, {"lanes": 30}, {"eigenvalues": (1.0, 3.0)}])
def test_a_plan_outside_the_assumptions_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"must"):
        wasserstein.Plan(**wrong)  # type: ignore[arg-type]
