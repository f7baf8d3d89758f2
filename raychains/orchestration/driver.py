"""The coordinator's shell: carries the state machine's actions out on actors, in the process that the person started."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import ray

from raychains import execution, tasks
from raychains.errors import RaychainsError, StorageAway, StorageFull
from raychains.orchestration import wanted
from raychains.orchestration.crew import Crew
from raychains.orchestration.decoders import Decoders
from raychains.orchestration.dispatch import Dispatcher, recovered
from raychains.orchestration.elsewhere import Elsewhere
from raychains.orchestration.evaluators import Evaluators
from raychains.orchestration.interrupt import Interrupt
from raychains.orchestration.lease import Lease
from raychains.orchestration.luggage import pack
from raychains.orchestration.names import Names
from raychains.orchestration.outcome import Outcome
from raychains.orchestration.placement import Placement
from raychains.orchestration.pool import SamplePool
from raychains.orchestration.results import Results
from raychains.orchestration.shortage import Shortage
from raychains.orchestration.workers import Message, Workers
from raychains.planning import coordinator as c
from raychains.planning import listener as told
from raychains.planning.budget import Spent
from raychains.planning.comparison import Comparison
from raychains.planning.speed import Speed
from raychains.planning.views import Member, Request
from raychains.positions import position
from raychains.store import ChainStore, Root
from raychains.store.opening import stored

log = logging.getLogger(__name__)

WAIT = 0.2
"""Seconds between looks at Ctrl-C when nothing else happens."""
PACE = 10e-6
"""Seconds of rest per reference that is waited for, of which Ray looks at each every time: about .4 µs."""
TICK_EVERY = 0.5
"""Seconds between ticks: every look at a worker's status takes time from its chain."""
TICK_SHARE = 0.1
"""Most of the driver's time that ticks take: they come less often where thousands of chains run at once."""
GROW_EVERY = 5.0
"""Seconds between looks at the cluster for new slots."""
Asking = Callable[[Mapping[tuple[int, int], Sequence[Member]]], Sequence[Request]]
"""The views that are wanted, given the samples of every (arm, group) that can be evaluated, in the order of views."""

__all__ = ["Asking", "Driver", "Outcome", "Placement"]


class Driver:
    """Runs a comparison's unfinished chains and evaluates all of its views. Ray must be connected.

    Args:
        comparison: what to compute.
        root: the store.
        placement: slots, evaluators, cadence.
        listener: told what happens.
        run_chains: False evaluates what the store holds.
        lease: this driver's among the store's; without one it is unknown to the others.
        requests: which views are evaluated, of chains that do not run; without it, all samples of every arm and group.
        dropped: digests of unfinished chains that their arms are evaluated without, of chains that do not run.
        evaluators: those of the caller, who ends them; without them some are started, and ended with the run.
        crew: keeps workers and evaluators for the caller's next driver; without it they end with the run.
    """

    def __init__(
        self,
        comparison: Comparison,
        root: Root,
        placement: Placement,
        listener: told.Listener,
        *,
        run_chains: bool = True,
        lease: Lease | None = None,
        requests: Asking | None = None,
        dropped: Collection[str] = (),
        evaluators: Evaluators | None = None,
        crew: Crew | None = None,
    ) -> None:
        if run_chains and (requests is not None or dropped):
            raise ValueError("views are asked for, and chains left out, of a run whose chains do not run")
        self._comparison, self._root, self._placement, self._listener = comparison, root, placement, listener
        self._specs = comparison.chains()
        self._pool = SamplePool()
        self._lease = lease if lease is not None else Lease(root)
        self._elsewhere = Elsewhere(root, self._lease, self._specs)
        self._slots = placement.slots(run_chains=run_chains)
        for spec in self._specs.values() if run_chains else ():
            execution.check(spec, gpu=self._slots.gpus > 0)
        task = tasks.build(comparison.task_spec)
        luggage = pack(task)
        names = Names(self._lease.run or comparison.run_name, self._lease.driver_id)
        self._workers = (
            Workers.of(root, self._slots, placement, luggage, names)
            if crew is None or not run_chains
            else crew.workers(root, self._slots, placement, luggage)
        )
        self._decoders = Decoders(self._slots, names)
        self._workers.decoders = self._decoders.actors
        self._shortage = Shortage(self._slots, self._workers, placement.slot_timeout, placement.gpus_per_evaluator)
        unfinished = self._open(run_chains)
        inexact = {digest for digest, spec in self._specs.items() if not spec.exact}
        self._coordinator = c.Coordinator(unfinished, placement.max_failures, placement.on_divergence, inexact)
        self._lent = evaluators is not None or crew is not None
        if evaluators is None and crew is not None:
            evaluators = crew.evaluators(comparison, root, placement, luggage, slots=self._slots)
        self._evaluators = evaluators or Evaluators.of(
            comparison, root, placement, luggage, slots=self._slots, names=names
        )
        views = None
        if requests is not None:
            samples = wanted.members(comparison, self._pool, self._seconds.keys(), dropped)
            views = wanted.these(comparison, self._pool, requests(samples), samples)
        shards = task.splits()[comparison.split].shards
        self._dispatcher = Dispatcher(comparison, self._pool, self._evaluators, shards=shards, requested=views)
        self._quiet = requests is not None
        for pooled in self._pool.select():
            self._dispatcher.add(pooled)
        if not run_chains and requests is None:
            for digest in self._specs.keys() - self._seconds.keys():
                (self._dispatcher.drop if digest in dropped else self._dispatcher.abandon)(digest)
        self._results = Results(comparison, listener)
        self._speed, self._spent = Speed(self._specs, self._seconds), Spent(self._specs, self._seconds)
        self._evaluated_before_last = 0
        self._grown = self._tick_due = 0.0
        self._recoveries: list[c.Recover] = []
        """Those that the storage put off."""
        self._waiting: str | None = None
        """What the listener was told that the run waits for."""
        self._stillborn = 0
        """Workers in a row that died before they were up."""

    def _open(self, run_chains: bool) -> dict[str, int]:
        """Pool the finished chains' samples; the others' last incarnations, in order."""
        self._seconds: dict[str, float] = {}
        unfinished: dict[str, int] = {}
        for digest, found in stored(self._root, self._specs, unfinished=run_chains).items():
            if found.records is not None:
                recovered(self._pool, found.records)
                self._seconds[digest] = found.seconds
            elif run_chains:
                unfinished[digest] = found.last_incarnation
        return unfinished

    def run(self) -> Outcome:
        """Until every chain ended and every view is evaluated, or the person stopped the run."""
        sampling = bool(self._coordinator.queue)
        if not self._quiet:
            self._listener.on(told.Ready(slots=self._slots.at_once(len(self._specs)), slot=self._slots.describe()))
        try:
            with Interrupt() as interrupt:
                while not self._over():
                    if (interrupt.asked or self._lease.lost) and not self._coordinator.stopping:
                        self._listener.on(told.Stopping())
                        self._carry_out(self._coordinator.handle(c.StopAsked()))
                    self._look_elsewhere()
                    self._grow()
                    if self._placement.evaluate and not self._coordinator.stopping:
                        self._dispatcher.pump()
                    self._wait()
                    self._tick()
                self._tick(last=True)
                if self._waiting is not None and not self._coordinator.stopping:
                    self._listener.on(told.GoesOn())  # the rest was over before the next look
        finally:
            self._workers.close()
            self._decoders.close()
            self._dispatcher.close()
            if not self._lent:
                self._evaluators.close()
        if self._coordinator.full is not None:
            raise StorageFull(self._coordinator.full)
        before = self._evaluated_before_last / max(1, self._dispatcher.expected)
        return Outcome(
            views=self._results.views,
            requested=self._dispatcher.requested,
            seconds=self._seconds,
            failed={d: s.reason for d, s in self._coordinator.chains.items() if s.status in ("failed", "dropped")},
            stopped=self._coordinator.stopping,
            samples=len(self._pool),
            evaluated_while_sampling=before if sampling else None,
        )

    def _over(self) -> bool:
        if not self._coordinator.over:
            return False
        return self._coordinator.stopping or not self._placement.evaluate or self._dispatcher.idle

    def _look_elsewhere(self) -> None:
        """Heed what other drivers did with chains of this run."""
        for event in self._elsewhere.look(self._coordinator):
            if isinstance(event, c.DoneElsewhere):
                self._chain_finished(event.digest, ChainStore(self._root, event.digest).seconds())
                self._speed.ended(event.digest)
            elif isinstance(event, c.Freed):
                self._grown = 0.0
            self._carry_out(self._coordinator.handle(event))

    def _grow(self) -> None:
        """Start workers for waiting chains as far as the cluster has slots or adds some, now and when slots appear."""
        now = time.monotonic()
        waiting = len(self._coordinator.queue)
        self._workers.withdraw(waiting)
        if self._coordinator.over:
            self._decoders.close()
        if self._coordinator.stopping or not waiting or now - self._grown < GROW_EVERY:
            return
        self._grown = now
        busy = sum(1 for d in self._coordinator.slots.values() if d is not None)
        self._workers.ask_for(self._slots.wanted(busy + waiting))
        self._decoders.keep()

    def _wait(self) -> None:
        references = self._workers.references() + self._dispatcher.references()
        if not references:
            time.sleep(WAIT)
            return
        time.sleep(PACE * len(references))
        ready, _ = ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
        if not ready:
            ready, _ = ray.wait(references, num_returns=1, timeout=WAIT, fetch_local=False)
        for ref in ready:
            if self._workers.owns(ref):
                if message := self._workers.take(ref):
                    self._heed(message)
            elif self._dispatcher.owns(ref) and (view := self._dispatcher.take(ref)):
                self._results.add(view)
        self._results.tell(self._seconds, self._dropped)

    def _dropped(self, digest: str) -> bool:
        chain = self._coordinator.chains.get(digest)
        return chain is not None and chain.status == "dropped"

    def _heed(self, message: Message) -> None:
        event = message.event
        if isinstance(event, c.Ended) and message.seconds is not None:
            if event.outcome == "finished":
                self._chain_finished(event.digest, message.seconds)
            self._speed.ended(event.digest)
        elif isinstance(event, c.Began) and message.step is not None:
            self._speed.began(event.digest, message.step)
            self._spent.at(event.digest, message.step)
            self._listener.on(
                told.ChainBegan(digest=event.digest, slot=event.slot, step=message.step, incarnation=event.incarnation)
            )
            for file, reason in message.torn:
                self._listener.on(told.TornCheckpoint(digest=event.digest, file=file, reason=reason))
        elif isinstance(event, c.SlotReady):
            self._stillborn = 0
        elif isinstance(event, c.SlotLost):
            self._listener.on(told.SlotGone(slot=event.slot, reason=event.reason))
            self._stillborn += message.stillborn
            if self._stillborn > self._placement.max_failures:
                raise RaychainsError(
                    f"{self._stillborn} workers in a row died before they were up; the last: {event.reason}"
                )
            self._grown = 0.0
        stopping = self._coordinator.stopping
        self._carry_out(self._coordinator.handle(event), message)
        if self._coordinator.full is not None and not stopping:
            self._listener.on(told.Stopping(reason="the store has no room left"))

    def _chain_finished(self, digest: str, seconds: float) -> None:
        self._seconds[digest] = seconds
        self._spent.at(digest, self._specs[digest].steps)
        self._listener.on(told.ChainFinished(digest=digest, seconds=seconds))

    def _carry_out(self, actions: list[c.Action], message: Message | None = None) -> None:
        for action in actions:  # grows by the answers to starts that were refused
            match action:
                case c.Start(slot, digest):
                    about = {
                        "driver": f"{socket.gethostname()}:{os.getpid()}",
                        "driver_id": self._lease.driver_id,
                        "started": time.time(),
                    }
                    incarnation = self._elsewhere.take(digest, about)
                    if incarnation is None:
                        actions.extend(self._coordinator.handle(c.Refused(slot, digest)))
                        continue
                    self._coordinator.renumber(digest, incarnation)
                    numbered = replace(action, incarnation=incarnation)
                    self._workers.start(numbered, self._specs[digest].to_json(), about)
                case c.Accept() if message is not None and message.arrived is not None:
                    self._evaluated_before_last = self._dispatcher.evaluated
                    self._dispatcher.add(self._pool.add(message.arrived.record, message.arrived.ref))
                case c.Recover():
                    self._recover(action)
                case c.Forget(digest, first):
                    self._forget(digest, first)
                case c.Restart(digest, attempt, reason):
                    self._listener.on(told.ChainRestarted(digest=digest, attempt=attempt, reason=reason))
                case c.Drop(digest, reason):
                    self._lease.give_up(digest)
                    self._results.unsettle(digest)
                    self._dispatcher.drop(digest)
                    self._listener.on(told.ChainDropped(digest=digest, reason=reason))
                case c.Stop(slot, digest):
                    self._workers.stop(slot, digest)
                case c.Release(slot):
                    self._workers.release(slot)
                case c.Fail(digest, reason):
                    self._lease.give_up(digest)
                    self._dispatcher.abandon(digest)
                    self._listener.on(told.ChainFailed(digest=digest, reason=reason))

    def _recover(self, action: c.Recover) -> None:
        """Pool a chain's durable samples that came before an incarnation's own; later, if the storage is away."""
        spec = self._specs[action.digest]
        try:
            records = ChainStore(self._root, action.digest).records()
        except StorageAway as error:
            log.warning("samples of chain %s are read later: %s", action.digest[:12], error)
            self._recoveries.append(action)
            return
        for pooled in recovered(self._pool, [r for r in records if position(spec, r.meta) < action.before]):
            self._dispatcher.add(pooled)

    def _forget(self, digest: str, first: int) -> None:
        """A chain takes another path from its ``first``-th sample on."""
        spec = self._specs[digest]
        gone = [p for p in self._pool.select([digest]) if position(spec, p.record.meta) >= first]
        self._pool.remove(p.record for p in gone)
        self._results.unsettle(digest)
        self._dispatcher.forget(gone)

    def _tell_of_waiting(self) -> None:
        """Once when something is waited for, and once when it is back."""
        reasons = [status["waiting"] for _, status in self._workers.statuses() if status["waiting"]]
        running = any(digest is not None for digest in self._coordinator.slots.values())
        waiting = 0 if self._coordinator.stopping else len(self._coordinator.queue)
        evaluators = None if waiting or running or self._dispatcher.idle else self._evaluators
        if lacks := self._shortage.look(waiting=waiting, running=running, evaluators=evaluators):
            reasons.append(lacks)
        if reasons and self._waiting is None:
            self._listener.on(told.Waiting(reason=reasons[0]))
        elif not reasons and self._waiting is not None:
            self._listener.on(told.GoesOn())
        self._waiting = reasons[0] if reasons else None

    def _tick(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if now < self._tick_due and not last:
            return
        before = time.thread_time()  # CPU time: a machine that is busy with other things does not make ticks rarer
        self._workers.poll()
        self._tell_of_waiting()
        for put_off in [self._recoveries.pop() for _ in range(len(self._recoveries))]:
            self._recover(put_off)
        running = []
        for slot, status in self._workers.statuses():
            digest, step = status["digest"], status["step"]
            self._speed.at(digest, step, status["seconds"])
            running.append(
                told.ChainStatus(
                    digest=digest, slot=slot, step=step, steps=self._specs[digest].steps, cycle=status["cycle"],
                    stage=status["stage"], loss=status["loss"], seconds=status["seconds"], lr=status["lr"],
                    temperature=status["temperature"], kinetic_temperature=status["kinetic_temperature"],
                    steps_per_second=self._speed.steps_per_second(digest),
                    samples=self._coordinator.chains[digest].accepted,
                    # A worker's first status knows no step yet: what it goes on from was told when it began.
                    gradients=self._spent.at(digest, step) if step else 0,
                )
            )  # fmt: skip
        tick = told.Tick(
            running=running,
            finished=len(self._seconds),
            chains=len(self._specs),
            evaluated=self._dispatcher.evaluated,
            to_evaluate=self._dispatcher.expected,
            remaining_seconds=self._speed.remaining(max(1, len(self._workers))),
            failed=len(self._coordinator.with_status("failed")) + len(self._coordinator.with_status("dropped")),
            slots=len(self._workers),
            samples=len(self._pool),
            gradients=self._spent.total,
            to_spend=self._spent.planned,
        )
        self._listener.on(tick)
        self._tick_due = now + max(TICK_EVERY, (time.thread_time() - before) / TICK_SHARE)
