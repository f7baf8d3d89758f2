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
from raychains.planning.stall import ChainPace

TELL_EVERY = 1.0
"""Seconds between two signs of a trial, between two looks at them, and between a trial's looks whether its node stays."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A trial's word of itself.

    Args:
        number: counts the trial's signs.
        digest: its chain; None while it has none.
        status: where the chain is; None before it begins.
        expects: whether it is the chain's turn, not Tune's or another driver's, nor that of an evaluation.
    """

    number: int
    digest: str | None
    status: AttemptStatus | None
    expects: bool

    def to_json(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Sign:
        """Inverse of `to_json`."""
        told = json.loads(data)
        status = told.pop("status")
        return cls(**told, status=AttemptStatus(**status) if status is not None else None)


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
    sign: Sign | None = None
    lost: bool = False
    """It was ended; Tune will hear of its death."""

    @property
    def starting(self) -> bool:
        """Return whether it has no chain yet."""
        return self.sign is None or self.sign.digest is None


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
            sign = Sign.from_json(told[actor]) if actor in told else None
            if sign is not None and process.sign is not None and process.sign.digest not in (None, sign.digest):
                process = self._processes[actor] = self._new(actor)
            if sign is not None and sign.digest is not None and process.starting:
                process.pace.allow(self._given_up[sign.digest])
            process.pace.passed(passed, asked=sign is not None)
            if waiting[actor]:
                process.pace.steps.silent = 0.0  # for a node, which is announced by itself
            if sign is not None and (process.sign is None or sign.number > process.sign.number):
                process.sign = sign
                status = sign.status or AttemptStatus(digest="")
                made = status.made if status.made is not None else status.step
                away = status.waiting is not None or not sign.expects
                process.pace.answered(made, held=status.held, waiting=away)
            if not process.lost:
                yield process

    def of(self, digest: str) -> TrialProcess | None:
        """Return the process that a chain was last seen in."""
        found = (p for p in self._processes.values() if p.sign is not None and p.sign.digest == digest)
        return next(found, None)

    def give_up(self, process: TrialProcess) -> None:
        """End a process: Tune starts its trial anew, as after any death."""
        process.lost = True
        if process.sign is not None and process.sign.digest is not None:
            self._given_up[process.sign.digest] += 1
        ray_watch.ask(lambda: ray_private.kill_actor(process.actor))

    def _new(self, actor: str) -> TrialProcess:
        return TrialProcess(actor, ChainPace(self._timeout))
