"""Signs of life of a sweep's trials, and the trials without them.

Tune calls one method of a trial at a time, so that a trial cannot be asked where its chain is: it says so every second, in the
key-value store of the cluster.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from raychains.orchestration import ray_private, ray_watch
from raychains.orchestration.messages import AttemptStatus
from raychains.planning.failure import ChainPace

TELL_EVERY = 1.0
"""Seconds between two signs of a trial, between two looks at them, and between a trial's looks whether its node stays."""


def to_json(number: int, status: AttemptStatus) -> bytes:
    """Return a trial's ``number``-th sign: where its chain is, whose digest is empty as long as there is none."""
    return json.dumps({"number": number, **asdict(status)}).encode()


def from_json(data: bytes) -> tuple[int, AttemptStatus]:
    """Inverse of `to_json`."""
    told = json.loads(data)
    return told.pop("number"), AttemptStatus(**told)


class EverySecond:
    """Calls a function about every second, with the number of the call from 1, in a thread of its own."""

    def __init__(self, do: Callable[[int], None]) -> None:
        self._do, self._over = do, threading.Event()
        threading.Thread(target=self._run, name="every second", daemon=True).start()

    def close(self) -> None:
        """Call it no more."""
        self._over.set()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(TELL_EVERY if number else 0.0):
            number += 1
            self._do(number)


@dataclass
class TrialProcess:
    """A trial's process, as the driver knows it."""

    actor: str
    pace: ChainPace
    number: int = 0
    """That of its last sign."""
    status: AttemptStatus | None = None
    """Where its chain is."""
    lost: bool = False
    """It was ended; Tune will hear of its death."""

    @property
    def digest(self) -> str:
        """Return its chain; empty as long as it has none."""
        return self.status.digest if self.status is not None else ""

    def passed(self, seconds: float, number: int, status: AttemptStatus | None, *, pending: bool) -> None:
        """Note that time passed, and its newest sign.

        Args:
            number: of the sign; 0 as long as there is none.
            status: the sign's.
            pending: it waits for a node, which is announced by itself.
        """
        self.pace.passed(seconds, asked=status is not None)
        if pending:
            self.pace.steps.silent = 0.0
        if status is not None and number > self.number:
            self.number, self.status = number, status
            made = status.made if status.made is not None else status.step
            self.pace.answered(made, held=status.held, waiting=status.waiting is not None)


class TrialWatch:
    """Follows the processes of a sweep's trials by their signs.

    Args:
        kind: name of the actors' class.
        timeout: `ResourceConfig.stall_timeout`.
    """

    def __init__(self, kind: str, timeout: float) -> None:
        self._kind, self._timeout = kind, timeout
        self._processes: dict[str, TrialProcess] = {}
        self._given_up: Counter[str] = Counter()
        """By chain; each time doubles its limits, so that slow work is not cut off for ever."""
        self._seen: set[str] = set()
        self._since = 0.0

    def close(self) -> None:
        """Remove all signs from the cluster."""
        if ray_watch.lost() is None:
            ray_watch.ask(lambda: ray_private.forget(self._seen))

    def look(self, seconds: float) -> Iterator[TrialProcess]:
        """Note that time passed; about once a second yield the processes that were not given up.

        Raises:
            RayLost: Ray is gone.
        """
        self._since += seconds
        if self._since < TELL_EVERY:
            return
        passed, self._since = self._since, 0.0
        waiting, told = ray_watch.ask(lambda: ray_private.signs(self._kind))
        self._seen |= waiting.keys()
        self._processes = {actor: self._processes.get(actor) or self._new(actor) for actor in waiting}
        for actor, process in list(self._processes.items()):
            number, status = from_json(told[actor]) if actor in told else (0, None)
            if status is not None and process.digest not in ("", status.digest):
                process = self._processes[actor] = self._new(actor)
            if status is not None and status.digest and not process.digest:
                process.pace.allow(self._given_up[status.digest])
            process.passed(passed, number, status, pending=waiting[actor])
            if not process.lost:
                yield process

    def of(self, digest: str) -> TrialProcess | None:
        """Return the process that a chain was last seen in."""
        return next((process for process in self._processes.values() if process.digest == digest), None)

    def give_up(self, process: TrialProcess) -> None:
        """End a process: Tune starts its trial anew, as after any death."""
        process.lost = True
        if process.digest:
            self._given_up[process.digest] += 1
        ray_watch.ask(lambda: ray_private.kill_actor(process.actor))

    def _new(self, actor: str) -> TrialProcess:
        return TrialProcess(actor, ChainPace(self._timeout))
