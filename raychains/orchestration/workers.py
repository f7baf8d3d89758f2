"""The chain workers of a run: actors by slot, their outstanding calls, and what those calls say as planning events."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raychains import __version__
from raychains.errors import UserError
from raychains.orchestration.luggage import Luggage
from raychains.orchestration.names import Names
from raychains.orchestration.placement import Placement
from raychains.orchestration.session import Slots
from raychains.orchestration.worker import ChainWorker
from raychains.planning import coordinator as c
from raychains.sample import SampleMeta
from raychains.store import Root, SampleRecord

AHEAD = 2
"""`next` calls queued per worker, so that it never waits for the driver."""
WITH_NODE = "its node has died"
"""What Ray says of an actor that went with its node, or waited there."""
PENDING = 100
"""Workers that are asked for and not up yet, at most: an autoscaler sees what is wanted, Ray keeps few of them."""


@dataclass
class _Worker:
    slot: int
    actor: Any
    digest: str | None = None
    incarnation: int = 0
    status: dict[str, Any] | None = None
    asked: bool = False
    """Whether a status call is outstanding."""
    calls: set[Any] = field(default_factory=set)
    """References of its outstanding calls."""
    since: float = field(default_factory=lambda: time.monotonic())
    """When it was asked for."""
    others: list[Any] = field(default_factory=list)
    """Actors of the chain's other ranks, from rank 1 on."""
    place: Any = None
    """The placement group that holds all of them."""
    up: int = 0
    """How many of its actors said that they are up."""
    luggage: Luggage | None = None
    """The last that it was given."""
    proven: bool = False
    """Whether it was up before."""


@dataclass(frozen=True)
class _Call:
    """An outstanding call; digest and incarnation tell an answer that was asked for before the slot's next chain."""

    method: str
    slot: int
    digest: str | None = None
    incarnation: int = 0
    payload: Any = None


@dataclass
class Arrived:
    """A sample that came with an event: its record, and its bytes' reference in the object store."""

    record: SampleRecord
    ref: Any


@dataclass
class Message:
    """One planning event, with what the planner does not look at."""

    event: c.Event
    arrived: Arrived | None = None
    seconds: float | None = None
    """Chain seconds, with the end of a chain."""
    step: int | None = None
    """First step, with its beginning."""
    torn: Sequence[tuple[str, str]] = ()
    """Files and reasons of damaged checkpoints that its beginning passed over."""
    stillborn: bool = False
    """Whether a lost worker failed to come up, though its node is well."""


@dataclass
class Workers:
    """Starts, feeds and listens to chain workers. Nothing is restarted or retried by Ray.

    With ``keeps``, workers that a driver has no more chains for rest until `serve` hands them to the next one.
    """

    store: str
    slots: Slots
    checkpoint_every: float
    data_root: str | None
    luggage: Luggage | None = None
    every_cycle: bool = False
    names: Names = field(default_factory=lambda: Names("run"))
    keeps: bool = False
    decoders: Sequence[Any] = ()
    """Actors that cut the pictures of the chains that are started."""
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _calls: dict[Any, _Call] = field(default_factory=dict)
    """Outstanding calls by the reference that answers them."""
    _number: Any = field(default_factory=itertools.count)
    _pending: dict[int, _Worker] = field(default_factory=dict)
    """Those that are not up yet, oldest first."""
    _resting: dict[int, _Worker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups = {"control": 2, "samples": 1}
        # Once: Ray keeps and sends around every class that it is given.
        self._class = ray.remote(concurrency_groups=groups)(self.names.titled(ChainWorker))

    def __len__(self) -> int:
        return len(self._workers)

    @classmethod
    def of(
        cls, root: Root, slots: Slots, placement: Placement, luggage: Luggage, names: Names, *, keeps: bool = False
    ) -> Workers:
        """Those of a run whose slots are known."""
        cycles = placement.on_divergence == "restart-cycle"
        return cls(
            root.uri, slots, placement.checkpoint_every, placement.data_root, luggage,
            every_cycle=cycles, names=names, keeps=keeps,
        )  # fmt: skip

    def serve(self, slots: Slots, luggage: Luggage) -> None:
        """Work for another driver from now on: its workers are those that rest, as far as they go.

        Raises:
            ValueError: the last driver is not through.
        """
        if self._workers:
            raise ValueError("workers serve one driver at a time")
        self.slots, self.luggage = slots, luggage

    def ask_for(self, number: int) -> None:
        """Start workers until there are so many, as far as not too many are asked for already."""
        for _ in range(min(number - len(self._workers), PENDING - len(self._pending))):
            self.add()

    def add(self) -> None:
        """Start one more worker, or take one that rests; `SlotReady` comes once it is up."""
        if self._resting:
            self._wake()
            return
        slot = next(self._number)
        ranks, place = self.slots.ranks, None
        if ranks > 1:  # reserved whole, or not at all: two halves of groups never wait for one another
            place = placement_group([self.slots.bundle()] * ranks, strategy="PACK")
        actors = [self._actor(slot, rank, place) for rank in range(ranks)]
        worker = _Worker(slot, actors[0], others=actors[1:], place=place, luggage=self.luggage)
        self._workers[slot] = self._pending[slot] = worker
        for actor in actors:
            self._control(worker, "ready", actor=actor)

    def _wake(self) -> None:
        """Take a worker that rests, one that was up before if there is one; where it died meanwhile it is lost now."""
        worker = max(self._resting.values(), key=lambda w: w.proven)
        self._workers[worker.slot] = self._pending[worker.slot] = self._resting.pop(worker.slot)
        unpacked = () if worker.luggage is self.luggage else (self.luggage,)
        worker.luggage, worker.status, worker.asked, worker.up = self.luggage, None, False, 0
        if worker.proven:
            worker.since = time.monotonic()
        for actor in (worker.actor, *worker.others):
            self._control(worker, "ready", *unpacked, actor=actor)

    def _actor(self, slot: int, rank: int, place: Any) -> Any:
        options: dict[str, Any] = {
            "num_cpus": self.slots.cpus,
            "num_gpus": self.slots.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD" if place is None else PlacementGroupSchedulingStrategy(place, rank),
            "name": self.names.actor("chain-worker", slot, rank),
        }
        if self.slots.gpus and self.slots.accelerator_type is not None:
            options["accelerator_type"] = self.slots.accelerator_type
        of_rank = f", rank {rank}," if place is not None else ""
        return self._class.options(**options).remote(
            self.store, self.checkpoint_every, self.every_cycle, self.data_root, self.slots.gpus, self.luggage,
            name=f"chain-worker-{slot}{of_rank} of {self.names.run}",
        )  # fmt: skip

    def withdraw(self, chains: int) -> None:
        """Give up workers that are not up yet and that none of the waiting chains needs: no node is added for them."""
        while len(self._pending) > chains:
            self.release(next(reversed(self._pending)))

    def pending(self, seconds: float) -> list[Any]:
        """The actors that were asked for so many seconds ago, or more, and are not up yet."""
        now = time.monotonic()
        return [w.actor for w in self._pending.values() if now - w.since >= seconds]

    @property
    def up(self) -> int:
        """How many are up."""
        return len(self._workers) - len(self._pending)

    def start(self, action: c.Start, spec: dict[str, Any], about: dict[str, Any]) -> None:
        """Run a chain on a slot; its events are asked for once the worker has taken it on."""
        worker = self._workers[action.slot]
        worker.digest, worker.incarnation, worker.status = action.digest, action.incarnation, None
        decoders = list(self.decoders)
        if not worker.others:
            self._control(worker, "start", spec, action.incarnation, about, action.attempt, None, 1, decoders)
            return
        size = len(worker.others) + 1
        address = worker.actor.meeting.options(concurrency_group="control").remote()
        self._control(worker, "start", spec, action.incarnation, about, action.attempt, address, size, decoders)
        for rank, actor in enumerate(worker.others, 1):
            follow = actor.follow.options(concurrency_group="samples")
            self._expect(worker, follow.remote(spec, action.attempt, address, rank, size, decoders), "follow", rank)

    def stop(self, slot: int, digest: str) -> None:
        """Ask for a stop at the next step."""
        self._control(self._workers[slot], "stop", digest)

    def release(self, slot: int) -> None:
        """Let a worker go that has nothing more to do: it rests, or it ends."""
        worker = self._detached(slot)
        if worker is None:
            return
        # One that is not up yet may be waiting for a node, which nobody is to add for it any more.
        if self.keeps and worker.digest is None and (worker.proven or not self.slots.grows):
            self._resting[slot] = worker
        else:
            _end(worker)

    def close(self) -> None:
        """Let all workers go."""
        for slot in list(self._workers):
            self.release(slot)

    def dismiss(self) -> None:
        """End those that rest."""
        for slot in list(self._resting):
            _end(self._resting.pop(slot))

    def _detached(self, slot: int) -> _Worker | None:
        """A worker that is none of the driver's any more, whatever it was asked last."""
        worker = self._workers.pop(slot, None)
        self._pending.pop(slot, None)
        if worker is not None:
            for ref in worker.calls:
                self._calls.pop(ref, None)
            worker.calls.clear()
        return worker

    def references(self) -> list[Any]:
        """References to wait for."""
        return list(self._calls)

    def owns(self, ref: Any) -> bool:
        """Whether a reference is one of `references`."""
        return ref in self._calls

    def poll(self) -> None:
        """Ask every busy worker for its status, unless it is asked already."""
        for worker in self._workers.values():
            if worker.digest is not None and not worker.asked:
                worker.asked = True
                self._control(worker, "status")

    def statuses(self) -> Iterable[tuple[int, dict[str, Any]]]:
        """(slot, last known status) of busy workers."""
        return [(w.slot, w.status) for w in self._workers.values() if w.digest is not None and w.status is not None]

    def take(self, ref: Any) -> Message | None:
        """What a ready reference says; None when that is nothing for the planner.

        Raises:
            UserError: a node has no raychains, or another one.
        """
        call = self._calls.pop(ref)
        worker = self._workers[call.slot]
        worker.calls.discard(ref)
        try:
            answer = ray.get(ref)
        except RayError as error:  # its death, its node's, Ray's out-of-memory kill, or an error of the worker's own
            if call.method == "follow":
                if isinstance(error, RayTaskError):  # its own error, which it told rank 0
                    return None
                return self._failed(worker, f"rank {call.payload}: {_line(error)}", with_node=WITH_NODE in str(error))
            if call.method == "ready" and "No module named 'raychains'" in str(error):
                raise UserError(_wrong_runtime("none")) from None
            return self._failed(worker, _line(error), with_node=WITH_NODE in str(error))
        current = (call.digest, call.incarnation) == (worker.digest, worker.incarnation)
        if call.method == "ready":
            if answer != __version__:
                raise UserError(_wrong_runtime(answer))
            worker.up += 1
            if worker.up <= len(worker.others):
                return None
            self._pending.pop(call.slot, None)
            worker.proven = True
            return Message(c.SlotReady(call.slot))
        if call.method == "status":
            worker.asked = False
            if answer is not None and answer["digest"] == worker.digest:
                worker.status = answer
        elif call.method == "start" and current:
            for _ in range(AHEAD):
                self._ask(worker)
        elif call.method == "next" and current:
            return self._event(worker, answer, call.payload)
        return None

    def _event(self, worker: _Worker, event: dict[str, Any], payload: Any) -> Message:
        slot, digest, incarnation = worker.slot, worker.digest, worker.incarnation
        assert digest is not None
        if event["kind"] == "ended":
            worker.digest = None
            if event["outcome"] == "lost":  # it told why its process is of no use any more
                return self._failed(worker, event["reason"])
            end = c.Ended(slot, digest, incarnation, event["outcome"], event["reason"])
            return Message(end, seconds=event["seconds"])
        self._ask(worker)
        if event["kind"] == "began":
            began = c.Began(slot, digest, incarnation, event["drawn"], event["step"], event["attempt"])
            return Message(began, step=event["step"], torn=event["torn"])
        record = SampleRecord(meta=SampleMeta.from_json(event["meta"]), file=event["file"], sha256=event["sha256"])
        return Message(c.Sampled(slot, digest, incarnation, event["position"]), arrived=Arrived(record, payload))

    def _failed(self, worker: _Worker, reason: str, *, with_node: bool = False) -> Message:
        """The worker is given up, its chain is not."""
        stillborn = worker.slot in self._pending and not with_node and not worker.proven
        self._detached(worker.slot)
        _end(worker)
        return Message(c.SlotLost(worker.slot, reason), stillborn=stillborn)

    def _ask(self, worker: _Worker) -> None:
        method = worker.actor.next.options(num_returns=2, concurrency_group="samples")
        event, payload = method.remote(worker.digest, worker.incarnation)
        self._expect(worker, event, "next", payload)

    def _control(self, worker: _Worker, method: str, *args: Any, actor: Any = None) -> None:
        ref = (
            getattr(actor if actor is not None else worker.actor, method)
            .options(concurrency_group="control")
            .remote(*args)
        )
        self._expect(worker, ref, method)

    def _expect(self, worker: _Worker, ref: Any, method: str, payload: Any = None) -> None:
        worker.calls.add(ref)
        self._calls[ref] = _Call(method, worker.slot, worker.digest, worker.incarnation, payload)


def _end(worker: _Worker) -> None:
    for actor in (worker.actor, *worker.others):
        ray.kill(actor)
    if worker.place is not None:
        remove_placement_group(worker.place)


def _wrong_runtime(version: str) -> str:
    return (
        f"the cluster's nodes must have raychains {__version__} as this process has, a worker has {version}: install the same "
        "there, or send this folder along with 'ray job submit --working-dir .'"
    )


def _line(error: RayError) -> str:
    """What Ray says of a loss, in one line; of an error in the worker's own code what was raised."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, RayTaskError) or "creation task" in lines[0]:
        return lines[-1].strip()
    # Of an actor's death the cause follows the actor's particulars, which are indented.
    causes = [line for line in lines[1:] if not line[0].isspace()] if lines[0] == ActorDiedError.BASE_ERROR_MSG else []
    return (causes or lines)[0].strip()
