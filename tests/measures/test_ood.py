"""Detection of other sets' inputs against scikit-learn, torchmetrics and direct counts, ties and all; the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from raychains.core.errors import UserError
from raychains.evaluation.evaluation import Evaluation
from raychains.inference.run_data import RunData
from raychains.measures import ood
from raychains.plotting.style import laid_out
from raychains.report.figures import FIGURES
from tests.checks import refused
from tests.evaluation.cases import Array, rows_of, softmax_samples
from tests.measures import predicted
from tests.measures.predicted import Predicted
from tests.report.figures import drawing_of, nothing_covered

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
def run(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    return made(tmp_path_factory.mktemp("ood")).measured("ood")


def scores(p: np.ndarray, score: str) -> np.ndarray:
    mean = p.mean(0)
    total = scipy.stats.entropy(mean, axis=1)
    if score == "entropy":
        return total
    if score == "mutual_information":
        return total - scipy.stats.entropy(p, axis=2).mean(0)
    return -mean.max(1)


def by_scikit_learn(inside: Array, outside: Array) -> dict[str, float]:
    """Areas and rates of `ood.detect`."""
    found = {}
    for end, positives, negatives in (("", outside, inside), ("_in", -inside, -outside)):
        positive, both = np.repeat([1, 0], [len(positives), len(negatives)]), np.r_[positives, negatives]
        fpr, tpr, _ = roc_curve(positive, both, drop_intermediate=False)
        found |= {"auroc": roc_auc_score(positive, both), f"fpr95{end}": fpr[tpr >= 0.95].min()}
        found[f"aupr{end}"] = average_precision_score(positive, both)
    return found


@pytest.mark.parametrize("score", ["entropy", "mutual_information", "max_probability"])
@pytest.mark.parametrize("companion", ["near", "far"])
def test_every_number_is_scikit_learns(run: Predicted, companion: str, score: str) -> None:
    rows = [r for r in run.tables["ood"] if (r["companion"], r["score"]) == (companion, score)]
    assert [(r["arm"], r["group"], r["repeat"]) for r in rows] == [
        (run.comparison.arms[a].name, g, g) for a, g in run.groups
    ]
    for (arm, group), row in zip(run.groups, rows, strict=True):
        inside, outside = (scores(run.probabilities(s, arm, group), score) for s in ("test", f"ood:{companion}"))
        expected = by_scikit_learn(inside, outside)
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=1e-9)
        assert (row["mean_inside"], row["mean_outside"]) == pytest.approx((inside.mean(), outside.mean()), abs=1e-6)
        assert (row["inside"], row["outside"]) == (N, len(outside))
        entropy = scores(run.probabilities(f"ood:{companion}", arm, group), "entropy")
        share = (entropy < 0.5).mean()
        assert row["share_below_half_nat"] == pytest.approx(share)
        resampled = scipy.stats.bootstrap(
            (entropy < 0.5,),
            np.mean,
            vectorized=True,
            n_resamples=1000,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
        assert (row["low"], row["high"]) == pytest.approx((resampled.low, resampled.high), abs=1e-12)


def test_curves_are_distribution_functions_of_the_entropy(run: Predicted) -> None:
    (arm, group), split = run.groups[1], "ood:near"
    for companion, name in (("near", split), ("inside", "test")):
        curve = [
            r
            for r in run.tables["entropy_cdf"]
            if (r["arm"], r["group"], r["companion"]) == (run.comparison.arms[arm].name, group, companion)
        ]
        entropy = scores(run.probabilities(name, arm, group), "entropy")
        assert curve[0]["entropy"] == 0 and curve[-1]["entropy"] == pytest.approx(np.log(predicted.CLASSES))
        for r in curve:
            assert r["cdf"] == pytest.approx(np.mean(entropy <= r["entropy"] + 1e-9), abs=1.01 / len(entropy))
        assert curve[-1]["cdf"] == 1 and 0 < curve[len(curve) // 2]["cdf"] < 1
    assert {r["companion"] for r in run.tables["entropy_cdf"]} == {"inside", "near", "far"}
    assert run.asked == ["test", "ood:near", "ood:far"], "each split once for all arms"


def test_without_any_companions_data_the_reason_is_one_line(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 20), "ood:gone": gone})
    assert ood.why_not(run.context()) is None
    with refused("companion", "small", "gone"):
        ood.tables(run.context())


def test_tasks_without_companions_and_splits_without_labels_are_told(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 20)})
    assert "no companion sets" in str(ood.why_not(run.context()))
    assert "no labels" in str(ood.why_not(made(tmp_path).context("ood:near")))


LABELS = {
    "entropy": {"Predictive entropy (nats)", "Share of inputs at or below"},
    "detection": {"AUROC (%)   → better", "AUPR (%)   → better", "FPR at 95 % (%)   ← better"},
}


@pytest.mark.parametrize("name", LABELS)
def test_figures_have_labels_legends_outside_and_their_numbers(run: Predicted, name: str) -> None:
    drawing = drawing_of(RunData(run.store, run.comparison), name)
    assert LABELS[name] <= nothing_covered(drawing)
    with laid_out(drawing) as figure:
        titles = {axis.get_title(loc="left") for axis in figure.axes}
    assert {"near", "far"} <= titles and ("own inputs (test)" in titles) == (name == "entropy")
    if name == "entropy":
        own = [r["cdf"] for r in drawing.data if (r["companion"], r["arm"]) == ("near", run.comparison.arms[0].name)]
        assert len(own) == ood.ENTROPIES and own == sorted(own)
    else:
        assert len(drawing.data) == 2 * 2 * 2 * 3


def test_a_damaged_table_is_one_line(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.store.write_table("ood", [{"arm": 1}])
    with refused("ood.parquet", "damaged"):
        FIGURES["detection"](RunData(run.store, run.comparison))


# Two sets of scores

RNG = np.random.default_rng(0)
PAIRS = {
    "apart": (RNG.normal(0, 1, 300), RNG.normal(2, 1, 170)),
    "alike": (RNG.normal(0, 1, 150), RNG.normal(0, 1, 150)),
    "reversed": (RNG.normal(2, 1, 90), RNG.normal(0, 1, 200)),
    "many ties": (RNG.integers(0, 5, 300) / 4, RNG.integers(1, 7, 101) / 4),
    "close": (1e-13 * RNG.normal(0, 1, 100), 1e-13 * RNG.normal(1, 1, 100)),
    "wholly apart": (np.array([0, 1]), np.array([2, 3, 4])),
    "wholly reversed": (np.array([2, 3, 4]), np.array([0, 1])),
    "all equal": (np.zeros(30), np.zeros(10)),
    "one point each": (np.array([0.2]), np.array([0.3])),
    "one point outside": (RNG.normal(0, 1, 20), np.array([0.1])),
}


@pytest.mark.parametrize(("inside", "outside"), PAIRS.values(), ids=PAIRS)
def test_of_two_sets_of_scores_all_numbers_are_scikit_learns(inside: Array, outside: Array) -> None:
    found = ood.detect(inside, outside)
    assert found == pytest.approx(by_scikit_learn(inside, outside), abs=1e-12)
    assert found["auroc"] == pytest.approx(1 - ood.detect(outside, inside)["auroc"], abs=1e-12)


def test_no_more_positives_are_passed_than_the_rate_needs() -> None:
    for n in range(1, 400):
        positives = np.arange(n, dtype=float)
        passed = round(n * ood.false_positive_rate(positives, positives))  # negatives at the same places
        assert passed / n >= 0.95 and (passed - 1) / n < 0.95, n


def test_one_sample_has_no_mutual_information_and_detects_nothing_by_it() -> None:
    inside, outside = (rows_of(*softmax_samples(s, samples=1, sharpness=h)) for s, h in ((0, 2.0), (1, 0.3)))
    found = ood.detect(*(ood.SCORES["mutual_information"](rows) for rows in (inside, outside)))
    assert found["auroc"] == 0.5 and found["fpr95"] == 1
    assert ood.detect(*(ood.SCORES["entropy"](rows) for rows in (inside, outside)))["auroc"] > 0.9


def test_the_distribution_function_of_uniform_predictions_ends_at_one() -> None:
    """In single precision their entropy exceeds log(classes)."""
    curve = ood._curve({}, {"entropy": np.full(3, np.log(26) + 2e-7)}, np.linspace(0, np.log(26), 5))
    assert [row["cdf"] for row in curve] == [0, 0, 0, 0, 1]


def test_confidences_that_differ_in_the_last_bit_stay_apart() -> None:
    """1 − confidence would make ties of them."""
    confidence = np.array([0.1, np.nextafter(0.1, 1)])
    assert len(set(1 - confidence)) == 1 and len(set(ood.SCORES["max_probability"]({"confidence": confidence}))) == 2


def test_numbers_of_a_network_that_overflowed_are_one_line() -> None:
    wrong = np.array([0.1, np.nan])
    for score in ood.SCORES.values():
        with refused("finite", "nan", "number 1 of 2"):
            score({"entropy": wrong, "expected_entropy": wrong, "confidence": wrong})
