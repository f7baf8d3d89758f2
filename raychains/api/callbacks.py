"""The callbacks of a call: the caller's own, and the built-in ones that its options name."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from raychains.callbacks import NAMES, Callback, CallbackList, jsonl, trackers
from raychains.core.config import Common
from raychains.core.errors import UserError, require
from raychains.core.user_code import load, path_of
from raychains.store import RunStore, Storage

if TYPE_CHECKING:
    from raychains.report.terminal import Terminal

Options = TypeVar("Options", bound=Common)
Requested = Callback | str | Sequence[Callback | str] | None
"""One or several callbacks; a text names a built-in one, or a class by its import path."""


def named(options: Options, callbacks: Requested) -> tuple[Options, list[Callback]]:
    """Return options with the names among ``callbacks`` added to those of built-in ones, and the callback objects."""
    listed: list[Any] = [*callbacks] if isinstance(callbacks, list | tuple) else [callbacks] * (callbacks is not None)
    names = tuple(one for one in listed if isinstance(one, str))
    if names:
        options = dataclasses.replace(options, callback=(*options.callback, *names))
    return options, [one for one in listed if not isinstance(one, str)]


@contextlib.contextmanager
def called(own: Sequence[Callback], *, progress: bool) -> Iterator[CallbackList]:
    """Yield a call's own callbacks as one, and with ``progress`` a display of it before them; they are closed at the
    end.

    Raises:
        UserError: ``progress`` is neither true nor false, or something is no callback.
    """
    require(isinstance(progress, bool), "progress", progress, "be true or false")
    with CallbackList([*([progress_display()] if progress else []), *own]) as called:
        yield called


def progress_display() -> Terminal:
    """Return a callback that shows progress to who calls from Python: in a terminal, a notebook, or a log."""
    from raychains.report.console import standard_error
    from raychains.report.terminal import Terminal

    return Terminal(standard_error())


def requested(options: Common, folder: RunStore) -> list[Callable[[str], Callback]]:
    """Return what makes each callback that the options request by name, given the driver's id, for a run or a sweep.

    Raises:
        UserError: no class at an import path, a package that is missing, or TensorBoard without a local folder.
    """
    log = options.log
    logs = [] if log is None else [lambda _: jsonl.JsonLinesFile(log, folder.name)]
    names = dict.fromkeys([*options.callback, *["tensorboard"] * (options.tensorboard is not None)])
    return [*logs, *(_maker(name, options, folder) for name in names)]


def _maker(name: str, options: Common, folder: RunStore) -> Callable[[str], Callback]:
    if name not in NAMES:
        own = _own(path_of("callbacks", name))
        return lambda _: own()
    if name == "jsonl":
        return lambda driver: _built_in(name)(folder, driver)
    if name == "ray-metrics":
        return lambda _: _built_in(name)(folder.name)
    if name == "tensorboard":
        at = _tensorboard_folder(options, folder.root, f"{folder.kind}s/{folder.name}")
        return lambda _: _built_in(name)(at)
    trackers.client(name)
    # Without the secrets that a store's URI may hold.
    config = {**dataclasses.asdict(options), "store": folder.root.location()}
    return lambda _: _built_in(name)(folder.name, config)


def _built_in(name: str) -> Any:
    return load("callback", NAMES[name])


def _own(path: str) -> Any:
    """Return the user's class at an import path."""
    found = load("callback", path)
    ok = isinstance(found, type) and callable(getattr(found, "on", None))
    require(ok, "callback", path, "name a class with a method on(event)")
    return found


def _tensorboard_folder(options: Common, root: Storage, folder: str) -> Path:
    if options.tensorboard is not None:
        return Path(options.tensorboard)
    if not root.exclusive:
        raise UserError(
            "tensorboard must be a local folder, given by `tensorboard`, where the store is none, got "
            f"{root.location()!r}"
        )
    return root.folder(f"{folder}/tensorboard")
