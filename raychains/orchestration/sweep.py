"""A sweep as an experiment of Ray Tune: its chains are trials, and what they report is kept in the sweep's folder.

Nothing is read back from Tune's own files: a sweep that is resumed is a new experiment of the chains that have not ended, and a chain
that was begun resumes from the run store.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayActorError
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search import BasicVariantGenerator

from raychains.chain import precision
from raychains.core.config import Run
from raychains.core.errors import (
    ChainsFailed,
    RaychainsError,
    RayLost,
    StorageAway,
    StorageRefused,
    UserError,
    trial_error,
)
from raychains.inference.sweep_results import report_of
from raychains.orchestration import ray_private, ray_watch
from raychains.orchestration.interrupt import Interrupt
from raychains.orchestration.lease import Lease
from raychains.orchestration.optuna_search import OptunaSearch, Unpickled
from raychains.orchestration.ray_workers import RayWorkers
from raychains.orchestration.resource_config import ResourceConfig
from raychains.orchestration.resource_wait import HELD_AFTER, Lack, ResourceWait
from raychains.orchestration.trial_signs import Sign, TrialWatch
from raychains.orchestration.tune import REPEAT, ChainTrainable, chain_trainable
from raychains.planning import events
from raychains.planning.capacity import fit
from raychains.planning.reports import REPORTS
from raychains.planning.stall import LONGEST_LOOK
from raychains.planning.sweep_plan import Point, SweepPlan
from raychains.planning.sweep_points import Planned
from raychains.store import ChainStore, SweepStore
from raychains.tasks import Task

TICK_EVERY = 0.5
"""Seconds between ticks."""
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the newer output prints tables even with verbose=0
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths in a user's task keep their meaning
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Interrupt lets chains write checkpoints
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last result of a chain that failed has no metrics
}
FAILED, REFUSED = "failed", "storage_refused"
"""Entries of a trial's last result: why its chain was given up, or why the store takes no more."""


@dataclass(frozen=True)
class SweepOutcome:
    """The end of an experiment; the reports are in the store."""

    points: Sequence[Point]
    failed: Mapping[str, str]
    """Chains that were given up now, by digest, and why."""
    stopped: bool
    """True if the user or another driver stopped the sweep."""


def _stored(call: Callable[..., None]) -> Callable[..., None]:
    """Let the sweep stop where the store fails in one of Tune's callbacks, of whose errors Tune makes its own."""

    @functools.wraps(call)
    def guarded(self: SweepExperiment, *args: Any, **info: Any) -> None:
        try:
            call(self, *args, **info)
        except StorageRefused as error:
            self._fatal = error
        except StorageAway as error:
            if not self.stop_all():  # else the user did not want to wait for the store
                self._fatal = error

    return guarded


class _RayGone(BaseException):
    """Ends Tune's loop without its clean-up, which would ask Ray and never be answered: no `Exception`, after which there is one."""


class SweepTrial(ChainTrainable):
    """A chain that fails reports it as its last result: Tune would run a trial that raises again, to the same end."""

    def step(self) -> dict[str, Any]:
        """Return the next report, or why there will be none."""
        try:
            return super().step()
        except StorageRefused as error:
            return {REFUSED: str(error), "done": True}
        except ChainsFailed as error:
            return {FAILED: str(error), "done": True}

    def _every_second(self, number: int) -> None:
        """See `ChainTrainable`; give a sign of life."""
        ray_private.publish(ray.get_runtime_context().get_actor_id(), self._sign(number).to_json())
        super()._every_second(number)

    def _sign(self, number: int) -> Sign:
        chain = getattr(self, "_chain", None)
        attempt = chain.attempt if chain is not None else None
        return Sign(
            number=number,
            digest=chain.spec.digest if chain is not None else None,
            status=attempt.status() if attempt is not None else None,
            expects=chain is None or chain.expects,
        )


class Halving(Unpickled, ASHAScheduler):
    """ASHA over epochs, which remembers the reports of earlier drivers and never stops a chain at its end.

    Args:
        plan: the sweep, with ``asha``.
        earlier: by digest, what chains reported to earlier drivers.
        stopped: called with (digest, result) before a chain is stopped.
    """

    def __init__(
        self,
        plan: SweepPlan,
        earlier: Mapping[str, Sequence[Mapping[str, Any]]],
        stopped: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        assert plan.asha is not None
        mode = "min" if plan.metric.better == "lower" else "max"
        super().__init__(
            time_attr="epoch",
            metric=plan.metric.name,
            mode=mode,
            max_t=plan.length,
            grace_period=plan.asha.grace * plan.length,
            reduction_factor=plan.asha.reduction,
            stop_last_trials=False,
        )
        self._name, self._stopped = plan.metric.name, stopped
        self._worst = 1e30 if mode == "min" else -1e30  # for values that are not finite
        for digest, reports in earlier.items():
            for report in reports:
                self._decide(digest, report["epoch"], report["metrics"][self._name])

    def on_trial_add(self, controller: Any, trial: Any) -> None:
        """Do nothing: a chain is added with its first report."""

    def on_trial_result(self, controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Return CONTINUE or STOP."""
        action = self._decide(result["digest"], result["epoch"], result[self._name])
        if action == TrialScheduler.STOP:
            self._stopped(result["digest"], result)
        return action

    def on_trial_complete(self, controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """Compare others with a chain that reached its end."""
        if "digest" in result:
            self._decide(result["digest"], result["epoch"], result[self._name])

    def on_trial_remove(self, controller: Any, trial: Any) -> None:
        """Do nothing."""

    def _decide(self, digest: str, epoch: float, value: float) -> str:
        chain: Any = SimpleNamespace(trial_id=digest)  # the same for all drivers, unlike Tune's trial of it
        if digest not in self._trial_info:
            super().on_trial_add(None, chain)
        value = value if math.isfinite(value) else self._worst
        return str(super().on_trial_result(None, chain, {"epoch": epoch, self._name: value}))


@dataclass
class TrialWait(ResourceWait):
    """Says why no trial runs; Tune alone would wait for ever."""

    workers: None = field(default=None, init=False)
    _idle_since: float | None = None

    def _chains(self) -> Lack | None:
        what = f"a chain ({self.slots.describe()})"
        if not self.slots.room():
            return self._missing(what)
        free = self.slots.cluster.free(self.slots.accelerator_type)
        if (
            ray_watch.ask(ray_private.any_actor_alive)
            or fit(free, self.slots.cpus, self.slots.gpus).chains >= self.slots.ranks
        ):
            self._idle_since = None
            return None
        now = self.clock.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        return self._held(what) if now - self._idle_since >= HELD_AFTER else None


class SweepExperiment(Unpickled, tune.Callback, tune.Stopper):
    """Runs the chains of a sweep that have not ended. Ray must be connected.

    Args:
        planned: the sweep.
        options: what all chains share, with absolute locations.
        task: the task where the user passed an object.
        folder: the sweep's.
        resources: slots and limits.
        callback: called with the events of `raychains.planning.events`.
        lease: this driver's among those of the store.
    """

    def __init__(
        self,
        planned: Planned,
        *,
        options: Run,
        task: Task | None,
        folder: SweepStore,
        resources: ResourceConfig,
        callback: events.Callback,
        lease: Lease,
    ) -> None:
        plan = planned.plan
        self._planned, self._plan, self._resources = planned, plan, resources
        self._callback, self._lease = callback, lease
        self._folder = SweepStore(folder.root.waiting(lambda reason: not self.stop_all()), folder.name)
        slots = replace(resources, evaluate=False).slots(RayWorkers())
        self._slots = slots.with_largest_shares(plan.count * plan.repeats)
        for point in plan.points:
            for spec in point.specs:
                precision.check(spec, gpu=self._slots.gpus > 0)
        self._wait = TrialWait(self._slots, timeout=resources.slot_timeout)
        options = replace(options, gpus_per_chain=self._slots.gpus, workers_per_chain=self._slots.ranks)
        self._trainable = chain_trainable(options, task, reports=REPORTS, allow_unequal_budget=True, base=SweepTrial)
        self._trials = TrialWatch(self._trainable.__name__, resources.stall_timeout)
        self._given_up: dict[str, str] = {}
        """Why a chain's process was ended, until Tune tells of its death."""
        self._failures: Counter[str] = Counter()
        """By digest the failures that Tune counts of its trial."""
        self._interrupt = Interrupt()
        self._fatal: RaychainsError | None = None
        self._stopping = False
        self._chains: dict[str, list[tuple[Point, int]]] = {}
        """By digest the points and repeats that a chain is of."""
        self._digests: dict[str, str] = {}
        """By trial's config."""
        self._running: dict[str, Mapping[str, Any]] = {}
        """By digest the last report."""
        self._reports: dict[str, list[dict[str, Any]]] = {}
        self._stops = self._folder.stops()
        self._failed: dict[str, str] = {}
        self._over: set[str] = set()
        """Chains that ended now."""
        self._waiting = False
        self._ticked = 0.0
        self._search: OptunaSearch | None = None

    def run(self) -> SweepOutcome:
        """Run until every chain ended, or somebody stopped the sweep.

        Raises:
            StorageRefused: the store has no room left, or takes no files.
            RayLost: Ray is gone.
            UserError: the cluster had no room for a chain for too long.
        """
        self._callback.on(events.Ready(slots=self._slots.count, slot=self._slots.describe()))
        configs = self._add(self._plan.points)
        if self._plan.search == "optuna":
            self._search = OptunaSearch(
                self._plan,
                self._planned.ranges,
                make=self._planned.points.make,
                asked=self._folder.asked(),
                keep=self._folder.publish_asked,
                add=self._take,
                value=self._value,
            )
        with self._interrupt, _environment(ENVIRONMENT):
            if configs or self._search is not None:
                try:
                    with ray_private.trials_survive_handovers():
                        self._tuner(configs).fit()
                except _RayGone:
                    if not self.stop_all():  # chains that were to stop have, at their last checkpoints
                        ray_watch.check()
                self._trials.close()
            stopped = self.stop_all()
        if self._fatal is not None:
            raise self._fatal
        points = self._search.points if self._search is not None else self._plan.points
        return SweepOutcome(points, self._failed, stopped)

    def _tuner(self, configs: Sequence[Mapping[str, Any]]) -> tune.Tuner:
        plan, most = self._plan, self._resources.concurrent
        scheduler = None
        if plan.asha is not None:
            known = {digest: self._known(digest) for digest in self._chains}
            scheduler = Halving(plan, known, self._stop_chain)
        if self._search is not None:  # as many as run at once: none is chosen ahead of the results
            most = max(1, self._slots.at_once(plan.count * plan.repeats))
        # Values of a point belong together: the space only says which there are.
        space = {name: tune.choice([config[name] for config in configs]) for name in (configs[0] if configs else ())}
        return tune.Tuner(
            self._trainable,
            param_space=space,
            tune_config=tune.TuneConfig(
                search_alg=self._search or BasicVariantGenerator(points_to_evaluate=[dict(c) for c in configs]),
                scheduler=scheduler,
                num_samples=len(configs) if self._search is None else -1,
                max_concurrent_trials=most,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name=self._folder.name,
                storage_path=None if os.access(Path.home(), os.W_OK) else f"{tempfile.gettempdir()}/ray_results",
                verbose=0,
                callbacks=[self],
                stop=self,
                # Nodes need not share Tune's folder: a trial resumes from the run store.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=self._resources.max_failures),
            ),
        )

    # Chains

    def _add(self, points: Sequence[Point]) -> list[dict[str, Any]]:
        """Take points up; return configs of their chains that have not ended, each chain once, all first repeats first."""
        configs = []
        for repeat in range(self._plan.repeats):
            for point in points:
                digest = point.specs[repeat].digest
                known = digest in self._chains
                self._chains.setdefault(digest, []).append((point, repeat))
                if self._ended(digest):
                    self._judged(digest, point, repeat)
                elif not known:
                    configs.append({**point.values, REPEAT: repeat})
                    self._digests[_key(configs[-1])] = digest
        return configs

    def _take(self, point: Point) -> list[dict[str, Any]]:
        """Take up a point that the search chose."""
        self._callback.on(events.PointChosen(point=point))
        return self._add([point])

    def _known(self, digest: str) -> list[dict[str, Any]]:
        if digest not in self._reports:
            self._reports[digest] = self._folder.reports(digest, self._plan.metric.name)
        return self._reports[digest]

    def _ended(self, digest: str) -> bool:
        """Return whether a chain needs no trial: it reported its end, was stopped, or was given up now."""
        return digest in self._stops or digest in self._over or self._plan.through(self._known(digest))

    def _value(self, digest: str) -> tuple[float, bool] | None:
        """Return the last value of an ended chain and whether it ran to its end; None of a failed one."""
        reports = self._known(digest)
        if digest in self._failed or not reports:
            return None
        return reports[-1]["metrics"][self._plan.metric.name], digest not in self._stops

    @_stored
    def _stop_chain(self, digest: str, result: Mapping[str, Any]) -> None:
        self._keep(digest, report_of(self._plan, result))  # Tune asks the scheduler first
        self._stops[digest] = {"epoch": result["epoch"], "cycle": result["cycle"]}
        self._folder.publish_stop(digest, self._stops[digest])

    def _keep(self, digest: str, report: dict[str, Any]) -> None:
        """Publish a report that is not known: before any decision that is based on it."""
        if all(known["cycle"] != report["cycle"] for known in self._known(digest)):
            self._folder.publish_report(digest, report)
            self._known(digest).append(report)

    # Tune's callbacks

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `ray.tune.Callback`."""
        self._running[self._digest(trial)] = {}

    @_stored
    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Keep a report."""
        digest = self._digest(trial)
        if REFUSED in result:
            self._fatal = StorageRefused(result[REFUSED])
        elif FAILED in result:
            self._failed[digest] = result[FAILED]
        else:
            report = report_of(self._plan, result)
            self._running[digest] = report
            gradients, metrics = report["gradients"], report["metrics"]
            self._callback.on(events.ChainReported(digest=digest, gradients=gradients, metrics=metrics))
            self._keep(digest, report)

    @_stored
    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `ray.tune.Callback`."""
        self._end(self._digest(trial))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `ray.tune.Callback`."""
        digest = self._digest(trial)
        slot = self._slot(digest)
        reason = self._given_up.pop(digest, "its process died")
        before, self._failures[digest] = self._failures[digest], trial.num_failures
        if trial.num_failures > before:
            self._callback.on(events.WorkerLost(slot=slot, reason=reason, digest=digest))
        else:  # Tune counts all deaths but those with a node whose end was announced
            self._callback.on(events.Preempted(slot=slot, digest=digest))

    @_stored
    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `ray.tune.Callback`."""
        error = trial.get_pickled_error() or RuntimeError(trial.get_error())
        often = f"its process died more often than max_failures ({self._resources.max_failures}) allows"
        self._failed[self._digest(trial)] = often if isinstance(error, RayActorError) else trial_error(error)
        self._end(self._digest(trial))

    @_stored
    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tell the callback where the sweep is."""
        try:
            ray_watch.check()
            self._tell(trials)
        except RayLost:
            raise _RayGone from None

    def _tell(self, trials: list[Any]) -> None:
        now = time.monotonic()
        if now - self._ticked < TICK_EVERY:
            return
        seconds, self._ticked = min(now - self._ticked, LONGEST_LOOK), now
        if not self.stop_all():
            self._watch(seconds, trials)
        try:
            waiting = self._wait.check(waiting=1, running=bool(self._running))
        except UserError as error:
            self._fatal, waiting = error, None
        if bool(waiting) != self._waiting:
            self._waiting = bool(waiting)
            self._callback.on(events.Waiting(reason=waiting) if waiting else events.Resumed())
        self._callback.on(self._tick())

    def _watch(self, seconds: float, trials: list[Any]) -> None:
        """Announce trials that stall, and end the processes of those that do so for too long."""
        held = ray_private.trial_actors(trials)
        for process in self._trials.look(seconds):
            trial = held.get(process.actor)
            if trial is None and not process.starting:
                continue  # kept by Tune for a trial to come
            digest = self._digest(trial) if trial is not None else None
            stall = process.pace.announce(
                self._callback,
                digest=digest,
                slot=self._slot(digest),
                reason="a trial does not come up" if process.starting else "",
            )
            if stall is not None and stall.given_up:
                if digest is not None:
                    self._given_up[digest] = f"{stall.reason} for {stall.seconds:.0f} s"
                self._trials.give_up(process)

    # Tune's stopper

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False: trials end by themselves or with the sweep."""
        return False

    def stop_all(self) -> bool:
        """Return whether the sweep is to stop now; each chain then writes a checkpoint."""
        stop = bool(self._interrupt.asked or self._lease.lost or self._fatal)
        if stop and not self._stopping:
            self._stopping = True
            refused = isinstance(self._fatal, StorageRefused)
            self._callback.on(events.Stopping(reason="the store takes no more files" if refused else ""))
        return stop

    # Events

    def _digest(self, trial: Any) -> str:
        return self._digests[_key(trial.config)]

    def _slot(self, digest: str | None) -> int:
        """Return a chain's number among those that run; the next one while its trial starts."""
        running = list(self._running)
        return running.index(digest) if digest in running else len(running)

    def _end(self, digest: str) -> None:
        self._running.pop(digest, None)
        if self.stop_all():
            return
        self._over.add(digest)
        if digest in self._failed:
            self._callback.on(events.ChainFailed(digest=digest, reason=self._failed[digest]))
        elif digest in self._stops:
            reason = self._plan.stop_reason(self._chains[digest][0][0], self._stops[digest])
            self._callback.on(events.ChainStopped(digest=digest, reason=reason))
        else:
            self._callback.on(events.ChainFinished(digest=digest, seconds=self._seconds(digest)))
            for point, repeat in self._chains[digest]:
                self._judged(digest, point, repeat)

    def _judged(self, digest: str, point: Point, repeat: int) -> None:
        """Tell the metrics of a point's chain that ran to its end."""
        value = self._value(digest)
        if value is not None and value[1]:
            metrics, seconds = self._known(digest)[-1]["metrics"], self._seconds(digest)
            self._callback.on(events.ViewDone(arm=point.name, group=repeat, metrics=[metrics], chain_seconds=seconds))

    def _seconds(self, digest: str) -> float:
        return ChainStore(self._folder.root, digest).seconds()

    def _tick(self) -> events.Tick:
        plan, failed = self._plan, sum(len(self._chains[digest]) for digest in self._failed)
        ended = [digest for digest in self._chains if self._ended(digest) and digest not in self._failed]
        last = [reports[-1] for digest in self._chains if (reports := self._known(digest))]
        return events.Tick(
            running=[self._status(slot, digest) for slot, digest in enumerate(self._running)],
            finished=sum(len(self._chains[digest]) for digest in ended),
            chains=plan.count * plan.repeats,
            evaluated=0,
            to_evaluate=0,
            remaining_seconds=None,
            failed=failed,
            slots=len(self._running),
            samples=sum(report["samples"] for report in last),
            gradients=sum(report["gradients"] for report in last),
            to_spend=plan.gradients * plan.count * plan.repeats,
        )

    def _status(self, slot: int, digest: str) -> events.ChainStatus:
        [(point, repeat), *_] = self._chains[digest]
        spec, report = point.specs[repeat], self._running[digest]
        cycles = spec.schedule.settings.get("cycles", 1)
        process = self._trials.of(digest)
        now = process.sign.status if process is not None and process.sign is not None else None
        reported = round(spec.steps * report["epoch"] / self._plan.length) if report else 0
        return events.ChainStatus(
            digest=digest,
            slot=slot,
            step=max(reported, now.step) if now is not None else reported,
            steps=spec.steps,
            cycle=now.cycle if now is not None else min(report["cycle"] + 1, cycles - 1) if report else 0,
            stage=now.stage if now is not None else "",
            loss=now.loss if now is not None else None,
            seconds=now.seconds if now is not None else 0.0,
            samples=report.get("samples", 0),
            gradients=report.get("gradients", 0),
            stalled_seconds=process.pace.steps.silent if process is not None and process.pace.told else None,
        )


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, default=str)


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
