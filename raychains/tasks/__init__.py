"""Tasks, the posteriors that are sampled, by import path or as objects; the built-in ones have short names as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from raychains.core.errors import UserError, format_error, require
from raychains.core.registry import check_name, names_written
from raychains.core.spec import TaskSpec
from raychains.core.user_code import imported, is_ours, load, path_of
from raychains.tasks.base import LogDensity, PredictiveTask, Task
from raychains.tasks.fingerprint import changed
from raychains.tasks.passed_tasks import MADE_OF_OBJECTS, find, forget, give, give_again, travels

__all__ = [
    "NAMES",
    "LogDensity",
    "PredictiveTask",
    "Task",
    "build",
    "check_known",
    "construct",
    "forget",
    "give",
    "give_again",
    "is_known",
    "is_own",
    "kind_of",
    "make",
    "make_by",
    "name_of",
    "takes",
    "travels",
]

NAMES = {name: f"{__name__}.{module}:{kind}" for module, kind, name in names_written("task")}
"""The built-in tasks: their import paths by short name, which a class of this folder states as its ``name``."""


def make(name: str, **settings: object) -> Task:
    """Make the task of a short name, or of an import path ``module:name``.

    Raises:
        UserError: an unknown name, nothing that makes a task at the path, or settings that the task refuses.
    """
    require(isinstance(name, str), "name", name, "be a task's name or an import path 'module:name'")
    return make_by(kind_of(name), name, settings)


def make_by(kind: Callable[..., Task], name: str, settings: Mapping[str, Any]) -> Task:
    """Make the task of a name by the class or function that `kind_of` has found.

    Raises:
        UserError: settings that the task refuses.
    """
    if hasattr(kind, "fitted") and all(takes(kind, setting) for setting in settings):
        settings = kind.fitted(settings)
    task = _constructed(kind, _path(name), settings)
    return task if name in NAMES else give(task)  # found again by its spec, so that its data are read once


def kind_of(name: str) -> Callable[..., Task]:
    """Return the class or the user's function that makes the task of a short name or an import path.

    Raises:
        UserError: an unknown name, or nothing that makes a task at the path.
    """
    check_name("task", name)
    path = _path(name)
    found = load("task", path)
    return _checked(found, path)


def _path(name: str) -> str:
    """Return the import path of a built-in or an installed package's short name; any other name as it is."""
    return NAMES[name] if name in NAMES else path_of("tasks", name)


def name_of(task: Task) -> str:
    """Return the name of a task that was passed as an object; its import path where it has none, or another's."""
    kind = task.spec().kind
    own = getattr(task, "name", None)
    return own if isinstance(own, str) and NAMES.get(own, kind) == kind else kind


def is_known(spec: TaskSpec) -> bool:
    """Return whether a spec's task can be built without importing a module that the spec alone names."""
    return is_ours(spec.kind.partition(":")[0]) or find(spec) is not None or imported(spec.kind) is not None


def is_own(spec: TaskSpec) -> bool:
    """Return whether a task is a user's: made of a user's model or density, or of a class that is not raychains'
    own."""
    return spec.kind in MADE_OF_OBJECTS or not is_ours(spec.kind.partition(":")[0])


def check_known(spec: TaskSpec) -> None:
    """Refuse a task whose module would have to be imported because a store names it."""
    if not is_known(spec):
        raise UserError(
            f"task {spec.kind} is code that this process has not imported, and a store's names are imported only with "
            "`trust=True`: pass that, or the task itself, raychains.load(path, task=…)"
        )


def build(spec: TaskSpec) -> Task:
    """Return the task that a spec describes, with its data checked against the spec's fingerprint.

    An object that was passed (`give`) is found again; any other task is made anew.

    Raises:
        UserError: no such task, another revision, or other data than the spec was made with.
    """
    known = find(spec)
    if known is not None:
        return known
    task = construct(spec.kind, spec.settings)
    if task.revision != spec.revision:
        raise UserError(f"task {spec.kind} revision must be {task.revision} for this version, got {spec.revision}")
    if task.fingerprint != spec.fingerprint:
        raise UserError(f"task {spec.kind}: {changed(task.spec(), spec)}")
    return task


# Tasks by import path: a class, or a function that returns one


def _checked(found: Any, path: str) -> Callable[..., Task]:
    """Return what is at ``module:name`` if it is a Task subclass, or a function that makes a task.

    Raises:
        UserError: something that makes no task.
    """
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
        UserError: nothing that makes a task at the path; arguments that do not fit; a function that raises, or returns
            no task.
    """
    return _constructed(_checked(load("task", path), path), path, settings)


def _constructed(kind: Callable[..., Task], path: str, settings: Mapping[str, Any]) -> Task:
    for name in ("kind", "revision", "fingerprint"):
        if name in settings:
            raise UserError(f"task {path}: an argument cannot be called {name!r}, which a spec has already: rename it")
    settings = dict(settings)
    held: dict[str, Any] = {"val_split": 0.0, "split_seed": 0}
    if not takes(kind, "val_split"):
        held = {name: settings.pop(name, default) for name, default in held.items()}
    try:
        task = kind(**settings)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        ours = is_ours(kind.__module__)
        if isinstance(error, TypeError) and (ours or not _inside(error)):
            raise UserError(f"task {path}: {error}") from None
        if ours:
            raise
        raise UserError(f"task {path} raised {format_error(error, kind=True)}") from None
    if not isinstance(task, Task):
        raise UserError(f"task {path} must return a raychains.Task, got {type(task).__name__}")
    if not isinstance(kind, type) or type(task).settings is Task.settings:
        task.origin = (path, settings)
    return task.holding_out(**held)


def takes(make: Callable[..., Any], name: str) -> bool:
    """Return whether what makes a task has an argument of this name, or any."""
    parameters = inspect.signature(make).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _inside(error: BaseException) -> bool:
    """Return whether an exception came from within the function that was called, not from the call itself."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is not None


def _makes_tasks(found: Any) -> bool:
    """Return whether something may be called for a task.

    A plan in a store names its task by an import path, too, so a function is called only where it is meant to make
    tasks: a plain function of a module that imports raychains. ``os:system`` is none.
    """
    function = inspect.unwrap(found) if callable(found) else found
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or is_ours(function.__module__ or ""):
        return False
    return any(is_ours(_home(value)) for value in function.__globals__.values())


def _home(value: Any) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name if isinstance(value, ModuleType | type | FunctionType) and isinstance(name, str) else ""
