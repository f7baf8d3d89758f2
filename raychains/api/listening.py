"""Who listens to a call: the caller's own listeners, and the built-in ones that its options name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raychains.errors import UserError, require, unknown_name
from raychains.listeners import NAMES
from raychains.listeners.extras import client
from raychains.options import Common
from raychains.store import Root, RunStore, SweepStore
from raychains.store.names import LONGEST_PART

if TYPE_CHECKING:
    from raychains.listeners import Listener, Listeners

CLIENTS = ("mlflow", "wandb")
"""Listeners that are clients of the package of the same name, an extra."""


def names(options: Common) -> list[str]:
    """The built-in listeners that are asked for, each once; a file or folder asks for its writer.

    Raises:
        UserError: there is none of a name.
    """
    for name in options.listen:
        if name not in NAMES:
            raise unknown_name("listen", name, NAMES)
    return list(dict.fromkeys([*options.listen, *["tensorboard"] * (options.tensorboard is not None)]))


def check(options: Common) -> None:
    """Refuse, before anything starts, what `build` would refuse.

    Raises:
        UserError: an unknown name, a package that is missing, a log without a folder, or TensorBoard without a local one.
    """
    wanted = names(options)
    for name in wanted:
        if name in CLIENTS:
            client(name)
    if options.log is not None:
        ok = _is_name(options.log) and os.path.isdir(Path(options.log).parent) and not os.path.isdir(options.log)
        require(ok, "log", options.log, "be a local file in a folder that exists")
    if "tensorboard" in wanted:
        _tensorboard_folder(options, Root(options.store), "-")


def build(options: Common, folder: RunStore, driver: str) -> list[Listener]:
    """The built-in listeners that are asked for; whoever asks closes them.

    Args:
        options: ``listen``, ``log`` and ``tensorboard`` of them; trackers are told all.
        folder: the run's, or the sweep's.
        driver: the driver's id.

    Raises:
        UserError: one cannot begin; those before it are closed.
    """
    from raychains.listeners import Listeners
    from raychains.listeners.sweeping import OfSweep

    root, run = folder.root, folder.name
    makers: dict[str, Callable[[], Any]] = {
        "jsonl": lambda: _jsonl(folder, driver),
        "mlflow": lambda: _mlflow(run, _config(options, root)),
        "ray-metrics": lambda: _ray_metrics(run),
        "tensorboard": lambda: _tensorboard(_tensorboard_folder(options, root, f"{folder.kind}s/{run}")),
        "wandb": lambda: _wandb(run, _config(options, root)),
    }
    made: list[Listener] = []
    try:
        if options.log is not None:
            made.append(_file(options.log, run))
        for name in names(options):
            one = makers[name]()
            made.append(OfSweep(one) if isinstance(folder, SweepStore) and name != "jsonl" else one)
    except BaseException:
        Listeners(made).close()
        raise
    return made


def listen(listeners: Listeners, options: Common, folder: RunStore, driver: str) -> None:
    """Let the built-in listeners that are asked for hear what comes from here on, too; arguments and errors as `build`'s."""
    for one in build(options, folder, driver):
        listeners.add(one)


def _config(options: Common, root: Root) -> dict[str, Any]:
    """What was asked for, without what a store's URI may hold of secrets."""
    return {**dataclasses.asdict(options), "store": root.location()}


def _file(file: str, run: str) -> Listener:
    from raychains.listeners.jsonl import JsonLinesFile

    return JsonLinesFile(file, run)


def _jsonl(folder: RunStore, driver: str) -> Listener:
    from raychains.listeners.jsonl import JsonLinesParts

    return JsonLinesParts(folder, driver)


def _tensorboard(folder: Path) -> Listener:
    from raychains.listeners.tensorboard import TensorBoard

    return TensorBoard(folder)


def _tensorboard_folder(options: Common, root: Root, folder: str) -> Path:
    if options.tensorboard is not None:
        ok = "://" not in options.tensorboard and _is_name(options.tensorboard)
        require(ok and not os.path.isfile(options.tensorboard), "tensorboard", options.tensorboard, "be a local folder")
        return Path(options.tensorboard)
    if not root.exclusive:
        raise UserError(
            f"tensorboard must be a local folder, given by --tensorboard, where the store is none, got {root.location()!r}"
        )
    return Path(root.location(f"{folder}/tensorboard").removeprefix("file://"))


def _is_name(path: str) -> bool:
    """Whether a file or folder can have this name."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return bool(name) and b"\0" not in name and all(len(part) <= LONGEST_PART for part in name.split(b"/"))


def _ray_metrics(run: str) -> Listener:
    from raychains.orchestration.metrics import RayMetrics

    return RayMetrics(run)


def _mlflow(run: str, config: dict[str, Any]) -> Listener:
    from raychains.listeners.mlflow import MLflow

    return MLflow(run, config)


def _wandb(run: str, config: dict[str, Any]) -> Listener:
    from raychains.listeners.wandb import WandB

    return WandB(run, config)
