"""scikit-learn's handwritten digits (1,797 images of 8×8), read from its file without importing scikit-learn."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from raychains.errors import UserError


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Images [1797, 64] float32 in [0, 1] and labels [1797] int64, as `sklearn.datasets.load_digits` has them.

    The package's file is read directly: importing scikit-learn costs a chain worker seconds.

    Raises:
        UserError: scikit-learn is not installed, or its file is not where it has always been.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise UserError("task digits needs scikit-learn, whose package holds the data: install scikit-learn")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise UserError(f"task digits: no file {path}; reinstall scikit-learn")
    with gzip.open(path) as f:
        table = np.loadtxt(f, delimiter=",")
    return (table[:, :-1] / 16.0).astype(np.float32), table[:, -1].astype(np.int64)
