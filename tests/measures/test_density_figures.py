"""Figures of diagnostics show the tables' own numbers beside what they should be, and nothing where nothing is
known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.inference.run_data import RunData
from raychains.measures import Context, named
from raychains.report.figures import FIGURES, sections
from raychains.schedules import Cyclical
from raychains.store import RunStore, Storage
from raychains.tasks.two_modes import FLAT_CENTRE, TwoModes
from tests.measures.densities import stored
from tests.report.figures import drawing_of, drawn, labels, nothing_covered

CHAINS = 3


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """Three chains of two repeats in the flat mode, whose step size cycles."""
    rng = np.random.default_rng(0)
    schedule = Cyclical(lr=0.1, steps=800, cycles=2, exploration=0.5)
    chains = [np.array(FLAT_CENTRE) + 0.5 * rng.normal(size=(400, 2, 2)) for _ in range(CHAINS)]
    made = stored(tmp_path_factory.mktemp("made"), TwoModes(), chains, schedule=schedule)
    for measure in ("diagnostics", "reference"):
        for name, rows in named(measure).tables(made).items():
            made.store.write_table(name, rows)
    return made


@pytest.fixture(scope="module")
def material(context: Context) -> RunData:
    return RunData(context.store, context.comparison)


def table(material: RunData, name: str) -> list[dict[str, Any]]:
    found = material.store.table(name)
    assert found is not None
    return list(found.to_pylist())


def xs(axis: Any) -> list[float]:
    """Abscissas of a panel's dots; thresholds and bars have no marker."""
    dots = [line for line in axis.get_lines() if line.get_marker() not in ("None", "", None)]
    return [float(x) for line in dots for x in line.get_xdata()]


def dashed(axis: Any) -> list[float]:
    return [float(line.get_xdata()[0]) for line in axis.get_lines() if line.get_linestyle() == "--"]


def test_r_hat_and_ess_stand_beside_their_thresholds(material: RunData) -> None:
    drawing, figure = drawn(material, "mixing")
    rows = table(material, "diagnostics")
    left, right = figure.axes
    assert sorted(xs(left)) == pytest.approx(sorted(max(r["r_hat"] - 1, 1e-3) for r in rows))
    assert sorted(xs(right)) == pytest.approx(sorted(r["bulk_ess"] for r in rows))
    assert dashed(left) == pytest.approx([0.01]) and dashed(right) == [400]
    assert left.get_xlim()[0] < 0.01 < left.get_xlim()[1] and right.get_xlim()[0] < 400 < right.get_xlim()[1]
    assert {"Split R-hat   ← better", "Bulk effective sample size   → better"} <= labels(figure)
    assert "every cycle" in drawing.caption and len(drawing.data) == len(rows)
    assert {r["unit"] for r in drawing.data} == {"chain", "cycle"}


def test_traces_are_a_line_per_chain_with_the_tables_autocorrelation(material: RunData) -> None:
    drawing, figure = drawn(material, "traces")
    first, second, correlation = figure.axes
    rows = table(material, "traces")
    for axis, quantity in ((first, "log density"), (second, "theta[0]")):
        assert axis.get_ylabel() == quantity and len(axis.get_lines()) == CHAINS
        for c, line in enumerate(axis.get_lines()):
            mine = [r["value"] for r in rows if r["quantity"] == quantity and r["chain"] == c]
            assert list(line.get_ydata()) == mine and len(mine) == 400
    lags = [r["value"] for r in table(material, "autocorrelation") if r["quantity"] == "theta[0]"]
    assert list(correlation.get_lines()[2].get_ydata()) == lags
    assert len({line.get_color() for line in first.get_lines()}) == CHAINS
    assert {"Kept draw", "Lag (draws)", "Autocorrelation"} <= labels(figure)
    assert {r["quantity"] for r in drawing.data} == {"log density", "theta[0]"}


def test_masses_stand_beside_the_exact_ones(material: RunData) -> None:
    drawing, figure = drawn(material, "modes")
    (axis,) = figure.axes
    rows = table(material, "modes")
    heights = [line.get_ydata().tolist() for line in axis.get_lines() if line.get_marker() == "o"]
    assert heights == [[r["share"] for r in rows if r["number"] == k] for k in (0, 1)]
    exact = [line.get_ydata()[0] for line in axis.get_lines() if line.get_linestyle() == "--"]
    assert exact == pytest.approx([1 / 26, 25 / 26])
    assert [t.get_text() for t in axis.get_xticklabels()] == ["sharp", "flat"]
    assert "blind" in drawing.caption and len(drawing.data) == 4


def test_temperatures_have_their_errors_and_what_was_set(material: RunData) -> None:
    drawing, figure = drawn(material, "temperatures")
    rows = table(material, "temperatures")
    (axis,) = figure.axes
    assert sorted(xs(axis)) == pytest.approx(sorted(r["estimate"] for r in rows))
    (bars,) = axis.collections
    assert [float(s[1][0] - s[0][0]) / 2 for s in bars.get_segments()] == pytest.approx([r["error"] for r in rows])
    assert dashed(axis) == [1.0]
    assert "Kinetic" in drawing.caption and len(drawing.data) == 2


def test_temperatures_far_apart_are_on_a_log_axis_with_plain_numbers(context: Context, tmp_path: Path) -> None:
    store = RunStore(Storage(tmp_path), "far")
    rows = [
        {**r, "kind": kind, "estimate": r["estimate"] * factor}
        for r in table(RunData(context.store, context.comparison), "temperatures")
        for kind, factor in (("configurational", 1e-3), ("configurational", 1.0), ("kinetic", 1.0))
    ]
    store.write_table("temperatures", rows)
    _, figure = drawn(RunData(store, context.comparison), "temperatures")
    configurational, kinetic = figure.axes
    assert configurational.get_xscale() == "log" and kinetic.get_xscale() == "linear"
    figure.canvas.draw()
    texts = [t.get_text() for axis in figure.axes for t in axis.get_xticklabels()]
    assert "0.01" in texts and not any("$" in t for t in texts)


def test_distances_say_what_they_are(material: RunData) -> None:
    drawing, figure = drawn(material, "reference")
    rows = table(material, "reference")
    by_label = {axis.get_xlabel(): axis for axis in figure.axes}
    w2 = by_label["W₂ between fitted Gaussians   ← better"]
    assert sorted(xs(w2)) == pytest.approx(sorted(r["gaussian_w2"] for r in rows))
    ksd = by_label["Kernel Stein discrepancy (blind to mode weights)\n← better"]
    assert dashed(ksd) == [] and sorted(xs(ksd)) == pytest.approx(sorted(r["ksd"] for r in rows))
    assert dashed(by_label["Draws' sd over the reference's (median)"]) == [1.0]
    assert "fitted" in drawing.caption and "inverse multiquadric" in drawing.caption


@pytest.mark.parametrize("name", sections()["Diagnostics"])
def test_legends_cover_no_panel(material: RunData, name: str) -> None:
    nothing_covered(drawing_of(material, name))


def test_nothing_is_drawn_of_what_is_not_known(tmp_path: Path, context: Context) -> None:
    empty = stored(tmp_path, TwoModes(), [np.zeros((3, 1, 2))])
    material = RunData(empty.store, empty.comparison)
    written: Mapping[str, Sequence[Mapping[str, Any]]] = named("diagnostics").tables(empty)
    for name, rows in written.items():
        empty.store.write_table(name, rows)
    assert FIGURES["mixing"](material) is None and FIGURES["traces"](material) is None, "three draws"
