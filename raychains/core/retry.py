"""Retries of transient storage errors: their kinds, and exponential backoff under a cap."""

from __future__ import annotations

import errno
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from raychains.core.errors import StorageAway, StorageRefused, format_error

log = logging.getLogger(__name__)

T = TypeVar("T")
KeepTrying = Callable[[str], bool]
"""Asked before every wait, with a one-line reason; False gives up."""

_JITTER = random.Random()
"""Not the process's generator, which may be seeded for a chain at the moment."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NAMES = (
    "EIO ESTALE EAGAIN EINTR EBUSY ENOLCK ETIMEDOUT ETIME EPIPE EREMOTEIO ECONNRESET ECONNREFUSED ECONNABORTED "
    "ENOTCONN ESHUTDOWN ENETDOWN ENETUNREACH ENETRESET EHOSTDOWN EHOSTUNREACH"
)
_TRANSIENT = {getattr(errno, name) for name in _NAMES.split() if hasattr(errno, name)}
_LASTING = {
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EFBIG),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
}
"""Refused today, refused tomorrow: no rights, a read-only filesystem, a name that it cannot have."""
_FULL_TEXT = re.compile(r"StorageFull|QuotaExceeded|HTTP status 507|No space left", re.IGNORECASE)
# Object stores' errors come without a number: the SDKs' own words, then those of network libraries.
_LASTING_TEXT = re.compile(r"ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_|HTTP status 4(?!08|29)\d\d|does not exist")
_TRANSIENT_TEXT = re.compile(
    r"NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTL|REQUEST_TIMEOUT|HTTP status "
    r"(5\d\d|408|429)"
    r"|UNAVAILABLE|DEADLINE_EXCEEDED|curlCode|connection|time[d ]?out|try again|could not resolve|partial file",
    re.IGNORECASE,
)
_REFUSED_TEXT = re.compile(
    r"NO_SUCH_BUCKET|ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT"
)


def refusal(error: BaseException) -> str | None:
    """Return the message of storage that refuses for good: its rights, its names, a wrong bucket; None for other
    errors."""
    if not isinstance(error, OSError):
        return None
    if error.errno is not None:
        return error.strerror or os.strerror(error.errno) if error.errno in _LASTING else None
    return format_error(error) if _REFUSED_TEXT.search(str(error)) else None


def is_full(error: BaseException) -> bool:
    """Return whether the storage has no room left."""
    if not isinstance(error, OSError):
        return False
    return error.errno in _FULL or (error.errno is None and bool(_FULL_TEXT.search(str(error))))


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed later: an error of the network, the server or a device.

    Missing, forbidden and wrong names are no transient errors.
    """
    if isinstance(error, ConnectionError | TimeoutError | InterruptedError | BlockingIOError):
        return True
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError | PermissionError) or is_full(error):
        return False
    if error.errno is not None:
        return error.errno in _TRANSIENT
    text = str(error)
    return not _LASTING_TEXT.search(text) and bool(_TRANSIENT_TEXT.search(text))


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Backoff of a repeated call: waits of ``first`` seconds, doubled up to ``cap``; ``total`` in all by default."""

    first: float = 0.1
    cap: float = 5.0
    total: float = 60.0


class Retrying:
    """Repeats calls that fail with a transient error; logs one line when an outage begins and one when it ends.

    ``what`` is the storage's name in messages: store, or data.
    """

    def __init__(
        self,
        patience: Patience | None = None,
        *,
        what: str = "store",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience if patience is not None else Patience()
        self._what, self._sleep, self._clock = what, sleep, clock
        self._lock = threading.Lock()
        self._outages: dict[str, float] = {}
        """Time at which each kind of call that fails at present began to fail."""

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Retrying, what=self._what), (self._patience,)  # a lock cannot be pickled

    def call(self, verb: str, place: str, attempt: Callable[[], T], keep_trying: KeepTrying | None = None) -> T:
        """Return ``attempt()``, tried again after transient errors.

        Args:
            verb: the past participle of messages, as in "could not be ``written``"; outages are counted for each verb.
            place: the file's name in messages.
            attempt: the call; it may be repeated at any time.
            keep_trying: asked before every wait instead of counting seconds.

        Raises:
            StorageRefused: no room left, or the storage refuses: read-only, no rights, a name too long, no such bucket;
                at once.
            StorageAway: ``keep_trying`` returned False, or the patience is spent.
            OSError: any other error, at once.
        """
        began: float | None = None
        delay = self._patience.first
        while True:
            try:
                value = attempt()
            except OSError as error:
                if is_full(error):
                    raise StorageRefused(
                        f"{self._what} is full: {place} could not be {verb} ({format_error(error)}); everything "
                        "written before is intact: free space and repeat with `resume=True`"
                    ) from error
                if reason := refusal(error):
                    raise StorageRefused(
                        f"{self._what} must exist and let its files be {verb}, but {place} could not be: {reason}"
                    ) from error
                if not is_transient(error):
                    self._back(verb, place)  # the storage answers, if only that there is no such file
                    raise
                now = self._clock()
                began = now if began is None else began
                reason = f"{place} could not be {verb}: {format_error(error)}"
                self._away(verb, now, reason)
                wait = _JITTER.uniform(0.5, 1.0) * delay  # so that a fleet does not come back in one moment
                delay = min(2 * delay, self._patience.cap)
                if keep_trying is not None:
                    go_on = keep_trying(reason)
                else:
                    left = began + self._patience.total - now
                    go_on, wait = left > 0, min(wait, left)
                if not go_on:
                    raise StorageAway(
                        f"{self._what} must be reachable, but for {now - began:.0f} s {reason}; everything written "
                        "before is intact: repeat with `resume=True` once it is back"
                    ) from error
                self._sleep(wait)
            else:
                self._back(verb, place)
                return value

    def _away(self, verb: str, now: float, reason: str) -> None:
        with self._lock:
            new = verb not in self._outages
            self._outages.setdefault(verb, now)
        if new:
            log.warning("storage is away and will be tried again: %s", reason)

    def _back(self, verb: str, place: str) -> None:
        if not self._outages:
            return
        with self._lock:
            since = self._outages.pop(verb, None)
        if since is not None:
            log.warning("storage is back after %.1f s: %s can be %s", self._clock() - since, place, verb)
