"""The payload from which actors build the user's task: folders to import from, and a task that is an object.

Folders travel as paths: a user's Python file is imported where every node has it, by a shared folder or by
``ray job submit --working-dir .``, which copies the current folder to all nodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from raychains import tasks
from raychains.core.errors import UserError, format_error
from raychains.orchestration.messages import TaskPayload
from raychains.orchestration.workers import Workers
from raychains.tasks import Task


def import_folders() -> tuple[str, ...]:
    """Return the folders that this process imports from, for processes with other working folders."""
    return tuple(dict.fromkeys(os.path.abspath(folder) for folder in [os.getcwd(), *sys.path]))


def import_from(folders: Iterable[str]) -> None:
    """Import from these folders, too."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def pack(task: Task, workers: Workers) -> TaskPayload:
    """Return what the actors of a run of ``task`` need.

    Raises:
        UserError: the object cannot be pickled.
    """
    if not tasks.travels(task):
        return TaskPayload(import_folders())
    check(task)
    return TaskPayload(import_folders(), (workers.put(task),))


def unpack(payload: TaskPayload) -> None:
    """Make a task and its modules known to this process, before anything builds one; earlier ones are let go.

    Raises:
        UserError: the object cannot be made here.
    """
    import_from(payload.folders)
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
    from ray import cloudpickle

    try:
        cloudpickle.dumps(task, protocol=5, buffer_callback=lambda _: None)
    except Exception as error:  # whatever a user's object raises
        name = tasks.name_of(task)
        raise UserError(
            f"task {name!r} must be picklable to travel to workers: {format_error(error, kind=True)}"
        ) from None
