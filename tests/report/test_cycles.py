"""The figures of cycles and of gradients: their numbers are those of the run's tables, and they stay away where they say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains import samplers, schedules
from raychains.experiments import comparisons
from raychains.options import Compare
from raychains.planning import Comparison
from raychains.report import results
from raychains.report.figures import MAKERS
from raychains.report.material import Material
from raychains.report.style import LIGHT, Drawing, laid_out
from raychains.store import RunStore
from tests.report import runs

SMALL: dict[str, Any] = {"epochs": 8, "chains": 2, "repeats": 2, "task_settings": ("hidden=[6]",)}


def metric(name: str, repeat: int, position: int, index: int) -> float:
    """Made numbers of a sample, all different and of both metrics."""
    return (1.0 if name == "nll" else 0.01) * (1 + index + 0.1 * position + 0.03 * repeat)


def samples_table(store: RunStore, comparison: Comparison) -> None:
    """A views.parquet of single samples with `metric` as their values, θ's alone."""
    rows = []
    for arm in comparison.arms:
        for group, chains in enumerate(arm.chains):
            for position, spec in enumerate(chains):
                for index in range(schedules.build(spec.schedule).kept):
                    rows.append(
                        {
                            "arm": arm.name, "group": group, "repeat": group, "view": f"sample:{position}:{index}:theta",
                            "kind": "samples", "weighting": "equal", "samples": 1, "chains": 1,
                            "error": metric("error", group, position, index), "nll": metric("nll", group, position, index),
                        }
                    )  # fmt: skip
    results.write_rows(store, "views", rows)


@pytest.fixture(scope="module")
def atmc(tmp_path_factory: pytest.TempPathFactory) -> Material:
    comparison = comparisons.compare(Compare(preset="atmc-cycles", **{**SMALL, "cycles": 4})).comparison
    return Material(runs.store_run(tmp_path_factory.mktemp("atmc"), comparison), comparison)


@pytest.fixture(scope="module")
def entropic(tmp_path_factory: pytest.TempPathFactory) -> Material:
    options = Compare(sampler=("sgld", "entropy-sgd", "sam"), schedule=("constant",), **SMALL)
    comparison = comparisons.compare(options).comparison
    return Material(runs.store_run(tmp_path_factory.mktemp("entropic"), comparison), comparison)


def drawn(name: str, material: Material) -> Drawing:
    drawing = MAKERS[name](material)
    assert drawing is not None
    return drawing


def labels(drawing: Drawing) -> set[str]:
    """Of the axes that are shown, and of the legend."""
    with laid_out(drawing, LIGHT) as figure:
        axes = [a for a in figure.axes if a.axison]
        found = {text for a in axes for text in (a.get_xlabel(), a.get_ylabel()) if text}
        return found | {t.get_text() for legend in figure.legends for t in legend.get_texts()}


def rows_of(drawing: Drawing, **fields: Any) -> Sequence[Any]:
    return [row for row in drawing.data if all(row[k] == v for k, v in fields.items())]


# Cycles


def test_ensembles_of_whole_cycles_are_the_curves_prefixes(atmc: Material) -> None:
    drawing = drawn("cycles", atmc)
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
    assert {"Cycles of each chain", "NLL (nats)", "Error (%)"} <= labels(drawing)


def test_single_samples_are_a_band(atmc: Material) -> None:
    samples_table(atmc.store, atmc.comparison)
    drawing = drawn("cycles", Material(atmc.store, atmc.comparison))
    values = [metric("nll", g, c, i) for g in range(2) for c in range(2) for i in range(4)]
    for row in rows_of(drawing, metric="nll"):
        assert row["single_mean"] == pytest.approx(np.mean(values))
        assert row["single_sd"] == pytest.approx(np.std(values, ddof=1))
    assert "single samples, mean ± sd" in labels(drawing) and "Bands: single samples" in drawing.caption


def test_cycles_are_shown_where_somebody_asked_or_the_paper_did(tmp_path: Path, entropic: Material) -> None:
    assert MAKERS["cycles"](entropic) is None  # no cycles
    comparison = runs.single(sampler="sgld", schedule="cyclical")
    store = runs.store_run(tmp_path, comparison)
    assert MAKERS["cycles"](Material(store, comparison)) is None
    samples_table(store, comparison)
    found = rows_of(drawn("cycles", Material(store, comparison)), metric="error")
    assert [row["cycles"] for row in found] == [1, 2]  # of two samples each


# Gradients


def test_losses_stand_at_the_gradients_that_they_cost(entropic: Material) -> None:
    drawing = drawn("gradients", entropic)
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
    assert {"Training NLL (nats)", "Gradient evaluations of a chain", "SAM constant, 2 chains"} <= labels(drawing)
    assert "evaluate RUN --views samples" in drawing.caption


def test_samples_stand_where_their_chain_was(entropic: Material) -> None:
    samples_table(entropic.store, entropic.comparison)
    train = RunStore(entropic.store.root, f"{entropic.store.name}-train")
    samples_table(train, entropic.comparison)
    drawing = drawn("gradients", Material(entropic.store, entropic.comparison))
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
    assert {"Training error (%)", "Test error (%)", "Test NLL (nats)", "Training NLL (nats)"} <= labels(drawing)


def test_gradients_are_not_shown_where_all_cost_the_same(tmp_path: Path) -> None:
    comparison = runs.digits()
    assert MAKERS["gradients"](Material(RunStore(runs.Root(tmp_path), "none"), comparison)) is None
    single = runs.single(sampler="sam", samples_per_cycle=1)
    assert MAKERS["gradients"](Material(RunStore(runs.Root(tmp_path), "none"), single)) is None
