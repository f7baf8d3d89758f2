"""The points of a sweep: swept options to chains, by the same way that `raychains run` makes them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from raychains import methods, samplers, schedules
from raychains.errors import UserError, require, unknown_name
from raychains.evaluation.base import Metric
from raychains.experiments import comparisons
from raychains.methods import settings
from raychains.options import Common, Run, Sampling, Sweep
from raychains.planning import space
from raychains.planning.sweeping import Asha, Point, SweepPlan, Values, check_equal_cost
from raychains.schedules.base import is_number
from raychains.tasks import Task

SPLIT = "val"
VAL_SPLIT = 0.1
"""Share of the training examples that is held out where a person says nothing."""
DEFAULT_GRID: Mapping[str, tuple[Any, ...]] = {"exploration": (0.0, 0.25, 0.5, 0.75), "cycles": (2, 4, 8)}
"""β × M, the two settings of a cyclical schedule; cSG-MCMC's Fig. 3c varies M."""
FIXED = ("epochs", "steps", "chains", "repeats", "lanes", "seed", "task", "task_settings", "train_subset", "val_split")
"""Options that all points must share: cost, data and random streams."""
SETTINGS = ("sampler_settings", "schedule_settings")
TRIES = 100
"""Draws for one point before a space counts as one without points that fit."""


@dataclass(frozen=True)
class Planned:
    """A sweep's plan, what its chains start at, and how values that are chosen later become a point."""

    plan: SweepPlan
    points: Points
    task: Task
    start: Mapping[str, Tensor] | None


class Points:
    """Makes points of swept values; what all of them share is resolved once.

    Args:
        options: of the sweep.
        task: its task, built.
        names: of the swept options.
    """

    def __init__(self, options: Sweep, task: Task, names: typing.Iterable[str]) -> None:
        self._task = task
        fields = {f.name: getattr(options, f.name) for f in dataclasses.fields(Run)}
        # The task is built already, of these.
        fields["repeats"] = 1 if options.repeats is None else options.repeats
        self._base = Run(**{**fields, "chains": 1, "task_settings": (), "train_subset": None, "val_split": None})
        self._place = {name: _place(name, options) for name in names}
        self.start: Mapping[str, Tensor] | None = None
        self.notes: list[str] = []

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values as the options hold them: integers for counts, floats for numbers."""
        return {name: _typed(name, value, self._place[name]) for name, value in given.items()}

    def options(self, values: Values) -> dict[str, Any]:
        """What `Run` is given for a point, beside what all points share."""
        found: dict[str, Any] = {name: getattr(self._base, name) for name in SETTINGS}
        for name, value in values.items():
            field, setting = self._place[name]
            if setting is None:
                found[field] = value
            else:
                found[field] = (
                    *found[field],
                    f"{setting}={value!r}" if not isinstance(value, str) else f"{setting}={value}",
                )
        return {name: value for name, value in found.items() if name not in SETTINGS or value}

    def make(self, number: int, values: Values) -> Point:
        """The point of these values.

        Raises:
            UserError: one is out of range, or they do not fit together.
        """
        options = dataclasses.replace(self._base, **self.options(values))
        planned = comparisons.run(options, task=self._task)
        [arm] = planned.comparison.arms
        self.start = planned.start
        self.notes += [note for note in planned.notes if "noise sd" not in note and note not in self.notes]
        sampler = options.sampler or methods.defaults(options.task, self._task).run
        specs = tuple(group[0] for group in arm.chains)
        return Point(number=number, values=dict(values), sampler=sampler, specs=specs, length=arm.length)


def plan(options: Sweep, given_task: Task | None = None) -> Planned:
    """Everything that a sweep computes, refused or resolved before anything starts.

    Args:
        options: what the person asks for.
        given_task: the task where the person gave the object itself.

    Raises:
        UserError: a setting out of range, a point that does not fit, or a task without data to hold out.
    """
    require(options.chains == 1, "chains", options.chains, "be 1: a point of a sweep is one chain")
    search, count = _search(options)
    task, options, notes = _with_val(options, given_task)
    metric = _metric(options.metric, task)
    grid, ranges = space.read_grid(options.grid), space.read_space(options.space)
    default = search == "grid" and not grid
    if default:
        grid = _default_grid(options, task)
    swept: Mapping[str, Any] = grid if search == "grid" else ranges
    for name in swept:
        _check_swept(name, options)
    points = Points(options, task, swept)
    if search == "grid":
        made, unfit = _grid(points, space.grid_points(grid), skip=default)
        notes += unfit
        swept = {
            name: [v for v in _listed(points, name, grid[name]) if any(p.values[name] == v for p in made)]
            for name in grid
        }
    elif search == "random":
        made, unfit = _random(points, ranges, count, options.seed)
        notes += unfit
    else:
        made = []
    tried = made or [_any(points, ranges, options.seed)]
    asha = _asha(options)
    repeats = len(tried[0].specs)
    methods.check_total(repeats * max(count, len(made)))
    found = SweepPlan(
        task=options.task, unit="epochs", split=SPLIT, metric=metric, options=_shared(options),
        swept={n: v.to_json() if isinstance(v, space.Range) else list(v) for n, v in swept.items()},
        search=search, count=len(made) or count, repeats=repeats, seed=options.seed, points=tuple(made),
        gradients=check_equal_cost(tried), length=tried[0].length, task_spec=tried[0].specs[0].task, asha=asha,
        notes=tuple(dict.fromkeys([*notes, *points.notes])),
    )  # fmt: skip
    return Planned(found, points, task, points.start)


def best_options(plan: SweepPlan, points: Points, values: Values) -> dict[str, Any]:
    """Options of `raychains run` that make a point's chains."""
    found = {**plan.options, **points.options(values)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def _search(options: Sweep) -> tuple[Any, int]:
    """Which way points are found, and how many."""
    counts = {"random": options.random, "optuna": options.optuna}
    given = [name for name, count in counts.items() if count is not None]
    if len(given) > 1:
        raise UserError(f"optuna must be left out beside random, got {options.optuna}: one of them finds the points")
    if not given:
        if options.space:
            raise UserError(f"space must be left out without --random N or --optuna N, got {' '.join(options.space)!r}")
        return "grid", 0
    if options.grid:
        raise UserError(f"grid must be left out beside {given[0]}, got {' '.join(options.grid)!r}: give it as a space")
    if not options.space:
        raise UserError(f"space must name what {given[0]} draws, as in lr=log:1e-3:1 cycles=2,4,8, got nothing")
    count = counts[given[0]]
    assert count is not None
    space.check_count(given[0], count)
    return given[0], count


def _with_val(options: Sweep, given: Task | None) -> tuple[Task, Sweep, list[str]]:
    """The task with its split val, and the options that make it."""
    notes: list[str] = []
    task = methods.make_task(options, options.task, given)
    require(
        not task.low_dimensional, "task", options.task,
        "have data of which a part can be held out as the split val: a density has none, and its target decides nothing",
    )  # fmt: skip
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
            f"task must have a split val, which a sweep decides on, got {options.task}: give --val-split .1"
        )
    return task, options, notes


def _metric(name: str, task: Task) -> Metric:
    known = {m.name: m for m in task.splits()[SPLIT].metrics}
    if name not in known:
        raise unknown_name("metric", name, known)
    better = known[name].better
    require(better != "neither", "metric", name, "have a better end: no value of this one is the best")
    return known[name]


def _default_grid(options: Sweep, task: Task) -> dict[str, tuple[Any, ...]]:
    method = methods.named(options.sampler or methods.defaults(options.task, task).run)
    schedule = options.schedule or method.schedule
    if schedule != "cyclical":
        raise UserError(f"grid must be given for schedule {schedule}: the default one varies β and M, which it lacks")
    grid = {name: values for name, values in DEFAULT_GRID.items() if getattr(options, name) is None}
    if options.burn_in is not None:
        grid.pop("exploration", None)
    if not grid:
        raise UserError("grid must name what is varied, got nothing: exploration and cycles, the default, are given")
    return grid


def _check_swept(name: str, options: Sweep) -> None:
    field, setting = _place(name, options)
    default = next(f.default for f in dataclasses.fields(Sweep) if f.name == field)
    given = getattr(options, field)
    fixed = given != default if setting is None else setting in settings.read(field, given)
    if fixed:
        raise UserError(f"{name} must be given once, got it as an option and in the sweep")


def _place(name: str, options: Sweep) -> tuple[str, str | None]:
    """Which option a swept name is, and, of further settings, which of them.

    Raises:
        UserError: nothing of that name, or nothing that may differ between points.
    """
    if name in FIXED:
        raise UserError(
            f"{name} must be the same at every point: points cost and learn from the same, got it in the sweep"
        )
    field, dot, setting = name.partition(".")
    if dot and field in SETTINGS:
        return field, setting
    elsewhere = {f.name for f in dataclasses.fields(Common)}
    plain = [
        f.name
        for f in dataclasses.fields(Run)
        if f.name not in {*elsewhere, *FIXED, *SETTINGS, "init_from", "sample_only"}
    ]
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


def _typed(name: str, value: Any, place: tuple[str, str | None]) -> Any:
    if place[1] is not None:
        return value
    kinds = typing.get_args(
        typing.get_type_hints(Sampling if place[0] not in ("sampler", "schedule") else Run)[place[0]]
    )
    if bool in kinds or typing.get_type_hints(Run)[place[0]] is bool:
        require(isinstance(value, bool), name, value, "be true or false")
        return value
    if float in kinds:
        require(is_number(value), name, value, "be a number")
        return float(value)
    if int in kinds:
        require(isinstance(value, int) and not isinstance(value, bool), name, value, "be an integer")
        return value
    return str(value)


def _listed(points: Points, name: str, values: tuple[Any, ...]) -> list[Any]:
    return [points.values({name: value})[name] for value in values]


def _grid(points: Points, wanted: list[dict[str, Any]], *, skip: bool) -> tuple[list[Point], list[str]]:
    """The points of a grid; of the default one those that fit, and a note on the others."""
    made: list[Point] = []
    left: list[str] = []
    for given in wanted:
        values = points.values(given)
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


def _random(points: Points, ranges: Mapping[str, space.Range], count: int, seed: int) -> tuple[list[Point], list[str]]:
    generator = np.random.default_rng(seed)
    made: list[Point] = []
    unfit: list[str] = []
    while len(made) < count:
        values = points.values(space.drawn(ranges, generator))
        try:
            made.append(points.make(len(made), values))
        except UserError as error:
            unfit.append(str(error))
            if len(unfit) > TRIES * max(1, len(made)):
                raise UserError(f"space must hold points that fit, got none in {len(unfit)} draws: {error}") from None
    note = f"{len(unfit)} draws did not fit and were drawn again; the first: {unfit[0]}" if unfit else ""
    return made, [note] * bool(unfit)


def _any(points: Points, ranges: Mapping[str, space.Range], seed: int) -> Point:
    """Some point of the space, for what all of them share."""
    return _random(points, ranges, 1, seed)[0][0]


def _asha(options: Sweep) -> Asha | None:
    ok = is_number(options.asha_grace) and 0 < options.asha_grace < 1
    require(ok, "asha_grace", options.asha_grace, "lie in (0, 1): it is the share of the epochs without stops")
    ok = is_number(options.asha_reduction) and options.asha_reduction > 1
    require(ok, "asha_reduction", options.asha_reduction, "be a number above 1")
    return Asha(grace=options.asha_grace, reduction=options.asha_reduction) if options.asha else None


def _shared(options: Sweep) -> dict[str, Any]:
    """The settings of chains that the person gave, as JSON."""
    placement = {f.name for f in dataclasses.fields(Common)} - {"cpus_per_chain"}
    found = {}
    kinds = typing.get_type_hints(Run)
    for f in dataclasses.fields(Run):
        value = getattr(options, f.name)
        if f.name in placement or f.name in ("chains", "repeats", "lanes") or (value == f.default and f.name != "task"):
            continue
        if isinstance(value, int) and float in typing.get_args(kinds[f.name]):
            value = float(value)  # as the command line reads it: one sweep has one digest
        found[f.name] = list(value) if isinstance(value, tuple) else value
    return found
