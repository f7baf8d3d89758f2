"""Structured events, one JSON object per line: appended to a local file, or published into the store part by part.

Every line has ``time`` (UTC, ISO 8601), ``run`` and ``event``; the other keys are the event's fields. Ticks come twice a
second and most say nothing new: one in `TICK_EVERY` seconds is written, and the last one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from raychains.errors import UserError, said
from raychains.listeners.behind import Behind
from raychains.listeners.record import record
from raychains.planning.listener import Happening, Over, Tick
from raychains.planning.sweeping import SweepTick
from raychains.store import RunStore

TICK_EVERY = 10.0
"""Seconds between ticks that are written, at least."""
PER_CHAIN = 0.1
"""Seconds by which each running chain lengthens that: a tick holds a line's worth of each."""
PART_EVERY = 60.0
"""Seconds between parts in the store, where files cannot grow."""


class JsonLines:
    """Hands events as lines to ``write``; one line per call, with its newline.

    Args:
        write: takes a line.
        run: the run's name.
        clock: monotonic seconds.
    """

    def __init__(self, write: Callable[[str], Any], run: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._run, self._clock = write, run, clock
        self._ticked = float("-inf")
        self._held: tuple[datetime, Tick | SweepTick] | None = None
        """The last tick and its time, not written."""

    def on(self, happening: Happening) -> None:
        """Write one event, or hold a tick back."""
        now = datetime.now(UTC)
        if isinstance(happening, Tick | SweepTick):
            if self._clock() - self._ticked < max(TICK_EVERY, PER_CHAIN * len(happening.running)):
                self._held = now, happening
                return
            self._ticked, self._held = self._clock(), None
        elif isinstance(happening, Over) and self._held is not None:
            self._write(self._line(*self._held))
            self._held = None
        self._write(self._line(now, happening))

    def _line(self, now: datetime, happening: Any) -> str:
        line = {"time": now.isoformat(timespec="milliseconds"), "run": self._run, **record(happening)}
        return json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n"


class JsonLinesFile(JsonLines):
    """Appends to a local file; each line is with the system before the run goes on.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(self, file: str | Path, run: str) -> None:
        try:
            self._file = open(file, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise UserError(f"log must be a local file that can be written, got {str(file)!r}: {said(error)}") from None
        super().__init__(self._file.write, run)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonLinesParts(JsonLines):
    """Publishes ``<run's folder>/events/<driver>-<part>.jsonl``, since no object store appends; a thread does the waiting.

    Args:
        folder: the run's, or the sweep's.
        driver: the driver's id, so that drivers of one run never write the same file.
        every: seconds between parts.
    """

    def __init__(self, folder: RunStore, driver: str, *, every: float = PART_EVERY) -> None:
        self._root, self._part = folder.root.waiting(lambda _: False), 0
        self._name = f"{folder.kind}s/{folder.name}/events/{driver}"
        self._behind = Behind(self._publish, every, "events")
        super().__init__(self._behind.put, folder.name)

    def _publish(self, lines: list[str]) -> None:
        self._root.publish(f"{self._name}-{self._part:06d}.jsonl", "".join(lines).encode(errors="backslashreplace"))
        self._part += 1

    def close(self) -> None:
        """Publish what is left."""
        self._behind.close()
