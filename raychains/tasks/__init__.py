"""What is sampled. Tasks are named by import path; the built-in ones have short names as well."""

from __future__ import annotations

import importlib
from typing import Any

from raychains.errors import UserError, unknown_name
from raychains.spec import TaskSpec
from raychains.tasks.base import Task

NAMES: dict[str, str] = {
    "digits": "raychains.tasks.digits:Digits",
    "mixture25": "raychains.tasks.mixture:Mixture25",
    "gaussian": "raychains.tasks.gaussian:Gaussian",
    "two-modes": "raychains.tasks.two_modes:TwoModes",
    "linear-regression": "raychains.tasks.linear_regression:LinearRegression",
}

__all__ = ["NAMES", "Task", "build", "make"]


def make(name: str, **settings: object) -> Task:
    """The task of a short name.

    Raises:
        UserError: an unknown name, or settings that the task refuses.
    """
    kind_of(name)
    return _construct(NAMES[name], settings)


def kind_of(name: str) -> type[Task]:
    """The class behind a short name.

    Raises:
        UserError: an unknown name.
    """
    if name not in NAMES:
        raise unknown_name("task", name, NAMES)
    return _class(NAMES[name])


def build(spec: TaskSpec) -> Task:
    """The task that a spec describes, with its data checked against the spec's fingerprint.

    Raises:
        UserError: no such task, another revision, or other data than the spec was made with.
    """
    task = _construct(spec.kind, dict(spec.settings))
    if task.revision != spec.revision:
        raise UserError(f"task {spec.kind} revision must be {task.revision} for this version, got {spec.revision}")
    if task.fingerprint != spec.fingerprint:
        raise UserError(
            f"task {spec.kind}: the data differ from those of the spec: fingerprint {task.fingerprint[:12]} here, "
            f"{spec.fingerprint[:12]} there"
        )
    return task


def _class(path: str) -> type[Task]:
    module, _, name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(f"task must be an import path 'module:Class', got {path!r}: {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise UserError(f"task must name a subclass of raychains.tasks.Task, got {path!r}")
    return kind


def _construct(path: str, settings: dict[str, object]) -> Task:
    kind: Any = _class(path)
    try:
        return kind(**settings)
    except TypeError as error:
        raise UserError(f"task {path}: {error}") from None
