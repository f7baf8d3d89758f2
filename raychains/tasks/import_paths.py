"""Tasks by import path: ``module:Class`` of a Task, or ``module:function`` that returns one, from any folder on the path.

A plan in a store names its task by such a path too, so a function is called only where it is meant to make tasks: a plain
function of a module that imports raychains. ``os:system`` is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from raychains.core.errors import UserError, format_error
from raychains.core.registry import load
from raychains.tasks.base import Task


def find(path: str) -> Callable[..., Task]:
    """Return the Task subclass, or the function that makes a task, at ``module:name``; the current folder is searched first.

    Raises:
        UserError: no such module or name, a module that raises when it is imported, or something that makes no task.
    """
    found = load("task", path)
    if isinstance(found, type) and issubclass(found, Task):
        return found
    if isinstance(found, type) or not _makes_tasks(found):
        raise UserError(
            "task must name a subclass of raychains.Task, or a function that returns a task in a module that imports "
            f"raychains, got {path!r}"
        )
    return found


def construct(path: str, settings: Mapping[str, Any]) -> Task:
    """Make the task at ``path`` with its JSON arguments.

    A class that states its `Task.settings` is rebuilt by them; any other path by these arguments. A ``val_split`` that
    it does not take itself is held out of the task that it makes, by the ``split_seed`` beside it (`Task.holding_out`).

    Raises:
        UserError: as `find`; arguments that do not fit; a function that raises, or returns no task.
    """
    make = find(path)
    for name in ("kind", "revision", "fingerprint"):
        if name in settings:
            raise UserError(f"task {path}: an argument cannot be called {name!r}, which a spec has already: rename it")
    of_split = () if takes(make, "val_split") else ("val_split", "split_seed")
    held = {name: settings[name] for name in of_split if name in settings}
    settings = {name: value for name, value in settings.items() if name not in held}
    try:
        task = make(**settings)
    except UserError:
        raise
    except TypeError as error:
        if _inside(error) and not _ours(make.__module__):
            raise UserError(f"task {path} raised {format_error(error, kind=True)}") from None
        raise UserError(f"task {path}: {error}") from None
    except (Exception, SystemExit) as error:
        if _ours(make.__module__):
            raise
        raise UserError(f"task {path} raised {format_error(error, kind=True)}") from None
    if not isinstance(task, Task):
        raise UserError(f"task {path} must return a raychains.Task, got {type(task).__name__}")
    if not isinstance(make, type) or type(task).settings is Task.settings:
        task.origin = (path, dict(settings))
    return task.holding_out(held.get("val_split", 0.0), held.get("split_seed", 0))


def takes(make: Callable[..., Any], name: str) -> bool:
    """Return whether what makes a task has an argument of this name, or any."""
    parameters = inspect.signature(make).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _inside(error: BaseException) -> bool:
    """Return whether an exception came from within the function that was called, not from the call itself."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is not None


def _makes_tasks(found: Any) -> bool:
    """Return whether something may be called for a task: see the module's docstring."""
    function = inspect.unwrap(found) if callable(found) else found
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or _ours(function.__module__):
        return False
    return any(_ours(_home(value)) for value in function.__globals__.values())


def _home(value: Any) -> Any:
    if isinstance(value, ModuleType):
        return value.__name__
    return value.__module__ if isinstance(value, type | FunctionType) else None


def _ours(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "raychains"
