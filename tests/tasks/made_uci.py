"""Small random data sets in the place of the UCI ones."""

from __future__ import annotations

import numpy as np
import pytest

from raychains.data import tabular
from raychains.data.tabular import Targeted

EXAMPLES, FEATURES = 80, 3


def made(name: str) -> Targeted:
    """Features of very different sizes, and labels that follow them loosely."""
    rng = np.random.default_rng(len(name))
    features = rng.standard_normal((EXAMPLES, FEATURES)) * [1.0, 20.0, 0.1] + [0.0, 100.0, -3.0]
    logits = 0.5 * features[:, 0] - 0.05 * (features[:, 1] - 100) + 0.3
    labels = (rng.random(EXAMPLES) < 1 / (1 + np.exp(-logits))).astype(np.float64)
    return Targeted(name, features, labels, tabular.digest(np.column_stack([features, labels])))


def made_regression(name: str) -> Targeted:
    """Features of very different sizes, and targets that follow them with noise, in a unit of their own."""
    rng = np.random.default_rng(len(name))
    features = rng.standard_normal((EXAMPLES, FEATURES)) * [1.0, 20.0, 0.1] + [0.0, 100.0, -3.0]
    targets = 50 + 7 * np.sin(features[:, 0]) + rng.standard_normal(EXAMPLES)
    return Targeted(name, features, targets, tabular.digest(np.column_stack([features, targets])))


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks read the made sets."""
    monkeypatch.setattr(
        tabular, "load", lambda name, root=None: made(name) if name in tabular.TABLES else made_regression(name)
    )
