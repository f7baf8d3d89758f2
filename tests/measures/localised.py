"""Local runs in this process: chains in threads, and the tables of the measure `llc`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.api import local as api
from raychains.api.result import Result
from raychains.inference.predictive import Selection, select
from raychains.measures import Context, named
from raychains.orchestration.thread_workers import ThreadWorkers
from raychains.store.caches import predictions
from raychains.tasks import Task

SCALE = 0.5**0.5
"""σ with which the Gaussian likelihood's mean loss is the mean squared error and a constant."""


def run(folder: Path, model: nn.Module, data: Any, **settings: Any) -> tuple[Result, Task]:
    """Sample around a model without Ray, evaluation and page."""
    given = {"store": str(folder), "progress": False, **settings}
    loss, noise = given.pop("loss", "gaussian"), given.pop("noise", None)
    call = api._call(model, data, loss, noise, given)
    assert call.task is not None
    return api.run(call, ThreadWorkers(), evaluate=False, page=False), call.task


def context(result: Result, task: Task, split: str = "train") -> Context:
    """What the measure is given of a run."""
    comparison, root = result.comparison, result.store.root

    def selected(arm: int, group: int) -> Selection:
        return select(root, comparison, comparison.arms[arm].name, group)

    return Context(
        store=result.store, comparison=comparison, split=split, task=task, select=selected,
        groups=[(a, 0) for a in range(len(comparison.arms))],
        predictions=lambda a, g: predictions(root, task.splits()[split], selected(a, g).records),
    )  # fmt: skip


def measured(folder: Path, model: nn.Module, data: Any, **settings: Any) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """The tables of `llc` of a local run."""
    return named("llc").tables(context(*run(folder, model, data, **settings)))


class Crossing(nn.Module):
    """y = w₁^k₁·w₂^k₂·x."""

    def __init__(self, k1: int, k2: int) -> None:
        super().__init__()
        self.powers, self.w = (k1, k2), nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        k1, k2 = self.powers
        return self.w[0] ** k1 * self.w[1] ** k2 * x


def crossing_data(n: int = 1000) -> tuple[Tensor, Tensor]:
    """x ~ N(0, 2²) and noise of σ = .25 as y, with mean(xy) = 0 and mean(x²) = 4 exactly: w* = 0 is a minimum."""
    g = torch.Generator().manual_seed(0)
    x, y = 2 * torch.randn(n, 1, generator=g, dtype=torch.float64), 0.25 * torch.randn(n, 1, generator=g).double()
    x *= 2 / x.square().mean().sqrt()
    y -= x * (x * y).mean() / 4
    return x.float(), y.float()


def crossing_quadrature(k1: int, k2: int, nbeta: float, gamma: float) -> float:
    """nβ·E[4·(w₁^k₁·w₂^k₂)²] under exp(−nβ·4·(w₁^k₁·w₂^k₂)² − (γ/2)‖w‖²), by the midpoint rule.

    The grid is equally spaced in the cube root of w, so that it is fine near the axes.
    """
    edges = np.linspace(-2.0, 2.0, 3001)
    t = (edges[1:] + edges[:-1]) / 2
    w, weight = t**3, 3 * t**2
    energy = nbeta * 4 * (w[:, None] ** k1 * w[None, :] ** k2) ** 2
    density = np.exp(-energy - gamma / 2 * (w[:, None] ** 2 + w[None, :] ** 2)) * weight[:, None] * weight[None, :]
    return float((energy * density).sum() / density.sum())
