"""raychains: Bayesian deep learning by stochastic-gradient MCMC at cluster scale.

``import raychains as rc``; then `rc.compare`, `rc.run`, `rc.evaluate`, `rc.draw_report` and `rc.load` for whole runs, and
`rc.SGLD`, `rc.SGHMC`, … as optimizers in any PyTorch loop. Names are loaded on first use: the import itself brings in
neither torch nor ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from raychains.api import Result, compare, draw_report, evaluate, load, run
    from raychains.chain import Chain
    from raychains.errors import RaychainsError, UserError
    from raychains.options import Compare, Run
    from raychains.samplers import SGD, SGDM, SGHMC, SGLD
    from raychains.schedules import Cyclical, Decreasing
    from raychains.spec import ChainSpec
    from raychains.tasks import Task
    from raychains.tasks import make as make_task

_HOME = {
    "Result": "api", "compare": "api", "evaluate": "api", "load": "api", "draw_report": "api", "run": "api",
    "Chain": "chain", "RaychainsError": "errors", "UserError": "errors", "Compare": "options", "Run": "options",
    "SGD": "samplers", "SGDM": "samplers", "SGHMC": "samplers", "SGLD": "samplers",
    "Cyclical": "schedules", "Decreasing": "schedules", "ChainSpec": "spec", "Task": "tasks", "make_task": "tasks",
}  # fmt: skip
_NAMED = {"make_task": "make"}

__all__ = [
    "SGD", "SGDM", "SGHMC", "SGLD", "Chain", "ChainSpec", "Compare", "Cyclical", "Decreasing", "RaychainsError", "Result",
    "Run", "Task", "UserError", "compare", "draw_report", "evaluate", "load",
    "make_task", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'raychains' has no attribute {name!r}")
    return getattr(importlib.import_module(f"raychains.{_HOME[name]}"), _NAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
