"""One execution of a chain by one worker: a stepping thread, a writer thread, and the queues between them.

The stepping thread copies what is to be kept; the writer makes it durable in the same order, so that a sample is
durable before the checkpoint that follows it. At most two samples are undelivered, then stepping pauses: what the storage
does not take waits, and the chain with it. Where several workers run a chain, all of this is rank 0's; the others
step along in `run_rank` and write nothing.
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
from raychains.chain.divergence import diagnose
from raychains.chain.pack import Packs
from raychains.chain.process_group import OF_OTHERS, Ranks
from raychains.chain.proof import repeat
from raychains.chain.sample_index import expected_samples, position
from raychains.core import gpus
from raychains.core.errors import StorageAway
from raychains.core.rng import GLOBALS
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec
from raychains.orchestration.checkpoint_policy import CheckpointPolicy, cycle_start, state_to_resume
from raychains.orchestration.error_classification import outcome_of, reason_of
from raychains.orchestration.messages import AttemptStatus, ChainAssignment
from raychains.orchestration.task_payload import unpack
from raychains.planning.coordinator import AttemptEvent, Began, Ended, Sampled
from raychains.store import ChainStore, Storage, codec, initial_states
from raychains.tasks import Task

log = logging.getLogger(__name__)
T = TypeVar("T")

__all__ = ["Attempt", "AttemptConfig", "Ended", "Packs", "Ranks", "Storage", "device", "repeat", "run_rank", "unpack"]

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


@dataclass(frozen=True)
class _Checkpoint:
    """A state on its way to the writer."""

    state: Mapping[str, Any]
    step: int
    cycle_end: bool


@dataclass(frozen=True)
class _End:
    """The last item of the writer's queue."""

    outcome: str
    step: int


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
        self._patient = self._store.waiting(self._keep_trying)
        self._stop = threading.Event()
        self._stop_asked = 0.0
        self._undelivered = threading.Semaphore(UNDELIVERED)
        self._to_write: queue.Queue[Sample | _Checkpoint | list[dict[str, Any]] | _End] = queue.Queue()
        """In the order in which it becomes durable; lists are progress records."""
        self._events: queue.Queue[tuple[AttemptEvent, Any]] = queue.Queue()
        self._seconds = 0.0
        self._records: list[dict[str, Any]] = []
        """Progress since the last checkpoint: handing each over would wake the writer a hundred times a second."""
        self._ending = threading.Lock()
        self._allowed = threading.Condition()
        self._allowed_to = 0
        self._over = threading.Event()
        """Set when nothing more comes: the chain ended, or one of the threads failed."""
        self._checkpoint_written = threading.Event()
        self._checkpoint_written.set()
        self._ended: Ended | None = None
        self._waiting: str | None = None
        self._running: Chain | None = None
        self._held_by: str | None = None
        """Why the stepping thread makes no steps."""
        self._status = AttemptStatus(digest=self.spec.digest)

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
        while self._ended is None and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self.take(timeout=left)

    def status(self) -> AttemptStatus:
        """Return where the chain is, and what it waits for."""
        chain = self._running
        made = chain.step if chain is not None else None
        return replace(self._status, waiting=self._waiting, made=made, held=self._held_by)

    def allow(self, step: int) -> None:
        """Let the chain pass its holds up to ``step``."""
        with self._allowed:
            self._allowed_to = max(self._allowed_to, step)
            self._allowed.notify_all()

    @property
    def taken(self) -> bool:
        """True once `take` returned the end."""
        return self._ended is not None

    def take(self, timeout: float | None = None) -> tuple[AttemptEvent, Any]:
        """Return the next event and, with a sample, its file's bytes as a flat uint8 array.

        `Ended` comes again and again once it came, since the caller may have asked ahead.

        Raises:
            queue.Empty: none came within ``timeout`` seconds.
        """
        if self._ended is not None:
            return self._ended, None
        event, data = self._events.get(timeout=timeout)
        if isinstance(event, Ended):
            self._ended = event
        elif isinstance(event, Sampled):
            self._undelivered.release()
        return event, data

    # The stepping thread

    def _guarded(self) -> None:
        """Run the chain; an error in this thread ends the attempt with its reason, never the worker."""
        writer: threading.Thread | None = None
        chain: Chain | None = None
        try:
            chain = self._running = self._chain()
            environment = chain.environment().to_json()
            writer = threading.Thread(target=self._write, args=(environment,), name="writer", daemon=True)
            writer.start()
            outcome = self._step(chain)
            self._part(chain)
            self._held_by = "the storage has not taken its last files"
            self._to_write.put(self._taken_records())
            self._to_write.put(_End(outcome, chain.step))
        except BaseException as error:  # a SystemExit of the user's code, too
            log.info("chain %s", self.spec.digest[:12], exc_info=True)
            if self._group is not None:
                self._group.leave(reason_of(error))
            self._part(chain)
            if writer is not None:
                self._to_write.put(self._taken_records())
                self._to_write.put(_End("drained", 0))  # what was handed over before stays
                writer.join()
            self._fail(error, chain)

    def _part(self, chain: Chain | None) -> None:
        """Leave the pack, whose other rows go on, and the group: once the end is known, the next chain here may make one."""
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
        if restarted(chain, self.assignment):
            # Durable before the record says from where it runs: then nobody continues on the old noise.
            self._publish_checkpoint(_Checkpoint(self._copy_of(chain), chain.step, True))
        about = {
            **self.assignment.about,
            "environment": chain.environment().to_json(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "from_step": chain.step,
            "noise_attempt": chain.noise_attempt,
            "workers": chain.group.size,
        }
        self._patient.begin(self.spec, self.number, about)
        self._waiting = None
        chain.group.together()
        if self._packs is not None and self.spec.pack:
            chain.join(self._packs)
        began = Began(self.spec.digest, self.number, chain.drawn, chain.step, chain.noise_attempt, torn)
        self._events.put((began, None))
        return chain

    def _state(self, torn: list[tuple[str, str]]) -> Any | None:
        def warn(file: str, reason: str) -> None:
            if (file, reason) not in torn:
                torn.append((file, reason))

        return state_to_resume(self.spec, self._store, self.assignment.restart, warn)

    def _step(self, chain: Chain) -> str:
        """Run to the end, or to a stop; return which."""
        policy = CheckpointPolicy(chain.schedule, self._config.checkpoint_every, self._config.every_cycle)

        def pause() -> bool:
            step = chain.step + (chain.group.size > 1)  # several ranks pause behind their next step
            if self._stop.is_set() or self._over.is_set() or self._held(step):
                return True
            return policy.due(step) and (self._checkpoint_written.is_set() or policy.must(step))

        while not chain.done:
            before, share = time.monotonic(), chain.share
            events = chain.advance(pause)
            self._seconds += (time.monotonic() - before) * share
            for event in events:
                if isinstance(event, Sample):
                    chain.group.wait(self._delivered_within)
                    self._to_write.put(event)
                else:
                    self._note(event)
            if self._over.is_set():
                return "failed"
            if (chain.paused if chain.group.size > 1 else pause()) and not chain.done:
                chain.check_ranks()
                chain.group.wait(self._written_within)
                self._checkpoint_written.clear()
                checkpoint = _Checkpoint(self._copy_of(chain), chain.step, policy.at_cycle_end(chain.step))
                self._to_write.put(self._taken_records())
                self._to_write.put(checkpoint)
                policy.written(chain.step)
                chain.group.wait(partial(self._allowed_within, chain.step))
                if not chain.group.decide(not self._stop.is_set()):
                    return "stopped"
        chain.check_ranks()
        return "finished"

    def _note(self, progress: Progress) -> None:
        record = {**progress.to_json(), "seconds": self._seconds}
        self._records.append(record)
        shown = {name: value for name, value in record.items() if name not in ("epoch", "held_out_loss")}
        self._status = AttemptStatus(digest=self.spec.digest, **shown)

    def _held(self, step: int) -> bool:
        return step in self._config.holds and step > self._allowed_to

    def _copy_of(self, chain: Chain) -> dict[str, Any]:
        """Return the chain's state as the writer will find it, whatever the chain does meanwhile."""
        return {"chain": copied(chain.state_dict()), "seconds": self._seconds}

    def _delivered_within(self, seconds: float) -> bool:
        """Wait while two samples are undelivered, unless the chain is to stop."""
        return self._within(seconds, lambda: self._undelivered.acquire(timeout=0.1), "its samples are not taken")

    def _written_within(self, seconds: float) -> bool:
        """Wait while a checkpoint waits for the storage: states are large, so that one waits at most."""
        held = "the storage has not taken its last checkpoint"
        return self._within(seconds, lambda: self._checkpoint_written.wait(timeout=0.1), held)

    def _allowed_within(self, step: int, seconds: float) -> bool:
        """Wait while the caller holds the chain at this step, unless the chain is to stop."""
        with self._allowed:
            allowed = partial(self._allowed.wait_for, lambda: not self._held(step), 0.1)
            return self._within(seconds, allowed, "it is held here")

    def _within(self, seconds: float, done: Callable[[], bool], held: str) -> bool:
        until = time.monotonic() + seconds
        while not done():
            self._held_by = held
            if self._stop.is_set() or self._over.is_set():
                return True
            if time.monotonic() > until:
                return False
        self._held_by = None
        return True

    def _taken_records(self) -> list[dict[str, Any]]:
        records, self._records = self._records, []
        return records

    # The writer thread

    def _write(self, environment: dict[str, Any]) -> None:
        """Publish in the order of the stepping thread: samples before the checkpoints that follow them."""
        records: list[dict[str, Any]] = []
        try:
            while True:
                item = self._to_write.get()
                if isinstance(item, Sample):
                    self._publish_sample(item, environment)
                elif isinstance(item, list):
                    records = item
                    continue
                elif isinstance(item, _Checkpoint):
                    self._publish_progress(records, item.step)
                    self._publish_checkpoint(item)
                    self._checkpoint_written.set()
                else:
                    self._publish_progress(records, item.step or (records[-1]["step"] if records else 0))
                    if item.outcome != "drained":
                        self._end(self._finished() if item.outcome == "finished" else item.outcome, "", steps=item.step)
                    return
                self._waiting = None
        except BaseException as error:
            log.info("writing chain %s", self.spec.digest[:12], exc_info=True)
            self._fail(error, None)

    def _finished(self) -> str:
        """Mark the chain finished; ``stopped`` where another driver took it over and is not through."""
        whole = self._patient.finish(attempt=self.number, expected=expected_samples(self.spec))
        return "finished" if whole else "stopped"

    def _publish_sample(self, sample: Sample, environment: dict[str, Any]) -> None:
        record, data = self._patient.publish_sample(sample, self.number, environment)
        at = position(self.spec, record.meta)
        stored = Sampled(self.spec.digest, self.number, at, record)
        self._events.put((stored, np.frombuffer(data, dtype=np.uint8)))

    def _publish_checkpoint(self, checkpoint: _Checkpoint) -> None:
        step, at_end = checkpoint.step, checkpoint.cycle_end
        self._patient.publish_checkpoint(checkpoint.state, step, self.number, cycle_end=at_end)

    def _publish_progress(self, records: list[dict[str, Any]], step: int) -> None:
        if records:
            self._patient.publish_progress(records, step, self.number)

    # Storage that is away

    def _keep_trying(self, reason: str) -> bool:
        """Wait for storage that does not answer; with a chain that is asked to stop only for seconds."""
        self._waiting = reason
        return not self._stop.is_set() or time.monotonic() - self._stop_asked < STOP_PATIENCE

    def _patiently(self, read: Callable[[], T]) -> T:
        """Read, and again while the storage is away; `_keep_trying` for reads."""
        while True:
            try:
                found = read()
            except StorageAway as error:
                self._waiting = str(error)
                if self._stop.wait(READ_AGAIN):
                    raise
                continue
            self._waiting = None
            return found

    # The end

    def _end(self, outcome: str, reason: str, cycle_start: int = 0, steps: int = 0) -> None:
        """Announce the end once, whichever thread comes to it first."""
        with self._ending:
            if not self._over.is_set():
                self._over.set()
                at = (self.spec.digest, self.number)
                end = Ended(*at, outcome, reason, self._seconds, cycle_start, steps)  # type: ignore[arg-type]
                self._events.put((end, None))

    def _fail(self, error: BaseException, chain: Chain | None) -> None:
        outcome: str = outcome_of(error)
        if outcome == "diverged" and chain is not None and not self._over.is_set():
            self._status = replace(self._status, stage="finding where it diverged")
            self._held_by = "its steps are repeated to find where it diverged"
            # A replay takes as long as the chain took from its checkpoint on.
            reason = str(error) if self._stop.is_set() else diagnosed(error, chain, self._store, self.number)
            self._end(outcome, reason, cycle_start(chain.schedule, chain.step))
        elif isinstance(error, StorageAway) and self._stop.is_set():
            self._end("stopped", reason_of(error))
        else:
            self._end(outcome, reason_of(error))


def restarted(chain: Chain, assignment: ChainAssignment) -> bool:
    """Put a chain on the noise that its assignment asks for, if it is where that begins; return whether it was.

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
        restarted(chain, assignment)
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
            group.leave(reason_of(error), lost=outcome_of(error) == "lost")
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
