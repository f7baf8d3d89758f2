"""Predictions on stored bytes, shard by shard, and what a predictive says of inputs without labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from raychains.evaluation.classification import IMAGES_AT_ONCE, Classification, OutOfDistribution, reduce_classification
from raychains.evaluation.evaluation import SHARD, gather

Array = np.ndarray[Any, Any]
STEP = {"kind": "normalise", "mean": [0.5], "std": [0.25]}


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def sample(seed: int) -> dict[str, Tensor]:
    """Sharp networks that partly agree."""
    shared, own = (torch.Generator().manual_seed(s) for s in (99, seed))
    return {
        n: 1.5 * torch.randn(t.shape, generator=shared) + 0.5 * torch.randn(t.shape, generator=own)
        for n, t in network().state_dict().items()
    }


def stored(n: int) -> Tensor:
    return torch.randint(0, 256, (n, 1, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))


def prepare(images: Tensor) -> Tensor:
    return (images.float() / 255 - 0.5) / 0.25


def outside(images: Tensor) -> OutOfDistribution:
    return OutOfDistribution(model=network(), inputs=images, prepare=prepare, preparation=STEP)


def probabilities(images: Tensor, seed: int) -> Array:
    """By PyTorch's own functional call, in double precision."""
    tensors = {n: t.double() for n, t in sample(seed).items()}
    logits = torch.func.functional_call(network().double(), tensors, (prepare(images).double(),))
    return torch.softmax(logits, dim=1).detach().numpy()


def test_bytes_are_prepared_and_predicted_as_if_all_were_prepared_before() -> None:
    images = stored(2 * SHARD + 300)
    split = outside(images)
    assert split.shards == 3
    blocks = [split.predict(sample(1), shard) for shard in range(3)]
    assert [len(b) for b in blocks] == [SHARD, SHARD, 300] and blocks[0].dtype == np.float32
    np.testing.assert_allclose(np.exp(np.concatenate(blocks)), probabilities(images, 1), rtol=2e-5, atol=1e-7)
    floats = OutOfDistribution(model=network(), inputs=prepare(images))
    np.testing.assert_allclose(floats.predict(sample(1), 1), blocks[1], rtol=1e-5, atol=1e-6)


def test_no_more_than_a_part_of_a_shard_is_ever_prepared_at_once() -> None:
    seen: list[int] = []

    def counted(images: Tensor) -> Tensor:
        seen.append(len(images))
        return prepare(images)

    split = OutOfDistribution(model=network(), inputs=stored(SHARD + 70), prepare=counted, preparation=STEP)
    split.predict(sample(0), 0)
    assert seen == [IMAGES_AT_ONCE] * 4 and sum(seen) == SHARD
    split.predict(sample(0), 1)
    assert seen[4:] == [70]


def test_metrics_equal_scipys_entropies_of_the_averaged_probabilities() -> None:
    images, seeds = stored(SHARD + 250), (1, 2, 3)
    split = outside(images)
    parts = [split.reduce([split.predict(sample(s), shard) for s in seeds], shard) for shard in range(split.shards)]
    each = np.stack([probabilities(images, s) for s in seeds])
    mean = each.mean(0)
    entropy, expected = scipy.stats.entropy(mean, axis=1), scipy.stats.entropy(each, axis=2).mean(0)
    rows = gather(parts)
    assert len(rows["entropy"]) == len(images) and "label" not in rows
    np.testing.assert_array_equal(rows["prediction"], mean.argmax(1))
    np.testing.assert_allclose(rows["entropy"], entropy, atol=1e-5)
    np.testing.assert_allclose(rows["expected_entropy"], expected, atol=1e-5)
    (found,) = split.summarise(parts)
    assert set(found) == {m.name for m in split.metrics}
    assert np.abs(entropy - 0.5).min() > 1e-5  # else float32 may put one on the other side of the border
    assert 0.05 < found["low_entropy"] < 0.95
    wanted = {
        "entropy": entropy.mean(), "mutual_information": (entropy - expected).mean(),
        "low_entropy": np.mean(entropy < 0.5), "confidence": mean.max(1).mean(),
    }  # fmt: skip
    assert found == pytest.approx(wanted, abs=1e-5)
    assert found["mutual_information"] > 0.01


def test_curves_are_the_metrics_of_the_first_samples() -> None:
    images, seeds = stored(SHARD + 10), (1, 2, 3, 4)
    split = outside(images)
    blocks = [[split.predict(sample(s), shard) for s in seeds] for shard in range(split.shards)]
    (curve,) = split.curve([split.reduce(b, shard) for shard, b in enumerate(blocks)])
    for n in range(1, 5):
        (found,) = split.summarise([split.reduce(b[:n], shard) for shard, b in enumerate(blocks)])
        assert {name: values[n - 1] for name, values in curve.items()} == pytest.approx(found, abs=1e-12)


def test_a_predictive_that_knows_nothing_has_the_largest_entropy_and_no_information() -> None:
    split = outside(stored(5))
    uniform = np.full((5, 3), -math.log(3), dtype=np.float32)
    (found,) = split.summarise([split.reduce([uniform, uniform], 0)])
    expected = {"entropy": math.log(3), "mutual_information": 0.0, "low_entropy": 0.0, "confidence": 1 / 3}
    assert found == pytest.approx(expected, abs=1e-6)
    sure = np.log(np.eye(3, dtype=np.float64)[[0, 1, 2, 0, 1]] + 1e-30)
    opposed = np.roll(sure, 1, axis=1)
    (found,) = split.summarise([split.reduce([sure, opposed], 0)])  # two sure samples that contradict each other
    expected = {"entropy": math.log(2), "mutual_information": math.log(2), "low_entropy": 0.0, "confidence": 0.5}
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_predictive_that_diverged_has_no_numbers() -> None:
    split = outside(stored(5))
    reduced = split.reduce([np.full((5, 3), np.nan, dtype=np.float32)], 0)
    (found,), (curve,) = split.summarise([reduced]), split.curve([reduced])
    assert np.isnan([found["low_entropy"], found["entropy"], curve["low_entropy"][0]]).all()
    labelled = reduce_classification([np.full((4, 3), np.nan)], np.array([0, 1, 2, 0]), bins=15)
    assert np.isnan([labelled.curves["error"][0], labelled.curves["nll"][0]]).all()


def test_fingerprints_tell_preparations_and_labels_apart() -> None:
    images, labels = stored(30), np.arange(30) % 3
    plain: dict[str, Any] = {"model": network(), "inputs": images}
    other_step = {**STEP, "mean": [0.4]}
    splits = [
        OutOfDistribution(**plain),
        OutOfDistribution(**plain, prepare=prepare, preparation=STEP),
        OutOfDistribution(**plain, prepare=prepare, preparation=other_step),
        Classification(**plain, labels=labels, classes=3),
        Classification(**plain, labels=labels, classes=3, prepare=prepare, preparation=STEP),
        Classification(**plain, labels=labels[::-1].copy(), classes=3),
        OutOfDistribution(model=network(), inputs=images.flip(0)),
    ]
    assert len({s.fingerprint for s in splits}) == len(splits)
    assert outside(images).fingerprint == splits[1].fingerprint
    assert Classification(**plain, labels=labels, classes=3).fingerprint == splits[3].fingerprint


def test_network_and_inputs_go_to_the_device_that_is_named() -> None:
    """`meta`, a device that every machine has, stands for a GPU."""
    devices: list[str] = []

    class Seen(Exception):
        pass

    def seen(images: Tensor) -> Tensor:
        devices.append(images.device.type)
        raise Seen

    split = OutOfDistribution(model=network(), inputs=stored(20), prepare=seen, preparation=STEP)
    for device in ("cpu", "meta"):
        split.to(torch.device(device))
        assert {p.device.type for p in split._model.parameters()} == {device}
        with pytest.raises(Seen):
            split.predict({n: t.to(device) for n, t in sample(0).items()}, 0)
    assert devices == ["cpu", "meta"] and split.inputs.device.type == "cpu"
