"""One driver's claim to its run: publishes and renews its entry, and finds out whether a living senior owns the run.

No clock but the storage's is compared between drivers. A driver that could not renew for so long that others may count
it as dead goes behind everybody: it stops if one of them took the run over, else it queues again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from raychains.store.leases import RENEW_EVERY, SECOND, STALE_AFTER, Entry, Leases, Watch

LATE = STALE_AFTER - RENEW_EVERY
"""Seconds since its last renewal after which a driver supposes that others count it as dead."""


class Claim:
    """A driver's own entry and its view of the others'. Not safe for several threads.

    Args:
        leases: where entries lie.
        about: this driver's ``driver_id``, ``run``, ``host``, ``place``, ``pid`` and ``process``.
        gone: whether an entry's process is known to have ended.
        clock: monotonic seconds.
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
        self._known = 0.0
        """Own clock just after it, when the storage's was at most ``_modified`` plus what it took."""
        self._buried: set[str] = set()
        """Drivers of this run that were dead once: what comes from them later is a straggler."""
        self.given_up: set[str] = set()
        """Chains that others may take although this driver lives."""
        self.others: dict[str, Entry] = {}
        """Living other drivers of the store by id, at the last look."""

    @property
    def driver_id(self) -> str:
        """This driver's id."""
        return str(self._about["driver_id"])

    def renew(self) -> Entry | None:
        """Publish the entry anew; the living driver that owns the run in this one's place, None when this one owns it."""
        if self._late(self._renewed):
            self._watch.pardon(self._clock() + 2 * RENEW_EVERY)
            if rival := self._first(self.look()):
                return rival
        before = self._renewed
        self._publish()
        if self._late(before):  # after the pause, or an upload that took as long: what it said is out of date
            if rival := self._first(self.look()):
                return rival
            self._since = None
            self._publish()
        return self.senior()

    def senior(self) -> Entry | None:
        """The living driver of the same run that came before this one, by a look at the storage now."""
        own = (self._since or 0, self.driver_id)
        return self._first([e for e in self.look() if e.seniority < own])

    def look(self) -> list[Entry]:
        """Living other drivers of the same run, the most senior first; entries of dead drivers are removed."""
        entries = [e for e in self._leases.entries() if e.driver_id != self.driver_id]
        living = self._watch.living(entries, self.storage_now(), self._clock())
        for dead in {e.driver_id for e in entries} - {e.driver_id for e in living}:
            self._buried.add(dead)
            self._leases.remove(dead)
        self.others = {e.driver_id: e for e in living}
        return [e for e in living if e.run == self._about["run"] and e.driver_id not in self._buried]

    def storage_now(self) -> int | None:
        """The storage's clock in nanoseconds, not ahead of it; None before the first publication."""
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
        entry = {
            **self._about,
            "since": self._since,
            "renewals": self._renewals,
            "given_up": sorted(self.given_up),
        }
        self._modified = self._leases.publish(entry)
        self._renewed, self._known, self._renewals = before, self._clock(), self._renewals + 1
        if self._since is None:
            self._since = self._modified

    @staticmethod
    def _first(entries: list[Entry]) -> Entry | None:
        return entries[0] if entries else None
