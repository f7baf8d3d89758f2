"""The chain workers of a run by slot."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from raychains import __version__
from raychains.chain.proof import Trial
from raychains.coordination.coordinator import AttemptEvent, Ended, Event, Sampled, SlotLost, SlotReady, Start
from raychains.coordination.failure import ChainPace
from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.chain_worker import ChainWorker, PackWorker
from raychains.orchestration.chains.messages import AttemptStatus, ChainAssignment, ChainWorkerConfig
from raychains.orchestration.cluster.payload import Payload
from raychains.orchestration.cluster.resource_config import ResourceConfig, Slots
from raychains.orchestration.cluster.workers import CLOCK, ActorOptions, CallFailed, Clock, Names, Workers
from raychains.store import Storage

log = logging.getLogger(__name__)

AHEAD = 2
"""`ChainWorker.next` calls queued per worker, so that it never waits for the driver."""
PENDING = 100
"""Workers that are asked for and not up yet, at most: an autoscaler sees how many are missing, Ray keeps few of
them."""


@dataclass(eq=False)
class _Worker:
    slot: int
    actors: list[Any]
    """By rank."""
    since: float
    """The time at which it was asked for."""
    reservation: Any = None
    digest: str | None = None
    attempt: int = 0
    status: AttemptStatus | None = None
    polled: bool = False
    """A status call is outstanding."""
    calls: set[Any] = field(default_factory=set)
    """References of its outstanding calls but for ``ahead``."""
    ahead: deque[tuple[Any, Any]] = field(default_factory=deque)
    """References of its `ChainWorker.next` calls, oldest first, and of the bytes that come with each.

    Only the oldest is waited for: a chain's samples are accepted one after another, and Ray delivers answers in any
    order.
    """
    up: int = 0
    """Number of its actors that are up."""
    kind: str = ""
    """That of the chains that it takes; several slots, one for each row of a pack, then share the actor."""
    leads: bool = True
    """It is the first of the slots that share the actor."""
    pace: ChainPace = field(default_factory=ChainPace)


@dataclass(frozen=True)
class _Call:
    """An outstanding call; digest and attempt tell an answer that was asked for before the slot's next chain."""

    method: str
    slot: int
    digest: str | None
    attempt: int
    detail: Any
    """A sample's data, or the rank of ``follow``."""


@dataclass(frozen=True)
class Waiting:
    """Chains of one kind that wait for a slot."""

    kind: str
    chains: int
    width: int = 1
    """Rows of their pack."""


class ChainWorkers:
    """Starts, calls and ends the chain workers of a run, one per slot.

    A worker that fails to come up, though its node is well, is a startup failure; too many in a row end the run.
    """

    def __init__(
        self,
        workers: Workers,
        root: Storage,
        slots: Slots,
        resources: ResourceConfig,
        payload: Payload | None,
        names: Names | None = None,
        clock: Clock = CLOCK,
        trial: Trial | None = None,
    ) -> None:
        self.workers, self.slots, self._payload, self._clock = workers, slots, payload, clock
        self._trial = () if trial is None else (workers.put(trial),)
        """A reference to the task's trial until a worker has repeated it."""
        self._names = names if names is not None else Names("run")
        self.config = ChainWorkerConfig(
            store=root.uri,
            checkpoint_every=resources.checkpoint_every,
            every_cycle=resources.on_divergence == "restart-cycle",
            data_root=resources.data_root,
            gpus=slots.gpus,
            own_process=not workers.in_process,
        )
        self._workers: dict[int, _Worker] = {}
        self._calls: dict[Any, _Call] = {}
        """Outstanding calls by the reference that answers them."""
        self._number = itertools.count()
        self._pending: dict[int, _Worker] = {}
        """Workers that are not up yet, oldest first."""
        self._policy, self._startup_failures = resources.failure_policy, 0
        self._stall_timeout = resources.stall_timeout
        self._draining: set[int] = set()
        """Slots on draining nodes."""

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def up(self) -> int:
        """Number of workers that are up."""
        return len(self._workers) - len(self._pending)

    # Workers

    def ask_for(self, number: int, packs: Iterable[Waiting] | None = None) -> None:
        """Start workers until there are so many, as far as not too many are asked for already.

        ``packs``: the waiting chains of each kind where some are packed; such a worker has a slot for each of its rows.
        """
        more = min(number - self.processes, PENDING - len(self._pending))
        if packs is None:
            for _ in range(more):
                self._add()
            return
        for waiting in packs:
            chains = waiting.chains - sum(1 for worker in self._pending.values() if worker.kind == waiting.kind)
            while chains > 0 and more > 0:
                self._add(waiting.kind, min(chains, waiting.width))
                chains, more = chains - waiting.width, more - 1

    @property
    def processes(self) -> int:
        """Number of workers, each of which has one slot or, for a pack, several."""
        return len({id(worker.actors) for worker in self._workers.values()})

    @property
    def busy(self) -> int:
        """Number of those that run chains."""
        return len({id(worker.actors) for worker in self._workers.values() if worker.digest is not None})

    def _add(self, kind: str = "", slots: int = 1) -> None:
        """Start one more worker; `SlotReady` comes for each of its slots once it is up."""
        slot, ranks = next(self._number), self.slots.ranks
        # Reserved whole, or not at all: two halves of groups never wait for one another.
        reservation = self.workers.reserve(self.slots.bundle(), ranks) if ranks > 1 else None
        actors = [self._actor(slot, rank, reservation, PackWorker if kind else ChainWorker) for rank in range(ranks)]
        for one in (slot, *itertools.islice(self._number, slots - 1)):
            pace = ChainPace(self._stall_timeout)
            worker = _Worker(one, actors, self._clock.monotonic(), reservation, pace=pace, kind=kind, leads=one == slot)
            self._workers[one] = self._pending[one] = worker
            for actor in actors:
                trial = self._trial if worker.leads else ()
                self._control(worker, "load_user_code", self._payload, *trial, actor=actor)

    def _actor(self, slot: int, rank: int, reservation: Any, kind: type = ChainWorker) -> Any:
        options = ActorOptions(
            name=self._names.actor("chain-worker", slot, rank),
            cpus=self.slots.cpus,
            gpus=self.slots.gpus,
            accelerator_type=self.slots.accelerator_type,
            reservation=reservation,
            rank=rank,
        )
        of_rank = f", rank {rank}," if reservation is not None else ""
        name = f"chain-worker-{slot}{of_rank} of {self._names.run}"
        return self.workers.start(kind, self._names.run, options, replace(self.config, name=name))

    def find_draining(self) -> list[int]:
        """Return the slots of workers that have an actor on a draining node."""
        actors = {actor for worker in self._workers.values() for actor in worker.actors}
        on_draining = set(self.workers.draining(actors)) if actors else set()
        self._draining = {slot for slot, worker in self._workers.items() if on_draining.intersection(worker.actors)}
        return sorted(self._draining)

    def withdraw(self, chains: int) -> None:
        """Give up workers that are not up yet and that none of the waiting chains needs: no node is added for them."""
        while len(self._pending) > chains:
            self.release(next(reversed(self._pending)))

    def pending(self, seconds: float) -> list[Any]:
        """Return the actors that were asked for so many seconds ago, or more, and are not up yet."""
        now = self._clock.monotonic()
        return [w.actors[0] for w in self._pending.values() if w.leads and now - w.since >= seconds]

    def release(self, slot: int) -> None:
        """Let a worker go."""
        kept = slot not in self._pending and slot not in self._draining
        if (worker := self._detached(slot)) is not None and not self._shared(worker):
            self._end(worker, idle=kept and worker.digest is None)

    def close(self) -> None:
        """Release all workers."""
        # Those that step last: a pack's actor goes as its last slot does, and is kept only where that has no chain.
        for slot in sorted(self._workers, key=lambda slot: self._workers[slot].digest is not None):
            self.release(slot)

    def _detached(self, slot: int) -> _Worker | None:
        """Take a worker out with its outstanding calls."""
        worker = self._workers.pop(slot, None)
        self._pending.pop(slot, None)
        if worker is not None:
            for ref in worker.calls:
                self._calls.pop(ref, None)
            worker.calls.clear()
            worker.ahead.clear()
        return worker

    def _shared(self, worker: _Worker) -> bool:
        """Return whether other slots are on the same actor."""
        return bool(worker.kind) and any(other.actors is worker.actors for other in self._workers.values())

    def _end(self, worker: _Worker, *, idle: bool = False) -> None:
        end = self.workers.dismiss if idle and worker.reservation is None else self.workers.kill
        for actor in worker.actors:
            end(actor)
        if worker.reservation is not None:
            self.workers.release(worker.reservation)

    # Chains

    def start(self, action: Start, spec: ChainSpec, about: dict[str, Any], failures: int = 0) -> None:
        """Run a chain on a slot; its events are asked for once the worker has taken it on.

        ``failures``: losses of the chain's workers since it last progressed, each of which doubles the patience with
            it.
        """
        worker = self._workers[action.slot]
        worker.pace = ChainPace(self._stall_timeout, failures)
        worker.digest, worker.attempt, worker.status = action.digest, action.attempt, None
        assignment = ChainAssignment(
            spec=spec.to_json(),
            attempt=action.attempt,
            restart=action.restart,
            restart_from=action.restart_from,
            about=about,
            ranks=len(worker.actors),
        )
        if assignment.ranks == 1:
            self._control(worker, "start", assignment)
            return
        address = self.workers.call(worker.actors[0], "meeting", group="control")
        self._control(worker, "start", assignment, address)
        for rank, actor in enumerate(worker.actors[1:], 1):
            follow = self.workers.call(actor, "follow", assignment, address, rank, group="samples")
            self._expect(worker, follow, "follow", rank)

    def stop(self, slot: int, digest: str) -> None:
        """Ask for a stop at the next step."""
        self._control(self._workers[slot], "stop", digest)

    def poll(self) -> None:
        """Ask every busy worker for its status, unless it is asked already."""
        for worker in self._workers.values():
            if worker.digest is not None and not worker.polled:
                worker.polled = True
                self._control(worker, "status", worker.digest)

    def watch(self, seconds: float) -> Iterable[tuple[int, str | None, ChainPace]]:
        """Note that time passed; return (slot, chain, pace) of busy workers, and of those that have a place and have
        long not come up."""
        late = []
        for worker in (w for w in self._pending.values() if w.leads):
            steps = worker.pace.steps
            steps.silent += seconds
            if steps.silent > steps.limit:
                if self.workers.unplaced(worker.actors):
                    steps.silent = 0.0  # it waits for a node, which is announced by itself
                else:
                    late.append(worker)
        busy = [w for w in self._workers.values() if w.digest is not None]
        for worker in busy:
            worker.pace.passed(seconds, asked=worker.polled)
        return [(w.slot, w.digest, w.pace) for w in (*late, *busy)]

    def give_up(self, slot: int, reason: str) -> SlotLost:
        """End a worker that stalls."""
        return self._lost(self._workers[slot], reason)

    def statuses(self) -> Iterable[tuple[int, AttemptStatus]]:
        """Return (slot, last known status) of busy workers."""
        return [(w.slot, w.status) for w in self._workers.values() if w.digest is not None and w.status is not None]

    # Calls

    def references(self) -> list[Any]:
        """Return the references to wait for."""
        return list(self._calls)

    def owns(self, ref: Any) -> bool:
        """Return whether a reference is one of `references`."""
        return ref in self._calls

    def take(self, ref: Any) -> Event | None:
        """Return the event of a ready reference; None when nobody but this class needs the answer.

        Raises:
            UserError: a node has no raychains, or another one; the task cannot be made there, or its trial ends
                elsewhere.
            RaychainsError: too many startup failures of workers in a row.
        """
        call = self._calls.pop(ref)
        worker = self._workers[call.slot]
        worker.calls.discard(ref)
        try:
            answer = self.workers.result(ref)
        except CallFailed as error:
            return self._failed(worker, call, error)
        current = (call.digest, call.attempt) == (worker.digest, worker.attempt)
        match call.method:
            case "load_user_code":
                if answer != __version__:
                    raise UserError(_wrong_runtime(answer))
                worker.up += 1
                self._trial = ()
                if worker.up == len(worker.actors):
                    self._pending.pop(call.slot, None)
                    self._startup_failures = 0
                    return SlotReady(call.slot, worker.kind)
            case "status":
                worker.polled = False
                if answer is not None and answer.digest == worker.digest:
                    worker.status = answer
                    made = answer.made if answer.made is not None else answer.step
                    worker.pace.answered(made, held=answer.held, waiting=answer.waiting is not None)
            case "start" if current:
                # The calls of a pack's slots are answered side by side: two of one chain would overtake each other.
                for _ in range(1 if worker.kind else AHEAD):
                    self._ask(worker)
                self._expect_next(worker)
            case "next" if current:
                return self._message(worker, answer, call.detail)
        return None

    def _failed(self, worker: _Worker, call: _Call, error: CallFailed) -> SlotLost | None:
        """Return the loss of a worker whose call failed; None where the error of a rank is known from rank 0."""
        if call.method == "follow":
            if error.raised:
                return None
            return self._lost(worker, f"rank {call.detail}: {error.reason}", with_node=error.with_node)
        if call.method == "load_user_code" and "No module named 'raychains'" in str(error):
            raise UserError(_wrong_runtime("none")) from None
        if call.method == "load_user_code" and isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from None
        return self._lost(worker, error.reason, with_node=error.with_node)

    def _message(self, worker: _Worker, event: AttemptEvent, data: Any) -> Event:
        if isinstance(event, Ended):
            worker.digest = None
            worker.ahead.clear()
            # Its process may be of no use any more.
            return self._lost(worker, event.reason) if event.outcome == "lost" else event
        worker.ahead.popleft()
        self._ask(worker)
        self._expect_next(worker)
        return replace(event, data=data) if isinstance(event, Sampled) else event

    def _lost(self, worker: _Worker, reason: str, *, with_node: bool = False) -> SlotLost:
        self._startup_failures += worker.slot in self._pending and worker.leads and not with_node
        self._detached(worker.slot)
        self._end(worker)
        self._policy.check_starts(self._startup_failures, reason)
        return SlotLost(worker.slot, reason)

    def _ask(self, worker: _Worker) -> None:
        answer, data = self.workers.call_parts(
            2, worker.actors[0], "next", worker.digest, worker.attempt, group="samples"
        )
        worker.ahead.append((answer, data))

    def _expect_next(self, worker: _Worker) -> None:
        answer, data = worker.ahead[0]
        self._expect(worker, answer, "next", data)

    def _control(self, worker: _Worker, method: str, *args: Any, actor: Any = None) -> None:
        actor = actor if actor is not None else worker.actors[0]
        self._expect(worker, self.workers.call(actor, method, *args, group="control"), method)

    def _expect(self, worker: _Worker, ref: Any, method: str, detail: Any = None) -> None:
        worker.calls.add(ref)
        self._calls[ref] = _Call(method, worker.slot, worker.digest, worker.attempt, detail)


def _wrong_runtime(version: str) -> str:
    return (
        f"the cluster's nodes must have raychains {__version__} as this process has, a worker has {version}: install "
        "the same there, or send this folder along with 'ray job submit --working-dir .'"
    )
