"""A sweep's figures: what is drawn is what the tables say, what did not finish is hatched, legends cover nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Annotation

from raychains.evaluation.evaluation import Metric
from raychains.inference.sweep_data import Sweep
from raychains.plotting.style import DARK, PAPER, Drawing, laid_out
from raychains.report.sweep import curves, heat
from tests.report.figures import nothing_covered
from tests.report.swept import BETAS, FAILED, GRADIENTS, MS, SAMPLERS, STOPPED, WAITING, drawn, sweep, value

NLL = Metric(name="nll", label="NLL", better="lower")
ACCURACY = Metric(name="accuracy", label="Accuracy", better="higher")

# The map


@pytest.fixture(scope="module")
def grid() -> Iterator[tuple[Sweep, Drawing, Figure]]:
    """The map of β × M."""
    made = sweep()
    drawing = heat.drawing(made)
    assert drawing is not None
    with laid_out(drawing) as figure:
        yield made, drawing, figure


def place(beta: float, m: int) -> tuple[int, int]:
    return MS.index(m), BETAS.index(beta)


def test_cells_hold_the_mean_of_their_repeats(grid: tuple[Sweep, Drawing, Figure]) -> None:
    _, drawing, figure = grid
    [axis] = figure.axes
    found = {note.xy: note.get_text() for note in axis.texts if isinstance(note, Annotation)}
    for beta, m in itertools.product(BETAS, MS):
        both = [value(beta, m, repeat=r) for r in range(2)]
        if (beta, m) == FAILED:
            assert place(beta, m) not in found
            continue
        expected = both[0] if (beta, m) == WAITING else sum(both) / 2  # of the repeats that finished
        expected += 0.1 * (1 - 2 / 8) if (beta, m) == STOPPED else 0.0
        assert found[place(beta, m)] == f"{expected:.4f}"
    assert [t.get_text() for t in axis.get_xticklabels()] == ["2", "4", "8"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["0", "0.25", "0.5"]
    table = pd.DataFrame(drawing.data)
    assert len(table) == 9 and table[table["best"]][["exploration", "cycles"]].to_numpy().tolist() == [[0.25, 4]]
    se = 0.004 / math.sqrt(2) / math.sqrt(2)  # two values .004 apart
    assert table.loc[table["status"] == "finished", "se"].to_numpy() == pytest.approx(se)


def test_only_what_did_not_finish_is_hatched_and_the_best_is_framed(grid: tuple[Sweep, Drawing, Figure]) -> None:
    made, _, figure = grid
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    hatched = {tuple(p.get_center()): p.get_hatch() for p in boxes if p.get_hatch()}
    cut = {"stopped": STOPPED, "failed": FAILED, "waiting": WAITING}
    assert hatched == {place(*point): heat.HATCHES[status] for status, point in cut.items()}
    assert len(set(hatched.values())) == 3
    shown = {h.get_hatch(): h.get_label() for h in figure.legends[0].legend_handles if isinstance(h, Patch)}
    assert shown == {"////": "stopped by the scheduler", "xxxx": "failed", "....": "not finished"}
    assert {tuple(p.get_center()) for p in boxes if p.get_gid() == "best"} == {place(0.25, 4)}
    assert made.points.loc[made.best, ["exploration", "cycles"]].tolist() == [0.25, 4]
    plain = dataclasses.replace(made, results=made.results[made.results["status"] == "finished"])
    assert not heat.drawing(plain).draw().legends  # type: ignore[union-attr]


def test_panels_have_the_best_and_the_mean_of_whole_chains(grid: tuple[Sweep, Drawing, Figure]) -> None:
    def worth(beta: float, m: int) -> list[float]:
        if (beta, m) in (STOPPED, FAILED):
            return []
        return [value(beta, m)] if (beta, m) == WAITING else [np.mean([value(beta, m, repeat=r) for r in range(2)])]

    drawing = heat.options(grid[0])
    assert drawing is not None
    by_beta = [[v for m in MS for v in worth(b, m)] for b in BETAS]
    by_m = [[v for b in BETAS for v in worth(b, m)] for m in MS]
    for axis, values in zip(drawing.draw().axes, (by_beta, by_m), strict=True):
        dots, _, best, mean, ring = axis.lines
        assert sorted(dots.get_ydata()) == pytest.approx(sorted(itertools.chain(*values)))
        assert best.get_ydata() == pytest.approx([min(v) for v in values])
        assert mean.get_ydata() == pytest.approx([np.mean(v) for v in values])
        assert ring.get_gid() == "best" and ring.get_ydata() == pytest.approx([min(map(min, values))])


def contrast(one: Any, other: Any) -> float:
    """WCAG's contrast ratio of two colours, from 1 to 21."""
    a, b = sorted(luminance(colour) for colour in (one, other))
    return (b + 0.05) / (a + 0.05)


def luminance(colour: Any) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("paper", [PAPER, DARK[PAPER]], ids=["light", "dark"])
def test_numbers_are_readable_and_shades_tell_better_from_worse(paper: str) -> None:
    colours = heat.colours(NLL)
    steps = [colours(v) for v in np.linspace(0, 1, 64)]
    assert min(contrast(heat.readable(s), s) for s in steps) >= 4.5
    light = [luminance(s) for s in steps]
    assert all(b > a for a, b in itertools.pairwise(light)) or all(b < a for a, b in itertools.pairwise(light))
    assert min(contrast(s, paper) for s in steps) > 1.5
    assert heat.colours(ACCURACY)(1.0) == colours(0.0)


def points(whole: list[float], stopped: list[float], metric: Metric) -> pd.DataFrame:
    return pd.DataFrame({metric.name: [*whole, *stopped], "whole": [True] * len(whole) + [False] * len(stopped)})


def test_one_value_far_out_leaves_the_others_their_colours() -> None:
    norm = heat.span(points([0.1, 0.2, 0.3, 50.0], [], NLL), NLL)
    assert norm(0.3) - norm(0.1) > 0.4 and norm(50.0) == 1.0
    assert heat.span(points([0.1, 0.2, 0.3], [], NLL), NLL).vmax == 0.3
    assert heat.span(points([0.5], [], NLL), NLL)(0.5) == 0.0


def test_points_that_were_stopped_leave_whole_chains_their_colours() -> None:
    norm = heat.span(points([0.20, 0.21, 0.24], [0.5, 0.6, 0.7, 1.5, 2.0, 9.0], NLL), NLL)
    assert (norm.vmin, norm.vmax) == pytest.approx((0.20, 0.23))
    norm = heat.span(points([0.90, 0.89, 0.88], [0.1, 0.2, 0.3, 0.4, 0.5], ACCURACY), ACCURACY)
    assert (norm.vmin, norm.vmax) == pytest.approx((0.87, 0.90))
    assert heat.span(points([0.2], [0.5, 0.8], NLL), NLL).vmax == 0.8  # one whole chain says nothing of a range


# The other figures


def test_the_error_against_m_has_a_line_per_sampler_at_its_own_best_beta() -> None:
    made = sweep(SAMPLERS)
    drawing = curves.cycles(made)
    assert drawing is not None
    found = pd.DataFrame(drawing.data)
    assert found["sampler"].unique().tolist() == list(SAMPLERS)
    assert set(found["setting"].str[-10:]) == {"(β = 0.25)"}
    for sampler, line in found.groupby("sampler"):
        there = [x for x in MS if not (sampler == "csghmc" and (0.25, x) in (STOPPED, FAILED))]
        assert line["cycles"].tolist() == there
        values = [np.array([value(0.25, x, str(sampler), r) for r in range(2)]) / 5 for x in there]
        whole = [v for v, x in zip(values, there, strict=True) if (0.25, x) != WAITING or sampler != "csghmc"]
        assert line["mean"].tolist()[: len(whole)] == pytest.approx([v.mean() for v in whole])
        assert line["se"].tolist()[: len(whole)] == pytest.approx([v.std(ddof=1) / math.sqrt(2) for v in whole])
    figure = drawing.draw()
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == ["cSGHMC (β = 0.25)", "Snapshot-SGDM (β = 0.25)"]
    (axis,) = figure.axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("Number of cycles M", "Error (%), validation")
    thick = [line.get_ydata() for line in axis.lines if line.get_marker() != "None"]
    assert thick[1] == pytest.approx(
        [100 * np.mean([value(0.25, m, SAMPLERS[1], r) for r in range(2)]) / 5 for m in MS]
    )
    assert curves.cycles(drawn()) is None


def test_learning_curves_are_the_reports_and_end_in_a_mark_where_they_were_stopped() -> None:
    made = sweep()
    drawing = curves.progress(made)
    assert drawing is not None
    found = {int(n): curve for n, curve in pd.DataFrame(drawing.data).groupby("point")}
    points = {n: (p["exploration"], p["cycles"]) for n, p in made.points.iterrows()}
    assert sorted(found) == sorted(n for n, point in points.items() if point != FAILED)
    for number, curve in found.items():
        beta, m = points[number]
        assert curve["gradients"].tolist() == [GRADIENTS * (c + 1) // m for c in range(len(curve))]
        assert len(curve) == (2 if (beta, m) == STOPPED else m)
        repeats = curve["repeats"].tolist()
        assert repeats == ([2] * 4 + [1] * 4 if (beta, m) == WAITING else [2] * len(curve))
        first = np.mean([value(beta, m, repeat=r) for r in range(2)]) + 0.1 * (1 - 1 / m)
        assert curve["mean"].iloc[0] == pytest.approx(first)
    (axis,) = drawing.draw().axes
    marks = [line.get_xydata().tolist() for line in axis.lines if line.get_marker() == "x"]
    stopped = found[BETAS.index(0.0) * 3 + MS.index(8)].iloc[-1]
    assert marks == [[[stopped["gradients"], pytest.approx(stopped["mean"])]]]


def test_random_points_are_dots_with_the_best_ringed_and_every_option_has_a_panel() -> None:
    made = drawn()
    drawing, panels = heat.drawing(made), heat.options(made)
    assert drawing is not None and panels is not None
    [axis] = drawing.draw().axes
    assert axis.get_yscale() == "log" and not axis.texts
    points, places = made.points, [line.get_xydata()[0].tolist() for line in axis.lines if line.get_gid() != "best"]
    assert sorted(places) == sorted(points[["temperature", "lr"]].astype(float).to_numpy().tolist())
    [ring] = [line for line in axis.lines if line.get_gid() == "best"]
    best = points[points["status"] == "finished"]["nll"].idxmin()
    assert made.best == best and ring.get_xydata()[0].tolist() == points.loc[best, ["temperature", "lr"]].tolist()
    axes = panels.draw().axes
    assert [a.get_xlabel() for a in axes] == ["Step size lr", "Temperature T", "Schedule"]
    for axis in axes:
        whole, stopped = axis.lines[:2]
        assert whole.get_ydata() == pytest.approx(points.loc[points["whole"], "nll"])
        assert len(stopped.get_ydata()) == 1 and axis.get_yscale() == "log"  # one value is ten times the others
    assert {t.get_text() for t in axes[2].get_xticklabels()} == {"constant", "cyclical"}


def test_legends_cover_nothing_and_all_lies_on_the_paper(grid: tuple[Sweep, Drawing, Figure]) -> None:
    made, random = sweep(SAMPLERS), drawn()
    others = [curves.cycles(made), curves.progress(made), heat.drawing(random), heat.options(random)]
    for drawing in (grid[1], heat.options(made), *others):
        assert drawing is not None
        nothing_covered(drawing)
