"""A chain as a trainable of Ray Tune.

Tune's schedulers, searchers and callbacks see a chain as they see any training: it reports after each cycle. Its samples and
checkpoints are in the run store, from which a trial resumes bit for bit after whatever happened to it.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import ray
import torch
from ray import tune
from ray.exceptions import RayActorError
from ray.tune.search.repeater import TRIAL_INDEX

from raychains import tasks
from raychains.chain.sample_index import expected_samples, position
from raychains.core.config import Run
from raychains.core.errors import ChainsFailed, RaychainsError, StorageRefused, UserError
from raychains.core.spec import ChainSpec
from raychains.core.validation import integer
from raychains.evaluation.running import RunningEnsemble
from raychains.orchestration import ray_private, task_payload
from raychains.orchestration.attempt import Attempt, AttemptConfig
from raychains.orchestration.chain_worker import set_up
from raychains.orchestration.lease import Lease
from raychains.orchestration.messages import ChainAssignment, ChainWorkerConfig
from raychains.orchestration.ray_workers import RayWorkers
from raychains.orchestration.resource_config import bundle
from raychains.orchestration.trial_ranks import TrialRanks
from raychains.orchestration.trial_signs import EverySecond
from raychains.planning import swept
from raychains.planning.budget import gradient_evaluations
from raychains.planning.coordinator import Began, Ended, Sampled
from raychains.planning.duration import seconds
from raychains.planning.methods import workers_of
from raychains.planning.reports import ReportStep, report_steps
from raychains.planning.swept import REPEAT, Points
from raychains.store import ChainStore, Storage, codec, initial_states
from raychains.tasks import Task

ASK_AGAIN = 2.0
"""Seconds between looks at a chain that another driver or trial runs."""
CHECKPOINT = "chain.json"
"""The file in a checkpoint of Tune's."""
FIXED = ("steps", "chains", "repeats", "lanes", "task", "task_settings", "train_subset", "val_split")
"""Options that a config may not contain: trials of one trainable sample one task."""

ERRORS = {"failed": ChainsFailed, "diverged": ChainsFailed, "storage_refused": StorageRefused}
"""By an attempt's outcome; any other one is its process's fault."""

Report = dict[str, Any]
Reports = Generator[Report, None, None]


class SharedTask:
    """A user's task object, which travels through Ray's object store: Ray refuses classes above 95 MiB."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._ref: Any = None
        self._session = ""

    def __reduce__(self) -> tuple[Any, ...]:
        if not ray.is_initialized():
            return SharedTask, (self._task,)
        context = ray.get_runtime_context()
        session = f"{context.gcs_address} {context.get_job_id()}"
        if session != self._session:
            self._ref, self._session = ray.put(self._task), session
        return _shared, (self._ref,)

    def get(self) -> Task:
        """Return the task."""
        return self._task


def _shared(ref: Any) -> SharedTask:
    return SharedTask(ray.get(ref))


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """Settings that all trials of one trainable share; they are pickled with the class."""

    options: Run
    task: SharedTask | None
    """The task where the user passed an object."""
    reports: int
    allow_unequal_budget: bool
    folders: tuple[str, ...]
    """Folders that the user's process imports from."""
    classes: tuple[bytes, ...]
    """The user's samplers and schedules that trials cannot import: `task_payload.pack_classes`."""


def chain_trainable(
    options: Run,
    task: Task | None,
    *,
    reports: int,
    allow_unequal_budget: bool,
    base: type[ChainTrainable] | None = None,
) -> type[ChainTrainable]:
    """Return the class; `raychains.api.tune.trainable` checks the arguments.

    Args:
        options: of all trials; the config of a trial adds to them.
        task: the task where the user passed an object.
        reports: of a chain without cycles.
        allow_unequal_budget: whether trials may cost other gradient evaluations than ``options`` say.
        base: the class that the trainable is of, default `ChainTrainable`.
    """
    folders = task_payload.import_folders()
    settings = TrialSettings(
        options=options,
        task=SharedTask(task) if task is not None else None,
        reports=reports,
        allow_unequal_budget=allow_unequal_budget,
        folders=folders,
        classes=task_payload.pack_classes(),
    )
    name = "".join(c if c.isalnum() else "-" for c in options.task).strip("-")
    base = base if base is not None else ChainTrainable
    return type(name, (base,), {"settings": settings, "__doc__": base.__doc__})


def values_and_repeat(config: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the options in a trial's config, as Python's own numbers, and its repetition; `tune.search.Repeater` numbers them itself.

    Raises:
        UserError: two repetitions, or one that is no number.
    """
    values = {name: swept.python_value(value) for name, value in config.items()}
    if {REPEAT, TRIAL_INDEX} <= values.keys():
        raise UserError(
            f"{REPEAT} must be left out of a config in which tune.search.Repeater numbers the repeats "
            f"({TRIAL_INDEX}), got {values[REPEAT]!r}"
        )
    repeat = values.pop(TRIAL_INDEX, values.pop(REPEAT, 0))
    integer(REPEAT, repeat)
    return values, repeat


class ChainTrainable(tune.Trainable):
    """One chain per trial, whose config holds options of `raychains.run`; it reports after each cycle.

    A report holds the metrics on the split val of the ensemble of all samples so far, ``epoch``, ``cycle`` (from 0),
    ``samples``, ``gradient_evaluations`` and the chain's ``digest``. Between reports the chain waits for Tune's decision.
    """

    settings: ClassVar[TrialSettings]
    _spec: ChainSpec
    _running: Attempt | None = None
    _expects = True
    """It is the chain's turn: not Tune's, another driver's, or an evaluation's."""
    _ranks: TrialRanks | None = None
    _thread: EverySecond | None = None
    _leaves = False
    """A node that this trial is on will be gone soon."""
    _reports: Reports

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Return the CPUs and GPUs of one chain: a bundle for each of its workers."""
        options = cls.settings.options
        ranks, gpus = workers_of(options)
        if gpus is None:
            has = options.accelerator_type is not None or (ray.is_initialized() and ray.cluster_resources().get("GPU"))
            gpus = 1.0 if has else 0.0
        return tune.PlacementGroupFactory([bundle(options.cpus_per_chain, gpus, options.accelerator_type)] * ranks)

    def setup(self, config: dict[str, Any]) -> None:
        """Build the task and the chain of ``config``.

        Raises:
            UserError: an option that is unknown, out of range or may not differ between trials; or other gradient
                evaluations than the trainable's.
        """
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            self._thread = EverySecond(self._every_second)
        options = self.settings.options
        held = self._held().get("GPU", 0.0)
        set_up(held, options.data_root)
        torch.set_num_threads(options.cpus_per_chain)
        task_payload.import_from(self.settings.folders)
        task_payload.unpack_classes(self.settings.classes)
        given = tasks.give(self.settings.task.get()) if self.settings.task is not None else None
        self._task, options, _ = swept.with_validation(options, given)
        self._options = options
        self._points = Points(options, self._task, FIXED)
        self._store = Storage(options.store)
        self._evaluation = self._task.splits()[swept.SPLIT]
        self._evaluation.bins = options.bins
        if held and torch.cuda.is_available():
            self._evaluation.to(torch.device("cuda"))
        if not self.settings.allow_unequal_budget:
            self._declared = gradient_evaluations(self._points.make(0, {}).specs[0])
        ranks, _ = workers_of(options)
        self._ranks = self._other_ranks(ranks, held / ranks) if ranks > 1 else None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Run another trial's chain in the same process, on the task that is loaded already."""
        self._reports.close()
        self._begin(new_config)
        return True

    def step(self) -> Report:
        """Return the next report; the chain runs until then."""
        return next(self._reports)

    def cleanup(self) -> None:
        """Write a checkpoint of the chain and end it."""
        self._reports.close()
        if self._thread is not None:
            self._thread.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write which chain this is and how often it reported: the run store has all else."""
        state = {"digest": self._spec.digest, "step": self._step, "reports": self._reported, "resources": self._held()}
        Path(checkpoint_dir, CHECKPOINT).write_text(json.dumps(state))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Let the next report be the one after the checkpoint's.

        Raises:
            UserError: the checkpoint is of another chain, or of a trial with other resources, as with schedulers that
                change them.
        """
        state = json.loads(Path(checkpoint, CHECKPOINT).read_text())
        if state["digest"] != self._spec.digest:
            raise UserError(
                "scheduler must leave a trial's config as it is, got a checkpoint of another chain: a chain with other "
                "options begins at its first step (use ASHA, HyperBand or median stopping instead of PBT or PB2)"
            )
        asked = type(self).default_resource_request(self.config).required_resources
        if self._held() not in (state["resources"], asked):  # a restored experiment may ask for others
            raise UserError(
                f"scheduler must leave a trial's resources as they are, got {self._held()} instead of {state['resources']}: "
                "a chain uses cpus_per_chain and gpus_per_chain of the trainable (leave ResourceChangingScheduler out)"
            )
        self._reports.close()
        self._reports = self._run(state["reports"])

    def _held(self) -> dict[str, float]:
        """Return the resources that Tune holds for this trial; none without Tune."""
        return dict(self.trial_resources.required_resources) if self.trial_resources is not None else {}

    def _other_ranks(self, size: int, gpus: float) -> TrialRanks:
        options, name = self._options, f"{type(self).__name__}-{self.trial_id}"
        config = ChainWorkerConfig(store=options.store, data_root=options.data_root, gpus=gpus, name=name)
        payload = task_payload.pack(self._task, RayWorkers(), None)
        return TrialRanks(size, float(options.cpus_per_chain), config, payload)

    # Nodes that will be gone soon

    def _every_second(self, number: int) -> None:
        """Have the chain write a checkpoint and end, once a node that the trial is on will be gone soon."""
        if self._leaves:
            return
        on_own = ray.get_runtime_context().get_node_id() in ray_private.draining()
        if on_own or (self._ranks is not None and self._ranks.leaving()):
            self._leaves = True
            if (attempt := self._running) is not None:
                attempt.stop()

    def _preempted(self) -> Exception:
        """Return what ends this process: for Tune the loss of a node that was announced, which it does not count as a failure."""
        self._preemptions += 1
        most = self._options.max_preemptions
        if most is not None and self._preemptions > most:
            return ChainsFailed(f"it had to leave its node {self._preemptions} times")
        ray_private.publish(self._key, str(self._preemptions).encode())
        return RayActorError(
            error_msg="the trial's node will be gone soon: its chain wrote a checkpoint", preempted=True
        )

    @property
    def _key(self) -> str:
        """The key under which the trial's next process finds how often it had to leave."""
        return f"preemptions of {self.trial_id}"

    # The chain

    def _begin(self, config: Mapping[str, Any]) -> None:
        try:
            values, repeat = values_and_repeat(config)
            point = self._points.make(0, self._points.values(values), repeat + 1)
            cost = gradient_evaluations(point.specs[repeat])
            if not self.settings.allow_unequal_budget and cost != self._declared:
                raise UserError(
                    f"config must cost the gradient evaluations of the trainable's epochs ({self._declared:,}), got {cost:,} by "
                    f"{dict(config)}; pass allow_unequal_budget=True to compare trials of unequal cost"
                )
        except UserError as error:
            raise error.with_traceback(None) from None  # Tune prints the traceback: the message is enough
        self._spec, self._length = point.specs[repeat], point.length
        if self._points.start is not None:
            initial_states.publish(self._store, self._points.start)
        patient = self._store.waiting(lambda reason: True)
        self._chain = ChainStore(patient, self._spec.digest)
        self._steps = report_steps(self._spec, self.settings.reports)
        self._reports = self._run(0)

    def _run(self, known: int) -> Reports:
        """Yield the chain's reports, but for the first ``known``, until it is through; the last one says ``done``."""
        expected = expected_samples(self._spec)
        self._known = min(known, len(self._steps) - 1)
        self._step = self._reported = self._noise = self._restart = self._restart_from = 0
        self._expects = False
        # A trial that Tune starts again takes its chain over at once: attempts are numbered, late writes of its predecessor do not count.
        own = uuid.uuid4() if self.trial_resources is None else uuid.uuid5(uuid.NAMESPACE_OID, self.trial_id)
        self._preemptions = int(ray_private.published(self._key) or 0) if self._thread is not None else 0
        with Lease(self._store, f"trial:{own.hex}", driver_id=own.hex) as lease:
            about: dict[str, Any] = {"driver": f"{socket.gethostname()}:{os.getpid()}", "driver_id": lease.driver_id}
            if self._preemptions:
                about["preemptions"] = self._preemptions
            while True:
                ensemble = self._ensemble()
                if self._chain.finished(expected):
                    yield from self._stored(ensemble, expected)
                    yield from self._report(ensemble, self._steps[-1])
                    return
                if self._leaves:
                    raise self._preempted()
                number = lease.claim(self._spec.digest, {**about, "started": time.time()})
                if number is None:  # another driver, or another trial of the same options, runs it
                    time.sleep(ASK_AGAIN)
                    continue
                ended = yield from self._attempt(number, about, ensemble)
                if ended.outcome == "finished":
                    return
                restarts = self._options.max_failures if self._options.on_divergence == "restart-cycle" else 0
                if ended.outcome == "diverged" and self._noise < restarts:
                    self._restart, self._restart_from = self._noise + 1, ended.cycle_start
                elif ended.outcome != "stopped" and not (self._leaves and ended.outcome == "lost"):
                    raise ERRORS.get(ended.outcome, RaychainsError)(ended.reason)

    def _attempt(
        self, number: int, about: Mapping[str, Any], ensemble: RunningEnsemble
    ) -> Generator[Report, None, Ended]:
        """Run the chain from its newest checkpoint on, and report; it waits at each report for Tune's decision."""
        config = AttemptConfig(
            checkpoint_every=seconds("checkpoint_every", self._options.checkpoint_every),
            every_cycle=True,
            holds=frozenset(at.step for at in self._steps[:-1]),
        )
        assignment = ChainAssignment(
            spec=self._spec.to_json(),
            attempt=number,
            restart=self._restart,
            restart_from=self._restart_from,
            about={**about, "started": time.time()},
            ranks=self._ranks.size if self._ranks is not None else 1,
        )
        group = self._ranks.follow(assignment) if self._ranks is not None else None
        attempt = Attempt(assignment, self._store, config, {repr(self._spec.task.to_json()): self._task}, group)
        attempt.begin()
        self._running = attempt
        if self._leaves:
            attempt.stop()
        ended: Ended | None = None
        reported = self._reported
        try:
            while ended is None:
                self._expects = True
                event, data = attempt.take()
                self._expects = False
                if isinstance(event, Began):
                    self._reported = reported
                    self._noise = event.restart
                    yield from self._stored(ensemble, event.drawn, attempt)
                elif isinstance(event, Sampled):
                    yield from self._add(ensemble, codec.decode_sample(bytes(memoryview(data))), attempt)
                else:
                    ended = event
            if ended.outcome == "finished":
                if self._preemptions:
                    ray_private.forget([self._key])
                yield from self._report(ensemble, self._steps[-1])
            return ended
        finally:
            self._running = None
            if ended is None:
                attempt.end()

    # Reports

    def _ensemble(self) -> RunningEnsemble:
        self._complete = initial_states.Completion(self._store)
        return RunningEnsemble(self._evaluation)

    def _stored(self, ensemble: RunningEnsemble, drawn: int, attempt: Attempt | None = None) -> Reports:
        """Evaluate the first ``drawn`` samples, which the store holds, and report what is due by them."""
        records = {position(self._spec, record.meta): record for record in self._chain.records()}
        for at in range(drawn):
            yield from self._add(ensemble, self._chain.sample(records[at].file), attempt)

    def _add(self, ensemble: RunningEnsemble, sample: tuple[Any, Any], attempt: Attempt | None) -> Reports:
        tensors, own = sample
        ensemble.add(self._complete(dict(tensors), initial_states.needed(self._spec)), own["sha256"])
        for at in self._steps[:-1]:
            if at.samples == ensemble.samples:
                yield from self._report(ensemble, at)
                if attempt is not None:
                    attempt.allow(at.step)

    def _report(self, ensemble: RunningEnsemble, at: ReportStep) -> Reports:
        """Yield a report, unless Tune has it already."""
        number = self._steps.index(at)
        self._step, self._reported = at.step, number + 1
        if number < self._known:
            return
        spec = self._spec
        yield {
            **ensemble.metrics(),
            "epoch": self._length * at.step / spec.steps,
            "cycle": at.cycle,
            "samples": ensemble.samples,
            "gradient_evaluations": gradient_evaluations(spec) * at.step // spec.steps,
            "digest": spec.digest,
            "done": at is self._steps[-1],
        }
