"""Why a run's chains wait for slots, and when it gives up: Ray itself keeps an actor pending without a word."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from raychains.coordination.capacity import describe
from raychains.core.errors import UserError
from raychains.orchestration.cluster.resource_config import Slots
from raychains.orchestration.cluster.workers import CLOCK, Clock
from raychains.orchestration.run.chain_workers import ChainWorkers

TIMEOUT = 900.0
"""Seconds that a run of which no chain runs waits for a node with room, unless the user says otherwise: nodes that an
autoscaler adds take minutes."""
HELD_AFTER = 20.0
"""Seconds that Ray has to place a worker where there is room; then others must hold it."""
CHECK_EVERY = 1.0
"""Seconds between checks of the cluster."""
Kind = Literal["missing", "held"]
Lack = tuple[Kind, str]
"""No node has room, or others hold it; and that for people."""


@dataclass
class ResourceWait:
    """Says why chains wait for slots, from the workers that they were asked for and what the cluster has."""

    slots: Slots
    workers: ChainWorkers | None
    """None where no chains run."""
    timeout: float | None = None
    """Seconds; None is `TIMEOUT` where no node has room, and without end where others hold it."""
    evaluator_gpus: float = 0.0
    """GPUs of one evaluator."""
    clock: Clock = CLOCK
    _kind: Kind | None = None
    _since: float = 0.0
    _checked: float = -math.inf
    _reason: str | None = None

    def check(self, *, waiting: int, running: bool, starved: bool = False) -> str | None:
        """Return why so many chains wait for slots, None where they need not; while others run, only after the timeout.

        Where no chain waits or runs, the same of evaluators that are ``starved``: work waits for them, and they for
        nodes.

        Raises:
            UserError: nothing runs, and nothing could for too long.
        """
        now = self.clock.monotonic()
        if now - self._checked < CHECK_EVERY and waiting:
            return self._reason
        self._checked = now
        if running:
            self._kind, self._reason = None, self._more() if waiting else None
        elif waiting:
            self._reason = self._lasting(now, self._chains())
        else:
            self._reason = self._lasting(now, self._evaluators() if starved else None)
        return self._reason

    def _lasting(self, now: float, lack: Lack | None) -> str | None:
        """Return why nothing runs; raise where it lasts for too long."""
        if lack is None:
            self._kind = None
            return None
        kind, reason = lack
        if kind != self._kind:
            self._kind, self._since = kind, now
        limit = self.timeout if self.timeout is not None else TIMEOUT if kind == "missing" else math.inf
        if now - self._since >= limit:
            raise UserError(
                f"nothing could be placed for {_text(limit)}: {reason}. Nothing is lost: the same call with "
                "`resume=True` continues it when there is room; `slot_timeout` says how long to wait"
            )
        return reason

    def _chains(self) -> Lack | None:
        what = f"a chain ({self.slots.describe()})"
        if not self.slots.room():
            return self._missing(what)
        assert self.workers is not None
        pending = self.workers.pending(HELD_AFTER)
        if self.workers.up or not pending or self.slots.cluster.unplaced(pending) < self.workers.processes:
            return None
        return self._held(what)

    def _evaluators(self) -> Lack:
        what = f"an evaluator ({self.evaluator_gpus:g} GPU)"
        nodes = self.slots.cluster.nodes(self.slots.accelerator_type)
        fits = any(node.gpus >= self.evaluator_gpus for node in nodes)
        return self._held(what) if fits else self._missing(what)

    def _missing(self, what: str) -> Lack:
        asked = "; more nodes were asked for" if self.slots.grows else ""
        has = describe(self.slots.cluster.nodes())
        return "missing", f"no node of the cluster has room for {what}: it has {has}{asked}"

    def _held(self, what: str) -> Lack:
        has, free = describe(self.slots.cluster.nodes()), describe(self.slots.cluster.free())
        return "held", f"others hold the room for {what}: of {has} is free {free}"

    def _more(self) -> str | None:
        """Return why chains wait although others run; None until it lasts."""
        limit = self.timeout if self.timeout is not None else TIMEOUT
        pending = self.workers.pending(limit) if self.workers is not None else []
        missing = self.slots.cluster.unplaced(pending) if pending else 0
        if not missing:
            return None
        which = f"{missing} more slot{'s' * (missing > 1)}"
        free = describe(self.slots.cluster.free())
        return (
            f"{which} ({self.slots.describe()}) could not be had for {_text(limit)}: free is {free}; the others go on"
        )


def _text(seconds: float) -> str:
    """A duration as people write it."""
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
