"""raychains: Bayesian deep learning by stochastic-gradient MCMC at cluster scale.

``import raychains as rc``; then `rc.fit`, `rc.run`, `rc.compare`, `rc.sweep`, `rc.evaluate`, `rc.draw_report`,
`rc.load` and `rc.reproduce` for whole runs, `rc.tune` for Ray Tune, `rc.train` for Ray Train, `rc.serve` for Ray Serve,
`rc.sklearn` for scikit-learn, and `rc.SGLD`, `rc.SGHMC`, … as optimizers in any PyTorch loop. Names are loaded on first
use: the import itself brings in neither torch nor ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from raychains.api import serve, sklearn, train, tune
    from raychains.api.commands import draw_report
    from raychains.api.evaluating import evaluate
    from raychains.api.fit import fit
    from raychains.api.local import local
    from raychains.api.result import Result, load
    from raychains.api.sampling import compare, run
    from raychains.api.sweep import SweepResult, sweep
    from raychains.chain.chain import Chain
    from raychains.core.config import Compare, Fit, Local, Run, Sweep
    from raychains.core.errors import ChainsFailed, Interrupted, RaychainsError, RayLost, UserError
    from raychains.core.spec import ChainSpec
    from raychains.evaluation.evaluation import Metric
    from raychains.inference import PosteriorPredictive
    from raychains.measures import Measure
    from raychains.papers.reproduce import reproduce
    from raychains.planning.events import Callback
    from raychains.samplers import (
        ATMC,
        BSAM,
        MCLMC,
        PSGLD,
        SAM,
        SGD,
        SGDM,
        SGHMC,
        SGLD,
        SGNHT,
        SWAG,
        AdamW,
        ClosureSampler,
        EntropyMCMC,
        EntropySGD,
        EntropySGLD,
        LastLayerLaplace,
        MethodPreset,
        Sampler,
    )
    from raychains.schedules import (
        Constant,
        Cyclical,
        Decreasing,
        Exponential,
        Linear,
        NonCyclical,
        Schedule,
        ScheduleValues,
        Step,
    )
    from raychains.schedules.adapter import ScheduleLR
    from raychains.tasks import LogDensity, PredictiveTask, Task
    from raychains.tasks import make as make_task

_EXPORTS = {
    "api.evaluating": ("evaluate",),
    "api.commands": ("draw_report",),
    "api.fit": ("fit",),
    "api.local": ("local",),
    "api.result": ("Result", "load"),
    "api.sampling": ("compare", "run"),
    "api.sweep": ("SweepResult", "sweep"),
    "chain.chain": ("Chain",),
    "core.config": ("Compare", "Fit", "Local", "Run", "Sweep"),
    "core.errors": ("ChainsFailed", "Interrupted", "RaychainsError", "RayLost", "UserError"),
    "core.spec": ("ChainSpec",),
    "inference": ("PosteriorPredictive",),
    "evaluation.evaluation": ("Metric",),
    "measures": ("Measure",),
    "papers.reproduce": ("reproduce",),
    "planning.events": ("Callback",),
    "samplers": (
        *("ATMC", "AdamW", "BSAM", "MCLMC", "PSGLD", "SAM", "SGD", "SGDM", "SGHMC", "SGLD", "SGNHT", "SWAG"),
        *("ClosureSampler", "EntropyMCMC", "EntropySGD", "EntropySGLD", "LastLayerLaplace", "MethodPreset", "Sampler"),
    ),
    "schedules": (
        *("Constant", "Cyclical", "Decreasing", "Exponential", "Linear", "NonCyclical", "Schedule", "ScheduleValues"),
        "Step",
    ),
    "schedules.adapter": ("ScheduleLR",),
    "tasks": ("LogDensity", "PredictiveTask", "Task", "make_task"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}
_NAMED = {"make_task": "make"}
_MODULES = {"serve": "api.serve", "sklearn": "api.sklearn", "train": "api.train", "tune": "api.tune"}

__all__ = [
    "ATMC",
    "BSAM",
    "MCLMC",
    "PSGLD",
    "SAM",
    "SGD",
    "SGDM",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SWAG",
    "AdamW",
    "Callback",
    "Chain",
]
__all__ += ["ChainsFailed", "Interrupted", "RayLost"]
__all__ += ["ChainSpec", "ClosureSampler", "Compare", "Constant", "Cyclical", "Decreasing", "EntropyMCMC", "EntropySGD"]
__all__ += [
    "EntropySGLD",
    "Exponential",
    "LastLayerLaplace",
    "Linear",
    "LogDensity",
    "Measure",
    "MethodPreset",
    "Metric",
    "NonCyclical",
]
__all__ += ["PosteriorPredictive", "PredictiveTask", "RaychainsError", "Result", "Run", "Sampler", "Schedule"]
__all__ += ["ScheduleLR", "ScheduleValues", "Step", "Sweep", "SweepResult", "Task", "UserError", "compare"]
__all__ += ["draw_report", "evaluate", "load", "make_task", "reproduce", "run", "serve", "sklearn", "sweep"]
__all__ += ["train", "tune"]
__all__ += ["Fit", "Local", "fit", "local"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"raychains.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'raychains' has no attribute {name!r}")
    return getattr(importlib.import_module(f"raychains.{_HOME[name]}"), _NAMED.get(name, name))


def __dir__() -> list[str]:
    return __all__
