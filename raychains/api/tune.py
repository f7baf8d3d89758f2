"""`rc.tune`: chains as trials of Ray Tune."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from raychains.api.drivers import portable
from raychains.api.keywords import task_of
from raychains.chain import proof
from raychains.core.config import Run
from raychains.core.data_root import rooted
from raychains.core.errors import UserError, require, shown, trial_error
from raychains.core.options import make
from raychains.core.validation import positive_int
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.planning.reports import REPORTS
from raychains.planning.sweep_points import DEFAULT_GRID, Points, of_trials
from raychains.store import Storage, SweepStore, initial_states
from raychains.tasks.from_options import deciding_metric, make_task, with_validation

if TYPE_CHECKING:
    from raychains.api.sweep import SweepResult
    from raychains.orchestration.tune.tune_trainable import ChainTrainable
    from raychains.tasks import Task

__all__ = ["report", "search_space", "trainable"]

TUNES = {
    "name": "tune.RunConfig(name=…)",
    "resume": "tune.Tuner.restore",
    "address": "ray.init",
    "namespace": "ray.init",
    "object_store_memory": "ray.init",
    "concurrent": "tune.TuneConfig(max_concurrent_trials=…)",
    "callback": "tune.RunConfig(callbacks=…)",
    "log": "tune.RunConfig(callbacks=…)",
    "tensorboard": "tune.RunConfig(storage_path=…)",
    "chains": "an entry 'repeat' of the config",
    "repeats": "an entry 'repeat' of the config",
    "lanes": "an entry 'repeat' of the config",
    "slot_timeout": "rc.sweep, whose driver waits for room",
    "evaluators": "gpus_per_chain: each trial evaluates its own samples",
    "gpus_per_evaluator": "gpus_per_chain: each trial evaluates its own samples",
    "keep_predictions": "rc.evaluate",
}
"""Options of `Run` that are Ray's or Tune's own here, and where they are given."""


def trainable(
    *,
    task: str | Task,
    epochs: int,
    store: str = "runs",
    reports: int = REPORTS,
    allow_unequal_budget: bool = False,
    **options: Any,
) -> type[ChainTrainable]:
    """Return a trainable class of Ray Tune, each of whose trials is one chain.

    The config of a trial may hold any option of a chain that `raychains.run` takes (``sampler``, ``exploration``,
    ``cycles``, ``lr``, ``temperature``, further settings of samplers and schedules, …), and ``repeat``, the number of a
    repetition, from 0. After every cycle a trial reports the metrics (``nll``, ``error``, ``ece``, …) of the ensemble
    of its samples so far on the split val, ``epoch``, ``cycle``, ``samples``, ``gradient_evaluations`` and ``digest``.
    The test split is never read.

    Args:
        task: a task's name, its import path, or a `raychains.Task`. Without a split val, a tenth of its training data
            is held out (``val_split`` says how much).
        epochs: the length of every chain.
        store: the run store. A chain that it holds is only evaluated.
        reports: how often a chain whose schedule has no cycles reports.
        allow_unequal_budget: whether trials may cost other gradient evaluations than ``epochs`` say.
        options: options of `raychains.run` that all trials share, among them ``cpus_per_chain``, ``gpus_per_chain`` and
            ``workers_per_chain``.

    Example: ``tune.Tuner(rc.tune.trainable(task="digits", epochs=80), param_space=rc.tune.search_space("digits", 80))``

    Raises:
        UserError: an option that is unknown, out of range or Tune's own; a task that no data can be held out of.
    """
    from raychains.orchestration.cluster import payload
    from raychains.orchestration.tune.tune_trainable import ChainTrainable, TrialSettings

    positive_int("reports", reports)
    given, made = _options(task=task, epochs=epochs, store=store, **options)
    ResourceConfig.of(made)
    if given is not None:
        payload.check(given)
    with rooted(made.data_root):
        points, made, notes = _points(made, given)
        point = points.make(0, {})  # what is wrong is said here, not in every trial
        proof.prove(point.specs[0], points.start).warn()
    settings = TrialSettings(
        options=portable(made, points.start),
        user_code=payload.for_trials(given),
        reports=reports,
        allow_unequal_budget=allow_unequal_budget,
        notes=notes,
    )
    return ChainTrainable.of(settings)


def search_space(task: str | Task, epochs: int, **options: Any) -> dict[str, Any]:
    """Return the grid of cSG-MCMC: β (``exploration``) 0, .25, .5, .75 × M (``cycles``) 2, 4, 8, as domains of Tune.

    Args:
        task: as for `trainable`.
        epochs: the length of every chain: values of M that leave no room for a sample in a cycle are left out.
        options: as for `trainable`.

    Raises:
        UserError: no M fits; or as `trainable`.
    """
    given, made = _options(task=task, epochs=epochs, **options)
    grid, fitting, why = DEFAULT_GRID, [], ""
    with rooted(made.data_root):
        points, _, _ = _points(made, given)
        for cycles in grid["cycles"]:
            try:  # the largest share leaves the least room for samples
                points.make(0, {"exploration": max(grid["exploration"]), "cycles": cycles})
                fitting.append(cycles)
            except UserError as error:
                why = str(error)
    require(bool(fitting), "epochs", epochs, f"leave room for two cycles: {why}")
    # as tune.grid_search says it, without importing Ray
    return {"exploration": {"grid_search": list(grid["exploration"])}, "cycles": {"grid_search": fitting}}


def _options(**given: Any) -> tuple[Task | None, Run]:
    """Return the task where it is an object, and the options of a trainable."""
    for name, instead in TUNES.items():
        if name in given:
            raise UserError(f"{name} must be left out of a trainable, got {shown(given[name])}: use {instead}")
    return task_of(make(Run, given))


def _points(options: Run, given: Task | None) -> tuple[Points, Run, list[str]]:
    """Return what makes the points of the options, the options with the split val, and notes for the user."""
    built, options, notes = with_validation(options, given)
    return Points(options, built), options, notes


def report(
    results: Any, trainable: type[ChainTrainable], *, metric: str = "nll", name: str | None = None
) -> SweepResult:
    """Write the tables and the page of an experiment, those of `raychains.sweep`, to STORE/sweeps/NAME.

    Trials that never reported are left out.

    Args:
        results: the ``ResultGrid`` of ``tune.Tuner(trainable, …).fit()``. Its trials' progress is read from Tune's CSV
            or JSON logs.
        trainable: the class that the trials are of, which says what they share.
        metric: the metric that decides between points.
        name: NAME, default the experiment's.

    Example: ``rc.tune.report(tuner.fit(), trainable).report``

    Raises:
        UserError: no trial reported anything, or a name that another sweep has.
    """
    from raychains.api.sweep import publish
    from raychains.inference import sweep_results
    from raychains.orchestration.tune.tune_trainable import FIXED, values_and_repeat

    settings = getattr(trainable, "settings", None)
    if settings is None:
        raise UserError(f"trainable must be a class that rc.tune.trainable returned, got {shown(trainable)}")
    reported, notes = _reported(results)
    options = initial_states.with_file(settings.options)
    root = Storage(options.store)
    with rooted(options.data_root):
        task = make_task(options, options.task, settings.user_code.task)
        trials = [values_and_repeat(result.config) for result in reported]
        notes = [*settings.notes, *notes]
        planned, points = of_trials(options, task, trials, deciding_metric(task, metric), FIXED, notes)
    plan, folder = planned.plan, SweepStore(root, name or os.path.basename(results.experiment_path))
    if folder.exists() and folder.plan().get("search") != plan.search:
        raise UserError(
            f"name must be that of an experiment or a new one, got {folder.name!r}: it is a sweep of raychains"
        )
    folder.write_plan(plan.to_json())
    failed = {}
    for result, (_, repeat), point in zip(reported, trials, points, strict=True):
        digest, rows = point.specs[repeat].digest, result.metrics_dataframe.to_dict("records")
        if result.error is not None:
            failed[digest] = trial_error(result.error)
        sweep_results.publish_trial(folder, plan, point, digest, rows, failed=digest in failed)
    sweep_results.write(folder, planned, plan.points, failed)
    return publish(folder, failed)


def _reported(results: Any) -> tuple[list[Any], list[str]]:
    """Return the trials that reported, and a note on the others.

    Raises:
        UserError: there are none, or Tune kept no logs of them.
    """
    # Of a trial that reported nothing Tune does not even keep the config.
    reported = [result for result in results if "digest" in (result.metrics or {})]
    if not reported or any(result.metrics_dataframe is None for result in reported):
        raise UserError("results must hold trials that reported: none did, or Tune's CSV and JSON loggers are off")
    missing = len(results) - len(reported)
    if not missing:
        return reported, []
    errors = [result.error for result in results if result.error is not None and "digest" not in (result.metrics or {})]
    note = f"{missing} of {len(results)} trials ended without a report and are left out"
    return reported, ["; the first: ".join([note, *map(trial_error, errors[:1])])]
