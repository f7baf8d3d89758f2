"""The driver: samples and evaluates until every chain ended and every view is evaluated, in the user's own process."""

from __future__ import annotations

from raychains.coordination.failure import LONGEST_LOOK, announced
from raychains.core.errors import RayLost, StorageRefused
from raychains.orchestration.cluster.workers import CLOCK, Clock
from raychains.orchestration.interrupt import Interrupt
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.chain_dispatch import ChainDispatch
from raychains.orchestration.run.evaluation_queue import EvaluationQueue
from raychains.orchestration.run.outcome import DriverOutcome, Results
from raychains.orchestration.run.resource_wait import ResourceWait
from raychains.planning import events

WAIT = 0.2
"""Seconds between looks at Ctrl-C when nothing else happens."""
TICK_EVERY = 0.5
"""Seconds between ticks: every poll of a worker's status takes time from its chain."""
TICK_SHARE = 0.1
"""Most of the driver's time that ticks take: they come less often where thousands of chains run at once."""


class Driver:
    """Runs chains and evaluates views; `raychains.orchestration.run.launch` builds one.

    Args:
        sampling: runs the chains; None evaluates stored samples only.
        evaluate: whether samples are evaluated at all.
    """

    def __init__(
        self,
        sampling: ChainDispatch | None,
        evaluation: EvaluationQueue,
        results: Results,
        lease: Lease,
        resources: ResourceWait,
        callback: events.Callback,
        *,
        evaluate: bool = True,
        clock: Clock = CLOCK,
    ) -> None:
        self.sampling, self.evaluation, self.results = sampling, evaluation, results
        self._lease, self._resources, self._callback = lease, resources, callback
        self._evaluate, self._clock = evaluate, clock
        self._interrupted = False
        self._tick_due, self._ticked = 0.0, clock.monotonic()
        self._evaluation_stalls = False
        self._waiting: str | None = None
        """The reason why the run waits that the callback heard last."""

    def run(self) -> DriverOutcome:
        """Run until every chain ended and every view is evaluated, or the run is interrupted.

        Raises:
            StorageRefused: the store has no room left, or takes no files.
            RayLost: Ray is gone.
            UserError: the cluster had no room for too long, or a node has another raychains.
            RaychainsError: workers die before they are up, or an evaluation fails.
        """
        try:
            with Interrupt() as interrupt:
                while not self._over:
                    if (interrupt.asked or self._lease.lost) and not self._suspending:
                        self._interrupt()
                    if self.sampling is not None:
                        self.sampling.follow_peers()
                        self.sampling.start_workers()
                    if self._evaluate and not self._suspending:
                        self.evaluation.submit(eager=not self.evaluation.idle)
                    self._take_answers()
                    self._tick()
                self._tick(last=True)
                if self._waiting is not None and not self._suspending:
                    self._callback.on(events.Resumed())  # the run was over before the next look
        except RayLost:
            if not self._suspending:
                raise  # suspended chains go on from their last checkpoints
        finally:
            self.evaluation.close()
            if self.sampling is not None:
                self.sampling.workers.close()
                self.evaluation.evaluators.close()
        return self._outcome()

    @property
    def _suspending(self) -> bool:
        return self._interrupted or (self.sampling is not None and self.sampling.coordinator.suspending)

    @property
    def _over(self) -> bool:
        if self.sampling is not None and not self.sampling.coordinator.over:
            return False
        return self._suspending or not self._evaluate or self.evaluation.idle

    def _interrupt(self) -> None:
        self._callback.on(events.Stopping())
        self._interrupted = True
        if self.sampling is not None:
            self.sampling.suspend()

    def _take_answers(self) -> None:
        """Wait a little for answers of workers and evaluators, and deal with those that came."""
        references = self.evaluation.references()
        if self.sampling is not None:
            references += self.sampling.workers.references()
        if not references:
            self._clock.sleep(WAIT)
            return
        for ref in self.evaluation.workers.wait(references, WAIT):
            if self.sampling is not None and self.sampling.workers.owns(ref):
                self.sampling.take(ref)
            elif self.evaluation.owns(ref) and (view := self.evaluation.take(ref)):
                self.results.add(view)
        self.results.announce()

    def _announce_waiting(self) -> None:
        """Tell the callback once when something is waited for, and once when it is back."""
        reasons, waiting, running = [], 0, False
        if self.sampling is not None:
            coordinator = self.sampling.coordinator
            reasons = self.sampling.waiting_for_storage
            running = any(digest is not None for digest in coordinator.slots.values())
            waiting = 0 if coordinator.suspending else len(coordinator.queue)
        starved = not (waiting or running or self.evaluation.idle) and self.evaluation.evaluators.starved
        if lack := self._resources.check(waiting=waiting, running=running, starved=starved):
            reasons.append(lack)
        if reasons and self._waiting is None:
            self._callback.on(events.Waiting(reason=reasons[0]))
        elif not reasons and self._waiting is not None:
            self._callback.on(events.Resumed())
        self._waiting = reasons[0] if reasons else None

    def _tick(self, *, last: bool = False) -> None:
        now = self._clock.monotonic()
        if now < self._tick_due and not last:
            return
        before = self._clock.thread_time()  # CPU time: a machine that is busy with other things makes ticks no rarer
        seconds, self._ticked = min(now - self._ticked, LONGEST_LOOK), now
        running = self.sampling.tick(seconds) if self.sampling is not None else []
        stall = self.evaluation.watch(seconds)
        self._evaluation_stalls = announced(self._evaluation_stalls, stall, self._callback)
        self._announce_waiting()
        coordinator = self.sampling.coordinator if self.sampling is not None else None
        slots = len(self.sampling.workers) if self.sampling is not None else 0
        silent = any(chain.stalled_seconds is not None for chain in running)
        tick = events.Tick(
            running=running,
            finished=len(self.results.seconds),
            chains=self.results.chains,
            evaluated=self.evaluation.evaluated,
            to_evaluate=self.evaluation.expected,
            remaining_seconds=self.sampling.speed.remaining(max(1, slots)) if self.sampling and not silent else None,
            failed=len(coordinator.with_status("failed", "dropped")) if coordinator is not None else 0,
            slots=slots,
            samples=len(self.evaluation.pool),
            gradients=self.results.spent.total,
            to_spend=self.results.spent.planned,
        )
        self._callback.on(tick)
        self._tick_due = now + max(TICK_EVERY, (self._clock.thread_time() - before) / TICK_SHARE)

    def _outcome(self) -> DriverOutcome:
        failed, while_sampling = {}, None
        if self.sampling is not None:
            coordinator = self.sampling.coordinator
            if coordinator.storage_refused is not None:
                raise StorageRefused(coordinator.storage_refused)
            failed = {
                digest: coordinator.chains[digest].reason for digest in coordinator.with_status("failed", "dropped")
            }
            if coordinator.chains:
                while_sampling = self.sampling.evaluated_before_last / max(1, self.evaluation.expected)
        return DriverOutcome(
            views=self.results.views,
            requested=self.evaluation.requested,
            seconds=self.results.seconds,
            gradients=self.results.spent.made,
            failed=failed,
            interrupted=self._suspending,
            samples=len(self.evaluation.pool),
            evaluated_while_sampling=while_sampling,
        )
