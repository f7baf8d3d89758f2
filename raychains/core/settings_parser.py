"""Settings that only some samplers, schedules or tasks have, as NAME=VALUE: read, and checked against those that have
them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from raychains.core.errors import UserError, shown, unknown_name
from raychains.core.validation import is_number

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def entries(field: str, given: Sequence[str]) -> Sequence[str]:
    """Return ``["eta=4e-4", "update=gibbs"]`` as it is, checked.

    Raises:
        UserError: an entry without ``=`` or a name given twice.
    """
    known = set()
    for entry in given:
        name, _ = _parted(entry)
        if "=" not in entry or not name or name in known:
            raise UserError(f"{field} must be NAME=VALUE, each name once, got {entry!r}")
        known.add(name)
    return given


def texts(given: Iterable[str]) -> dict[str, str]:
    """Return an option's `entries` as texts by name, as Python has it."""
    return dict(map(_parted, given))


def _parted(entry: str) -> tuple[str, str]:
    name, _, text = entry.partition("=")
    return name.strip().replace("-", "_"), text


def values(given: Iterable[str]) -> dict[str, Any]:
    """Return an option's `entries` as a dict; values are JSON or Python literals, else text."""
    return {name: value(text) for name, text in texts(given).items()}


def value(text: str) -> Any:
    """Return a text as the JSON or Python literal that it is, else the text."""
    for reader in (json.loads, ast.literal_eval):  # Python knows .5 and None, which JSON does not
        try:
            return _as_json(reader(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def _as_json(value: Any) -> Any:
    """Return a value as specs hold it, tuples as lists.

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


def by_sampler(field: str, given: str, kind: str) -> dict[str, float | None]:
    """Return ``"sgld=.1,lm:LM=.01"`` as numbers by sampler; None is the sampler's default.

    Args:
        kind: of the numbers, in messages.

    Raises:
        UserError: a sampler that is given twice, or something that is no number.
    """
    found: dict[str, float | None] = {}
    for entry in given.split(","):
        name, _, text = entry.partition("=")
        sampler, number = name.strip(), value(text)
        if not sampler or sampler in found or not (number is None or is_number(number)):
            raise UserError(f"{field} must give each sampler {kind}, as in sgld=A,sghmc=B, got {shown(given)}")
        found[sampler] = number
    return found


def names_of(kind: Callable[..., Any]) -> list[str]:
    """Return the settings that a sampler, schedule, task or function that makes a task takes, in its own order."""
    own = getattr(kind, "own_options", ())
    return [p.name for p in _parameters(kind) if p.name not in own and p.kind not in VARIADIC]


def _parameters(kind: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(kind).parameters.values())


def _takes_any(kind: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in _parameters(kind))


def check_known(field: str, given: Iterable[str], kinds: Collection[Callable[..., Any]]) -> None:
    """Refuse a setting, given as NAME=VALUE, that none of ``kinds`` has.

    Raises:
        UserError: an unknown name; the message lists the known ones.
    """
    known = list(dict.fromkeys(name for kind in kinds for name in names_of(kind)))
    for name in texts(given):
        if name not in known and not any(map(_takes_any, kinds)):
            if not known:
                raise UserError(f"{field} must be left out, got {name!r}: there are none")
            raise unknown_name(field, name, known)


def pick(given: Mapping[str, Any], kind: Callable[..., Any]) -> dict[str, Any]:
    """Return those of the given settings that ``kind`` has."""
    mine = names_of(kind)
    return {name: as_float(kind, name, value) for name, value in given.items() if name in mine or _takes_any(kind)}


def of_kind(given: Iterable[str], kind: Callable[..., Any]) -> dict[str, Any]:
    """Return those of the settings, given as NAME=VALUE, that ``kind`` has."""
    return pick(values(given), kind)


def as_float(kind: Callable[..., Any], name: str, value: Any) -> Any:
    """Return the value, an int as a float where the setting is one: 1 and 1.0 are one setting and must have one
    digest."""
    annotation = str(next((p.annotation for p in _parameters(kind) if p.name == name), ""))
    return float(value) if "float" in annotation and isinstance(value, int) and is_number(value) else value
