"""A sweep as an experiment of Ray Tune: its chains are trials, and what they report is kept in the sweep's folder.

Nothing is read back from Tune's own files: a sweep that is resumed is a new experiment, in which a chain that was
begun resumes from the run store, and one that ended reports again what it reported to the scheduler or the searcher,
which are new.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Repeater

from raychains.chain import precision
from raychains.coordination.capacity import fit
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
from raychains.evaluation.evaluation import Metric
from raychains.inference.sweep_results import report_of, result_of
from raychains.orchestration.chains.reported_chain import Reports
from raychains.orchestration.cluster import payload, ray_private, ray_watch
from raychains.orchestration.cluster.ray_workers import RayWorkers
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.interrupt import Interrupt
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.resource_wait import HELD_AFTER, Lack, ResourceWait
from raychains.orchestration.tune.optuna_search import OptunaSearch, Unpickled
from raychains.orchestration.tune.tune_trainable import REPEAT, ChainTrainable, TrialSettings, losses, values_and_repeat
from raychains.planning import events
from raychains.planning.sweep_plan import FAILED, FINISHED, STOPPED, WAITING, Point, SweepPlan, Values, state_of
from raychains.planning.sweep_points import Planned
from raychains.store import ChainStore, Storage, SweepStore
from raychains.tasks import Task

TICK_EVERY = 0.5
"""Seconds between ticks."""
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the newer output prints tables even with verbose=0
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths in a user's task keep their meaning
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Interrupt lets chains write checkpoints
}
GIVEN_UP, REFUSED = "failed", "storage_refused"
"""Entries of a trial's last result: why its chain was given up, or why the store takes no more."""
JUDGED = "judged"
"""The entry of a result by which schedulers and searchers compare, lower is better: the metric that decides, or its
negative; `WORST` where it is not finite."""
WORST = 1e30


@dataclass(frozen=True)
class SweepOutcome:
    """The end of an experiment; the reports are in the store."""

    points: Sequence[Point]
    failed: Mapping[str, str]
    """Chains that were given up now, by digest, and why."""
    interrupted: bool
    """True if the user or another driver ended the sweep early."""


def run(
    planned: Planned,
    folder: SweepStore,
    resources: ResourceConfig,
    callback: events.Callback,
    lease: Lease,
    *,
    options: Run,
    task: Task | None,
) -> SweepOutcome:
    """Run the chains of a sweep until every one ended, or it is interrupted. Ray must be connected.

    Args:
        planned: the sweep.
        folder: the sweep's.
        resources: slots and limits.
        callback: called with the events of `raychains.planning.events`.
        lease: this driver's among those of the store.
        options: what all chains share, with absolute locations.
        task: the task where the user passed an object.

    Raises:
        StorageRefused: the store has no room left, or takes no files.
        RayLost: Ray is gone.
        UserError: the cluster had no room for a chain for too long.
    """
    plan, stopper = planned.plan, InterruptStopper(lease, callback)
    folder = SweepStore(folder.root.retrying(lambda reason: not stopper.stop_all()), folder.name)
    slots = replace(resources, evaluate=False).slots(RayWorkers()).with_largest_shares(plan.count * plan.repeats)
    for point in plan.points:
        for spec in point.specs:
            precision.check(spec, gpu=slots.gpus > 0)
    options = replace(
        options,
        gpus_per_chain=slots.gpus,
        workers_per_chain=slots.ranks,
        bins=resources.bins,
        log=None,  # on the driver's machine alone, as TensorBoard's folder
        tensorboard=None,
    )
    settings = SweepSettings(options=options, user_code=payload.for_trials(task), sweep=folder.name, metric=plan.metric)
    wait = TrialWait(slots, timeout=resources.slot_timeout)
    sweep = SweepCallback(planned, folder, callback, stopper, wait)
    callback.on(events.Ready(slots=slots.count, slot=slots.describe()))
    sweep.add(plan.points)
    for values in folder.asked():  # by Optuna
        sweep.choose(values, new=False)
    with stopper.interrupt, _environment(ENVIRONMENT):
        if not sweep.complete:
            at_once = slots.at_once(plan.count * plan.repeats)
            space, search = _search(sweep, at_once, resources.concurrent)
            tuner = tune.Tuner(
                SweepTrial.of(settings),
                param_space=space,
                tune_config=tune.TuneConfig(
                    scheduler=_scheduler(plan),
                    reuse_actors=True,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                    **search,
                ),
                run_config=tune.RunConfig(
                    name=folder.name,
                    storage_path=None if os.access(Path.home(), os.W_OK) else f"{tempfile.gettempdir()}/ray_results",
                    verbose=0,
                    callbacks=[sweep],
                    stop=stopper,
                    # Nodes need not share Tune's folder: a trial resumes from the run store.
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                    failure_config=tune.FailureConfig(max_failures=resources.max_failures),
                ),
            )
            try:
                with ray_private.trials_survive_handovers():
                    tuner.fit()
            except _RayGone:
                if not stopper.stop_all():  # interrupted chains go on from their last checkpoints
                    ray_watch.check()
        interrupted = stopper.stop_all()
    if stopper.fatal is not None:
        raise stopper.fatal
    return SweepOutcome(sweep.points, sweep.failed, interrupted)


def _scheduler(plan: SweepPlan) -> ASHAScheduler | None:
    """Return Tune's scheduler that stops trials early; None without one."""
    if plan.asha is None:
        return None
    return ASHAScheduler(
        time_attr="epoch",
        metric=JUDGED,
        mode="min",
        max_t=plan.length,
        grace_period=plan.asha.grace * plan.length,
        reduction_factor=plan.asha.reduction,
        stop_last_trials=False,
    )


def _search(sweep: SweepCallback, at_once: int, concurrent: int | None) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the space of the trials' configs, and the settings of `tune.TuneConfig` by which they are chosen.

    Args:
        sweep: with the points that earlier drivers chose.
        at_once: trials that the cluster holds at once.
        concurrent: trials that the user allows at once.
    """
    plan = sweep.planned.plan
    if plan.search != "optuna":
        return tune.grid_search(sweep.configs()), {"max_concurrent_trials": concurrent}
    asked = [point.values for point in sweep.points]
    chooses = OptunaSearch(sweep.planned, JUDGED, asked=asked, choose=sweep.choose)
    return None, {
        "search_alg": Repeater(chooses, repeat=plan.repeats),
        "num_samples": plan.count * plan.repeats,
        "max_concurrent_trials": max(1, at_once),  # none is chosen ahead of the results
    }


class _RayGone(BaseException):
    """Ends Tune's loop without its clean-up, which would ask Ray and never be answered: no `Exception`, after which
    there is one."""


@dataclass(frozen=True, kw_only=True)
class SweepSettings(TrialSettings):
    """Settings of a sweep's trials."""

    allow_unequal_budget: bool = True
    """The plan has checked it."""
    sweep: str
    """The name of the sweep."""
    metric: Metric
    """The metric that decides between points."""


class SweepTrial(ChainTrainable):
    """A trial of a sweep. A chain that ended repeats the reports in the sweep's folder: each experiment has a new
    scheduler.

    A chain that fails says so in its last result: Tune would retry a trial that raises, to the same end.
    """

    settings: ClassVar[SweepSettings]

    def step(self) -> dict[str, Any]:
        """Return the next report, or why there will be none."""
        try:
            report = super().step()
        except (StorageRefused, ChainsFailed) as error:
            why = REFUSED if isinstance(error, StorageRefused) else GIVEN_UP
            return {why: str(error), JUDGED: WORST, "done": True}
        metric = self.settings.metric
        value = report[metric.name] * (1 if metric.better == "lower" else -1)
        return {**report, JUDGED: value if math.isfinite(value) else WORST}

    def _run(self, known: int) -> Reports:
        """See `ChainTrainable`."""
        digest = self._chain.spec.digest
        folder = SweepStore(Storage(self._options.store).retrying(lambda reason: True), self.settings.sweep)
        reports = folder.reports(digest, self.settings.metric.name)
        if state_of(reports, folder.stopped_at(digest), self._chain.reporter.length) != WAITING:
            for report in reports:
                yield {**result_of(report), "digest": digest, "done": report is reports[-1]}
        else:
            yield from super()._run(known)


@dataclass
class TrialWait(ResourceWait):
    """Says why no trial runs, where Tune waits without a word."""

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


def _guarded(call: Callable[..., None]) -> Callable[..., None]:
    """Stop the sweep where the store or Ray fails in one of Tune's callbacks: Tune would wrap the error in its own."""

    @functools.wraps(call)
    def guarded(self: SweepCallback, *args: Any, **info: Any) -> None:
        try:
            call(self, *args, **info)
        except StorageRefused as error:
            self.stopper.fatal = error
        except StorageAway as error:
            if not self.stopper.stop_all():  # else the user did not want to wait for the store
                self.stopper.fatal = error
        except RayLost:
            raise _RayGone from None

    return guarded


class InterruptStopper(Unpickled, tune.Stopper):
    """Ends the whole experiment for Ctrl-C, another driver, or an error; each chain then writes a checkpoint.

    Args:
        lease: this driver's among those of the store.
        callback: is told of it.
    """

    def __init__(self, lease: Lease, callback: events.Callback) -> None:
        self.interrupt = Interrupt()
        self.fatal: RaychainsError | None = None
        self._lease, self._callback, self._told = lease, callback, False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False: the scheduler alone ends single trials."""
        return False

    def stop_all(self) -> bool:
        """Return whether the sweep ends now, and announce it once."""
        interrupted = bool(self.interrupt.asked or self._lease.lost or self.fatal)
        if interrupted and not self._told:
            self._told = True
            refused = isinstance(self.fatal, StorageRefused)
            self._callback.on(events.Stopping(reason="the store takes no more files" if refused else ""))
        return interrupted


@dataclass(eq=False)
class _Chain:
    """A sweep's record of a chain."""

    digest: str
    reports: list[dict[str, Any]]
    """All of its reports, earlier drivers' too."""
    stopped_at: Mapping[str, Any] | None
    """Where the scheduler stopped it."""
    of: list[tuple[Point, int]] = field(default_factory=list)
    """Points and repeats that need it."""
    failed: str | None = None
    """Why it was given up now."""

    @property
    def state(self) -> str:
        """Return its state, as `state_of` tells it."""
        return state_of(self.reports, self.stopped_at, self.of[0][0].length, self.failed)


@dataclass(eq=False)
class SweepCallback(Unpickled, tune.Callback):
    """Stores trials' reports in the sweep's folder, and sends the sweep's events to ``callback``."""

    planned: Planned
    folder: SweepStore
    callback: events.Callback
    stopper: InterruptStopper
    wait: TrialWait
    points: list[Point] = field(default_factory=list)
    """All points so far."""
    _chains: dict[str, _Chain] = field(default_factory=dict)
    """By digest."""
    _of_config: dict[str, _Chain] = field(default_factory=dict)
    """By trial's config."""
    _failures: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By trial those that Tune counts, and how many of them were stalls."""
    _waiting: bool = False
    _ticked: float = 0.0

    def __post_init__(self) -> None:
        self._plan, self._stopped = self.planned.plan, self.folder.stopped()

    @property
    def failed(self) -> dict[str, str]:
        """Return the chains that were given up, by digest, and why."""
        return {chain.digest: chain.failed for chain in self._chains.values() if chain.failed is not None}

    # Points

    @property
    def complete(self) -> bool:
        """Return whether there are neither chains to run nor points to choose."""
        return len(self.points) == self._plan.count and all(chain.state != WAITING for chain in self._chains.values())

    def configs(self) -> list[dict[str, Any]]:
        """Return a trial's config for each chain: chains that ended first, which only a scheduler needs, then first
        repeats."""
        wanted = [chain for chain in self._chains.values() if chain.state == WAITING or self._plan.asha is not None]
        wanted.sort(key=lambda chain: (chain.state == WAITING, chain.of[0][1]))
        return [{**point.values, REPEAT: repeat} for chain in wanted for point, repeat in chain.of[:1]]

    def add(self, points: Sequence[Point]) -> None:
        """Add points, and announce those whose chains ended."""
        self.points += points
        for point in points:
            for repeat, spec in enumerate(point.specs):
                if (chain := self._chains.get(spec.digest)) is None:
                    reports = self.folder.reports(spec.digest, self._plan.metric.name)
                    chain = self._chains[spec.digest] = _Chain(spec.digest, reports, self._stopped.get(spec.digest))
                chain.of.append((point, repeat))
                self._of_config[_key(point.values, repeat)] = chain
                if chain.state == FINISHED:
                    self._judged(chain, point, repeat)

    def choose(self, values: Values, *, new: bool = True) -> None:
        """Add a point of the search; a ``new`` one is durable before it runs.

        Raises:
            UserError: its values do not fit together.
        """
        point = self.planned.points.make(len(self.points), values)
        if new:
            self.folder.publish_asked(point.number, point.values)
        self.callback.on(events.PointChosen(point=point))
        self.add([point])

    # Tune's callbacks

    @_guarded
    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Store a report, and whether the scheduler stopped the chain: Tune has asked it already."""
        chain = self._chain(trial)
        if REFUSED in result:
            raise StorageRefused(result[REFUSED])
        if chain.state != WAITING:  # it reports again
            return
        if GIVEN_UP in result:
            chain.failed = result[GIVEN_UP]
        else:
            report = report_of(self._plan, result)
            gradients, metrics = report["gradients"], report["metrics"]
            self.callback.on(events.ChainReported(digest=chain.digest, gradients=gradients, metrics=metrics))
            if all(known["cycle"] != report["cycle"] for known in chain.reports):
                self.folder.publish_report(chain.digest, report)
                chain.reports.append(report)
            if result["done"] and chain.state == WAITING:
                # A chain that goes on from an earlier driver's checkpoint may be stopped by a report before its last
                # one.
                chain.stopped_at = {key: chain.reports[-1][key] for key in ("epoch", "cycle")}
                self.folder.publish_stopped_at(chain.digest, chain.stopped_at)
        if result["done"]:
            self._announce_end(chain)

    @_guarded
    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `ray.tune.Callback`."""
        digest, trial_id = self._chain(trial).digest, trial.trial_id
        slot = len(self._running(trials[: trials.index(trial)]))
        lost, stall = ray_watch.ask(lambda: losses(trial_id))
        failures, stalls = self._failures.get(trial_id, (0, 0))
        self._failures[trial_id] = trial.num_failures, lost["stalls"]
        if trial.num_failures > failures:
            reason = stall if lost["stalls"] > stalls else "its process died"
            self.callback.on(events.WorkerLost(slot=slot, reason=reason, digest=digest))
        else:  # Tune counts all deaths but those with a node whose end was announced
            self.callback.on(events.Preempted(slot=slot, digest=digest))

    @_guarded
    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `ray.tune.Callback`."""
        chain = self._chain(trial)
        if chain.state != WAITING or self.stopper.stop_all():
            return
        error = trial.get_pickled_error() or RuntimeError(trial.get_error())
        often = f"its process died more often than max_failures ({trial.max_failures}) allows"
        chain.failed = often if isinstance(error, RayActorError) else trial_error(error)
        self._announce_end(chain)

    @_guarded
    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Announce the sweep's progress."""
        ray_watch.check()
        if time.monotonic() - self._ticked < TICK_EVERY:
            return
        self._ticked, running = time.monotonic(), self._running(trials)
        try:
            waiting = self.wait.check(waiting=1, running=bool(running))
        except UserError as error:
            self.stopper.fatal, waiting = error, None
        if bool(waiting) != self._waiting:
            self._waiting = bool(waiting)
            self.callback.on(events.Waiting(reason=waiting) if waiting else events.Resumed())
        self.callback.on(self._tick(running))

    # Events

    def _chain(self, trial: Any) -> _Chain:
        return self._of_config[_key(*values_and_repeat(trial.config))]

    def _running(self, trials: list[Any]) -> list[_Chain]:
        """Return the chains of trials that run, without those that only report again."""
        chains = dict.fromkeys(self._chain(trial) for trial in trials if trial.status == Trial.RUNNING)
        return [chain for chain in chains if chain.state == WAITING]

    def _announce_end(self, chain: _Chain) -> None:
        reason = self._plan.reason(chain.of[0][0], chain.state, chain.stopped_at, chain.failed)
        if chain.state == FAILED:
            self.callback.on(events.ChainFailed(digest=chain.digest, reason=reason))
        elif chain.state == STOPPED:
            self.callback.on(events.ChainStopped(digest=chain.digest, reason=reason))
        else:
            self.callback.on(events.ChainFinished(digest=chain.digest, seconds=self._seconds(chain)))
            for point, repeat in chain.of:
                self._judged(chain, point, repeat)

    def _judged(self, chain: _Chain, point: Point, repeat: int) -> None:
        """Announce the metrics of a point's chain that ran to its end."""
        metrics, seconds = chain.reports[-1]["metrics"], self._seconds(chain)
        self.callback.on(events.ViewDone(arm=point.name, group=repeat, metrics=[metrics], chain_seconds=seconds))

    def _seconds(self, chain: _Chain) -> float:
        return ChainStore(self.folder.root, chain.digest).seconds()

    def _tick(self, running: Sequence[_Chain]) -> events.Tick:
        plan, chains = self._plan, self._chains.values()
        last = [chain.reports[-1] for chain in chains if chain.reports]
        return events.Tick(
            running=[self._status(slot, chain) for slot, chain in enumerate(running)],
            finished=sum(len(chain.of) for chain in chains if chain.state in (FINISHED, STOPPED)),
            chains=plan.count * plan.repeats,
            evaluated=0,
            to_evaluate=0,
            remaining_seconds=None,
            failed=sum(len(chain.of) for chain in chains if chain.failed is not None),
            slots=len(running),
            samples=sum(report["samples"] for report in last),
            gradients=sum(report["gradients"] for report in last),
            to_spend=plan.gradients * plan.count * plan.repeats,
        )

    def _status(self, slot: int, chain: _Chain) -> events.ChainStatus:
        [(point, repeat), *_] = chain.of
        spec, report = point.specs[repeat], chain.reports[-1] if chain.reports else None
        return events.ChainStatus(
            digest=chain.digest,
            slot=slot,
            step=round(spec.steps * report["epoch"] / self._plan.length) if report else 0,
            steps=spec.steps,
            cycle=min(report["cycle"] + 1, spec.schedule.settings.get("cycles", 1) - 1) if report else 0,
            stage="",
            loss=None,
            seconds=0.0,
            samples=report["samples"] if report else 0,
            gradients=report["gradients"] if report else 0,
        )


def _key(values: Values, repeat: int) -> str:
    return json.dumps([values, repeat], sort_keys=True, default=str)


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
