"""The scales that published tables and figures run at."""

from __future__ import annotations

from collections.abc import Mapping

SCALES: Mapping[str, str] = {
    "smoke": "a test of the code in minutes, on small made-up data, which says nothing about the papers",
    "cpu": "smaller networks or less data than in the papers, so that two CPU cores finish in hours",
    "gpu": "the papers' networks with shorter or fewer chains, on one GPU",
    "paper": "the published settings",
}
"""By name, from small to large: what each is."""
ALL = tuple(SCALES)
NOT_SMOKE, ON_GPU = ALL[1:], ALL[2:]
