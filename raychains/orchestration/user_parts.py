"""The user's task, samplers, schedules and import folders, for the processes that Ray Tune or Ray Train starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray

from raychains import tasks
from raychains.orchestration import task_payload
from raychains.tasks import Task


class SharedTask:
    """A user's task object, which travels through Ray's object store: Ray refuses classes above 95 MiB."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._ref: Any = None
        self._session = ""

    def __reduce__(self) -> tuple[Any, ...]:
        if not ray.is_initialized():
            return SharedTask, (self._task,)
        context = ray.get_runtime_context()
        session = f"{context.gcs_address} {context.get_job_id()}"
        if session != self._session:
            self._ref, self._session = ray.put(self._task), session
        return _shared, (self._ref,)

    def get(self) -> Task:
        """Return the task."""
        return self._task


def _shared(ref: Any) -> SharedTask:
    return SharedTask(ray.get(ref))


@dataclass(frozen=True, kw_only=True)
class UserParts:
    """They are pickled with the class or function that those processes run."""

    task: SharedTask | None
    """The task where the user passed an object."""
    folders: tuple[str, ...]
    """Folders that the user's process imports from."""
    classes: tuple[bytes, ...]
    """The user's samplers and schedules that no other process can import: `task_payload.pack_classes`."""

    @classmethod
    def of(cls, task: Task | None) -> UserParts:
        """Return those of this process, with the ``task`` where the user passed an object."""
        shared = SharedTask(task) if task is not None else None
        return cls(task=shared, folders=task_payload.import_folders(), classes=task_payload.pack_classes())

    def unpack(self) -> Task | None:
        """Make them known to this process; return the task where it is an object."""
        task_payload.import_from(self.folders)
        task_payload.unpack_classes(self.classes)
        return tasks.give(self.task.get()) if self.task is not None else None
