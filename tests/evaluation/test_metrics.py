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
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from raychains.evaluation import calibration, classification, metrics
from raychains.evaluation.classification import Classification, log_probabilities, reduce_classification

Array = np.ndarray[Any, Any]


def predictions(
    seed: int, *, examples: int = 700, classes: int = 12, samples: int = 5, sharpness: float = 2.0
) -> tuple[list[Array], Array]:
    """Blocks of samples that partly agree with each other and with the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=examples)
    shared = rng.normal(size=(examples, classes)) + 1.5 * np.eye(classes)[labels]
    logits = sharpness * (shared + 0.7 * rng.normal(size=(samples, examples, classes)))
    blocks = torch.log_softmax(torch.from_numpy(logits).float(), dim=-1).numpy()
    return list(blocks), labels


def mean_probabilities(blocks: list[Array]) -> Array:
    return np.exp(np.stack(blocks).astype(np.float64)).mean(0)


def proper(p: Array) -> Array:
    """float32 probabilities sum to 1 only within 1e-7, which some libraries complain of."""
    return p / p.sum(1, keepdims=True)


CASES = [
    predictions(0),
    predictions(1, classes=6, samples=1),
    predictions(2, classes=3, samples=4, sharpness=0.5),
    predictions(3, classes=20, samples=3, sharpness=8.0),
]
EACH = pytest.mark.parametrize(("blocks", "labels"), CASES, ids=["12 classes", "one sample", "3 blunt", "20 sharp"])


@EACH
def test_error_equals_scikit_learns(blocks: list[Array], labels: Array) -> None:
    rows = reduce_classification(blocks, labels).rows
    expected = 1 - accuracy_score(labels, mean_probabilities(blocks).argmax(1))
    assert 0 < expected < 1
    assert metrics.error(rows) == pytest.approx(expected, abs=1e-12)


@EACH
def test_nll_equals_scikit_learns(blocks: list[Array], labels: Array) -> None:
    p = proper(mean_probabilities(blocks))
    expected = log_loss(labels, p, labels=np.arange(p.shape[1]))
    assert metrics.nll(reduce_classification(blocks, labels).rows) == pytest.approx(expected, rel=1e-6)


@EACH
def test_brier_equals_the_direct_formula(blocks: list[Array], labels: Array) -> None:
    p = mean_probabilities(blocks)
    expected = np.mean([sum((p[i, c] - (c == y)) ** 2 for c in range(p.shape[1])) for i, y in enumerate(labels)])
    assert metrics.brier(reduce_classification(blocks, labels).rows) == pytest.approx(expected, rel=1e-9)


@EACH
@pytest.mark.parametrize("bins", [1, 8, 15])
def test_ece_equals_torchmetrics_on_the_full_probabilities(blocks: list[Array], labels: Array, bins: int) -> None:
    p = proper(mean_probabilities(blocks))
    expected = multiclass_calibration_error(
        torch.from_numpy(p), torch.from_numpy(labels), num_classes=p.shape[1], n_bins=bins, norm="l1"
    )
    assert metrics.ece(reduce_classification(blocks, labels).rows, bins=bins) == pytest.approx(
        float(expected), abs=1e-6
    )


@EACH
@pytest.mark.parametrize("bins", [8, 15])
def test_equal_mass_error_equals_numpys_split_of_the_sorted_rows(blocks: list[Array], labels: Array, bins: int) -> None:
    """Without ties: ranks go to bins by ⌊bins·(rank + ½)/n⌋."""
    p = mean_probabilities(blocks)
    order = np.argsort(p.max(1))
    confidence, right = p.max(1)[order], (p.argmax(1) == labels)[order]
    assert len(np.unique(confidence)) == len(labels)
    which = np.floor((np.arange(len(labels)) + 0.5) * bins / len(labels)).astype(int)
    gaps = [abs((right - confidence)[which == b].sum()) for b in range(bins)]
    rows = reduce_classification(blocks, labels).rows
    assert metrics.ece_mass(rows, bins=bins) == pytest.approx(sum(gaps) / len(labels), abs=1e-12)


@EACH
def test_entropy_equals_scipys(blocks: list[Array], labels: Array) -> None:
    rows = reduce_classification(blocks, labels).rows
    np.testing.assert_allclose(
        rows["entropy"], scipy.stats.entropy(mean_probabilities(blocks), axis=1), rtol=1e-5, atol=1e-6
    )


@EACH
def test_expected_entropy_equals_the_mean_of_scipys_and_never_exceeds_the_entropy(
    blocks: list[Array], labels: Array
) -> None:
    rows = reduce_classification(blocks, labels).rows
    each = [scipy.stats.entropy(np.exp(b.astype(np.float64)), axis=1) for b in blocks]
    np.testing.assert_allclose(rows["expected_entropy"], np.mean(each, axis=0), rtol=1e-5, atol=1e-6)
    assert (rows["expected_entropy"] <= rows["entropy"] + 1e-6).all()


@EACH
def test_top5_equals_scikit_learns(blocks: list[Array], labels: Array) -> None:
    p = mean_probabilities(blocks)
    rows = reduce_classification(blocks, labels).rows
    if p.shape[1] <= 5:
        assert rows["top5"].all()
        assert metrics.of_points("top5_error", rows) == 0
    else:
        expected = top_k_accuracy_score(labels, p, k=5, labels=np.arange(p.shape[1]))
        assert 0 < expected < 1
        assert rows["top5"].mean() == pytest.approx(expected, abs=1e-12)
        assert metrics.of_points("top5_error", rows) == pytest.approx(1 - expected, abs=1e-12)


def test_of_equally_probable_classes_five_are_in_the_top_five() -> None:
    """A predictive that tells nothing is right about half of ten classes, not about all."""
    block = np.full((10, 10), np.log(0.1))
    rows = reduce_classification([block], np.arange(10)).rows
    assert rows["top5"].tolist() == [True] * 5 + [False] * 5


@EACH
def test_other_columns_are_what_they_are_called(blocks: list[Array], labels: Array) -> None:
    p = mean_probabilities(blocks)
    rows = reduce_classification(blocks, labels).rows
    np.testing.assert_array_equal(rows["label"], labels)
    np.testing.assert_array_equal(rows["prediction"], p.argmax(1))
    np.testing.assert_allclose(rows["confidence"], p.max(1), rtol=1e-12)
    np.testing.assert_allclose(rows["log_p_label"], np.log(p[np.arange(len(labels)), labels]), rtol=1e-9, atol=1e-12)


@EACH
def test_prefix_curves_equal_recomputation_from_scratch(blocks: list[Array], labels: Array) -> None:
    curves = reduce_classification(blocks, labels).curves
    for s in range(1, len(blocks) + 1):
        rows = reduce_classification(blocks[:s], labels).rows
        assert curves["error"][s - 1] == pytest.approx(metrics.error(rows) * len(labels), abs=1e-9)
        assert curves["nll"][s - 1] == pytest.approx(metrics.nll(rows) * len(labels), rel=1e-12)
    assert len(curves["error"]) == len(curves["nll"]) == len(blocks)


def test_impossible_classes_give_finite_rows() -> None:
    """A probability that underflowed to exactly 0 (log −∞) counts as 0·log 0 = 0, and as a finite loss."""
    block = np.array([[0.0, -np.inf, -np.inf], [-np.inf, np.log(0.5), np.log(0.5)]], dtype=np.float32)
    reduced = reduce_classification([block], np.array([0, 0]))
    assert all(np.isfinite(column).all() for column in reduced.rows.values())
    np.testing.assert_allclose(reduced.rows["expected_entropy"], [0, np.log(2)], atol=1e-7)
    np.testing.assert_allclose(reduced.rows["entropy"], [0, np.log(2)], atol=1e-7)
    np.testing.assert_allclose(reduced.rows["brier"], [0, 1.5], atol=1e-7)
    assert reduced.rows["log_p_label"][0] == 0 and reduced.rows["log_p_label"][1] < -700
    assert np.isfinite(reduced.curves["nll"]).all()


def test_perfect_and_hopeless_predictions_have_the_extreme_metrics() -> None:
    labels = np.array([0, 1, 2, 0])
    with np.errstate(divide="ignore"):
        right, wrong = np.log(np.eye(3)[labels]), np.log(np.eye(3)[(labels + 1) % 3])
    best, worst = reduce_classification([right], labels).rows, reduce_classification([wrong], labels).rows
    assert (metrics.error(best), metrics.nll(best), metrics.brier(best), metrics.ece(best)) == (0, 0, 0, 0)
    assert (metrics.error(worst), metrics.brier(worst), metrics.ece(worst)) == (1, 2, 1)


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
    monkeypatch.setattr(classification, "SHARD", 1500)
    whole = split(1500)
    assert whole.shards == 1
    part = whole.reduce([whole.predict(w, 0) for w in samples], 0)
    assert metrics_small == [pytest.approx(whole.summarise([part])[0], rel=1e-6)]
    for name, values in whole.curve([part])[0].items():
        assert curve_small[0][name] == pytest.approx(values, rel=1e-6)
        assert values[-1] == pytest.approx(whole.summarise([part])[0][name], rel=1e-9), "the curve ends at the view"
    assert list(metrics_small[0]) == [m.name for m in Classification.metrics if m.name != "top5_error"]


@pytest.mark.parametrize("bins", [15, 8])
def test_the_metrics_of_a_split_in_shards_equal_those_of_libraries(bins: int) -> None:
    """Everything that `summarise` gives, from the averaged probabilities of all shards."""
    samples, classes = weights(3, 7), 7
    evaluation = split(1300, classes=classes)
    evaluation.bins = bins
    blocks = [[evaluation.predict(w, shard) for w in samples] for shard in range(evaluation.shards)]
    (found,) = evaluation.summarise([evaluation.reduce(of, shard) for shard, of in enumerate(blocks)])
    p = np.concatenate([mean_probabilities(of) for of in blocks])
    labels, each = evaluation._labels, np.exp(np.concatenate(blocks, axis=1).astype(np.float64))
    one_hot = np.eye(classes)[labels]
    widths = [
        float(binary_calibration_error(torch.from_numpy(c), torch.from_numpy(h), n_bins=bins, norm="l1"))
        for c, h in [(p.max(1), (p.argmax(1) == labels) * 1), *zip(p.T.copy(), one_hot.T.astype(int), strict=True)]
    ]
    expected = {
        "error": 1 - accuracy_score(labels, p.argmax(1)),
        "nll": log_loss(labels, proper(p)),
        "ece": widths[0],
        "brier": float(((p - one_hot) ** 2).sum(1).mean()),
        "top5_error": 1 - top_k_accuracy_score(labels, p, k=5, labels=np.arange(classes)),
        "ece_mass": calibration.equal_mass_ece({"confidence": p.max(1), "prediction": p.argmax(1), "label": labels}, bins),
        "classwise_ece": float(np.mean(widths[1:])),
        "entropy": scipy.stats.entropy(p, axis=1).mean(),
        "mutual_information": (scipy.stats.entropy(p, axis=1) - scipy.stats.entropy(each, axis=2).mean(0)).mean(),
    }  # fmt: skip
    assert list(found) == [m.name for m in Classification.metrics]
    assert found == pytest.approx(expected, abs=1e-6)


def test_an_overflowing_network_has_nan_metrics_and_no_error() -> None:
    evaluation = split(30)
    block = np.full((30, 4), np.nan, dtype=np.float32)
    (found,) = evaluation.summarise([evaluation.reduce([block], 0)])
    assert all(np.isnan(value) for name, value in found.items() if name != "error")


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


def test_fingerprint_identifies_inputs_and_labels() -> None:
    base, same = split(30), split(30)
    assert base.fingerprint == same.fingerprint
    labels = base._labels.copy()
    labels[0] = (labels[0] + 1) % 4
    relabelled = Classification(model=network(99), inputs=base.inputs, labels=labels, classes=4)
    moved = Classification(model=network(99), inputs=base.inputs + 1, labels=base._labels, classes=4)
    assert len({base.fingerprint, relabelled.fingerprint, moved.fingerprint, split(31).fingerprint}) == 4
