"""Which arms look alike: panels by sampler, in each a look per schedule, number of chains and length."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from raychains.experiments.comparisons import NAMES
from raychains.planning import Arm, Comparison

FAMILIES = ("cyclical", "decreasing")
"""Schedules with hues of their own; the others share hues and are told apart by their ranks."""


@dataclass(frozen=True)
class Look:
    """A place in the palette and what the legend says about it."""

    family: str
    """The schedule, which chooses the hues."""
    rank: int
    """Position among the comparison's looks of this family."""
    label: str


@dataclass(frozen=True)
class Panel:
    """The arms of one sampler."""

    title: str
    arms: tuple[Arm, ...]


class Looks:
    """The looks of a comparison's arms: equal ones under two samplers share a look and a legend."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        samplers = list(dict.fromkeys(arm.sampler for arm in comparison.arms))
        self.panels = tuple(
            Panel(NAMES.get(s, s), tuple(a for a in comparison.arms if a.sampler == s)) for s in samplers
        )
        # Arms that differ in something else, such as their temperature, are told apart by their own labels.
        seen = Counter((a.sampler, *self._key(a)) for a in comparison.arms)
        self._by_name = max(seen.values()) > 1
        self._looks: dict[tuple[object, ...], Look] = {}
        ranks: Counter[str] = Counter()
        for arm in comparison.arms:
            key = self._key_of(arm)
            if key not in self._looks:
                family = arm.schedule if arm.schedule in FAMILIES else "other"
                self._looks[key] = Look(family, ranks[family], self._label(arm))
                ranks[family] += 1

    def __getitem__(self, arm: Arm) -> Look:
        return self._looks[self._key_of(arm)]

    def all(self) -> list[Look]:
        """Every look, in the order of the arms."""
        return list(self._looks.values())

    def _key_of(self, arm: Arm) -> tuple[object, ...]:
        return (arm.name,) if self._by_name else self._key(arm)

    @staticmethod
    def _key(arm: Arm) -> tuple[object, ...]:
        return arm.schedule, len(arm.chains[0]), arm.length

    def _label(self, arm: Arm) -> str:
        if self._by_name:
            return arm.label
        n = len(arm.chains[0])
        return f"{arm.schedule}, {n} chain{'s' * (n > 1)} × {arm.length:,} {self._comparison.unit}"
