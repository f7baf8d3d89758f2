"""The page's figures, one idea per file; each gives a `Drawing`, or None with nothing to show."""

from __future__ import annotations

from collections.abc import Callable

from raychains.report.figures import density, learning, reliability, samples, schedule, spread
from raychains.report.material import Material
from raychains.report.style import Drawing

MAKERS: dict[str, Callable[[Material], Drawing | None]] = {
    "spread": spread.drawing,
    "density": density.drawing,
    "samples": samples.drawing,
    "reliability": reliability.drawing,
    "schedules": schedule.drawing,
    "learning": learning.drawing,
}
"""By the figure's name, in the page's order."""
