"""Intervals of all metrics at once against scipy's bootstrap of each, resample by resample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from raychains.evaluation import intervals as module
from raychains.evaluation import metrics
from raychains.evaluation.base import Rows, gather
from raychains.evaluation.bootstrap import bootstrap
from raychains.evaluation.classification import Classification
from raychains.evaluation.intervals import intervals, with_intervals
from raychains.evaluation.regression import Regression
from tests.checks import refused
from tests.evaluation.cases import rows_of, softmax_samples, top_class_rows

ROWS = rows_of(*softmax_samples(3, classes=8, n=150))
CLASSES = [m.name for m in Classification.metrics]


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
def test_of_means_they_equal_scipys_percentile_intervals(name: str) -> None:
    found = intervals(ROWS, [name], resamples=80, level=0.9, seed=4)
    expected = bootstrap(lambda rows: metrics.of_points(name, rows), ROWS, resamples=80, level=0.9, seed=4)
    assert found == {name: pytest.approx((expected.low, expected.high), rel=1e-10)}


@pytest.mark.parametrize("k", [1, 2])
def test_of_a_regression_they_equal_scipys(k: int) -> None:
    rows, names = gaussian_rows(k), [m.name for m in Regression.metrics]
    found = intervals(rows, names, resamples=60, seed=1)
    assert list(found) == names
    for name in names:
        expected = bootstrap(lambda r, name=name: metrics.of_points(name, r), rows, resamples=60, seed=1)  # type: ignore[misc]
        assert found[name] == pytest.approx((expected.low, expected.high), rel=1e-10), name
    squares = bootstrap(lambda r: r["squared_error"].mean(), rows, resamples=60, seed=1).replicates
    assert found["rmse"] == pytest.approx(tuple(np.quantile(np.sqrt(squares), [0.025, 0.975])))


TIED = top_class_rows(
    np.random.default_rng(0).choice([0.3, 0.5, 0.75, 1.0], 120), np.random.default_rng(1).random(120) < 0.7
)


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["random", "ties"])
@pytest.mark.parametrize("bins", [8, 15])
@pytest.mark.parametrize(("name", "metric"), [("ece", metrics.ece), ("ece_mass", metrics.ece_mass)])
def test_of_calibration_errors_they_are_scipys_moved_by_the_bias(rows: Rows, bins: int, name: str, metric: Any) -> None:
    expected = bootstrap(lambda r: metric(r, bins), rows, resamples=70, seed=2)
    moved = np.maximum(expected.replicates - (expected.replicates.mean() - expected.value), 0)
    found = intervals(rows, [name], bins=bins, resamples=70, seed=2)[name]
    assert found == pytest.approx(tuple(np.quantile(moved, [0.025, 0.975])), abs=1e-12)


def test_they_hold_the_value_and_cover_the_true_error_as_often_as_they_say() -> None:
    """Of 300 sets of 200 points with an error of .3."""
    covered = 0
    for seed in range(300):
        right = np.random.default_rng(seed).random(200) > 0.3
        rows = top_class_rows(np.full(200, 0.7), right)
        low, high = intervals(rows, ["error"], resamples=200, seed=seed)["error"]
        assert low <= metrics.error(rows) <= high
        covered += low <= 0.3 <= high
    assert abs(covered / 300 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 300)
    for name, (low, high) in intervals(ROWS, CLASSES).items():
        value = metrics.ece(ROWS) if name == "ece" else metrics.ece_mass(ROWS) if name == "ece_mass" else metrics.of_points(name, ROWS)  # fmt: skip
        assert low < value < high, name


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = intervals(ROWS, CLASSES, resamples=50)
    monkeypatch.setattr(module, "AT_ONCE", 7 * 150)
    assert intervals(ROWS, CLASSES, resamples=50) == {name: pytest.approx(ends) for name, ends in whole.items()}


def test_as_columns_of_a_table_without_what_rows_do_not_tell() -> None:
    found = with_intervals(ROWS, [*CLASSES, "modes"], bins=8)
    ends = intervals(ROWS, CLASSES, bins=8)
    assert set(ends) == set(CLASSES) - {"classwise_ece"}
    assert found == {f"{n}_{end}": v for n, pair in ends.items() for end, v in zip(("low", "high"), pair, strict=True)}
    assert with_intervals({"modes": np.array([3.0, 4.0])}, ["modes"]) == {}
    assert with_intervals({"log_p": np.array([-1.0, -2.0, -4.0])}, ["nll", "rmse"]).keys() == {"nll_low", "nll_high"}
    assert with_intervals(top_class_rows([0.5], [True]), ["error", "ece"]) == {}
    assert with_intervals(top_class_rows([0.5, np.nan], [True, True]), ["error", "ece"]) == {}
    assert with_intervals({}, ["error"]) == {}


def test_bad_arguments_are_one_line() -> None:
    for argument, value in (("level", 1.0), ("resamples", 1), ("seed", -1), ("bins", 0)):
        with refused(argument):
            intervals(ROWS, ["error"], **{argument: value})  # type: ignore[arg-type]
