"""Analyses of finished runs: what `raychains evaluate --measures …` computes beyond the predictive's own metrics."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from raychains.analyses.base import Analysis, Context, Tables
from raychains.errors import unknown_name

MODULES: Mapping[str, str] = {
    "calibration": "raychains.analyses.calibration",
    "ood": "raychains.analyses.ood",
    "corrupted": "raychains.analyses.corrupted",
    "agreement": "raychains.analyses.agreement",
    "diversity": "raychains.analyses.diversity",
    "interpolation": "raychains.analyses.interpolation",
    "diagnostics": "raychains.analyses.diagnostics",
    "reference": "raychains.analyses.reference",
    "flatness": "raychains.analyses.flatness",
}
"""By name: the module whose ``ANALYSIS`` it is."""


def named(name: str) -> Analysis:
    """The analysis of that name.

    Raises:
        UserError: there is none.
    """
    if name not in MODULES:
        raise unknown_name("measures", name, MODULES)
    found: Analysis = import_module(MODULES[name]).ANALYSIS
    return found


__all__ = ["MODULES", "Analysis", "Context", "Tables", "named"]
