"""What a sweep says, and when it ends, while none of its chains has a slot: Tune itself waits without a word."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

import ray

from raychains.orchestration import cluster
from raychains.orchestration.session import Slots
from raychains.orchestration.shortage import HELD_AFTER, LOOK_EVERY, TIMEOUT
from raychains.planning.room import describe, fit

log = logging.getLogger(__name__)


class Room:
    """Looks at the cluster while no chain runs.

    Args:
        slots: what one chain holds.
        timeout: seconds; None is `TIMEOUT` where no node has room, and without end where others hold it.
    """

    def __init__(self, slots: Slots, timeout: float | None) -> None:
        self._slots, self._timeout = slots, timeout
        self._since = self._looked = time.monotonic()
        self._said: str | None = None
        self.over: str | None = None
        """Why the sweep is to end; None while it need not."""

    def look(self, *, running: bool) -> str | None:
        """Why no chain runs, if it is for want of room."""
        now = time.monotonic()
        if running:
            self._since, self._said = now, None
        elif now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._said, missing = self._why(now - self._since)
            limit = self._timeout if self._timeout is not None else TIMEOUT if missing else math.inf
            if self._said is not None and now - self._since >= limit:
                self.over = f"no chain could be placed for {limit:g} s: {self._said}"
        return self._said

    def _why(self, idle: float) -> tuple[str | None, bool]:
        slots = self._slots
        if not slots.room():
            has = describe(cluster.nodes())
            return f"no node of the cluster has room for a chain ({slots.describe()}): it has {has}", True
        if idle < HELD_AFTER or _started():
            return None, False
        free = cluster.free(slots.accelerator_type)
        if fit(free, slots.cpus, slots.gpus).chains:
            return None, False
        has = describe(cluster.nodes())
        return f"others hold the room for a chain ({slots.describe()}): of {has} is free {describe(free)}", False


def _started() -> bool:
    """Whether any process of ours is up or starting: Tune asks for one only once its room is reserved."""
    try:
        job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
        known: dict[str, Any] = ray._private.state.actors(job_id=job)
        return any(actor["State"] != "DEAD" for actor in known.values())
    except Exception as error:  # private to Ray
        log.debug("not known whether trials start: %s", error)
        return True
