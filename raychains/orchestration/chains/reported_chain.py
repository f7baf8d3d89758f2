"""A chain that runs in the training loop of somebody else, Ray Tune's or Ray Train's: claimed, resumed, and reported
after each cycle.

Its samples and checkpoints are in the run store, from which it resumes bit for bit after whatever happened to it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from ray.exceptions import RayActorError

from raychains.chain.process_group import Ranks
from raychains.chain.sample_index import expected_samples, position
from raychains.coordination.coordinator import Began, Ended, Sampled
from raychains.coordination.failure import FailurePolicy, Policy
from raychains.core.config import Run
from raychains.core.errors import ChainsFailed, RaychainsError, StorageRefused
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.running import RunningEnsemble
from raychains.orchestration.chains.attempt import Attempt, AttemptConfig
from raychains.orchestration.chains.messages import AttemptStatus, ChainAssignment
from raychains.orchestration.lease import Lease
from raychains.planning.budget import gradient_evaluations
from raychains.planning.reports import ReportStep
from raychains.store import ChainStore, SampleRecord, Storage, codec, initial_states
from raychains.tasks import Task

ASK_AGAIN = 2.0
"""Seconds between looks at a chain that another driver or trial runs."""
ERRORS = {"failed": ChainsFailed, "diverged": ChainsFailed, "storage_refused": StorageRefused}
"""By an attempt's outcome; any other one is its process's fault."""

Report = dict[str, Any]
Reports = Generator[Report, None, None]
Follow = Callable[[ChainAssignment], Callable[[torch.device], Ranks]]
"""Lets the other ranks run an attempt along; returns what makes rank 0's process group on its device."""


@dataclass(kw_only=True)
class Reporter:
    """Tells after each cycle how a chain goes, from its samples in the order in which they are drawn.

    A report holds ``epoch``, ``cycle`` (from 0), ``samples``, ``gradient_evaluations`` and the chain's ``digest``, and
    either the metrics of the ensemble of all samples so far or the training ``loss`` at the last of them.
    """

    spec: ChainSpec
    length: int
    """Epochs of the chain."""
    steps: list[ReportStep]
    """When it reports."""
    evaluation: Evaluation | None = None
    """The split of the metrics."""
    known: int = field(default=0, init=False)
    """Reports that were made before."""
    step: int = field(default=0, init=False)
    """The step of the last report."""
    reported: int = field(default=0, init=False)
    """Number of the last report, from 1."""

    def begin(self, store: Storage) -> None:
        """Forget the samples: they come again from the first one on."""
        self._complete = initial_states.Completion(store)
        self._ensemble = RunningEnsemble(self.evaluation) if self.evaluation is not None else None
        self._samples = self._drawn_at = 0
        self._loss: float | None = None

    def add(self, record: SampleRecord, read: Callable[[], tuple[Any, Any]]) -> Reports:
        """Evaluate one more sample, and yield what is due by it."""
        self._samples, self._loss, self._drawn_at = self._samples + 1, record.meta.train_nll, record.meta.step
        if self._ensemble is not None:
            tensors, own = read()
            complete = self._complete(dict(tensors), initial_states.needed(self.spec))
            self._ensemble.add(complete, own["sha256"])
        for at in self.steps[:-1]:
            if at.samples == self._samples:
                yield from self._report(at)

    def end(self) -> Reports:
        """Yield the last report, of a chain that is through."""
        yield from self._report(self.steps[-1])

    def _report(self, at: ReportStep) -> Reports:
        """Yield a report, unless it is known."""
        number = self.steps.index(at)
        self.step, self.reported = at.step, number + 1
        if number < self.known:
            return
        self.known = number + 1
        # A chain that stops early has its only sample there.
        made = at.step if self.spec.early_stop is None else self._drawn_at
        yield {
            **(self._ensemble.metrics() if self._ensemble is not None else {"loss": self._loss}),
            "epoch": self.length * at.step / self.spec.steps,
            "cycle": at.cycle,
            "samples": self._samples,
            "gradient_evaluations": gradient_evaluations(self.spec) * made // self.spec.steps,
            "digest": self.spec.digest,
            "done": at is self.steps[-1],
        }


@dataclass(kw_only=True)
class ReportedChain:
    """One chain that this process runs, as rank 0 where several do, and its reports."""

    reporter: Reporter
    options: Run
    task: Task
    run: str
    """The name of its process among the drivers of the store."""
    driver_id: str
    """That of an earlier process whose chain this one takes over at once."""
    device: torch.device | None = None
    ranks: int = 1
    follow: Follow | None = None
    waits: bool = False
    """The chain waits at each report until the next one is asked for."""
    draining: bool = field(default=False, init=False)
    _attempt: Attempt | None = field(default=None, init=False)
    """The one that runs now."""
    _expects: bool = field(default=False, init=False)
    """True only while the chain must make progress: not Tune, another driver, or an evaluation."""

    def __post_init__(self) -> None:
        self.spec = self.reporter.spec
        self._store = Storage(self.options.store)
        self._chain = ChainStore(self._store.retrying(lambda reason: True), self.spec.digest)

    def leave(self) -> None:
        """Have the chain write a checkpoint and end, since a node that it is on is draining."""
        if not self.draining:
            self.draining = True
            if (attempt := self._attempt) is not None:
                attempt.suspend()

    def status(self) -> AttemptStatus:
        """Return where the chain is, and whether it must make progress now."""
        attempt = self._attempt
        status = attempt.status() if attempt is not None else AttemptStatus(digest=self.spec.digest)
        return status if self._expects else replace(status, waiting="it is not the chain's turn")

    def reports(self, known: int, about: Mapping[str, Any] | None = None) -> Reports:
        """Yield the chain's reports, but for the first ``known``, until it is through; the last one says ``done``.

        Args:
            known: those that were made before.
            about: goes into the records of attempts.

        Raises:
            RayActorError: Ray's own for preemptions, once the chain left.
            RaychainsError: the chain failed.
        """
        expected, reporter = expected_samples(self.spec), self.reporter
        reporter.known, reporter.step, reporter.reported = known, 0, 0
        self._noise = self._restart = self._restart_from = 0
        # Who is started again takes the chain over at once: attempts are numbered, late writes of a predecessor do not
        # count.
        with Lease(self._store, self.run, driver_id=self.driver_id) as lease:
            record = {"driver": f"{socket.gethostname()}:{os.getpid()}", "driver_id": lease.driver_id, **(about or {})}
            while True:
                reporter.begin(self._store)
                if self._chain.finished(expected):
                    yield from self._stored(expected)
                    yield from reporter.end()
                    return
                if self.draining:
                    raise RayActorError(error_msg="the node is draining: the chain wrote a checkpoint", preempted=True)
                number = lease.claim(self.spec.digest, {**record, "started": time.time()})
                if number is None:  # another driver, or another trial of the same options, runs it
                    time.sleep(ASK_AGAIN)
                    continue
                ended = yield from self._run(number, record)
                if ended.outcome == "finished":
                    return
                policy = FailurePolicy(self.options.max_failures, cast(Policy, self.options.on_divergence))
                if ended.outcome == "diverged" and policy.diverged(self._noise, ended.reason).remedy == "restart":
                    self._restart, self._restart_from = self._noise + 1, ended.cycle_start
                elif ended.outcome != "suspended" and not (self.draining and ended.outcome == "lost"):
                    raise ERRORS.get(ended.outcome, RaychainsError)(ended.reason)

    def _run(self, number: int, about: Mapping[str, Any]) -> Generator[Report, None, Ended]:
        """Run the chain from its newest checkpoint on, as attempt ``number``, and report."""
        config = AttemptConfig(
            checkpoint_every=float(self.options.checkpoint_every),
            every_cycle=True,
            holds=frozenset(at.step for at in self.reporter.steps[:-1]) if self.waits else frozenset(),
        )
        assignment = ChainAssignment(
            spec=self.spec.to_json(),
            attempt=number,
            restart=self._restart,
            restart_from=self._restart_from,
            about={**about, "started": time.time()},
            ranks=self.ranks,
        )
        group = self.follow(assignment) if self.follow is not None else None
        tasks = {repr(self.spec.task.to_json()): self.task}
        attempt = Attempt(assignment, self._store, config, tasks, group, self.device)
        attempt.begin()
        self._attempt = attempt
        if self.draining:
            attempt.suspend()
        ended: Ended | None = None
        try:
            while ended is None:
                self._expects = True
                event, data = attempt.take()
                self._expects = False
                if isinstance(event, Began):
                    self._noise = event.restart
                    yield from self._stored(event.drawn)
                elif isinstance(event, Sampled):
                    assert event.record is not None
                    read = partial(codec.decode_sample, bytes(memoryview(data)))
                    yield from self.reporter.add(event.record, read)
                else:
                    ended = event
                attempt.allow(self.reporter.step)  # the report was taken: Tune lets the chain go on
            if ended.outcome == "finished":
                yield from self.reporter.end()
            return ended
        finally:
            self._attempt, self._expects = None, False
            if ended is None:
                attempt.end()

    def _stored(self, drawn: int) -> Reports:
        """Evaluate the first ``drawn`` samples, which the store holds, and report what is due by them."""
        records = {position(self.spec, record.meta): record for record in self._chain.records()}
        for at in range(drawn):
            yield from self.reporter.add(records[at], partial(self._chain.sample, records[at].file))
