"""Rows and metrics of a classifier's predictive, each against an independent implementation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.metrics import accuracy_score, log_loss, top_k_accuracy_score
from torch import nn
from torchmetrics.functional.classification import binary_calibration_error

from raychains.evaluation import evaluation, metrics
from raychains.evaluation.classification import Classification, log_probabilities, reduce_classification
from tests.checks import refused
from tests.evaluation.cases import Array, softmax_samples


def mean_probabilities(blocks: list[Array]) -> Array:
    return np.exp(np.stack(blocks).astype(np.float64)).mean(0)


def proper(p: Array) -> Array:
    """float32 probabilities sum to 1 only within 1e-7, which some libraries complain of."""
    return p / p.sum(1, keepdims=True)


def in_single_precision(seed: int, **case: Any) -> tuple[list[Array], Array]:
    p, labels = softmax_samples(seed, **case)
    return list(np.log(p).astype(np.float32)), labels


CASES = [
    in_single_precision(0, classes=12, samples=5),
    in_single_precision(1, classes=6, samples=1),
    in_single_precision(2, classes=3, sharpness=0.5),
    in_single_precision(3, classes=20, samples=3, sharpness=8.0),
]
EACH = pytest.mark.parametrize(("blocks", "labels"), CASES, ids=["12 classes", "one sample", "3 blunt", "20 sharp"])


@EACH
@pytest.mark.parametrize("bins", [15, 8])
def test_rows_and_metrics_equal_those_of_libraries(blocks: list[Array], labels: Array, bins: int) -> None:
    p, each = mean_probabilities(blocks), np.exp(np.stack(blocks).astype(np.float64))
    n, classes = p.shape
    split = Classification(model=nn.Linear(1, 1), inputs=torch.zeros(n, 1), labels=labels, classes=classes)
    split.bins = bins
    part = split.reduce(blocks, 0)
    np.testing.assert_array_equal(part.rows["label"], labels)
    np.testing.assert_array_equal(part.rows["prediction"], p.argmax(1))
    np.testing.assert_allclose(part.rows["confidence"], p.max(1), rtol=1e-12)
    np.testing.assert_allclose(part.rows["log_p_label"], np.log(p[np.arange(n), labels]), rtol=1e-9, atol=1e-12)
    entropy, expected_entropy = scipy.stats.entropy(p, axis=1), scipy.stats.entropy(each, axis=2).mean(0)
    np.testing.assert_allclose(part.rows["entropy"], entropy, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(part.rows["expected_entropy"], expected_entropy, rtol=1e-5, atol=1e-6)
    one_hot = np.eye(classes)[labels]
    top, *each_class = [
        float(binary_calibration_error(torch.from_numpy(c), torch.from_numpy(h), n_bins=bins, norm="l1"))
        for c, h in [(p.max(1), (p.argmax(1) == labels) * 1), *zip(p.T.copy(), one_hot.T.astype(int), strict=True)]
    ]
    expected = {
        "error": 1 - accuracy_score(labels, p.argmax(1)),
        "nll": log_loss(labels, proper(p), labels=np.arange(classes)),
        "ece": top,
        "brier": float(((p - one_hot) ** 2).sum(1).mean()),
        "top5_error": 1 - top_k_accuracy_score(labels, p, k=5, labels=np.arange(classes)) if classes > 5 else 0,
        "ece_mass": metrics.ece_mass(part.rows, bins),
        "classwise_ece": float(np.mean(each_class)),
        "entropy": entropy.mean(),
        "mutual_information": (entropy - expected_entropy).mean(),
    }
    (found,) = split.summarise([part])
    assert 0 < found["error"] < 1 and list(found) == [name for name in expected if name != "top5_error" or classes > 5]
    assert found == pytest.approx({name: expected[name] for name in found}, abs=1e-6)


@EACH
def test_prefix_curves_equal_recomputation_from_scratch(blocks: list[Array], labels: Array) -> None:
    curves = reduce_classification(blocks, labels, bins=15).curves
    for s in range(1, len(blocks) + 1):
        rows = reduce_classification(blocks[:s], labels, bins=15).rows
        assert curves["error"][s - 1] == pytest.approx(metrics.of_points("error", rows) * len(labels), abs=1e-9)
        assert curves["nll"][s - 1] == pytest.approx(metrics.of_points("nll", rows) * len(labels), rel=1e-12)
    assert len(curves["error"]) == len(curves["nll"]) == len(blocks)


@EACH
def test_mutual_information_is_the_mean_divergence_from_the_mean(blocks: list[Array], labels: Array) -> None:
    p = np.exp(np.stack(blocks).astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    rows = reduce_classification(list(np.log(p)), labels, bins=15).rows
    found = metrics.mutual_information_of(rows)
    divergences = [scipy.stats.entropy(sample, p.mean(0), axis=1) for sample in p]
    np.testing.assert_allclose(found, np.mean(divergences, axis=0), atol=1e-11)
    assert (found == 0).all() if len(p) == 1 else (found > 0).all(), "of equal samples exactly nothing"


def test_tied_classes_come_in_their_order_so_that_top_1_is_the_error() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([1.0, 2.0, 3.0], size=(300, 6))
    p /= p.sum(1, keepdims=True)
    labels = rng.integers(6, size=300)
    for k in range(1, 7):
        ranked = np.argsort(-p, axis=1, kind="stable")[:, :k]
        assert metrics.in_top(p, labels, k).tolist() == [y in r for y, r in zip(labels, ranked, strict=True)]
    assert (metrics.in_top(p, labels, 1) == (p.argmax(1) == labels)).all()
    assert (reduce_classification([np.log(p)], labels, bins=15).rows["top5"] == metrics.in_top(p, labels, 5)).all()


def test_rows_without_entropies_are_one_line() -> None:
    rows = dict(reduce_classification(*CASES[0], bins=15).rows)
    with refused("expected_entropy", "finite"):
        metrics.mutual_information_of({**rows, "expected_entropy": np.full(500, np.nan)})


def test_impossible_classes_give_finite_rows() -> None:
    """A probability that underflowed to exactly 0 (log −∞) counts as 0·log 0 = 0, and as a finite loss."""
    block = np.array([[0.0, -np.inf, -np.inf], [-np.inf, np.log(0.5), np.log(0.5)]], dtype=np.float32)
    reduced = reduce_classification([block], np.array([0, 0]), bins=15)
    assert all(np.isfinite(column).all() for column in reduced.rows.values())
    np.testing.assert_allclose(reduced.rows["expected_entropy"], [0, np.log(2)], atol=1e-7)
    np.testing.assert_allclose(reduced.rows["entropy"], [0, np.log(2)], atol=1e-7)
    np.testing.assert_allclose(reduced.rows["brier"], [0, 1.5], atol=1e-7)
    assert reduced.rows["log_p_label"][0] == 0 and reduced.rows["log_p_label"][1] < -700
    assert np.isfinite(reduced.curves["nll"]).all()


# ── the split: shards, models, samples ──


def network(seed: int, classes: int = 4) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Dropout(0.5), nn.Linear(9, classes))


def split(examples: int, seed: int = 0, classes: int = 4) -> Classification:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, 6, generator=generator)
    labels = torch.randint(classes, (examples,), generator=generator).numpy()
    return Classification(model=network(99, classes), inputs=inputs, labels=labels, classes=classes)


def weights(count: int, classes: int = 4) -> list[Mapping[str, Any]]:
    return [network(s, classes).state_dict() for s in range(count)]


@pytest.mark.parametrize(("examples", "shards"), [(1, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_shards_cut_the_split_without_loss(examples: int, shards: int) -> None:
    evaluation = split(examples)
    assert evaluation.shards == shards
    blocks = [evaluation.predict(weights(1)[0], s) for s in range(shards)]
    assert [len(b) for b in blocks] == [min(1000, examples - 1000 * s) for s in range(shards)]


def test_reducing_shards_equals_reducing_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = weights(3)
    small = split(1500)
    assert small.shards == 2
    parts = [small.reduce([small.predict(w, shard) for w in samples], shard) for shard in range(2)]
    metrics_small, curve_small = small.summarise(parts), small.curve(parts)
    monkeypatch.setattr(evaluation, "SHARD", 1500)
    whole = split(1500)
    assert whole.shards == 1
    part = whole.reduce([whole.predict(w, 0) for w in samples], 0)
    assert metrics_small == [pytest.approx(whole.summarise([part])[0], rel=1e-6)]
    for name, values in whole.curve([part])[0].items():
        assert curve_small[0][name] == pytest.approx(values, rel=1e-6)
        assert values[-1] == pytest.approx(whole.summarise([part])[0][name], rel=1e-9), "the curve ends at the view"
    assert list(metrics_small[0]) == [m.name for m in Classification.metrics if m.name != "top5_error"]


@pytest.mark.parametrize("classes", [4, 10])
def test_an_overflowing_network_has_nan_metrics_and_no_error(classes: int) -> None:
    labels = np.arange(30) % classes
    evaluation = Classification(model=network(0), inputs=torch.zeros(30, 6), labels=labels, classes=classes)
    block = np.full((30, classes), np.nan, dtype=np.float32)
    (found,) = evaluation.summarise([evaluation.reduce([block], 0)])
    assert ("top5_error" in found) == (classes == 10)
    assert all(np.isnan(value) for value in found.values())


def test_labels_of_no_class_are_one_line() -> None:
    evaluation = Classification(model=network(0), inputs=torch.zeros(3, 6), labels=np.array([0, 4, -1]), classes=4)
    with refused("labels", "[0, 4)", "got 4"):
        evaluation.reduce([evaluation.predict(weights(1)[0], 0)], 0)


def test_predict_is_the_log_softmax_of_the_sample_without_dropout() -> None:
    evaluation, sample = split(50), weights(2)[1]
    model = network(1).eval()
    with torch.no_grad():
        expected = torch.softmax(model(evaluation.inputs).double(), dim=-1).numpy()
    np.testing.assert_allclose(np.exp(evaluation.predict(sample, 0)), expected, rtol=1e-4, atol=1e-6)
    assert evaluation.predict(sample, 0).dtype == np.float32


@pytest.mark.parametrize(("classes", "dtype"), [(100, np.float32), (101, np.float16)])
def test_blocks_are_halved_above_a_hundred_classes(classes: int, dtype: Any) -> None:
    evaluation = split(20, classes=classes)
    block = evaluation.predict(weights(1, classes)[0], 0)
    assert block.dtype == dtype and np.abs(np.exp(block.astype(np.float64)).sum(1) - 1).max() < 1e-2


def test_double_precision_samples_are_predicted_in_their_own_precision() -> None:
    model = network(3).double().eval()
    inputs = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    got = log_probabilities(network(99).double().eval(), model.state_dict(), inputs)
    with torch.no_grad():
        expected = torch.log_softmax(model(inputs.double()), dim=-1).float().numpy()
    np.testing.assert_array_equal(got, expected)
