"""ChainWorker: holds one slot and runs one chain after another, so that imports and CUDA start-up are paid once.

A stepping thread runs the chain and a writer thread makes samples and checkpoints durable, so that sampling does not
wait for the disk. `ChainWorker.next` hands out what is durable already; at most two samples are undelivered, then
stepping pauses.
"""

from __future__ import annotations

import copy
import logging
import os
import queue
import socket
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.chain import Chain
    from raychains.store import ChainStore

log = logging.getLogger(__name__)

UNDELIVERED = 2
"""Durable samples that wait for delivery before stepping pauses."""


class ChainWorker:
    """The actor. `start`, `status`, `stop` are its control group; `next` has a group of its own.

    Args:
        store: URI of the run store.
        checkpoint_every: seconds between checkpoints.
        data_root: where data sets lie, set for the tasks that this worker builds; None leaves the environment's.
        gpus: the slot's share of GPUs; without one the chain runs on the CPU whatever the machine has.
    """

    def __init__(self, store: str, checkpoint_every: float, data_root: str | None, gpus: float) -> None:
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # num_gpus=0 no longer hides them
        if data_root is not None:
            os.environ["RAYCHAINS_DATA"] = data_root
        import torch
        import torch._dynamo  # by the first optimizer else: seconds, which are start-up and no chain's

        import raychains.chain  # noqa: F401  # the same
        from raychains.store import Root

        torch.set_num_threads(1)
        self._root, self._checkpoint_every = Root(store), checkpoint_every
        self._run: _Run | None = None
        self._tasks: dict[str, Any] = {}

    def ready(self) -> bool:
        """Answers once the worker is up."""
        return True

    def start(self, spec: dict[str, Any], incarnation: int, about: dict[str, Any]) -> None:
        """Run a chain from its newest checkpoint, or from its beginning, in the background."""
        from raychains.spec import ChainSpec
        from raychains.store import ChainStore

        chain_spec = ChainSpec.from_json(spec)
        store = ChainStore(self._root, chain_spec.digest)
        self._run = _Run(chain_spec, store, incarnation, self._checkpoint_every, about, self._tasks)
        self._run.begin()

    def next(self, digest: str, incarnation: int) -> tuple[dict[str, Any], Any]:
        """The chain's next event and, with a sample, its file's bytes as a flat uint8 array.

        Events are ``began`` {step, drawn}, ``sample`` {position, record} and ``ended`` {outcome, reason, seconds}. The caller owns
        the result, so a sample outlives the actor.
        """
        run = self._run
        if run is None or (run.spec.digest, run.incarnation) != (digest, incarnation):
            return {
                "kind": "ended",
                "outcome": "stopped",
                "reason": "the worker runs another chain",
                "seconds": 0.0,
            }, None
        return run.take()

    def status(self) -> dict[str, Any] | None:
        """Where the chain is: step, loss, chain seconds."""
        return self._run.status if self._run is not None else None

    def stop(self, digest: str) -> None:
        """Stop the chain at its next step; a checkpoint is written before ``ended`` comes."""
        if self._run is not None and self._run.spec.digest == digest:
            self._run.stop()


class _Run:
    """One incarnation of one chain: two threads and the queue between them."""

    def __init__(
        self, spec: Any, store: ChainStore, incarnation: int, every: float, about: dict[str, Any], tasks: dict[str, Any]
    ) -> None:
        self.spec, self.incarnation = spec, incarnation
        self._store, self._every, self._about, self._tasks = store, every, about, tasks
        self._stop = threading.Event()
        self._room = threading.Semaphore(UNDELIVERED)
        self._to_write: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._ready: queue.Queue[tuple[dict[str, Any], Any]] = queue.Queue()
        self._seconds = 0.0
        self._records: list[dict[str, Any]] = []
        """Progress since the last checkpoint: handing each over would wake the writer a hundred times a second."""
        self._broken = threading.Event()
        self._last: dict[str, Any] | None = None
        self.status: dict[str, Any] = {
            "digest": spec.digest,
            "step": 0,
            "seconds": 0.0,
            "cycle": 0,
            "stage": "",
            "loss": None,
        }

    def begin(self) -> None:
        threading.Thread(target=self._guarded, name="stepping", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def take(self) -> tuple[dict[str, Any], Any]:
        """The next event; ``ended`` again and again once it came, since the caller may have asked ahead."""
        if self._last is None:
            event, payload = self._ready.get()
            if event["kind"] == "ended":
                self._last = event
            elif event["kind"] == "sample":
                self._room.release()
            return event, payload
        return self._last, None

    def _guarded(self) -> None:
        """The stepping thread: whatever goes wrong in it ends the chain with its traceback, never the worker."""
        writer: threading.Thread | None = None
        try:
            chain = self._chain()
            writer = threading.Thread(
                target=self._write, args=(chain.environment().to_json(),), name="writer", daemon=True
            )
            writer.start()
            outcome = self._step(chain)
            self._to_write.put(("end", (outcome, chain.step, self._taken_records())))
        except Exception as error:
            log.exception("chain %s", self.spec.digest[:12])
            self._fail(error, writer)

    def _fail(self, error: BaseException, writer: threading.Thread | None) -> None:
        if writer is not None and writer is not threading.current_thread():
            self._to_write.put(("drain", self._taken_records()))  # what was handed over before stays
            writer.join()
        reason = "".join(traceback.format_exception(error)).rstrip()
        if not self._broken.is_set():
            self._broken.set()
            self._ready.put((self._ended("failed", reason), None))

    def _ended(self, outcome: str, reason: str) -> dict[str, Any]:
        return {"kind": "ended", "outcome": outcome, "reason": reason, "seconds": self._seconds}

    def _chain(self) -> Chain:
        import torch

        from raychains import tasks
        from raychains.chain import Chain

        key = repr(self.spec.task.to_json())
        if key not in self._tasks:
            self._tasks.clear()  # one task's data at a time
            self._tasks[key] = tasks.build(self.spec.task)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        chain = Chain(self.spec, self._tasks[key], device=device)
        state = self._store.newest_checkpoint()
        if state is not None:
            chain.load_state_dict(state["chain"])
            self._seconds = state["seconds"]
        about = {
            **self._about,
            "environment": chain.environment().to_json(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "from_step": chain.step,
        }
        self._store.begin(self.spec, self.incarnation, about)
        self._ready.put(({"kind": "began", "step": chain.step, "drawn": chain.drawn}, None))
        return chain

    def _step(self, chain: Chain) -> str:
        from raychains.sample import Sample

        written = time.monotonic()

        def pause() -> bool:
            return self._stop.is_set() or time.monotonic() - written > self._every

        while not chain.done:
            before = time.monotonic()
            events = chain.advance(pause)
            self._seconds += time.monotonic() - before
            for event in events:
                if isinstance(event, Sample):
                    self._wait_for_room()
                    self._to_write.put(("sample", event))
                else:
                    self.status = {
                        "digest": self.spec.digest, "step": event.step, "seconds": self._seconds,
                        "cycle": event.cycle, "stage": event.stage, "loss": event.loss,
                    }  # fmt: skip
                    self._records.append({**event.to_json(), "seconds": self._seconds})
            if self._broken.is_set():
                return "failed"
            if pause() and not chain.done:
                state = {"chain": copy.deepcopy(chain.state_dict()), "seconds": self._seconds}
                self._to_write.put(("checkpoint", (state, chain.step, self._taken_records())))
                written = time.monotonic()
                if self._stop.is_set():
                    return "stopped"
        return "finished"

    def _wait_for_room(self) -> None:
        """Pause while two samples are undelivered; someone who wants to stop does not wait."""
        while not self._room.acquire(timeout=0.1):
            if self._stop.is_set() or self._broken.is_set():
                return

    def _write(self, environment: dict[str, Any]) -> None:
        """The writer thread: in the order of the stepping thread, samples before the checkpoints that follow them."""
        import numpy as np

        from raychains.chain import position

        try:
            while True:
                kind, item = self._to_write.get()
                if kind == "sample":
                    record, data = self._store.publish_sample(item, self.incarnation, environment)
                    event = {
                        "kind": "sample",
                        "position": position(self.spec, record.meta),
                        "meta": record.meta.to_json(),
                        "file": record.file,
                        "sha256": record.sha256,
                    }
                    self._ready.put((event, np.frombuffer(data, dtype=np.uint8)))
                elif kind == "checkpoint":
                    state, step, records = item
                    self._flush(records, step)
                    self._store.publish_checkpoint(state, step, self.incarnation)
                elif kind == "drain":
                    self._flush(item, item[-1]["step"] if item else 0)
                    return
                else:
                    outcome, step, records = item
                    self._flush(records, step)
                    if outcome == "finished":
                        self._store.finish()
                    self._ready.put((self._ended(outcome, ""), None))
                    return
        except Exception as error:
            log.exception("writing chain %s", self.spec.digest[:12])
            self._fail(error, None)

    def _taken_records(self) -> list[dict[str, Any]]:
        records, self._records = self._records, []
        return records

    def _flush(self, records: list[dict[str, Any]], step: int) -> None:
        if records:
            self._store.publish_progress(records, step, self.incarnation)
