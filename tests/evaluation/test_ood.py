"""Out-of-distribution detection against torchmetrics, scipy and direct counts, ties and all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.metrics import roc_curve
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from raychains.evaluation import ood
from tests.checks import refused
from tests.evaluation.cases import Array, rows_of, softmax_samples

RNG = np.random.default_rng(0)
PAIRS = {
    "apart": (RNG.normal(0, 1, 300), RNG.normal(2, 1, 170)),
    "alike": (RNG.normal(0, 1, 150), RNG.normal(0, 1, 150)),
    "reversed": (RNG.normal(2, 1, 90), RNG.normal(0, 1, 200)),
    "many ties": (RNG.integers(0, 5, 300) / 4, RNG.integers(1, 7, 101) / 4),
    "close": (1e-13 * RNG.normal(0, 1, 100), 1e-13 * RNG.normal(1, 1, 100)),
    "one point each": (np.array([0.2]), np.array([0.3])),
    "one point outside": (RNG.normal(0, 1, 20), np.array([0.1])),
}
EACH = pytest.mark.parametrize(("inside", "outside"), PAIRS.values(), ids=PAIRS)


def summed_precision(positives: Array, negatives: Array) -> float:
    """Σ over distinct thresholds, from the highest, of precision × the recall gained."""
    total, before = 0.0, 0.0
    for t in sorted(set(positives) | set(negatives), reverse=True):
        hits, alarms = (positives >= t).sum(), (negatives >= t).sum()
        recall = hits / len(positives)
        total += (recall - before) * hits / (hits + alarms)
        before = recall
    return total


def lowest_false_positive_rate(positives: Array, negatives: Array, at: float) -> float:
    """Over every threshold that passes enough positives."""
    return min((negatives >= t).mean() for t in positives if (positives >= t).mean() >= at)


@EACH
def test_auroc_is_the_share_of_pairs_in_order(inside: Array, outside: Array) -> None:
    pairs = np.sign(outside[:, None] - inside)
    found = ood.detect(inside, outside).auroc
    assert found == pytest.approx(((pairs + 1) / 2).mean(), abs=1e-12)
    u = scipy.stats.mannwhitneyu(outside, inside).statistic
    assert found == pytest.approx(u / (len(inside) * len(outside)), abs=1e-12)
    assert found == pytest.approx(1 - ood.detect(outside, inside).auroc, abs=1e-12)


@EACH
def test_both_precision_areas_equal_their_sums(inside: Array, outside: Array) -> None:
    found = ood.detect(inside, outside)
    assert found.aupr_out == pytest.approx(summed_precision(outside, inside), abs=1e-12)
    assert found.aupr_in == pytest.approx(summed_precision(-inside, -outside), abs=1e-12)
    assert (found.inside, found.outside) == (len(inside), len(outside))


@pytest.mark.parametrize("name", ["apart", "alike", "reversed", "many ties"])
def test_areas_equal_torchmetrics(name: str) -> None:
    inside, outside = PAIRS[name]
    # torchmetrics wants probabilities: any increasing map of the scores gives the same areas.
    scores = torch.from_numpy(scipy.stats.rankdata(np.concatenate([inside, outside])) / 1000)
    is_out = torch.tensor([0] * len(inside) + [1] * len(outside))
    found = ood.detect(inside, outside)
    assert found.auroc == pytest.approx(float(binary_auroc(scores, is_out)), abs=1e-6)
    assert found.aupr_out == pytest.approx(float(binary_average_precision(scores, is_out)), abs=1e-6)
    assert found.aupr_in == pytest.approx(float(binary_average_precision(1 - scores, 1 - is_out)), abs=1e-6)


@EACH
def test_false_positive_rate_is_the_lowest_that_any_threshold_has(inside: Array, outside: Array) -> None:
    found = ood.detect(inside, outside)
    assert found.fpr95_out == lowest_false_positive_rate(outside, inside, 0.95)
    assert found.fpr95_in == lowest_false_positive_rate(-inside, -outside, 0.95)


@pytest.mark.parametrize("at", [0.05, 0.8, 1.0])
@EACH
def test_false_positive_rate_is_scikit_learns_first_point_of_the_curve(
    inside: Array, outside: Array, at: float
) -> None:
    truth = np.repeat([0, 1], [len(inside), len(outside)])
    fpr, tpr, _ = roc_curve(truth, np.concatenate([inside, outside]), drop_intermediate=False)
    assert ood.false_positive_rate(outside, inside, at) == pytest.approx(fpr[np.argmax(tpr >= at)], abs=1e-12)


@pytest.mark.parametrize("at", [0.05, 0.07, 0.15, 0.28, 0.55, 0.95, 1.0])
def test_no_more_positives_are_passed_than_the_rate_needs(at: float) -> None:
    """Also where n·rate rounds to just above an integer (.07 · 100, .55 · 20): k of n is enough when k/n ≥ rate."""
    for n in (1, 3, 7, 20, 40, 60, 100, 160, 200, 300):
        positives = np.arange(n, dtype=float)
        passed = round(n * ood.false_positive_rate(positives, positives, at))  # negatives at the same places
        assert passed / n >= at and (passed - 1) / n < at, n


def test_ties_are_passed_whole() -> None:
    """Ten positives at .5, among which 95 % cannot be had, take the five negatives at .5 with them."""
    positives, negatives = np.array([0.5] * 10 + [0.9] * 10), np.array([0.1] * 5 + [0.5] * 5)
    assert ood.false_positive_rate(positives, negatives, 0.95) == 0.5
    assert ood.false_positive_rate(positives, negatives, 0.5) == 0.0


def test_the_extremes() -> None:
    best, worst = ood.detect([0, 1], [2, 3, 4]), ood.detect([2, 3, 4], [0, 1])
    assert (best.auroc, best.aupr_out, best.aupr_in, best.fpr95_out, best.fpr95_in) == (1, 1, 1, 0, 0)
    assert (worst.auroc, worst.fpr95_out, worst.fpr95_in) == (0, 1, 1)
    same = ood.detect(np.zeros(30), np.zeros(10))
    assert (same.auroc, same.aupr_out, same.aupr_in, same.fpr95_out, same.fpr95_in) == (0.5, 0.25, 0.75, 1, 1)


def test_the_order_of_tied_points_is_nothing() -> None:
    inside, outside = PAIRS["many ties"]
    found = ood.detect(inside, outside)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert ood.detect(rng.permutation(inside), rng.permutation(outside)) == found
    assert ood.detect(np.sort(inside), np.sort(outside)[::-1]) == found


# By what


def test_scores_are_higher_where_the_predictive_is_less_sure() -> None:
    p, labels = softmax_samples(0)
    rows = rows_of(p, labels)
    mean = p.mean(0)
    np.testing.assert_allclose(ood.score(rows, "entropy"), scipy.stats.entropy(mean, axis=1), rtol=1e-9)
    np.testing.assert_allclose(
        ood.score(rows, "mutual_information"),
        scipy.stats.entropy(mean, axis=1) - scipy.stats.entropy(p, axis=2).mean(0),
        atol=1e-9,
    )
    np.testing.assert_allclose(ood.score(rows, "max_probability"), -mean.max(1), rtol=1e-12)
    blunt, _ = softmax_samples(1, sharpness=0.3)
    for by in ood.SCORES[:1] + ood.SCORES[2:]:
        assert ood.detect_by(rows, rows_of(blunt, labels), by).auroc > 0.9


def test_one_sample_has_no_mutual_information_and_detects_nothing_by_it() -> None:
    inside, outside = (rows_of(*softmax_samples(s, samples=1, sharpness=h)) for s, h in ((0, 2.0), (1, 0.3)))
    found = ood.detect_by(inside, outside, "mutual_information")
    assert found.auroc == 0.5 and found.fpr95_out == 1
    assert ood.detect_by(inside, outside, "entropy").auroc > 0.9


def test_confidences_that_differ_in_the_last_bit_stay_apart() -> None:
    """1 − confidence would make ties of them."""
    confidence = np.array([0.1, np.nextafter(0.1, 1)])
    assert len(set(1 - confidence)) == 1 and len(set(ood.score({"confidence": confidence}, "max_probability"))) == 2


# Distribution functions


@pytest.mark.parametrize("values", [RNG.exponential(1, 200), RNG.integers(0, 5, 100) / 2, np.array([1.5])])
def test_cdf_equals_scipys(values: Array) -> None:
    x, f = ood.cdf(values)
    expected = scipy.stats.ecdf(values).cdf
    np.testing.assert_array_equal(x, expected.quantiles)
    np.testing.assert_allclose(f, expected.probabilities, rtol=1e-14)
    assert f[-1] == 1 and (np.diff(f) > 0).all()
    grid = np.linspace(-1, 4, 101)
    at, on_grid = ood.cdf(values, grid)
    np.testing.assert_array_equal(at, grid)
    np.testing.assert_allclose(on_grid, expected.evaluate(grid), rtol=1e-14)


def test_share_below_is_strict_and_the_cdf_is_not() -> None:
    values = [0.0, 0.5, 0.5, 1.0]
    assert ood.share_below(values, 0.5) == 0.25 and ood.cdf(values, [0.5])[1].tolist() == [0.75]
    assert ood.share_below(values, 0) == 0 and ood.share_below(values, 2) == 1


# What is refused


def test_bad_input_is_one_line() -> None:
    good = [0.1, 0.2]
    with refused("scores inside", "finite", "nan", "number 1 of 2"):
        ood.detect([0.1, np.nan], good)
    with refused("scores outside", "inf"):
        ood.detect(good, [np.inf])
    with refused("scores outside", "[n]"):
        ood.detect(good, [])
    with refused("scores inside", "[2, 2]"):
        ood.detect(np.zeros((2, 2)), good)
    with refused("score", "entropie", "entropy"):
        ood.score({"entropy": np.zeros(2)}, "entropie")
    for measure in (ood.auroc, ood.average_precision, ood.false_positive_rate):
        with refused("scores of positives", "nan"):
            measure([np.nan], good)
        with refused("scores of negatives", "[n]"):
            measure(good, [])
    for at in (0, 1.1, np.nan):
        with refused("at"):
            ood.false_positive_rate(good, good, at)
    with refused("values", "nan"):
        ood.cdf([np.nan])
    with refused("threshold", "nan"):
        ood.share_below(good, np.nan)
