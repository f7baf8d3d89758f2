"""The chain workers of a run: actors by slot, their outstanding calls, and what those calls say as planning events."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from raychains.orchestration.luggage import Luggage
from raychains.orchestration.session import Slots
from raychains.orchestration.worker import ChainWorker
from raychains.planning import coordinator as c
from raychains.sample import SampleMeta
from raychains.store import SampleRecord

AHEAD = 2
"""`next` calls queued per worker, so that it never waits for the driver."""


@dataclass
class _Worker:
    slot: int
    actor: Any
    digest: str | None = None
    incarnation: int = 0
    status: dict[str, Any] | None = None
    asked: bool = False
    """Whether a status call is outstanding."""


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


@dataclass
class Workers:
    """Starts, feeds and listens to chain workers. Nothing is restarted or retried by Ray."""

    store: str
    slots: Slots
    checkpoint_every: float
    data_root: str | None
    luggage: Luggage | None = None
    every_cycle: bool = False
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _calls: dict[Any, _Call] = field(default_factory=dict)
    """Outstanding calls by the reference that answers them."""
    _number: Any = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._workers)

    def add(self) -> None:
        """Start one more worker; `SlotReady` comes once it is up."""
        slot = next(self._number)
        options: dict[str, Any] = {
            "num_cpus": self.slots.cpus,
            "num_gpus": self.slots.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {"control": 2, "samples": 1},
            "scheduling_strategy": "SPREAD",
        }
        actor = ray.remote(**options)(ChainWorker).remote(
            self.store, self.checkpoint_every, self.every_cycle, self.data_root, self.slots.gpus, self.luggage
        )
        self._workers[slot] = _Worker(slot, actor)
        self._control(self._workers[slot], "ready")

    def start(self, action: c.Start, spec: dict[str, Any], about: dict[str, Any]) -> None:
        """Run a chain on a slot; its events are asked for once the worker has taken it on."""
        worker = self._workers[action.slot]
        worker.digest, worker.incarnation, worker.status = action.digest, action.incarnation, None
        self._control(worker, "start", spec, action.incarnation, about, action.attempt)

    def stop(self, slot: int, digest: str) -> None:
        """Ask for a stop at the next step."""
        self._control(self._workers[slot], "stop", digest)

    def release(self, slot: int) -> None:
        """End a worker that has nothing more to do."""
        worker = self._workers.pop(slot, None)
        if worker is not None:
            self._forget(slot)
            ray.kill(worker.actor)

    def close(self) -> None:
        """End all workers."""
        for slot in list(self._workers):
            self.release(slot)

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
        """What a ready reference says; None when that is nothing for the planner."""
        call = self._calls.pop(ref)
        worker = self._workers[call.slot]
        try:
            answer = ray.get(ref)
        except RayError as error:  # its death, its node's, Ray's out-of-memory kill, or an error of the worker's own
            return self._failed(worker, _line(error))
        current = (call.digest, call.incarnation) == (worker.digest, worker.incarnation)
        if call.method == "ready":
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

    def _failed(self, worker: _Worker, reason: str) -> Message:
        """The worker is given up, its chain is not."""
        self.release(worker.slot)
        return Message(c.SlotLost(worker.slot, reason))

    def _ask(self, worker: _Worker) -> None:
        method = worker.actor.next.options(num_returns=2, concurrency_group="samples")
        event, payload = method.remote(worker.digest, worker.incarnation)
        self._calls[event] = _Call("next", worker.slot, worker.digest, worker.incarnation, payload)

    def _control(self, worker: _Worker, method: str, *args: Any) -> None:
        ref = getattr(worker.actor, method).options(concurrency_group="control").remote(*args)
        self._calls[ref] = _Call(method, worker.slot, worker.digest, worker.incarnation)

    def _forget(self, slot: int) -> None:
        self._calls = {ref: call for ref, call in self._calls.items() if call.slot != slot}


def _line(error: RayError) -> str:
    """What Ray says of a loss, in one line; of an error in the worker's own code what was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    raised = isinstance(error, RayTaskError) or "creation task" in lines[0]
    return lines[-1] if raised else lines[0]
