"""The checksum in a JSON object that a machine writes: an entry ``sha256`` over all others.

Older versions wrote most of their files without one, which are read as they are. An entry whose name was altered does
not pass for such a file: its value still is the checksum of all others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

NAME = "sha256"
LEFT_OUT = ("format", NAME)
"""Entries that it is not over: a format number is checked by itself, before anything else is read."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def of(value: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON object as it was read."""
    own = {name: entry for name, entry in value.items() if name not in LEFT_OUT}
    return hashlib.sha256(json.dumps(own, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its checksum."""
    return {**value, NAME: of(json.loads(json.dumps(dict(value))))}  # as it will be read: keys are texts, tuples lists


def unsealed(value: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a JSON object without its checksum, and whether it has the right one or, as older files, none."""
    own = {name: entry for name, entry in value.items() if name != NAME}
    if NAME in value:
        return own, of(own) == value[NAME]
    digests = [name for name, entry in own.items() if isinstance(entry, str) and _SHA256.fullmatch(entry)]
    return own, all(of({n: e for n, e in own.items() if n != name}) != own[name] for name in digests)
