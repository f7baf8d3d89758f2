"""Theorems 1 and 2 as experiments: pseudo-values against the jackknife, slopes, distances and laws of lanes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from raychains.evaluation.discrepancy import Gaussian
from raychains.experiments.theory import dimension, slopes, weak
from raychains.experiments.theory.drive import seeds
from raychains.published.claims import judge
from raychains.published.theory import theorem1, theorem2
from raychains.published.theory.jackknife import pseudo_values
from raychains.report.style import LIGHT


def test_pseudo_values_of_a_mean_are_the_values_themselves() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5])
    assert pseudo_values(lambda some: float(some.mean()), values) == pytest.approx(values)


def test_their_interval_is_the_jackknifes() -> None:
    """Of a slope, with polyfit and the jackknife written out: equal standard errors, and f(all) less its bias."""
    steps, groups = [10, 20, 40], np.random.default_rng(1).gamma(9, size=(12, 3))

    def slope(some: np.ndarray) -> float:
        return float(np.polyfit(np.log(steps), np.log(some.mean(0)), 1)[0])

    without = np.array([slope(np.delete(groups, g, 0)) for g in range(12)])
    error = math.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    found = np.array(pseudo_values(lambda some: theorem1.slope(steps, some.mean(0)), groups))
    assert found.std(ddof=1) / math.sqrt(12) == pytest.approx(error, rel=1e-9)
    assert found.mean() == pytest.approx(12 * slope(groups) - 11 * without.mean(), rel=1e-9)
    it = slopes.jackknife(lambda means: theorem1.slope(steps, means), groups)
    reach = 2.2009851600829 * error  # t of 11 degrees of freedom
    assert (it.value, it.low, it.high) == pytest.approx((slope(groups), it.value - reach, it.value + reach))


def interval(values: list[float]) -> tuple[float, float]:
    """Student's 95 % of 20 values."""
    reach = 2.0930240544 * np.std(values, ddof=1) / math.sqrt(20)
    return float(np.mean(values) - reach), float(np.mean(values) + reach)


def test_a_slopes_interval_covers_95_percent() -> None:
    """Of 400 noisy power laws between 91 and 98.5 % are covered: ± 3.3 standard errors of a share of 95 %."""
    rng, steps = np.random.default_rng(0), [64, 256, 1024, 4096]
    sets = 2 * np.array(steps) ** -0.5 * (1 + 0.2 * rng.standard_normal((400, 20, 4)))
    ends = [interval(pseudo_values(lambda some: theorem1.slope(steps, some.mean(0)), g)) for g in sets]
    assert 0.914 < np.mean([low <= -0.5 <= high for low, high in ends]) < 0.986


def test_claims_hold_for_lanes_of_the_right_exponent_and_fail_for_a_wrong_one() -> None:
    """The bias of α₀ ∝ K^(−1/2) beside that of K^(−1/6), which falls too slowly, and the control's."""
    powers = (("root", 1 / 2), ("sixth", 1 / 6), (weak.CONTROL, 0.0))
    plan = weak.Plan(steps=(64, 128, 256, 512), powers=powers)
    groups = [
        {"sweep": sweep, "steps": steps, **row}
        for n, (sweep, power) in enumerate(powers) for steps in plan.steps
        for average, values in zip(weak.AVERAGES, weak.averages(plan, power, steps, seeds(3, n, steps)), strict=True)
        for row in theorem1._of_groups(plan, average, values, {})
    ]  # fmt: skip
    cells = theorem1.cells(plan, groups)

    def verdict(name: str, sweep: str) -> str:
        row = theorem1.key(sweep, weak.WEIGHTED)
        values = [c["value"] for c in cells if (c["row"], c["column"]) == (row, "bias")]
        (claim,) = [c for c in theorem1.CLAIMS if c.name == name]
        return judge(claim, values, None).verdict

    assert verdict("bias-falls", "root") == verdict("control-bias-stays", weak.CONTROL) == "holds"
    assert verdict("bias-falls", "sixth") == verdict("bias-falls", weak.CONTROL) == "does not hold"
    assert verdict("control-bias-stays", "root") == "does not hold"


def test_errors_that_fall_as_a_power_have_it_as_their_slope() -> None:
    plan = weak.Plan(steps=(16, 32, 64, 128), lanes=8, groups=4)
    rng = np.random.default_rng(0)
    groups = [
        {"sweep": s, "average": a, "steps": k, "group": g, "bias": size * k**-0.5, "mse": size * k ** (-2 / 3)}
        for s, _ in plan.powers for a in weak.AVERAGES for g, size in enumerate(rng.uniform(1, 2, 4)) for k in plan.steps
    ]  # fmt: skip
    cells = theorem1.cells(plan, groups)
    assert len(cells) == 3 * 2 * 2 * 4
    for one in cells:
        assert one["value"] == pytest.approx(-0.5 if one["column"] == "bias" else -2 / 3, abs=1e-9)
    groups[0]["bias"] = -100.0  # an error that changes its sign has no slope
    assert any(math.isnan(c["value"]) for c in theorem1.cells(plan, groups))


def test_exponents_are_the_stated_ones() -> None:
    """Bias O(1/(α₀K) + α₀) and MSE O(1/(α₀K) + α₀²) at α₀ ∝ K^(−p): the slower of the two terms."""
    for (sweep, quantity), (_, exponent) in theorem1.STATED.items():
        p = weak.POWERS[sweep]
        assert exponent == pytest.approx(max(p - 1, -p if quantity == "bias" else -2 * p))


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
    assert np.mean([low <= 1 <= high for low, high in map(interval, sets)]) >= 0.85


def test_lanes_under_a_constant_step_have_the_exact_law_and_no_other() -> None:
    """Of both public samplers: every mean and covariance within 5 standard errors; not those of another η."""
    plan = dimension.Plan()
    other = dataclasses.replace(plan, eta=0.34)
    for alone, name in ((True, "sgld"), (False, "joint")):
        lanes = theorem2.final(plan, 30.0, 0.1, 10, alone=alone)

        def off(of: dimension.Plan, name: str = name, lanes: np.ndarray = lanes) -> float:
            law, _ = dimension.laws(of, 30.0, 0.1, 10)[name]
            mean = np.abs(lanes.mean(0) - law.mean) / law.sd
            spread = np.sqrt(law.covariance**2 + np.outer(law.sd**2, law.sd**2))
            covariance = np.abs(np.cov(lanes.T) - law.covariance) / spread
            return float(max(mean.max(), covariance.max()) * math.sqrt(plan.lanes))

        assert off(plan) < 5
        assert alone or off(other) > 5


def test_figures_are_drawn_from_tables_alone() -> None:
    errors = [
        {
            "sweep": s, "average": a, "steps": k, "lr": 0.1, **{f"{q}{end}": 1 / k for q in theorem1.QUANTITIES for end in ("", "_low", "_high")},
            "bias_exact": 1 / k, "mse_exact": math.nan,
        }
        for s in theorem1.SWEEPS for a in theorem1.MEANS for k in (16, 64)
    ]  # fmt: skip
    distances = [
        {"schedule": s, "steps": k, "w2": 1 / k, "general": 2.0, "special": math.nan, "convex": 3.0}
        for s in theorem2.SCHEDULED for k in (20, 60)
    ]  # fmt: skip
    made = [
        *theorem1.figures("cpu", {"errors": pd.DataFrame(errors)}),
        *theorem2.figures("cpu", {"distances": pd.DataFrame(distances)}),
    ]
    assert [d.name for d in made] == ["errors", "distances"]
    for drawing in made:
        assert all(axis.has_data() for axis in drawing.draw(LIGHT).axes)
    assert theorem1.figures("cpu", {}) == theorem2.figures("cpu", {}) == []
