"""Theorems 1 and 2 as experiments: pseudo-values against the jackknife, slopes and distances of made-up lanes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from raychains.evaluation.discrepancy import Gaussian
from raychains.experiments.theory import slopes, weak
from raychains.published.theory import theorem1, theorem2
from raychains.published.theory.jackknife import pseudo_values
from raychains.report.style import LIGHT


def test_pseudo_values_of_a_mean_are_the_values_themselves() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5])
    assert pseudo_values(lambda some: float(some.mean()), values) == pytest.approx(values)


def test_their_interval_is_the_jackknifes() -> None:
    """Of a slope, by the room's own jackknife: equal standard errors, and f(all) up to the bias that they take away."""
    steps, groups = [10, 20, 40], np.random.default_rng(1).gamma(9, size=(12, 3))
    it = slopes.slope(steps, groups)
    found = np.array(pseudo_values(lambda some: theorem1.slope(steps, some.mean(0)), groups))
    reach = 2.2009851600829 * found.std(ddof=1) / math.sqrt(12)  # t of 11 degrees of freedom
    assert reach == pytest.approx(it.half, rel=1e-9)
    without = [theorem1.slope(steps, np.delete(groups, g, 0).mean(0)) for g in range(12)]
    assert found.mean() == pytest.approx(it.value - 11 * (np.mean(without) - it.value), rel=1e-9)


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
    for (sweep, quantity), (_, exponent) in theorem1.STATED.items():
        wanted = weak.stated(quantity, weak.POWERS[sweep])
        assert exponent == pytest.approx(wanted)


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
