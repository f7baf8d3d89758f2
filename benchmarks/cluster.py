"""A cluster that is not there, and its clock: `raychains.orchestration.cluster.workers.Workers` without Ray.

The actors are those of `benchmarks.simulated`, which answer on a schedule. The clock is simulated too: waiting is
skipped, and the time that the driver computes, or would spend in Ray's calls, passes on it as well, so that a driver
that is too slow finds its answers in heaps.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.meter import OUTSIDE, Meter
from benchmarks.simulated import Actor, Disk, Evaluator, Reference, Run, Schedule, Unsynced, Worker
from raychains.chain.sample_index import expected_samples
from raychains.coordination.capacity import Node
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster.workers import ActorOptions
from raychains.orchestration.run.evaluation_worker import EvaluationWorker
from raychains.store import ChainStore

PAUSE = 10e-6
"""Seconds that a wait rests for each reference, as on Ray."""


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
    """Actors on so many slots, and the clock.

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
        for name in ("sleep", "wait", "result", "kill", "start", "call_parts", "nodes"):
            setattr(self, name, meter.timed(getattr(self, name), OUTSIDE))

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self._skipped + self.in_ray + self.meter.driver()

    def time(self) -> float:
        return 1e9 + self.monotonic()

    def thread_time(self) -> float:
        return self.in_ray + self.meter.driver()

    def sleep(self, seconds: float) -> None:
        """Skip them."""
        self._until(self.monotonic() + seconds)

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

    # The cluster

    started_here = True
    in_process = False

    def nodes(self, accelerator_type: str | None = None) -> list[Node]:
        return [Node(float(self.slots), 0.0, "simulated")]

    def free(self, accelerator_type: str | None = None) -> list[Node]:
        return self.nodes()

    def grows(self) -> bool:
        return False

    def unplaced(self, actors: Collection[Any]) -> int:
        return 0

    def draining(self, actors: Collection[Any]) -> list[Any]:
        return []

    # Actors

    def put(self, value: Any) -> Any:
        raise NotImplementedError

    def reserve(self, bundle: Mapping[str, float], number: int) -> Any:
        raise NotImplementedError

    def release(self, reservation: Any) -> None:
        raise NotImplementedError

    def start(self, kind: type, run: str, options: ActorOptions, *args: Any) -> Any:
        return Evaluator(self) if kind is EvaluationWorker else Worker(self)

    def kill(self, actor: Actor) -> None:
        actor.dead = True

    def dismiss(self, actor: Actor) -> None:
        self.kill(actor)

    def call(self, actor: Actor, method: str, *args: Any, group: str | None = None) -> Any:
        return self.call_parts(1, actor, method, *args)[0]

    def call_parts(self, parts: int, actor: Actor, method: str, *args: Any, group: str | None = None) -> list[Any]:
        self.calls[method] += 1
        self.in_ray += self.costs.call
        references = [Reference() for _ in range(parts)]
        actor.called(method, args, references[0])
        return references

    def wait(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        self.calls["wait"] += 1
        self.calls["waited for"] += len(calls)
        self._until(self.monotonic() + PAUSE * len(calls))
        ready = self._ready(calls)
        if not ready:
            self._until(self.monotonic() + timeout, lambda: self._news)
            ready = self._ready(calls)[:1]
        self._news = False
        return ready

    def _ready(self, calls: Sequence[Any]) -> list[Any]:
        self.in_ray += self.costs.wait + self.costs.wait_each * len(calls)
        return [reference for reference in calls if reference.ready]

    _news = False
    """Whether a reference became ready since the last look."""

    def result(self, call: Any) -> Any:
        self.in_ray += self.costs.get
        if call.error is not None:
            raise call.error
        return call.answer

    def answer(self, reference: Reference, answer: Any = None, error: Exception | None = None) -> None:
        """Make a reference ready."""
        reference.ready, reference.answer, reference.error = True, answer, error
        self._news = True
