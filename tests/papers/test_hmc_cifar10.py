"""Fidelity to HMC on CIFAR-10: chains of all methods at as many gradient evaluations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from raychains import samplers, schedules
from raychains.data import standins
from raychains.data.root import rooted
from raychains.papers.fidelity import hmc_cifar10
from raychains.papers.fidelity.hmc_cifar10 import LABELS, ON_CPU, PART, SIZES
from tests.papers.planned import chains, every, planned
from tests.spread import witnessed


@pytest.fixture
def root(tmp_path: Path) -> Iterator[None]:
    with rooted(str(standins.make(tmp_path / "data", corruptions=1))):
        yield


def counted(scale: str) -> None:
    size, made = SIZES[scale], chains(planned("hmc-cifar10", scale)[PART])
    assert tuple(made) == (ON_CPU if scale == "cpu" else tuple(LABELS))
    for row, groups in made.items():
        assert len(groups) == size.repeats
        for group in groups:
            spent = [s.steps * samplers.gradients_per_step(s.sampler) / s.steps_per_epoch for s in group]
            assert sum(spent) == size.epochs * size.chains and len(group) == (1 if row == "sgd" else size.chains)
            kept = {schedules.build(s.schedule).kept for s in group}
            assert kept == {1 if row in hmc_cifar10.POINTS else size.draws}
            noisy = {schedules.build(s.schedule).temperature for s in group}
            assert noisy == {0.0 if row in hmc_cifar10.POINTS else 1.0}
            assert all(
                "weight_decay" not in s.sampler.settings or not s.sampler.settings["weight_decay"] for s in group
            )


@pytest.mark.usefixtures("root")
def test_methods_take_as_many_gradients_on_stand_ins() -> None:
    counted("smoke")


@pytest.mark.parametrize("scale", witnessed(["cpu", "gpu", "paper"], "cpu"))
def test_methods_take_as_many_gradients_on_the_real_data(scale: str) -> None:
    if not os.environ.get("RAYCHAINS_DATA"):
        pytest.skip("RAYCHAINS_DATA is not set")
    counted(scale)


def test_the_paper_scale_has_twelve_chains_of_200_epochs_and_all_claims() -> None:
    assert (SIZES["paper"].epochs, SIZES["paper"].chains) == (200, 12)
    judged = {scale: sum(scale in c.scales for c in every()["hmc-cifar10"].claims) for scale in SIZES}
    assert judged == {"smoke": 0, "cpu": 12, "gpu": 20, "paper": 20}


def test_cells_are_of_all_samples_in_per_cent() -> None:
    growth = [
        {
            "arm": a,
            "group": 0,
            "repeat": 0,
            "samples": n,
            "chains": 1,
            "agreement": v,
            "total_variation": v / 10,
            "agreement_low": v - 0.1,
            "agreement_high": v + 0.1,
            "total_variation_low": 0.0,
            "total_variation_high": v,
        }
        for a, n, v in (("first", 1, 0.2), ("first", 2, 0.4), ("second", 1, 0.3))
    ]
    seen = []

    def cells(rows: tuple[str, ...], columns: tuple[str, ...], table: pd.DataFrame | None = None) -> list[str]:
        seen.append((columns, None if table is None else table.set_index("arm")["agreement"].to_dict()))
        return []

    arms = dict(zip(ON_CPU, ("first", "second", "x", "y"), strict=True))
    run = SimpleNamespace(
        scale="cpu", part=PART, table=lambda name: pd.DataFrame(growth), cells=cells,
        arm=lambda row: SimpleNamespace(name=arms[row]),
    )  # fmt: skip
    found = hmc_cifar10.tables(run)  # type: ignore[arg-type]
    assert seen[0] == (("agreement", "total_variation"), {"first": 40.0, "second": 30.0}) and seen[1][0] == ("error",)
    assert [r["row"] for r in found["growth"]] == ["sgd", "sgd", "ensemble"]
    assert [(r["agreement_low"], r["total_variation_high"]) for r in found["growth"]] == [
        pytest.approx(p) for p in ((0.1, 0.2), (0.3, 0.4), (0.2, 0.3))
    ]
