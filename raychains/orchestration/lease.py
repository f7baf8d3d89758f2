"""A driver's lease: the thread that renews its entry, and what the driver asks about the others in its store."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from raychains.errors import RaychainsError, StorageFull, UserError
from raychains.orchestration import process
from raychains.store import Root, incarnations
from raychains.store.claim import Claim
from raychains.store.leases import RENEW_EVERY, SECOND, STALE_AFTER, Entry, Leases

log = logging.getLogger(__name__)

FIRST_RENEWALS = (1.0, 3.0)
"""Seconds after the claim at which it is looked at again: an older entry may appear late."""
LOOK_EVERY = 1.0
"""Seconds between looks at an entry that is waited for."""
FRESH = 2.0
"""Seconds for which a look at the other drivers is good enough to leave a chain to one of them."""
PATIENCE = 2.0
"""Seconds that a look waits for a renewal in progress."""


class Lease:
    """This driver among those of a store. As a context it claims a run's name; without, it only looks and reserves.

    Args:
        root: the store.
        run: the run's name.
        patient: wait for a driver of which it is not known whether it lives, at most until it counts as dead.

    Raises:
        UserError: on entering the context, when another living driver runs ``run``.
    """

    def __init__(self, root: Root, run: str = "", *, patient: bool = False) -> None:
        self._root = root.waiting(lambda _: False)  # chains are asked for again: the driver does not wait for storage
        self.run = run
        """The run's name; none of a driver that claims none."""
        self._run, self._patient = run or "-", patient
        self.driver_id = uuid.uuid4().hex
        about = {"driver_id": self.driver_id, "run": self._run, **process.here()}
        self._claim = Claim(Leases(root), about, _gone)
        self._looking = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked = float("-inf")
        self._left_to: set[str] = set()
        self.lost: str | None = None
        """Why this driver has to stop: another one owns its run; None while it need not."""

    def __enter__(self) -> Lease:
        try:
            rival = self._claim.renew()
            if rival is not None:
                self._outlast(rival)
        except BaseException:
            self._withdraw()
            raise
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=RENEW_EVERY)
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

    def take(self, digest: str, record: Mapping[str, Any]) -> int | None:
        """A new incarnation's number, reserved; None when the chain is left to another living driver that has it.

        Storage that does not answer counts as such: the chain is asked for again later.

        Raises:
            StorageFull: no room for the reservation.
        """
        record = {**record, "driver_id": self.driver_id}
        try:
            while True:
                last, driver = incarnations.newest(self._root, digest)
                if self._leave(digest, driver):
                    return None
                number = incarnations.reserve(self._root, digest, last, record)
                if number is not None and not self._overtaken(digest, number):
                    return number
        except StorageFull:
            raise
        except (OSError, RaychainsError) as error:
            log.warning("chain %s is not taken now: %s", digest[:12], _line(error))
            return None

    def elsewhere(self, digest: str) -> bool:
        """Whether another living driver has the chain's newest incarnation and means to finish it."""
        try:
            return self._leave(digest, incarnations.newest(self._root, digest)[1])
        except (OSError, RaychainsError) as error:
            log.warning("chain %s is not looked at now: %s", digest[:12], _line(error))
            return True

    def superseded(self, digest: str, incarnation: int) -> bool:
        """Whether another living driver took over a chain that this one runs under ``incarnation``."""
        if not self._claim.others:
            return False
        try:
            last, driver = incarnations.newest(self._root, digest)
            return last > incarnation and self._leave(digest, driver)
        except (OSError, RaychainsError):
            return False

    def _overtaken(self, digest: str, number: int) -> bool:
        """Where two may reserve at once, the higher number goes on."""
        return not self._root.exclusive and incarnations.newest(self._root, digest)[0] > number

    def give_up(self, digest: str) -> None:
        """Tell others, with the next renewal, that this driver will not finish a chain."""
        self._claim.given_up.add(digest)

    def _leave(self, digest: str, driver: str | None) -> bool:
        if driver is None or driver == self.driver_id:
            return False
        if time.monotonic() - self._looked > FRESH or driver not in self._claim.others:
            if not self._looking.acquire(timeout=PATIENCE):
                return True  # the renewing thread waits for the storage: asked again later
            try:
                self._claim.look()
                self._looked = time.monotonic()
            finally:
                self._looking.release()
        entry = self._claim.others.get(driver)
        if entry is None or digest in entry.given_up:
            return False
        if driver not in self._left_to:
            self._left_to.add(driver)
            log.warning(
                "chains that run %s (pid %d on %s) has in this store are left to it, and their samples used",
                entry.run, entry.pid, entry.host,
            )  # fmt: skip
        return True

    # The claim

    def _outlast(self, rival: Entry) -> None:
        """Wait until the rival is known to be dead."""
        if not self._patient or rival.place == process.place():
            raise UserError(self._owned(rival))
        log.warning(
            "run %s may still be run by pid %d on %s, last heard of %.0f s ago: waiting until it counts as dead, at most %.0f s",
            self._run, rival.pid, rival.host, self._age(rival), STALE_AFTER,
        )  # fmt: skip
        heard = {rival.driver_id: rival.renewals}
        renewed = time.monotonic()
        while True:
            self._closing.wait(LOOK_EVERY)
            due = time.monotonic() - renewed > RENEW_EVERY
            now = self._claim.renew() if due else self._claim.senior()
            if due:
                renewed = time.monotonic()
            if now is None:
                return
            if now.renewals != heard.setdefault(now.driver_id, now.renewals):
                raise UserError(self._owned(now))

    def _owned(self, rival: Entry) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rival.since / SECOND))
        return (
            f"name must be that of a run that no other driver runs, got {self._run!r}: pid {rival.pid} on {rival.host} has run "
            f"it since {since} and was last heard of {self._age(rival):.0f} s ago; wait for its end, stop it, or choose another --name"
        )

    def _age(self, entry: Entry) -> float:
        return max(0.0, ((self._claim.storage_now() or entry.renewed) - entry.renewed) / SECOND)

    def _renew(self) -> None:
        """The thread: storage that is away makes it late, and the claim knows what that means."""
        waits = iter(FIRST_RENEWALS)
        while not self._closing.wait(next(waits, RENEW_EVERY)):
            try:
                with self._looking:
                    rival = self._claim.renew()
                    self._looked = time.monotonic()
            except Exception as error:
                log.warning("this driver's lease could not be renewed: %s", _line(error))
                continue
            if rival is not None:
                self.lost = self._owned(rival)
                return

    def _withdraw(self) -> None:
        with contextlib.suppress(OSError, RaychainsError):
            self._claim.withdraw()


def _gone(entry: Entry) -> bool:
    return process.gone(entry.place, entry.pid, entry.process)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
