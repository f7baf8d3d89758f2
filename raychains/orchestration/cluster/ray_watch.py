"""Notices that this process's Ray is gone: the driver is told in time to end with a word of its own.

Ray itself repeats most requests to a dead GCS for a minute and then ends the process; a driver on a dead raylet waits,
or is ended by the next object that it reads.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from raychains.core.errors import RayLost
from raychains.orchestration.cluster import ray_private

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOK_EVERY = 0.2
"""Seconds between looks at the processes of a Ray that this process started."""
PROBE_EVERY = 2.0
"""Seconds between connections to the GCS."""
CONNECT_TIMEOUT = 5.0
"""Seconds that a server has to accept a connection."""
AWAY_FOR = 30.0
"""Seconds for which a joined cluster's GCS may be away: one that is restarted comes back; after 60 Ray ends the
process."""
ANSWER_WITHIN = 120.0
"""Seconds that a request to the GCS may take, milliseconds as a rule."""
LAST_RESORT = 20.0
"""Seconds for which a thread that Ray does not return from is waited for, before the process ends."""


class Watch:
    """A thread that looks whether the Ray to which this process is connected is still there."""

    current: Watch | None = None
    """That of the connection at present; a process has one connection."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Why Ray is gone; None while it is there."""
        self._over = threading.Event()
        self._driving = 0
        self._started_here = ray_private.started_here()
        self._before = Watch.current
        self._address = ray_private.gcs_address()
        Watch.current = self
        threading.Thread(target=self._look, name="Ray watch", daemon=True).start()

    def close(self) -> None:
        """Look no more; that of the connection around this one, which is to the same Ray, knows what this one saw."""
        self._over.set()
        if self._before is not None and self._before.lost is None:
            self._before.lost = self.lost
        if Watch.current is self:
            Watch.current = self._before

    def look(self) -> str | None:
        """Return why Ray is gone; None while it is there."""
        if self.lost is None and self._started_here and (dead := ray_private.dead_process()) is not None:
            self.lost = f"Ray's {dead} on this machine died"
        return self.lost

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """A body that must come to its end when Ray is gone: if it does not, the process ends with one line."""
        self._driving += 1
        try:
            yield
        finally:
            self._driving -= 1

    def _look(self) -> None:
        away_since: float | None = None
        probed = time.monotonic()
        while not self._over.wait(LOOK_EVERY) and self.look() is None:
            if (now := time.monotonic()) - probed < PROBE_EVERY:
                continue
            probed, error = now, _connection_error(self._address)
            if self._started_here:  # one that was told to end closes its port, and may hang then
                if isinstance(error, ConnectionRefusedError):
                    self.lost = "Ray's gcs_server on this machine does not listen any more"
                continue
            away_since = None if error is None else away_since if away_since is not None else now
            if away_since is not None and now - away_since >= AWAY_FOR:
                self.lost = f"the Ray cluster at {self._address} did not answer for {AWAY_FOR:.0f} s"
        if not self._over.wait(LAST_RESORT) and self._driving:
            print(f"raychains: {self.lost}, and the driver hangs in a call of Ray: resume the run", file=sys.stderr)
            sys.stderr.flush()
            os._exit(RayLost.exit_status)


def lost() -> str | None:
    """Return why this process's Ray is gone; None while it is there, or nobody watches it."""
    return Watch.current.look() if Watch.current is not None else None


def check() -> None:
    """Raise `RayLost` if this process's Ray is gone."""
    if (reason := lost()) is not None:
        raise RayLost(f"{reason}; what the store holds is intact: repeat the call")


def ask(request: Callable[[], T], within: float | None = None) -> T:
    """Return ``request()``, of Ray, in a thread: Ray would repeat it for ever.

    Args:
        within: seconds that it may take; default `ANSWER_WITHIN`.

    Raises:
        RayLost: Ray is gone, goes meanwhile, or does not answer.
    """
    within = ANSWER_WITHIN if within is None else within
    until = time.monotonic() + within
    check()
    answer = called(request, "request to Ray")
    while not concurrent.futures.wait([answer], timeout=LOOK_EVERY).done:
        check()
        if time.monotonic() > until and Watch.current is not None:
            Watch.current.lost = f"Ray's gcs_server did not answer for {within:.0f} s"
    return answer.result()


def called(call: Callable[[], T], name: str) -> Future[T]:
    """Call in a thread of this name that ends with the process; return its future."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return found


def answers(address: str) -> bool:
    """Return whether something listens at HOST:PORT; Ray itself waits a minute and more before it says so."""
    return _connection_error(address) is None


def _connection_error(address: str) -> Exception | None:
    """Return why no connection to HOST:PORT came about; None if one did."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return ValueError(address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError, ValueError) as error:  # ValueError: a host or port that is none, such as '²'
        return error
    return None
