"""Theorem 2, its convex bound and Entropy-MCMC's theorem 1: exact laws, lanes, and each inequality behind the
constants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from raychains.evaluation.moments import Gaussian, w2
from raychains.papers.theory import bounds, theorem2
from raychains.papers.theory.lanes import pseudo_values
from raychains.schedules import Constant, Cyclical

LAW = Gaussian(mean=np.array([1.0, -2.0]), covariance=np.array([[0.5, 0.2], [0.2, 0.3]]))
PRECISION = np.array([[2.0, 0.6], [0.6, 3.0]])


def away(draws: np.ndarray, law: Gaussian) -> float:
    """The largest distance of a mean or a covariance from a law's, in standard errors."""
    mean = np.abs(draws.mean(0) - law.mean) / law.sd
    covariance = np.abs(np.cov(draws.T) - law.covariance)
    covariance /= np.sqrt(law.covariance**2 + np.outer(law.sd**2, law.sd**2))
    return float(max(mean.max(), covariance.max()) * math.sqrt(len(draws)))


def test_the_recursion_ends_at_the_stationary_law_in_closed_form() -> None:
    """Var = (2α + α²s²)/(1 − (1−αλ)²) per coordinate, and the mean is (1−αλ)^k·m₀."""
    values, lr, sd = np.array([2.0, 3.0]), 0.1, 1.5
    path = list(theorem2.laws(LAW, np.diag(values), [lr] * 200, gradient_covariance=sd**2))
    assert path[6].mean == pytest.approx((1 - lr * values) ** 7 * LAW.mean)
    want = (2 * lr + (lr * sd) ** 2) / (1 - (1 - lr * values) ** 2)
    assert np.diag(path[-1].covariance) == pytest.approx(want)
    assert path[-1].covariance[0, 1] == pytest.approx(0, abs=1e-12)


def test_the_divergence_is_the_integral() -> None:
    one, rate = stats.norm(0.4, 0.6), 2.5
    other = stats.norm(0, rate**-0.5)
    want = integrate.quad(lambda x: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), -8, 8)[0]
    law = Gaussian(mean=np.array([0.4]), covariance=np.array([[0.36]]))
    assert theorem2.divergence(law, np.array([[rate]])) == pytest.approx(want)
    point = Gaussian(mean=law.mean, covariance=np.zeros((1, 1)))
    assert theorem2.divergence(point, np.eye(1)) == math.inf


@pytest.mark.parametrize(("steps", "cycles"), [(20, 4), (60, 3)])
def test_the_sums_of_a_cyclical_step(steps: int, cycles: int) -> None:
    """Σα = α₀(K+M)/2 and Σα² = α₀²(3K/8 + M/2): the paper's, K/2 and 3K/8, are a little smaller."""
    schedule = Cyclical(lr=0.2, steps=steps, cycles=cycles, exploration=0.0)
    lrs = [schedule.at(k).lr for k in range(1, steps + 1)]
    assert sum(lrs) == pytest.approx(0.2 * (steps + cycles) / 2)
    assert sum(lr * lr for lr in lrs) == pytest.approx(0.04 * (3 * steps / 8 + cycles / 2))


@pytest.mark.parametrize("name", theorem2.SCHEDULES)
def test_every_inequality_behind_theorem_2s_constants_holds_exactly(name: str) -> None:
    """Second moments, relative entropy to the diffusion, its exponential moments and contraction, on exact
    Gaussians."""
    plan = theorem2.Plan()
    general, rates = plan.general, np.array(plan.eigenvalues)
    assert plan.gradient_sd**2 * 3 <= 2 * general.noise * general.gradient_at_0**2 + 1e-12
    schedule = plan.schedule(name, 60)
    lrs = [schedule.at(k).lr for k in range(1, 61)]
    assert max(lrs) <= general.largest_lr
    path = list(theorem2.laws(plan.first, plan.precision, lrs, gradient_covariance=plan.gradient_sd**2))
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
        away = w2(diffusion, theorem2.target(plan.precision))
        assert away <= general.c3 * math.exp(-total / general.c4)


def test_the_exponential_moment_of_the_start_is_kappa() -> None:
    one = dataclasses.replace(theorem2.Plan(), eigenvalues=(2.0,))
    law = stats.norm(one.start, math.sqrt(one.start_variance))
    want = math.log(integrate.quad(lambda x: math.exp(x * x) * law.pdf(x), -12, 16)[0])
    assert one.general.kappa == pytest.approx(want)


def stepped(convex: bounds.Convex, distance: float, lrs: Iterable[float]) -> float:
    """Eq. 38 applied step after step (Dalalyan & Karagulyan 2019, proposition 2)."""
    root = math.sqrt(convex.dim)
    for lr in lrs:
        rho = max(1 - convex.convex * lr, convex.smooth * lr - 1)
        drift = 1.65 * convex.smooth * lr**1.5 * root
        distance = math.hypot(rho * distance + drift, lr * convex.sd * root)
    return distance


def test_the_convex_bounds_agree_with_one_another() -> None:
    """Eq. 36 at a constant step is theorem 4 of Dalalyan & Karagulyan; both lie above Eq. 38 iterated."""
    convex = bounds.Convex(convex=2.0, smooth=3.0, dim=3, sd=1.0)
    for lr, steps in ((0.01, 100), (0.3, 7)):
        lrs = [lr] * steps
        assert convex(2.0, lrs) == pytest.approx(convex.constant(2.0, lr, steps))
        assert stepped(convex, 2.0, lrs) <= convex(2.0, lrs)
    for lr in (0.1, 0.45):  # Eq. 36 and 37
        schedule = Cyclical(lr=lr, steps=20, cycles=2, exploration=0.0)
        lrs = [schedule.at(k).lr for k in range(1, 21)]
        assert stepped(convex, 2.0, lrs) <= convex(2.0, lrs)


def test_one_step_of_the_convex_bound_against_the_exact_law() -> None:
    rates, target = np.array([2.0, 3.0]), theorem2.target(np.diag([2.0, 3.0]))
    away = Gaussian(mean=np.array([0.4, 0.1]), covariance=0.3 * np.eye(2))
    for law, sd, lr in ((away, 0.8, 0.01), (away, 0.8, 0.1), (away, 0.8, 0.4), (target, 0.0, 1e-4)):
        convex = bounds.Convex(convex=2.0, smooth=3.0, dim=2, sd=sd)
        after = next(theorem2.laws(law, np.diag(rates), [lr], gradient_covariance=sd**2))
        assert w2(after, target) <= stepped(convex, w2(law, target), [lr])


@pytest.mark.parametrize("name", theorem2.SCHEDULES)
def test_lanes_of_the_public_sampler_have_the_exact_law(name: str) -> None:
    """Every moment within 5 standard errors; moved lanes are noticed. The table's W₂ is that law's."""
    plan = theorem2.Plan(steps=(60,), far_steps=())
    schedule = plan.schedule(name, 60)
    path = theorem2.laws(plan.first, plan.precision, [schedule.at(k).lr for k in range(1, 61)], gradient_covariance=1.0)
    *_, law = path
    lanes = theorem2.lanes(plan, plan.start, schedule, seed=2)
    assert away(lanes, law) < 5 < away(lanes + 0.1, law)
    (row,) = [r for r in theorem2.table(plan) if r["schedule"] == name]
    assert row["w2"] == pytest.approx(w2(law, theorem2.target(plan.precision)))


def smallest(rows: list[dict[str, object]], name: str) -> float:
    """Bound over exact W₂."""
    return min(r[name] / r["w2"] for r in rows if math.isfinite(r[name]))  # type: ignore[operator, arg-type]


def test_every_bound_lies_above_the_exact_distance_and_the_control_leaves_it() -> None:
    rows = theorem2.table(theorem2.SMOKE)
    inside = [r for r in rows if r["schedule"] != theorem2.CONTROL]
    outside = [r for r in rows if r["schedule"] == theorem2.CONTROL]
    assert (len(inside), len(outside)) == (12, 4)
    assert all(smallest(inside, name) >= 1 for name in theorem2.BOUNDS)
    assert smallest(outside, "general") < 1
    tame = theorem2.table(dataclasses.replace(theorem2.SMOKE, outside_lr=0.05))  # stays inside the assumptions
    assert smallest([r for r in tame if r["schedule"] == theorem2.CONTROL], "general") >= 1


# Entropy-MCMC


@pytest.mark.parametrize("eta", [1 / 3, 0.4, 0.5])
def test_the_joint_constants_are_the_joint_hessians_eigenvalues(eta: float) -> None:
    plan = theorem2.Plan(eta=eta)
    values = np.linalg.eigvalsh(theorem2.joint_precision(np.diag(plan.eigenvalues), eta))
    assert plan.joint_constants == pytest.approx((values[0], values[-1]))
    assert values[0] < min(plan.eigenvalues) / 2 and values[-1] > max(plan.eigenvalues)  # lemma 2 says neither


def test_the_joint_targets_marginals_are_the_posterior_and_its_smoothing() -> None:
    joint = theorem2.target(theorem2.joint_precision(np.diag([2.0, 3.0]), 0.4)).covariance
    assert joint[:2, :2] == pytest.approx(np.diag([1 / 2, 1 / 3]))
    assert joint[2:, 2:] == pytest.approx(np.diag([1 / 2 + 0.4, 1 / 3 + 0.4]))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    plan = theorem2.SMOKE
    return [theorem2.pair_row(plan, start, lr, time) for start in plan.starts for lr in plan.lrs for time in plan.times]


def test_the_printed_bound_is_broken_and_the_corrected_one_is_not(rows: list[dict[str, object]]) -> None:
    def smallest(bound: str, exact: str) -> float:
        return min(r[bound] / r[exact] for r in rows)  # type: ignore[operator]

    assert smallest("sgld_bound", "sgld_w2") >= 1 and smallest("corrected", "joint_w2") >= 1
    assert smallest("printed", "joint_w2") < 1


def test_two_copies_are_root_2_farther_off_than_one(rows: list[dict[str, object]]) -> None:
    for row in rows:
        assert row["sgld_2d_w2"] == pytest.approx(2**0.5 * row["sgld_w2"])  # type: ignore[operator]


def test_rows_hold_the_distance_of_the_law_after_their_steps() -> None:
    plan = theorem2.Plan()
    row = theorem2.pair_row(plan, 1.0, 0.01, 0.3)
    assert row["steps"] == 30
    law, target = theorem2.pair_laws(plan, 1.0, 0.01, 30)["theta"]
    assert row["theta_w2"] == pytest.approx(w2(law, target)) and len(law.mean) == 3


@pytest.mark.parametrize("plan", theorem2.PLANS.values())
def test_plans_lie_inside_the_assumptions(plan: theorem2.Plan) -> None:
    assert plan.groups >= 2 and plan.lanes % plan.groups == 0
    assert plan.general.dissipative >= 2 and 0 <= plan.general.noise < 1, "exponential moments need λ = 1 ≤ m/2"
    assert 0 < plan.start_variance < 0.5 and 0 < plan.lr <= plan.general.largest_lr
    assert plan.lr < min(2 / plan.convex.smooth, 1 / plan.convex.convex)


@pytest.mark.parametrize("plan", theorem2.PLANS.values())
def test_pairs_lie_inside_the_assumptions(plan: theorem2.Plan) -> None:
    assert plan.groups >= 2 and plan.lanes % plan.groups == 0
    assert min(plan.eigenvalues) <= 1 / plan.eta <= max(plan.eigenvalues)
    assert max(plan.lrs) <= 2 / sum(plan.joint_constants)


# The experiment


def test_the_smallest_ratio_is_taken_over_all_k() -> None:
    """Lanes at ±s along each of two axes, whose fitted variance is s²n/(n−1): W₂ to N(0, I) is √2·|s√(n/(n−1)) − 1|."""
    lanes = np.stack([s * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]) for s in (3.0, 1.5)], axis=1)
    target = Gaussian(mean=np.zeros(2), covariance=np.eye(2))
    distances = [math.sqrt(2) * (s * math.sqrt(4 / 3) - 1) for s in (3.0, 1.5)]
    grouped = lanes.reshape(2, 2, 2, 2)
    found = theorem2.smallest([10.0, 1.0], target)(grouped)
    assert found == pytest.approx(math.log10(min(10 / distances[0], 1 / distances[1])))
    exact = [d / 1.1 for d in distances]
    assert theorem2.ratio(exact, target)(grouped) == pytest.approx(1.1)


def test_ratios_of_lanes_are_right_on_average_and_cover() -> None:
    """60 samples of 400 draws of N(1/2, 1) against N(0, 1): the mean within 4 of its standard errors, 85 % covered."""
    rng, target = np.random.default_rng(2), Gaussian(mean=np.zeros(1), covariance=np.eye(1))
    statistic = theorem2.ratio([0.5], target)
    sets = [pseudo_values(statistic, 0.5 + rng.standard_normal((20, 20, 1, 1))) for _ in range(60)]
    means = np.array([np.mean(values) for values in sets])
    assert abs(means.mean() - 1) < 4 * means.std() / math.sqrt(60)
    assert np.mean([stats.ttest_1samp(values, 1).pvalue > 0.05 for values in sets]) >= 0.85


def test_lanes_under_a_constant_step_have_the_exact_law_and_no_other() -> None:
    """Of both public samplers: every mean and covariance within 5 standard errors; not those of another η."""
    plan = theorem2.Plan()
    other = dataclasses.replace(plan, eta=0.34)
    for alone, name in ((True, "sgld"), (False, "joint")):
        lanes = theorem2.lanes(plan, 30.0, Constant(lr=0.1, steps=10), 3, joint=not alone)
        own, others = (theorem2.pair_laws(of, 30.0, 0.1, 10)[name][0] for of in (plan, other))
        assert away(lanes, own) < 5 and (alone or away(lanes, others) > 5)


def test_the_figure_is_drawn_from_its_table_alone() -> None:
    rows = [
        {"schedule": s, "steps": k, "w2": n / k, "general": 2 + n, "special": math.nan, "convex": 30 + n}
        for n, s in enumerate(theorem2.SCHEDULED, 1)
        for k in (20, 60)
    ]
    experiment = theorem2.STUDY
    (drawing,) = experiment.figures("cpu", {"distances": pd.DataFrame(rows)})
    for n, axis in enumerate(drawing.draw().axes, 1):
        shown = [line.get_xydata().tolist() for line in axis.lines]  # type: ignore[union-attr]
        for first, last in ((n / 20, n / 60), (2 + n, 2 + n), (30 + n, 30 + n)):
            assert shown.count([[20, first], [60, last]]) == 1
    assert list(experiment.figures("cpu", {})) == []
