"""MNIST's posteriors asked about letters, at full length: the paper's Fig. 4 for seven methods, its order stated as found."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import raychains as rc

pytestmark = pytest.mark.long
GROUPS = {
    "cyclical SG-MCMC": ("cSGLD", "cSGHMC"),
    "SG-MCMC and Snapshot": ("SGLD", "SGHMC", "Snapshot-SGDM"),
    "point estimates": ("SGD", "SGDM"),
}
"""The paper's order of over-confidence, the least first."""


@pytest.mark.skipif(
    not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST and notMNIST are needed"
)
def test_seven_methods_on_letters(ray_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = rc.compare(preset="mnist-uncertainty", store=str(tmp_path), name="letters")
    rc.evaluate(result.path, measures=("ood",))
    ood = result.store.table("ood").to_pandas()
    ood = ood[(ood["companion"] == "notmnist") & (ood["score"] == "entropy")].set_index("arm")
    labels = {arm.name: arm.label for arm in result.comparison.arms}
    cdf = result.store.table("entropy_cdf").to_pandas()
    shares = {}
    with capsys.disabled():
        print("\nshare of notMNIST's letters with a predictive entropy below .5 nats")
        for name, label in labels.items():
            row = ood.loc[name]
            shares[label] = float(row["share_below_half_nat"])
            print(f"  {label:<14} {shares[label]:6.1%}  95 % interval [{row['low']:.1%}, "
                  f"{row['high']:.1%}], AUROC {row['auroc']:.4f}")  # fmt: skip
        worst_to_best = [[shares[m] for m in methods] for methods in GROUPS.values()]
        holds = all(max(a) < min(b) for a, b in itertools.pairwise(worst_to_best))
        print(f"the paper's order ({' < '.join(GROUPS)}) {'holds' if holds else 'does not hold'} here")
    assert set(shares) == {m for methods in GROUPS.values() for m in methods}
    for name, label in labels.items():
        mine = cdf[(cdf["arm"] == name) & (cdf["companion"] == "notmnist")].sort_values("entropy")
        at_half = float(np.interp(0.5, mine["entropy"], mine["cdf"]))
        assert at_half == pytest.approx(shares[label], abs=0.02), "the figure's curve passes through the share"
    for name in ("entropy", "detection"):
        assert (Path(result.path) / "figures" / f"{name}.svg").exists()
