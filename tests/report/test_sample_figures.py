"""Figures of samples show what their tables hold: labelled, legends outside, the same numbers published beside them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from raychains.analyses import diversity, flatness, interpolation
from raychains.orchestration.point import Bench
from raychains.planning.points import Point
from raychains.report.figures import MAKERS, SECTIONS
from raychains.report.figures import disagreement as heat_maps
from raychains.report.material import Material
from raychains.report.style import LIGHT, laid_out
from tests.analyses.made import Made, classifier, data, drawn
from tests.checks import refused

NAMES = ("embedding", "interpolation", "disagreement", "fisher", "directions", "plane")
LABELS = {
    "embedding": {"First axis (unit of the weights)", "Second axis (unit of the weights)"},
    "interpolation": {"Error (%)", "NLL (nats)", "t, from θ₁ (0) to θ₂ (1)"},
    "disagreement": {"Sample", "Different class (%)"},
    "fisher": {"Rank of the parameter", "Eigenvalue (squared nats)"},
    "directions": {"Error (%)", "NLL (nats)", "t, in units of the filters' norms"},
    "plane": {"Error (%)"},
}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Two chains of three cycles of two samples, θ and θₐ; the first arm is the first chain."""
    patch = pytest.MonkeyPatch()
    patch.setattr(flatness, "GRID", 6)
    patch.setattr(flatness, "STEPS", 5)
    task, g = classifier(), torch.Generator().manual_seed(0)
    start = drawn(0, task)
    centres = {
        (c, y): {n: 2 * torch.randn(t.shape, generator=g) for n, t in start.items()} for c in (0, 1) for y in range(3)
    }
    samples = [
        (c, y, v, {n: m + 0.2 * torch.randn(m.shape, generator=g) for n, m in centre.items()})
        for (c, y), centre in centres.items()
        for _, v in itertools.product(range(2), ("theta", "anchor"))
    ]
    made = Made(tmp_path_factory.mktemp("figures"), task, samples, arms=(1, 2))
    context = dataclasses.replace(made.context(), measure=_measuring(made))
    for analysis in (diversity, interpolation, flatness):
        for name, rows in analysis.ANALYSIS.tables(context).items():
            context.store.write_table(name, rows)
    about = {"group": 0, "repeat": 0, "samples": 12, "chain_seconds": 1.0, "error": 0.1, "nll": 0.3}
    results = [{"arm": a.name, **about} for a in made.comparison.arms]
    context.store.write_table("results", results)
    patch.undo()
    return Material(context.store, made.comparison)


def _measuring(made: Made) -> Callable[..., list[dict[str, float]]]:
    """Error and NLL without the other metrics, which take time."""
    bench, (x, y) = Bench(made.root, made.task), data(1)
    labels = (y > 0).long() + (y > 1).long()

    @torch.no_grad()
    def both(point: Point) -> dict[str, float]:
        logits = bench.network(point)[0](x)
        error = float((logits.argmax(1) != labels).float().mean())
        return {"error": error, "nll": float(torch.nn.functional.cross_entropy(logits, labels))}

    test = made.task.splits()["test"]
    return lambda split, points: [bench.measure(test, p) if p.fisher else both(p) for p in points]


def test_every_figure_has_a_heading() -> None:
    listed = {name for names in SECTIONS.values() for name in names}
    assert set(NAMES) <= listed and set(NAMES) <= set(MAKERS)


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_labelled_their_legends_cover_nothing_and_their_numbers_are_published(
    name: str, material: Material
) -> None:
    drawing = MAKERS[name](material)
    assert drawing is not None and drawing.caption and drawing.alt and len(drawing.data) > 5
    with laid_out(drawing, LIGHT) as figure:
        found = {text for axis in figure.axes for text in (axis.get_xlabel(), axis.get_ylabel())}
        assert LABELS[name] <= found
        texts = [
            label.get_text() for axis in figure.axes for label in (*axis.get_xticklabels(), *axis.get_yticklabels())
        ]
        assert not any("$" in text for text in texts), "mathematics is not typeset"
        legends = [legend.get_window_extent() for legend in figure.legends]
        boxes = [box for axis in figure.axes if axis.axison and (box := axis.get_tightbbox()) is not None]
        assert len(legends) == (name not in ("disagreement", "plane"))
        for box in boxes:
            assert not any(box.overlaps(legend) for legend in legends)
            assert figure.bbox.x0 - 1 <= box.x0 and box.x1 <= figure.bbox.x1 + 1
            assert figure.bbox.y0 - 1 <= box.y0 and box.y1 <= figure.bbox.y1 + 1


def test_samples_that_arms_share_are_drawn_once_and_all_others_are_there(material: Material) -> None:
    drawing = MAKERS["embedding"](material)
    assert drawing is not None and "share" in drawing.caption
    (axis,) = drawing.draw(LIGHT).axes
    drawn_at = [tuple(p) for line in axis.lines for p in line.get_xydata().tolist()]  # type: ignore[union-attr]
    assert len(drawn_at) == len(set(drawn_at)) == 24
    assert set(drawn_at) == {(row["x"], row["y"]) for row in drawing.data}
    numbers = sorted(text.get_text() for text in axis.texts)
    assert numbers == ["1", "1", "2", "2", "3", "3"], "cycles of both chains"


def test_heat_maps_are_symmetric_with_lines_between_cycles_and_chains(material: Material) -> None:
    drawing = MAKERS["disagreement"](material)
    assert drawing is not None
    *panels, _ = drawing.draw(LIGHT).axes
    for panel, arm in zip(panels, material.comparison.arms, strict=True):
        values = panel.images[0].get_array()
        rows = [r for r in drawing.data if r["arm"] == arm.name]
        assert values is not None and (values == values.T).all() and not np.diagonal(values).any()
        for row in rows:
            assert values[row["i"], row["j"]] == pytest.approx(100 * row["disagreement"])
        cycles, chains = (4, 1) if arm.name == "first-1" else (8, 3)
        assert len(panel.lines) == 2 * (cycles + chains), "between cycles; between chains or variables"
    assert heat_maps._extent(3) == (0.5, 3.5, 3.5, 0.5)


def test_lines_between_samples_are_the_tables(material: Material) -> None:
    drawing = MAKERS["interpolation"](material)
    assert drawing is not None
    axes = drawing.draw(LIGHT).axes
    titles = [axis.get_title() for axis in axes if axis.get_title()]
    assert titles == ["Neighbouring cycles", "Inside a cycle", "Between chains", "θ and θₐ"]
    table = material.store.table("interpolation").to_pandas()  # type: ignore[union-attr]
    pairs = table[table["kind"] == "neighbouring cycles"].groupby(["arm", "pair"]).ngroups
    thin = [line for line in axes[0].lines if line.get_linewidth() < 1]
    assert len(thin) == pairs == 2 + 4
    thick = [line for line in axes[0].lines if line.get_linewidth() > 1]
    mine = table[(table["kind"] == "neighbouring cycles") & (table["arm"] == "first-1")]
    assert thick[0].get_ydata() == pytest.approx(100 * mine.groupby("t")["error"].mean().to_numpy())


def test_the_spectrum_falls_and_the_plane_marks_its_samples(material: Material) -> None:
    fisher, plane = MAKERS["fisher"](material), MAKERS["plane"](material)
    assert fisher is not None and plane is not None and "60 training examples" in fisher.caption
    (axis,) = fisher.draw(LIGHT).axes
    assert len(axis.lines) == 2 * 2 * (3 + 1), "two arms, two variables, three samples and their mean"
    assert all((np.diff(np.asarray(line.get_ydata(), dtype=float)) <= 0).all() for line in axis.lines)
    corners = [r for r in plane.data if r.get("sample") is True]
    marked = [tuple(p) for panel in plane.draw(LIGHT).axes[:2] for p in panel.lines[0].get_xydata().tolist()]  # type: ignore[union-attr]
    assert marked == [(r["x"], r["y"]) for r in corners] and len(marked) == 6


def test_there_is_no_figure_without_its_table_and_a_damaged_one_is_told(material: Material, tmp_path: Path) -> None:
    from raychains.store import Root, RunStore

    empty = Material(RunStore(Root(tmp_path), "empty"), material.comparison)
    makers: list[Callable[..., object]] = [MAKERS[name] for name in NAMES]
    assert [make(empty) for make in makers] == [None] * len(NAMES)
    for table, name in (("embedding", "embedding"), ("fisher", "fisher"), ("plane", "plane")):
        for other in ("clusters", "plane_samples"):
            empty.store.write_table(other, [{"arm": 1}])
        empty.store.write_table(table, [{"arm": "first-1", "x": "far"}])
        with refused(table, "damaged"):
            MAKERS[name](empty)
