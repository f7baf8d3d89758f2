"""All experiments, found by the files that hold them: adding one adds one file."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from raychains.errors import UserError, unknown_name
from raychains.published.experiment import PAPERS, SCALES, Experiment

FOLDERS = ("csgmcmc", "atmc", "emcmc", "theory")
"""Of this room, whose modules each hold one experiment or several as ``EXPERIMENTS``."""


@cache
def every() -> dict[str, Experiment]:
    """All experiments by name, in their order."""
    found: list[Experiment] = []
    for folder in FOLDERS:
        package = import_module(f"raychains.published.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            found += getattr(import_module(f"{package.__name__}.{module.name}"), "EXPERIMENTS", ())
    names = [e.name for e in found]
    twice = {n for n in names if names.count(n) > 1}
    if twice or any(e.paper not in PAPERS for e in found):
        raise ValueError(f"experiments named twice: {', '.join(sorted(twice)) or 'none'}; papers: {', '.join(PAPERS)}")
    return {e.name: e for e in sorted(found, key=lambda e: e.order)}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Those of these names in the catalogue's order; ``all`` is every one.

    Raises:
        UserError: no name, or an unknown one.
    """
    known = every()
    if not names:
        raise UserError(f"names must be all or some of {', '.join(known)}, got nothing; --list says what each is")
    for name in names:
        if name not in known and name != "all":
            raise unknown_name("names", name, ["all", *known])
    return [e for e in known.values() if "all" in names or e.name in names]


def check_scale(scale: str) -> None:
    """Refuse an unknown scale."""
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
