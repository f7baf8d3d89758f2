"""Entropies, mutual information and top-k error against scipy, scikit-learn, mpmath and direct formulas."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import mutual_info_score, top_k_accuracy_score

from raychains.evaluation import metrics, uncertainty
from tests.checks import refused
from tests.evaluation.cases import Array, rows_of, softmax_samples

CASES = [
    softmax_samples(0),
    softmax_samples(1, samples=1, classes=3),
    softmax_samples(2, samples=6, classes=20, sharpness=9.0),
]
EACH = pytest.mark.parametrize(("p", "labels"), CASES, ids=["7 classes", "one sample", "20 sharp"])


@EACH
def test_entropies_equal_scipys(p: Array, labels: Array) -> None:
    np.testing.assert_allclose(uncertainty.entropy(p[0]), scipy.stats.entropy(p[0], axis=1), 1e-12, 1e-14)
    np.testing.assert_allclose(uncertainty.predictive_entropy(p), scipy.stats.entropy(p.mean(0), axis=1), 1e-12, 1e-14)
    each = [scipy.stats.entropy(sample, axis=1) for sample in p]
    np.testing.assert_allclose(uncertainty.expected_entropy(p), np.mean(each, axis=0), 1e-12, 1e-14)


@EACH
def test_mutual_information_is_the_mean_divergence_from_the_mean(p: Array, labels: Array) -> None:
    found = uncertainty.mutual_information(p)
    divergences = [scipy.stats.entropy(sample, p.mean(0), axis=1) for sample in p]
    np.testing.assert_allclose(found, np.mean(divergences, axis=0), rtol=1e-10, atol=1e-15)
    difference = uncertainty.predictive_entropy(p) - uncertainty.expected_entropy(p)
    np.testing.assert_allclose(found, difference, atol=1e-13)
    assert (found >= 0).all()


def test_mutual_information_is_that_of_the_joint_table_of_sample_and_label() -> None:
    """As scikit-learn finds it from a contingency table: samples are rows, chosen uniformly."""
    p, _ = softmax_samples(5, n=30)
    counts = np.round(p * 1e8).astype(np.int64)
    expected = [mutual_info_score(None, None, contingency=counts[:, i]) for i in range(30)]
    np.testing.assert_allclose(uncertainty.mutual_information(p), expected, rtol=1e-6)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12])
def test_mutual_information_keeps_its_digits_where_samples_nearly_agree(gap: float) -> None:
    """Two samples (½ ± gap, ½ ∓ gap): 2·gap² (1 + O(gap²)); the difference of entropies has no digit left at 1e-9."""
    p = np.array([[[0.5 + gap, 0.5 - gap]], [[0.5 - gap, 0.5 + gap]]])
    exact = float(2 * Fraction(p[0, 0, 0] - 0.5) ** 2)
    assert uncertainty.mutual_information(p)[0] == pytest.approx(exact, rel=1e-3, abs=0)


@pytest.mark.parametrize("gap", [1e-2, 1e-5, 1e-8])
def test_mutual_information_of_near_copies_equals_mpmaths(gap: float) -> None:
    """Mean Σ_c p log(p/p̄) of the very floats, in 60 digits."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5)) * (1 + gap * rng.normal(size=(3, 1, 5)))
    p /= p.sum(-1, keepdims=True)
    with mpmath.workdps(60):
        exact = [[mpmath.mpf(float(v)) for v in sample[0]] for sample in p]
        mean = [sum(column) / 3 for column in zip(*exact, strict=True)]
        terms = [v * mpmath.log(v / m) for sample in exact for v, m in zip(sample, mean, strict=True)]
        expected = float(sum(terms) / 3)
    assert uncertainty.mutual_information(p)[0] == pytest.approx(expected, rel=1e-6, abs=0)


def test_mutual_information_at_its_extremes() -> None:
    disagreeing = np.eye(3)[:, None, :]  # three samples, each certain of another class
    np.testing.assert_allclose(uncertainty.mutual_information(disagreeing), [math.log(3)])
    np.testing.assert_allclose(uncertainty.predictive_entropy(disagreeing), [math.log(3)])
    assert uncertainty.expected_entropy(disagreeing).tolist() == [0]
    for same in (np.full((3, 2, 7), 1 / 7), np.array([[[0.1, 0.2, 0.7]]] * 3), np.array([[[1.0, 0.0]]] * 5)):
        assert uncertainty.mutual_information(same).tolist() == [0] * same.shape[1], "exactly"
    assert uncertainty.mutual_information(np.ones((2, 3, 1))).tolist() == [0, 0, 0]
    assert math.copysign(1, uncertainty.entropy(np.array([[1.0, 0.0]]))[0]) == 1, "no −0"


@EACH
def test_mutual_information_of_rows_is_that_of_the_probabilities(p: Array, labels: Array) -> None:
    found = uncertainty.mutual_information_of(rows_of(p, labels))
    np.testing.assert_allclose(found, uncertainty.mutual_information(p), atol=1e-11)
    assert (found == 0).all() if len(p) == 1 else (found > 0).all()


def test_half_precision_blocks_are_probabilities() -> None:
    p, _ = softmax_samples(3, classes=200, n=50)
    half = np.exp(np.log(p).astype(np.float16).astype(float))
    assert np.abs(half.sum(-1) - 1).max() > 1e-4
    np.testing.assert_allclose(uncertainty.mutual_information(half), uncertainty.mutual_information(p), rtol=2e-2)


@EACH
@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_error_equals_scikit_learns(p: Array, labels: Array, k: int) -> None:
    p = p.mean(0)
    classes = p.shape[1]
    expected = 0.0 if k == classes else 1 - top_k_accuracy_score(labels, p, k=k, labels=np.arange(classes))
    assert uncertainty.top_k_error(p, labels, k) == pytest.approx(expected, abs=1e-12)
    assert uncertainty.top_k_error(p, labels, classes) == 0


def test_tied_classes_come_in_their_order_so_that_top_1_is_the_error() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([1.0, 2.0, 3.0], size=(300, 6))
    p /= p.sum(1, keepdims=True)
    labels = rng.integers(6, size=300)
    for k in range(1, 7):
        ranked = np.argsort(-p, axis=1, kind="stable")[:, :k]
        assert uncertainty.top_k_error(p, labels, k) == np.mean(
            [y not in r for y, r in zip(labels, ranked, strict=True)]
        )
    assert uncertainty.top_k_error(p, labels, 1) == metrics.error({"prediction": p.argmax(1), "label": labels})
    constant = np.full((10, 10), 0.1)
    assert uncertainty.top_k_error(constant, np.arange(10), 5) == 0.5


def test_bad_input_is_one_line() -> None:
    p, labels = softmax_samples(0, n=4)
    with refused("probabilities", "[samples, n, classes]"):
        uncertainty.mutual_information(p[0])
    with refused("probabilities", "inf"):
        uncertainty.expected_entropy(np.where(p == p.max(), np.inf, p))
    with refused("probabilities", "sum to 1"):
        uncertainty.predictive_entropy(2 * p)
    with refused("probabilities", "no axis empty"):
        uncertainty.entropy(np.zeros((0, 3)))
    for k in (0, 8, 1.0):
        with refused("k", repr(k)):
            uncertainty.top_k_error(p[0], labels, k)  # type: ignore[arg-type]
    rows = dict(rows_of(p, labels))
    with refused("expected_entropy", "finite"):
        uncertainty.mutual_information_of({**rows, "expected_entropy": np.full(4, np.nan)})
    with refused("entropy and expected_entropy", "[4]", "[3]"):
        uncertainty.mutual_information_of({**rows, "expected_entropy": np.zeros(3)})
