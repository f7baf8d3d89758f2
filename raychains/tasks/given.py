"""Tasks given as objects: known to this process by their spec, since nothing can rebuild them from it.

A person gives one to `raychains.run` or `raychains.load`; workers and evaluators get theirs from the driver. The store
never holds one, so whoever opens a run of such a task must give the same object again.
"""

from __future__ import annotations

from raychains.errors import UserError
from raychains.spec import TaskSpec
from raychains.tasks import identity
from raychains.tasks.base import Task

MADE_BY_HAND = "raychains.tasks.module:FromModule"
"""Kind of the tasks of `Task.from_module`."""

_GIVEN: dict[tuple[str, str], Task] = {}
"""The last object given under each kind and name: a newer one takes the place of an older, so that data are freed."""


def give(task: Task) -> Task:
    """Make an object known to `find`; the object itself."""
    spec = task.spec()
    _GIVEN[_key(spec)] = task
    return task


def give_again(task: Task, spec: TaskSpec) -> Task:
    """`give` an object that must be the one of ``spec``.

    Raises:
        UserError: it is another; the line tells what differs.
    """
    task = _divided_as(task, spec)
    mine = task.spec()
    if mine != spec:
        what = (
            identity.own_differences(mine, spec) or f"it is {mine.kind} here, {spec.kind} in the run, or set otherwise"
        )
        raise UserError(f"task differs from the run's: {what}")
    return give(task)


def forget() -> None:
    """Let go of all that were given here, and of their data."""
    _GIVEN.clear()


def find(spec: TaskSpec) -> Task | None:
    """The object of this very spec; None where the spec tells how to build one.

    Raises:
        UserError: only an object can be this task, and none was given, or another one.
    """
    task = _GIVEN.get(_key(spec))
    if task is None and "val_split" in spec.settings and (whole := _GIVEN.get((spec.kind, _name(spec)))) is not None:
        task = _divided_as(whole, spec)
    if task is not None and task.spec() == spec:
        return task
    if spec.kind != MADE_BY_HAND:
        return None
    name = spec.settings.get("name")
    if task is None:
        raise UserError(
            f"task {name!r} was made by Task.from_module and is not in the store: give the same object, as in "
            "raychains.load(path, task=…), or resume=True in the script that made it"
        )
    raise UserError(f"task {name!r} differs from the run's: {identity.differences(task.spec(), spec)}")


def travels(task: Task) -> bool:
    """Whether other processes need the object itself: it is of no class that they could import and rebuild."""
    kind = task.spec().kind
    module, _, name = kind.partition(":")
    return kind == MADE_BY_HAND or module == "__main__" or "<" in name


def _divided_as(task: Task, spec: TaskSpec) -> Task:
    """The task with the part held out that ``spec``'s run held out of the same object."""
    wanted, mine = spec.settings, task.spec().settings
    if "val_split" not in wanted or "val_split" in mine:
        return task
    seed = wanted.get("split_seed", 0) if spec.kind == MADE_BY_HAND else 0
    try:
        return task.holding_out(wanted["val_split"], seed)
    except UserError:  # other data, or none that can be divided: what differs is told of the task itself
        return task


def _key(spec: TaskSpec) -> tuple[str, str]:
    if spec.kind != MADE_BY_HAND:
        return spec.kind, ""
    held = f"/{spec.settings['val_split']}" if "val_split" in spec.settings else ""
    return spec.kind, f"{_name(spec)}{held}"


def _name(spec: TaskSpec) -> str:
    return str(spec.settings.get("name")) if spec.kind == MADE_BY_HAND else ""
