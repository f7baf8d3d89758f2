"""How many processes the chaos tests killed in this session: printed at its end."""

from __future__ import annotations

from collections import Counter

KILLS: Counter[str] = Counter()
"""By target and place: ``worker in sample``."""
LINES: list[str] = []
"""What else is worth a line at the end."""


def add(markers: list[dict[str, str]]) -> None:
    KILLS.update(f"{m['target']} in {m['where']}" for m in markers)
