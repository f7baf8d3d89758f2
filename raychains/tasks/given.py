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
    mine = task.spec()
    if mine != spec:
        what = (
            identity.own_differences(mine, spec) or f"it is {mine.kind} here, {spec.kind} in the run, or set otherwise"
        )
        raise UserError(f"task differs from the run's: {what}")
    return give(task)


def find(spec: TaskSpec) -> Task | None:
    """The object of this very spec; None where the spec tells how to build one.

    Raises:
        UserError: only an object can be this task, and none was given, or another one.
    """
    task = _GIVEN.get(_key(spec))
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


def _key(spec: TaskSpec) -> tuple[str, str]:
    return spec.kind, str(spec.settings.get("name")) if spec.kind == MADE_BY_HAND else ""
