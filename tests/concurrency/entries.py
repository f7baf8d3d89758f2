"""Drivers' entries for tests, and a storage of entries whose clock and listings do what a test wants."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raychains.store.leases import SECOND, Entry, Leases


def driver_id(n: int) -> str:
    return f"{n:032x}"


def about(n: int, *, run: str = "r", place: str = "here") -> dict[str, Any]:
    return {"driver_id": driver_id(n), "run": run, "host": f"h{n}", "place": place, "pid": n + 1, "process": "1"}


def entry(n: int, since: float, renewed: float, **changed: Any) -> Entry:
    """The n-th driver's entry; times in seconds."""
    times = {"since": int(since * SECOND), "renewed": int(renewed * SECOND)}
    return Entry(**{**about(n), **times, **changed})


@dataclass
class World:
    """A storage's clock, and what was written when and when each reader may see it."""

    delay: float = 0.0
    """Most seconds that a listing lags behind for a reader who is not the writer."""
    chance: random.Random = field(default_factory=random.Random)
    now: float = 1000.0
    tick: float = 0.0
    """What every write takes, so that no two have the same time."""
    written: dict[str, list[tuple[float, float, bytes | None]]] = field(default_factory=dict)
    """By name (visible from, modified, bytes or None for removed), in order."""

    def write(self, name: str, data: bytes | None) -> int:
        """Put a version there; its modification time."""
        history = self.written.setdefault(name, [])
        visible = max([self.now + self.chance.uniform(0, self.delay), *(v for v, _, _ in history)])
        history.append((visible, self.now, data))
        self.now += self.tick
        return int(history[-1][1] * SECOND)


class Delayed(Leases):
    """`Leases` of one driver in a `World`."""

    def __init__(self, world: World, own: str) -> None:
        self.world, self.own = world, own
        self.publishing: Callable[[], None] = lambda: None
        """Called before a publication lands."""

    def publish(self, entry: Mapping[str, Any]) -> int:
        self.publishing()
        return self.world.write(f"{entry['driver_id']}.json", json.dumps(dict(entry)).encode())

    def entries(self) -> list[Entry]:
        found = []
        for name, history in self.world.written.items():
            mine = name == f"{self.own}.json"
            seen = [(m, data) for visible, m, data in history if mine or visible <= self.world.now]
            if seen and seen[-1][1] is not None:
                e = Entry.parse(name, seen[-1][1], int(seen[-1][0] * SECOND))
                assert e is not None
                found.append(e)
        return found

    def remove(self, driver_id: str) -> None:
        if f"{driver_id}.json" in self.world.written:
            self.world.write(f"{driver_id}.json", None)
