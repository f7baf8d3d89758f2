"""Tasks by import path: ``module:Class`` of a Task, or ``module:function`` that returns one, from any folder on the path.

A plan in a store names its task by such a path too, so a function is called only where it is meant to make tasks: a plain
function of a module that imports raychains. ``os:system`` is none.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from raychains.errors import UserError
from raychains.tasks.base import Task


def is_path(name: str) -> bool:
    """Whether a task's name is an import path and no short name."""
    return ":" in name


def find(path: str) -> Callable[..., Task]:
    """The Task subclass, or the function that makes a task, at ``module:name``; the current folder is searched first.

    Raises:
        UserError: no such module or name, a module that raises when it is imported, or something that makes no task.
    """
    module, _, name = path.partition(":")
    try:
        with current_folder_first():
            found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever a person's module raises
        raise UserError(f"task must be an import path 'module:name', got {path!r}: {said(error)}") from None
    if isinstance(found, type) and issubclass(found, Task):
        return found
    if isinstance(found, type) or not _makes_tasks(found):
        raise UserError(
            "task must name a subclass of raychains.Task, or a function that returns a task in a module that imports "
            f"raychains, got {path!r}"
        )
    return found


def construct(path: str, settings: Mapping[str, Any]) -> Task:
    """The task at ``path`` with its JSON arguments.

    A class that states its `Task.settings` is rebuilt by them; any other path by the arguments given here. A
    ``val_split`` that it does not take itself is held out of the task that it makes (`Task.holding_out`).

    Raises:
        UserError: as `find`; arguments that do not fit; a function that raises, or returns no task.
    """
    make = find(path)
    for name in ("kind", "revision", "fingerprint"):
        if name in settings:
            raise UserError(f"task {path}: an argument cannot be called {name!r}, which a spec has already: rename it")
    held = 0.0 if takes(make, "val_split") else settings.get("val_split", 0.0)
    settings = {name: value for name, value in settings.items() if name != "val_split" or takes(make, "val_split")}
    try:
        task = make(**settings)
    except UserError:
        raise
    except TypeError as error:
        if _inside(error) and not _ours(make.__module__):
            raise UserError(f"task {path} raised {said(error)}") from None
        raise UserError(f"task {path}: {error}") from None
    except (Exception, SystemExit) as error:
        if _ours(make.__module__):
            raise
        raise UserError(f"task {path} raised {said(error)}") from None
    if not isinstance(task, Task):
        raise UserError(f"task {path} must return a raychains.Task, got {type(task).__name__}")
    if not isinstance(make, type) or type(task).settings is Task.settings:
        task.origin = (path, dict(settings))
    return task.holding_out(held)


def takes(make: Callable[..., Any], name: str) -> bool:
    """Whether what makes a task has an argument of this name, or any."""
    parameters = inspect.signature(make).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@contextlib.contextmanager
def current_folder_first() -> Iterator[None]:
    """In the body imports look into the current folder first, as ``python -m`` does; behind it they still look there."""
    folder = os.getcwd()
    known = folder in sys.path or "" in sys.path
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if not known:
            sys.path.append(folder)  # what a function imports when it is called


def said(error: BaseException) -> str:
    """A person's own exception in one line: its kind and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _inside(error: BaseException) -> bool:
    """Whether an exception came from within the function that was called, not from the call itself."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is not None


def _makes_tasks(found: Any) -> bool:
    """Whether something may be called for a task: see the module's docstring."""
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
