"""Settings that only some samplers, schedules or tasks have, given as NAME=VALUE: read, and checked against who has them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from raychains.errors import UserError, unknown_name
from raychains.schedules.base import is_number
from raychains.tasks import Task

ELSEWHERE = {"params", "self", "lr", "temperature", "seed", "lanes", "steps"}
"""Arguments of samplers and schedules that options of their own carry."""


def read(field: str, given: Iterable[str]) -> dict[str, Any]:
    """``["eta=4e-4", "update=gibbs"]`` as a dict; values are JSON or Python literals, else text.

    Raises:
        UserError: an entry without ``=`` or a name given twice.
    """
    found: dict[str, Any] = {}
    for entry in given:
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or name in found:
            raise UserError(f"{field} must be NAME=VALUE, each name once, got {entry!r}")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    for reader in (json.loads, ast.literal_eval):  # Python knows .5 and None, which JSON does not
        try:
            return _as_json(reader(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def _as_json(value: Any) -> Any:
    """A value as specs hold it, tuples as lists.

    Raises:
        ValueError: Python knows it and JSON does not, such as a set or bytes.
    """
    if isinstance(value, list | tuple):
        return [_as_json(v) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {k: _as_json(v) for k, v in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError


def names_of(kind: Callable[..., Any]) -> list[str]:
    """The settings that a sampler, schedule or task class takes, in its own order."""
    elsewhere = set() if isinstance(kind, type) and issubclass(kind, Task) else ELSEWHERE
    return [name for name in inspect.signature(kind).parameters if name not in elsewhere]


def check_known(field: str, given: Mapping[str, Any], kinds: Sequence[Callable[..., Any]]) -> None:
    """Refuse a setting that none of ``kinds`` has.

    Raises:
        UserError: an unknown name; the line tells the known ones.
    """
    known = list(dict.fromkeys(name for kind in kinds for name in names_of(kind)))
    for name in given:
        if name not in known:
            raise unknown_name(field, name, known)


def pick(given: Mapping[str, Any], kind: Callable[..., Any]) -> dict[str, Any]:
    """Those of the given settings that ``kind`` has."""
    mine = names_of(kind)
    return {name: as_float(kind, name, value) for name, value in given.items() if name in mine}


def as_float(kind: Callable[..., Any], name: str, value: Any) -> Any:
    """1 and 1.0 are one setting and must have one digest: an int for a number that may be broken is that number."""
    annotation = str(inspect.signature(kind).parameters[name].annotation)
    return float(value) if "float" in annotation and isinstance(value, int) and is_number(value) else value
