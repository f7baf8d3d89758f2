"""Bins of reliability diagrams as tables, with any number of bins, the Brier score's parts, and the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from raychains import measures
from raychains.evaluation.evaluation import Rows
from raychains.inference.run_data import RunData
from raychains.measures import calibration
from tests.evaluation.cases import rows_of, softmax_samples, tied_rows, top_class_rows, torchmetrics_error
from tests.measures import predicted
from tests.measures.predicted import Predicted
from tests.report.figures import drawing_of, nothing_covered

N, BINS = 160, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    made = Predicted(tmp_path_factory.mktemp("calibration"), {"test": lambda: predicted.labelled(0, N, noise=0.7)})
    return made.measured("calibration", bins=BINS)


def top_class(run: Predicted, arm: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and whether the top class is right."""
    p = run.probabilities("test", arm, group).mean(0)
    return p.max(1), p.argmax(1) == run.task.splits()["test"]._labels  # type: ignore[attr-defined]


def test_bins_are_scikit_learns_and_intervals_scipys(run: Predicted) -> None:
    for (arm, group), (binning, strategy) in zip(
        run.groups, [("width", "uniform"), ("mass", "quantile")] * 2, strict=True
    ):
        name = run.comparison.arms[arm].name
        rows = [r for r in run.tables["reliability"] if (r["arm"], r["group"], r["binning"]) == (name, group, binning)]
        confidence, right = top_class(run, arm, group)
        share, mean = calibration_curve(right, confidence, n_bins=BINS, strategy=strategy)
        np.testing.assert_allclose([r["accuracy"] for r in rows], share, atol=1e-12)
        np.testing.assert_allclose([r["confidence"] for r in rows], mean, rtol=1e-12)
        assert sum(r["count"] for r in rows) == N
        assert binning == "width" or {r["count"] for r in rows} == {N // BINS}
        for r in rows:
            ends = binomtest(round(r["accuracy"] * r["count"]), r["count"]).proportion_ci(method="wilson")
            assert (r["low"], r["high"]) == pytest.approx((ends.low, ends.high), abs=1e-12)
            assert r["lower"] <= r["confidence"] <= r["upper"] and r["bins"] == BINS


def test_numbers_are_torchmetrics_and_the_brier_score_is_its_parts(run: Predicted) -> None:
    for (arm, group), row in zip(run.groups, run.tables["calibration"], strict=True):
        confidence, right = top_class(run, arm, group)
        for name, norm in (("ece", "l1"), ("mce", "max")):
            expected = torchmetrics_error(top_class_rows(confidence, right), BINS, norm)
            assert row[name] == pytest.approx(expected, abs=1e-9)
        order = np.argsort(confidence)
        gaps = (right - confidence)[order].reshape(BINS, -1)
        assert row["ece_mass"] == pytest.approx(np.abs(gaps.sum(1)).sum() / N, abs=1e-12)
        assert row["brier_top"] == pytest.approx(np.mean((confidence - right) ** 2))
        parts = row["reliability"] - row["resolution"] + row["uncertainty"]
        assert parts + row["within_variance"] - row["within_covariance"] == pytest.approx(row["brier_top"])


@pytest.mark.parametrize(("name", "label"), [("reliability", "Accuracy"), ("calibration", "Accuracy − confidence (%)")])
def test_figures_pool_the_repeats_in_the_bins_that_were_asked_for(run: Predicted, name: str, label: str) -> None:
    drawing = drawing_of(RunData(run.store, run.comparison), name)
    assert f"{BINS} " in drawing.caption and label in nothing_covered(drawing)
    binning = {"reliability": "width", "calibration": "mass"}[name]
    arm = run.comparison.arms[1].name
    for row in (r for r in drawing.data if r["arm"] == arm):
        of = [r for r in run.tables["reliability"] if (r["arm"], r["binning"], r["bin"]) == (arm, binning, row["bin"])]
        counts = np.array([r["count"] for r in of])
        assert row["count"] == counts.sum()
        for column in ("accuracy", "confidence"):
            assert row[column] == pytest.approx(np.average([r[column] for r in of], weights=counts))
        # Two repeats predict the same inputs: the interval is one of half the predictions.
        n, a = row["count"] / 2, row["accuracy"]
        centre, z2 = (a + 3.841458820694124 / (2 * n)) / (1 + 3.841458820694124 / n), 3.841458820694124
        half = np.sqrt(z2 * (a * (1 - a) / n + z2 / (4 * n * n))) / (1 + z2 / n)
        assert (row["low"], row["high"]) == pytest.approx((max(centre - half, 0), min(centre + half, 1)), abs=1e-9)


def test_without_the_measure_the_runs_rows_are_put_into_fifteen_bins(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, N, noise=0.7)})
    columns = {"arm": [], "group": [], "confidence": [], "prediction": [], "label": []}  # type: ignore[var-annotated]
    for arm, group in run.groups:
        confidence, right = top_class(run, arm, group)
        columns["arm"] += [run.comparison.arms[arm].name] * N
        columns["group"] += [group] * N
        columns["confidence"] += confidence.tolist()
        columns["prediction"] += [0] * N
        columns["label"] += np.where(right, 0, 1).tolist()
    run.store.write_arrow("rows", pa.table(columns))
    tables = measures.named("calibration").tables(run.context())
    for found in calibration.diagrams(RunData(run.store, run.comparison), "mass"):
        mine = [r for r in tables["reliability"] if (r["arm"], r["binning"]) == (found.arm.name, "mass")]
        assert found.bins == 15 and found.table["count"].sum() == 2 * N
        assert found.table["accuracy"][3] == pytest.approx(
            np.average(
                [r["accuracy"] for r in mine if r["bin"] == 3], weights=[r["count"] for r in mine if r["bin"] == 3]
            )
        )


# Of rows

CASES = [rows_of(*softmax_samples(s, classes=c, sharpness=h)) for s, c, h in ((0, 7, 2.0), (1, 3, 0.5), (2, 20, 8.0))]


def test_wilsons_interval_does_not_vanish_and_is_none_of_an_empty_bin() -> None:
    low, high = calibration.wilson(np.array([1.0, np.nan]), np.array([3, 0]))
    assert low[0] < 0.5 and high[0] == 1 and np.isnan([low[1], high[1]]).all()


@pytest.mark.parametrize("rows", [*CASES, tied_rows(1), top_class_rows([0.3], [True])])
@pytest.mark.parametrize("bins", [1, 8, 15])
def test_the_parts_of_the_brier_score_sum_to_scikit_learns(rows: Rows, bins: int) -> None:
    right = rows["prediction"] == rows["label"]
    parts = calibration.brier_parts(rows, bins)
    assert parts.score == pytest.approx(np.mean((rows["confidence"] - right) ** 2), abs=1e-12)
    if 0 < right.mean() < 1:
        assert parts.score == pytest.approx(brier_score_loss(right, rows["confidence"]), abs=1e-12)


def test_murphys_three_terms_suffice_where_a_bin_holds_one_confidence() -> None:
    """Two confidences, .6 and .9, of which .5 and 1 are right."""
    parts = calibration.brier_parts(top_class_rows([0.6] * 4 + [0.9] * 4, [True, False] * 2 + [True] * 4), bins=2)
    assert parts.reliability == pytest.approx((0.1**2 + 0.1**2) / 2)
    assert parts.resolution == pytest.approx(0.25**2)
    assert parts.uncertainty == pytest.approx(0.75 * 0.25)
    assert (parts.within_variance, parts.within_covariance) == pytest.approx((0, 0), abs=1e-30)
