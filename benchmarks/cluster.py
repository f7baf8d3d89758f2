"""A cluster that is not there: what stands behind the calls that a driver makes to Ray, and its clock.

`Cluster` stands for the module ``ray`` in raychains' orchestration; its actors are those of `benchmarks.simulated`, which
answer on a schedule. The clock is simulated too: waiting is skipped, and the time that the driver computes, or would
spend in Ray's calls, passes on it as well, so that a driver that is too slow finds its answers in heaps.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from benchmarks.meter import OUTSIDE, Meter
from benchmarks.simulated import Class, Disk, Evaluator, Reference, Run, Schedule, Unsynced, Worker
from raychains.orchestration.evaluator import EvaluationWorker
from raychains.positions import expected_samples
from raychains.spec import ChainSpec
from raychains.store import ChainStore

OWN_TIME = (".lease", ".process")
"""Modules that live in real time: other drivers do."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """CPU seconds that Ray's own calls take in the driver's process."""

    call: float = 130e-6
    """A call of an actor's method: its submission, and taking its answer in."""
    get: float = 15e-6
    wait: float = 50e-6
    wait_each: float = 0.4e-6
    """Per reference that is waited for."""


class Cluster:
    """Stands for the module ``ray``: what is not simulated is the module's own.

    Args:
        specs: all chains.
        root: the store.
        slots: chains that can run at once.
        meter: whose part `OUTSIDE` the simulation's own time is.
        schedule: when things happen.
        costs: of Ray's calls.
        seed: of the fates.
    """

    def __init__(
        self,
        specs: Mapping[str, ChainSpec],
        root: str,
        slots: int,
        meter: Meter,
        schedule: Schedule,
        costs: Costs,
        seed: int = 0,
    ) -> None:
        self.slots, self.meter, self.schedule, self.costs = slots, meter, schedule, costs
        self.rng = random.Random(seed)
        self.disks = {d: Disk(ChainStore(Unsynced(root), d), expected_samples(s)) for d, s in specs.items()}
        for disk in self.disks.values():
            luck = self.rng.random()
            disk.fate = (
                "doomed" if luck < schedule.doomed else "wrong" if luck < schedule.doomed + schedule.wrong else ""
            )
        self.specs = specs
        self.calls: Counter[str] = Counter()
        """Answered calls by method, waits and the references waited for."""
        self.running: set[Run] = set()
        self.most_running = 0
        self.in_ray = 0.0
        """CPU seconds that Ray would have taken."""
        self._skipped = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self.clock = Clock(self)
        for name in ("wait", "get", "kill", "remote", "cluster_resources", "nodes"):
            setattr(self, name, meter.timed(getattr(self, "_" + name), OUTSIDE))

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self._skipped + self.in_ray + self.meter.driver()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._heap, (self.monotonic() + seconds, next(self._number), do))

    def _until(self, end: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let happen what is due by ``end``, and skip to it, unless ``stop`` says so before."""
        while self._heap and self._heap[0][0] <= end:
            due, _, do = heapq.heappop(self._heap)
            self._skipped += max(0.0, due - self.monotonic())
            do()
            if stop():
                return
        self._skipped += max(0.0, end - self.monotonic())

    def finish(self, disk: Disk) -> None:
        """Put a whole finished chain into the store."""
        disk.store.begin(self.specs[disk.store.digest], 1, {"driver": "simulated", "from_step": 0})
        for position in range(disk.expected):
            disk.publish(position, 1)
        disk.store.publish_progress([{"step": disk.step(disk.expected), "seconds": 40.0}], disk.step(disk.expected), 1)
        disk.store.finish()

    # What the driver calls

    def _wait(
        self, references: Sequence[Reference], *, num_returns: int = 1, timeout: float | None = None, **_: Any
    ) -> tuple[list[Reference], list[Reference]]:
        self.calls["wait"] += 1
        self.calls["waited for"] += len(references)
        self.in_ray += self.costs.wait + self.costs.wait_each * len(references)
        self._until(self.monotonic())
        ready = [r for r in references if r.ready]
        if not ready and timeout:
            self._until(self.monotonic() + timeout, lambda: self._news)
            ready = [r for r in references if r.ready]
        self._news = False
        return ready[:num_returns], []

    _news = False
    """Whether a reference became ready since the last look."""

    def _get(self, reference: Any) -> Any:
        if isinstance(reference, list):
            return [self._get(one) for one in reference]
        self.in_ray += self.costs.get
        if reference.error is not None:
            raise reference.error
        return reference.answer

    def answer(self, reference: Reference, answer: Any = None, error: Exception | None = None) -> None:
        """Make a reference ready."""
        reference.ready, reference.answer, reference.error = True, answer, error
        self._news = True

    def _kill(self, actor: Any, **_: Any) -> None:
        actor.dead = True

    def _cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.slots)}

    def _nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "simulated", "Alive": True, "Resources": self._cluster_resources()}]

    def _remote(self, *kinds: type, **options: Any) -> Any:
        def of(kind: type) -> Class:
            made = Evaluator if issubclass(kind, EvaluationWorker) else Worker
            return Class(lambda: made(self))

        return of(*kinds) if kinds else of

    @contextmanager
    def instead_of_ray(self) -> Iterator[None]:
        """A body in which orchestration's modules find the simulation where they look for Ray and for the time."""
        changed: list[tuple[Any, str, Any]] = []
        for name, module in list(sys.modules.items()):
            if name.startswith("raychains.orchestration."):
                for at, real, simulated in (("ray", ray, self), ("time", time, self.clock)):
                    if vars(module).get(at) is real and not name.endswith(OWN_TIME):
                        changed.append((module, at, real))
                        setattr(module, at, simulated)
        try:
            yield
        finally:
            for module, at, real in changed:
                setattr(module, at, real)


@dataclass(frozen=True)
class Clock:
    """Stands for the module ``time``."""

    cluster: Cluster

    def monotonic(self) -> float:
        return self.cluster.monotonic()

    def time(self) -> float:
        return 1e9 + self.cluster.monotonic()

    def thread_time(self) -> float:
        return self.cluster.in_ray + self.cluster.meter.driver()

    def sleep(self, seconds: float) -> None:
        """Skip them."""
        self.cluster.meter.enter(OUTSIDE)
        self.cluster._until(self.cluster.monotonic() + seconds)
        self.cluster.meter.leave()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
