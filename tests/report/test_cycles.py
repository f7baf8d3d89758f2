"""The figures of cycles and of gradients: their numbers are those of the run's tables, and they stay away where they
say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains import samplers, schedules
from raychains.api import plans
from raychains.core.config import Compare
from raychains.inference.run_data import RunData
from raychains.planning import Comparison
from raychains.plotting.style import Drawing
from raychains.report.figures import FIGURES
from raychains.store import RunStore
from tests.report import runs
from tests.report.figures import drawing_of, labels

SMALL: dict[str, Any] = {"epochs": 8, "chains": 2, "repeats": 2, "task_settings": ("hidden=[6]",)}


def metric(name: str, repeat: int, position: int, index: int) -> float:
    """Made numbers of a sample, all different and of both metrics."""
    return (1.0 if name == "nll" else 0.01) * (1 + index + 0.1 * position + 0.03 * repeat)


def samples_table(store: RunStore, comparison: Comparison) -> None:
    """A views.parquet of single samples with `metric` as their values, θ's alone."""
    fixed = {"kind": "samples", "weighting": "equal", "samples": 1, "chains": 1}
    rows = []
    for arm in comparison.arms:
        for group, chains in enumerate(arm.chains):
            for position, spec in enumerate(chains):
                for index in range(schedules.build(spec.schedule).kept):
                    about = {"arm": arm.name, "group": group, "repeat": group, **fixed}
                    about["view"] = f"sample:{position}:{index}:theta"
                    rows.append({**about, **{m: metric(m, group, position, index) for m in ("error", "nll")}})
    store.write_table("views", rows)


@pytest.fixture(scope="module")
def atmc(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    comparison = plans.compare(Compare(preset="atmc-cycles", **{**SMALL, "cycles": 4})).comparison
    return RunData(runs.store_run(tmp_path_factory.mktemp("atmc"), comparison), comparison)


@pytest.fixture(scope="module")
def entropic(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    options = Compare(sampler=("sgld", "entropy-sgd", "sam"), schedule=("constant",), **SMALL)
    comparison = plans.compare(options).comparison
    return RunData(runs.store_run(tmp_path_factory.mktemp("entropic"), comparison), comparison)


def shown(drawing: Drawing) -> set[str]:
    return labels(drawing.draw())


def rows_of(drawing: Drawing, **fields: Any) -> Sequence[Any]:
    return [row for row in drawing.data if all(row[k] == v for k, v in fields.items())]


# Cycles


def test_ensembles_of_whole_cycles_are_the_curves_prefixes(atmc: RunData) -> None:
    drawing = drawing_of(atmc, "cycles")
    assert "evaluate RUN --views samples" in drawing.caption and "Bands" not in drawing.caption
    for arm in atmc.comparison.arms:
        found = rows_of(drawing, arm=arm.name, metric="nll")
        assert [row["cycles"] for row in found] == [1, 2, 3, 4] and {row["single_mean"] for row in found} == {None}
        curves = atmc.curves[atmc.curves["arm"] == arm.name]
        for row in found:
            values = curves[curves["samples"] == 2 * row["cycles"]]["nll"]  # two chains with one sample a cycle
            assert row["mean"] == pytest.approx(values.mean(), rel=1e-12)
            assert row["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(2), rel=1e-12)
        everything = atmc.results[atmc.results["arm"] == arm.name]["nll"].mean()
        assert found[-1]["mean"] == pytest.approx(everything, rel=1e-9)
    assert {"Cycles of each chain", "NLL (nats)", "Error (%)"} <= shown(drawing)


def test_single_samples_are_a_band(atmc: RunData) -> None:
    samples_table(atmc.store, atmc.comparison)
    drawing = drawing_of(RunData(atmc.store, atmc.comparison), "cycles")
    values = [metric("nll", g, c, i) for g in range(2) for c in range(2) for i in range(4)]
    for row in rows_of(drawing, metric="nll"):
        assert row["single_mean"] == pytest.approx(np.mean(values))
        assert row["single_sd"] == pytest.approx(np.std(values, ddof=1))
    assert "single samples, mean ± sd" in shown(drawing) and "Bands: single samples" in drawing.caption


def test_cycles_are_shown_where_somebody_asked_or_the_paper_did(tmp_path: Path, entropic: RunData) -> None:
    assert FIGURES["cycles"](entropic) is None  # no cycles
    comparison = runs.single(sampler="sgld", schedule="cyclical")
    store = runs.store_run(tmp_path, comparison)
    assert FIGURES["cycles"](RunData(store, comparison)) is None
    samples_table(store, comparison)
    found = rows_of(drawing_of(RunData(store, comparison), "cycles"), metric="error")
    assert [row["cycles"] for row in found] == [1, 2]  # of two samples each
    blocks = runs.mixture(sampler=("sgnht",), schedule=("cyclical",), chains=2, cycles=2, steps=600)
    of_blocks = runs.store_run(tmp_path, blocks, name="blocks", progress=False)
    assert FIGURES["cycles"](RunData(of_blocks, blocks)) is None  # two blocks, but not of a cycle each


# Gradients


def test_losses_stand_at_the_gradients_that_they_cost(entropic: RunData) -> None:
    drawing = drawing_of(entropic, "gradients")
    cost = {kind: samplers.KINDS[kind].gradients_per_step for kind in ("sgld", "entropy-sgd", "sam")}
    assert cost == {"sgld": 1, "entropy-sgd": 1, "sam": 2}  # a step of Entropy-SGD is one inner step
    for arm in entropic.comparison.arms:
        found = rows_of(drawing, arm=arm.name, of="training", metric="nll")
        per_epoch = 500 * cost[arm.sampler]
        assert [row["gradients"] for row in found] == [per_epoch * (e + 1) for e in range(8 // cost[arm.sampler])]
        records = [
            [r["loss"] for r in entropic.chain(spec.digest).progress()] for group in arm.chains for spec in group
        ]
        np.testing.assert_allclose([row["mean"] for row in found], np.mean(records, axis=0), rtol=1e-9)
        np.testing.assert_allclose([row["sd"] for row in found], np.std(records, axis=0, ddof=1), rtol=1e-7)
    assert {"Training NLL (nats)", "Gradient evaluations of a chain", "SAM constant, 2 chains"} <= shown(drawing)
    assert "evaluate RUN --views samples" in drawing.caption


def test_samples_stand_where_their_chain_was(entropic: RunData) -> None:
    samples_table(entropic.store, entropic.comparison)
    train = RunStore(entropic.store.root, f"{entropic.store.name}-train")
    samples_table(train, entropic.comparison)
    drawing = drawing_of(RunData(entropic.store, entropic.comparison), "gradients")
    for arm in entropic.comparison.arms:
        spec = arm.chains[0][0]
        kept = [k for k in range(1, spec.steps + 1) if schedules.build(spec.schedule).at(k).keep]
        cost = samplers.KINDS[arm.sampler].gradients_per_step
        for of in ("test", "training"):
            found = rows_of(drawing, arm=arm.name, of=of, metric="error")
            assert [row["gradients"] for row in found] == [k * cost * 50 for k in kept]
            each = [[metric("error", g, c, i) for g in range(2) for c in range(2)] for i in range(len(kept))]
            np.testing.assert_allclose([row["mean"] for row in found], np.mean(each, axis=1))
        nll = rows_of(drawing, arm=arm.name, of="training", metric="nll")  # the samples' own, not the minibatches'
        assert len(nll) == len(kept) and nll[0]["mean"] == pytest.approx(100 * found[0]["mean"])
    assert {"Training error (%)", "Test error (%)", "Test NLL (nats)", "Training NLL (nats)"} <= shown(drawing)


def test_gradients_are_not_shown_where_all_cost_the_same(tmp_path: Path) -> None:
    comparison = runs.digits()
    assert FIGURES["gradients"](RunData(RunStore(runs.Storage(tmp_path), "none"), comparison)) is None
    single = runs.single(sampler="sam", samples_per_cycle=1)
    assert FIGURES["gradients"](RunData(RunStore(runs.Storage(tmp_path), "none"), single)) is None
