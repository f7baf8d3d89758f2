"""The payload from which actors build the user's task and chains: folders to import from, a task that is an object, classes.

Folders travel as paths: a user's Python file is imported where every node has it, by a shared folder or by
``ray job submit --working-dir .``, which copies the current folder to all nodes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from raychains import tasks
from raychains.core import registry
from raychains.core.errors import UserError, format_error
from raychains.core.source import source_of
from raychains.orchestration.messages import TaskPayload
from raychains.orchestration.workers import Workers
from raychains.tasks import Task


def import_folders() -> tuple[str, ...]:
    """Return the folders that this process imports from, for processes with other working folders."""
    return tuple(dict.fromkeys(os.path.abspath(folder) for folder in [os.getcwd(), *sys.path]))


def import_from(folders: Iterable[str]) -> None:
    """Import from these folders, too."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def pack(task: Task, workers: Workers, kinds: Iterable[str] | None = ()) -> TaskPayload:
    """Return what the actors of a run of ``task`` need.

    Args:
        kinds: the samplers and schedules of its chains; None: all that this process knows.

    Raises:
        UserError: the object, or a class, cannot be pickled.
    """
    classes = pack_classes(kinds)
    if not tasks.travels(task):
        return TaskPayload(import_folders(), classes=classes)
    check(task)
    return TaskPayload(import_folders(), (workers.put(task),), classes)


def pack_classes(kinds: Iterable[str] | None = None) -> tuple[bytes, ...]:
    """Return those of some samplers and schedules that other processes cannot import, by value.

    Args:
        kinds: None is all of them, but for those that have no source or cannot be pickled.

    Raises:
        UserError: one has no source or cannot be pickled.
    """
    found = []
    for kind, one in registry.local(kinds).items():
        with contextlib.suppress(*([UserError] if kinds is None else [])):
            source_of(one)  # it goes along: where the class arrives there is no source
            found.append(_pickled(one, f"the class {kind}"))
    return tuple(found)


def unpack_classes(classes: Iterable[bytes]) -> None:
    """Make the classes of `pack_classes` known to this process.

    Raises:
        UserError: they cannot be made here.
    """
    classes = tuple(classes)
    if not classes:
        return  # also where Ray cannot be imported
    from ray import cloudpickle

    try:
        registry.give(cloudpickle.loads(one) for one in classes)
    except Exception as error:
        raise UserError(f"a sampler or schedule cannot be unpickled here: {format_error(error, kind=True)}") from None


def unpack(payload: TaskPayload) -> None:
    """Make a task, its modules and classes known to this process, before anything builds one; earlier tasks are let go.

    Raises:
        UserError: the object cannot be made here.
    """
    import_from(payload.folders)
    unpack_classes(payload.classes)
    tasks.forget()
    if not payload.task:
        return
    import ray
    from ray.exceptions import RayError

    for ref in payload.task:
        try:
            tasks.give(ray.get(ref))
        except RayError:
            raise
        except Exception as error:
            raise UserError(f"task cannot be unpickled in a worker: {format_error(error, kind=True)}") from None


def check(task: Task) -> None:
    """Refuse a task that would have to travel to workers and cannot; its data are not copied for this.

    Raises:
        UserError: what of it cannot be pickled.
    """
    if not tasks.travels(task):
        return
    _pickled(task, f"task {tasks.name_of(task)!r}", buffer_callback=lambda _: None)


def _pickled(value: Any, what: str, **settings: Any) -> bytes:
    from ray import cloudpickle

    try:
        found: bytes = cloudpickle.dumps(value, protocol=5, **settings)
    except Exception as error:  # whatever a user's object raises
        raise UserError(f"{what} must be picklable to travel to workers: {format_error(error, kind=True)}") from None
    return found
