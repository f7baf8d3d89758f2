"""The temperature that chains really have: configurational, from draws and the potential's gradient; kinetic, from momenta."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import schedules, warmstart
from raychains.analyses import blocks, kinetic
from raychains.analyses.base import Context
from raychains.analyses.followed import finished
from raychains.analyses.target import Target, target_of
from raychains.evaluation import diagnostics
from raychains.evaluation.base import Array
from raychains.evaluation.temperature import configurational
from raychains.execution import DTYPES
from raychains.predictive import Selection
from raychains.sample import THETA
from raychains.spec import ChainSpec
from raychains.store import SampleRecord
from raychains.tasks import Task

POINTS = 1_000
"""Draws of a density's chain that are looked at, evenly spread."""
NETWORKS = 40
"""Samples of networks that are looked at, per arm and group: each costs gradients."""
WHOLE = 2_000
"""Training examples up to which a network's gradient is over all of them."""
MINIBATCHES = 5
"""Of more examples the gradient is over so many minibatches, drawn anew for each sample."""
CONFIGURATIONAL, KINETIC = "configurational", "kinetic"
Row = dict[str, Any]


def rows(context: Context) -> list[Row]:
    """Rows of ``temperatures``: arm, group, repeat, kind, estimate, error (standard error), set (the chain's T), draws,
    gradient (what it is over), notice (why a number lacks).

    ⟨(θ−c)·∇U(θ)⟩/d is T when draws follow exp(−U/T). c is the exact mean of a target with one mode, else the
    mean of the other half of each chain's draws. Samplers with momenta have a kinetic temperature too, of all lanes
    together: see `raychains.analyses.kinetic`.
    """
    found: list[Row] = []
    for a, g in context.groups:
        chains = context.comparison.arms[a].chains[g]
        spec = chains[0]
        about = {"arm": context.comparison.arms[a].name, "group": g}
        told = density(context, chains) if context.task.low_dimensional else network(context.task, context.select(a, g))
        set_ = float(schedules.build(spec.schedule).temperature)
        for lane, row in enumerate(told):
            found.append({**about, "repeat": g * spec.lanes + lane, "kind": CONFIGURATIONAL, "set": set_, **row})
        if set_ > 0 and float(spec.sampler.settings.get("momentum", 0.0)) > 0:
            row = kinetic.row(context.store.root, chains)
            found.append({**about, "repeat": g * spec.lanes, "kind": KINETIC, "set": set_, **row})
    return found


def _row(estimate: float, error: float, draws: int, gradient: str, notice: str = "") -> Row:
    return {"estimate": estimate, "error": error, "draws": draws, "gradient": gradient, "notice": notice}


def density(context: Context, chains: Sequence[ChainSpec]) -> Iterator[Row]:
    """One row per lane of a density's group of chains."""
    drawn = [blocks.read(context.store.root, spec).values for _, spec in finished(context.store.root, chains)]
    target = target_of(context.task, chains[0])
    least = min(len(d) for d in drawn)
    at = np.arange(least) if least <= POINTS else np.linspace(0, least - 1, POINTS).round().astype(int)
    theta = np.stack([d[len(d) - least :][at] for d in drawn]).astype(np.float64)
    for lane in range(theta.shape[2]):
        yield of_draws(theta[:, :, lane], target)


def of_draws(theta: Array, target: Target) -> Row:
    """Configurational temperature of a density's draws [chains, draws, dim]."""
    chains, draws, dim = theta.shape
    found = target.potential(theta.reshape(-1, dim))
    if found is None:
        return _row(float("nan"), float("nan"), 0, "", "the task has no potential()")
    exact = target.exact
    known = exact is not None and exact.modes is None
    away = theta - (exact.moments.mean if known and exact is not None else other_half(theta))
    estimate = configurational(away, found[1].reshape(theta.shape))
    return _row(estimate.value, estimate.error, chains * draws, "exact", _few(draws))


def _few(draws: int) -> str:
    few = draws < diagnostics.FEWEST_FOR_ESS
    return (
        f"{draws} draw{'s' * (draws != 1)} a chain: no standard error below {diagnostics.FEWEST_FOR_ESS}" if few else ""
    )


def other_half(series: Array) -> Array:
    """For each draw of ``series`` [chains, draws, …] the mean of the half of its chain that it is not in; 0 of one draw."""
    draws = series.shape[1]
    if draws < 2:
        return np.zeros_like(series)
    half = draws // 2
    first, second = series[:, :half].mean(1, keepdims=True), series[:, half:].mean(1, keepdims=True)
    in_first = (np.arange(draws) < half).reshape(1, draws, *[1] * (series.ndim - 2))
    return np.where(in_first, second, first)


def network(task: Task, selection: Selection, *, most: int = NETWORKS) -> Iterator[Row]:
    """The row of one arm and group of networks: gradients here, over the whole training set or a few minibatches."""
    chosen = _chosen(selection, most)
    spec = selection.records[0][0]
    if spec.lanes > 1 or not chosen:
        yield _row(
            float("nan"), float("nan"), 0, "", "samples are stacked networks" if chosen else "no θ among the samples"
        )
        return
    gradient = Gradient(task, spec)
    products = []
    for part in chosen.values():
        here = dataclasses.replace(selection, records=part)
        centres = _halves(here, gradient.names)
        half = len(part) // 2
        along = []
        for i, tensors in enumerate(here.completed()):
            slopes = gradient(tensors, seed=i)
            centre = centres[1 if i < half else 0]
            along.append(sum(_dot(tensors[n] - centre[n] if centre else tensors[n], slopes[n]) for n in gradient.names))
        products.append(np.array(along) / gradient.dim)
    least = min(len(p) for p in products)
    found = diagnostics.mean(np.stack([p[len(p) - least :] for p in products]))
    yield _row(found.value, found.error, least * len(products), gradient.over, _few(least))


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a.double() * b.double()).sum())


def _chosen(selection: Selection, most: int) -> dict[str, tuple[tuple[ChainSpec, SampleRecord], ...]]:
    """Of each chain its samples of θ in their order, evenly thinned to ``most`` of all chains together."""
    by_chain: dict[str, list[tuple[ChainSpec, SampleRecord]]] = {}
    for spec, record in selection.records:
        if record.meta.variable == THETA:
            by_chain.setdefault(spec.digest, []).append((spec, record))
    each = max(1, most // max(len(by_chain), 1))
    found = {}
    for digest, records in by_chain.items():
        ordered = sorted(records, key=lambda r: r[1].meta.index)
        at = np.linspace(0, len(ordered) - 1, min(each, len(ordered))).round().astype(int)
        found[digest] = tuple(ordered[i] for i in at)
    return found


def _halves(selection: Selection, names: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Mean of the first and of the second half of the samples; empty of a single one."""
    n = len(selection.records)
    if n < 2:
        return {}, {}
    half = n // 2
    sums: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for i, tensors in enumerate(selection.completed()):
        which, count = sums[i >= half], half if i < half else n - half
        for name in names:
            which[name] = which.get(name, 0.0) + tensors[name].double() / count
    return sums


class Gradient:
    """∇U of networks, U = N·(mean loss + ½λ‖θ‖²) − ln prior, in the parameters that their chain samples.

    Args:
        task: of the networks.
        spec: of their chain: batch size, precision of the parameters, weight decay, what is sampled.
    """

    def __init__(self, task: Task, spec: ChainSpec) -> None:
        task.to(torch.device("cpu"))
        self._task, self._spec = task, spec
        self._model: nn.Module = task.build_model(seed=0, lanes=1).to(DTYPES[spec.precision])
        self._sampled = warmstart.sampled(self._model, spec.sample_only)
        if spec.sample_only:
            warmstart.freeze(self._model, self._sampled.values())
        self.names = list(self._sampled)
        self.dim = sum(p.numel() for p in self._sampled.values())
        self.whole = task.num_data <= WHOLE
        self.over = "all training data" if self.whole else f"{MINIBATCHES} minibatches of {spec.batch_size}"
        settings = spec.sampler.settings
        self._num_data = float(settings.get("num_data", task.num_data))
        self._decay = float(settings.get("weight_decay", 0.0))

    def __call__(self, tensors: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
        """By parameter, at a sample's tensors; ``seed`` chooses minibatches, augmentation and dropout."""
        self._model.load_state_dict(tensors)
        batches = self._task.epoch(seed=seed, batch_size=self._spec.batch_size)
        count = len(batches) if self.whole else min(MINIBATCHES, len(batches))
        generator = torch.Generator().manual_seed(seed)
        total: dict[str, Tensor] = {}
        weight = 0
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            for i in range(count):
                self._model.zero_grad(set_to_none=True)
                batch = batches[i]
                size = len(batch) if isinstance(batch, Tensor) else 1
                self._task.backward(self._model, batch, generator)
                weight += size
                for name, p in self._sampled.items():
                    slope = torch.zeros_like(p) if p.grad is None else p.grad
                    total[name] = total.get(name, 0.0) + size * slope.double()
        found = {
            name: self._num_data * (total[name] / weight + self._decay * p.detach().double())
            for name, p in self._sampled.items()
        }
        if self._task.prior is None:
            return found
        self._model.zero_grad(set_to_none=True)
        (-self._task.prior.log_density(dict(self._model.named_parameters()))).backward()
        return {n: g + (0.0 if (own := self._sampled[n].grad) is None else own.double()) for n, g in found.items()}
