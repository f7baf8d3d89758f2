"""Heartbeats of a sweep's trials, and the trials that stall.

Tune calls one method of a trial at a time, so that a trial cannot be asked where its chain is: it says so every second,
in the key-value store of the cluster.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from raychains.coordination.failure import ChainPace
from raychains.orchestration.chains.messages import AttemptStatus
from raychains.orchestration.cluster import ray_private, ray_watch

BEAT_EVERY = 1.0
"""Seconds between two heartbeats of a trial, between two looks at them, and between a trial's looks whether its node is
draining."""


@dataclass(frozen=True)
class Heartbeat:
    """A trial's ``number``-th message, from 1: where its chain is, whose digest is empty as long as there is none."""

    number: int
    status: AttemptStatus

    def to_json(self) -> bytes:
        """Return it as the cluster's key-value store holds it."""
        return json.dumps({"number": self.number, **asdict(self.status)}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Heartbeat:
        """Inverse of `to_json`."""
        told = json.loads(data)
        return cls(told.pop("number"), AttemptStatus(**told))


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
        while not self._over.wait(BEAT_EVERY if number else 0.0):
            number += 1
            self._do(number)


@dataclass
class TrialProcess:
    """A trial's process, as the driver knows it."""

    actor: str
    pace: ChainPace
    last: Heartbeat | None = None
    """Its last heartbeat."""
    lost: bool = False
    """It was ended; Tune will hear of its death."""

    @property
    def digest(self) -> str:
        """Return its chain; empty as long as it has none."""
        return self.last.status.digest if self.last is not None else ""

    def passed(self, seconds: float, beat: Heartbeat | None, *, pending: bool) -> None:
        """Note that time passed.

        Args:
            beat: the newest heartbeat, which may be known.
            pending: the process waits for a node, which is announced by itself.
        """
        self.pace.passed(seconds, asked=beat is not None)
        if pending:
            self.pace.steps.silent = 0.0
        if beat is not None and (self.last is None or beat.number > self.last.number):
            self.last, status = beat, beat.status
            made = status.made if status.made is not None else status.step
            self.pace.answered(made, held=status.held, waiting=status.waiting is not None)


class TrialWatch:
    """Follows the processes of a sweep's trials by their heartbeats.

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
        """Remove all heartbeats from the cluster."""
        if ray_watch.lost() is None:
            ray_watch.ask(lambda: ray_private.forget(self._seen))

    def look(self, seconds: float) -> Iterator[TrialProcess]:
        """Note that time passed; about once a second yield the processes that were not given up.

        Raises:
            RayLost: Ray is gone.
        """
        self._since += seconds
        if self._since < BEAT_EVERY:
            return
        passed, self._since = self._since, 0.0
        pending, told = ray_watch.ask(lambda: ray_private.heartbeats(self._kind))
        self._seen |= pending.keys()
        beats = {actor: Heartbeat.from_json(data) for actor, data in told.items()}
        self._processes = {actor: self._process(actor, beats.get(actor)) for actor in pending}
        for actor, process in self._processes.items():
            process.passed(passed, beats.get(actor), pending=pending[actor])
        yield from [process for process in self._processes.values() if not process.lost]

    def of(self, digest: str) -> TrialProcess | None:
        """Return the process that a chain was last seen in."""
        return next((process for process in self._processes.values() if process.digest == digest), None)

    def give_up(self, process: TrialProcess) -> None:
        """End a process: Tune starts its trial anew, as after any death."""
        process.lost = True
        if process.digest:
            self._given_up[process.digest] += 1
        ray_watch.ask(lambda: ray_private.kill_actor(process.actor))

    def _process(self, actor: str, beat: Heartbeat | None) -> TrialProcess:
        """Return an actor's process: a new one where it is new, or took another chain on."""
        process, digest = self._processes.get(actor), beat.status.digest if beat is not None else ""
        if process is None or (beat is not None and process.digest not in ("", digest)):
            process = TrialProcess(actor, ChainPace(self._timeout))
        if digest and not process.digest:
            process.pace.allow(self._given_up[digest])
        return process
