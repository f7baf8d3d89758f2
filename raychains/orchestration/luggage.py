"""What actors need of the person's process to build its task: folders to import from, and a task given as an object."""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError

from raychains import tasks
from raychains.errors import UserError, said
from raychains.tasks import Task

Luggage = tuple[tuple[str, ...], tuple[Any, ...]]
"""Folders that the person's process imports from, the current one first; and a reference to the task in Ray's object
store, or none where its spec tells how to build it. A plain tuple: reading it as an argument imports nothing."""


def pack(task: Task) -> Luggage:
    """For the actors of a run of ``task``; Ray must be connected.

    Raises:
        UserError: the object cannot be pickled.
    """
    folders = tuple(dict.fromkeys(os.path.abspath(folder) for folder in [os.getcwd(), *sys.path]))
    if not tasks.travels(task):
        return folders, ()
    check(task)
    return folders, (ray.put(task),)


def unpack(luggage: Luggage) -> None:
    """Make a task and its modules known to this process, before anything builds one; earlier ones are let go.

    Raises:
        UserError: the object cannot be made here.
    """
    folders, task = luggage
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    tasks.forget()
    for ref in task:
        try:
            tasks.give(ray.get(ref))
        except RayError:
            raise
        except Exception as error:
            raise UserError(f"task cannot be unpickled in a worker: {said(error)}") from None


def check(task: Task) -> None:
    """Refuse a task that would have to travel and cannot; data are not copied for this.

    Raises:
        UserError: what of it cannot be pickled.
    """
    if not tasks.travels(task):
        return
    try:
        cloudpickle.dumps(task, protocol=5, buffer_callback=lambda _: None)
    except Exception as error:  # whatever a person's object raises
        raise UserError(f"task {tasks.name_of(task)!r} must be picklable to travel to workers: {said(error)}") from None
