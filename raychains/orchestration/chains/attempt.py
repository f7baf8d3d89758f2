"""One execution of a chain by one worker: a stepping thread, a writer thread, and the queues between them.

The stepping thread copies what is to be kept; the writer makes it durable in the same order, so that a sample is
durable before the checkpoint that follows it. At most two samples are undelivered, then stepping pauses: what the
storage does not take waits, and the chain with it. Where several workers run a chain, all of this is rank 0's; the
others step along in `run_rank` and write nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from raychains import samplers, schedules
from raychains import tasks as known_tasks
from raychains.chain.chain import Chain
from raychains.chain.divergence_replay import diagnose
from raychains.chain.pack import Packs
from raychains.chain.process_group import OF_OTHERS, Ranks
from raychains.chain.proof import repeat
from raychains.chain.sample_index import expected_samples, position
from raychains.coordination.coordinator import AttemptEvent, Began, Ended, Sampled
from raychains.core import gpus
from raychains.core.errors import StorageAway
from raychains.core.rng import GLOBALS
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec
from raychains.orchestration.chains.checkpoint_policy import CheckpointPolicy, cycle_start, state_to_resume
from raychains.orchestration.chains.error_classification import outcome_of, reason_of
from raychains.orchestration.chains.messages import AttemptStatus, ChainAssignment
from raychains.store import ChainStore, Storage, codec, initial_states
from raychains.tasks import Task

log = logging.getLogger(__name__)
T = TypeVar("T")

__all__ = ["Attempt", "AttemptConfig", "Ended", "Packs", "Ranks", "Storage", "device", "repeat", "run_rank"]

UNDELIVERED = 2
"""Durable samples that wait for delivery before stepping pauses."""
STOP_PATIENCE = 10.0
"""Seconds for which a chain that is asked to stop still tries to write to storage that does not answer."""
END_WITHIN = 15.0
"""Seconds for which the end of a chain that is stopped is waited for, by who runs it in their own process."""
READ_AGAIN = 1.0
"""Seconds between tries to read from storage that is away, each of which takes its time itself."""


@dataclass(frozen=True, kw_only=True)
class AttemptConfig:
    """A worker's settings for attempts; no sample depends on them."""

    checkpoint_every: float
    """Seconds between checkpoints."""
    every_cycle: bool = False
    """The store must have every cycle's end."""
    holds: frozenset[int] = frozenset()
    """Steps after which the chain waits, with its checkpoint written, until `Attempt.allow` lets it continue."""


class Events:
    """An attempt's events until the caller takes them; at most `UNDELIVERED` are samples."""

    def __init__(self) -> None:
        self.over = threading.Event()
        """Set when nothing more comes: the chain ended, or one of the threads failed."""
        self.taken: Ended | None = None
        """The end, once `take` returned it."""
        self._queue: queue.Queue[tuple[AttemptEvent, Any]] = queue.Queue()
        self._undelivered = threading.Semaphore(UNDELIVERED)
        self._ending = threading.Lock()

    def reserve(self, seconds: float) -> bool:
        """Wait for a free place of a sample, for so many seconds at most; return whether there was one."""
        return self._undelivered.acquire(timeout=seconds)

    def put(self, event: AttemptEvent, data: Any = None) -> None:
        """Add an event that is not the end; a sample has reserved its place."""
        self._queue.put((event, data))

    def end(self, ended: Ended) -> None:
        """Add the end, unless the other thread has added it."""
        with self._ending:
            if not self.over.is_set():
                self.over.set()
                self._queue.put((ended, None))

    def take(self, timeout: float | None = None) -> tuple[AttemptEvent, Any]:
        """Return the next event and its data: see `Attempt.take`."""
        if self.taken is not None:
            return self.taken, None
        event, data = self._queue.get(timeout=timeout)
        if isinstance(event, Ended):
            self.taken = event
        elif isinstance(event, Sampled):
            self._undelivered.release()
        return event, data


class Holds:
    """The steps after which a chain waits, each until the caller allows it."""

    def __init__(self, steps: frozenset[int]) -> None:
        self._steps, self._allowed_to = steps, 0
        self._changed = threading.Condition()

    def allow(self, step: int) -> None:
        """Let the chain pass its holds up to ``step``."""
        with self._changed:
            self._allowed_to = max(self._allowed_to, step)
            self._changed.notify_all()

    def at(self, step: int) -> bool:
        """Return whether the chain waits after ``step``."""
        return step in self._steps and step > self._allowed_to

    def wait(self, step: int, seconds: float) -> bool:
        """Wait until the chain may pass ``step``, for so many seconds at most; return whether it may."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.at(step), seconds)


class LiveStatus:
    """The status of a running chain, which the attempt's threads keep up to date."""

    def __init__(self, digest: str) -> None:
        self.chain: Chain | None = None
        """None before it is built."""
        self.waiting: str | None = None
        """Why the storage is waited for."""
        self.held: str | None = None
        """Why the stepping thread makes no steps."""
        self._recorded = AttemptStatus(digest=digest)

    def record(self, **progress: Any) -> None:
        """Note fields of a progress record."""
        self._recorded = replace(self._recorded, **progress)

    def read(self) -> AttemptStatus:
        """Return the status at present."""
        made = self.chain.step if self.chain is not None else None
        return replace(self._recorded, waiting=self.waiting, made=made, held=self.held)


class Attempt:
    """Runs a chain from its newest checkpoint, or from its beginning, once `begin` is called.

    Args:
        tasks: the worker's tasks by their spec, so that data are loaded once.
        group: makes the chain's process group on its device, of which this is rank 0; None runs it alone.
        device: of the chain, default that of a worker.
        packs: where a packed chain finds its row; None gives it a pack of its own.
    """

    def __init__(
        self,
        assignment: ChainAssignment,
        root: Storage,
        config: AttemptConfig,
        tasks: dict[str, Task],
        group: Callable[[torch.device], Ranks] | None = None,
        device: torch.device | None = None,
        packs: Packs | None = None,
    ) -> None:
        self._device, self._packs = device, packs
        self.spec, self.assignment, self.number = ChainSpec.from_json(assignment.spec), assignment, assignment.attempt
        self._config, self._make_group, self._tasks = config, group, tasks
        self._group: Ranks | None = None
        self._store = ChainStore(root, self.spec.digest)
        self._retrying_store = self._store.retrying(self._keep_trying)
        self._stop = threading.Event()
        self._stop_asked = 0.0
        self._holds = Holds(config.holds)
        self._events = Events()
        self._status = LiveStatus(self.spec.digest)
        self._to_write: queue.Queue[Callable[[], None] | None] = queue.Queue()
        """The writer's calls, in the order in which their files become durable; None ends it."""
        self._checkpoint_written = threading.Event()
        self._checkpoint_written.set()
        self._seconds = 0.0
        self._records: list[dict[str, Any]] = []
        """Progress since the last checkpoint: handing each over would wake the writer a hundred times a second."""

    # What the worker calls

    def begin(self) -> None:
        """Start the threads."""
        threading.Thread(target=self._guarded, name="stepping", daemon=True).start()

    def stop(self) -> None:
        """Write a checkpoint after the current step, and end."""
        self._stop_asked = time.monotonic()
        self._stop.set()

    def end(self) -> None:
        """Stop, and wait until the last checkpoint is written, for `END_WITHIN` seconds at most."""
        self.stop()
        until = time.monotonic() + END_WITHIN
        while not self.taken and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self.take(timeout=left)

    def status(self) -> AttemptStatus:
        """Return where the chain is, and what it waits for."""
        return self._status.read()

    def allow(self, step: int) -> None:
        """Let the chain pass its holds up to ``step``."""
        self._holds.allow(step)

    @property
    def taken(self) -> bool:
        """True once `take` returned the end."""
        return self._events.taken is not None

    def take(self, timeout: float | None = None) -> tuple[AttemptEvent, Any]:
        """Return the next event and, with a sample, its file's bytes as a flat uint8 array.

        `Ended` comes again and again once it came, since the caller may have asked ahead.

        Raises:
            queue.Empty: none came within ``timeout`` seconds.
        """
        return self._events.take(timeout)

    # The stepping thread

    def _guarded(self) -> None:
        """Run the chain; an error in this thread ends the attempt with its reason, never the worker."""
        writer: threading.Thread | None = None
        chain: Chain | None = None
        try:
            chain = self._status.chain = self._chain()
            writer = threading.Thread(target=self._write, name="writer", daemon=True)
            writer.start()
            outcome = self._run_to_end(chain)
            self._part(chain)
            self._status.held = "the storage has not taken its last files"
            self._to_write.put(partial(self._publish_end, outcome, self._take_records(), chain.step))
            self._to_write.put(None)
        except BaseException as error:  # a SystemExit of the user's code, too
            log.info("chain %s", self.spec.digest[:12], exc_info=True)
            if self._group is not None:
                self._group.abort(reason_of(error))
            self._part(chain)
            if writer is not None:
                records = self._take_records()
                self._to_write.put(partial(self._publish_progress, records, records[-1]["step"] if records else 0))
                self._to_write.put(None)
                writer.join()  # what was handed over before stays
            self._fail(error, chain)

    def _part(self, chain: Chain | None) -> None:
        """Leave the pack, whose other rows go on, and the group: once the end is known, the next chain here may make
        one."""
        if chain is not None:
            chain.leave()
        if self._group is not None:
            self._group.close()

    def _chain(self) -> Chain:
        """Return the chain at its checkpoint, after this attempt's record is in the store."""
        on = self._device if self._device is not None else device()
        if self._make_group is not None:  # before anything can go wrong here, so that the others learn of it
            self._group = self._make_group(on)
        import_classes(self.spec)
        with GLOBALS:  # built once, whichever row's thread comes first
            task = task_of(self.spec, self._tasks)
        torn: list[tuple[str, str]] = []
        state = self._patiently(lambda: self._state(torn))
        start = self._patiently(lambda: start_of(self.spec, self._store.root))
        if self._group is not None:
            self._group.together()
            self._group.share(packed(state))
        chain = Chain(self.spec, task, device=on, start=start, group=self._group)
        if state is not None:
            chain.load_state_dict(state["chain"])
            self._seconds = state["seconds"]
        if restart_if_due(chain, self.assignment):
            # Durable before the record says from where it runs: then nobody continues on the old noise.
            self._publish_checkpoint([], self._copy_of(chain), chain.step, True)
        about = {
            **self.assignment.about,
            "environment": chain.environment().to_json(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "from_step": chain.step,
            "noise_attempt": chain.noise_attempt,
            "workers": chain.group.size,
        }
        self._retrying_store.begin(self.spec, self.number, about)
        self._status.waiting = None
        chain.group.together()
        if self._packs is not None and self.spec.pack:
            chain.join(self._packs)
        began = Began(self.spec.digest, self.number, chain.drawn, chain.step, chain.noise_attempt, torn)
        self._events.put(began)
        return chain

    def _state(self, torn: list[tuple[str, str]]) -> Any | None:
        def warn(file: str, reason: str) -> None:
            if (file, reason) not in torn:
                torn.append((file, reason))

        return state_to_resume(self.spec, self._store, self.assignment.restart, warn)

    def _run_to_end(self, chain: Chain) -> str:
        """Run to the end, or to a stop; return which."""
        policy = CheckpointPolicy(chain.schedule, self._config.checkpoint_every, self._config.every_cycle)

        def pause() -> bool:
            step = chain.step + (chain.group.size > 1)  # several ranks pause behind their next step
            if self._ending() or self._holds.at(step):
                return True
            return policy.due(step) and (self._checkpoint_written.is_set() or policy.must(step))

        while not chain.done:
            before, share = time.monotonic(), chain.share
            events = chain.advance(pause)
            self._seconds += (time.monotonic() - before) * share
            for event in events:
                if isinstance(event, Sample):
                    chain.group.wait(self._delivered_within)
                    self._to_write.put(partial(self._publish_sample, event, chain))
                else:
                    self._note(event)
            if self._events.over.is_set():
                return "failed"
            if (chain.paused if chain.group.size > 1 else pause()) and not chain.done:
                chain.check_ranks()
                chain.group.wait(self._written_within)
                self._checkpoint_written.clear()
                state, at_end = self._copy_of(chain), policy.at_cycle_end(chain.step)
                self._to_write.put(partial(self._publish_checkpoint, self._take_records(), state, chain.step, at_end))
                policy.written(chain.step)
                chain.group.wait(partial(self._allowed_within, chain.step))
                if not chain.group.decide(not self._stop.is_set()):
                    return "stopped"
        chain.check_ranks()
        return "finished"

    def _note(self, progress: Progress) -> None:
        record = {**progress.to_json(), "seconds": self._seconds}
        self._records.append(record)
        self._status.record(**{name: v for name, v in record.items() if name not in ("epoch", "held_out_loss")})

    def _ending(self) -> bool:
        """Return whether the chain makes no more steps: it is to stop, or the writer failed."""
        return self._stop.is_set() or self._events.over.is_set()

    def _copy_of(self, chain: Chain) -> dict[str, Any]:
        """Return the chain's state as the writer will find it, whatever the chain does meanwhile."""
        return {"chain": copied(chain.state_dict()), "seconds": self._seconds}

    def _delivered_within(self, seconds: float) -> bool:
        """Wait while two samples are undelivered, unless the chain is to stop."""
        return self._within(seconds, lambda: self._events.reserve(0.1), "its samples are not taken")

    def _written_within(self, seconds: float) -> bool:
        """Wait while a checkpoint waits for the storage: states are large, so that one waits at most."""
        held = "the storage has not taken its last checkpoint"
        return self._within(seconds, lambda: self._checkpoint_written.wait(timeout=0.1), held)

    def _allowed_within(self, step: int, seconds: float) -> bool:
        """Wait while the caller holds the chain at this step, unless the chain is to stop."""
        return self._within(seconds, lambda: self._holds.wait(step, 0.1), "it is held here")

    def _within(self, seconds: float, done: Callable[[], bool], held: str) -> bool:
        until = time.monotonic() + seconds
        while not done():
            self._status.held = held
            if self._ending():
                return True
            if time.monotonic() > until:
                return False
        self._status.held = None
        return True

    def _take_records(self) -> list[dict[str, Any]]:
        records, self._records = self._records, []
        return records

    # The writer thread

    def _write(self) -> None:
        """Make the calls in the order of the stepping thread: samples are durable before the checkpoints that
        follow."""
        try:
            while (call := self._to_write.get()) is not None:
                call()
                self._status.waiting = None
        except BaseException as error:
            log.info("writing chain %s", self.spec.digest[:12], exc_info=True)
            self._fail(error, None)

    def _publish_sample(self, sample: Sample, chain: Chain) -> None:
        record, data = self._retrying_store.publish_sample(sample, self.number, chain.environment().to_json())
        at = position(self.spec, record.meta)
        self._events.put(Sampled(self.spec.digest, self.number, at, record), np.frombuffer(data, dtype=np.uint8))

    def _publish_checkpoint(self, records: list[dict[str, Any]], state: Any, step: int, cycle_end: bool) -> None:
        self._publish_progress(records, step)
        self._retrying_store.publish_checkpoint(state, step, self.number, cycle_end=cycle_end)
        self._checkpoint_written.set()

    def _publish_progress(self, records: list[dict[str, Any]], step: int) -> None:
        if records:
            self._retrying_store.publish_progress(records, step, self.number)

    def _publish_end(self, outcome: str, records: list[dict[str, Any]], step: int) -> None:
        """Mark a finished chain as such; it is ``stopped`` where another driver took it over and is not through."""
        self._publish_progress(records, step)
        if outcome == "finished":
            whole = self._retrying_store.finish(attempt=self.number, expected=expected_samples(self.spec))
            outcome = "finished" if whole else "stopped"
        self._end(outcome, "", steps=step)

    # Storage that is away

    def _keep_trying(self, reason: str) -> bool:
        """Wait for storage that does not answer; with a chain that is asked to stop only for seconds."""
        self._status.waiting = reason
        return not self._stop.is_set() or time.monotonic() - self._stop_asked < STOP_PATIENCE

    def _patiently(self, read: Callable[[], T]) -> T:
        """Read, and again while the storage is away; `_keep_trying` for reads."""
        while True:
            try:
                found = read()
            except StorageAway as error:
                self._status.waiting = str(error)
                if self._stop.wait(READ_AGAIN):
                    raise
                continue
            self._status.waiting = None
            return found

    # The end

    def _end(self, outcome: str, reason: str, cycle_start: int = 0, steps: int = 0) -> None:
        """Announce the end, whichever thread comes to it first."""
        at = (self.spec.digest, self.number)
        self._events.end(Ended(*at, outcome, reason, self._seconds, cycle_start, steps))  # type: ignore[arg-type]

    def _fail(self, error: BaseException, chain: Chain | None) -> None:
        outcome: str = outcome_of(error)
        if outcome == "diverged" and chain is not None and not self._events.over.is_set():
            self._status.record(stage="finding where it diverged")
            self._status.held = "its steps are repeated to find where it diverged"
            # A replay takes as long as the chain took from its checkpoint on.
            reason = str(error) if self._stop.is_set() else diagnosed(error, chain, self._store, self.number)
            self._end(outcome, reason, cycle_start(chain.schedule, chain.step))
        elif isinstance(error, StorageAway) and self._stop.is_set():
            self._end("stopped", reason_of(error))
        else:
            self._end(outcome, reason_of(error))


def restart_if_due(chain: Chain, assignment: ChainAssignment) -> bool:
    """Restart a chain's noise where its assignment asks for it; return whether it was restarted.

    Elsewhere samples would depend on which checkpoints were lost.
    """
    if chain.noise_attempt >= assignment.restart or chain.step < assignment.restart_from:
        return False
    chain.restart_noise(assignment.restart)
    return True


def run_rank(
    assignment: ChainAssignment, root: Storage, tasks: dict[str, Task], group: Ranks, device: torch.device
) -> None:
    """Run a chain as one of its ranks other than 0, step for step, until rank 0 ends it; nothing is written.

    Raises:
        Exception: whatever happens here, once the others were told.
    """
    spec = ChainSpec.from_json(assignment.spec)
    try:
        import_classes(spec)
        task = task_of(spec, tasks)
        group.together()
        state = unpacked(group.share(b""))
        chain = Chain(spec, task, device=device, start=start_of(spec, root), group=group)
        if state is not None:
            chain.load_state_dict(state["chain"])
        restart_if_due(chain, assignment)
        group.together()
        while not chain.done:
            for event in chain.advance():
                if isinstance(event, Sample):
                    group.wait(lambda seconds: False)  # rank 0 alone is asked
            if chain.paused and not chain.done:
                chain.check_ranks()
                group.wait(lambda seconds: False)  # written
                group.wait(lambda seconds: False)  # allowed
                if not group.decide(True):
                    return
        chain.check_ranks()
    except Exception as error:
        log.info("rank %d of chain %s", group.rank, spec.digest[:12], exc_info=True)
        if not isinstance(error, OF_OTHERS):
            group.abort(reason_of(error), lost=outcome_of(error) == "lost")
        raise
    finally:
        group.close()


def import_classes(spec: ChainSpec) -> None:
    """Import the sampler and the schedule of a chain, which the driver's user named."""
    samplers.KINDS.find(spec.sampler.kind)
    schedules.KINDS.find(spec.schedule.kind)


def device() -> torch.device:
    """Return the device that a worker's chains run on."""
    return gpus.best()


def task_of(spec: ChainSpec, tasks: dict[str, Task]) -> Task:
    """Return the chain's task from a worker's, which hold one task's data at a time."""
    key = repr(spec.task.to_json())
    if key not in tasks:
        tasks.clear()
        tasks[key] = known_tasks.build(spec.task)
    return tasks[key]


def start_of(spec: ChainSpec, root: Storage) -> Any | None:
    """Return the parameters that the chain starts from where it does not draw them."""
    return initial_states.read(root, key) if (key := initial_states.key_of(spec)) is not None else None


def diagnosed(error: Any, chain: Chain, store: ChainStore, number: int) -> str:
    """Return where and why a chain diverged, found by a replay from its newest checkpoint and written to its folder."""
    try:
        state = store.newest_checkpoint()
        found = diagnose(
            chain.spec,
            state and state["chain"],
            error,
            task=chain.task,
            device=chain.device,
            noise_attempt=chain.noise_attempt,
            start=chain.start,
        )
        store.publish_diagnosis(found.to_json(), found.step, number)
        return found.sentence()
    except Exception:
        log.warning("chain %s diverged; the replay failed", chain.spec.digest[:12], exc_info=True)
        return str(error)


def copied(value: Any) -> Any:
    """Return a nested state with tensors of its own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if isinstance(value, list | tuple) else value


def packed(state: Mapping[str, Any] | None) -> bytes:
    """Return a checkpoint's nested state as bytes for other ranks; none are none."""
    if state is None:
        return b""
    tensors, tree = codec.flatten(state)
    return codec.encode(tensors, {"state": tree})


def unpacked(data: bytes) -> dict[str, Any] | None:
    """Return the state of `packed`."""
    if not data:
        return None
    tensors, description = codec.decode(data)
    found: dict[str, Any] = codec.unflatten(tensors, description["state"])
    return found
