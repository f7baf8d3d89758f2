"""Calibration errors in bins, each number against torchmetrics, scikit-learn or a direct formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from raychains.evaluation import calibration_error, metrics
from raychains.evaluation.evaluation import Rows
from tests.checks import refused
from tests.evaluation.cases import rows_of, softmax_samples, tied_rows, top_class_rows, torchmetrics_error

CASES = [softmax_samples(s, classes=c, sharpness=h) for s, c, h in ((0, 7, 2.0), (1, 3, 0.5), (2, 20, 8.0))]
EACH = pytest.mark.parametrize("rows", [rows_of(*case) for case in CASES], ids=["7 classes", "3 blunt", "20 sharp"])
BINS = pytest.mark.parametrize("bins", [1, 8, 15])


@EACH
@BINS
def test_equal_width_columns_equal_a_loop_and_their_error_torchmetrics(rows: Rows, bins: int) -> None:
    diagram = calibration_error.equal_width(rows, bins)
    assert calibration_error.expected_error(diagram) == pytest.approx(torchmetrics_error(rows, bins, "l1"), abs=1e-12)
    assert calibration_error.expected_error(diagram) == pytest.approx(metrics.ece(rows, bins), abs=1e-12)
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
        else:
            assert np.isnan([diagram.accuracy[b], diagram.confidence[b]]).all()


def test_a_confidence_on_an_edge_belongs_to_the_bin_above() -> None:
    """Also where edge · bins rounds to less than the bin's number."""
    for bins in range(1, 60):
        edges = np.linspace(0, 1, bins + 1)
        diagram = calibration_error.equal_width(top_class_rows(edges, edges > 2), bins)
        assert diagram.count.tolist() == [1] * (bins - 1) + [2], bins  # the last edge is 1, in the last bin


def test_torchmetrics_alone_gives_a_confidence_of_one_its_own_bin() -> None:
    rows = top_class_rows([0.95, 1.0], [True, False])
    assert calibration_error.expected_error(calibration_error.equal_width(rows, 10)) == pytest.approx(0.475)
    assert metrics.ece(rows, 10) == pytest.approx(0.475)
    assert torchmetrics_error(rows, 10, "l1") == pytest.approx(0.525)


@pytest.mark.parametrize("rows", [*map(tied_rows, range(5)), *(rows_of(*case) for case in CASES)])
@BINS
def test_bins_of_equal_mass_equal_a_loop_whatever_is_tied_and_whatever_the_order(rows: Rows, bins: int) -> None:
    """A confidence goes where the middle of its ranks lies, so that tied ones share a bin."""
    diagram = calibration_error.equal_mass(rows, bins)
    n, confidence, right = len(rows["label"]), rows["confidence"], rows["prediction"] == rows["label"]
    members: dict[int, list[float]] = {}
    for value in sorted(set(confidence)):
        middle = (confidence < value).sum() + (confidence == value).sum() / 2
        members.setdefault(math.floor(bins * middle / n), []).append(value)
    expected = 0.0
    for b in range(bins):
        inside = np.isin(confidence, members.get(b, []))
        assert diagram.count[b] == inside.sum()
        if inside.any():
            assert diagram.accuracy[b] == pytest.approx(right[inside].mean())
            assert diagram.confidence[b] == pytest.approx(confidence[inside].mean())
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
            assert (diagram.lower[b], diagram.upper[b]) == (confidence[inside].min(), confidence[inside].max())
        else:
            assert np.isnan([diagram.lower[b], diagram.upper[b], diagram.accuracy[b]]).all()
    assert metrics.ece_mass(rows, bins) == pytest.approx(expected, abs=1e-12)
    shuffled = np.random.default_rng(0).permutation(n)
    again = calibration_error.equal_mass({name: column[shuffled] for name, column in rows.items()}, bins)
    np.testing.assert_array_equal(again.count, diagram.count)
    np.testing.assert_allclose(again.accuracy, diagram.accuracy)


@pytest.mark.parametrize("diagram", [calibration_error.equal_width, calibration_error.equal_mass])
def test_few_rows_and_rows_alike_have_the_error_that_is_seen_at_once(diagram: object) -> None:
    for confidence, right, expected in (
        ([0.9], [True], 0.1),
        ([0.9], [False], 0.9),
        ([1.0] * 3, [True] * 3, 0.0),
        ([1.0] * 3, [False] * 3, 1.0),
        ([0.6, 0.8], [True, True], 0.3),
        ([0.75] * 40, [True] * 20 + [False] * 20, 0.25),
    ):
        found = diagram(top_class_rows(confidence, right), 15)  # type: ignore[operator]
        assert calibration_error.expected_error(found) == pytest.approx(expected)
    assert sorted(found.count) == [0] * 14 + [40]
    rounded = diagram(top_class_rows([1 + 1e-9], [True]), 4)  # type: ignore[operator]
    assert rounded.count[-1] + rounded.count[2] == 1 and np.nanmax(rounded.confidence) == 1


# Class by class


def test_classwise_sums_of_shards_add_up() -> None:
    p, labels = CASES[0][0].mean(0), CASES[0][1]
    whole = calibration_error.classwise_sums(p, labels, 15)
    parts = [
        calibration_error.classwise_sums(p[s], labels[s], 15)
        for s in (slice(0, 100), slice(100, 101), slice(101, None))
    ]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-12)
    assert whole.shape == (3, 7, 15) and whole[0].sum(1).tolist() == [500.0] * 7 and whole[2].sum() == 500


def test_classwise_error_of_one_class_and_of_one_row() -> None:
    alone = calibration_error.classwise_sums(np.ones((4, 1)), np.zeros(4, int), 15)
    assert calibration_error.classwise_error(alone) == 0
    one = calibration_error.classwise_sums(np.array([[0.7, 0.2, 0.1]]), np.array([1]), 15)
    assert calibration_error.classwise_error(one) == pytest.approx((0.7 + 0.8 + 0.1) / 3)


def test_bad_rows_are_one_line() -> None:
    with refused("confidence", "finite", "nan"):
        calibration_error.equal_mass(top_class_rows([0.5, np.nan], [True, False]), 15)
