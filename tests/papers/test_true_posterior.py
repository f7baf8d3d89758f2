"""The study against true posteriors: all methods at as many gradient evaluations, and claims that are one family."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raychains import samplers, schedules
from raychains.data import standins
from raychains.data.root import rooted
from raychains.papers.fidelity import true_posterior as study
from raychains.planning.ensemble_start import METHOD as ENSEMBLE
from tests.papers.planned import chains, every, planned

ROOT = Path(__file__).resolve().parents[2]
POINTS = ("sgd", ENSEMBLE)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[None]:
    with rooted(str(standins.make(tmp_path / "data", corruptions=1))):
        yield


def counted(scale: str) -> None:
    size, examples = study.SIZES[scale], study.SMOKE_EXAMPLES if scale == "smoke" else study.EXAMPLES
    for part, made in planned("true-posterior", scale).items():
        arms = chains(made)
        assert tuple(arms) == tuple(study.LABELS)
        for row, groups in arms.items():
            assert len(groups) == size.repeats
            for group in groups:
                spent = sum(s.steps * samplers.gradients_per_step(s.sampler) / s.steps_per_epoch for s in group)
                # MILE's members count with their most epochs, although they stop early.
                spent += size.start * len(group) if row == "mile" else 0
                assert spent == pytest.approx(size.epochs * size.chains, rel=1e-3), (part, row)
                kept = {schedules.build(s.schedule).kept for s in group}
                if row in POINTS or scale != "smoke":  # MILE keeps few of a handful of steps
                    few, many = (1, 1) if row in POINTS else (0.9 * size.draws, 1.1 * size.draws)
                    assert all(few <= k <= many for k in kept), row
                noisy = {schedules.build(s.schedule).temperature for s in group}
                assert noisy == {0.0 if row in POINTS else 1.0}
                priors = {s.sampler.settings["weight_decay"] for s in group}
                assert priors == {1e-3 if part == "digits" else 1 / examples}


@pytest.mark.usefixtures("root")
def test_methods_take_as_many_gradients_on_stand_ins() -> None:
    counted("smoke")


@pytest.mark.skipif("RAYCHAINS_DATA" not in os.environ, reason="RAYCHAINS_DATA is not set: it names the data root")
def test_methods_take_as_many_gradients_at_the_scale_that_is_committed() -> None:
    counted("cpu")


def test_every_method_has_a_step_size_of_its_grid_for_every_part() -> None:
    for part in study.NAMES:
        assert set(study.LR[part]) == {*study.LABELS, "psgld"} - {"mile"}


def test_step_sizes_are_the_nearest_of_the_committed_grid() -> None:
    rows = list(csv.DictReader((ROOT / "docs/results/posterior-settings.csv").open()))
    for part, known in study.LR.items():
        for method, lr in known.items():
            mine = [r for r in rows if (r["part"], r["method"]) == (part, method)]
            assert lr == float(min(mine, key=lambda r: float(r["total_variation"]))["lr"]), (part, method)


def test_claims_are_one_family_of_pairs_that_every_part_has() -> None:
    experiment = every()["true-posterior"]
    assert experiment.family and len(experiment.claims) == len(study.NAMES) * len(study.PAIRS)
    assert len({frozenset(pair) for pair in study.PAIRS}) == len(study.PAIRS)
    assert sum("sgd" in pair for pair in study.PAIRS) == 2
