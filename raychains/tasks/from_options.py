"""Makes the task that options name, with its settings among the options."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from raychains import tasks
from raychains.core import settings_parser
from raychains.core.config import Run, Sampling
from raychains.core.errors import UserError, require, unknown_name
from raychains.evaluation.evaluation import Metric
from raychains.tasks.base import Task

SPLIT = "val"
"""The split that decides between settings."""
VAL_SPLIT = 0.1
"""Share of the training examples that is held out where the user says nothing."""
R = TypeVar("R", bound=Run)


def make_task(options: Sampling, task: str, given_task: Task | None = None) -> Task:
    """Make the task of a name, or take the one passed as an object.

    Raises:
        UserError: an unknown task, a setting that it does not have or that is given twice, or a value that it refuses.
    """
    if given_task is not None:
        for field in ("task_settings", "train_subset"):
            value = getattr(options, field)
            require(not value, field, value, "be left out beside a task that is given as an object: make it with them")
        made = given_task if options.val_split is None else given_task.holding_out(options.val_split)
        return given_task if made is given_task else tasks.give(made)  # evaluators find it by its spec
    kind = tasks.kind_of(task)
    known, found = settings_parser.names_of(kind), settings_parser.values(options.task_settings)
    own = {name: value for name in ("train_subset", "val_split") if (value := getattr(options, name)) is not None}
    settings = {name: settings_parser.as_float(kind, name, value) for name, value in {**found, **own}.items()}
    settings_parser.check_known("task_settings", options.task_settings, [kind])
    # The task that a user's function makes is divided, where the function does not do that itself.
    if task not in tasks.NAMES and not tasks.takes(kind, "val_split"):
        known.append("val_split")
    for name, value in own.items():
        if name not in known:
            raise UserError(f"{name} must be left out for task {task}, got {value!r}: it has no such setting")
        if name in found:
            raise UserError(f"{name} must be given once, got {value!r} and {name}={found[name]!r}")
    return tasks.make_by(kind, task, settings)


def with_validation(options: R, given: Task | None) -> tuple[Task, R, list[str]]:
    """Return the task with its split val, the options that make it, and notes for the user.

    Raises:
        UserError: the task has no such split and nothing that can be held out.
    """
    task, notes = make_task(options, options.task, given), []
    needs = f"task must have a split val, which a sweep decides on, got {options.task}"
    if task.low_dimensional:
        raise UserError(f"{needs}: a density has no data of which a part could be held out")
    if SPLIT not in task.splits() and options.val_split is None:
        options = dataclasses.replace(options, val_split=VAL_SPLIT)
        try:
            task = make_task(options, options.task, given)
        except UserError as error:
            raise UserError(f"{needs}, which has none: {error}") from None
        notes = [f"val_split {VAL_SPLIT:g}: that share of the training examples is held out, and decides"]
    if SPLIT not in task.splits():
        raise UserError(f"{needs}: give `val_split=.1`")
    return task, options, notes


def deciding_metric(task: Task, name: str) -> Metric:
    """Return the metric of the split val by which settings are compared.

    Raises:
        UserError: an unknown metric, or one of which no value is the best.
    """
    known = {metric.name: metric for metric in task.splits()[SPLIT].metrics}
    if name not in known:
        raise unknown_name("metric", name, known)
    better = known[name].better
    require(
        better != "neither", "metric", name, "be one of which less or more is better: no value of this one is the best"
    )
    return known[name]
