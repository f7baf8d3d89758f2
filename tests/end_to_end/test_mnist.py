"""The MNIST posterior of an MLP: what the ensemble is worth, and what it says about letters."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import raychains as rc
from raychains.data import sets
from raychains.store import ChainStore, codec
from tests.pool import unpaged

pytestmark = pytest.mark.long
EPOCHS = 20
BOOTSTRAPS = 2000


@pytest.mark.skipif(
    not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST and notMNIST are needed"
)
def test_four_chains_on_mnist_are_better_together_than_alone(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {"task": "mnist-mlp", "epochs": EPOCHS, "store": runs}
    with unpaged():
        posterior = rc.run(sampler="csghmc", chains=4, **settings)
        point = rc.run(sampler="sgdm", chains=1, **settings)
    splits = rc.make_task("mnist-mlp").splits()
    test, letters = splits["test"], splits["ood:notmnist"]
    labels = sets.load("mnist", "test").labels.numpy()

    singles = np.stack([_probabilities(test, t) for t in _samples(posterior)])
    wrong = singles.argmax(axis=2) != labels
    together = singles.mean(axis=0).argmax(axis=1) != labels
    gain = wrong.mean(axis=0) - together  # per image
    se = gain.std(ddof=1) / np.sqrt(len(gain))
    sgdm_wrong = _probabilities(test, _samples(point)[-1]).argmax(axis=1) != labels

    entropies = {
        "cSGHMC, 4 chains": _entropy(np.mean([_probabilities(letters, t) for t in _samples(posterior)], axis=0)),
        "SGDM, last iterate": _entropy(_probabilities(letters, _samples(point)[-1])),
    }
    intervals = {name: _interval(e) for name, e in entropies.items()}
    seconds = float(posterior.results()["chain_seconds"].sum())
    with capsys.disabled():
        print(f"\nMNIST: {len(singles)} samples of 4 chains × {EPOCHS} epochs in {seconds / 60:.1f} CPU-minutes")
        print(f"error of the ensemble {together.mean():.2%}, of single samples {wrong.mean():.2%} on average and "
              f"{wrong.mean(axis=1).min():.2%} at best; of SGDM {sgdm_wrong.mean():.2%}")  # fmt: skip
        print(f"the ensemble is better than its mean sample by {gain.mean():.2%} ± {se:.2%}")
        for name, (low, high) in intervals.items():
            print(f"mean predictive entropy on notMNIST, {name}: {entropies[name].mean():.3f} nats, "
                  f"95 % bootstrap interval [{low:.3f}, {high:.3f}]")  # fmt: skip
    assert len(singles) == 48
    assert together.mean() <= 0.015
    assert gain.mean() >= 3 * se > 0
    assert intervals["cSGHMC, 4 chains"][0] > intervals["SGDM, last iterate"][1], "letters are less certain to it"


def _samples(result: rc.Result) -> list[dict[str, Any]]:
    found = []
    for digest in result.comparison.chains():
        store = ChainStore(result.store.root, digest)
        found += [codec.decode(store.read_sample(record.file))[0] for record in store.records()]
    return found


def _probabilities(split: Any, tensors: dict[str, Any]) -> np.ndarray:
    """[examples, classes] of one sample."""
    return np.exp(np.concatenate([split.predict(tensors, i) for i in range(split.shards)]).astype(np.float64))


def _entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum(axis=1)


def _interval(values: np.ndarray) -> tuple[float, float]:
    """95 % percentile interval of the mean over images."""
    rng = np.random.default_rng(0)
    means = [rng.choice(values, len(values)).mean() for _ in range(BOOTSTRAPS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
