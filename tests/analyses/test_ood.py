"""Detection of other sets' inputs against scikit-learn on the probabilities themselves, and what the figures show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from raychains import analyses
from raychains.analyses import ood
from raychains.errors import UserError
from raychains.evaluation.base import Evaluation
from raychains.report.figures import MAKERS
from raychains.report.material import Material
from raychains.report.style import LIGHT, laid_out
from tests.analyses import predicted
from tests.analyses.predicted import Predicted
from tests.checks import refused

N, NEAR, FAR = 150, 120, 90


def gone() -> Evaluation:
    raise UserError("data set gone: no file here")


def made(folder: Path, **more: object) -> Predicted:
    splits = {
        "test": lambda: predicted.labelled(0, N),
        "ood:near": lambda: predicted.outside(5, NEAR, 0.3),
        "ood:gone": gone,
        "ood:far": lambda: predicted.outside(6, FAR, -3.0),
    }
    return Predicted(folder, splits, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Predicted, analyses.Tables]:
    run = made(tmp_path_factory.mktemp("ood"))
    tables = analyses.named("ood").tables(run.context())
    run.write(tables)
    return run, tables


def scores(p: np.ndarray, score: str) -> np.ndarray:
    mean = p.mean(0)
    total = scipy.stats.entropy(mean, axis=1)
    if score == "entropy":
        return total
    if score == "mutual_information":
        return total - scipy.stats.entropy(p, axis=2).mean(0)
    return -mean.max(1)


@pytest.mark.parametrize("score", ["entropy", "mutual_information", "max_probability"])
@pytest.mark.parametrize("companion", ["near", "far"])
def test_every_number_is_scikit_learns(run: tuple[Predicted, analyses.Tables], companion: str, score: str) -> None:
    it, tables = run
    rows = [r for r in tables["ood"] if (r["companion"], r["score"]) == (companion, score)]
    assert [(r["arm"], r["group"], r["repeat"]) for r in rows] == [
        (it.comparison.arms[a].name, g, g) for a, g in it.groups
    ]
    for (arm, group), row in zip(it.groups, rows, strict=True):
        inside, outside = (scores(it.probabilities(s, arm, group), score) for s in ("test", f"ood:{companion}"))
        positive, both = np.repeat([0, 1], [len(inside), len(outside)]), np.r_[inside, outside]
        assert row["auroc"] == pytest.approx(roc_auc_score(positive, both), abs=1e-9)
        assert row["aupr"] == pytest.approx(average_precision_score(positive, both), abs=1e-9)
        assert row["aupr_in"] == pytest.approx(average_precision_score(1 - positive, -both), abs=1e-9)
        fpr, tpr, _ = roc_curve(positive, both, drop_intermediate=False)
        assert row["fpr95"] == pytest.approx(fpr[tpr >= 0.95].min(), abs=1e-12)
        fpr, tpr, _ = roc_curve(1 - positive, -both, drop_intermediate=False)
        assert row["fpr95_in"] == pytest.approx(fpr[tpr >= 0.95].min(), abs=1e-12)
        assert (row["mean_inside"], row["mean_outside"]) == pytest.approx((inside.mean(), outside.mean()), abs=1e-6)
        assert (row["inside"], row["outside"]) == (N, len(outside))
        entropy = scores(it.probabilities(f"ood:{companion}", arm, group), "entropy")
        share = (entropy < 0.5).mean()
        assert row["share_below_half_nat"] == pytest.approx(share)
        resampled = scipy.stats.bootstrap(
            (entropy < 0.5,), np.mean, vectorized=True, n_resamples=1000, method="percentile", rng=np.random.default_rng(0)
        ).confidence_interval  # fmt: skip
        assert (row["low"], row["high"]) == pytest.approx((resampled.low, resampled.high), abs=1e-12)


def test_curves_are_distribution_functions_of_the_entropy(run: tuple[Predicted, analyses.Tables]) -> None:
    it, tables = run
    (arm, group), split = it.groups[1], "ood:near"
    for companion, name in (("near", split), ("inside", "test")):
        curve = [
            r
            for r in tables["entropy_cdf"]
            if (r["arm"], r["group"], r["companion"]) == (it.comparison.arms[arm].name, group, companion)
        ]
        entropy = scores(it.probabilities(name, arm, group), "entropy")
        assert curve[0]["entropy"] == 0 and curve[-1]["entropy"] == pytest.approx(np.log(predicted.CLASSES))
        for r in curve:
            assert r["cdf"] == pytest.approx(np.mean(entropy <= r["entropy"] + 1e-9), abs=1.01 / len(entropy))
        assert curve[-1]["cdf"] == 1 and 0 < curve[len(curve) // 2]["cdf"] < 1
    assert {r["companion"] for r in tables["entropy_cdf"]} == {"inside", "near", "far"}


def test_each_split_is_evaluated_once_for_all_arms(tmp_path: Path) -> None:
    run = made(tmp_path)
    ood.tables(run.context())
    assert run.asked == ["test", "ood:near", "ood:far"]


def test_without_any_companions_data_the_reason_is_one_line(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 20), "ood:gone": gone})
    assert ood.why_not(run.context()) is None
    with refused("companion", "small", "gone"):
        ood.tables(run.context())


def test_tasks_without_companions_and_splits_without_labels_are_told(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 20)})
    assert "no companion sets" in str(ood.why_not(run.context()))
    assert "no labels" in str(ood.why_not(made(tmp_path).context("ood:near")))
    run.task.predicts = "gaussian"
    assert "no classification" in str(ood.why_not(run.context()))


LABELS = {
    "entropy": {"Predictive entropy (nats)", "Share of inputs at or below"},
    "detection": {"AUROC (%)   → better", "AUPR (%)   → better", "FPR at 95 % (%)   ← better"},
}


@pytest.mark.parametrize("name", LABELS)
def test_figures_have_labels_legends_outside_and_their_numbers(
    run: tuple[Predicted, analyses.Tables], name: str
) -> None:
    it, _ = run
    drawing = MAKERS[name](Material(it.store, it.comparison))
    assert drawing is not None
    with laid_out(drawing, LIGHT) as figure:
        assert LABELS[name] <= {text for axis in figure.axes for text in (axis.get_xlabel(), axis.get_ylabel())}
        titles = {axis.get_title(loc="left") for axis in figure.axes}
        assert {"near", "far"} <= titles and ("own inputs (test)" in titles) == (name == "entropy")
        (legend,) = [legend.get_window_extent() for legend in figure.legends]
        assert not any(legend.overlaps(axis.get_tightbbox()) for axis in figure.axes if axis.axison)
    if name == "entropy":
        own = [r["cdf"] for r in drawing.data if (r["companion"], r["arm"]) == ("near", it.comparison.arms[0].name)]
        assert len(own) == ood.GRID and own == sorted(own)
    else:
        assert len(drawing.data) == 2 * 2 * 2 * 3


def test_there_are_no_figures_without_the_tables(tmp_path: Path) -> None:
    run = made(tmp_path)
    material = Material(run.store, run.comparison)
    assert [MAKERS[name](material) for name in LABELS] == [None, None]
    run.store.write_table("ood", [{"arm": 1}])
    with refused("ood.parquet", "damaged"):
        MAKERS["detection"](Material(run.store, run.comparison))
