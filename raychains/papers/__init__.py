"""Published tables and figures as data, and the names with which a file declares one of its own.

A table or figure is a `Study`: what runs at which scale, what was printed and is claimed, and how it is drawn.
docs/how-to/own-table.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.papers.claims import Claim, Direction, Of, Rule, Summary, stated
    from raychains.papers.completed_run import CompletedRun, Computation, Names, Row, cell, joined, kept, of_all_samples
    from raychains.papers.contents import PAPERS, Paper
    from raychains.papers.in_process import LastSample, Networks, density_draws, density_method, last_samples, of_each
    from raychains.papers.plan_status import Unfit
    from raychains.papers.published_table import Heading, number
    from raychains.papers.scales import ALL, NOT_SMOKE, ON_GPU, SCALES
    from raychains.papers.study import (
        CODE,
        OURS,
        PUBLISHED,
        Part,
        Rows,
        Sampled,
        Setting,
        Size,
        Study,
        Tables,
        Value,
        by_part,
        comparison,
        each_and_mean,
        figure,
        labels,
        parts,
        printed,
        reduced,
        styled,
        styles,
    )
    from raychains.planning import thinning
    from raychains.planning.methods import Method
    from raychains.planning.presets.named import Preset, Variant, named

_EXPORTS = {
    "papers.claims": "Claim Direction Of Rule Summary stated",
    "papers.completed_run": "CompletedRun Computation Names Row cell joined kept of_all_samples",
    "papers.in_process": "LastSample Networks density_draws density_method last_samples of_each",
    "papers.plan_status": "Unfit",
    "papers.published_table": "Heading number",
    "papers.contents": "PAPERS Paper",
    "papers.scales": "ALL NOT_SMOKE ON_GPU SCALES",
    "papers.study": "CODE OURS PUBLISHED Part Rows Sampled Setting Size Study Tables Value by_part comparison "
    "each_and_mean figure labels parts printed reduced styled styles",
    "planning.methods": "Method",
    "planning.presets.named": "Preset Variant named",
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = ["ALL", "CODE", "NOT_SMOKE", "ON_GPU", "OURS", "PAPERS", "PUBLISHED", "SCALES", "Claim"]
__all__ += ["CompletedRun", "Computation", "Direction", "Heading", "LastSample", "Method", "Names", "Networks"]
__all__ += ["Of", "Paper", "Part", "Preset", "Row", "Rows", "Rule", "Sampled", "Setting", "Size", "Study", "Summary"]
__all__ += ["Tables", "Unfit", "Value", "Variant", "by_part", "cell", "comparison", "density_draws"]
__all__ += ["density_method", "each_and_mean", "figure", "joined", "kept", "labels", "last_samples", "named", "number"]
__all__ += ["of_all_samples", "of_each", "parts", "printed", "reduced", "stated", "styled", "styles", "thinning"]


def __getattr__(name: str) -> Any:
    if name == "thinning":
        return import_module("raychains.planning.thinning")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"raychains.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
