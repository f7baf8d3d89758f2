"""A driver among those of its store: the lease that it renews, the chains that it claims, and those that others run."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from raychains.chain.sample_index import expected_samples
from raychains.coordination import coordinator as c
from raychains.core.errors import RaychainsError, StorageRefused, UserError, format_error
from raychains.core.spec import ChainSpec
from raychains.orchestration import process_identity
from raychains.orchestration.cluster.workers import CLOCK, Clock
from raychains.store import ChainStore, Storage
from raychains.store.leases import RENEW_EVERY, SECOND, STALE_AFTER, Claim, Entry, Leases

log = logging.getLogger(__name__)

FIRST_RENEWALS = (1.0, 3.0)
"""Seconds after the claim at which it is looked at again: an older entry may appear late."""
CHECK_RIVAL_EVERY = 1.0
"""Seconds between reads of an entry that is waited for."""
FRESH = 2.0
"""Seconds for which a list of the other drivers is good enough to leave a chain to one of them."""
PATIENCE = 2.0
"""Seconds that a read of the entries waits for a renewal in progress."""
CLAIMS = 3
"""Times that a chain's next attempt is reserved in a row, while others are faster."""
PEERS_EVERY = 2.0
"""Seconds between reads of chains that others run."""
PEERS_FOR = 0.5
"""Seconds that one round of reads may take: of thousands of chains, or on slow storage, the others' turn is the
next."""
COMPARE_EVERY = 15.0
"""Seconds between checks whether another driver took over a chain that runs here."""


class Identity(Protocol):
    """Tells processes apart; the module `process_identity` is one."""

    def here(self) -> dict[str, Any]:
        """Return host, place, pid and start of this process."""

    def place(self) -> str:
        """Return what processes that see each other have in common."""

    def gone(self, where: str, pid: int, start: str, /) -> bool:
        """Return whether a process is known to have ended."""


def in_thread(waits: Iterator[float]) -> Callable[[], None]:
    """Run an iterator in a thread that sleeps for the seconds it yields; return what ends it."""
    closing = threading.Event()

    def run() -> None:
        for seconds in waits:
            if closing.wait(seconds):
                return

    thread = threading.Thread(target=run, name="lease", daemon=True)
    thread.start()

    def end() -> None:
        closing.set()
        if thread is not threading.current_thread():
            thread.join(timeout=RENEW_EVERY)  # a trial that nobody holds any more may be collected in any thread

    return end


class Lease:
    """This driver among those of a store. As a context it claims a run's name; without, it only reads and reserves.

    Args:
        patient: wait for a driver of which it is not known whether it lives, at most until it counts as dead.
        driver_id: of a predecessor that is known to be gone, whose chains this driver takes over at once; by default a
            new one.
        clock: of waits and ages; the storage's own tells drivers apart.
        identity: of this process and others.
        background: runs the renewals beside the caller's work, as `in_thread` does.

    Raises:
        UserError: on entering the context, when another living driver runs ``run``.
    """

    def __init__(
        self,
        root: Storage,
        run: str = "",
        *,
        patient: bool = False,
        driver_id: str | None = None,
        clock: Clock = CLOCK,
        identity: Identity = process_identity,
        background: Callable[[Iterator[float]], Callable[[], None]] = in_thread,
    ) -> None:
        self._root = root.without_waiting()  # chains are asked for again: the driver does not wait for storage
        self.run = run
        """The run's name; none of a driver that claims none."""
        self._run, self._patient = run or "-", patient
        self.driver_id = driver_id or uuid.uuid4().hex
        self._clock, self._identity, self._background = clock, identity, background
        about = {"driver_id": self.driver_id, "run": self._run, **identity.here()}
        self._claim = Claim(
            Leases(root), about, lambda entry: identity.gone(entry.place, entry.pid, entry.process), clock.monotonic
        )
        self._looking = threading.Lock()
        self._end: Callable[[], None] = lambda: None
        self._looked = float("-inf")
        self._left_to: set[str] = set()
        self._taken: dict[str, int] = {}
        """Attempts of this driver by chain: listings may not show them yet, and the next must have a higher number."""
        self.lost: str | None = None
        """Why this driver has to stop: another one owns its run, or the store takes no files; None while it need
        not."""

    def __enter__(self) -> Lease:
        try:
            rival = self._claim.renew()
            if rival is not None:
                self._outlast(rival)
        except BaseException:
            self._withdraw()
            raise
        self._end = self._background(self._renewals())
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._withdraw()

    def confirm(self) -> None:
        """Look again whether the run is this driver's.

        Raises:
            UserError: another living driver owns it.
        """
        with self._looking:
            rival = self._claim.senior()
        if rival is not None:
            raise UserError(self._owned(rival))

    # Chains

    def claim(self, digest: str, record: Mapping[str, Any]) -> int | None:
        """Reserve a chain's next attempt and return its number; None when the chain is left to another living driver
        that has it.

        Storage that does not answer counts as such: the chain is asked for again later.

        Raises:
            StorageRefused: no room for the reservation, or the store takes no files.
        """
        record = {**record, "driver_id": self.driver_id}
        try:
            for _ in range(CLAIMS):  # a listing may lag behind: the number that is taken stays unseen for seconds
                last, driver = ChainStore(self._root, digest).newest_attempt()
                if self._belongs_to_another(digest, driver):
                    return None
                number = ChainStore(self._root, digest).reserve(max(last, self.taken(digest)), record)
                if number is not None and not self._overtaken(digest, number):
                    self._taken[digest] = number
                    return number
            return None
        except StorageRefused:
            raise
        except (OSError, RaychainsError) as error:
            log.warning("chain %s is not taken now: %s", digest[:12], format_error(error))
            return None

    def taken(self, digest: str) -> int:
        """Return the newest attempt that this driver took of a chain, which a listing may not show yet; 0 for none."""
        return self._taken.get(digest, 0)

    def runs_elsewhere(self, digest: str) -> bool:
        """Return whether another living driver has the chain's newest attempt and means to finish it."""
        try:
            return self._belongs_to_another(digest, ChainStore(self._root, digest).newest_attempt()[1])
        except StorageRefused:
            raise
        except (OSError, RaychainsError) as error:
            log.warning("chain %s is not looked at now: %s", digest[:12], format_error(error))
            return True

    def superseded(self, digest: str, attempt: int) -> bool:
        """Return whether another living driver took over a chain that this one runs under ``attempt``."""
        if not self._claim.others:
            return False
        try:
            last, driver = ChainStore(self._root, digest).newest_attempt()
            return last > attempt and self._belongs_to_another(digest, driver)
        except (OSError, RaychainsError):
            return False

    def _overtaken(self, digest: str, number: int) -> bool:
        """Return whether another driver reserved a higher number at once: that one runs the chain."""
        return not self._root.exclusive and ChainStore(self._root, digest).newest_attempt()[0] > number

    def give_up(self, digest: str) -> None:
        """Let others know, with the next renewal, that this driver will not finish a chain."""
        self._claim.given_up.add(digest)

    def stall(self, digests: Iterable[str]) -> None:
        """Let `raychains status` know, with the next renewal, which chains stall at present."""
        self._claim.stalled = frozenset(digests)

    def _belongs_to_another(self, digest: str, driver: str | None) -> bool:
        """Return whether another living ``driver`` runs the chain and means to finish it."""
        if driver is None or driver == self.driver_id:
            return False
        if self._clock.monotonic() - self._looked > FRESH or driver not in self._claim.others:
            if not self._looking.acquire(timeout=PATIENCE):
                return True  # the renewing thread waits for the storage: asked again later
            try:
                self._claim.living()
                self._looked = self._clock.monotonic()
            finally:
                self._looking.release()
        entry = self._claim.others.get(driver)
        if entry is None or digest in entry.given_up:
            return False
        if driver not in self._left_to:
            self._left_to.add(driver)
            log.warning(
                "chains that run %s (pid %d on %s) has in this store are left to it, and their samples used",
                *(entry.run, entry.pid, entry.host),
            )
        return True

    # The claim

    def _outlast(self, rival: Entry) -> None:
        """Wait until the rival is known to be dead."""
        if not self._patient or rival.place == self._identity.place():
            raise UserError(self._owned(rival))
        log.warning(
            "run %s may still be run by pid %d on %s, last heard of %.0f s ago: waiting until it counts as dead, at "
            "most %.0f s",
            *(self._run, rival.pid, rival.host, self._age(rival), STALE_AFTER),
        )
        heard = {rival.driver_id: rival.renewals}
        renewed = self._clock.monotonic()
        while True:
            self._clock.sleep(CHECK_RIVAL_EVERY)
            due = self._clock.monotonic() - renewed > RENEW_EVERY
            now = self._claim.renew() if due else self._claim.senior()
            if due:
                renewed = self._clock.monotonic()
            if now is None:
                return
            if now.renewals != heard.setdefault(now.driver_id, now.renewals):
                raise UserError(self._owned(now))

    def _owned(self, rival: Entry) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rival.since / SECOND))
        return (
            f"name must be that of a run that no other driver runs, got {self._run!r}: pid {rival.pid} on "
            f"{rival.host} has run it since {since} and was last heard of {self._age(rival):.0f} s ago; wait for its "
            "end, stop it, or choose another `name`"
        )

    def _age(self, entry: Entry) -> float:
        return max(0.0, ((self._claim.storage_now() or entry.renewed) - entry.renewed) / SECOND)

    def _renewals(self) -> Iterator[float]:
        """Renew the claim between the waits; storage that is away makes it late, and the claim knows what that
        means."""
        waits = iter(FIRST_RENEWALS)
        while True:
            yield next(waits, RENEW_EVERY)
            try:
                with self._looking:
                    rival = self._claim.renew()
                    self._looked = self._clock.monotonic()
            except StorageRefused as error:
                self.lost = str(error)  # soon others will count this driver as dead, and nothing that it does is kept
                return
            except Exception as error:
                log.warning("this driver's lease could not be renewed: %s", format_error(error))
                continue
            if rival is not None:
                self.lost = self._owned(rival)
                return

    def _withdraw(self) -> None:
        with contextlib.suppress(OSError, RaychainsError):
            self._claim.withdraw()


class PeerDrivers:
    """Claims chains for this driver, and turns other drivers' traces in the store into events for the coordinator."""

    def __init__(self, root: Storage, lease: Lease, specs: Mapping[str, ChainSpec], clock: Clock = CLOCK) -> None:
        self.root = root.without_waiting()
        """Looked at again: the driver does not wait for storage."""
        self._lease, self._specs, self._clock = lease, specs, clock
        self._looked = self._compared = self._clock.monotonic()
        self._seen: dict[str, float] = {}
        """The time at which each chain was last looked at."""

    def claim(self, digest: str, record: Mapping[str, Any]) -> int | None:
        """Reserve a chain's next attempt; None when it is another driver's, or finished by one since the run began."""
        if self._finished(digest):
            return None
        return self._lease.claim(digest, record)

    def events(self, coordinator: c.Coordinator) -> list[c.Event]:
        """Return what happened since the last call; mostly nothing, and without a read of the store where nobody else
        works."""
        now, found_events = self._clock.monotonic(), []
        if now - self._looked > PEERS_EVERY:
            found_events += self._of(coordinator.with_status("elsewhere"), self._became)
            self._looked = self._clock.monotonic()
        if now - self._compared > COMPARE_EVERY:
            chains = coordinator.chains

            def superseded(digest: str) -> c.Event | None:
                found = self._lease.superseded(digest, chains[digest].attempt)
                return c.Superseded(digest) if found else None

            found_events += self._of(coordinator.with_status("running"), superseded)
            self._compared = self._clock.monotonic()
        return found_events

    def _of(self, digests: Sequence[str], look: Callable[[str], c.Event | None]) -> list[c.Event]:
        """Return the events of as many chains as there is time for, beginning with those not looked at for longest."""
        events, began = [], self._clock.monotonic()
        for digest in sorted(digests, key=lambda d: self._seen.get(d, 0.0)):
            self._seen[digest] = self._clock.monotonic()
            if (event := look(digest)) is not None:
                events.append(event)
            if self._clock.monotonic() - began > PEERS_FOR:
                break
        return events

    def _became(self, digest: str) -> c.Event | None:
        if self._finished(digest):
            return c.DoneElsewhere(digest, expected_samples(self._specs[digest]))
        return None if self._lease.runs_elsewhere(digest) else c.Freed(digest)

    def _finished(self, digest: str) -> bool:
        """Return whether the store holds all of a chain's samples; no, as long as the storage does not answer or lags
        behind."""
        try:
            store = ChainStore(self.root, digest)
            if store.last_attempt() < self._lease.taken(digest):
                return False  # that attempt may have superseded samples
            return store.finished(expected_samples(self._specs[digest]))
        except StorageRefused:
            raise
        except (OSError, RaychainsError) as error:
            log.warning("chain %s is not looked at now: %s", digest[:12], error)
            return False
