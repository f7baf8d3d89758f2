"""MNIST's ones against its sevens: which images, and that the posterior's mode is logistic regression's."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from raychains import samplers, tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.sample import Sample
from raychains.data import sets
from raychains.data.sets import ImageSet, content_hash
from raychains.planning import methods
from raychains.tasks.mnist_1v7 import OneVersusSeven

real = pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST is needed")


def mnist(split: str) -> ImageSet:
    """Ten digits in turn, random images; the sevens are brighter."""
    n = 400 if split == "train" else 100
    labels = np.arange(n) % 10
    images = np.random.default_rng(n).integers(0, 200, (n, 1, 28, 28), dtype=np.uint8)
    images[labels == 7, :, 8:20, 8:20] += 12
    tensors = torch.from_numpy(images), torch.from_numpy(labels)
    return ImageSet("mnist", *tensors, 10, content_hash(images, labels))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "load", lambda name, split, root=None: mnist(split))


def task(**settings: Any) -> OneVersusSeven:
    found = tasks.make("mnist-1v7", **settings)
    assert isinstance(found, OneVersusSeven)
    return found


def by_scikit_learn(made: OneVersusSeven, decay: float) -> np.ndarray[Any, Any]:
    """The penalty on w₁ − w₀ is half of that on each row: ¼·decay·‖w₁ − w₀‖²; sklearn's is ‖w‖²/(2CN) per example."""
    data = made.read("train")
    pixels = (data.images.numpy().reshape(len(data), -1).astype(float) / 255 - 0.1307) / 0.3081
    model = LogisticRegression(C=2 / (decay * len(data)), fit_intercept=False, tol=1e-10, max_iter=5000)
    return np.asarray(model.fit(pixels, data.labels.numpy()).coef_[0])


def test_only_ones_and_sevens_are_there_as_zero_and_one(made: None) -> None:
    found, whole = task(), mnist("train")
    chosen = [i for i in range(400) if i % 10 in (1, 7)]
    images, labels = found.source.batch(torch.arange(80))
    assert found.num_data == 80 and torch.equal(images, whole.images[chosen])
    assert labels.tolist() == [int(i % 10 == 7) for i in chosen] and labels.dtype == torch.int64
    test: Any = found.splits()["test"]
    assert len(test.inputs) == 20 and sorted(set(test._labels.tolist())) == [0, 1]
    assert found.settings() == {} and found.fingerprint != tasks.make("mnist-mlp").fingerprint
    part = task(val_split=0.25)
    assert (part.num_data, len(part.splits()["val"].inputs)) == (60, 20)  # type: ignore[attr-defined]


def test_the_network_has_two_rows_of_weights_and_no_intercept(made: None) -> None:
    model = task().build_model(seed=1, lanes=1)
    assert [tuple(p.shape) for p in model.parameters()] == [(2, 784)]
    assert not model(torch.zeros(3, 1, 28, 28)).any()


def test_a_cold_chain_of_full_batches_goes_there(made: None) -> None:
    """1,000 steps at lr .01 shrink every direction by e⁻¹⁰ at least: the curvature is 1 or more with this decay."""
    found = task()
    given = Run(epochs=1000, batch_size=80, lr=0.01, weight_decay=1.0, thinning=1000, chains=1)
    method = methods.resolve(given, task=found, sampler="sgd", schedule="constant")
    (last,) = [e for e in Chain(method.spec, found) if isinstance(e, Sample)][-1:]
    zero, one = last.tensors["linear.weight"].double().numpy()
    np.testing.assert_allclose(one - zero, by_scikit_learn(found, 1.0), atol=2e-5)


def test_defaults_are_the_authors_and_n_is_ours(made: None) -> None:
    found = task()
    for name in samplers.METHODS:
        method = methods.resolve(Run(batch_size=20), task=found, sampler=name)
        learned = 80 if samplers.METHODS[name].early_stop is None else 68  # it holds 15 % out
        assert method.spec.sampler.settings["num_data"] == learned and method.schedule.kept > 0
        cold = samplers.KINDS[samplers.METHODS[name].kind].noisy_counterpart is not None
        assert method.schedule.temperature == (0 if cold else 1)
    emcmc = methods.resolve(Run(), task=found, sampler="emcmc", schedule="constant").spec
    assert (emcmc.sampler.settings["eta"], emcmc.schedule.settings["lr"], emcmc.batch_size) == (1.0, 0.03, 64)


def test_the_four_methods_are_one_comparison_and_one_preset(made: None) -> None:
    four = ("emcmc", "entropy-sgd", "entropy-sgld", "sgld")
    plain = plans.compare(Compare(task="mnist-1v7", sampler=four, schedule=("constant",))).comparison
    assert [a.sampler for a in plain.arms] == list(four)
    preset = plans.compare(Compare(preset="mnist-1v7", epochs=3, chains=1)).comparison
    assert [a.sampler for a in preset.arms] == list(four) and preset.arms[0].variables == ("theta",)
    for arm in preset.arms:
        (spec,) = arm.chains[0]
        assert spec.schedule.kind == "constant" and spec.schedule.settings["lr"] == (
            1.0 if "entropy" in arm.sampler else 0.03
        )
        assert [e for e in Chain(spec) if isinstance(e, Sample)]  # a non-finite one would have raised


@real
def test_real_mnist_has_13007_ones_and_sevens() -> None:
    found = task()
    labels = torch.bincount(found.source.batch(torch.arange(found.num_data))[1])
    assert (found.num_data, labels.tolist()) == (13_007, [6742, 6265])  # as LeCun's files have them
    test: Any = found.splits()["test"]
    assert np.bincount(test._labels).tolist() == [1135, 1028]
