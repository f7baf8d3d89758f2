"""Views and weights on the page: numbers are those of the views, lines are at the ensembles, warnings are given."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raychains.core.errors import UserError
from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.measures import Measure
from raychains.planning import Comparison
from raychains.planning.views import Request, View
from raychains.plotting.style import laid_out
from raychains.report import run_tables
from raychains.report.figures import BUILT_IN, FIGURES, sections
from raychains.store import RunStore, Storage
from tests.report import runs
from tests.report.figures import drawing_of, nothing_covered
from tests.report.test_page import Page, draw


def result(arm: int, group: int, view: View, samples: int, weighting: str = "equal", **metrics: float) -> Any:
    request = Request(arm=arm, group=group, view=view, weighting=weighting)
    return SimpleNamespace(request=request, samples=samples, chains=1, metrics=[metrics], rows={})


def numbers(seed: int) -> dict[str, float]:
    error, nll = np.random.default_rng(seed).uniform([0.1, 0.5], [0.4, 1.5])
    return {"error": float(error), "nll": float(nll)}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Comparison]:
    """Two arms; of the first, views of all kinds and of two weightings, of the second only single samples."""
    whole = runs.digits(sampler=("sghmc",))
    two = dataclasses.replace(whole, arms=(whole.arms[0], whole.arms[3]))
    comparison = runs.altered(two, _0={"label": "<b>parallel</b>"})
    store = runs.store_run(tmp_path_factory.mktemp("views"), comparison)
    found = [
        result(0, 0, View(), 8, error=0.2, nll=0.9),
        result(0, 1, View(), 8, error=0.3, nll=1.1),
        result(0, 0, View(), 8, "harmonic", error=0.22, nll=0.95),
        result(0, 0, View(name="first:3", kind="first", first=3), 3, **numbers(1)),
    ]
    for g, c in itertools.product(range(2), range(2)):
        found.append(result(0, g, View(name=f"chain:{c}", kind="chains", chain=c), 4, **numbers(10 + 2 * g + c)))
    for i in range(5):
        found.append(result(1, 0, View(name=f"sample:0:{i}:theta", kind="samples"), 1, **numbers(30 + i)))
    # Of ten examples two are wrong: the ensemble of the first repeat has an interval.
    known = {"label": np.zeros(10, int), "prediction": np.arange(10) // 8, "confidence": np.full(10, 0.5)}
    found[0].rows = {**known, "log_p_label": np.full(10, -0.9)}
    results.write_views(store, comparison, found, 15)
    return store, comparison


@pytest.fixture(scope="module")
def page(stored: tuple[RunStore, Comparison]) -> Page:
    store, comparison = stored
    store.write_table("weights", [weight(comparison, 0, c, 0.5, 0.5) for c in range(2)])
    return draw(store, comparison)


def test_views_are_stored_with_a_row_per_view_and_repeat(stored: tuple[RunStore, Comparison]) -> None:
    store, comparison = stored
    found = RunData(store, comparison).views
    assert results.DESCRIBES["views"] <= set(found.columns) and len(found) == 13
    row = found[(found["view"] == "chain:1") & (found["group"] == 1)].iloc[0]
    assert row["arm"] == comparison.arms[0].name and row["repeat"] == 1 and row["kind"] == "chains"
    assert row["error"] == numbers(13)["error"] and np.isnan(row["error_low"])  # no interval: null, not 0
    whole = found[(found["kind"] == "all") & (found["weighting"] == "equal") & (found["group"] == 0)].iloc[0]
    assert whole["error_low"] < whole["error"] == 0.2 < whole["error_high"]


def test_the_views_table_shows_mean_and_range_of_every_kind(stored: tuple[RunStore, Comparison]) -> None:
    store, comparison = stored
    made = run_tables.views(RunData(store, comparison))
    assert made is not None
    assert [text for (text,) in made.columns] == ["View", "Views", "Samples in each", "Error (%) ↓", "NLL (nats) ↓"]
    rows = {row.cells[0].text: (row.heads[0], [cell.text for cell in row.cells]) for row in made.rows}
    assert list(rows) == [
        "all samples",
        "all samples, harmonic weights",
        "first 3 samples",
        "each chain",
        "single samples",
    ]
    whole = ["all samples", "1", "8", "25.00 (20.00 – 30.00)", "1.0000 (0.9000 – 1.1000)"]
    assert rows["all samples"] == ("<b>parallel</b>", whole)
    chains = [100 * numbers(10 + k)["error"] for k in range(4)]
    assert rows["each chain"][1][1:4] == ["2", "4", f"{np.mean(chains):.2f} ({min(chains):.2f} – {max(chains):.2f})"]
    assert rows["single samples"][0] == comparison.arms[1].label
    one = numbers(1)
    assert rows["first 3 samples"][1][3:] == [f"{100 * one['error']:.2f}", f"{one['nll']:.4f}"]


def test_the_figure_puts_dots_at_the_views_and_lines_at_the_ensembles(stored: tuple[RunStore, Comparison]) -> None:
    material = RunData(*stored)
    drawing = drawing_of(material, "views")
    assert len(drawing.data) == 13
    nothing_covered(drawing)
    row = next(r for r in drawing.data if r["kind"] == "all" and r["weighting"] == "equal" and r["group"] == 0)
    interval = [100 * row["error_low"], 100 * row["error_high"]]
    with laid_out(drawing) as figure:
        axis: Any = figure.axes[1]
        assert axis.get_xlabel() == "NLL (nats)   ← better"
        drawn = [sorted(line.get_xdata()) for line in axis.lines if line.get_marker() == "o"]
        chains = sorted(numbers(10 + k)["nll"] for k in range(4))
        assert any(values == pytest.approx(chains) for values in drawn if len(values) == 4)
        error = figure.axes[0].collections
        assert len(error) == 1 and error[0].get_segments()[0][:, 0].tolist() == pytest.approx(interval)
        upright = [
            line.get_xdata()[0] for line in axis.lines if line.get_marker() != "o" and len(set(line.get_xdata())) == 1
        ]
        # The first arm's ensemble is among its views; the second's is what the run's own results say.
        alone = material.of(material.results, material.comparison.arms[1])["nll"].mean()
        assert sorted(upright) == pytest.approx(sorted([1.0, alone]))


def test_a_run_without_views_has_neither_table_nor_figure(tmp_path: Path) -> None:
    comparison = runs.single(repeats=1)
    store = runs.store_run(tmp_path, comparison, progress=False)
    material = RunData(store, comparison)
    assert (
        run_tables.views(material) is None
        and FIGURES["views"](material) is None
        and FIGURES["weights"](material) is None
    )
    results.write_views(store, comparison, [result(0, 0, View(), 8, error=0.2, nll=0.9)], 15)
    material = RunData(store, comparison)
    assert run_tables.views(material) is not None  # the one row
    assert FIGURES["views"](material) is None  # which no figure needs


def test_a_damaged_views_table_is_said_in_one_line(stored: tuple[RunStore, Comparison], tmp_path: Path) -> None:
    store, _ = stored
    damaged = RunStore(store.root, "damaged")
    for rows in ([{"arm": "a", "view": "all"}], [{**dict.fromkeys(results.DESCRIBES["views"], 1), "error": "much"}]):
        damaged.write_table("views", rows)
        with pytest.raises(UserError, match=r"run damaged: views\.parquet is damaged; evaluate the run") as told:
            results.read(damaged, "views")
        assert "\n" not in str(told.value)


# Weights


def weight(arm: Comparison, chain: int, cycle: int, weight: float, dominance: float, **change: Any) -> dict[str, Any]:
    row = {"arm": arm.arms[0].name, "group": 0, "repeat": 0, "weighting": "harmonic", "chain": chain, "cycle": cycle}
    row |= {"index": -1, "samples": 4, "weight": weight, "log_evidence": -10.0, "dominance": dominance}
    return {**row, **change}


def test_weights_of_samples_add_up_to_their_cycles_and_dominated_sums_are_warned_of(
    stored: tuple[RunStore, Comparison],
) -> None:
    store, comparison = stored
    rows = [
        weight(comparison, 0, 0, 0.7, 0.05),
        weight(comparison, 0, 1, 0.2, 0.11),
        weight(comparison, 1, 0, 0.1, 0.31),
    ]
    nan = float("nan")
    for i, share in enumerate((0.1, 0.2, 0.3, 0.4)):
        rows.append(weight(comparison, 0, i // 3, share, nan, weighting="stacking", index=i, samples=1))
    store.write_table("weights", rows)
    material = RunData(store, comparison)
    drawing = drawing_of(material, "weights")
    shares = pd.DataFrame(drawing.data).set_index(["weighting", "chain", "cycle"])
    assert shares.loc[("stacking", 0, 0), "share"] == pytest.approx(0.6)
    assert shares.loc[("stacking", 0, 1), "share"] == pytest.approx(0.4)
    assert shares.loc[("stacking", 0, 0), "equal"] == pytest.approx(0.75)  # three of its four samples
    assert (
        "Warning: <b>parallel</b>, harmonic: in 2 of 3 sums one draw carries more than 10% (up to 31%)"
        in drawing.caption
    )
    assert "stacking" not in drawing.caption.partition("Warning")[2]
    with laid_out(drawing) as figure:
        axis = figure.axes[0]
        rings = [line for line in axis.lines if line.get_markerfacecolor() == "none"]
        assert [sorted(line.get_ydata()) for line in rings] == [[0.1, 0.2]]
        assert {text.get_text() for text in axis.get_xticklabels()} == {"0:0", "0:1", "1:0"}
        labels = {text.get_text() for text in figure.legends[0].get_texts()}
        assert labels == {"harmonic", "stacking", "equal weights", "one draw carries > 10%"}


def test_sums_that_no_draw_dominates_need_no_warning(stored: tuple[RunStore, Comparison], tmp_path: Path) -> None:
    store, comparison = stored
    calm = RunStore(store.root, "calm")
    calm.write_table("weights", [weight(comparison, 0, c, 0.5, 0.1) for c in range(2)])
    drawing = drawing_of(RunData(calm, comparison), "weights")
    assert "Warning" not in drawing.caption
    assert "one draw carries > 10%" not in nothing_covered(drawing)


def test_views_and_weights_are_on_the_page_and_their_names_are_no_markup(page: Page) -> None:
    assert {"views", "weights"} <= page.figures()
    assert "<b>" not in page.html and page.text.count("<b>parallel</b>") >= 4
    assert "all samples, harmonic weights" in page.text and "Warning: <b>parallel</b>" in page.text


# Tables of analyses


def test_rows_keep_the_columns_of_all_rows(tmp_path: Path) -> None:
    store = RunStore(Storage(tmp_path), "made")
    store.write_table("made", [{"name": "a", "x": 1}, {"name": "b", "y": np.float32(2.5)}])
    found = results.read_rows(store, "made", texts=("name",), numbers=("x", "y"))
    assert found is not None and found["name"].tolist() == ["a", "b"]
    assert found["x"].tolist()[0] == 1 and np.isnan(found["x"][1]) and np.isnan(found["y"][0]) and found["y"][1] == 2.5
    assert results.read_rows(store, "nothing") is None
    store.write_table("empty", [])
    assert results.read_rows(store, "empty", numbers=("x",)) is None
    for wrong in ({"numbers": ("z",)}, {"numbers": ("name",)}, {"texts": ("x",)}):
        with pytest.raises(UserError, match=r"made\.parquet is damaged"):
            results.read_rows(store, "made", **wrong)  # type: ignore[arg-type]


# The page's order and its second table


def test_every_figure_stands_under_one_heading() -> None:
    own = Measure(name="mine", about="", tables=lambda context: {}, figures={"mine": lambda run: None})
    listed = [name for makers in sections([own]).values() for name in makers]
    assert sorted(listed) == sorted([*FIGURES, "mine"]) and list(sections([own])) == [*BUILT_IN, "Measures"]


def test_minor_metrics_stand_in_a_second_table_only(stored: tuple[RunStore, Comparison], page: Page) -> None:
    material = RunData(*stored)
    minor = material.minor
    assert minor and not {m.name for m in material.metrics} & {m.name for m in minor}
    second = run_tables.minor(material)
    assert second is not None and second.columns == [(run_tables.head(m),) for m in minor]
    assert not set(second.columns) & set(run_tables.comparison(material)[0].columns)
    for arm, row in zip(material.comparison.arms, second.rows, strict=True):
        for metric, cell in zip(minor, row.cells, strict=True):
            mean = material.of(material.results, arm)[metric.name].mean() * metric.scale
            assert cell.text.startswith(f"{mean:.{metric.digits}f}")
            assert not (cell.best and metric.better == "neither")
    assert "Further measures" in page.text


def test_a_list_of_figures_begins_where_there_are_more_than_six(page: Page) -> None:
    links = {a["href"] for a in page.attributes("a") if (a["href"] or "").startswith("#")}
    assert len(page.figures()) > 6 and links == {f"#{name}" for name in page.figures()}
