"""A sweep's figures: what is drawn is what the tables say, what did not finish is hatched, legends cover nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from raychains.evaluation.base import Metric
from raychains.report.style import DARK, LIGHT, laid_out
from raychains.report.sweeps import curves, cycles, heat, margins, shades
from raychains.report.sweeps.material import Sweep
from tests.report.swept import BEST, BETAS, FAILED, GRADIENTS, MS, SAMPLERS, STOPPED, WAITING, drawn, sweep, value

# The map


@pytest.fixture(scope="module")
def main() -> Iterator[tuple[Sweep, dict[str, Any]]]:
    """The map of β × M in the light theme: its texts, patches and marginal lines."""
    made = sweep()
    drawing = heat.drawing(made)
    assert drawing is not None
    with laid_out(drawing, LIGHT) as figure:
        axes = {axis.get_label(): axis for axis in figure.axes}
        yield made, {"figure": figure, "drawing": drawing, **axes}


def texts(axis: Axes) -> dict[tuple[int, int], str]:
    return {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in axis.texts}


def boxes(axis: Axes) -> list[Rectangle]:
    return [p for p in axis.patches if isinstance(p, Rectangle)]


def test_cells_hold_the_mean_of_their_repeats(main: tuple[Sweep, dict[str, Any]]) -> None:
    found = texts(main[1]["main"])
    for (j, beta), (i, m) in itertools.product(enumerate(BETAS), enumerate(MS)):
        both = [value(beta, m, repeat=r) for r in range(2)]
        if (beta, m) == FAILED:
            assert (i, j) not in found
            continue
        expected = both[0] if (beta, m) == WAITING else sum(both) / 2  # of the repeats that finished
        expected += 0.1 * (1 - 2 / 8) if (beta, m) == STOPPED else 0.0
        assert found[i, j] == f"{expected:.4f}"
    axis = main[1]["main"]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["2", "4", "8"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["0", "0.25", "0.5"]
    table = pd.DataFrame(main[1]["drawing"].data)
    assert len(table) == 9 and table[table["best"]][["exploration", "cycles"]].to_numpy().tolist() == [[0.25, 4]]
    se = 0.004 / math.sqrt(2) / math.sqrt(2)  # two values .004 apart
    assert table.loc[table["status"] == "finished", "se"].to_numpy() == pytest.approx(se)


def test_only_what_did_not_finish_is_hatched_and_the_legend_says_so(main: tuple[Sweep, dict[str, Any]]) -> None:
    hatched = {p.get_gid(): p.get_hatch() for p in boxes(main[1]["main"]) if p.get_hatch()}
    expected = {
        f"{s}-{MS.index(m)}-{BETAS.index(b)}": s
        for s, (b, m) in (("stopped", STOPPED), ("failed", FAILED), ("waiting", WAITING))
    }
    assert hatched == {gid: shades.HATCHES[s] for gid, s in expected.items()}
    assert len(set(hatched.values())) == 3
    (legend,) = main[1]["figure"].legends
    shown = {h.get_hatch(): h.get_label() for h in legend.legend_handles if getattr(h, "get_hatch", lambda: None)()}
    assert shown == {
        "////": "stopped by the scheduler (its last value)", "xxxx": "failed", "....": "not finished (value: of its other repeats)",
    }  # fmt: skip
    plain = sweep()
    plain.results = plain.results[plain.results["status"] == "finished"]
    figure = heat.drawing(plain).draw(LIGHT)  # type: ignore[union-attr]
    assert not any(getattr(h, "get_hatch", lambda: None)() for h in figure.legends[0].legend_handles)


def test_the_frame_is_at_the_best_point(main: tuple[Sweep, dict[str, Any]]) -> None:
    frames = [p.get_xy() for p in boxes(main[1]["main"]) if p.get_gid() == "best"]
    assert frames and set(frames) == {(MS.index(4) - 0.5, BETAS.index(0.25) - 0.5)}
    other = sweep(best={**BEST, "exploration": 0.5, "cycles": 4})  # what the sweep chose counts, not what is lowest
    found = heat.drawing(other).draw(LIGHT)  # type: ignore[union-attr]
    axis = next(a for a in found.axes if a.get_label() == "main")
    assert {p.get_xy() for p in boxes(axis) if p.get_gid() == "best"} == {(0.5, 1.5)}
    assert sweep(best=None).best.values == {"exploration": 0.25, "cycles": 4}  # type: ignore[union-attr]


def test_marginals_are_the_best_and_the_mean_of_whole_chains(main: tuple[Sweep, dict[str, Any]]) -> None:
    def worth(beta: float, m: int) -> list[float]:
        if (beta, m) in (STOPPED, FAILED):
            return []
        return [value(beta, m)] if (beta, m) == WAITING else [np.mean([value(beta, m, repeat=r) for r in range(2)])]

    by_m = [[v for b in BETAS for v in worth(b, m)] for m in MS]
    by_beta = [[v for m in MS for v in worth(b, m)] for b in BETAS]
    best, mean = main[1]["top"].lines
    assert best.get_ydata() == pytest.approx([min(v) for v in by_m])
    assert mean.get_ydata() == pytest.approx([np.mean(v) for v in by_m])
    best, mean = main[1]["side"].lines
    assert best.get_xdata() == pytest.approx([min(v) for v in by_beta])
    assert mean.get_xdata() == pytest.approx([np.mean(v) for v in by_beta])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_numbers_are_readable_and_shades_tell_better_from_worse(theme: Any) -> None:
    metric = Metric(name="nll", label="NLL", better="lower")
    colours, paper = shades.colours(metric, theme), theme.paper
    steps = [colours(v) for v in np.linspace(0, 1, 64)]
    assert min(shades.contrast(shades.readable(s), s) for s in steps) >= 4.5
    light = [shades._luminance(s) for s in steps]
    assert all(b > a for a, b in itertools.pairwise(light)) or all(b < a for a, b in itertools.pairwise(light))
    assert shades.contrast(steps[0], paper) > 10 and min(shades.contrast(s, paper) for s in steps) > 1.3
    higher = shades.colours(Metric(name="accuracy", label="Accuracy", better="higher"), theme)
    assert higher(1.0) == colours(0.0)


def test_one_value_far_out_leaves_the_others_their_colours() -> None:
    metric = Metric(name="nll", label="NLL", better="lower")
    norm = shades.span([0.1, 0.2, 0.3, 50.0], metric)
    assert norm(0.3) - norm(0.1) > 0.4 and norm(50.0) == 1.0
    assert shades.span([0.1, 0.2, 0.3], metric).vmax == 0.3
    assert shades.span([0.5], metric)(0.5) == 0.0


# The other figures


def test_the_error_against_m_has_a_line_per_sampler_at_its_own_best_beta() -> None:
    made = sweep(SAMPLERS)
    found = [line for line in cycles.lines(made) if line.best]
    assert [line.sampler for line in found] == list(SAMPLERS)
    for line in found:
        m, mean, error = line.of(made.named("error"))
        beta = line.points[0].values["exploration"]
        assert beta == 0.25
        there = [x for x in MS if not (line.sampler == "csghmc" and (beta, x) in (STOPPED, FAILED))]
        assert m.tolist() == there
        values = [np.array([value(beta, x, line.sampler, r) for r in range(2)]) / 5 for x in there]
        whole = [v for v, x in zip(values, there, strict=True) if (beta, x) != WAITING or line.sampler != "csghmc"]
        assert mean[: len(whole)] == pytest.approx([v.mean() for v in whole])
        assert error[: len(whole)] == pytest.approx([v.std(ddof=1) / math.sqrt(2) for v in whole])
    drawing = cycles.drawing(made)
    assert drawing is not None
    figure = drawing.draw(LIGHT)
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels[:2] == ["cSGHMC (β = 0.25)", "Snapshot-SGDM (β = 0.25)"]
    (axis,) = figure.axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("Number of cycles M", "Error (%), validation")
    thick = [c.get_children()[0].get_ydata() for c in axis.containers]
    assert thick[1] == pytest.approx(
        [100 * np.mean([value(0.25, m, SAMPLERS[1], r) for r in range(2)]) / 5 for m in MS]
    )
    assert cycles.drawing(drawn()) is None


def test_learning_curves_are_the_reports_and_end_in_a_mark_where_they_were_stopped() -> None:
    made = sweep()
    found = curves.curves(made)
    assert sorted(found) == [p.number for p in made.points if (p.values["exploration"], p.values["cycles"]) != FAILED]
    for point in made.points:
        if point.number not in found:
            continue
        m, beta = point.values["cycles"], point.values["exploration"]
        curve = found[point.number]
        assert curve["gradients"].tolist() == [GRADIENTS * (c + 1) // m for c in range(len(curve))]
        assert len(curve) == (2 if (beta, m) == STOPPED else m)
        repeats = curve["repeats"].tolist()
        assert repeats == ([2] * 4 + [1] * 4 if (beta, m) == WAITING else [2] * len(curve))
        first = np.mean([value(beta, m, repeat=r) for r in range(2)]) + 0.1 * (1 - 1 / m)
        assert curve["mean"].iloc[0] == pytest.approx(first)
    drawing = curves.drawing(made)
    assert drawing is not None and len(drawing.data) == sum(len(c) for c in found.values())
    (axis,) = drawing.draw(LIGHT).axes
    marks = [line.get_xydata().tolist() for line in axis.lines if line.get_marker() == "x"]
    stopped = found[made.points[BETAS.index(0.0) * 3 + MS.index(8)].number].iloc[-1]
    assert marks == [[[stopped["gradients"], pytest.approx(stopped["mean"])]]]


def test_random_points_are_dots_with_the_best_ringed_and_every_option_has_a_panel() -> None:
    made = drawn()
    drawing = heat.drawing(made)
    assert drawing is not None
    figure = drawing.draw(LIGHT)
    axis = next(a for a in figure.axes if a.get_label() == "main")
    assert axis.get_yscale() == "log" and not axis.texts
    dots = {tuple(line.get_xydata()[0]) for line in axis.lines if line.get_gid() is None}
    assert dots == {(p.values["temperature"], p.values["lr"]) for p in made.points}
    (ring,) = [line for line in axis.lines if line.get_gid() == "best"]
    best = min((p for p in made.points if p.status == "finished"), key=lambda p: p.mean["nll"])
    assert made.best is best and ring.get_xydata()[0].tolist() == [best.values["temperature"], best.values["lr"]]
    panels = margins.drawing(made)
    assert panels is not None and margins.drawing(sweep()) is None
    axes = panels.draw(LIGHT).axes
    assert [a.get_xlabel() for a in axes] == ["Step size lr", "Temperature T", "Schedule"]
    for axis, option in zip(axes, made.options, strict=True):
        whole = next(line for line in axis.lines if line.get_marker() == "o" and line.get_gid() is None)
        assert whole.get_ydata() == pytest.approx([p.mean["nll"] for p in made.points if p.complete])
        assert len(axis.lines[1].get_ydata()) == 1  # the stopped one
        assert option.numeric or {t.get_text() for t in axis.get_xticklabels()} == {"constant", "cyclical"}


def test_legends_cover_nothing_and_all_lies_on_the_paper(main: tuple[Sweep, dict[str, Any]]) -> None:
    _nothing_covered(main[1]["figure"], "map")
    made, random = sweep(SAMPLERS), drawn()
    others = [cycles.drawing(made), curves.drawing(made), heat.drawing(random), margins.drawing(random)]
    for drawing in others:
        assert drawing is not None
        with laid_out(drawing, DARK) as figure:
            _nothing_covered(figure, drawing.name)


def _nothing_covered(figure: Figure, name: str) -> None:
    (legend,) = [one.get_window_extent() for one in figure.legends]
    whole = figure.bbox
    assert whole.x0 - 1 <= legend.x0 and legend.x1 <= whole.x1 + 1, name
    for axis in figure.axes:
        box = axis.get_tightbbox()
        if not axis.axison and axis.get_label() != "corner":
            continue
        assert box is not None and not box.overlaps(legend), name
        assert whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1, name
        assert whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1, name
