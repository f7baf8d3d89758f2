"""Agreement, total variation and disagreement of functions against scikit-learn, scipy and loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial.distance as distance
from sklearn.metrics import accuracy_score

from raychains.evaluation import agreement
from tests.checks import refused
from tests.evaluation.cases import softmax_samples

P, _ = softmax_samples(0, samples=5, n=200)
TIED = np.random.default_rng(0).choice([1.0, 2.0], size=(4, 60, 5))
TIED /= TIED.sum(-1, keepdims=True)


@pytest.mark.parametrize("p", [P, TIED, P[:, :1]], ids=["random", "ties", "one example"])
def test_measures_of_two_predictives_equal_their_definitions(p: np.ndarray) -> None:
    first, second = p[0], p[1]
    assert agreement.agreement(first, second) == pytest.approx(accuracy_score(first.argmax(1), second.argmax(1)))
    each = [distance.cityblock(a, b) / 2 for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(agreement.total_variations(first, second), each, rtol=1e-12)
    assert agreement.total_variation(first, second) == pytest.approx(np.mean(each), rel=1e-12)
    assert agreement.agreement(second, first) == agreement.agreement(first, second)


def test_total_variation_is_the_largest_difference_over_events() -> None:
    """sup over sets A of classes of |P(A) − Q(A)|, all 2⁵ of them."""
    events = (np.arange(32)[:, None] >> np.arange(5)) & 1
    for a, b in zip(TIED[0, :10], TIED[1, :10], strict=True):
        expected = np.abs(events @ (a - b)).max()
        assert agreement.total_variation(a[None], b[None]) == pytest.approx(expected, abs=1e-12)


def test_the_extremes() -> None:
    assert agreement.agreement(P[0], P[0]) == 1 and agreement.total_variation(P[0], P[0]) == 0
    certain = np.eye(3)
    assert agreement.agreement(certain, np.roll(certain, 1, 0)) == 0
    assert agreement.total_variation(certain, np.roll(certain, 1, 0)) == 1
    one = np.ones((4, 1))
    assert agreement.agreement(one, one) == 1 and agreement.disagreement_matrix(one[None]).tolist() == [[0]]


def test_shards_of_examples_concatenate() -> None:
    parts = [agreement.agrees(P[0, s], P[1, s]) for s in (slice(0, 70), slice(70, None))]
    assert np.concatenate(parts).mean() == agreement.agreement(P[0], P[1])


@pytest.mark.parametrize("p", [P, TIED, P[:1]], ids=["random", "ties", "one sample"])
def test_disagreement_matrix_equals_scipys_hamming_distances(p: np.ndarray) -> None:
    predictions = p.argmax(2)
    expected = distance.squareform(distance.pdist(predictions, "hamming")) if len(p) > 1 else np.zeros((1, 1))
    np.testing.assert_allclose(agreement.disagreement_matrix(p), expected, atol=1e-12)
    np.testing.assert_allclose(agreement.disagreements(predictions) / p.shape[1], expected, atol=1e-12)
    for i in range(len(p)):
        for j in range(len(p)):
            assert agreement.disagreement_matrix(p)[i, j] == pytest.approx(1 - agreement.agreement(p[i], p[j]))


def test_total_variation_matrix_equals_scipys_distances() -> None:
    flat = P.reshape(len(P), -1)
    expected = distance.squareform(distance.pdist(flat, "cityblock")) / 2 / P.shape[1]
    np.testing.assert_allclose(agreement.total_variation_matrix(P), expected, rtol=1e-12)


def test_disagreements_of_shards_add_up() -> None:
    predictions = P.argmax(2)
    parts = agreement.disagreements(predictions[:, :70]) + agreement.disagreements(predictions[:, 70:])
    np.testing.assert_array_equal(parts, agreement.disagreements(predictions))


def test_bad_input_is_one_line() -> None:
    with refused("both predictives", "[200, 7]", "[100, 7]"):
        agreement.agreement(P[0], P[0, :100])
    with refused("probabilities", "nan"):
        agreement.total_variation(P[0], np.full_like(P[0], np.nan))
    with refused("probabilities", "[n, classes]"):
        agreement.agrees(P, P)
    with refused("predictions", "integers", "float64"):
        agreement.disagreements(P[0])
    with refused("predictions", "[samples, n]"):
        agreement.disagreements(np.zeros((0, 3), dtype=int))
    with refused("probabilities", "[samples, n, classes]"):
        agreement.disagreement_matrix(P[0])
