"""What identifies a task that was made of somebody's model and data: hashes of each part, so that a change can be named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch import nn

from raychains.sample import tensors_sha256
from raychains.spec import TaskSpec, canonical_json

PARTS = {
    "version": "version",
    "likelihood": "likelihood",
    "train": "training data",
    "test": "test data",
    "val": "validation data",
    "split": "held-out part",
    "layout": "layout of the model",
    "parameters": "initial parameters",
}
"""Parts of a fingerprint and how they are called for people."""
SHOWN = ("version", "likelihood", "split")
"""Parts that are no hashes."""


def fingerprint(parts: Mapping[str, str]) -> str:
    """One text of all parts; `differences` reads it again."""
    return canonical_json(dict(parts))


def model_parts(model: nn.Module) -> dict[str, str]:
    """Hashes of a model's layout (names, shapes and dtypes of its state) and of its values."""
    state = model.state_dict()
    layout = [[name, list(t.shape), str(t.dtype)] for name, t in state.items()]
    text = canonical_json(layout).encode()
    return {"layout": hashlib.sha256(text).hexdigest(), "parameters": tensors_sha256(state)}


def differences(here: TaskSpec, there: TaskSpec) -> str:
    """Which parts of two specs of one name differ, for people: ``training data``, ``version ('2' here, '1' in the run)``."""
    mine, theirs = _parts(here), _parts(there)
    if mine is None or theirs is None:
        return "its data"
    found = []
    for part, name in PARTS.items():
        if mine.get(part) != theirs.get(part):
            shown = (
                f" ({mine.get(part, 'none')!r} here, {theirs.get(part, 'none')!r} in the run)" if part in SHOWN else ""
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
    """`differences` of two specs of one kind whose fingerprints tell their parts; empty where there are none."""
    comparable = here.kind == there.kind and _parts(here) is not None and _parts(there) is not None
    return differences(here, there) if comparable and here.fingerprint != there.fingerprint else ""


def changed(here: TaskSpec, there: TaskSpec) -> str:
    """What to say of a task whose data are no longer those of a spec."""
    if _parts(here) is not None and _parts(there) is not None:
        return f"it differs from that of the spec: {differences(here, there)}"
    return f"the data differ from those of the spec: fingerprint {here.fingerprint[:12]} here, {there.fingerprint[:12]} there"


def _parts(spec: TaskSpec) -> dict[str, Any] | None:
    try:
        parts = json.loads(spec.fingerprint)
    except ValueError:
        return None
    return parts if isinstance(parts, dict) else None
