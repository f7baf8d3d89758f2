"""Leases: one small file per living driver, ``drivers/<id>.json``, renewed while it lives, and a driver's claim to its
run.

Leases save double work and warn users; no sample rests on them. All times are the storage's own (a file's modification
time), so that the drivers' clocks need not agree. Another driver's file is data and may hold anything.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raychains.core import checksum
from raychains.core.errors import StorageAway, StorageRefused
from raychains.store.filesystem import Storage, json_bytes

log = logging.getLogger(__name__)

FORMAT = 1
FOLDER = "drivers"
RENEW_EVERY = 10.0
"""Seconds between a driver's renewals of its entry."""
STALE_AFTER = 60.0
"""Seconds without a renewal after which a driver counts as dead."""
LATE = STALE_AFTER - RENEW_EVERY
"""Seconds since its last renewal after which a driver supposes that others count it as dead."""
PUBLICATIONS = 3
"""Times that an entry is published which others have removed meanwhile, or which a listing does not show."""
LONGEST = 1_000_000
"""Bytes of an entry that are read; a longer one is ignored."""
SECOND = 1_000_000_000
_ID = re.compile(r"[0-9a-f]{32}")
_TEXT = re.compile(r"[\x21-\x7e]{1,255}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


_VALID: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("driver_id", "run", "host", "place", "process"), _is_text),
    "pid": lambda pid: type(pid) is int and 0 < pid < 2**31,
    "since": lambda since: since is None or (type(since) is int and since >= 0),
    "renewals": lambda renewals: type(renewals) is int,
    **dict.fromkeys(("given_up", "stalled"), lambda digests: isinstance(digests, list)),
}
"""Which values a driver's file may hold."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One driver as its file describes it; times are nanoseconds of the storage's clock."""

    driver_id: str
    run: str
    host: str
    place: str
    """Names the boot and the process table that ``pid`` belongs to, so that one process is not taken for another."""
    pid: int
    process: str
    """Start time of the process as its system reports it; a later process may have the same pid."""
    since: int
    """First publication."""
    renewed: int
    """Last publication."""
    renewals: int = 0
    given_up: frozenset[str] = frozenset()
    """Digests of chains that the driver will not finish although it lives."""
    stalled: frozenset[str] = frozenset()
    """Digests of chains that are silent for longer than their pace explains."""

    @property
    def seniority(self) -> tuple[int, str]:
        """The smallest of a run's living entries owns the run."""
        return self.since, self.driver_id

    @classmethod
    def parse(cls, name: str, data: bytes, modified: int) -> Entry | None:
        """Return the entry in a file's bytes; None when they are no entry of that name."""
        if len(data) > LONGEST:
            return None
        try:
            read = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(read, dict) or f"{read.get('driver_id')}.json" != name or not checksum.unsealed(read)[1]:
            return None
        read = {"renewals": 0, "given_up": [], "stalled": [], **read}
        if not all(valid(read.get(field)) for field, valid in _VALID.items()):
            return None
        since = read.get("since")
        return cls(
            **{field: read[field] for field in ("driver_id", "run", "host", "place", "process", "pid", "renewals")},
            since=modified if since is None else min(since, modified),
            renewed=modified,
            given_up=frozenset(d for d in read["given_up"] if isinstance(d, str)),
            stalled=frozenset(d for d in read["stalled"] if isinstance(d, str)),
        )


class Leases:
    """Reads and writes ``STORE/drivers/``."""

    def __init__(self, root: Storage) -> None:
        self._root = root
        self._told: set[tuple[str, int]] = set()

    def publish(self, entry: Mapping[str, Any]) -> int:
        """Write or renew a driver's entry (`Entry`'s fields but ``renewed``); return its time by the storage's clock.

        ``since`` is None until the time of the first publication is known. Other drivers read times from a listing, so
        this one does, too: another request may round them otherwise. An entry that is not listed is published again.

        Raises:
            StorageAway: the storage does not list it.
        """
        name = f"{entry['driver_id']}.json"
        for _ in range(PUBLICATIONS):
            self._root.publish(f"{FOLDER}/{name}", json_bytes({"format": FORMAT, **entry}))
            if (modified := self._root.modified(FOLDER).get(name)) is not None:
                return modified
        raise StorageAway(
            f"the store does not list this driver's entry {FOLDER}/{name}, which it took {PUBLICATIONS} times"
        )

    def entries(self) -> list[Entry]:
        """Return all well-formed entries; malformed ones, which are logged once, and other files are passed over."""
        found = []
        for name, modified in self._root.modified(FOLDER).items():
            if not _ID.fullmatch(name.removesuffix(".json")):
                continue
            try:
                data = self._root.read_range(f"{FOLDER}/{name}", 0, LONGEST + 1)
            except FileNotFoundError:
                continue  # its driver ended meanwhile
            if (entry := Entry.parse(name, data, modified)) is not None:
                found.append(entry)
            elif (name, modified) not in self._told:
                self._told.add((name, modified))
                log.warning("passed over, since it is no driver's entry: %s", self._root.location(f"{FOLDER}/{name}"))
        return found

    def remove(self, driver_id: str) -> None:
        """Remove an entry, if there is one."""
        self._root.delete(f"{FOLDER}/{driver_id}.json")


class Watch:
    """Judges who lives: dead is a driver whose process is known to be gone, or that was not renewed for too long.

    Too long by the storage's clock, or, should that have jumped, by the observer's own since it saw the last renewal.

    ``gone`` says whether an entry's process is known to have ended.
    """

    def __init__(self, gone: Callable[[Entry], bool]) -> None:
        self._gone = gone
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        self._pardoned = float("-inf")

    def pardon(self, until: float) -> None:
        """Judge nobody by age before ``until``: the storage was unreachable, others could not renew either."""
        self._pardoned = until

    def living(self, entries: Iterable[Entry], storage_now: int | None, now: float) -> list[Entry]:
        """Return the entries of living drivers, the most senior first.

        ``storage_now`` is the storage's clock in nanoseconds, None when it is not known, ``now`` the observer's
        monotonic one in seconds.
        """
        alive, seen = [], {}
        for e in entries:
            mark = (e.renewed, e.renewals)
            before, first = self._seen.get(e.driver_id, (mark, now))
            first = first if before == mark else now
            seen[e.driver_id] = (mark, first)
            old = storage_now is not None and storage_now - e.renewed > STALE_AFTER * SECOND
            stale = now >= self._pardoned and (old or now - first > STALE_AFTER)
            if not stale and not self._gone(e):
                alive.append(e)
        self._seen = seen
        return sorted(alive, key=lambda e: e.seniority)


class Claim:
    """One driver's claim to its run: renews its entry, and finds out whether a living senior owns the run.

    No clock but the storage's is compared between drivers. A driver that could not renew for so long that others may
    count it as dead goes to the end of the queue: it stops if one of them took the run over, else it queues again. Not
    safe for several threads.

    ``about`` has this driver's ``driver_id``, ``run``, ``host``, ``place``, ``pid`` and ``process``; the clock gives
    monotonic seconds.
    """

    def __init__(
        self,
        leases: Leases,
        about: Mapping[str, Any],
        gone: Callable[[Entry], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases, self._about, self._clock = leases, dict(about), clock
        self._watch = Watch(gone)
        self._since: int | None = None
        self._renewals = 0
        self._modified = 0
        self._renewed = float("inf")
        """Own clock just before the last renewal; never late before the first."""
        self._pardoned = float("nan")
        """The renewal after which this driver was late when it last judged nobody by age."""
        self._known = 0.0
        """Own clock just after it, when the storage's was at most ``_modified`` plus the upload's time."""
        self._buried: dict[str, int] = {}
        """When drivers that were dead once had come: what such a driver wrote before it queued again is a straggler."""
        self.given_up: set[str] = set()
        """Chains that others may take although this driver lives."""
        self.stalled: frozenset[str] = frozenset()
        """Chains that are silent for longer than their pace explains."""
        self.others: dict[str, Entry] = {}
        """Living other drivers of the store by id, as last listed."""

    @property
    def driver_id(self) -> str:
        """This driver's id."""
        return str(self._about["driver_id"])

    def renew(self) -> Entry | None:
        """Publish the entry anew; return the living driver that owns the run instead of this one, if there is one."""
        if self._late(self._renewed):
            if self._pardoned != self._renewed:  # once: while a rival counts as alive, nothing is published here
                self._pardoned = self._renewed
                self._watch.pardon(self._clock() + 2 * RENEW_EVERY)
            if rivals := self.living():
                return rivals[0]
        before = self._renewed
        self._publish()
        if self._late(before):  # after the pause, or an upload that took as long: the entry is out of date
            if rivals := self.living():
                return rivals[0]
            self._since = None
            self._publish()
        return self.senior()

    def senior(self) -> Entry | None:
        """Return the living driver of the same run that came before this one, from a listing made now."""
        own = (self._since or 0, self.driver_id)
        return next((e for e in self.living() if e.seniority < own), None)

    def living(self) -> list[Entry]:
        """Return living other drivers of the same run, the most senior first; entries of dead drivers are removed."""
        entries = [e for e in self._leases.entries() if e.driver_id != self.driver_id]
        living = self._watch.living(entries, self.storage_now(), self._clock())
        self.others = {e.driver_id: e for e in living}
        for dead in [e for e in entries if e.driver_id not in self.others]:
            self._buried[dead.driver_id] = dead.since
            with contextlib.suppress(StorageRefused):  # another user's file
                self._leases.remove(dead.driver_id)
        return [e for e in living if e.run == self._about["run"] and e.since > self._buried.get(e.driver_id, -1)]

    def storage_now(self) -> int | None:
        """Return the storage's clock in nanoseconds, not ahead of it; None before the first publication."""
        if self._since is None:
            return None
        return self._modified + int((self._clock() - self._known) * SECOND)

    def withdraw(self) -> None:
        """Remove the entry."""
        self._leases.remove(self.driver_id)

    def _late(self, renewed: float) -> bool:
        return self._clock() - renewed > LATE

    def _publish(self) -> None:
        before = self._clock()
        entry: dict[str, Any] = {"since": self._since, "renewals": self._renewals}
        entry |= {"given_up": sorted(self.given_up), "stalled": sorted(self.stalled)}
        self._modified = self._leases.publish({**self._about, **entry})
        self._renewed, self._known, self._renewals = before, self._clock(), self._renewals + 1
        if self._since is None:
            self._since = self._modified
