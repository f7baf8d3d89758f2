"""The keywords of `rc.run`, `rc.fit`, `rc.compare`, `rc.sweep`: a command's options, and what only Python can pass."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_type_hints

from raychains import tasks
from raychains.api import callbacks, own_parts
from raychains.callbacks import CallbackList
from raychains.chain import initialization
from raychains.core.config import USUAL, Compare, Fit, Run, Sweep
from raychains.core.data_root import rooted
from raychains.core.errors import UserError, require
from raychains.core.options import make, options_of
from raychains.samplers import Sampler
from raychains.schedules import Schedule
from raychains.tasks import Task

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
C = TypeVar("C", contravariant=True)
ALONE = threading.RLock()
"""Held by a call that samples or evaluates, while other threads' calls wait: a process has one Ray, one data root, and
one task under a name."""
PYTHONS = {
    "task": "A task's name, its import path, or a `raychains.Task` itself.",
    "callback": "One callback or several: objects with a method ``on(event)``, names of built-in ones, or import "
    "paths of classes.",
    "progress": "Whether progress is shown: bars in a terminal, a live view in a notebook, else lines on standard "
    "error.",
    "worker_pool": "Actors to work with (`raychains.api.drivers.worker_pool`), which stay alive; default those of "
    "this call.",
}
"""Texts of the keywords that only Python has, or that take more there."""


@dataclass(frozen=True, kw_only=True)
class _Python:
    """Keywords that only Python has, or that take more there."""

    task: str | Task = "digits"
    callback: callbacks.Requested = None
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class _OneMethod(_Python):
    """Keywords of calls with one method."""

    sampler: str | type[Sampler] | None = None
    schedule: str | type[Schedule] | None = None


@dataclass(frozen=True, kw_only=True)
class RunKeywords(_OneMethod, Run):
    """The keywords of `rc.run`."""

    worker_pool: Any = None


@dataclass(frozen=True, kw_only=True)
class CompareKeywords(_Python, Compare):
    """The keywords of `rc.compare`."""

    sampler: str | type[Sampler] | Sequence[str | type[Sampler]] = ()  # type: ignore[assignment]
    schedule: str | type[Schedule] | Sequence[str | type[Schedule]] = (  # type: ignore[assignment]
        "cyclical",
        "decreasing",
    )
    worker_pool: Any = None


@dataclass(frozen=True, kw_only=True)
class FitKeywords(_Python, Fit):
    """The keywords of `rc.fit`."""

    worker_pool: Any = None


@dataclass(frozen=True, kw_only=True)
class SweepKeywords(_OneMethod, Sweep):
    """The keywords of `rc.sweep`."""


@dataclass(frozen=True)
class Call:
    """One call, read."""

    options: Any
    """The command's dataclass."""
    task: Task | None
    """The task where the user passed the object itself."""
    callback: CallbackList
    """The call's own callbacks, and the display of its progress."""
    worker_pool: Any = None


class Function(Protocol[C, P, R]):
    """A function of a command's options, as one object or by keyword."""

    def __call__(self, options: C | None = None, *args: P.args, **keywords: P.kwargs) -> R: ...


def accepts(kind: type[C], keywords: Callable[P, Any]) -> Callable[[Callable[[Call], R]], Function[C, P, R]]:
    """Give a function of a `Call` the signature and the docstring of a command's options.

    Args:
        kind: the command's dataclass.
        keywords: a dataclass of it with what only Python takes.
    """

    def decorate(function: Callable[[Call], R]) -> Function[C, P, R]:
        @functools.wraps(function)
        def called(options: Any = None, **settings: Any) -> R:
            with reading(kind, options, settings, pythons) as call:
                return function(call)

        pythons = {*inspect.signature(keywords).parameters} - {*options_of(kind)} | {"callback"}
        hints = get_type_hints(keywords)
        known = inspect.signature(keywords).parameters
        order = [name for name in [*USUAL, *known] if name in known]
        fields = [known[name].replace(annotation=hints[name]) for name in dict.fromkeys(order)]
        first = inspect.Parameter("options", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)
        called.__signature__ = inspect.Signature([first, *fields])  # type: ignore[attr-defined]
        texts = {name: option.help for name, option in options_of(kind).items()} | PYTHONS
        arguments = [f"options: A `raychains.{kind.__name__}` instead of keywords."]
        arguments += [f"{field.name}: {texts[field.name]}" for field in fields]
        wrap = functools.partial(
            textwrap.fill, width=110, break_on_hyphens=False, initial_indent=" " * 4, subsequent_indent=" " * 8
        )
        called.__doc__ = "\n".join([f"{inspect.getdoc(function)}\n\nArgs:", *map(wrap, arguments)])
        return cast(Function[C, P, R], called)

    return decorate


@contextlib.contextmanager
def reading(
    kind: Any,
    options: Any,
    settings: Mapping[str, Any],
    pythons: Collection[str] = ("callback", "progress", "worker_pool"),
) -> Iterator[Call]:
    """Yield a call's options and what only Python passes, for a body that runs `ALONE`, with the call's data root; its
    callbacks are closed at the end.

    Args:
        kind: the command's dataclass.
        options: one, or None.
        settings: keywords; those that are given beside ``options`` replace its values.
        pythons: keywords that are no options.

    Raises:
        UserError: an unknown keyword, or a value of another type or out of range.
    """
    settings = dict(settings)
    own = {name: settings.pop(name) for name in pythons if name in settings}
    with ALONE:
        task, made = task_of(_options(kind, options, settings))
        made, own_callbacks = callbacks.named(made, own.get("callback"))
        pool, alone = own.get("worker_pool"), "be left out with `backend=process`, which uses no Ray"
        require(pool is None or made.backend == "ray", "worker_pool", type(pool).__name__, alone)
        with rooted(made.data_root), callbacks.called(own_callbacks, progress=own.get("progress", True)) as called:
            yield Call(made, task, called, pool)


def _options(kind: Any, given: Any, settings: Mapping[str, Any]) -> Any:
    """Return a command's options: those given, with the settings in place of theirs, or of settings alone."""
    if given is None:
        return make(kind, settings)
    if not isinstance(given, kind):
        raise UserError(
            f"options must be a raychains.{kind.__name__}, got a {type(given).__name__}: give settings by keyword"
        )
    return make(kind, {**{name: getattr(given, name) for name in options_of(kind)}, **settings})


def task_of(options: Any) -> tuple[Task | None, Any]:
    """Return the task where the options hold the object itself; and the options with names in place of objects and
    classes."""
    options = own_parts.named(options)
    if isinstance(options.init_from, tuple):
        files = tuple(one if isinstance(one, str) else initialization.to_file(one) for one in options.init_from)
        options = dataclasses.replace(options, init_from=files)
    elif not isinstance(options.init_from, str | None):
        options = dataclasses.replace(options, init_from=initialization.to_file(options.init_from))
    if isinstance(options.task, str):
        return None, options
    if not isinstance(options.task, tasks.Task):
        got = type(options.task).__name__
        raise UserError(f"task must be a name, an import path 'module:name' or a raychains.Task, got a {got}")
    task = tasks.give(options.task)
    return task, dataclasses.replace(options, task=tasks.name_of(task))
