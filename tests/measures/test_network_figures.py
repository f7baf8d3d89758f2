"""Figures of samples show what their tables hold: labelled, legends outside, the same numbers published beside them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from raychains.inference.run_data import RunData
from raychains.measures import diversity, flatness, interpolation
from raychains.orchestration.run.point_evaluation import PointEvaluator
from raychains.planning.points import Point
from raychains.plotting.style import laid_out
from raychains.report.figures import FIGURES
from raychains.store import RunStore, Storage
from tests.checks import refused
from tests.measures.made import Made, classifier, data, drawn
from tests.report.figures import drawing_of, nothing_covered
from tests.report.runs import altered

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
def material(tmp_path_factory: pytest.TempPathFactory) -> RunData:
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
    for measure in (diversity, interpolation, flatness):
        for name, rows in measure.MEASURE.tables(context).items():
            context.store.write_table(name, rows)
    about = {"group": 0, "repeat": 0, "samples": 12, "chain_seconds": 1.0, "error": 0.1, "nll": 0.3}
    results = [{"arm": a.name, **about} for a in made.comparison.arms]
    context.store.write_table("results", results)
    patch.undo()
    return RunData(context.store, made.comparison)


def _measuring(made: Made) -> Callable[..., list[dict[str, float]]]:
    """Error and NLL without the other metrics, which take time."""
    evaluator, (x, y) = PointEvaluator(made.root, made.task), data(1)
    labels = (y > 0).long() + (y > 1).long()

    @torch.no_grad()
    def both(point: Point) -> dict[str, float]:
        logits = evaluator.network(point)[0](x)
        error = float((logits.argmax(1) != labels).float().mean())
        return {"error": error, "nll": float(torch.nn.functional.cross_entropy(logits, labels))}

    test = made.task.splits()["test"]
    return lambda split, points: [evaluator.measure(test, p) if p.fisher else both(p) for p in points]


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_labelled_their_legends_cover_nothing_and_their_numbers_are_published(
    name: str, material: RunData
) -> None:
    drawing = drawing_of(material, name)
    assert len(drawing.data) > 5
    assert LABELS[name] <= nothing_covered(drawing, legends=name not in ("disagreement", "plane"))


def test_samples_that_arms_share_are_drawn_once_and_all_others_are_there(material: RunData) -> None:
    drawing = FIGURES["embedding"](material)
    assert drawing is not None and "share" in drawing.caption
    (axis,) = drawing.draw().axes
    drawn_at = [tuple(p) for line in axis.lines for p in line.get_xydata().tolist()]  # type: ignore[union-attr]
    assert len(drawn_at) == len(set(drawn_at)) == 24
    assert set(drawn_at) == {(row["x"], row["y"]) for row in drawing.data}
    numbers = sorted(text.get_text() for text in axis.texts)
    assert numbers == ["1", "1", "2", "2", "3", "3"], "cycles of both chains"


def test_two_samplers_on_one_map_have_a_panel_each_with_the_same_axes(material: RunData) -> None:
    run = RunData(material.store, altered(material.comparison, _1={"sampler": "sghmc"}))
    with laid_out(drawing_of(run, "embedding")) as figure:
        assert [axis.get_title(loc="left") for axis in figure.axes] == ["SGLD", "SGHMC"]
        assert len({(axis.get_xlim(), axis.get_ylim()) for axis in figure.axes}) == 1


def test_heat_maps_are_symmetric_with_lines_between_cycles_and_chains(material: RunData) -> None:
    drawing = FIGURES["disagreement"](material)
    assert drawing is not None
    *panels, _ = drawing.draw().axes
    for panel, arm in zip(panels, material.comparison.arms, strict=True):
        values = panel.images[0].get_array()
        rows = [r for r in drawing.data if r["arm"] == arm.name]
        assert values is not None and (values == values.T).all() and not np.diagonal(values).any()
        for row in rows:
            assert values[row["i"], row["j"]] == pytest.approx(100 * row["disagreement"])
        cycles, chains = (4, 1) if arm.name == "first-1" else (8, 3)
        assert len(panel.lines) == 2 * (cycles + chains), "between cycles; between chains or variables"
    assert panels[0].images[0].get_extent() == [0.5, 12.5, 12.5, 0.5], "samples are numbered from 1"


def test_lines_between_samples_are_the_tables(material: RunData) -> None:
    drawing = FIGURES["interpolation"](material)
    assert drawing is not None
    axes = drawing.draw().axes
    titles = [axis.get_title() for axis in axes if axis.get_title()]
    assert titles == ["Neighbouring cycles", "Inside a cycle", "Between chains", "θ and θₐ"]
    table = material.store.table("interpolation").to_pandas()  # type: ignore[union-attr]
    pairs = table[table["kind"] == "neighbouring cycles"].groupby(["arm", "pair"]).ngroups
    thin = [line for line in axes[0].lines if line.get_linewidth() < 1]
    assert len(thin) == pairs == 2 + 4
    thick = [line for line in axes[0].lines if line.get_linewidth() > 1]
    mine = table[(table["kind"] == "neighbouring cycles") & (table["arm"] == "first-1")]
    assert thick[0].get_ydata() == pytest.approx(100 * mine.groupby("t")["error"].mean().to_numpy())


def test_the_spectrum_falls_and_the_plane_marks_its_samples(material: RunData) -> None:
    fisher, plane = FIGURES["fisher"](material), FIGURES["plane"](material)
    assert fisher is not None and plane is not None and "60 training examples" in fisher.caption
    (axis,) = fisher.draw().axes
    assert len(axis.lines) == 2 * 2 * (3 + 1), "two arms, two variables, three samples and their mean"
    assert all((np.diff(np.asarray(line.get_ydata(), dtype=float)) <= 0).all() for line in axis.lines)
    corners = [r for r in plane.data if r.get("sample") is True]
    marked = [tuple(p) for panel in plane.draw().axes[:2] for p in panel.lines[0].get_xydata().tolist()]
    assert marked == [(r["x"], r["y"]) for r in corners] and len(marked) == 6


def test_a_damaged_table_is_told(material: RunData, tmp_path: Path) -> None:
    damaged = RunData(RunStore(Storage(tmp_path), "damaged"), material.comparison)
    for table in ("clusters", "plane_samples"):
        damaged.store.write_table(table, [{"arm": 1}])
    for name in ("embedding", "fisher", "plane"):
        damaged.store.write_table(name, [{"arm": "first-1", "x": "far"}])
        with refused(name, "damaged"):
            FIGURES[name](damaged)
