"""Tasks that were passed as objects, found by their spec.

The user passes one to `raychains.run` or `raychains.load`; workers and evaluators get theirs from the driver. The store
never holds one, so whoever opens a run of such a task must pass the same object again.
"""

from __future__ import annotations

from raychains.core.errors import UserError
from raychains.core.spec import TaskSpec
from raychains.core.user_code import is_local
from raychains.tasks.base import Task
from raychains.tasks.fingerprint import differences, own_differences

MADE_OF_OBJECTS = {
    "raychains.tasks.module:FromModule": "Task.from_module",
    "raychains.tasks.density:FromLogDensity": "Task.from_log_density",
}
"""Kinds of the tasks that are made of a user's functions, and what makes them."""

_GIVEN: dict[tuple[str, str], Task] = {}
"""The last object under each kind and name: a newer one replaces an older, so that its data are freed."""


def give(task: Task) -> Task:
    """Make an object known to `find` and return it."""
    spec = task.spec()
    _GIVEN[_key(spec)] = task
    return task


def give_again(task: Task, spec: TaskSpec) -> Task:
    """Make an object known that must be the task of ``spec``.

    Raises:
        UserError: it is another; the message names what differs.
    """
    if not isinstance(task, Task):
        raise UserError(f"task must be a raychains.Task, got a {type(task).__name__}")
    task = _divided_as(task, spec)
    mine = task.spec()
    if mine != spec:
        raise UserError(f"task differs from the run's: {own_differences(mine, spec) or _otherwise(mine, spec)}")
    return give(task)


def _otherwise(mine: TaskSpec, spec: TaskSpec) -> str:
    """Return how tasks differ whose data and models do not."""
    if mine.kind != spec.kind:
        return f"it is {mine.kind} here, {spec.kind} in the run"
    here, there = ({"revision": one.revision, **one.settings} for one in (mine, spec))
    names = [name for name in here | there if here.get(name) != there.get(name)]
    return (
        ", ".join(f"{name} is {here.get(name)!r} here, {there.get(name)!r} in the run" for name in names) or "its data"
    )


def forget() -> None:
    """Drop all objects and their data."""
    _GIVEN.clear()


def find(spec: TaskSpec) -> Task | None:
    """Return the object of this very spec; None where the spec is enough to build one.

    Raises:
        UserError: only an object can be this task, and none was passed, or another one.
    """
    task = _GIVEN.get(_key(spec))
    if task is None and "val_split" in spec.settings and (whole := _GIVEN.get((spec.kind, _name(spec)))) is not None:
        task = _divided_as(whole, spec)
    if task is not None and task.spec() == spec:
        return task
    if spec.kind not in MADE_OF_OBJECTS:
        return None
    name = spec.settings.get("name")
    if task is None:
        raise UserError(
            f"task {name!r} was made by {MADE_OF_OBJECTS[spec.kind]} and is not in the store: give the same object, as "
            "in raychains.load(path, task=…), or resume=True in the script that made it"
        )
    raise UserError(f"task {name!r} differs from the run's: {differences(task.spec(), spec)}")


def travels(task: Task) -> bool:
    """Return whether other processes need the object itself, being of no class that they could import and rebuild."""
    kind = task.spec().kind
    return kind in MADE_OF_OBJECTS or is_local(kind)


def _divided_as(task: Task, spec: TaskSpec) -> Task:
    """Return the task with the part held out that ``spec``'s run held out of the same object."""
    theirs, mine = spec.settings, task.spec().settings
    if "val_split" not in theirs or "val_split" in mine:
        return task
    seed = theirs.get("split_seed", 0) if spec.kind in MADE_OF_OBJECTS else 0
    try:
        return task.holding_out(theirs["val_split"], seed)
    except UserError:  # other data, or none that can be divided: the message is on the task itself
        return task


def _key(spec: TaskSpec) -> tuple[str, str]:
    if spec.kind not in MADE_OF_OBJECTS:
        return spec.kind, ""
    held = f"/{spec.settings['val_split']}" if "val_split" in spec.settings else ""
    return spec.kind, f"{_name(spec)}{held}"


def _name(spec: TaskSpec) -> str:
    return str(spec.settings.get("name")) if spec.kind in MADE_OF_OBJECTS else ""
