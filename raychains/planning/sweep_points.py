"""The points of a sweep: swept options to chains, by the same way that `raychains run` makes them."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains import samplers
from raychains.core.config import Common, Run, Sweep
from raychains.core.errors import UserError, require, unknown_name
from raychains.core.validation import integer, is_number
from raychains.evaluation.base import Metric
from raychains.planning import compatible, methods, settings
from raychains.planning import search_space as space
from raychains.planning.budget import gradient_evaluations
from raychains.planning.sweep_plan import Asha, Point, SweepPlan, Values
from raychains.planning.swept import DEFAULT_GRID, SPLIT, Points, place, with_validation
from raychains.store import initial_states
from raychains.tasks import Task
from raychains.tasks.defaults import defaults_of

TRIES = 100
"""Draws for one point before a space counts as one without points that fit."""


@dataclass(frozen=True)
class Planned:
    """A sweep's plan, and how values that are chosen later become a point."""

    plan: SweepPlan
    points: Points
    ranges: Mapping[str, space.Range] = dataclasses.field(default_factory=dict)
    """The ranges that points are chosen from."""

    def best_options(self, values: Values) -> dict[str, Any]:
        """Return the options of `raychains run` that make the chains of a point with these values."""
        found = {**self.plan.options, **self.points.changed(values)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


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
    task, options, notes = with_validation(options, given_task)
    metric = _metric(options.metric, task)
    grid, ranges = space.read_grid(options.grid), space.read_space(options.space)
    default = search == "grid" and not grid
    if default:
        grid = _default_grid(options, task)
    swept: Mapping[str, Any] = grid if search == "grid" else ranges
    points = Points(options, task)
    made: list[Point] = []
    with _given_by("grid" if search == "grid" else "space"):
        for name in swept:
            _check_swept(name, options)
        if search == "grid":
            made, unfit = _grid(points, space.grid_points(grid), skip=default)
            notes += unfit
        elif search == "random":
            made, unfit = _random(points, ranges, count, options.seed)
            notes += unfit
        tried = made or _random(points, ranges, 1, options.seed)[0]
    compatible.check_total(len(tried[0].specs) * max(count, len(made)))
    ranged = {name: range_.to_json() for name, range_ in ranges.items()}
    found = _plan(
        points.options,
        task,
        tried,
        metric=metric,
        swept=_tried(made, grid) if search == "grid" else ranged,
        search=search,
        count=len(made) or count,
        points=tuple(made),
        asha=_asha(options),
        notes=tuple(dict.fromkeys([*notes, *points.notes])),
    )
    return Planned(found, points, ranges)


@contextlib.contextmanager
def _given_by(option: str) -> Iterator[None]:
    """Let messages on what is swept begin with the option that gave it."""
    try:
        yield
    except UserError as error:
        if str(error).startswith(f"{option} must"):
            raise
        raise UserError(f"{option}: {error}") from None


def of_trials(
    options: Run,
    given_task: Task | None,
    trials: Sequence[tuple[Mapping[str, Any], int]],
    metric: str,
    fixed: Collection[str],
) -> tuple[Planned, list[Point]]:
    """Return the sweep that the trials of the user's own experiment came to, and the point of each trial.

    Args:
        options: what all trials share.
        given_task: the task where the user passed an object.
        trials: per trial its values and its repeat.
        metric: name of the metric that decides between points.
        fixed: options that no trial may have.

    Raises:
        UserError: an unknown metric.
    """
    task, options, notes = with_validation(options, given_task)
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
    about = {"metric": _metric(metric, task), "search": "tune", "points": listed, "notes": tuple(notes)}
    return Planned(
        _plan(points.options, task, listed, swept=_tried(listed, names), count=len(listed), **about), points
    ), found


def _plan(options: Run, task: Task, tried: Sequence[Point], **about: Any) -> SweepPlan:
    """Return a plan; what it says of all chains alike is that of the points that were ``tried``."""
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


def _search(options: Sweep) -> tuple[Any, int]:
    """Which way points are found, and how many."""
    counts = {"random": options.random, "optuna": options.optuna}
    given = [name for name, count in counts.items() if count is not None]
    if len(given) > 1:
        raise UserError(f"optuna must be left out beside `random`, got {options.optuna}: one of them finds the points")
    if not given:
        if options.space:
            raise UserError(f"space must be left out without `random=N` or `optuna=N`, got {' '.join(options.space)!r}")
        return "grid", 0
    if options.grid:
        raise UserError(
            f"grid must be left out beside `{given[0]}`, got {' '.join(options.grid)!r}: give it as a space"
        )
    if not options.space:
        raise UserError(f"space must name what {given[0]} draws, as in lr=log:1e-3:1 cycles=2,4,8, got nothing")
    count = counts[given[0]]
    assert count is not None
    integer(given[0], count, 1, space.MOST_POINTS)
    return given[0], count


def _metric(name: str, task: Task) -> Metric:
    known = {m.name: m for m in task.splits()[SPLIT].metrics}
    if name not in known:
        raise unknown_name("metric", name, known)
    better = known[name].better
    require(better != "neither", "metric", name, "have a better end: no value of this one is the best")
    return known[name]


def _default_grid(options: Sweep, task: Task) -> dict[str, tuple[Any, ...]]:
    defaults = defaults_of(options.task, task)
    method = samplers.method(options.sampler or defaults.run)
    schedule = methods.schedule_kind(options, method, defaults.of(method.kind))
    if schedule != "cyclical":
        raise UserError(f"grid must be given for schedule {schedule}: the default one varies β and M, which it lacks")
    grid = {name: values for name, values in DEFAULT_GRID.items() if getattr(options, name) is None}
    if options.burn_in is not None:
        grid.pop("exploration", None)
    if not grid:
        raise UserError("grid must name what is varied, got nothing: exploration and cycles, the default, are given")
    return grid


def _check_swept(name: str, options: Sweep) -> None:
    field, setting = place(name)
    default = next(f.default for f in dataclasses.fields(Sweep) if f.name == field)
    given = getattr(options, field)
    fixed = given != default if setting is None else setting in settings.read(field, given)
    if fixed:
        raise UserError(f"{name} must be given once, got it as an option and in the sweep")


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
                raise UserError(
                    f"space must hold points that fit, got {len(made) or 'none'} in {len(made) + len(unfit)} draws: {error}"
                ) from None
    note = f"{len(unfit)} draws did not fit and were drawn again; the first: {unfit[0]}" if unfit else ""
    return made, [note] * bool(unfit)


def _asha(options: Sweep) -> Asha | None:
    ok = is_number(options.asha_grace) and 0 < options.asha_grace < 1
    require(ok, "asha_grace", options.asha_grace, "lie in (0, 1): it is the share of the epochs without stops")
    ok = is_number(options.asha_reduction) and options.asha_reduction > 1
    require(ok, "asha_reduction", options.asha_reduction, "be a number above 1")
    return Asha(grace=options.asha_grace, reduction=options.asha_reduction) if options.asha else None


def shared(options: Run) -> dict[str, Any]:
    """Return the settings of chains that the user gave, as JSON."""
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
