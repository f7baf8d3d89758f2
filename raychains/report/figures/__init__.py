"""The page's figures, one idea per file; each gives a `Drawing`, or None with nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from raychains.report.figures import (
    agreement,
    calibration,
    corrupted,
    cycles,
    density,
    detection,
    disagreement,
    embedding,
    entropy,
    flatness,
    interpolation,
    learning,
    mixing,
    modes,
    progress_by_gradients,
    reference,
    reliability,
    samples,
    schedule,
    spread,
    temperature,
    trace,
    views,
    weights,
)
from raychains.report.material import Material
from raychains.report.style import Drawing

MAKERS: dict[str, Callable[[Material], Drawing | None]] = {
    "spread": spread.drawing,
    "density": density.drawing,
    "samples": samples.drawing,
    "cycles": cycles.drawing,
    "views": views.drawing,
    "weights": weights.drawing,
    "reliability": reliability.drawing,
    "calibration": calibration.drawing,
    "entropy": entropy.drawing,
    "detection": detection.drawing,
    "corrupted": corrupted.drawing,
    "agreement": agreement.drawing,
    "embedding": embedding.drawing,
    "interpolation": interpolation.drawing,
    "disagreement": disagreement.drawing,
    "fisher": flatness.spectrum,
    "directions": flatness.directions,
    "plane": flatness.plane,
    "mixing": mixing.drawing,
    "traces": trace.drawing,
    "modes": modes.drawing,
    "temperatures": temperature.drawing,
    "reference": reference.drawing,
    "schedules": schedule.drawing,
    "learning": learning.drawing,
    "gradients": progress_by_gradients.drawing,
}
"""By the figure's name, in the page's order."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Predictive": ("spread", "samples", "cycles", "views", "weights"),
    "Uncertainty": ("reliability", "calibration", "entropy", "detection", "corrupted", "agreement"),
    "Diversity": ("embedding", "interpolation", "disagreement"),
    "Diagnostics": ("mixing", "traces", "modes", "temperatures", "reference"),
    "Flatness": ("fisher", "directions", "plane"),
    "Sampling": ("density", "schedules", "learning", "gradients"),
}
"""The page's headings in their order, each with the names of its figures."""


def sections(names: Iterable[str]) -> dict[str, list[str]]:
    """The figures that there are by heading, in the page's order; those of no heading come under the last."""
    there = list(names)
    found = {heading: [n for n in listed if n in there] for heading, listed in SECTIONS.items()}
    found[next(reversed(found))] += [n for n in there if not any(n in listed for listed in SECTIONS.values())]
    return {heading: listed for heading, listed in found.items() if listed}
