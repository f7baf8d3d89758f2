"""The task that options name, made by its settings among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from raychains import tasks
from raychains.core import settings_parser
from raychains.core.config import Run, Sampling
from raychains.core.errors import UserError, require
from raychains.tasks.base import Task

SPLIT = "val"
"""The split that decides between settings."""
VAL_SPLIT = 0.1
"""Share of the training examples that is held out where the user says nothing."""
R = TypeVar("R", bound=Run)


def make_task(options: Sampling, task: str, given_task: Task | None = None) -> Task:
    """Make the task of a name, or take the one passed as an object.

    Raises:
        UserError: an unknown task or setting, or a value that it refuses.
    """
    if given_task is not None:
        for field in ("task_settings", "train_subset"):
            value = getattr(options, field)
            require(not value, field, value, "be left out beside a task that is given as an object: make it with them")
        made = given_task if options.val_split is None else given_task.holding_out(options.val_split)
        return given_task if made is given_task else tasks.give(made)  # evaluators find it by its spec
    kind = tasks.kind_of(task)
    # A user's function need not have the argument: the task that it makes is divided.
    divided = task not in tasks.NAMES and not tasks.takes(kind, "val_split")
    own = {"train_subset": options.train_subset, **({} if divided else {"val_split": options.val_split})}
    found = _settings(task, kind, options.task_settings, **own)
    held = {"val_split": options.val_split} if divided and options.val_split else {}
    return tasks.make_by(kind, task, {**found, **held})


def _settings(task: str, kind: Callable[..., Any], given: Iterable[str], **options: Any) -> dict[str, Any]:
    """Return the settings of a task, given as NAME=VALUE or as ``options`` that some tasks have; those of None are left
    out.

    Raises:
        UserError: the task has no such setting, or one is given twice.
    """
    found = settings_parser.values("task_settings", given)
    for option, value in options.items():
        if value is None:
            continue
        if option not in settings_parser.names_of(kind):
            raise UserError(f"{option} must be left out for task {task}, got {value!r}: it has no such setting")
        if option in found:
            raise UserError(f"{option} must be given once, got {value!r} and {option}={found[option]!r}")
        found[option] = value
    settings_parser.check_known("task_settings", given, [kind])
    return settings_parser.pick(found, kind)


def with_validation(options: R, given: Task | None) -> tuple[Task, R, list[str]]:
    """Return the task with its split val, the options that make it, and notes for the user.

    Raises:
        UserError: the task has no such split and nothing that can be held out.
    """
    task, notes = make_task(options, options.task, given), []
    held_out = "have data of which a part can be held out as the split val: a density has none"
    require(not task.low_dimensional, "task", options.task, held_out)
    needs = f"task must have a split val, which a sweep decides on, got {options.task}"
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
