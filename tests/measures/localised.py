"""Local runs in this process, whose problems and chains are the benchmark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.llc import context, run
from raychains.measures import named


def measured(folder: Path, model: nn.Module, data: Any, **settings: Any) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """The tables of `llc` of a local run."""
    return named("llc").tables(context(*run(folder, model, data, **settings)))
