"""Options from a JSON file, as words of a command line that the person's own words follow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raychains.errors import UserError, unknown_name

FLAG = "--options"


def expanded(kind: Any, arguments: Sequence[str]) -> list[str]:
    """``arguments`` without ``--options FILE``, behind those that the file names: of one option, the last word counts.

    Args:
        kind: the command's dataclass.
        arguments: as the person gave them.

    Raises:
        UserError: a file that is none, or names what the command has not.
    """
    own = list(arguments)
    at = next((i for i, word in enumerate(own) if word == FLAG or word.startswith(f"{FLAG}=")), None)
    if at is None:
        return own
    _, equals, file = own.pop(at).partition("=")
    if not equals:
        if at == len(own):
            raise UserError("options must be given a JSON file, as in --options best.json, got nothing")
        file = own.pop(at)
    return [*_words(kind, file), *own]


def _words(kind: Any, file: str) -> list[str]:
    try:
        found = json.loads(_read(file))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"options must be a JSON file, got {file!r}: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise UserError(f"options must be a JSON file with an object of names and values, got {file!r}")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    words: list[str] = []
    for name, value in found.items():
        if name not in fields:
            raise unknown_name(f"name in {file}", name, fields)
        words += _of(name, value)
    return words


def _read(file: str) -> bytes:
    if "://" not in file:
        return Path(file).expanduser().read_bytes()
    from raychains.store import Root

    plain, question, query = file.partition("?")
    folder, _, name = plain.rpartition("/")
    return Root(f"{folder}{question}{query}").read(name)


def _of(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{name.replace('_', '-')}"]
    if isinstance(value, list):
        return [flag, *(v if isinstance(v, str) else json.dumps(v) for v in value)] if value else []
    return [flag, value if isinstance(value, str) else json.dumps(value)]
