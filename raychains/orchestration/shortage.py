"""What a run says, and when it ends, while its chains wait for slots: Ray itself keeps an actor pending without a word."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal

from raychains.errors import UserError
from raychains.orchestration import cluster
from raychains.orchestration.evaluators import Evaluators
from raychains.orchestration.session import Slots
from raychains.orchestration.workers import Workers
from raychains.planning.room import describe

TIMEOUT = 900.0
"""Seconds that a run of which no chain runs waits for a node with room, unless it was told otherwise: nodes that an
autoscaler adds take minutes."""
HELD_AFTER = 20.0
"""Seconds that Ray has to place a worker where there is room; then others must hold it."""
LOOK_EVERY = 1.0
"""Seconds between looks at the cluster."""
Kind = Literal["missing", "held"]
Lack = tuple[Kind, str]
"""Whether no node has room, or others hold it; and that for people."""


@dataclass
class Shortage:
    """Looks at waiting chains, the workers that they were asked for, and what the cluster has."""

    slots: Slots
    workers: Workers
    timeout: float | None = None
    """Seconds; None is `TIMEOUT` where no node has room, and without end where others hold it."""
    evaluator_gpus: float = 0.0
    """What one evaluator holds."""
    _kind: Kind | None = None
    _since: float = 0.0
    _looked: float = -math.inf
    _said: str | None = None

    def look(self, *, waiting: int, running: bool, evaluators: Evaluators | None = None) -> str | None:
        """Why so many chains wait for slots, None where they need not; while others run, only after the timeout.

        Where no chain waits or runs, the same of the evaluators that have something to do.

        Raises:
            UserError: nothing runs, and nothing could for too long.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY and waiting:
            return self._said
        self._looked = now
        if running:
            self._kind, self._said = None, self._more() if waiting else None
        elif waiting:
            self._said = self._lasting(now, self._chains())
        else:
            lack = self._evaluators() if evaluators is not None and evaluators.starved else None
            self._said = self._lasting(now, lack)
        return self._said

    def _lasting(self, now: float, lack: Lack | None) -> str | None:
        """Why nothing runs, unless it is over."""
        if lack is None:
            self._kind = None
            return None
        kind, reason = lack
        if kind != self._kind:
            self._kind, self._since = kind, now
        limit = self.timeout if self.timeout is not None else TIMEOUT if kind == "missing" else math.inf
        if now - self._since >= limit:
            raise UserError(
                f"nothing could be placed for {_text(limit)}: {reason}. Nothing is lost: the same command with --resume "
                "goes on when there is room; --slot-timeout says how long to wait"
            )
        return reason

    def _chains(self) -> Lack | None:
        what = f"a chain ({self.slots.describe()})"
        if not self.slots.room():
            return self._missing(what)
        pending = self.workers.pending(HELD_AFTER)
        if self.workers.up or not pending or cluster.unplaced(pending) < len(self.workers):
            return None
        return self._held(what)

    def _evaluators(self) -> Lack:
        what = f"an evaluator ({self.evaluator_gpus:g} GPU)"
        nodes = cluster.nodes(self.slots.accelerator_type)
        fits = any(node.gpus >= self.evaluator_gpus for node in nodes)
        return self._held(what) if fits else self._missing(what)

    def _missing(self, what: str) -> Lack:
        asked = "; more nodes were asked for" if self.slots.grows else ""
        return "missing", f"no node of the cluster has room for {what}: it has {describe(cluster.nodes())}{asked}"

    def _held(self, what: str) -> Lack:
        has, free = describe(cluster.nodes()), describe(cluster.free())
        return "held", f"others hold the room for {what}: of {has} is free {free}"

    def _more(self) -> str | None:
        """Why chains wait although others run; told where it lasts."""
        limit = self.timeout if self.timeout is not None else TIMEOUT
        missing = cluster.unplaced(pending) if (pending := self.workers.pending(limit)) else 0
        if not missing:
            return None
        which = f"{missing} more slot{'s' * (missing > 1)}"
        free = describe(cluster.free())
        return (
            f"{which} ({self.slots.describe()}) could not be had for {_text(limit)}: free is {free}; the others go on"
        )


def _text(seconds: float) -> str:
    """A duration as people write it."""
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
