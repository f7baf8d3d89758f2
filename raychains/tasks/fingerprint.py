"""The identity of a task that is made of a user's model and data or density: its name, its fingerprint, and how two
differ."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from raychains.core.errors import require
from raychains.core.registry import known_names
from raychains.core.sample import tensors_sha256
from raychains.core.spec import TaskSpec, canonical_json
from raychains.core.validation import MOST, is_int

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,59}")
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


def check_own_name(name: object, version: object) -> None:
    """Refuse a name or a version that a task made of a user's functions cannot have."""
    ok = isinstance(name, str) and _NAME.fullmatch(name) is not None
    require(ok, "name", name, "be 1 to 60 letters, digits, spaces, '.', '_' or '-' and start with a letter or digit")
    require(name not in known_names("task"), "name", name, "not be that of a built-in task")
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
