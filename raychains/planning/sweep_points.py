"""The points of a sweep: swept options, and how their values become chains, as `raychains run` makes them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from raychains import samplers, schedules
from raychains.core import settings_parser
from raychains.core.config import Common, Run, Sweep
from raychains.core.errors import UserError, require, unknown_name
from raychains.core.options import options_of
from raychains.core.ranges import Range
from raychains.core.validation import is_int, is_number
from raychains.evaluation.evaluation import Metric
from raychains.planning import compatible
from raychains.planning.budget import gradient_evaluations
from raychains.planning.presets import default_arms
from raychains.planning.reports import cycle_count
from raychains.planning.sweep_plan import Asha, Point, SweepPlan, Values
from raychains.store import initial_states
from raychains.tasks import Task
from raychains.tasks.from_options import SPLIT
from raychains.tasks.user_defaults import defaults_of

DEFAULT_GRID: Mapping[str, tuple[Any, ...]] = {"exploration": (0.0, 0.25, 0.5, 0.75), "cycles": (2, 4, 8)}
"""β × M, the two settings of a cyclical schedule; cSG-MCMC's Fig. 3c varies M."""
FIXED = ("epochs", "steps", "chains", "repeats", "lanes", "seed", "task", "task_settings", "train_subset", "val_split")
"""Options that all points of a sweep must share: cost, data and random streams."""
REPEAT = "repeat"
"""The entry of a trial's config that says which repetition of its options it is, from 0."""
SETTINGS = ("sampler_settings", "schedule_settings")
"""Options that hold further settings as NAME=VALUE."""
TRIES = 100
"""Draws for one point before a space counts as one without points that fit."""


# Swept options


def place(name: str, fixed: Collection[str] = FIXED) -> tuple[str, str | None]:
    """Return the option that a swept name stands for, and the setting where that option holds several.

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
    left_out = {*options_of(Common), *fixed, *SETTINGS, "init_from", "init_strict", "sample_only", "budget"}
    plain = options_of(Run).keys() - left_out
    if name in plain:
        return name, None
    for where, names in _settings().items():
        if name in names:
            return where, name
    raise unknown_name("swept option", name, plain.union(*_settings().values()) - {"num_data", "init_from"})


@cache
def _settings() -> dict[str, set[str]]:
    """Return the names of further settings, by the option that holds them."""
    return {
        "sampler_settings": {n for kind in samplers.KINDS.values() for n in settings_parser.names_of(kind)},
        "schedule_settings": {n for kind in schedules.KINDS.values() for n in settings_parser.names_of(kind)},
    }


def typed(name: str, value: Any, fixed: Collection[str] = FIXED) -> Any:
    """Return a value as the option holds it: integers for counts, floats for numbers.

    Raises:
        UserError: it is of another type, or not of an option that may differ between chains.
    """
    field, setting = place(name, fixed)
    if setting is not None:
        return value
    kinds = options_of(Run)[field].types
    if bool in kinds:
        require(isinstance(value, bool), name, value, "be true or false")
        return value
    if float in kinds:
        require(is_number(value), name, value, "be a number")
        return float(value)
    if int in kinds:
        require(is_int(value), name, value, "be an integer")
        return value
    if isinstance(value, type):
        kinds_of: Mapping[str, Any] = {"sampler": samplers.KINDS, "schedule": schedules.KINDS}
        return kinds_of[field].name_of(value)
    return str(value)


# Points


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
        # One chain's, of the built task, which has its own settings in it.
        given = {name: getattr(self.options, name) for name in options_of(Run)}
        self._base = Run(**{**given, "chains": 1, "task_settings": (), "train_subset": None, "val_split": None})
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
        """Return values as options of `Run`; further settings follow those that all points share."""
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
        planned = default_arms.run(options, self._task)
        [arm] = planned.comparison.arms
        one = (
            "be a file or none where each trial is one chain: a member of a deep ensemble, at which mile starts by "
            "default, is another; train the ensemble by raychains run"
        )
        require(not planned.comparison.starts, "init_from", options.init_from, one)
        self.start = planned.start
        self.notes += [note for note in planned.notes if "noise sd" not in note and note not in self.notes]
        sampler = options.sampler or defaults_of(self._task).run
        specs = tuple(group[0] for group in arm.chains)
        costs = {"length": arm.length, "cycles": cycle_count(specs[0])}
        return Point(number=number, values=dict(values), sampler=sampler, specs=specs, **costs)


# Plans


@dataclass(frozen=True)
class Planned:
    """A sweep's plan, and how values that are chosen later become a point."""

    plan: SweepPlan
    points: Points
    ranges: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    """The ranges that points are chosen from."""

    def best_options(self, values: Values) -> dict[str, Any]:
        """Return the options of `raychains run` that make the chains of a point with these values."""
        found = {**self.plan.options, **self.points.changed(values)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def plan(options: Sweep, task: Task, metric: Metric, notes: Sequence[str]) -> Planned:
    """Return everything that a sweep computes; what is wrong is refused before anything starts.

    Args:
        options: what the person asks for.
        task: with the split val, made of the options.
        metric: decides between points.
        notes: lines to begin with.

    Raises:
        UserError: a setting out of range, or a point that does not fit.
    """
    search: Any = "random" if options.random else "optuna" if options.optuna else "grid"
    grid, ranges = options.grid_values, options.space_ranges
    default = search == "grid" and not grid
    if default:
        grid = _default_grid(options)
    points = Points(options, task)
    with _given_by("grid" if search == "grid" else "space"):
        for name in grid if search == "grid" else ranges:
            _check_swept(name, options)
        if search == "grid":
            tried, unfit = _grid(points, grid, skip=default)
        else:
            tried, unfit = _random(points, ranges, options.random or 1, options.seed)
    made, unfit = (tried, unfit) if search != "optuna" else ([], [])
    count = options.optuna or len(made)
    compatible.check_total(len(tried[0].specs) * count)
    found = _plan(
        points.options,
        task,
        tried,
        metric=metric,
        swept=_tried(made, grid) if search == "grid" else {name: one.to_json() for name, one in ranges.items()},
        search=search,
        count=count,
        points=tuple(made),
        asha=Asha(grace=options.asha_grace, reduction=options.asha_reduction) if options.asha else None,
        notes=tuple(dict.fromkeys([*notes, *unfit, *points.notes])),
    )
    return Planned(found, points, ranges)


@contextlib.contextmanager
def _given_by(option: str) -> Iterator[None]:
    """Begin errors on swept options with the option that names them."""
    try:
        yield
    except UserError as error:
        if str(error).startswith(f"{option} must"):
            raise
        raise UserError(f"{option}: {error}") from None


def of_trials(
    options: Run,
    task: Task,
    trials: Sequence[tuple[Mapping[str, Any], int]],
    metric: Metric,
    fixed: Collection[str],
    notes: Sequence[str] = (),
) -> tuple[Planned, list[Point]]:
    """Return the trials of the user's own experiment as a sweep, and the point of each trial.

    Args:
        options: what all trials share, with the ``val_split`` that makes the split val.
        task: made of the options.
        trials: per trial its values and its repeat.
        metric: decides between points.
        fixed: options that no trial may have.
        notes: for the user.

    Raises:
        UserError: a trial's value that does not fit.
    """
    repeats = 1 + max(repeat for _, repeat in trials)
    points = Points(dataclasses.replace(options, repeats=repeats), task, fixed)
    names = dict.fromkeys(name for values, _ in trials for name in values)
    made: dict[str, Point] = {}
    found: list[Point] = []
    for given, _ in trials:
        values = points.values(given)
        if repr(values) not in made:
            point = points.make(len(made), values)
            made[repr(values)] = dataclasses.replace(point, values={**names, **values})
        found.append(made[repr(values)])
    listed = tuple(made.values())
    about = {"metric": metric, "search": "tune", "points": listed, "notes": tuple(notes)}
    return Planned(
        _plan(points.options, task, listed, swept=_tried(listed, names), count=len(listed), **about), points
    ), found


def _plan(options: Run, task: Task, tried: Sequence[Point], **about: Any) -> SweepPlan:
    """Return a plan, whose costs and data are those of the points in ``tried``."""
    start = tried[0].specs[0].start  # whose file may be another one, or gone, when the sweep goes on
    same = shared(options) if start is None else {**shared(options), "init_from": initial_states.file_of(start)}
    return SweepPlan(
        task=options.task,
        unit="epochs",
        split=SPLIT,
        metrics=tuple(task.splits()[SPLIT].metrics),
        options=same,
        repeats=len(tried[0].specs),
        seed=options.seed,
        gradients=max(gradient_evaluations(point.specs[0]) for point in tried),
        length=max(point.length for point in tried),
        task_spec=tried[0].specs[0].task,
        **about,
    )


def _tried(points: Sequence[Point], names: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of each option that some point has."""
    # By their text: a setting may be a list.
    return {name: list({repr(p.values[name]): p.values[name] for p in points}.values()) for name in names}


def _default_grid(options: Sweep) -> dict[str, tuple[Any, ...]]:
    grid = {name: values for name, values in DEFAULT_GRID.items() if getattr(options, name) is None}
    if options.burn_in is not None:
        grid.pop("exploration", None)
    if not grid:
        raise UserError("grid must name what is varied, got nothing: exploration and cycles, the default, are given")
    return grid


def _check_swept(name: str, options: Sweep) -> None:
    field, setting = place(name)
    given = getattr(options, field)
    default = options_of(Sweep)[field].default
    if (given != default) if setting is None else (setting in settings_parser.values(given)):
        raise UserError(f"{name} must be given once, got it as an option and in the sweep")


def _grid(points: Points, grid: Mapping[str, Sequence[Any]], *, skip: bool) -> tuple[list[Point], list[str]]:
    """Return every combination, the last name's values changing fastest; of the default grid those that fit, and notes
    on the others."""
    made: list[Point] = []
    left: list[str] = []
    for combination in itertools.product(*grid.values()):
        values = points.values(dict(zip(grid, combination, strict=True)))
        try:
            made.append(points.make(len(made), values))
        except UserError as error:
            text = " ".join(f"{name}={value}" for name, value in values.items())
            if not skip:
                raise UserError(f"point {text}: {error}") from None
            left.append(f"point {text} is left out: {error}")
    if not made:
        raise UserError(f"grid must be given: no point of the default one fits; {left[0]}")
    return made, left


def _random(points: Points, ranges: Mapping[str, Range], count: int, seed: int) -> tuple[list[Point], list[str]]:
    generator = np.random.default_rng(seed)
    made: list[Point] = []
    unfit: list[str] = []
    while len(made) < count:
        values = points.values({name: range_.draw(generator) for name, range_ in ranges.items()})
        try:
            made.append(points.make(len(made), values))
        except UserError as error:
            unfit.append(str(error))
            if len(unfit) > TRIES * max(1, len(made)):
                raise UserError(
                    f"space must hold points that fit, got {len(made) or 'none'} in {len(made) + len(unfit)} draws: "
                    f"{error}"
                ) from None
    note = f"{len(unfit)} draws did not fit and were drawn again; the first: {unfit[0]}" if unfit else ""
    return made, [note] * bool(unfit)


def shared(options: Run) -> dict[str, Any]:
    """Return the settings of chains that the user gave, as JSON."""
    left_out = options_of(Common).keys() - {"cpus_per_chain"} | {"chains", "repeats", "lanes"}
    found = {}
    for name, option in options_of(Run).items():
        value = getattr(options, name)
        if name in left_out or (value == option.default and name != "task"):
            continue
        if isinstance(value, int) and float in option.types:
            value = float(value)  # as the command line reads it: one sweep has one digest
        found[name] = list(value) if isinstance(value, tuple) else value
    return found
