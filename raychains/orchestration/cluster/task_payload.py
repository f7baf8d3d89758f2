"""The user's code (`raychains.core.user_code`) as Ray carries it to actors: a task object through the object store."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from raychains import tasks
from raychains.core import user_code
from raychains.core.errors import UserError, format_error
from raychains.core.user_code import UserCode
from raychains.orchestration.cluster.workers import Workers
from raychains.tasks import Task

# Ray is imported where it is needed: threads run chains without it.


def dumps(value: Any, **settings: Any) -> bytes:
    """Pickle an object with the classes and functions that cannot be imported."""
    from ray import cloudpickle

    found: bytes = cloudpickle.dumps(value, protocol=5, **settings)
    return found


def loads(data: bytes) -> Any:
    """Inverse of `dumps`."""
    from ray import cloudpickle

    return cloudpickle.loads(data)


def for_workers(task: Task, workers: Workers, kinds: Iterable[str] | None = ()) -> UserCode:
    """Return what the actors of a run of ``task`` need.

    Args:
        kinds: the samplers and schedules of its chains; None: all that this process knows.

    Raises:
        UserError: the object, or a class, cannot be pickled.
    """
    check(task)
    return user_code.collected(dumps, kinds, (workers.put(task),) if tasks.travels(task) else ())


def received(code: UserCode) -> None:
    """Make a task, its modules and classes known to this process, before anything builds one; earlier tasks are let go.

    Raises:
        UserError: the object cannot be made here.
    """
    user_code.received(code, loads)
    tasks.forget()
    if not code.task:
        return
    import ray
    from ray.exceptions import RayError

    for ref in code.task:
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
    if tasks.travels(task):
        name = f"task {tasks.name_of(task)!r}"
        user_code.pickled(partial(dumps, buffer_callback=lambda _: None), task, name)
