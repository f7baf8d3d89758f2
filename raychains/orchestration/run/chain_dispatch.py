"""The chains' side of a run: carries the coordinator's actions out on workers, and turns what workers do into its
events."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from raychains.chain.sample_index import position
from raychains.coordination import coordinator as c
from raychains.coordination.failure import DRAIN_POLL, NOT_UP
from raychains.core.errors import StorageAway
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster.workers import CLOCK, Clock
from raychains.orchestration.lease import Lease, PeerDrivers
from raychains.orchestration.run.chain_workers import ChainWorkers, Waiting
from raychains.orchestration.run.evaluation_queue import EvaluationQueue
from raychains.orchestration.run.outcome import Results
from raychains.planning import events
from raychains.planning.budget import steps_made
from raychains.planning.eta import Speed
from raychains.store import ChainStore, Storage

log = logging.getLogger(__name__)

GROW_EVERY = 5.0
"""Seconds between checks of the cluster for new slots."""


class ChainDispatch:
    """Runs the chains that the coordinator hands out."""

    def __init__(
        self,
        specs: Mapping[str, ChainSpec],
        root: Storage,
        coordinator: c.Coordinator,
        workers: ChainWorkers,
        lease: Lease,
        evaluation: EvaluationQueue,
        results: Results,
        callback: events.Callback,
        clock: Clock = CLOCK,
    ) -> None:
        self.coordinator, self.workers = coordinator, workers
        self._specs, self._root, self._lease, self._pool, self._clock = specs, root, lease, evaluation.pool, clock
        self._peers = PeerDrivers(root, lease, specs, clock)
        self._evaluation, self._results, self._callback = evaluation, results, callback
        self.speed = Speed(specs, results.seconds)
        self.evaluated_before_last = 0
        """Samples that were evaluated when the last one came."""
        self._grown = self._asked_for_nodes = 0.0
        self._claims: dict[str, dict[str, Any]] = {}
        """Records of attempts that were claimed, by digest."""
        self._postponed: list[c.Recover] = []
        """Recoveries that storage put off."""

    # What the driver's loop calls

    def suspend(self) -> None:
        """Have running chains write checkpoints and end."""
        self._handle(c.SuspendAsked())

    def follow_peers(self) -> None:
        """Follow what other drivers did with chains of this run."""
        for event in self._peers.events(self.coordinator):
            if isinstance(event, c.DoneElsewhere):
                store, spec = ChainStore(self._peers.root, event.digest), self._specs[event.digest]
                try:
                    seconds, records = store.seconds(), store.records()
                except StorageAway:
                    continue  # it is looked at again
                self._results.finish(event.digest, seconds, steps_made(spec, records))
                self.speed.ended(event.digest)
            elif isinstance(event, c.Freed):
                self._grown = 0.0
            self._handle(event)

    def start_workers(self) -> None:
        """Start workers for waiting chains as far as the cluster has slots or adds some, now and when slots appear."""
        now = self._clock.monotonic()
        waiting = len(self.coordinator.queue)
        busy = sum(1 for digest in self.coordinator.slots.values() if digest is not None)
        self.workers.withdraw(waiting)
        if self.coordinator.suspending or not waiting or now - self._grown < GROW_EVERY:
            return
        self._grown = now
        if not self.coordinator.kinds:
            self.workers.ask_for(self.workers.slots.requested(busy + waiting))
            return
        packs = self._waiting()
        processes = sum(math.ceil(pack.chains / pack.width) for pack in packs)
        self.workers.ask_for(self.workers.slots.requested(self.workers.busy + processes), packs)

    def _waiting(self) -> list[Waiting]:
        """Return the chains that wait, kind by kind in the order of their first."""
        kinds = Counter(self.coordinator.kinds.get(digest, "") for digest in self.coordinator.queue)
        widths = {kind: self._specs[digest].pack for digest, kind in self.coordinator.kinds.items()}
        return [Waiting(kind, chains, widths.get(kind, 1)) for kind, chains in kinds.items()]

    def take(self, ref: Any) -> None:
        """Deal with a worker's answer.

        Raises:
            RaychainsError: too many workers in a row died before they were up.
            UserError: a node has no raychains, or another one.
        """
        if event := self.workers.take(ref):
            self.handle(event)

    def handle(self, event: c.Event) -> None:
        """Tell the callback and the coordinator of a worker's event."""
        match event:
            case c.SlotLost(slot, reason):
                self._callback.on(events.WorkerLost(slot=slot, reason=reason, digest=self.coordinator.slots.get(slot)))
                self._grown = 0.0
            case c.Began(digest, attempt, _, step):
                self.speed.began(digest, step)
                self._results.spent.at(digest, step)
                on = self.coordinator.chains[digest].slot
                assert on is not None
                self._callback.on(events.ChainBegan(digest=digest, slot=on, step=step, incarnation=attempt))
                for file, reason in event.torn:
                    self._callback.on(events.TornCheckpoint(digest=digest, file=file, reason=reason))
            case c.Ended(digest):
                if event.outcome == "finished":
                    self._results.finish(digest, event.seconds, event.steps or self._specs[digest].steps)
                    self._grown = (
                        0.0 if self.coordinator.starting_at(digest) else self._grown
                    )  # other chains wait for it
                self.speed.ended(digest)
        self._handle(event)

    def tick(self, seconds: float) -> list[events.ChainStatus]:
        """Return where the running chains are, ask for news of them, and read samples whose storage was away.

        ``seconds`` passed since the last tick, in which the workers could be heard.
        """
        stalled = self._watch(seconds)
        if not self.coordinator.suspending:
            self._leave_draining_nodes()
        self.workers.poll()
        postponed, self._postponed = self._postponed, []
        for action in postponed:
            self._recover(action)
        running = []
        for slot, status in self.workers.statuses():
            digest, step = status.digest, status.step
            self.speed.at(digest, step, status.seconds)
            running.append(
                events.ChainStatus(
                    **status.shown(),
                    slot=slot,
                    steps=self._specs[digest].steps,
                    steps_per_second=self.speed.steps_per_second(digest),
                    samples=self.coordinator.chains[digest].accepted,
                    # A worker's first status knows no step yet: `ChainBegan` said where it is.
                    gradients=self._results.spent.at(digest, step) if step else 0,
                    stalled_seconds=stalled.get(slot),
                )
            )
        self._lease.stall(chain.digest for chain in running if chain.stalled_seconds is not None)
        return running

    def _leave_draining_nodes(self) -> None:
        """Have chains on draining nodes write a checkpoint and go on elsewhere.

        Ray says which nodes drain (`raychains.orchestration.cluster.ray_private.draining_actors`). The coordinator
        answers with `Suspend`, and the worker's `Attempt` writes the checkpoint after its current step.
        """
        now = self._clock.monotonic()
        if now - self._asked_for_nodes < DRAIN_POLL:
            return
        self._asked_for_nodes = now
        for slot in self.workers.find_draining():
            if slot not in self.coordinator.draining:
                self._callback.on(events.Preempted(slot=slot, digest=self.coordinator.slots.get(slot)))
                self._grown = 0.0
                self._handle(c.NodeDraining(slot))

    def _watch(self, seconds: float) -> dict[int, float]:
        """Announce chains that stall, and take them from workers that do so for too long; likewise workers that do not
        come up.

        Return the seconds without a step of each stalled chain, by its slot.
        """
        stalled = {}
        for slot, digest, pace in self.workers.watch(seconds):
            reason = NOT_UP if digest is None else ""
            stall = pace.announce(self._callback, digest=digest, slot=slot, reason=reason)
            if stall is not None:
                stalled[slot] = pace.steps.silent
                if stall.given_up:
                    self.handle(self.workers.give_up(slot, stall.loss))
        return stalled

    @property
    def waiting_for_storage(self) -> list[str]:
        """Why running chains wait, as they say it."""
        return [status.waiting for _, status in self.workers.statuses() if status.waiting]

    # The coordinator's actions

    def _handle(self, event: c.Event) -> None:
        """Carry out what the coordinator decides about an event, and about what becomes of its claims."""
        suspending, pending = self.coordinator.suspending, deque([event])
        while pending:
            self._carry_out(pending.popleft(), pending)
        if self.coordinator.storage_refused is not None and not suspending:
            self._callback.on(events.Stopping(reason="the store takes no more files"))

    def _carry_out(self, event: c.Event, pending: deque[c.Event]) -> None:
        for action in self.coordinator.handle(event):
            match action:
                case c.Claim(slot, digest):  # not answered at once: many in a row may be refused
                    pending.append(self._claim(slot, digest))
                case c.Start(_, digest):
                    failures = self.coordinator.chains[digest].failures
                    self.workers.start(action, self._specs[digest], self._claims.pop(digest), failures)
                case c.Accept() if isinstance(event, c.Sampled) and event.record is not None:
                    self.evaluated_before_last = self._evaluation.evaluated
                    self._evaluation.add(self._pool.add(event.record, event.data))
                case c.Recover():
                    self._recover(action)
                case c.Forget(digest, first):
                    self._forget(digest, first)
                case c.Restart(digest, restart, reason):
                    self._callback.on(events.ChainRestarted(digest=digest, attempt=restart, reason=reason))
                case c.Drop(digest, reason):
                    self._lease.give_up(digest)
                    self._results.drop(digest)
                    self._evaluation.drop(digest)
                    self._callback.on(events.ChainDropped(digest=digest, reason=reason))
                case c.Suspend(slot, digest):
                    self.workers.suspend(slot, digest)
                case c.Release(slot):
                    self.workers.release(slot)
                    if self.coordinator.kinds and self.coordinator.queue:  # of another kind
                        self._grown = 0.0
                case c.Fail(digest, reason):
                    self._lease.give_up(digest)
                    self._evaluation.abandon(digest)
                    self._callback.on(events.ChainFailed(digest=digest, reason=reason))

    def _claim(self, slot: int, digest: str) -> c.Event:
        """Reserve a chain's next attempt in the store, or learn that another driver runs it."""
        about = {
            "driver": f"{socket.gethostname()}:{os.getpid()}",
            "driver_id": self._lease.driver_id,
            "started": self._clock.time(),
        }
        if times := self.coordinator.chains[digest].preemptions:
            about["preemptions"] = times
        attempt = self._peers.claim(digest, about)
        if attempt is not None:
            self._claims[digest] = about
        return c.Refused(slot, digest) if attempt is None else c.Claimed(slot, digest, attempt)

    def _recover(self, action: c.Recover) -> None:
        """Pool a chain's durable samples that came before an attempt's own; later, if the storage does not show them
        now."""
        spec = self._specs[action.digest]
        try:
            records = ChainStore(self._root, action.digest).records()
        except StorageAway as error:
            log.warning("samples of chain %s are read later: %s", action.digest[:12], error)
            self._postponed.append(action)
            return
        found = [r for r in records if position(spec, r.meta) < action.before]
        if len(found) < action.before:  # its listings lag behind
            self._postponed.append(action)
        for pooled in self._pool.recover(found):
            self._evaluation.add(pooled)

    def _forget(self, digest: str, first: int) -> None:
        """Let a chain's samples from the ``first``-th on go: it takes another path."""
        spec = self._specs[digest]
        gone = [p for p in self._pool.select([digest]) if position(spec, p.record.meta) >= first]
        self._pool.remove(p.record for p in gone)
        self._results.unsettle(digest)
        self._evaluation.forget(gone)
