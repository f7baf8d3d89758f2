"""A chain as a trainable of Ray Tune.

Tune's schedulers, searchers and callbacks see a chain as they see any training: it reports after each cycle. Its
samples and checkpoints are in the run store, from which a trial resumes bit for bit after whatever happened to it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import ray
import torch
from ray import tune
from ray.exceptions import RayActorError
from ray.tune.search.repeater import TRIAL_INDEX

from raychains.coordination.failure import ChainPace
from raychains.core import gpus
from raychains.core.config import Run
from raychains.core.errors import ChainsFailed, UserError
from raychains.core.validation import as_number, integer
from raychains.orchestration.chains.chain_worker import set_up
from raychains.orchestration.chains.messages import ChainWorkerConfig
from raychains.orchestration.chains.reported_chain import ReportedChain, Reporter, Reports
from raychains.orchestration.cluster import ray_private
from raychains.orchestration.cluster.payload import Payload, for_actors
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.resource_config import bundle
from raychains.orchestration.tune.trial_ranks import TrialRanks
from raychains.planning.budget import gradient_evaluations
from raychains.planning.reports import REPORTS, report_steps
from raychains.planning.sweep_points import REPEAT, Points
from raychains.store import initial_states
from raychains.tasks.from_options import SPLIT, make_task

CHECKPOINT = "chain.json"
"""The file in a checkpoint of Tune's."""
WATCH_EVERY = 1.0
"""Seconds between looks at the chain and for draining nodes."""
FIXED = ("steps", "chains", "repeats", "lanes", "task", "task_settings", "train_subset", "val_split")
"""Options that a config may not contain: trials of one trainable sample one task."""


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """Settings that all trials of one trainable share; they are pickled with the class."""

    options: Run
    """Of all trials, with the ``val_split`` that makes the split val where the task has none of its own; the config of
    a trial adds to them."""
    user_code: Payload
    reports: int = REPORTS
    """Of a chain without cycles."""
    allow_unequal_budget: bool = False
    """Whether trials may cost other gradient evaluations than ``options`` say."""
    notes: Sequence[str] = ()
    """Lines on the task for the user."""


def values_and_repeat(config: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the options in a trial's config, as Python's own numbers, and its repetition; `tune.search.Repeater`
    numbers them itself.

    Raises:
        UserError: two repetitions, or one that is no number.
    """
    values = {name: as_number(value) for name, value in config.items()}
    if {REPEAT, TRIAL_INDEX} <= values.keys():
        raise UserError(
            f"{REPEAT} must be left out of a config in which tune.search.Repeater numbers the repeats "
            f"({TRIAL_INDEX}), got {values[REPEAT]!r}"
        )
    repeat = values.pop(TRIAL_INDEX, values.pop(REPEAT, 0))
    integer(REPEAT, repeat)
    return values, repeat


def losses(trial: str) -> tuple[Counter[str], str]:
    """Return how many processes of a trial ended themselves, by ``preemptions`` and ``stalls``, and why the last one
    did."""
    told = json.loads((ray_private.published(_key(trial)) if ray.is_initialized() else None) or "{}")
    reason = told.pop("reason", "")
    return Counter(told), reason


def _key(trial: str) -> str:
    return f"losses of {trial}"


class ChainTrainable(tune.Trainable):
    """One chain per trial, whose config holds options of `raychains.run`; it reports after each cycle.

    A report holds the metrics on the split val of the ensemble of all samples so far, ``epoch``, ``cycle`` (from 0),
    ``samples``, ``gradient_evaluations`` and the chain's ``digest``. Between reports the chain waits for Tune's
    decision.
    """

    settings: ClassVar[TrialSettings]
    _chain: ReportedChain
    _ranks: TrialRanks | None = None
    _losses: Counter[str]
    """The trial's processes that ended themselves so far: ``preemptions`` and ``stalls``."""
    _reports: Reports

    @classmethod
    def of(cls, settings: TrialSettings) -> type[Self]:
        """Return the class of trials with these settings, named after the task, as Tune names its trials."""
        name = "".join(c if c.isalnum() else "-" for c in settings.options.task).strip("-")
        return type(name, (cls,), {"settings": settings, "__doc__": cls.__doc__})

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Return the CPUs and GPUs of one chain: a bundle for each of its workers."""
        options = cls.settings.options
        ranks, gpus = options.workers, options.gpus_per_worker
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
        self._options = options = self.settings.options
        self._closed = threading.Event()
        self._timeout = float(options.stall_timeout)
        self._losses, _ = losses(self.trial_id)
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        held = self._held().get("GPU", 0.0)
        # Without Tune the process is its caller's: it keeps its GPUs, and the chain runs on the CPU.
        self._device = torch.device("cpu") if self.trial_resources is None else None
        set_up(held or self._device is not None, options.data_root)
        torch.set_num_threads(options.cpus_per_chain)
        self._task = make_task(options, options.task, self.settings.user_code.unpack())
        self._points = Points(initial_states.with_file(options), self._task, FIXED)
        device = gpus.best() if held else None
        self._evaluation = self._task.splits()[SPLIT].configure(bins=options.bins, device=device)
        if not self.settings.allow_unequal_budget:
            self._declared = gradient_evaluations(self._points.make(0, {}).specs[0])
        ranks = options.workers
        self._ranks = self._other_ranks(ranks, held / ranks) if ranks > 1 else None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Run another trial's chain in the same process, on the task that is loaded already."""
        self._reports.close()
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Return the next report; the chain runs until then."""
        report = next(self._reports)
        if report["done"] and self._losses:
            ray_private.forget(_key(self.trial_id))
        return report

    def cleanup(self) -> None:
        """Write a checkpoint of the chain and end it."""
        self._reports.close()
        self._closed.set()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write which chain this is and how often it reported: the run store has all else."""
        digest, reporter = self._chain.spec.digest, self._chain.reporter
        state = {"digest": digest, "step": reporter.step, "reports": reporter.reported, "resources": self._held()}
        Path(checkpoint_dir, CHECKPOINT).write_text(json.dumps(state))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Let the next report be the one after the checkpoint's.

        Raises:
            UserError: the checkpoint is of another chain, or of a trial with other resources, as with schedulers that
                change them.
        """
        state = json.loads(Path(checkpoint, CHECKPOINT).read_text())
        if state["digest"] != self._chain.spec.digest:
            raise UserError(
                "scheduler must leave a trial's config as it is, got a checkpoint of another chain: a chain with other "
                "options begins at its first step (use ASHA, HyperBand or median stopping instead of PBT or PB2)"
            )
        asked = type(self).default_resource_request(self.config).required_resources
        if self._held() not in (state["resources"], asked):  # a restored experiment may ask for others
            raise UserError(
                f"scheduler must leave a trial's resources as they are, got {self._held()} instead of "
                f"{state['resources']}: a chain uses cpus_per_chain and gpus_per_chain of the trainable (leave "
                "ResourceChangingScheduler out)"
            )
        self._reports.close()
        self._reports = self._run(min(state["reports"], len(self._chain.reporter.steps) - 1))

    def _held(self) -> dict[str, float]:
        """Return the resources that Tune holds for this trial; none without Tune."""
        return dict(self.trial_resources.required_resources) if self.trial_resources is not None else {}

    def _other_ranks(self, size: int, gpus: float) -> TrialRanks:
        options, name = self._options, f"{type(self).__name__}-{self.trial_id}"
        config = ChainWorkerConfig(store=options.store, data_root=options.data_root, gpus=gpus, name=name)
        payload = for_actors(self._task, RayWorkers(), None)
        return TrialRanks(size, float(options.cpus_per_chain), config, payload)

    # Stalls and draining nodes

    def _watch(self) -> None:
        """Have the chain leave a draining node, and end this process where its chain stalls for too long."""
        chain, pace, leaves = None, ChainPace(self._timeout, self._losses["stalls"]), False
        while not self._closed.wait(WATCH_EVERY):
            pace.passed(WATCH_EVERY, asked=False)
            leaves = leaves or self._node_is_draining()
            if (now := getattr(self, "_chain", None)) is not None:  # none while the task is built
                if now is not chain:
                    chain, pace = now, ChainPace(self._timeout, self._losses["stalls"])
                status = now.status()
                pace.answered(status.made or 0, held=status.held, waiting=status.waiting is not None)
                if leaves:
                    now.leave()
            stall = pace.stall()
            if stall is not None and stall.given_up:
                print(f"raychains: {stall.loss}: this process of a trial ends", file=sys.stderr, flush=True)
                self._count("stalls", stall.loss)
                os._exit(1)

    def _node_is_draining(self) -> bool:
        own = ray.get_runtime_context().get_node_id() in ray_private.draining()
        return own or (self._ranks is not None and self._ranks.leaving())

    def _count(self, kind: str, reason: str) -> int:
        """Count that this process ends itself, for the driver and the trial's next process; return how many did."""
        self._losses[kind] += 1
        ray_private.publish(_key(self.trial_id), json.dumps({**self._losses, "reason": reason}).encode())
        return self._losses[kind]

    # The chain

    def _begin(self, config: Mapping[str, Any]) -> None:
        try:
            values, repeat = values_and_repeat(config)
            point = self._points.make(0, self._points.values(values), repeat + 1)
            spec = point.specs[repeat]
            cost = gradient_evaluations(spec)
            if not self.settings.allow_unequal_budget and cost != self._declared:
                raise UserError(
                    f"config must cost the gradient evaluations of the trainable's epochs ({self._declared:,}), got "
                    f"{cost:,} by {dict(config)}; pass allow_unequal_budget=True to compare trials of unequal cost"
                )
        except UserError as error:
            raise error.with_traceback(None) from None  # Tune prints the traceback: the message is enough
        self._losses, _ = losses(self.trial_id)
        own = uuid.uuid4() if self.trial_resources is None else uuid.uuid5(uuid.NAMESPACE_OID, self.trial_id)
        self._chain = ReportedChain(
            reporter=Reporter(
                spec=spec,
                length=point.length,
                steps=report_steps(spec, self.settings.reports),
                evaluation=self._evaluation,
            ),
            options=self._options,
            task=self._task,
            run=f"trial:{own.hex}",
            driver_id=own.hex,
            device=self._device,
            ranks=self._ranks.size if self._ranks is not None else 1,
            follow=self._ranks.follow if self._ranks is not None else None,
            waits=True,
        )
        self._reports = self._run(0)

    def _run(self, known: int) -> Reports:
        """Yield the chain's reports, but for the first ``known``."""
        preemptions = self._losses["preemptions"]
        try:
            yield from self._chain.reports(known, {"preemptions": preemptions} if preemptions else {})
        except RayActorError as left:
            count, most = self._count("preemptions", str(left)), self._options.max_preemptions
            if most is not None and count > most:
                raise ChainsFailed(f"it had to leave its node {count} times") from None
            raise  # Tune does not count it as a failure
