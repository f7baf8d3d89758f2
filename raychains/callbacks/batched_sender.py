"""BatchedSender: a thread that sends a callback's items on, batch by batch, so that no run waits for a server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from raychains.core.errors import format_error

log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds that the end waits for the last batch to be taken."""


class BatchedSender:
    """Collects items; a batch that is not taken goes with the next one.

    Args:
        send: takes all items since the last batch, in order; its exceptions are logged, and the items stay.
        every: seconds between batches.
        what: the items' name in messages: ``events``.
    """

    def __init__(self, send: Callable[[list[Any]], Any], every: float, what: str) -> None:
        self._send, self._every, self._what = send, every, what
        self._items: list[Any] = []
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._refused = False
        self._thread = threading.Thread(target=self._work, name=what, daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        """Add one item to the next batch."""
        with self._lock:
            self._items.append(item)

    def close(self) -> None:
        """Send the remaining items; given up after `PATIENCE` seconds."""
        self._closing.set()
        self._thread.join(timeout=2 * PATIENCE)

    def _work(self) -> None:
        while not self._closing.wait(self._every):
            self._batch()
        deadline = time.monotonic() + PATIENCE
        while not self._batch():
            if time.monotonic() > deadline:
                log.warning("%d %s are lost: the server took none", len(self._items), self._what)
                return
            time.sleep(min(1.0, self._every))

    def _batch(self) -> bool:
        """Send a batch; whether nothing remains."""
        with self._lock:
            items, self._items = self._items, []
        if not items:
            return True
        try:
            self._send(items)
        except Exception as error:
            if not self._refused:
                log.warning("%s are not taken, which is tried again: %s", self._what, format_error(error, kind=True))
            self._refused = True
            with self._lock:
                self._items = items + self._items
            return False
        self._refused = False
        return True
