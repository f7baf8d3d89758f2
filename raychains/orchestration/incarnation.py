"""Incarnation: one attempt at one chain in a worker: a stepping thread, a writer thread, and the queues between them.

The stepping thread copies what is to be kept; the writer makes it durable in the same order, so that a sample is never
behind the checkpoint that follows it. At most two samples are undelivered, then stepping pauses: what the storage does
not take is not lost but waits, and the chain with it.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from raychains.errors import StorageAway
from raychains.orchestration.cadence import Cadence
from raychains.orchestration.ending import outcome_of, reason_of
from raychains.orchestration.states import copied, diagnosed, packed

if TYPE_CHECKING:
    from raychains.chain import Chain
    from raychains.data.prepared.carrier import Carry
    from raychains.spec import ChainSpec
    from raychains.store import ChainStore

log = logging.getLogger(__name__)
T = TypeVar("T")

UNDELIVERED = 2
"""Durable samples that wait for delivery before stepping pauses."""
STOP_PATIENCE = 10.0
"""Seconds for which a chain that is asked to stop still tries to write to storage that does not answer."""
LOOK_AGAIN = 1.0
"""Seconds between attempts to read from storage that is away, each of which takes its time itself."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """How an incarnation is to run; nothing of it changes its samples."""

    number: int
    """The incarnation's: file names carry it."""
    about: Mapping[str, Any]
    """Goes into its record."""
    every: float
    """Seconds between checkpoints."""
    every_cycle: bool = False
    """Whether every cycle's end must be in the store."""
    attempt: int = 0
    """The noise streams asked for: above the newest checkpoint's they restart the chain at its cycle's start."""
    carry: Carry | None = None
    """What carries a streaming task's batches: see `raychains.tasks.Task.carried`."""
    holds: frozenset[int] = frozenset()
    """Steps behind which the chain waits, its checkpoint written, until `Incarnation.allow` lets it go on."""


class Incarnation:
    """Runs a chain from its newest checkpoint, or from its beginning, once `begin` is called.

    Args:
        spec: of the chain.
        store: the chain's folder.
        orders: how to run it.
        tasks: the worker's tasks by their spec, so that data are loaded once.
        meet: gives the chain's group on its device, of which this is rank 0; None runs it alone.
    """

    def __init__(
        self,
        spec: ChainSpec,
        store: ChainStore,
        orders: Orders,
        tasks: dict[str, Any],
        meet: Callable[[Any], Any] | None = None,
    ) -> None:
        self.spec, self.orders, self._meet = spec, orders, meet
        self._group: Any = None
        self._store, self._tasks = store, tasks
        self._stop = threading.Event()
        self._stop_asked = 0.0
        self._room = threading.Semaphore(UNDELIVERED)
        self._to_write: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._ready: queue.Queue[tuple[dict[str, Any], Any]] = queue.Queue()
        self._seconds = 0.0
        self._records: list[dict[str, Any]] = []
        """Progress since the last checkpoint: handing each over would wake the writer a hundred times a second."""
        self._ending = threading.Lock()
        self._allowed = threading.Condition()
        self._allowed_to = 0
        self._over = threading.Event()
        """Nothing comes after this: the chain ended, or one of the threads failed."""
        self._checkpoint_written = threading.Event()
        self._checkpoint_written.set()
        self._last: dict[str, Any] | None = None
        self._waiting: str | None = None
        self._status: dict[str, Any] = {
            "digest": spec.digest, "step": 0, "seconds": 0.0, "cycle": 0, "stage": "", "loss": None, "lr": None,
            "temperature": None, "kinetic_temperature": None,
        }  # fmt: skip

    # What the worker calls

    def begin(self) -> None:
        """Start the threads."""
        threading.Thread(target=self._guarded, name="stepping", daemon=True).start()

    def stop(self) -> None:
        """Write a checkpoint after the step that is being made, and end."""
        self._stop_asked = time.monotonic()
        self._stop.set()

    def status(self) -> dict[str, Any]:
        """Where the chain is, and what it waits for."""
        return {**self._status, "waiting": self._waiting}

    def allow(self, step: int) -> None:
        """Let the chain pass its holds up to ``step``."""
        with self._allowed:
            self._allowed_to = max(self._allowed_to, step)
            self._allowed.notify_all()

    def take(self, timeout: float | None = None) -> tuple[dict[str, Any], Any]:
        """The next event; ``ended`` again and again once it came, since the caller may have asked ahead.

        Raises:
            queue.Empty: none came within ``timeout`` seconds.
        """
        if self._last is None:
            event, payload = self._ready.get(timeout=timeout)
            if event["kind"] == "ended":
                self._last = event
            elif event["kind"] == "sample":
                self._room.release()
            return event, payload
        return self._last, None

    # The stepping thread

    def _guarded(self) -> None:
        """Whatever goes wrong in this thread ends the incarnation with its reason, never the worker."""
        writer: threading.Thread | None = None
        chain: Chain | None = None
        try:
            chain = self._chain()
            environment = chain.environment().to_json()
            writer = threading.Thread(target=self._write, args=(environment,), name="writer", daemon=True)
            writer.start()
            outcome = self._step(chain)
            self._to_write.put(("end", (outcome, chain.step, self._taken_records())))
        except Exception as error:
            log.info("chain %s", self.spec.digest[:12], exc_info=True)
            if writer is not None:
                self._to_write.put(("drain", self._taken_records()))  # what was handed over before stays
                writer.join()
            if self._group is not None:
                self._group.leave(reason_of(error))
            self._fail(error, chain)
        finally:
            if self._group is not None:
                self._group.close()

    def _chain(self) -> Chain:
        """The chain where it goes on, after this incarnation's record is in the store."""
        import torch

        from raychains import tasks
        from raychains.chain import Chain
        from raychains.store import starts

        device = "cuda" if torch.cuda.is_available() else "cpu"
        if self._meet is not None:  # before anything can go wrong here, so that the others learn of it
            self._group = self._meet(torch.device(device))
        key = repr(self.spec.task.to_json())
        if key not in self._tasks:
            self._tasks.clear()  # one task's data at a time
            self._tasks[key] = tasks.build(self.spec.task)
        self._tasks[key].carried(self.orders.carry)
        torn: list[tuple[str, str]] = []
        state = self._patiently(lambda: self._state(torn))
        digest, root = self.spec.start, self._store.root
        start = self._patiently(lambda: starts.read(root, digest)) if digest is not None else None
        if self._group is not None:
            self._group.together()
            self._group.share(packed(state))
        chain = Chain(self.spec, self._tasks[key], device=device, start=start, group=self._group)
        if state is not None:
            chain.load_state_dict(state["chain"])
            self._seconds = state["seconds"]
        if chain.noise_attempt < self.orders.attempt:
            chain.restart_noise(self.orders.attempt)
            # Durable before the record says from where it goes on: then nobody continues on the old noise.
            self._publish_checkpoint((self._copy_of(chain), chain.step, True))
        environment = chain.environment().to_json()
        about = {
            **self.orders.about, "environment": environment, "host": socket.gethostname(), "pid": os.getpid(),
            "from_step": chain.step, "noise_attempt": chain.noise_attempt, "workers": chain.group.size,
        }  # fmt: skip
        self._store.begin(self.spec, self.orders.number, about, keep_trying=self._keep_trying)
        self._waiting = None
        chain.group.together()
        began = {"kind": "began", "step": chain.step, "drawn": chain.drawn, "attempt": chain.noise_attempt}
        self._ready.put(({**began, "torn": torn}, None))
        return chain

    def _state(self, torn: list[tuple[str, str]]) -> Any | None:
        from raychains.orchestration.resume import state_to_resume

        def warn(file: str, reason: str) -> None:
            if (file, reason) not in torn:
                torn.append((file, reason))

        return state_to_resume(self.spec, self._store, self.orders.attempt, warn)

    def _step(self, chain: Chain) -> str:
        """Run to the end, or to a stop."""
        from raychains.sample import Sample

        cadence = Cadence(chain.schedule, self.orders.every, self.orders.every_cycle)

        def pause() -> bool:
            if self._stop.is_set() or self._over.is_set() or self._held(chain.step):
                return True
            step = chain.step
            return cadence.due(step) and (self._checkpoint_written.is_set() or cadence.must(step))

        while not chain.done:
            before = time.monotonic()
            events = chain.advance(pause)
            self._seconds += time.monotonic() - before
            for event in events:
                if isinstance(event, Sample):
                    chain.group.wait(self._room_within)
                    self._to_write.put(("sample", event))
                else:
                    record = {**event.to_json(), "seconds": self._seconds}
                    self._status = {"digest": self.spec.digest, **record}
                    self._records.append(record)
            if self._over.is_set():
                return "failed"
            if (chain.paused if chain.group.size > 1 else pause()) and not chain.done:
                chain.check_ranks()
                chain.group.wait(self._writer_within)
                item = (self._copy_of(chain), chain.step, cadence.at_cycle_end(chain.step))
                self._checkpoint_written.clear()
                self._to_write.put(("checkpoint", (item, self._taken_records())))
                cadence.written(chain.step)
                self._wait_for_leave(chain.step)
                if not chain.group.decide(not self._stop.is_set()):
                    return "stopped"
        chain.check_ranks()
        return "finished"

    def _held(self, step: int) -> bool:
        return step in self.orders.holds and step > self._allowed_to

    def _wait_for_leave(self, step: int) -> None:
        with self._allowed:
            while self._held(step) and not (self._stop.is_set() or self._over.is_set()):
                self._allowed.wait(timeout=0.1)

    def _copy_of(self, chain: Chain) -> dict[str, Any]:
        """The chain's state as the writer will find it, whatever the chain does meanwhile."""
        return {"chain": copied(chain.state_dict()), "seconds": self._seconds}

    def _room_within(self, seconds: float) -> bool:
        """Pause while two samples are undelivered; someone who wants to stop does not wait."""
        return self._within(seconds, lambda: self._room.acquire(timeout=0.1))

    def _writer_within(self, seconds: float) -> bool:
        """At most one checkpoint waits for the storage: states are large."""
        return self._within(seconds, lambda: self._checkpoint_written.wait(timeout=0.1))

    def _within(self, seconds: float, attempt: Callable[[], bool]) -> bool:
        until = time.monotonic() + seconds
        while not attempt():
            if self._stop.is_set() or self._over.is_set():
                return True
            if time.monotonic() > until:
                return False
        return True

    def _taken_records(self) -> list[dict[str, Any]]:
        records, self._records = self._records, []
        return records

    # The writer thread

    def _write(self, environment: dict[str, Any]) -> None:
        """In the order of the stepping thread: samples before the checkpoints that follow them."""
        try:
            while True:
                kind, item = self._to_write.get()
                if kind == "sample":
                    self._publish_sample(item, environment)
                elif kind == "checkpoint":
                    checkpoint, records = item
                    self._publish_progress(records, checkpoint[1])
                    self._publish_checkpoint(checkpoint)
                    self._checkpoint_written.set()
                elif kind == "drain":
                    self._publish_progress(item, item[-1]["step"] if item else 0)
                    return
                else:
                    outcome, step, records = item
                    self._publish_progress(records, step)
                    if outcome == "finished":
                        self._store.finish(incarnation=self.orders.number, keep_trying=self._keep_trying)
                        outcome = "stopped" if self._superseded() else outcome
                    self._end(outcome, "")
                    return
                self._waiting = None
        except Exception as error:
            log.info("writing chain %s", self.spec.digest[:12], exc_info=True)
            self._fail(error, None)

    def _superseded(self) -> bool:
        """Whether another driver's later incarnation took the chain over and is not through: its samples count."""
        from raychains.positions import expected_samples

        newer = self._patiently(self._store.last_incarnation) > self.orders.number
        return newer and not self._patiently(lambda: self._store.finished(expected_samples(self.spec)))

    def _publish_sample(self, sample: Any, environment: dict[str, Any]) -> None:
        import numpy as np

        from raychains.positions import position

        record, data = self._store.publish_sample(
            sample, self.orders.number, environment, keep_trying=self._keep_trying
        )
        event = {
            "kind": "sample",
            "position": position(self.spec, record.meta),
            "meta": record.meta.to_json(),
            "file": record.file,
            "sha256": record.sha256,
        }
        self._ready.put((event, np.frombuffer(data, dtype=np.uint8)))

    def _publish_checkpoint(self, item: tuple[dict[str, Any], int, bool]) -> None:
        state, step, cycle_end = item
        self._store.publish_checkpoint(
            state, step, self.orders.number, cycle_end=cycle_end, keep_trying=self._keep_trying
        )

    def _publish_progress(self, records: list[dict[str, Any]], step: int) -> None:
        if records:
            self._store.publish_progress(records, step, self.orders.number, keep_trying=self._keep_trying)

    # Storage that is away

    def _keep_trying(self, reason: str) -> bool:
        """Storage that does not answer is waited for, but for a chain that is asked to stop only for seconds."""
        self._waiting = reason
        return not self._stop.is_set() or time.monotonic() - self._stop_asked < STOP_PATIENCE

    def _patiently(self, read: Callable[[], T]) -> T:
        """The same for reading."""
        while True:
            try:
                found = read()
            except StorageAway as error:
                self._waiting = str(error)
                if self._stop.wait(LOOK_AGAIN):
                    raise
                continue
            self._waiting = None
            return found

    # The end

    def _end(self, outcome: str, reason: str) -> None:
        """Tell the end once, whichever thread comes to it first."""
        with self._ending:
            if not self._over.is_set():
                self._over.set()
                end = {"kind": "ended", "outcome": outcome, "reason": reason, "seconds": self._seconds}
                self._ready.put((end, None))

    def _fail(self, error: Exception, chain: Chain | None) -> None:
        outcome: str = outcome_of(error)
        if outcome == "diverged" and chain is not None and not self._over.is_set():
            self._status = {**self._status, "stage": "finding where it diverged"}
            # A replay takes as long as the chain took from its checkpoint on.
            stopping = self._stop.is_set()
            self._end(outcome, str(error) if stopping else diagnosed(error, chain, self._store, self.orders.number))
        elif isinstance(error, StorageAway) and self._stop.is_set():
            self._end("stopped", reason_of(error))
        else:
            self._end(outcome, reason_of(error))
