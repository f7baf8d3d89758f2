"""Styles of a comparison's arms: a panel per sampler, in each a style per schedule, number of chains and length; or all
in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from raychains.planning import Arm, Comparison
from raychains.planning.presets.default_arms import NAMES
from raychains.plotting.layout import entry
from raychains.plotting.style import FAMILIES, LINES, MARKERS


@dataclass(frozen=True)
class ArmStyle:
    """An arm's colour, line style and marker, and its legend's text."""

    label: str
    colour: str
    line: Any
    marker: str

    @classmethod
    def placed(cls, label: str, family: str, rank: int) -> ArmStyle:
        """The style of a place among a family's, which repeat after their last colour with other line styles.

        Colour is never the only difference between two arms, nor the line style alone between near ones.
        """
        colours, turn = FAMILIES[family], rank + rank // len(LINES)
        return cls(label, colours[rank % len(colours)], LINES[turn % len(LINES)], MARKERS[turn % len(LINES)])

    def handle(self, *, markers: bool = False) -> Line2D:
        """A legend's entry."""
        shape = self.marker if markers else None
        return entry(self.label, color=self.colour, linestyle=self.line, marker=shape, markersize=5)

    def style(self, *, size: float = 0.0, **changes: Any) -> dict[str, Any]:
        """Return matplotlib's keywords of a line, with markers where they have a size, but for the changes."""
        marks = {"marker": self.marker, "markersize": size} if size else {}
        return {"color": self.colour, "linestyle": self.line, **marks, **changes}

    def plot(self, axis: Axes, x: Any, y: Any, *, size: float = 0.0, **changes: Any) -> None:
        """Draw a line in this style, with markers where they have a size, but for the changes."""
        axis.plot(x, y, **self.style(size=size, **changes))


def in_one_panel(arms: Iterable[Arm]) -> dict[str, ArmStyle]:
    """Styles by the arms' names; no two of the first ten arms have the same marker."""
    ranks: Counter[str] = Counter()
    found: dict[str, ArmStyle] = {}
    for arm, marker in zip(arms, cycle(MARKERS), strict=False):
        family = _family(arm)
        again, which = divmod(ranks[family], len(FAMILIES[family]))
        found[arm.name] = ArmStyle(arm.label, FAMILIES[family][which], LINES[again % len(LINES)], marker)
        ranks[family] += 1
    return found


def _family(arm: Arm) -> str:
    return arm.schedule if arm.schedule in FAMILIES else "other"


@dataclass(frozen=True)
class Panel:
    """The arms of one sampler."""

    title: str
    arms: tuple[Arm, ...]


class ArmStyles:
    """The styles of a comparison's arms: equal arms under two samplers share a style and a legend's entry."""

    def __init__(self, comparison: Comparison) -> None:
        arms = comparison.arms
        samplers = dict.fromkeys(arm.sampler for arm in arms)
        self.panels = tuple(Panel(NAMES.get(s, s), tuple(a for a in arms if a.sampler == s)) for s in samplers)
        keys: dict[str, tuple[object, ...]] = {a.name: (a.schedule, len(a.chains[0]), a.length) for a in arms}
        by_name = max(Counter((a.sampler, keys[a.name]) for a in arms).values()) > 1
        if by_name:  # arms that differ in something else, such as their temperature, have labels of their own
            keys = {a.name: (a.name,) for a in arms}
        found: dict[tuple[object, ...], ArmStyle] = {}
        ranks: Counter[str] = Counter()
        for arm in arms:
            if keys[arm.name] not in found:
                family, n = _family(arm), len(arm.chains[0])
                label = f"{arm.schedule}, {n} chain{'s' * (n > 1)} × {arm.length:,} {comparison.unit}"
                found[keys[arm.name]] = ArmStyle.placed(arm.label if by_name else label, family, ranks[family])
                ranks[family] += 1
        self._styles = {a.name: found[keys[a.name]] for a in arms}

    def __getitem__(self, arm: Arm) -> ArmStyle:
        return self._styles[arm.name]

    def among(self, arms: Iterable[Arm]) -> list[ArmStyle]:
        """Every style of some arms once, in the order of all arms."""
        drawn = {self[arm] for arm in arms}
        return [style for style in dict.fromkeys(self._styles.values()) if style in drawn]
