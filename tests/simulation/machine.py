"""Simulated time and processes: events in the order of their times, and drivers that run as threads of which one runs
at a time."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

EPOCH = 1.7e9
"""The storage's clock at the beginning, in seconds."""


class Killed(BaseException):
    """Raised in a driver's thread at its next call of the simulation after its process was killed."""


class Machine:
    """The clock, what is due on it, and what was noticed."""

    def __init__(self, seed: int, *, told: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.violations: list[str] = []
        self.trace: list[str] = []
        self._told = told
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._number), do))

    def until(self, end: float, over: Callable[[], bool]) -> None:
        """Let happen what is due, until it is all over or ``end``."""
        while self._due and not over() and self._due[0][0] <= end:
            due, _, do = heapq.heappop(self._due)
            self.now = max(self.now, due)
            do()

    def tell(self, text: str) -> None:
        """Note what happens: two histories of one seed are told alike."""
        self.trace.append(f"{self.now:9.3f} {text}")
        if self._told is not None:
            self._told(self.trace[-1])

    def violated(self, text: str) -> None:
        """Note that something is not as it must be."""
        self.tell(f"VIOLATED {text}")
        self.violations.append(text)

    def chance(self, share: float) -> bool:
        """Return whether something happens that does so in that share of cases."""
        return self.rng.random() < share


class Turn:
    """A thread of a process; the machine and all of them take turns."""

    def __init__(self, process: Process, name: str, run: Callable[[], None]) -> None:
        self.process, self._run = process, run
        self.over = False
        self.waits = 0
        self._mine, self._others = threading.Lock(), threading.Lock()  # released by who hands the turn over
        self._mine.acquire()
        self._others.acquire()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Give it its first turn."""
        self._thread.start()
        self.give()

    def _main(self) -> None:
        self._mine.acquire()
        self.process.turns[threading.get_ident()] = self
        try:
            self._run()
        except Killed:
            pass
        except BaseException as error:
            self.process.error = error
        finally:
            self.over = True
            del self.process.turns[threading.get_ident()]
            self._others.release()

    def give(self) -> None:
        """Let it run until it waits again, or ends."""
        if not self.over:
            self._mine.release()
            self._others.acquire()

    def wait(self, seconds: float) -> None:
        """Let the others go on for so long, or until `Process.wake`."""
        self.waits += 1
        number = self.waits
        self.process.machine.after(seconds, lambda: self.resume(number))
        self._others.release()
        self._mine.acquire()

    def resume(self, number: int) -> None:
        """End its ``number``-th wait."""
        machine, frozen = self.process.machine, self.process.frozen_until
        if self.over or number != self.waits:
            return
        if frozen > machine.now and not self.process.dead:
            machine.after(frozen - machine.now, lambda: self.resume(number))
            return
        self.waits += 1
        self.give()


class Process:
    """A process that runs a function in a thread of its own. It is the `Clock` and the `Identity` of the driver in
    it."""

    def __init__(self, machine: Machine, name: str, run: Callable[[Process], None]) -> None:
        self.machine, self.name = machine, name
        self.dead = False
        self.skew = 0.0
        """By how much its wall clock differs."""
        self.debt = 0.0
        """Seconds that slow storage took, which pass at the next wait."""
        self.frozen_until = 0.0
        self.error: BaseException | None = None
        self.turns: dict[int, Turn] = {}
        """By their threads, those that run or wait."""
        self._main = Turn(self, name, lambda: run(self))

    @property
    def over(self) -> bool:
        """Whether its main thread has ended."""
        return self._main.over

    def start(self) -> None:
        """Begin."""
        self._main.start()

    def kill(self) -> None:
        """End it where it waits; it cleans nothing up."""
        self.dead = True
        for turn in list(self.turns.values()):
            turn.give()

    def check(self) -> None:
        """Raise `Killed` in a process that was killed."""
        if self.dead:
            raise Killed

    def wait(self, seconds: float) -> None:
        """Let the machine go on for so long, or until `wake`."""
        self.check()
        debt, self.debt = self.debt, 0.0
        self.turns[threading.get_ident()].wait(seconds + debt)
        self.check()

    def wake(self) -> None:
        """End the wait of its main thread."""
        number = self._main.waits
        self.machine.after(0.0, lambda: self._main.resume(number))

    # Clock

    def monotonic(self) -> float:
        """Seconds that only rise."""
        self.check()
        return self.machine.now + self.debt

    def time(self) -> float:
        """Its wall clock."""
        self.check()
        return EPOCH + self.machine.now + self.skew

    def thread_time(self) -> float:
        """No CPU time passes."""
        self.check()
        return 0.0

    def sleep(self, seconds: float, /) -> None:
        """Wait."""
        self.wait(seconds)

    # Lease

    def background(self, waits: Iterator[float]) -> Callable[[], None]:
        """See `raychains.orchestration.lease.in_thread`."""
        ended: list[bool] = []

        def run() -> None:
            for seconds in waits:
                self.wait(seconds)
                if ended:
                    return

        self.machine.after(0.0, Turn(self, f"{self.name} lease", run).start)
        return lambda: ended.append(True)

    def here(self) -> dict[str, Any]:
        """See `raychains.orchestration.lease.Identity`."""
        return {"host": "simulated", "place": self.place(), "pid": 1 + hash_of(self.name) % 30000, "process": self.name}

    def place(self) -> str:
        """Every driver has a machine of its own: nobody sees the others' processes."""
        return f"machine-of-{self.name}"

    def gone(self, where: str, pid: int, start: str, /) -> bool:
        """Nobody can tell."""
        return False


def hash_of(text: str) -> int:
    """Return a number that is the same in every process."""
    return sum(ord(c) * 131**i for i, c in enumerate(text)) % 2**31


class Lock:
    """A lock between the threads of one process."""

    def __init__(self, process: Process) -> None:
        self._process, self._taken = process, False

    def acquire(self, *, timeout: float) -> bool:
        """Wait for it."""
        until = self._process.machine.now + timeout
        while self._taken:
            if self._process.machine.now >= until:
                return False
            self._process.wait(0.05)
        self._taken = True
        return True

    def release(self) -> None:
        """Let others have it."""
        self._taken = False

    def __enter__(self) -> None:
        self.acquire(timeout=float("inf"))

    def __exit__(self, *_: object) -> None:
        self.release()
