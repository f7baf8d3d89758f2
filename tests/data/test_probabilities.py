"""Files of probabilities: what is damaged or none is one line that names the argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.data import probabilities
from tests.checks import refused

GOOD = np.full((4, 2), 0.5)


@pytest.mark.parametrize("given", [[[0.5, 0.5]], 3, None], ids=repr)
def test_neither_an_array_nor_a_path(given: Any) -> None:
    with refused("reference", "path"):
        probabilities.load(given)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_a_torn_file(suffix: str, tmp_path: Path) -> None:
    whole, torn = tmp_path / f"whole{suffix}", tmp_path / f"torn{suffix}"
    if suffix == ".csv":
        np.savetxt(whole, GOOD)
        torn.write_text(whole.read_text() + "0.5 a\n")
    else:
        {".npy": np.save, ".npz": np.savez}[suffix](whole, GOOD)
        torn.write_bytes(whole.read_bytes()[:40])
    np.testing.assert_array_equal(probabilities.load(whole), GOOD)
    with refused("reference", "readable", f"torn{suffix}"):
        probabilities.load(torn)
