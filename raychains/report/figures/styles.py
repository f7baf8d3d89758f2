"""How arms are told apart where all stand in one panel: a colour of their schedule's hue, a line, a marker of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.lines import Line2D

from raychains.planning import Arm
from raychains.report.looks import FAMILIES
from raychains.report.style import LINES, Theme

MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "*")


@dataclass(frozen=True)
class Style:
    """One arm's colour, line style and marker."""

    label: str
    colour: str
    line: Any
    marker: str

    def handle(self) -> Line2D:
        """A legend's entry."""
        return Line2D(
            [], [], color=self.colour, linestyle=self.line, marker=self.marker, markersize=5, label=self.label
        )


def styles(arms: Iterable[Arm], theme: Theme) -> dict[str, Style]:
    """By the arm's name; no two of the first ten arms have the same marker."""
    ranks: Counter[str] = Counter()
    found: dict[str, Style] = {}
    for i, arm in enumerate(arms):
        family = arm.schedule if arm.schedule in FAMILIES else "other"
        colours = theme.families[family]
        again, which = divmod(ranks[family], len(colours))
        found[arm.name] = Style(arm.label, colours[which], LINES[again % len(LINES)], MARKERS[i % len(MARKERS)])
        ranks[family] += 1
    return found
