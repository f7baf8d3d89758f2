"""Measures of finished runs, one per file: what `raychains evaluate --measures …` computes, its tables and its figures.

A module of this folder that defines ``MEASURE`` is a measure of the module's name; nothing else registers it. A user's
own measure is named by its import path, ``module:MEASURE``, or by the short name that its package gives it.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from raychains.core.errors import require, unknown_name
from raychains.core.registry import modules_defining
from raychains.core.user_code import installed, is_path, load, path_of
from raychains.measures.measure import Context, Measure, Tables

NAMES = modules_defining("measures", "MEASURE")
"""The names of all measures; none of them is imported for it."""


def named(name: str | Measure) -> Measure:
    """Return the measure of that name or import path; one that is passed itself as it is.

    Raises:
        UserError: there is none.
    """
    if isinstance(name, Measure):
        return name
    require(isinstance(name, str), "measures", name, "be names of measures or measures themselves")
    if name in NAMES:
        found: Measure = import_module(f"{__name__}.{name}").MEASURE
        return found
    path = path_of("measures", name)
    if not is_path(path):
        raise unknown_name("measures", name, {*NAMES, *installed("measures")})
    own = load("measures", path)
    require(isinstance(own, Measure), "measures", path, "name a raychains.measures.Measure")
    return cast(Measure, own)


__all__ = ["NAMES", "Context", "Measure", "Tables", "named"]
