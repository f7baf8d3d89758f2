"""The user's code on its way to another process: packed by the driver, unpacked by workers, evaluators and trials.

A task object, such as that of a lambda, is pickled into Ray's object store: by `for_actors`, or on its way to Tune or
Train by `Payload.__reduce__`. `Payload.unpack` makes it known in the worker (`raychains.tasks.give`), where tasks are
found by their spec.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raychains import tasks
from raychains.core.errors import UserError, format_error
from raychains.core.user_code import LOCAL, import_folders, import_from, source_of
from raychains.orchestration.cluster.workers import Workers
from raychains.tasks import Task

# Ray is imported where it is needed: threads run chains without it.


@dataclass
class Payload:
    """Everything that another process needs of the user's code to build the task and the chains.

    Folders travel as paths: a user's Python file is imported where every node has it, by a shared folder or by
    ``ray job submit --working-dir .``, which copies the current folder to all nodes. A task object travels through
    Ray's object store, where it is put once in each session: Ray refuses classes above 95 MiB.
    """

    folders: tuple[str, ...] = ()
    """Folders that the user's process imports from, the current one first."""
    classes: tuple[bytes, ...] = ()
    """Pickled samplers and schedules of a script, a notebook or a function, which no other process can import."""
    task: Task | None = field(default=None, compare=False)
    """The task object in the process that packed it; None elsewhere, and where its spec tells how to build it."""
    reference: Any = None
    """Ray's reference to the task object."""
    session: str = field(default="", compare=False)
    """The session of Ray that the reference belongs to."""

    def __reduce__(self) -> tuple[Any, ...]:
        import ray

        if self.task is None or not ray.is_initialized():
            return Payload, (self.folders, self.classes, self.task, self.reference)
        context = ray.get_runtime_context()
        session = f"{context.gcs_address} {context.get_job_id()}"
        if session != self.session:
            self.reference, self.session = ray.put(self.task), session
        return Payload, (self.folders, self.classes, None, self.reference)

    def unpack(self) -> Task | None:
        """Make the folders, classes and task known to this process, before anything builds one; return the task.

        Raises:
            UserError: a class or the task cannot be unpickled here.
        """
        import ray
        from ray import cloudpickle
        from ray.exceptions import RayError

        import_from(self.folders)
        try:
            LOCAL.update({part.kind: part for part in map(cloudpickle.loads, self.classes)})
        except Exception as error:
            raise UserError(
                f"a sampler or schedule cannot be unpickled here: {format_error(error, kind=True)}"
            ) from None
        task = self.task
        if task is None and self.reference is not None:
            try:
                task = ray.get(self.reference)
            except RayError:
                raise
            except Exception as error:
                raise UserError(f"task cannot be unpickled in a worker: {format_error(error, kind=True)}") from None
        return tasks.give(task) if task is not None else None


def for_actors(task: Task, workers: Workers, kinds: Iterable[str] | None = ()) -> Payload:
    """Return what the actors of a run of ``task`` need.

    Args:
        kinds: the samplers and schedules of its chains; None: all that this process knows.

    Raises:
        UserError: the task, or a class, cannot be pickled.
    """
    check(task)
    # Put before a call: what is put while a call's arguments are pickled is never freed.
    reference = workers.put(task) if tasks.travels(task) else None
    return Payload(import_folders(), _pickled(kinds), reference=reference)


def for_trials(task: Task | None) -> Payload:
    """Return what the processes that Ray Tune or Ray Train starts need: it is pickled with what they run.

    Args:
        task: the task where the user passed an object.
    """
    return Payload(import_folders(), _pickled(None), task)


def check(task: Task) -> None:
    """Refuse a task that would have to travel to workers and cannot; its data are not copied for this.

    Raises:
        UserError: what of it cannot be pickled.
    """
    if tasks.travels(task):
        _dumps(task, f"task {tasks.name_of(task)!r}", buffer_callback=lambda _: None)


def _pickled(kinds: Iterable[str] | None) -> tuple[bytes, ...]:
    """Return pickled samplers and schedules that no other process can import.

    Args:
        kinds: theirs; None is all that this process knows, but for those that have no source or cannot be pickled.

    Raises:
        UserError: a class has no source or cannot be pickled.
    """
    found = []
    for kind in LOCAL if kinds is None else dict.fromkeys(kinds):
        if kind in LOCAL:
            with contextlib.suppress(*([UserError] if kinds is None else [])):
                source_of(LOCAL[kind])  # it goes along: where the class arrives there is no source
                found.append(_dumps(LOCAL[kind], f"the class {kind}"))
    return tuple(found)


def _dumps(value: Any, what: str, **settings: Any) -> bytes:
    """Pickle an object with the classes and functions that cannot be imported; ``what`` names it.

    Raises:
        UserError: it cannot be pickled.
    """
    from ray import cloudpickle

    try:
        found: bytes = cloudpickle.dumps(value, protocol=5, **settings)
    except Exception as error:  # whatever a user's object raises
        raise UserError(f"{what} must be picklable to travel to workers: {format_error(error, kind=True)}") from None
    return found
