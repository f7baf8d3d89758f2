"""Kinetic temperatures of stored chains against the recursion of the velocity's variance and against real chains."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.analyses import kinetic, temperatures
from raychains.chain import Chain
from raychains.sample import Progress
from raychains.schedules import Constant, Cyclical
from raychains.store import ChainStore
from raychains.tasks.gaussian import Gaussian
from tests.analyses.densities import stored

TASK = Gaussian(covariance=[[2.0, 0.3], [0.3, 0.5]], mean=[0.0, 0.0])
CYCLES = Cyclical(lr=0.1, steps=400, cycles=2, exploration=0.5)


def record(step: int, value: float | None) -> dict[str, Any]:
    return Progress(
        step=step,
        epoch=step - 1,
        cycle=0,
        stage="sampling",
        lr=0.1,
        temperature=1.0,
        loss=None,
        kinetic_temperature=value,
    ).to_json()


def test_a_changing_lr_is_taken_out_exactly() -> None:
    """On a flat potential Var v follows V ← m²V + 2(1−m)·lr_k·T/N, whatever the schedule."""
    m, n = 0.9, 10.0
    variance, found, plain = 0.0, {}, {}
    for k in range(1, CYCLES.steps + 1):
        setting = CYCLES.at(k)
        variance = m**2 * variance + 2 * (1 - m) * setting.lr * setting.temperature / n
        plain[k] = n * (1 + m) * variance / (2 * setting.lr)
        if kinetic.usable(CYCLES, k, m):
            found[k] = plain[k] * kinetic.lr_share(CYCLES, k, m)
    assert set(found) == {*range(152, 201), *range(352, 401)}  # 51 steps after the noise sets in at 101 and 301
    assert all(value == pytest.approx(1, abs=1e-4) for value in found.values())
    assert plain[200] > 20 and plain[160] < 1.4  # the last step's lr is far below those that v remembers


def test_records_of_all_chains_count_from_their_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    schedule = Constant(lr=0.1, steps=300)
    context = stored(
        tmp_path,
        TASK,
        [rng.normal(size=(300, 1, 2)) for _ in range(2)],
        schedule=schedule,
        sampler="sghmc",
        momentum=0.5,
    )
    values = rng.normal(1.2, 0.1, size=(2, 60))
    for c, spec in enumerate(context.comparison.arms[0].chains[0]):
        early = [record(5, 99.0), record(10, None)]  # before the window of 10 steps; without momenta
        told = [record(12 + 3 * i, float(v)) for i, v in enumerate(values[c])]
        ChainStore(context.store.root, spec.digest).publish_progress([*early, *told], step=300, incarnation=1)
    (row,) = [r for r in temperatures.rows(context) if r["kind"] == "kinetic"]
    assert row["estimate"] == pytest.approx(values.mean(), rel=1e-6) and row["draws"] == 120 and row["set"] == 1.0
    assert row["error"] == pytest.approx(0.1 / math.sqrt(120), rel=0.3)
    assert row["gradient"] == "momenta at 120 records" and row["notice"] == ""


def test_without_such_a_record_it_is_said(tmp_path: Path) -> None:
    draws = np.random.default_rng(0).normal(size=(50, 1, 2))
    context = stored(tmp_path, TASK, [draws], sampler="sghmc", momentum=0.9)
    (row,) = [r for r in temperatures.rows(context) if r["kind"] == "kinetic"]
    assert np.isnan(row["estimate"]) and row["draws"] == 0 and "no progress record" in row["notice"]


def test_samplers_without_momentum_have_no_row(tmp_path: Path) -> None:
    context = stored(tmp_path, TASK, [np.random.default_rng(0).normal(size=(50, 1, 2))])
    assert [r["kind"] for r in temperatures.rows(context)] == ["configurational"]


def test_a_real_chains_records_hold_it(tmp_path: Path) -> None:
    """1,000 lanes of two coordinates: T = 1 plus the curvatures' share lr·λ/(2(1+m)), λ of the mean loss."""
    draws = np.zeros((400, 1000, 2))
    context = stored(tmp_path, TASK, [draws], schedule=Constant(lr=0.05, steps=400), sampler="sghmc", momentum=0.9)
    spec = context.comparison.arms[0].chains[0][0]
    records = [e for e in Chain(spec) if isinstance(e, Progress)]
    assert all(isinstance(r.kinetic_temperature, float) for r in records)
    ChainStore(context.store.root, spec.digest).publish_progress(
        [r.to_json() for r in records], step=400, incarnation=1
    )
    estimate, _ = kinetic.of_chains(context.store.root, [spec])
    curvatures = 1 / np.linalg.eigvalsh(TASK.covariance) / TASK.num_data
    expected = float(np.mean(1 / (1 - 0.05 * curvatures / (2 * 1.9))))
    assert abs(estimate.value - expected) < 4 * estimate.error and estimate.error < 0.01
