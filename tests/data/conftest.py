"""Where the real data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_root() -> Path:
    """The data root with MNIST, notMNIST and CIFAR-10."""
    root = os.environ.get("RAYCHAINS_DATA")
    if not root:
        pytest.skip("RAYCHAINS_DATA is not set: it names the folder with MNIST, notMNIST and cifar-10-batches-py")
    return Path(root)
