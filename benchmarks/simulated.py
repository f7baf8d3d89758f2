"""Simulated actors: chain workers that draw tiny samples on a schedule and fail, evaluators that predict nothing.

Workers come up, chains begin, draw samples that lie in a real store, and end; workers die with their outstanding calls,
and their chains go back to an earlier sample; some chains lose every worker, raise, or diverge. Who calls them, and
whose clock counts, is `benchmarks.cluster`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from raychains import __version__
from raychains.coordination.coordinator import AttemptEvent, Began, Ended, Sampled
from raychains.core.sample import Sample, SampleMeta
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.messages import AttemptStatus, ChainAssignment, ViewSummary
from raychains.orchestration.cluster.workers import CallFailed
from raychains.store import ChainStore, Storage

if TYPE_CHECKING:
    from benchmarks.cluster import Cluster

ENVIRONMENT = {"torch": "none", "cuda": None, "device": "simulated", "cpu_capability": "", "threads": 1}
ANSWER = 0.002
"""Seconds until a worker answers a control call."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When things happen, in simulated seconds, and how often they go wrong."""

    start_up: float = 3.0
    begin: float = 0.5
    sample: float = 5.0
    """Between samples, on average."""
    predict: float = 0.02
    """An evaluator's time for one sample, and for one view."""
    lost: float = 0.05
    """Share of attempts whose worker dies."""
    diverged: float = 0.02
    """Share of first attempts that diverge."""
    doomed: float = 0.01
    """Share of chains that lose every worker before their first sample."""
    wrong: float = 0.01
    """Share of chains that raise."""


class Reference:
    """Stands for an object reference."""

    __slots__ = ("answer", "error", "ready")

    def __init__(self) -> None:
        self.ready, self.answer, self.error = False, None, None


class Unsynced(Storage):
    """A root that does not force files to the disk: the simulated workers' files need not outlive the machine."""

    def _write(self, path: str, data: bytes) -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


@dataclass
class Disk:
    """What is durable of one chain, and what fate has in store for it."""

    store: ChainStore
    expected: int
    fate: str = ""
    checkpoint: int = 0
    """Samples before its newest checkpoint."""
    restarts: int = 0

    def step(self, position: int) -> int:
        """The step of which the sample at ``position`` is."""
        return 10 * (position + 1)

    def cycle(self, position: int) -> int:
        """Its cycle, of two."""
        return 2 * position // self.expected

    def restart(self, number: int) -> None:
        """Go back to the cycle's start."""
        self.restarts = number
        self.checkpoint = self.expected // 2 if self.cycle(self.checkpoint) else 0

    def publish(self, position: int, attempt: int) -> Sampled:
        """Make a sample durable; the event that tells of it."""
        meta = SampleMeta(
            digest=self.store.digest, index=position, cycle=self.cycle(position), epoch=0, step=self.step(position),
            lr=0.1, temperature=1.0, stage="sampling", train_nll=None, draws=1,
        )  # fmt: skip
        tensors = {"theta": torch.full((1, 1, 2), float(position))}
        record, _ = self.store.publish_sample(Sample(meta=meta, tensors=tensors), attempt, ENVIRONMENT)
        return Sampled(self.store.digest, attempt, position, record)


class Actor:
    """Methods by the name that the driver calls, with an underscore; each is given the reference that it answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.dead = cluster, False
        self.outstanding: set[Reference] = set()

    def called(self, method: str, args: tuple[Any, ...], reference: Reference) -> None:
        """Take a call."""
        self.outstanding.add(reference)
        getattr(self, f"_{method}")(reference, *args)

    def answer(self, reference: Reference, answer: Any = None) -> None:
        """Unless the actor is dead."""
        if not self.dead:
            self.outstanding.discard(reference)
            self.cluster.answer(reference, answer)

    def die(self) -> None:
        """With all calls that it was asked."""
        if not self.dead:
            self.dead = True
            self.cluster.calls["died"] += 1
            for reference in self.outstanding:
                self.cluster.answer(reference, error=CallFailed("the actor died", died=True))


class Worker(Actor):
    """A `ChainWorker` that draws nothing."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.run: Run | None = None

    def _load_user_code(self, reference: Reference, payload: Any) -> None:
        self.cluster.after(self.cluster.schedule.start_up, lambda: self.answer(reference, __version__))

    def _start(self, reference: Reference, assignment: ChainAssignment) -> None:
        digest = ChainSpec.from_json(assignment.spec).digest
        self.run = run = Run(self, digest, assignment.attempt, self.cluster.disks[digest])
        self.cluster.running.add(run)
        self.cluster.most_running = max(self.cluster.most_running, len(self.cluster.running))
        self.cluster.after(ANSWER, lambda: self.answer(reference))
        self.cluster.after(self.cluster.schedule.begin, lambda: run.begin(assignment))

    def _next(self, reference: Reference, digest: str, number: int) -> None:
        run = self.run
        if run is None or (run.digest, run.number) != (digest, number):
            ended = Ended(digest, number, "stopped", "another chain")
            self.cluster.after(ANSWER, lambda: self.answer(reference, ended))
        else:
            run.asked.append(reference)
            self.cluster.after(ANSWER, run.deliver)

    def _status(self, reference: Reference, digest: str) -> None:
        run = self.run
        self.cluster.after(ANSWER, lambda: self.answer(reference, run.status() if run is not None else None))

    def _stop(self, reference: Reference, digest: str) -> None:
        if self.run is not None and self.run.digest == digest:
            self.run.stopped = True
        self.cluster.after(ANSWER, lambda: self.answer(reference))


@dataclass(eq=False)
class Run:
    """One attempt at a chain."""

    worker: Worker
    digest: str
    number: int
    disk: Disk
    asked: deque[Reference] = field(default_factory=deque)
    told: deque[AttemptEvent] = field(default_factory=deque)
    last: AttemptEvent | None = None
    position: int = 0
    stopped: bool = False
    dies_after: int = -1
    """Samples until its worker dies; never below 0."""
    diverges: bool = False

    def begin(self, assignment: ChainAssignment) -> None:
        cluster, disk = self.worker.cluster, self.disk
        if assignment.restart > disk.restarts:
            disk.restart(assignment.restart)
        self.position = disk.checkpoint
        left = disk.expected - self.position
        if disk.fate == "doomed":
            self.dies_after = 0
        elif cluster.rng.random() < cluster.schedule.lost:
            self.dies_after = cluster.rng.randint(0, left)
        self.diverges = not disk.restarts and cluster.rng.random() < cluster.schedule.diverged
        step = disk.step(self.position) - 1 if self.position else 0
        disk.store.begin(ChainSpec.from_json(assignment.spec), self.number, {**assignment.about, "from_step": step})
        self.tell(Began(self.digest, self.number, self.position, step, disk.restarts))
        self.go_on()

    def go_on(self) -> None:
        cluster = self.worker.cluster
        cluster.after(cluster.schedule.sample * (0.5 + cluster.rng.random()), self.step)

    def step(self) -> None:
        """A sample, or an end."""
        disk, rng = self.disk, self.worker.cluster.rng
        if self.worker.dead:
            return
        if self.dies_after == 0:
            self.worker.cluster.running.discard(self)
            self.worker.die()
        elif self.stopped:
            self.end("stopped")
        elif disk.fate == "wrong":
            self.end("failed", "ValueError: the task's own")
        elif self.position >= disk.expected:
            disk.checkpoint = self.position
            self.end("finished")
        elif self.diverges and self.position:
            self.end("diverged", "the loss is not finite")
        else:
            self.dies_after -= 1
            told = disk.publish(self.position, self.number)
            self.position += 1
            if rng.random() < 0.5:
                disk.checkpoint = self.position
            if self.dies_after != 0 or rng.random() < 0.5:  # else the sample is durable and never told
                self.tell(told)
            self.go_on()

    def end(self, outcome: Any, reason: str = "") -> None:
        self.worker.cluster.running.discard(self)
        seconds = self.position * self.worker.cluster.schedule.sample
        self.tell(Ended(self.digest, self.number, outcome, reason, seconds))

    def tell(self, event: AttemptEvent) -> None:
        self.told.append(event)
        self.deliver()

    def deliver(self) -> None:
        while self.asked and (self.told or self.last):
            event = self.told.popleft() if self.told else self.last
            assert event is not None
            self.last = event if isinstance(event, Ended) else None
            self.worker.answer(self.asked.popleft(), event)

    def status(self) -> AttemptStatus:
        return AttemptStatus(
            digest=self.digest,
            step=10 * self.position,
            seconds=self.position * self.worker.cluster.schedule.sample,
            cycle=self.disk.cycle(self.position),
            stage="sampling",
            lr=0.1,
            temperature=1.0,
        )


class Evaluator(Actor):
    """An `EvaluationWorker` that predicts nothing, one thing after another."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.free = 0.0

    def _alive(self, reference: Reference) -> None:
        self.answer(reference)

    def _serve(self, reference: Reference, work: Any) -> None:
        self.answer(reference)

    def _predict(self, reference: Reference, *_: Any) -> None:
        self._later(reference, "simulated")

    def _reduce(self, reference: Reference, *_: Any) -> None:
        self._later(reference, None)

    def _summarise(self, reference: Reference, *_: Any) -> None:
        self._later(reference, ViewSummary(metrics=[{"covered": 1.0}], curves=[{"covered": [1.0]}], rows={}))

    def _alone(self, reference: Reference, *_: Any) -> None:
        self._summarise(reference)

    def _later(self, reference: Reference, answer: Any) -> None:
        now = self.cluster.monotonic()
        self.free = max(self.free, now) + self.cluster.schedule.predict
        self.cluster.after(self.free - now, lambda: self.answer(reference, answer))
