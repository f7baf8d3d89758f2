"""The page's figures: those of the run itself, in the files of this folder, and those of its measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from raychains import measures
from raychains.inference.run_data import RunData
from raychains.measures import weights
from raychains.plotting.style import Drawing
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

FIGURES: dict[str, Callable[[RunData], Drawing | None]] = {
    "spread": spread.drawing,
    "density": density_figure.drawing,
    "samples": samples.drawing,
    "cycles": samples.cycles,
    "views": views_figure.drawing,
    "weights": weights.figure,
    "intervals": regression_figures.intervals,
    "pit": regression_figures.pit,
    "coverage": regression_figures.coverage,
    **measures.figures(),
    "schedules": schedule_figure.drawing,
    "learning": learning.drawing,
    "gradients": gradients.drawing,
}
"""By the figure's name; each gives a `Drawing`, or None with nothing to show."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Predictive": ("spread", "samples", "cycles", "views", "weights"),
    "Uncertainty": (
        "against",
        "intervals",
        "pit",
        "coverage",
        "reliability",
        "calibration",
        "entropy",
        "detection",
        "corrupted",
        "agreement",
        "fidelity",
        "fidelity_samples",
    ),
    "Diversity": ("embedding", "interpolation", "disagreement"),
    "Diagnostics": ("mixing", "traces", "ranks", "modes", "temperatures", "reference"),
    "Flatness": ("llc", "llc_trace", "fisher", "directions", "plane"),
    "Sampling": ("density", "schedules", "learning", "gradients"),
}
"""The page's headings in their order, each with the names of its figures."""


def sections(names: Iterable[str]) -> dict[str, list[str]]:
    """The figures that there are by heading, in the page's order; those of no heading come under the last."""
    there = list(names)
    found = {heading: [n for n in listed if n in there] for heading, listed in SECTIONS.items()}
    found[next(reversed(found))] += [n for n in there if not any(n in listed for listed in SECTIONS.values())]
    return {heading: listed for heading, listed in found.items() if listed}


def of_run(run: RunData, own: Makers | None = None) -> Figures:
    """The figures of a run in the page's order; ``own`` are those of the user's measures."""
    makers = {**FIGURES, **(own or {})}
    return Figures({name: makers[name] for names in sections(makers).values() for name in names}, run)
