"""Calibration in bins, each number against torchmetrics, scikit-learn or a direct formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error

from raychains.evaluation import calibration, metrics
from raychains.evaluation.base import Rows
from tests.checks import refused
from tests.evaluation.cases import Array, rows_of, softmax_samples, top_class_rows

CASES = [softmax_samples(s, classes=c, sharpness=h) for s, c, h in ((0, 7, 2.0), (1, 3, 0.5), (2, 20, 8.0))]
EACH = pytest.mark.parametrize("rows", [rows_of(*case) for case in CASES], ids=["7 classes", "3 blunt", "20 sharp"])
BINS = pytest.mark.parametrize("bins", [1, 8, 15])


def tied_rows(seed: int, n: int = 200) -> Rows:
    """Confidences in few distinct values, 0.5 and 1 among them."""
    rng = np.random.default_rng(seed)
    confidence = rng.choice([0.2, 0.5, 0.55, 0.9, 1.0], p=[0.05, 0.3, 0.15, 0.2, 0.3], size=n)
    return top_class_rows(confidence, rng.random(n) < confidence)


def torchmetrics_error(rows: Rows, bins: int, norm: str) -> float:
    right = torch.from_numpy((rows["prediction"] == rows["label"]).astype(np.int64))
    return float(binary_calibration_error(torch.from_numpy(rows["confidence"]), right, n_bins=bins, norm=norm))


# Equal widths


@EACH
@BINS
def test_equal_width_errors_equal_torchmetrics(rows: Rows, bins: int) -> None:
    diagram = calibration.equal_width(rows, bins)
    assert calibration.expected_error(diagram) == pytest.approx(torchmetrics_error(rows, bins, "l1"), abs=1e-12)
    assert calibration.expected_error(diagram) == pytest.approx(metrics.ece(rows, bins), abs=1e-12)
    assert calibration.maximum_error(rows, bins) == pytest.approx(torchmetrics_error(rows, bins, "max"), abs=1e-12)


@EACH
@BINS
def test_equal_width_columns_equal_a_loop(rows: Rows, bins: int) -> None:
    diagram = calibration.equal_width(rows, bins)
    right = rows["prediction"] == rows["label"]
    assert diagram.count.sum() == len(right)
    for b in range(bins):
        inside = (rows["confidence"] >= b / bins) & ((rows["confidence"] < (b + 1) / bins) | (b == bins - 1))
        assert diagram.count[b] == inside.sum()
        assert (diagram.lower[b], diagram.upper[b]) == pytest.approx((b / bins, (b + 1) / bins))
        if inside.any():
            a = right[inside].mean()
            assert diagram.accuracy[b] == pytest.approx(a)
            assert diagram.confidence[b] == pytest.approx(rows["confidence"][inside].mean())
            assert diagram.standard_error[b] == pytest.approx(math.sqrt(a * (1 - a) / inside.sum()))
        else:
            assert np.isnan([diagram.accuracy[b], diagram.confidence[b], diagram.standard_error[b]]).all()


def test_a_confidence_on_an_edge_belongs_to_the_bin_above() -> None:
    """Also where edge · bins rounds to less than the bin's number."""
    for bins in range(1, 60):
        edges = np.linspace(0, 1, bins + 1)
        diagram = calibration.equal_width(top_class_rows(edges, edges > 2), bins)
        assert diagram.count.tolist() == [1] * (bins - 1) + [2], bins  # the last edge is 1, in the last bin


def test_torchmetrics_alone_gives_a_confidence_of_one_its_own_bin() -> None:
    rows = top_class_rows([0.95, 1.0], [True, False])
    assert calibration.expected_error(calibration.equal_width(rows, 10)) == pytest.approx(0.475)
    assert metrics.ece(rows, 10) == pytest.approx(0.475)
    assert torchmetrics_error(rows, 10, "l1") == pytest.approx(0.525)


# Equal mass


@pytest.mark.parametrize(("n", "bins"), [(80, 8), (800, 8), (150, 15), (1, 1)])
def test_equal_mass_bins_equal_scikit_learns_quantiles(n: int, bins: int) -> None:
    rng = np.random.default_rng(n)
    confidence = rng.beta(4, 1, n)
    rows = top_class_rows(confidence, rng.random(n) < confidence)
    diagram = calibration.equal_mass(rows, bins)
    accuracy, mean = calibration_curve(
        rows["prediction"] == rows["label"], confidence, n_bins=bins, strategy="quantile", pos_label=True
    ) if n > 1 else (np.array([float(rows["label"][0] == 0)]), confidence)  # fmt: skip
    assert diagram.count.tolist() == [n // bins] * bins
    np.testing.assert_allclose(diagram.accuracy, accuracy)
    np.testing.assert_allclose(diagram.confidence, mean)


@EACH
@BINS
def test_equal_mass_error_equals_a_loop_over_the_sorted_rows(rows: Rows, bins: int) -> None:
    order = np.argsort(rows["confidence"])
    confidence, right = rows["confidence"][order], (rows["prediction"] == rows["label"])[order]
    n = len(order)
    assert len(np.unique(confidence)) == n, "no ties here"
    members: list[list[int]] = [[] for _ in range(bins)]
    for rank in range(n):
        members[math.floor((rank + 0.5) * bins / n)].append(rank)
    expected = sum(len(m) / n * abs(right[m].mean() - confidence[m].mean()) for m in members)
    assert max(map(len, members)) - min(map(len, members)) <= 1
    assert calibration.equal_mass_ece(rows, bins) == pytest.approx(expected, abs=1e-12)
    diagram = calibration.equal_mass(rows, bins)
    assert diagram.count.tolist() == [len(m) for m in members]
    np.testing.assert_array_equal(diagram.lower, [confidence[m[0]] for m in members])
    np.testing.assert_array_equal(diagram.upper, [confidence[m[-1]] for m in members])


@pytest.mark.parametrize("seed", range(5))
@BINS
def test_tied_confidences_share_a_bin_and_the_order_of_rows_is_nothing(seed: int, bins: int) -> None:
    rows = tied_rows(seed)
    diagram = calibration.equal_mass(rows, bins)
    n, confidence, right = len(rows["label"]), rows["confidence"], rows["prediction"] == rows["label"]
    members: dict[int, list[float]] = {}
    for value in sorted(set(confidence)):
        middle = (confidence < value).sum() + (confidence == value).sum() / 2
        members.setdefault(math.floor(bins * middle / n), []).append(value)
    for b in range(bins):
        inside = np.isin(confidence, members.get(b, []))
        assert diagram.count[b] == inside.sum()
        if inside.any():
            assert diagram.accuracy[b] == pytest.approx(right[inside].mean())
            assert (diagram.lower[b], diagram.upper[b]) == (confidence[inside].min(), confidence[inside].max())
        else:
            assert np.isnan([diagram.lower[b], diagram.upper[b], diagram.accuracy[b], diagram.standard_error[b]]).all()
    shuffled = np.random.default_rng(seed + 100).permutation(n)
    again = calibration.equal_mass({name: column[shuffled] for name, column in rows.items()}, bins)
    np.testing.assert_array_equal(again.count, diagram.count)
    np.testing.assert_allclose(again.accuracy, diagram.accuracy)


@pytest.mark.parametrize("diagram", [calibration.equal_width, calibration.equal_mass])
def test_all_confidences_alike_fill_one_bin_and_the_others_count_nothing(diagram: object) -> None:
    rows = top_class_rows([0.75] * 40, [True] * 20 + [False] * 20)
    found = diagram(rows, 8)  # type: ignore[operator]
    assert sorted(found.count) == [0] * 7 + [40]
    assert calibration.expected_error(found) == pytest.approx(0.25)


# Both


@pytest.mark.parametrize("diagram", [calibration.equal_width, calibration.equal_mass])
def test_one_row_and_all_right_and_all_wrong(diagram: object) -> None:
    for confidence, right, expected in (
        ([0.9], [True], 0.1),
        ([0.9], [False], 0.9),
        ([1.0] * 3, [True] * 3, 0.0),
        ([1.0] * 3, [False] * 3, 1.0),
        ([0.6, 0.8], [True, True], 0.3),
    ):
        rows = top_class_rows(confidence, right)
        assert calibration.expected_error(diagram(rows, 15)) == pytest.approx(expected)  # type: ignore[operator]
    rounded = diagram(top_class_rows([1 + 1e-9], [True]), 4)  # type: ignore[operator]
    assert rounded.count[-1] + rounded.count[2] == 1 and np.nanmax(rounded.confidence) == 1
    found = diagram(top_class_rows([1.0] * 3, [True] * 3), 4)  # type: ignore[operator]
    assert found.standard_error[found.count > 0].tolist() == [0.0]


@EACH
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_wilsons_interval_equals_scipys_and_does_not_vanish(rows: Rows, level: float) -> None:
    diagram = calibration.equal_width(rows, 10)
    low, high = calibration.wilson(diagram, level=level)
    for b in range(10):
        n, a = int(diagram.count[b]), diagram.accuracy[b]
        if not n:
            assert np.isnan([low[b], high[b]]).all()
            continue
        expected = binomtest(round(a * n), n).proportion_ci(confidence_level=level, method="wilson")
        assert (low[b], high[b]) == pytest.approx((expected.low, expected.high), abs=1e-12)
    low, high = calibration.wilson(calibration.equal_mass(top_class_rows([1.0] * 3, [True] * 3), 1))
    assert low[0] < 0.5 and high[0] == 1


def test_the_diagram_of_a_calibrated_predictive_scatters_by_its_standard_errors() -> None:
    """Over many sets the squared gap in standard errors of a bin averages 1."""
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(100):
        confidence = rng.uniform(0.2, 0.9, 2000)
        diagram = calibration.equal_mass(top_class_rows(confidence, rng.random(2000) < confidence), 8)
        scores.append(((diagram.accuracy - diagram.confidence) / diagram.standard_error) ** 2)
    # χ² with one degree of freedom has variance 2; a bin's spread of confidences takes 1 % off.
    assert np.mean(scores) == pytest.approx(1, abs=4 * math.sqrt(2 / np.size(scores)) + 0.02)


# Class by class


@pytest.mark.parametrize("case", CASES, ids=["7 classes", "3 blunt", "20 sharp"])
@BINS
def test_classwise_error_equals_the_mean_of_torchmetrics_over_classes(case: tuple[Array, Array], bins: int) -> None:
    p, labels = case[0].mean(0), case[1]
    each = [
        binary_calibration_error(torch.from_numpy(p[:, k].copy()), torch.from_numpy((labels == k) * 1), n_bins=bins)
        for k in range(p.shape[1])
    ]
    found = calibration.classwise_error(calibration.classwise_sums(p, labels, bins))
    assert found == pytest.approx(float(np.mean(each)), abs=1e-12)


def test_classwise_sums_of_shards_add_up() -> None:
    p, labels = CASES[0][0].mean(0), CASES[0][1]
    whole = calibration.classwise_sums(p, labels)
    parts = [calibration.classwise_sums(p[s], labels[s]) for s in (slice(0, 100), slice(100, 101), slice(101, None))]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-12)
    assert whole.shape == (3, 7, 15) and whole[0].sum(1).tolist() == [500.0] * 7 and whole[2].sum() == 500


def test_classwise_error_of_one_class_and_of_one_row() -> None:
    assert calibration.classwise_error(calibration.classwise_sums(np.ones((4, 1)), np.zeros(4, int))) == 0
    one = calibration.classwise_sums(np.array([[0.7, 0.2, 0.1]]), np.array([1]))
    assert calibration.classwise_error(one) == pytest.approx((0.7 + 0.8 + 0.1) / 3)


# The Brier score's parts


@pytest.mark.parametrize("rows", [*(rows_of(*c) for c in CASES), tied_rows(1), top_class_rows([0.3], [True])])
@BINS
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


# What is refused


def test_bad_rows_are_one_line() -> None:
    with refused("confidence", "finite", "nan"):
        calibration.equal_mass(top_class_rows([0.5, np.nan], [True, False]))
    with refused("confidence", "1.5"):
        calibration.equal_width(top_class_rows([0.5, 1.5], [True, False]))
    with refused("confidence", "[0, 1]", "-0.2"):
        calibration.maximum_error(top_class_rows([-0.2], [True]))
    with refused("confidence", "[n]"):
        calibration.equal_mass_ece(top_class_rows([], []))
    with refused("confidence and label", "same shape"):
        calibration.brier_parts({**top_class_rows([0.5], [True]), "confidence": np.array([0.5, 0.6])})
    for bins in (0, -1, 1.5, True):
        with refused("bins", repr(bins)):
            calibration.equal_mass_ece(top_class_rows([0.5], [True]), bins)  # type: ignore[arg-type]
    with refused("level"):
        calibration.wilson(calibration.equal_width(top_class_rows([0.5], [True])), level=1)


def test_bad_probabilities_are_one_line() -> None:
    good = np.array([[0.4, 0.6]])
    with refused("probabilities", "nan"):
        calibration.classwise_sums(np.array([[0.4, np.nan]]), np.array([0]))
    with refused("probabilities", "-0.1"):
        calibration.classwise_sums(np.array([[-0.1, 1.1]]), np.array([0]))
    with refused("probabilities", "sum to 1"):
        calibration.classwise_sums(np.array([[0.4, 0.4]]), np.array([0]))
    with refused("probabilities", "[n, classes]"):
        calibration.classwise_sums(np.array([0.4, 0.6]), np.array([0]))
    with refused("labels", "[0, 2)", "2"):
        calibration.classwise_sums(good, np.array([2]))
    with refused("labels", "[1]"):
        calibration.classwise_sums(good, np.array([0, 1]))
    with refused("labels", "float64"):
        calibration.classwise_sums(good, np.array([0.0]))
    with refused("probabilities", "numbers"):
        calibration.classwise_sums([["a", "b"]], np.array([0]))
