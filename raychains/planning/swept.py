"""Options that differ from chain to chain, as in a sweep: their names, their values, and the split that judges them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from raychains import samplers, schedules
from raychains.core.config import Common, Run
from raychains.core.errors import UserError, require, unknown_name
from raychains.core.validation import is_number
from raychains.planning import methods, settings
from raychains.planning.presets import default_arms
from raychains.planning.sweep_plan import Point
from raychains.tasks import Task
from raychains.tasks.defaults import defaults_of

SPLIT = "val"
"""The split that decides between settings."""
VAL_SPLIT = 0.1
"""Share of the training examples that is held out where the user says nothing."""
DEFAULT_GRID: Mapping[str, tuple[Any, ...]] = {"exploration": (0.0, 0.25, 0.5, 0.75), "cycles": (2, 4, 8)}
"""β × M, the two settings of a cyclical schedule; cSG-MCMC's Fig. 3c varies M."""
FIXED = ("epochs", "steps", "chains", "repeats", "lanes", "seed", "task", "task_settings", "train_subset", "val_split")
"""Options that all points of a sweep must share: cost, data and random streams."""
REPEAT = "repeat"
"""The entry of a trial's config that says which repetition of its options it is, from 0."""
SETTINGS = ("sampler_settings", "schedule_settings")
"""Options that hold further settings as NAME=VALUE."""

R = typing.TypeVar("R", bound=Run)


def place(name: str, fixed: Collection[str] = FIXED) -> tuple[str, str | None]:
    """Return the option that a swept name is, and, of further settings, which of them.

    Raises:
        UserError: nothing of that name, or nothing that may differ between chains.
    """
    if name in fixed:
        raise UserError(
            f"{name} must be the same at every point: points cost and learn from the same, got it in the sweep"
        )
    field, dot, setting = name.partition(".")
    if dot and field in SETTINGS:
        return field, setting
    elsewhere = {f.name for f in dataclasses.fields(Common)}
    left_out = {*elsewhere, *fixed, *SETTINGS, "init_from", "init_strict", "sample_only", "budget"}
    plain = [f.name for f in dataclasses.fields(Run) if f.name not in left_out]
    if name in plain:
        return name, None
    further = {
        "sampler_settings": {n for kind in samplers.KINDS.values() for n in settings.names_of(kind)},
        "schedule_settings": {n for kind in schedules.KINDS.values() for n in settings.names_of(kind)},
    }
    for where, names in further.items():
        if name in names:
            return where, name
    raise unknown_name("swept option", name, {*plain, *set().union(*further.values())} - {"num_data", "init_from"})


def python_value(value: Any) -> Any:
    """Return a NumPy scalar as Python's own number; searchers draw them."""
    return value.item() if hasattr(value, "item") else value


def typed(name: str, value: Any, fixed: Collection[str] = FIXED) -> Any:
    """Return a value as the option holds it: integers for counts, floats for numbers.

    Raises:
        UserError: it is of another type, or not of an option that may differ between chains.
    """
    field, setting = place(name, fixed)
    if setting is not None:
        return value
    hint = typing.get_type_hints(Run)[field]
    kinds = typing.get_args(hint) or (hint,)
    if bool in kinds:
        require(isinstance(value, bool), name, value, "be true or false")
        return value
    if float in kinds:
        require(is_number(value), name, value, "be a number")
        return float(value)
    if int in kinds:
        require(isinstance(value, int) and not isinstance(value, bool), name, value, "be an integer")
        return value
    if isinstance(value, type):
        return {"sampler": samplers.KINDS, "schedule": schedules.KINDS}[field].name_of(value)  # type: ignore[attr-defined]
    return str(value)


class Points:
    """Makes points of swept values; what all of them share is resolved once.

    Args:
        options: that all points share.
        task: their task, built.
        fixed: options that values may not contain.
    """

    def __init__(self, options: Run, task: Task, fixed: Collection[str] = FIXED) -> None:
        self._task, self._fixed = task, fixed
        pack = "none" if options.pack == "auto" else options.pack  # a trial is one chain, whatever the repeats
        repeats = 1 if options.repeats is None else options.repeats
        self.options = dataclasses.replace(options, repeats=repeats, pack=pack)
        """Options that all points share."""
        # The built task has its own settings in it.
        base = dataclasses.replace(self.options, chains=1)
        self._base = dataclasses.replace(base, task_settings=(), train_subset=None, val_split=None)
        self.start: Mapping[str, Tensor] | None = None
        """Initial parameters of the last point's chains, if they come from a file."""
        self.notes: list[str] = []

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as the options hold them: integers for counts, floats for numbers.

        Raises:
            UserError: one is of another type, or not of an option that may differ between chains.
        """
        return {name: typed(name, value, self._fixed) for name, value in given.items()}

    def changed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `Run` that values are; further settings come after those that all points share."""
        found: dict[str, Any] = {name: getattr(self._base, name) for name in SETTINGS}
        for name, value in values.items():
            field, setting = place(name, self._fixed)
            if setting is None:
                found[field] = value
            else:
                text = value if isinstance(value, str) else repr(value)
                found[field] = (*found[field], f"{setting}={text}")
        return {name: value for name, value in found.items() if name not in SETTINGS or value}

    def make(self, number: int, values: Mapping[str, Any], repeats: int | None = None) -> Point:
        """Return the point of these values, with so many repeats instead of the options'.

        Raises:
            UserError: one is out of range, or they do not fit together.
        """
        options = dataclasses.replace(self._base, **self.changed(values), repeats=repeats or self.options.repeats)
        planned = default_arms.run(options, task=self._task)
        [arm] = planned.comparison.arms
        one = (
            "be a file or none where each trial is one chain: a member of a deep ensemble, at which mile starts by default, is another; "
            "train the ensemble by raychains run"
        )
        require(not planned.comparison.starts, "init_from", options.init_from, one)
        self.start = planned.start
        self.notes += [note for note in planned.notes if "noise sd" not in note and note not in self.notes]
        sampler = options.sampler or defaults_of(options.task, self._task).run
        specs = tuple(group[0] for group in arm.chains)
        return Point(number=number, values=dict(values), sampler=sampler, specs=specs, length=arm.length)


def with_validation(options: R, given: Task | None) -> tuple[Task, R, list[str]]:
    """Return the task with its split val, the options that make it, and notes for the user.

    Raises:
        UserError: the task has no such split and nothing that can be held out.
    """
    notes: list[str] = []
    task = methods.make_task(options, options.task, given)
    held_out = (
        "have data of which a part can be held out as the split val: a density has none, and its target decides nothing"
    )
    require(not task.low_dimensional, "task", options.task, held_out)
    if SPLIT not in task.splits() and options.val_split is None:
        try:
            held = dataclasses.replace(options, val_split=VAL_SPLIT)
            task = methods.make_task(held, options.task, given)
        except UserError as error:
            raise UserError(
                f"task must have a split val, which a sweep decides on, got {options.task}, which has none: {error}"
            ) from None
        options = held
        notes.append(f"val_split {VAL_SPLIT:g}: that share of the training examples is held out, and decides")
    if SPLIT not in task.splits():
        raise UserError(
            f"task must have a split val, which a sweep decides on, got {options.task}: give `val_split=.1`"
        )
    return task, options, notes
