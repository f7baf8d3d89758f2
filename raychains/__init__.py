"""raychains: Bayesian deep learning by stochastic-gradient MCMC at cluster scale.

``import raychains as rc``; then `rc.compare`, `rc.run`, `rc.sweep`, `rc.evaluate`, `rc.draw_report` and `rc.load` for whole runs, and
`rc.SGLD`, `rc.SGHMC`, … as optimizers in any PyTorch loop. Names are loaded on first use: the import itself brings in
neither torch nor ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from raychains.api import Result, SweepResult, compare, draw_report, evaluate, load, run, sweep
    from raychains.chain import Chain
    from raychains.deploy import PosteriorPredictive
    from raychains.errors import RaychainsError, UserError
    from raychains.options import Compare, Run, Sweep
    from raychains.planning.listener import Listener
    from raychains.samplers import (
        ATMC,
        BSAM,
        PSGLD,
        SAM,
        SGD,
        SGDM,
        SGHMC,
        SGLD,
        SGNHT,
        EntropyMCMC,
        EntropySGD,
        EntropySGLD,
    )
    from raychains.schedules import Constant, Cyclical, Decreasing, Exponential, Linear, Step
    from raychains.schedules.adapter import ScheduleLR
    from raychains.spec import ChainSpec
    from raychains.tasks import Task
    from raychains.tasks import make as make_task

_SAMPLERS = (
    "ATMC", "BSAM", "PSGLD", "SAM", "SGD", "SGDM", "SGHMC", "SGLD", "SGNHT", "EntropyMCMC", "EntropySGD", "EntropySGLD",
)  # fmt: skip
_SCHEDULES = ("Constant", "Cyclical", "Decreasing", "Exponential", "Linear", "Step")
_HOME = {
    "Result": "api", "compare": "api", "evaluate": "api", "load": "api", "draw_report": "api", "run": "api",
    "sweep": "api", "SweepResult": "api", "Sweep": "options",
    "Chain": "chain", "PosteriorPredictive": "deploy", "RaychainsError": "errors", "UserError": "errors",
    "Compare": "options", "Run": "options", "Listener": "planning.listener",
    **dict.fromkeys(_SAMPLERS, "samplers"), **dict.fromkeys(_SCHEDULES, "schedules"), "ScheduleLR": "schedules.adapter",
    "ChainSpec": "spec", "Task": "tasks", "make_task": "tasks",
}  # fmt: skip
_NAMED = {"make_task": "make"}

__all__ = [
    "ATMC", "BSAM", "PSGLD", "SAM", "SGD", "SGDM", "SGHMC", "SGLD", "SGNHT", "Chain", "ChainSpec", "Compare", "Constant",
    "Cyclical", "Decreasing", "EntropyMCMC", "EntropySGD", "EntropySGLD", "Exponential", "Linear", "Listener", "PosteriorPredictive",
    "RaychainsError", "Result",
    "Run", "ScheduleLR", "Step", "Sweep", "SweepResult", "Task", "UserError", "compare", "draw_report", "evaluate", "load", "make_task", "run", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'raychains' has no attribute {name!r}")
    return getattr(importlib.import_module(f"raychains.{_HOME[name]}"), _NAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
