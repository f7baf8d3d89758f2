"""Samplers and schedules that the user passes as classes, by the names that options hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from raychains import priors, samplers, schedules
from raychains.core.config import Sampling
from raychains.core.errors import UserError, shown
from raychains.planning import per_sampler

Options = TypeVar("Options", bound=Sampling)


def named(options: Options) -> Options:
    """Return the options with names in place of classes, and with numbers by sampler as texts.

    Raises:
        UserError: a class that is no sampler or schedule, or an object in place of one.
    """
    found: dict[str, Any] = {}
    for field, room in (("sampler", samplers), ("schedule", schedules)):
        if not hasattr(options, field):
            continue
        given: Any = getattr(options, field)
        several = isinstance(_default(options, field), tuple)
        listed = tuple(given) if several and isinstance(given, list | tuple) else () if given is None else (given,)
        names = tuple(_name(field, room.KINDS, one) for one in listed)
        if names != listed:
            found[field] = names if several else names[0]
    for field in per_sampler.PER_SAMPLER:
        if isinstance(given := getattr(options, field), Mapping):
            found[field] = per_sampler.as_text(field, given)
    if options.prior:
        found["prior"] = priors.as_texts(options.prior)
    return dataclasses.replace(options, **found) if found else options


def _name(field: str, kinds: Any, given: Any) -> Any:
    if isinstance(given, type):
        return kinds.name_of(given)
    if isinstance(given, samplers.Sampler | schedules.Schedule):
        name = type(given).__name__
        raise UserError(
            f"{field} must be a name or a class, got an object of {name}: pass the class, and its settings as "
            f"{field}_settings"
        )
    if not isinstance(given, str):
        raise UserError(f"{field} must be a name, an import path 'module:Class' or a class, got {shown(given)}")
    return given


def _default(options: Any, field: str) -> Any:
    return next(f.default for f in dataclasses.fields(options) if f.name == field)
