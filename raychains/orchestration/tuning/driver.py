"""A sweep's driver: Ray Tune runs the chains, the store remembers, listeners hear what happens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ray import tune
from ray.exceptions import RayActorError
from ray.tune.execution.placement_groups import PlacementGroupFactory

from raychains import execution, tasks
from raychains.errors import StorageFull, UserError, said
from raychains.orchestration.cluster import ACCELERATOR
from raychains.orchestration.interrupt import Interrupt
from raychains.orchestration.lease import Lease
from raychains.orchestration.luggage import pack
from raychains.orchestration.names import Names
from raychains.orchestration.placement import Placement
from raychains.orchestration.session import Slots
from raychains.orchestration.tuning.quiet import Unkept, quiet
from raychains.orchestration.tuning.room import Room
from raychains.orchestration.tuning.scheduler import Halving
from raychains.orchestration.tuning.search import Asked, Chain, Search
from raychains.orchestration.tuning.trial import Setting, Trial
from raychains.planning import sweeping as told
from raychains.planning.space import Range
from raychains.planning.sweeping import Point, SweepPlan, Values
from raychains.store import Root, SweepStore

PENDING = 100
"""Trials that wait for room at once, at most: an autoscaler sees what is wanted."""
TICK_EVERY = 0.5
"""Seconds between ticks."""


@dataclass(frozen=True)
class SweepOutcome:
    """What a driver leaves besides the reports, which are in the store."""

    points: tuple[Point, ...]
    failed: Mapping[str, str]
    """Chains that were given up now, and why."""
    stopped: bool
    """Whether the person, or another driver, stopped the sweep."""


class SweepDriver:
    """Runs the chains of a sweep that have not ended. Ray must be connected.

    Args:
        plan: what to compute.
        make: a point of values, by number, for points that are chosen while the sweep runs.
        space: the ranges that they are chosen from.
        root: the store.
        folder: the sweep's.
        placement: slots and cadence.
        listener: told what happens.
        lease: this driver's among the store's.
    """

    def __init__(
        self,
        plan: SweepPlan,
        *,
        make: Callable[[int, Values], Point],
        space: Mapping[str, Range],
        root: Root,
        folder: SweepStore,
        placement: Placement,
        listener: Any,
        lease: Lease,
    ) -> None:
        self._plan, self._listener, self._lease = plan, listener, lease
        self._asked_to_stop: Callable[[], bool] = lambda: False
        self._folder = SweepStore(root.waiting(lambda reason: not self._asked_to_stop()), folder.name)
        self._slots = replace(placement, evaluate=False).slots()
        for point in plan.points:
            for spec in point.specs:
                execution.check(spec, gpu=self._slots.gpus > 0)
        self._stops = set(folder.stops())
        self._reports: dict[str, list[dict[str, Any]]] = {}
        self._failed: dict[str, str] = {}
        self._over: set[str] = set()
        """Chains that ended in this session, whatever their end."""
        self._now: dict[str, dict[str, Any]] = {}
        self._full: str | None = None
        self._ticked = 0.0
        self._room = Room(self._slots, placement.slot_timeout)
        self._title = Names(folder.name).titled(Trial)
        self._max_failures = placement.max_failures
        if plan.search == "optuna":
            most = max(1, self._slots.at_once(plan.count))  # not chosen ahead of the results
            self._search: Search = Asked(
                self._ended, most, plan=plan, space=space, make=make, asked=folder.asked(), note=folder.publish_asked,
                score=self._score,
            )  # fmt: skip
        else:
            self._search = Search(self._ended, placement.concurrent)
            self._search.queue(plan.points)
        self._setting = Setting(
            store=root.uri, sweep=folder.name, driver_id=lease.driver_id, driver=f"{socket.gethostname()}:{os.getpid()}",
            split=plan.split, checkpoint_every=placement.checkpoint_every, data_root=placement.data_root, bins=placement.bins,
            gpus=self._slots.gpus, hold=plan.asha is not None, luggage=pack(tasks.build(plan.task_spec)),
            restarts=placement.max_failures if placement.on_divergence == "restart-cycle" else 0,
        )  # fmt: skip

    def run(self) -> SweepOutcome:
        """Until every chain ended, or somebody stopped the sweep.

        Raises:
            StorageFull: the store has no room left.
            UserError: the cluster had no room for a chain for too long.
        """
        self._listener.on(told.SweepReady(slots=self._slots.count, slot=self._slots.describe()))
        trial = tune.with_parameters(self._title, setting=self._setting)
        trainable = tune.with_resources(trial, PlacementGroupFactory([_bundle(self._slots)]))
        chains = self._plan.count * self._plan.repeats
        pending = max(1, min(self._slots.at_once(chains), PENDING))
        with Interrupt() as interrupt, quiet(pending) as folder:
            self._asked_to_stop = lambda: bool(interrupt.asked or self._lease.lost or self._full or self._room.over)
            tune.Tuner(
                trainable,
                tune_config=tune.TuneConfig(
                    search_alg=self._search, scheduler=self._scheduler(), num_samples=-1, reuse_actors=True,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                ),
                run_config=tune.RunConfig(
                    name="sweep", storage_path=folder, verbose=0, callbacks=[_Heard(self)], stop=_Until(self),
                    # Tune's own retry: it calls a new process's trial from its beginning, which finds samples,
                    # checkpoint and reports in the store and goes on behind them. It counts deaths in all, not in a row;
                    # a mistake or a divergence is no exception of the trial's and is not tried again.
                    failure_config=tune.FailureConfig(max_failures=self._max_failures),
                ),
            ).fit()  # fmt: skip
            stopped = self._asked_to_stop()
        if self._full is not None:
            raise StorageFull(self._full)
        if self._room.over is not None:
            raise UserError(
                f"{self._room.over}. Nothing is lost: the same command with --resume goes on when there is room; --slot-timeout "
                "says how long to wait"
            )
        points = self._search.points if isinstance(self._search, Asked) else self._plan.points
        return SweepOutcome(tuple(points), self._failed, stopped)

    def _scheduler(self) -> Any:
        if self._plan.asha is None:
            return None
        known = {digest: self._known(digest) for digest in self._search.chains}
        return Halving(
            self._plan.asha, metric=self._plan.metric.name, mode="min" if self._plan.metric.better == "lower" else "max",
            length=self._plan.length, before={d: r for d, r in known.items() if r and self._ended(d)}, stopped=self._stop,
        )  # fmt: skip

    # What is known of a chain

    def _known(self, digest: str) -> list[dict[str, Any]]:
        if digest not in self._reports:
            self._reports[digest] = self._folder.reports(digest)
        return self._reports[digest]

    def _ended(self, digest: str) -> bool:
        """Whether a chain needs no trial any more: reported to its end, stopped, or given up now."""
        if digest in self._stops or digest in self._over:
            return True
        reports = self._known(digest)
        return bool(reports) and reports[-1]["epoch"] >= self._plan.length

    def _score(self, digest: str) -> tuple[float, bool] | None:
        reports = self._known(digest)
        if digest in self._failed or not reports:
            return None
        return reports[-1]["metrics"][self._plan.metric.name], digest not in self._stops

    def _stop(self, digest: str, report: Mapping[str, Any]) -> None:
        """The scheduler's decision, durable before it is carried out."""
        self._folder.publish_stop(digest, report)
        self._lease.give_up(digest)  # other drivers that want it need not wait for this one
        self._stops.add(digest)

    # What Tune tells

    def heard(self, digest: str, result: Mapping[str, Any]) -> None:
        """A trial told something."""
        now = self._now.setdefault(digest, {})
        if result["kind"] == "report":
            report = dict(result["report"])
            kept = [r for r in self._known(digest) if r["cycle"] < report["cycle"]]
            self._reports[digest] = [*kept, report]
            now.update(step=report["step"], cycle=report["cycle"])
        elif result["kind"] == "tick":
            now.update({k: v for k, v in result.items() if k in ("step", "cycle", "loss", "waiting")})
        elif result["status"] == "failed":
            self._failed[digest] = result["reason"]
            self._lease.give_up(digest)
        elif result["status"] == "full":
            self._full = result["reason"]

    def ended(self, digest: str, error: BaseException | None) -> None:
        """A trial is over."""
        self._now.pop(digest, None)
        if self._asked_to_stop():
            return
        self._over.add(digest)
        if error is not None:
            self._lease.give_up(digest)
            died = isinstance(error, RayActorError)
            often = f"its process died more often than max_failures ({self._max_failures}) allows"
            self._failed[digest] = often if died else said(getattr(error, "cause", None) or error)
        status: told.Status = "failed" if digest in self._failed else "stopped" if digest in self._stops else "finished"
        last = self._known(digest)[-1] if self._known(digest) else None
        for point, repeat in self._search.chains[digest]:
            reason = self._failed.get(digest, "")
            self._listener.on(told.TrialEnded(point=point, repeat=repeat, status=status, reason=reason, report=last))

    def goes_on(self, digest: str, failures: int) -> None:
        """A trial's process died, and Tune starts another."""
        [(point, repeat), *_] = self._search.chains[digest]
        self._listener.on(told.TrialGoesOn(point=point, repeat=repeat, failures=failures))

    def tick(self) -> None:
        """Now and then, whatever happens."""
        now = time.monotonic()
        if now - self._ticked < TICK_EVERY:
            return
        self._ticked = now
        waiting = self._room.look(running=bool(self._now))
        running = [self._of(digest, at) for digest, at in self._now.items()]
        total = self._plan.count * self._plan.repeats
        ended = sum(len(chains) for digest, chains in self._search.chains.items() if self._ended(digest))
        self._listener.on(told.SweepTick(running=running, ended=ended, total=total, best=self._best(), waiting=waiting))

    def stopping(self) -> bool:
        """Whether the sweep is to stop now."""
        return self._asked_to_stop()

    def told_to_stop(self) -> None:
        """Once, before trials are stopped."""
        self._listener.on(told.SweepStopping(reason="the store has no room left" if self._full else ""))

    def _of(self, digest: str, at: Mapping[str, Any]) -> told.TrialNow:
        [(point, repeat), *_] = self._search.chains[digest]
        reports = self._known(digest)
        spec = point.specs[repeat]
        return told.TrialNow(
            point=point, repeat=repeat, step=at.get("step") or 0, steps=spec.steps, cycle=at.get("cycle") or 0,
            cycles=spec.schedule.settings.get("cycles", 1), loss=at.get("loss"), waiting=at.get("waiting"),
            value=reports[-1]["metrics"][self._plan.metric.name] if reports else None,
        )  # fmt: skip

    def _best(self) -> tuple[Point, float] | None:
        """The best chain so far, of those that reported their end."""
        found: list[tuple[Chain, float]] = []
        for digest, chains in self._search.chains.items():
            score = self._score(digest) if self._ended(digest) and digest not in self._stops else None
            if score is not None:
                found.append((chains[0], score[0]))
        if not found:
            return None
        sign = 1 if self._plan.metric.better == "lower" else -1
        (point, _), value = min(found, key=lambda item: sign * item[1])
        return point, value


def _bundle(slots: Slots) -> dict[str, float]:
    """What Ray reserves for one chain."""
    found = {"CPU": slots.cpus}
    if slots.gpus:
        found["GPU"] = slots.gpus
        if slots.accelerator_type is not None:
            found[f"{ACCELERATOR}{slots.accelerator_type}"] = 0.001  # as Ray itself asks for a type
    return found


class _Heard(Unkept, tune.Callback):
    """Tune's events, handed on."""

    def __init__(self, driver: SweepDriver) -> None:
        self._driver = driver

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._driver.tick()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._driver.heard(trial.config["digest"], {"kind": "tick"})

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._driver.heard(trial.config["digest"], result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._driver.ended(trial.config["digest"], None)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._driver.goes_on(trial.config["digest"], trial.num_failures)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._driver.ended(trial.config["digest"], trial.get_pickled_error() or RuntimeError(trial.get_error()))


class _Until(Unkept, tune.Stopper):
    """Ends all trials once the sweep is to stop: each writes a checkpoint."""

    def __init__(self, driver: SweepDriver) -> None:
        self._driver, self._said = driver, False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        stop = self._driver.stopping()
        if stop and not self._said:
            self._said = True
            self._driver.told_to_stop()
        return stop
