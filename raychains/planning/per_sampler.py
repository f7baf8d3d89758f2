"""Options that may differ between a comparison's samplers: one number for all of them, or a text
``sgld=.1,sghmc=.01``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from raychains import samplers
from raychains.core import settings_parser
from raychains.core.config import Sampling
from raychains.core.errors import UserError, require, shown, unknown_name
from raychains.core.options import options_of
from raychains.core.user_code import path_of
from raychains.core.validation import as_number, is_number

Options = TypeVar("Options", bound=Sampling)
PER_SAMPLER = tuple(name for name, option in options_of(Sampling).items() if option.form.per_sampler)
"""The options that take values by sampler."""


def chosen(options: Options, sampler: str) -> Options:
    """Return the options of one of the comparison's samplers, with numbers where they have texts by sampler; None, the
    sampler's default, where a text does not name it."""
    texts = {name: text for name in PER_SAMPLER if isinstance(text := getattr(options, name), str)}
    own: dict[str, Any] = {name: _read(name, text).get(_full(sampler)) for name, text in texts.items()}
    return dataclasses.replace(options, **own) if own else options


def check(options: Sampling, chosen: Iterable[str]) -> None:
    """Refuse values for samplers that are not among the chosen ones.

    Raises:
        UserError: such a name.
    """
    known = {_full(name): name for name in chosen}
    for name in PER_SAMPLER:
        given = getattr(options, name)
        for sampler in _read(name, given) if isinstance(given, str) else ():
            if sampler not in known:
                raise unknown_name(f"sampler of {name}", sampler, known.values())


def as_text(name: str, given: Mapping[Any, Any]) -> str:
    """Return a mapping from samplers, by name or as classes, to numbers as the command line writes it.

    Raises:
        UserError: keys that are no samplers, or values that are no numbers.
    """
    entries = []
    for sampler, number in given.items():
        text = samplers.KINDS.name_of(sampler) if isinstance(sampler, type) else sampler
        number = as_number(number)
        if not isinstance(text, str) or not (number is None or is_number(number)):
            raise UserError(f"{name} must give each sampler one number, got {shown(sampler)}: {shown(number)}")
        entries.append(f"{text}={number!r}")
    require(bool(entries), name, dict(given), "name a sampler")
    return ",".join(entries)


def _read(name: str, given: str) -> dict[str, Any]:
    """Return ``"sgld=.1,lm:LM=.01"`` as numbers by sampler."""
    return {_full(sampler): number for sampler, number in settings_parser.by_sampler(name, given, "a number").items()}


def _full(sampler: str) -> str:
    """Return a sampler's import path where its name is an installed package's, else its name."""
    return sampler if sampler in samplers.METHODS else path_of("samplers", sampler)
