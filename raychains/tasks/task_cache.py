"""Tasks that were passed as objects, found by their spec, and what identifies a task of a user's model and data.

The user passes one to `raychains.run` or `raychains.load`; workers and evaluators get theirs from the driver. The store
never holds one, so whoever opens a run of such a task must pass the same object again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from raychains.core.errors import UserError, require
from raychains.core.sample import tensors_sha256
from raychains.core.spec import TaskSpec, canonical_json
from raychains.core.user_code import is_local
from raychains.core.validation import MOST, is_int
from raychains.tasks.base import Task

MADE_OF_OBJECTS = {
    "raychains.tasks.module:FromModule": "Task.from_module",
    "raychains.tasks.density:FromLogDensity": "Task.from_log_density",
}
"""Kinds of the tasks that are made of a user's functions, and what makes them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,59}")
_GIVEN: dict[tuple[str, str], Task] = {}
"""The last object under each kind and name: a newer one replaces an older, so that its data are freed."""
PARTS = {
    "version": "version",
    "likelihood": "likelihood",
    "output": "output",
    "train": "training data",
    "test": "test data",
    "val": "validation data",
    "split": "held-out part",
    "layout": "layout of the model",
    "parameters": "initial parameters",
    "density": "log density",
    "data": "data",
    "start": "initial position",
    "reference": "reference",
}
"""The parts of the fingerprint of a task that was made of a user's model and data, and their names in messages."""
TEXTS = ("version", "likelihood", "split")
"""Parts that are no hashes."""


def give(task: Task) -> Task:
    """Make an object known to `find` and return it."""
    spec = task.spec()
    _GIVEN[_key(spec)] = task
    return task


def give_again(task: Task, spec: TaskSpec) -> Task:
    """Make an object known that must be the task of ``spec``.

    Raises:
        UserError: it is another; the message names what differs.
    """
    if not isinstance(task, Task):
        raise UserError(f"task must be a raychains.Task, got a {type(task).__name__}")
    task = _divided_as(task, spec)
    mine = task.spec()
    if mine != spec:
        raise UserError(f"task differs from the run's: {own_differences(mine, spec) or _otherwise(mine, spec)}")
    return give(task)


def _otherwise(mine: TaskSpec, spec: TaskSpec) -> str:
    """Return how tasks differ whose data and models do not."""
    if mine.kind != spec.kind:
        return f"it is {mine.kind} here, {spec.kind} in the run"
    here, there = ({"revision": one.revision, **one.settings} for one in (mine, spec))
    names = [name for name in here | there if here.get(name) != there.get(name)]
    return (
        ", ".join(f"{name} is {here.get(name)!r} here, {there.get(name)!r} in the run" for name in names) or "its data"
    )


def forget() -> None:
    """Drop all objects and their data."""
    _GIVEN.clear()


def find(spec: TaskSpec) -> Task | None:
    """Return the object of this very spec; None where the spec is enough to build one.

    Raises:
        UserError: only an object can be this task, and none was passed, or another one.
    """
    task = _GIVEN.get(_key(spec))
    if task is None and "val_split" in spec.settings and (whole := _GIVEN.get((spec.kind, _name(spec)))) is not None:
        task = _divided_as(whole, spec)
    if task is not None and task.spec() == spec:
        return task
    if spec.kind not in MADE_OF_OBJECTS:
        return None
    name = spec.settings.get("name")
    if task is None:
        raise UserError(
            f"task {name!r} was made by {MADE_OF_OBJECTS[spec.kind]} and is not in the store: give the same object, as "
            "in raychains.load(path, task=…), or resume=True in the script that made it"
        )
    raise UserError(f"task {name!r} differs from the run's: {differences(task.spec(), spec)}")


def travels(task: Task) -> bool:
    """Return whether other processes need the object itself, being of no class that they could import and rebuild."""
    kind = task.spec().kind
    return kind in MADE_OF_OBJECTS or is_local(kind)


def _divided_as(task: Task, spec: TaskSpec) -> Task:
    """Return the task with the part held out that ``spec``'s run held out of the same object."""
    theirs, mine = spec.settings, task.spec().settings
    if "val_split" not in theirs or "val_split" in mine:
        return task
    seed = theirs.get("split_seed", 0) if spec.kind in MADE_OF_OBJECTS else 0
    try:
        return task.holding_out(theirs["val_split"], seed)
    except UserError:  # other data, or none that can be divided: the message is on the task itself
        return task


def _key(spec: TaskSpec) -> tuple[str, str]:
    if spec.kind not in MADE_OF_OBJECTS:
        return spec.kind, ""
    held = f"/{spec.settings['val_split']}" if "val_split" in spec.settings else ""
    return spec.kind, f"{_name(spec)}{held}"


def _name(spec: TaskSpec) -> str:
    return str(spec.settings.get("name")) if spec.kind in MADE_OF_OBJECTS else ""


# Identity


def check_own_name(name: object, version: object) -> None:
    """Refuse a name or a version that a task made of a user's functions cannot have."""
    from raychains.tasks import NAMES

    ok = isinstance(name, str) and _NAME.fullmatch(name) is not None
    require(ok, "name", name, "be 1 to 60 letters, digits, spaces, '.', '_' or '-' and start with a letter or digit")
    require(name not in NAMES, "name", name, "not be that of a built-in task")
    ok = isinstance(version, str) or (is_int(version) and abs(version) <= MOST)
    require(ok, "version", version, "be a text or an integer")


def checked_defaults(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values of options that a task made of a user's functions states."""
    ok = given is None or (isinstance(given, Mapping) and all(isinstance(name, str) for name in given))
    require(ok, "defaults", given, "be a dict of options by name")
    return {} if given is None else dict(given)


def fingerprint(parts: Mapping[str, str]) -> str:
    """Return one text of all parts; `differences` reads it."""
    return canonical_json(dict(parts))


def model_parts(model: nn.Module) -> dict[str, str]:
    """Return hashes of a model's layout (names, shapes and dtypes of its state) and of its values."""
    state = model.state_dict()
    layout = [[name, list(t.shape), str(t.dtype)] for name, t in state.items()]
    text = canonical_json(layout).encode()
    return {"layout": hashlib.sha256(text).hexdigest(), "parameters": tensors_sha256(state)}


def differences(here: TaskSpec, there: TaskSpec) -> str:
    """Return which parts of two specs of one name differ: ``training data``, ``version ('2' here, '1' in the run)``."""
    mine, theirs = _parts(here), _parts(there)
    if mine is None or theirs is None:
        return "its data"
    found = []
    for part, name in PARTS.items():
        if mine.get(part) != theirs.get(part):
            shown = (
                f" ({mine.get(part, 'none')!r} here, {theirs.get(part, 'none')!r} in the run)" if part in TEXTS else ""
            )
            found.append(name + shown)
    names = sorted({*here.settings, *there.settings} - {"name", "version", "loss", "noise", "val_split", "split_seed"})
    found += [name for name in names if here.settings.get(name) != there.settings.get(name)]
    if here.revision != there.revision:
        found.append(f"revision ({here.revision} here, {there.revision} in the run)")
    # A layout of its own always comes with values of its own.
    if PARTS["layout"] in found and PARTS["parameters"] in found:
        found.remove(PARTS["parameters"])
    return " and ".join(found) or "nothing that its fingerprint tells"


def own_differences(here: TaskSpec, there: TaskSpec) -> str:
    """Return the `differences` of two specs of one kind whose fingerprints have parts; empty where there are none."""
    comparable = here.kind == there.kind and _parts(here) is not None and _parts(there) is not None
    return differences(here, there) if comparable and here.fingerprint != there.fingerprint else ""


def changed(here: TaskSpec, there: TaskSpec) -> str:
    """Return the message on a task whose data are no longer those of a spec."""
    if _parts(here) is not None and _parts(there) is not None:
        return f"it differs from that of the spec: {differences(here, there)}"
    return (
        f"the data differ from those of the spec: fingerprint {here.fingerprint[:12]} here, "
        f"{there.fingerprint[:12]} there"
    )


def _parts(spec: TaskSpec) -> dict[str, Any] | None:
    try:
        parts = json.loads(spec.fingerprint)
    except ValueError:
        return None
    return parts if isinstance(parts, dict) else None
