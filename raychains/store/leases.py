"""Who drives what: one small file per living driver, ``drivers/<id>.json``, renewed while it lives.

Leases save double work and warn people; no sample rests on them. All times are the storage's own (a file's modification
time), so that the drivers' clocks need not agree. What stands in another driver's file is data and may be anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raychains.store.filesystem import Root

FORMAT = 1
FOLDER = "drivers"
RENEW_EVERY = 10.0
"""Seconds between a driver's renewals of its entry."""
STALE_AFTER = 60.0
"""Seconds without a renewal after which a driver counts as dead."""
LONGEST = 1_000_000
"""Bytes of an entry that are read; a longer one is none."""
SECOND = 1_000_000_000
_ID = re.compile(r"[0-9a-f]{32}")
_TEXT = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One driver as its file tells; times are nanoseconds of the storage's clock."""

    driver_id: str
    run: str
    host: str
    place: str
    """Names the boot and the process table that ``pid`` belongs to, so that one process is not taken for another."""
    pid: int
    process: str
    """When the process started, as its system tells; a later process may have the same pid."""
    since: int
    """First publication."""
    renewed: int
    """Last publication."""
    renewals: int = 0
    """How often it was renewed."""
    given_up: frozenset[str] = frozenset()
    """Digests of chains that the driver will not finish although it lives."""

    @property
    def seniority(self) -> tuple[int, str]:
        """The smallest of a run's living entries owns the run."""
        return self.since, self.driver_id


class Leases:
    """Reads and writes ``STORE/drivers/``."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def publish(self, entry: Mapping[str, Any]) -> int:
        """Write or renew a driver's entry (`Entry`'s fields but ``renewed``); the time that the storage gave it.

        ``since`` is None until the storage told the time of the first publication.
        """
        name = f"{entry['driver_id']}.json"
        entry = {"format": FORMAT, **entry}
        self._root.publish(f"{FOLDER}/{name}", (json.dumps(entry, indent=1, sort_keys=True) + "\n").encode())
        return self._root.modified(FOLDER).get(name, 0)

    def entries(self) -> list[Entry]:
        """All well-formed entries; malformed ones and other files are passed over."""
        found = []
        for name, modified in self._root.modified(FOLDER).items():
            if not _ID.fullmatch(name.removesuffix(".json")):
                continue
            try:
                data = self._root.read_range(f"{FOLDER}/{name}", 0, LONGEST + 1)
            except FileNotFoundError:
                continue  # its driver ended meanwhile
            if (entry := parse(name, data, modified)) is not None:
                found.append(entry)
        return found

    def remove(self, driver_id: str) -> None:
        """Take an entry away; none there is fine."""
        self._root.delete(f"{FOLDER}/{driver_id}.json")


def parse(name: str, data: bytes, modified: int) -> Entry | None:
    """The entry in a file's bytes; None when they are no entry of that name."""
    if len(data) > LONGEST:
        return None
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or f"{told.get('driver_id')}.json" != name:
        return None
    texts = {key: told.get(key) for key in ("driver_id", "run", "host", "place", "process")}
    if not all(isinstance(t, str) and _TEXT.fullmatch(t) for t in texts.values()):
        return None
    pid, since, given_up = told.get("pid"), told.get("since"), told.get("given_up", [])
    renewals = told.get("renewals", 0)
    if type(renewals) is not int or type(pid) is not int or not 0 < pid < 2**31 or not isinstance(given_up, list):
        return None
    if since is not None and (type(since) is not int or since < 0):
        return None
    return Entry(
        **{k: str(t) for k, t in texts.items()},
        pid=pid,
        since=modified if since is None else min(since, modified),
        renewed=modified,
        renewals=renewals,
        given_up=frozenset(g for g in given_up if isinstance(g, str)),
    )


class Watch:
    """Judges who lives: dead is a driver whose process is known to be gone, or that was not renewed for too long.

    Too long by the storage's clock, or, should that have jumped, by the observer's own since it saw the last renewal.

    Args:
        gone: whether an entry's process is known to have ended.
    """

    def __init__(self, gone: Callable[[Entry], bool]) -> None:
        self._gone = gone
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        self._pardoned = float("-inf")

    def pardon(self, until: float) -> None:
        """Judge nobody by age before ``until``: the storage was away, others could not renew either."""
        self._pardoned = until

    def living(self, entries: Iterable[Entry], storage_now: int | None, now: float) -> list[Entry]:
        """The entries of living drivers, the most senior first.

        Args:
            entries: as listed just now.
            storage_now: the storage's clock, nanoseconds; None when it is not known.
            now: the observer's monotonic clock, seconds.
        """
        alive, seen = [], {}
        for e in entries:
            mark = (e.renewed, e.renewals)
            before, first = self._seen.get(e.driver_id, (mark, now))
            first = first if before == mark else now
            seen[e.driver_id] = (mark, first)
            if not self._gone(e) and not self._stale(e, storage_now, now - first, now):
                alive.append(e)
        self._seen = seen
        return sorted(alive, key=lambda e: e.seniority)

    def _stale(self, entry: Entry, storage_now: int | None, watched: float, now: float) -> bool:
        if now < self._pardoned:
            return False
        old = storage_now is not None and storage_now - entry.renewed > STALE_AFTER * SECOND
        return old or watched > STALE_AFTER
