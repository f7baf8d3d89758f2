"""Structured events, one JSON object per line: appended to a local file, or published into the store part by part.

Every line has ``time`` (UTC, ISO 8601), ``run`` and ``event``; the other keys are the event's fields. Ticks come twice
a second and most say nothing new: one per `TICK_EVERY` seconds is written, and the last one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from raychains.callbacks.batched_sender import BatchedSender
from raychains.callbacks.event_data import record
from raychains.core.errors import UserError, format_error
from raychains.planning.events import RunEnded, RunEvent, Tick
from raychains.store import RunStore

TICK_EVERY = 10.0
"""Seconds between ticks that are written, at least."""
PER_CHAIN = 0.1
"""Seconds by which each running chain lengthens that: a tick holds a line's worth of each."""
PART_EVERY = 60.0
"""Seconds between parts in the store, where files cannot grow."""


class JsonLines:
    """Hands events to ``write`` as lines; one line per call, with its newline."""

    def __init__(self, write: Callable[[str], Any], run: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._run, self._clock = write, run, clock
        self._ticked = float("-inf")
        self._held: tuple[datetime, Tick] | None = None
        """The last tick and its time, not written."""

    def on(self, event: RunEvent) -> None:
        """Write one event, or hold a tick back."""
        now = datetime.now(UTC)
        if isinstance(event, Tick):
            if self._clock() - self._ticked < max(TICK_EVERY, PER_CHAIN * len(event.running)):
                self._held = now, event
                return
            self._ticked, self._held = self._clock(), None
        elif isinstance(event, RunEnded) and self._held is not None:
            self._write(self._line(*self._held))
            self._held = None
        self._write(self._line(now, event))

    def _line(self, now: datetime, event: RunEvent) -> str:
        line = {"time": now.isoformat(timespec="milliseconds"), "run": self._run, **record(event)}
        return json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n"


class JsonLinesFile(JsonLines):
    """Appends to a local file; each line is handed to the system at once.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(self, file: str | Path, run: str) -> None:
        try:
            self._file = open(file, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise UserError(
                f"log must be a local file that can be written, got {str(file)!r}: {format_error(error, kind=True)}"
            ) from None
        super().__init__(self._file.write, run)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonLinesParts(JsonLines):
    """Publishes ``<run's folder>/events/<driver>-<part>.jsonl``, since no object store appends; by a thread.

    Args:
        driver: the driver's id, so that drivers of one run never write the same file.
    """

    def __init__(self, folder: RunStore, driver: str, *, every: float = PART_EVERY) -> None:
        self._root, self._part = folder.root.without_waiting(), 0
        self._name = f"{folder.kind}s/{folder.name}/events/{driver}"
        self._sender = BatchedSender(self._publish, every, "events")
        super().__init__(self._sender.put, folder.name)

    def _publish(self, lines: list[str]) -> None:
        self._root.publish(f"{self._name}-{self._part:06d}.jsonl", "".join(lines).encode(errors="backslashreplace"))
        self._part += 1

    def close(self) -> None:
        """Publish the rest."""
        self._sender.close()
