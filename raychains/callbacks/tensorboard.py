"""TensorBoard's event files: curves by chain over gradient evaluations, metrics by arm over repeats."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from raychains.callbacks.event_data import EVERY, Points, Repeats, short
from raychains.core.errors import UserError, format_error
from raychains.planning.events import ChainDropped, ChainFailed, RunEnded, RunEvent, Tick, ViewDone

FLUSH_EVERY = 10
"""Seconds after which written numbers can be seen."""


class TensorBoard:
    """Writes into a local folder; a resumed run adds a file, and TensorBoard shows both as one run.

    Tags are ``loss/<chain>``, ``lr/<chain>`` and so on, ``stage/<chain>`` as a text where the stage changes, ``run/…``
    of the whole run over gradient evaluations, and ``<metric>/<arm>`` over repeats.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        from tensorboardX import SummaryWriter

        try:
            suffix = f".{uuid.uuid4().hex[:8]}"  # names tell seconds: two within one would be one file
            self._writer: Any = SummaryWriter(str(folder), flush_secs=FLUSH_EVERY, filename_suffix=suffix)
        except (OSError, ValueError) as error:
            raise UserError(
                f"tensorboard must be a local folder that can be written, got {str(folder)!r}: "
                f"{format_error(error, kind=True)}"
            ) from None
        self._points, self._repeats = Points(), Repeats()
        self._stages: dict[str, str] = {}
        self._written, self._ticked = -1, float("-inf")
        self._last: Tick | None = None

    def on(self, event: RunEvent) -> None:
        """Write the event's numbers."""
        for point in self._points.of(event):
            for name, value in point.values.items():
                self._writer.add_scalar(f"{name}/{point.chain}", value, point.gradients)
        if isinstance(event, Tick):
            self._tick(event)
        elif isinstance(event, ViewDone):
            for number, metrics in self._repeats.of(event):
                for name, value in metrics.items():
                    self._writer.add_scalar(f"{name}/{event.arm}", value, number)
        elif isinstance(event, RunEnded) and self._last is not None:
            self._whole(self._last)
        elif isinstance(event, ChainFailed | ChainDropped):
            self._writer.add_text(f"failed/{short(event.digest)}", event.reason)

    def _tick(self, tick: Tick) -> None:
        for status in tick.running:
            if status.stage and self._stages.get(status.digest) != status.stage:
                self._stages[status.digest] = status.stage
                self._writer.add_text(f"stage/{short(status.digest)}", status.stage, status.gradients)
        self._last = tick
        if tick.gradients != self._written and time.monotonic() - self._ticked > EVERY:
            self._ticked = time.monotonic()
            self._whole(tick)

    def _whole(self, tick: Tick) -> None:
        self._written = tick.gradients
        for name in ("finished", "failed", "samples", "evaluated"):
            self._writer.add_scalar(f"run/{name}", getattr(tick, name), tick.gradients)

    def close(self) -> None:
        """Write everything out."""
        self._writer.close()
