"""Bootstrap intervals against quantiles of resamples drawn by hand, known standard errors and nominal coverage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from raychains.evaluation import bootstrap as module
from raychains.evaluation import metrics
from raychains.evaluation.bootstrap import RESAMPLES, intervals, paired, with_intervals
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import Rows, gather
from raychains.evaluation.regression import Regression
from tests.checks import refused
from tests.evaluation.cases import Array, rows_of, softmax_samples, top_class_rows

FIRST, LABELS = softmax_samples(3, classes=8, n=150)
ROWS = rows_of(FIRST, LABELS)
CLASSES = [m.name for m in Classification.metrics]


def own_replicates(metric: Callable[[Rows], Any], rows: Rows, resamples: int, seed: int) -> Array:
    """Redrawn here: a resample is one row of integers of the seeded generator."""
    n = len(next(iter(rows.values())))
    draws = np.random.default_rng(seed).integers(0, n, (resamples, n))
    return np.array([metric({name: column[at] for name, column in rows.items()}) for at in draws])


def percentiles(replicates: Array, level: float = 0.95) -> tuple[float, float]:
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def gaussian_rows(k: int) -> Rows:
    g = torch.Generator().manual_seed(k)
    split = Regression(
        model=nn.Linear(2, k),
        inputs=torch.randn(90, 2, generator=g),
        targets=torch.randn(90, k, generator=g).numpy(),
        noise=0.8,
        fingerprint="f",
    )
    samples = [{"weight": torch.randn(k, 2, generator=g), "bias": torch.randn(k, generator=g)} for _ in range(3)]
    return gather([split.reduce([split.predict(s, 0) for s in samples], 0)])


@pytest.mark.parametrize("name", ["error", "nll", "brier", "top5_error", "entropy", "mutual_information"])
def test_of_means_they_are_percentiles_of_resamples_drawn_by_hand(name: str) -> None:
    found = intervals(ROWS, [name])
    expected = own_replicates(lambda rows: metrics.of_points(name, rows), ROWS, RESAMPLES, 0)
    assert found == {name: pytest.approx(percentiles(expected), rel=1e-10)}


@pytest.mark.parametrize("k", [1, 2])
def test_of_a_regression_they_are_percentiles_too(k: int) -> None:
    rows, names = gaussian_rows(k), [m.name for m in Regression.metrics]
    found = intervals(rows, names)
    assert list(found) == names
    for name in names:
        expected = own_replicates(lambda r, name=name: metrics.of_points(name, r), rows, RESAMPLES, 0)
        if name == "coverage_error":  # scatter counts as error, and a resample's scatters once more
            expected = np.maximum(expected - expected.mean() + metrics.of_points(name, rows), 0.0)
        assert found[name] == pytest.approx(percentiles(expected), rel=1e-10), name


TIED = top_class_rows(
    np.random.default_rng(0).choice([0.3, 0.5, 0.75, 1.0], 120), np.random.default_rng(1).random(120) < 0.7
)


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["random", "ties"])
@pytest.mark.parametrize("bins", [8, 15])
@pytest.mark.parametrize(("name", "metric"), [("ece", metrics.ece), ("ece_mass", metrics.ece_mass)])
def test_of_calibration_errors_they_are_moved_by_the_bias(rows: Rows, bins: int, name: str, metric: Any) -> None:
    """A calibrated predictive's resamples have larger errors than its points: that much is taken off."""
    expected = own_replicates(lambda r: metric(r, bins), rows, RESAMPLES, 0)
    moved = np.maximum(expected - (expected.mean() - metric(rows, bins)), 0)
    found = intervals(rows, [name], bins=bins)[name]
    assert found == pytest.approx(percentiles(moved), abs=1e-12)
    assert expected.mean() > metric(rows, bins)


def test_they_hold_the_value() -> None:
    for name, (low, high) in intervals(ROWS, CLASSES).items():
        values = {"ece": metrics.ece, "ece_mass": metrics.ece_mass}
        value = values[name](ROWS, 15) if name in values else metrics.of_points(name, ROWS)
        assert low < value < high, name


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = intervals(ROWS, CLASSES)
    monkeypatch.setattr(module, "AT_ONCE", 7 * 150)
    assert intervals(ROWS, CLASSES) == {name: pytest.approx(ends) for name, ends in whole.items()}


def test_as_columns_of_a_table_without_what_rows_do_not_tell() -> None:
    found = with_intervals(ROWS, [*CLASSES, "modes"], bins=8)
    ends = intervals(ROWS, CLASSES, bins=8)
    assert set(ends) == set(CLASSES) - {"classwise_ece"}
    assert found == {f"{n}_{end}": v for n, pair in ends.items() for end, v in zip(("low", "high"), pair, strict=True)}
    assert with_intervals({"modes": np.array([3.0, 4.0])}, ["modes"], bins=15) == {}
    assert with_intervals({"log_p": np.array([-1.0, -2.0, -4.0])}, ["nll", "rmse"], bins=15).keys() == {
        "nll_low",
        "nll_high",
    }
    assert with_intervals(top_class_rows([0.5], [True]), ["error", "ece"], bins=15) == {}
    assert with_intervals(top_class_rows([0.5, np.nan], [True, True]), ["error", "ece"], bins=15) == {}
    assert with_intervals({}, ["error"], bins=15) == {}
    entropies = {"entropy": np.array([0.5, np.nan]), "expected_entropy": np.array([0.25, 0.5])}
    assert with_intervals(entropies, ["mutual_information"], bins=15) == {}


def test_where_all_points_are_alike_the_interval_is_the_value() -> None:
    right = top_class_rows([0.75] * 10, [True] * 10)
    assert intervals(right, ["error", "ece"]) == {"error": (0, 0), "ece": pytest.approx((0.25, 0.25))}
    two = intervals(top_class_rows([0.5, 0.5], [True, False]), ["error"])["error"]
    assert two == (0, 1), "two points are enough"


# Two predictives of the same points


def points(rows: Rows) -> dict[str, Array]:
    return {"nll": -rows["log_p_label"], "brier": rows["brier"]}


def test_a_paired_difference_is_that_of_the_same_draws() -> None:
    first, second = points(ROWS), points(rows_of(FIRST[:2], LABELS))
    found = paired(first, second)
    assert list(found) == ["nll", "brier"]
    for name, one in found.items():
        each = [own_replicates(lambda t, name=name: t[name].mean(), t, RESAMPLES, 0) for t in (first, second)]
        assert (one.low, one.high) == pytest.approx(percentiles(each[0] - each[1]), rel=1e-9)
        assert one.value == pytest.approx(first[name].mean() - second[name].mean(), rel=1e-12)
        assert one.high - one.low < np.diff(percentiles(each[0]))[0]
    reverse = paired(second, first)["nll"]
    assert (reverse.low, reverse.high) == pytest.approx((-found["nll"].high, -found["nll"].low))
    same = paired(first, first)["nll"]
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert paired(first, {"error": first["nll"]}) == {}


def test_bad_arguments_are_one_line() -> None:
    first = points(ROWS)
    with refused("rows of both predictives", "same examples", "[150, 149]"):
        paired(first, {name: column[:-1] for name, column in first.items()})
    with refused("rows", "2 test points", "1 point"):
        paired({"nll": np.ones(1)}, {"nll": np.ones(1)})
    with refused("metric", "finite"):
        paired({"nll": np.array([1.0, np.nan])}, {"nll": np.ones(2)})
