"""The user's code for the processes that Ray Tune or Ray Train starts: it is pickled with the class or function that
they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray

from raychains import tasks
from raychains.core import user_code
from raychains.core.user_code import UserCode
from raychains.orchestration.cluster import task_payload
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


@dataclass(frozen=True)
class UserParts:
    """The code, with the task where the user passed an object."""

    code: UserCode

    @classmethod
    def of(cls, task: Task | None) -> UserParts:
        """Return that of this process, with the ``task`` where the user passed an object."""
        return cls(user_code.collected(task_payload.dumps, task=() if task is None else (SharedTask(task),)))

    @property
    def task(self) -> Task | None:
        """The task where the user passed an object."""
        return self.code.task[0].get() if self.code.task else None

    def unpack(self) -> Task | None:
        """Make it known to this process; return the task where it is an object."""
        user_code.received(self.code, task_payload.loads)
        return tasks.give(self.task) if self.task is not None else None
