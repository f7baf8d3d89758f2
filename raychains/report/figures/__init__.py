"""The page's figures: those of the run itself, in the files of this folder, and those of its measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raychains import measures
from raychains.inference.run_data import RunData
from raychains.measures import Measure, weights
from raychains.report.figures import (
    density_figure,
    gradients,
    learning,
    regression_figures,
    samples,
    schedule_figure,
    spread,
    views_figure,
)
from raychains.report.figures.mapping import Figures, Makers

BUILT_IN: Mapping[str, Makers] = {
    "Predictive": {
        "spread": spread.drawing,
        "samples": samples.drawing,
        "cycles": samples.cycles,
        "views": views_figure.drawing,
        "weights": weights.figure,
    },
    "Uncertainty": {
        "intervals": regression_figures.intervals,
        "pit": regression_figures.pit,
        "coverage": regression_figures.coverage,
    },
    "Diversity": {},
    "Diagnostics": {},
    "Flatness": {},
    "Sampling": {
        "density": density_figure.drawing,
        "schedules": schedule_figure.drawing,
        "learning": learning.drawing,
        "gradients": gradients.drawing,
    },
}
"""The page's headings in their order, each with the figures that every run has, by name; a function gives a `Drawing`,
or None with nothing to show. `sections` adds measures' figures under the heading that each measure names."""


def sections(own: Iterable[Measure] = ()) -> dict[str, Makers]:
    """Return all figures by heading and name, in the page's order, those of the user's ``own`` measures included."""
    found: dict[str, dict[str, Any]] = {heading: dict(figures) for heading, figures in BUILT_IN.items()}
    for measure in (*map(measures.named, measures.NAMES), *own):
        found.setdefault(measure.section, {}).update(measure.figures)
    return {**found}


FIGURES: Makers = {name: make for figures in sections().values() for name, make in figures.items()}
"""The figures of every run by name, in the page's order."""


def of_run(run: RunData, own: Makers | None = None) -> Figures:
    """The figures of a run in the page's order; ``own`` are those of the user's measures."""
    return Figures({**FIGURES, **(own or {})}, run)
