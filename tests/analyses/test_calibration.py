"""Bins of reliability diagrams as tables, with as many bins as the person says, and the figures drawn from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from torchmetrics.functional.classification import binary_calibration_error

from raychains import analyses
from raychains.report.figures import MAKERS, binned
from raychains.report.material import Material
from raychains.report.style import LIGHT, laid_out
from tests.analyses import predicted
from tests.analyses.predicted import Predicted

N, BINS = 160, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predicted, analyses.Tables]:
    run = Predicted(tmp_path_factory.mktemp("calibration"), {"test": lambda: predicted.labelled(0, N, noise=0.7)})
    tables = analyses.named("calibration").tables(run.context(bins=BINS))
    run.write(tables)
    return run, tables


def top_class(it: Predicted, arm: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and whether the top class is right."""
    p = it.probabilities("test", arm, group).mean(0)
    return p.max(1), p.argmax(1) == it.task.splits()["test"]._labels  # type: ignore[attr-defined]


def test_bins_are_scikit_learns_and_intervals_scipys(run: tuple[Predicted, analyses.Tables]) -> None:
    it, tables = run
    for (arm, group), (binning, strategy) in zip(
        it.groups, [("width", "uniform"), ("mass", "quantile")] * 2, strict=True
    ):
        name = it.comparison.arms[arm].name
        rows = [r for r in tables["reliability"] if (r["arm"], r["group"], r["binning"]) == (name, group, binning)]
        confidence, right = top_class(it, arm, group)
        share, mean = calibration_curve(right, confidence, n_bins=BINS, strategy=strategy)
        np.testing.assert_allclose([r["accuracy"] for r in rows], share, atol=1e-12)
        np.testing.assert_allclose([r["confidence"] for r in rows], mean, rtol=1e-12)
        assert sum(r["count"] for r in rows) == N
        assert binning == "width" or {r["count"] for r in rows} == {N // BINS}
        for r in rows:
            ends = binomtest(round(r["accuracy"] * r["count"]), r["count"]).proportion_ci(method="wilson")
            assert (r["low"], r["high"]) == pytest.approx((ends.low, ends.high), abs=1e-12)
            assert r["lower"] <= r["confidence"] <= r["upper"] and r["bins"] == BINS


def test_numbers_are_torchmetrics_and_the_brier_score_is_its_parts(run: tuple[Predicted, analyses.Tables]) -> None:
    it, tables = run
    for (arm, group), row in zip(it.groups, tables["calibration"], strict=True):
        confidence, right = top_class(it, arm, group)
        for name, norm in (("ece", "l1"), ("mce", "max")):
            expected = binary_calibration_error(
                torch.from_numpy(confidence), torch.from_numpy(right.astype(int)), n_bins=BINS, norm=norm
            )
            assert row[name] == pytest.approx(float(expected), abs=1e-9)
        order = np.argsort(confidence)
        gaps = (right - confidence)[order].reshape(BINS, -1)
        assert row["ece_mass"] == pytest.approx(np.abs(gaps.sum(1)).sum() / N, abs=1e-12)
        assert row["brier_top"] == pytest.approx(np.mean((confidence - right) ** 2))
        parts = row["reliability"] - row["resolution"] + row["uncertainty"]
        assert parts + row["within_variance"] - row["within_covariance"] == pytest.approx(row["brier_top"])


@pytest.mark.parametrize(("name", "label"), [("reliability", "Accuracy"), ("calibration", "Accuracy − confidence (%)")])
def test_figures_pool_the_repeats_in_the_bins_that_were_asked_for(
    run: tuple[Predicted, analyses.Tables], name: str, label: str
) -> None:
    it, tables = run
    drawing = MAKERS[name](Material(it.store, it.comparison))
    assert drawing is not None and f"{BINS} " in drawing.caption
    with laid_out(drawing, LIGHT) as figure:
        assert label in {axis.get_ylabel() for axis in figure.axes}
        (legend,) = [legend.get_window_extent() for legend in figure.legends]
        assert not any(legend.overlaps(axis.get_tightbbox()) for axis in figure.axes if axis.axison)
    binning = {"reliability": "width", "calibration": "mass"}[name]
    arm = it.comparison.arms[1].name
    for row in (r for r in drawing.data if r["arm"] == arm):
        of = [r for r in tables["reliability"] if (r["arm"], r["binning"], r["bin"]) == (arm, binning, row["bin"])]
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
    it = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, N, noise=0.7)})
    material = Material(it.store, it.comparison)
    assert [MAKERS[name](material) for name in ("reliability", "calibration")] == [None, None]
    columns = {"arm": [], "group": [], "confidence": [], "prediction": [], "label": []}  # type: ignore[var-annotated]
    for arm, group in it.groups:
        confidence, right = top_class(it, arm, group)
        columns["arm"] += [it.comparison.arms[arm].name] * N
        columns["group"] += [group] * N
        columns["confidence"] += confidence.tolist()
        columns["prediction"] += [0] * N
        columns["label"] += np.where(right, 0, 1).tolist()
    it.store.write_arrow("rows", pa.table(columns))
    tables = analyses.named("calibration").tables(it.context())
    for found in binned.diagrams(Material(it.store, it.comparison), "mass"):
        mine = [r for r in tables["reliability"] if (r["arm"], r["binning"]) == (found.arm.name, "mass")]
        assert found.bins == 15 and found.count.sum() == 2 * N
        assert found.accuracy[3] == pytest.approx(
            np.average(
                [r["accuracy"] for r in mine if r["bin"] == 3], weights=[r["count"] for r in mine if r["bin"] == 3]
            )
        )


def test_tasks_that_classify_nothing_are_told(tmp_path: Path) -> None:
    it = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 9)})
    why_not = analyses.named("calibration").why_not
    assert why_not(it.context()) is None
    it.task.predicts = "outputs"
    assert "small is no classification" in str(why_not(it.context()))
