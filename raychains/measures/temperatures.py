"""Temperatures that chains really have, a part of `diagnostics`: configurational from draws, kinetic from momenta."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from raychains import priors, samplers, schedules
from raychains.chain import initialization
from raychains.chain.precision import cast
from raychains.core.rng import GLOBALS
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec
from raychains.data.prepared.order import Part
from raychains.evaluation import mcmc_diagnostics
from raychains.evaluation.evaluation import Array
from raychains.evaluation.mcmc_diagnostics import Estimate
from raychains.inference.predictive import Selection
from raychains.inference.run_data import RunData
from raychains.measures import draws, panels
from raychains.measures.draws import Target, target_of
from raychains.measures.measure import Context, Row
from raychains.planning import Arm
from raychains.plotting.charts import DASHED, DOT, Axis, Chart, Mark, Rule, dots, in_lines
from raychains.plotting.style import Drawing
from raychains.samplers.sghmc import VelocitySampler
from raychains.schedules import Schedule
from raychains.store import ChainStore, SampleRecord, Storage, initial_states
from raychains.tasks import Task

POINTS = 1_000
"""Draws of a density's chain that are used, evenly spread."""
NETWORKS = 40
"""Samples of networks that are used, per arm and group: each costs gradients."""
WHOLE = 2_000
"""Training examples up to which a network's gradient is over all of them."""
MINIBATCHES = 5
"""Minibatches of the gradient over more examples than that, drawn anew for each sample."""
CONFIGURATIONAL, KINETIC = "configurational", "kinetic"
NAN = float("nan")
FEW = 15
"""Repeats up to which each one's error stands out."""


def rows(context: Context) -> list[Row]:
    """Return rows of ``temperatures``: arm, group, repeat, kind, estimate, error (standard error), set (the chain's T),
    draws, gradient (what it is over), notice (why a number lacks).

    ⟨(θ−c)·∇U(θ)⟩/d is T when draws follow exp(−U/T). c is the exact mean of a target with one mode, else the
    mean of the other half of each chain's draws. Samplers with momenta have a kinetic temperature too, of all lanes
    together: `kinetic`.
    """
    found: list[Row] = []
    for a, g in context.groups:
        chains = context.comparison.arms[a].chains[g]
        spec = chains[0]
        about = {"arm": context.arm_name(a), "group": g}
        if context.task.low_dimensional:
            each = density(context, chains)
        else:
            selection = context.select(a, g)
            each = network(selection.task, selection)
        set_ = float(schedules.build(spec.schedule).temperature)
        for lane, row in enumerate(each):
            found.append({**about, "repeat": g * spec.lanes + lane, "kind": CONFIGURATIONAL, "set": set_, **row})
        if set_ > 0 and float(spec.sampler.settings.get("momentum", 0.0)) > 0:
            row = kinetic(context.store.root, chains)
            found.append({**about, "repeat": g * spec.lanes, "kind": KINETIC, "set": set_, **row})
    return found


def _row(estimate: float, error: float, draws: int, gradient: str, notice: str = "") -> Row:
    return {"estimate": estimate, "error": error, "draws": draws, "gradient": gradient, "notice": notice}


def density(context: Context, chains: Sequence[ChainSpec]) -> Iterator[Row]:
    """Yield one row per lane of a density's group of chains."""
    drawn, target = draws.stacked(context.store.root, chains), target_of(context.task, chains[0])
    theta = drawn[:, draws.evenly(drawn.shape[1], POINTS)].astype(np.float64)
    for lane in range(theta.shape[2]):
        yield of_draws(theta[:, :, lane], target)


def of_draws(theta: Array, target: Target) -> Row:
    """Return the configurational temperature of a density's draws [chains, draws, dim]."""
    chains, count, dim = theta.shape
    found = target.potential(theta.reshape(-1, dim))
    if found is None:
        return _row(NAN, NAN, 0, "", "the task has no potential()")
    exact = target.exact
    known = exact is not None and exact.modes is None
    away = theta - (exact.moments.mean if known and exact is not None else other_half(theta))
    estimate = configurational(away, found[1].reshape(theta.shape))
    return _row(estimate.value, estimate.error, chains * count, "exact", _few(count))


def configurational(away: Array, gradient: Array) -> Estimate:
    """Return ⟨(θ − c)·∇U(θ)⟩/d: T when draws follow exp(−U/T), whatever U is, as long as its tails vanish.

    For networks ∇U = N·(gradient of the mean loss + λθ) over the whole training set, or over minibatches that are
    independent of the draw, which adds noise but no bias. Any fixed c gives the same mean; one near the draws' own
    (e.g. an earlier average) gives the smaller error where the posterior sits far from 0.

    Args:
        away: θ − c, [chains, draws, dim].
        gradient: ∇U at each θ, not divided by N or T, of the same shape.

    Source: Wenzel et al. 2020; Leimkuhler & Matthews 2015.
    """
    return mcmc_diagnostics.mean((away * gradient).mean(-1))


def _few(count: int) -> str:
    if count >= mcmc_diagnostics.FEWEST_FOR_ESS:
        return ""
    return f"{count} draw{'s' * (count != 1)} a chain: no standard error below {mcmc_diagnostics.FEWEST_FOR_ESS}"


def other_half(series: Array) -> Array:
    """Return, for each draw of ``series`` [chains, draws, …] the mean of its chain's other half; 0 of one draw."""
    draws = series.shape[1]
    if draws < 2:
        return np.zeros_like(series)
    half = draws // 2
    first, second = series[:, :half].mean(1, keepdims=True), series[:, half:].mean(1, keepdims=True)
    in_first = (np.arange(draws) < half).reshape(1, draws, *[1] * (series.ndim - 2))
    return np.where(in_first, second, first)


def network(task: Task, selection: Selection, *, most: int = NETWORKS) -> Iterator[Row]:
    """Yield the row of one arm and group of networks: gradients over the whole training set or a few minibatches."""
    chosen = _chosen(selection, most)
    spec = selection.records[0][0]
    if spec.lanes > 1 or not chosen:
        yield _row(NAN, NAN, 0, "", "samples are stacked networks" if chosen else "no θ among the samples")
        return
    start = initial_states.key_of(spec) if spec.prior is not None else None
    gradient = Gradient(task, spec, None if start is None else initial_states.read(selection.root, start))
    products = []
    for part in chosen.values():
        here = dataclasses.replace(selection, records=part)
        centres = _halves(here, gradient.names)
        half = len(part) // 2
        along = []
        for i, tensors in enumerate(here.completed()):
            slopes = gradient(tensors, seed=i)
            centre = centres[1 if i < half else 0]
            away = {n: tensors[n] - centre[n] if centre else tensors[n] for n in gradient.names}
            along.append(sum(float((away[n].double() * slopes[n].double()).sum()) for n in gradient.names))
        products.append(np.array(along) / gradient.dim)
    series = draws.last_draws(products)
    found = mcmc_diagnostics.mean(series)
    yield _row(found.value, found.error, series.size, gradient.over, _few(series.shape[1]))


def _chosen(selection: Selection, most: int) -> dict[str, tuple[tuple[ChainSpec, SampleRecord], ...]]:
    """Return, of each chain, its samples of θ in their order, evenly thinned to ``most`` of all chains together."""
    by_chain: dict[str, list[tuple[ChainSpec, SampleRecord]]] = {}
    for spec, record in selection.records:
        if record.meta.variable == THETA:
            by_chain.setdefault(spec.digest, []).append((spec, record))
    each = max(1, most // max(len(by_chain), 1))
    found = {}
    for digest, records in by_chain.items():
        ordered = sorted(records, key=lambda r: r[1].meta.index)
        found[digest] = tuple(ordered[i] for i in draws.evenly(len(ordered), each))
    return found


def _halves(selection: Selection, names: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the mean of the first and of the second half of the samples; nothing of a single one."""
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
    """∇U of networks, U = N·(mean loss + ½λ‖θ‖²) − ln prior, in the parameters that the chain of a spec samples."""

    def __init__(self, task: Task, spec: ChainSpec, start: Mapping[str, Tensor] | None = None) -> None:
        task.to(torch.device("cpu"))
        self._task, self._spec = task, spec
        self._model = cast(task.build_model(seed=0, lanes=1), spec.precision)
        self._sampled = initialization.sampled(self._model, spec.sample_only)
        if spec.sample_only:
            initialization.freeze(self._model, self._sampled.values())
        self.names = list(self._sampled)
        self.dim = sum(p.numel() for p in self._sampled.values())
        self.whole = task.num_data <= WHOLE
        self.over = "all training data" if self.whole else f"{MINIBATCHES} minibatches of {spec.batch_size}"
        settings = spec.sampler.settings
        self._num_data = float(settings.get("num_data", task.num_data))
        self._decay = float(settings.get("weight_decay", 0.0))
        if start is not None:
            self._model.load_state_dict(dict(start))
        self._priors = priors.stated(task.prior, spec.prior, dict(self._model.named_parameters()), self._sampled)

    def __call__(self, tensors: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
        """Return it by parameter, at a sample's tensors; ``seed`` chooses minibatches, augmentation and dropout."""
        self._model.load_state_dict(tensors)
        batches = self._task.epoch(seed=seed, batch_size=self._spec.batch_size)
        count = len(batches) if self.whole else min(MINIBATCHES, len(batches))
        generator = torch.Generator().manual_seed(seed)
        total: dict[str, Tensor] = {}
        weight = 0
        with GLOBALS, torch.random.fork_rng([]):
            torch.manual_seed(seed)
            for i in range(count):
                self._model.zero_grad(set_to_none=True)
                batch = batches[i]
                size = len(batch) if isinstance(batch, Tensor | Part) else 1
                self._task.backward(self._model, batch, generator)
                weight += size
                for name, p in self._sampled.items():
                    total[name] = (
                        total.get(name, 0.0) + size * (torch.zeros_like(p) if p.grad is None else p.grad).double()
                    )
        found = {
            name: self._num_data * (total[name] / weight + self._decay * p.detach().double())
            for name, p in self._sampled.items()
        }
        self._model.zero_grad(set_to_none=True)
        for prior, parameters in self._priors:
            (-prior.log_density(parameters)).backward()
        return {n: g + (0.0 if (own := self._sampled[n].grad) is None else own.double()) for n, g in found.items()}


# Kinetic temperatures, from progress records: samples hold no momenta


def of_chains(root: Storage, chains: Sequence[ChainSpec]) -> tuple[Estimate, int]:
    """Return ⟨p·∇K⟩/d of a group's finished chains over their records at the sampling temperature, and their number.

    The estimate is nan where no record counts: see `usable`.
    """
    series = []
    for _, spec in draws.finished(root, chains):
        schedule, momentum = schedules.build(spec.schedule), float(spec.sampler.settings.get("momentum", 0.0))
        remembers = issubclass(samplers.KINDS[spec.sampler.kind], VelocitySampler)
        found = []
        for record in ChainStore(root, spec.digest).progress():
            value, step = record.get("kinetic_temperature"), int(record["step"])
            if value is not None and not math.isnan(value) and usable(schedule, step, momentum, remembers):
                found.append(value * (lr_share(schedule, step, momentum) if remembers else 1.0))
        series.append(found)
    counted = draws.last_draws([np.array(s) for s in series])
    return (mcmc_diagnostics.mean(counted) if counted.size else Estimate(value=NAN, error=NAN)), counted.size


def window(momentum: float) -> int:
    """Return the steps after which momenta have forgotten the past, to e^-10 of their variance."""
    return math.ceil(5 / (1 - momentum))


def usable(schedule: Schedule, step: int, momentum: float, remembers: bool) -> bool:
    """Return whether the noise has had the sampling temperature for long enough: not after noise-free exploration.

    Args:
        remembers: `lr_share` takes steps without noise out again, so that only the window's ends count.
    """
    before = step - window(momentum)
    steps = (before, step) if remembers else range(before, step + 1)
    return before >= 1 and all(schedule.at(k).temperature == schedule.temperature for k in steps)


def lr_share(schedule: Schedule, step: int, momentum: float) -> float:
    """Return lr_k·T / ((1−m²)·Σ_j m^{2j}·lr_{k−j}·T_{k−j}), which takes a changing lr out of N(1+m)‖v‖²/(2·lr·d).

    v_k is a sum of m^j times the noise of step k − j, whose variance goes with lr·T of *that* step; at the end of a
    cosine cycle the last lr is far below those.
    """
    ages = np.arange(min(step, 2 * window(momentum)))
    settings = [schedule.at(step - int(j)) for j in ages]
    heats = np.array([s.lr * s.temperature for s in settings])
    return float(heats[0] / ((1 - momentum**2) * (momentum ** (2.0 * ages) * heats).sum()))


def kinetic(root: Storage, chains: Sequence[ChainSpec]) -> dict[str, Any]:
    """Return the row of a group whose sampler keeps momenta."""
    estimate, records = of_chains(root, chains)
    over, notice = f"momenta at {records} records", ""
    if not records:
        over, notice = "", "no progress record holds momenta at the sampling temperature"
    elif math.isnan(estimate.error):
        notice = f"{records} records: no standard error below {mcmc_diagnostics.FEWEST_FOR_ESS} a chain"
    return _row(estimate.value, estimate.error, records, over, notice)


@panels.drawn_from("temperatures", "arm kind", "repeat set estimate error draws")
def figure(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw temperatures with those that were set; None before chains are diagnosed, and without an estimate."""
    known = table[np.isfinite(table["estimate"])]
    if not len(known):
        return None
    return Drawing(
        name="temperatures",
        title="Temperatures",
        caption=(
            "Configurational, ⟨(θ − c)·∇U(θ)⟩/d: T when draws follow exp(−U/T), a dot per repeat. Kinetic, "
            "⟨p·∇K(p)⟩/d from the momenta at progress records: T when momenta follow exp(−K/T), a dot per group of "
            "chains. Bars: ± one standard error where there are draws enough. Dashed: the temperature that was set. "
            "Above it the step size or the gradients' noise heats; a configurational one far below it says that "
            "chains have not spread yet."
        ),
        alt="Configurational and kinetic temperatures of every arm, with the temperature that was set",
        draw=_chart(run, known),
        data=known.to_dict("records"),
    )


def _chart(run: RunData, table: pd.DataFrame) -> Chart:
    shown = []
    for kind in (kind for kind in (CONFIGURATIONAL, KINETIC) if (table["kind"] == kind).any()):
        rows = table[table["kind"] == kind]
        low, high = rows["estimate"].min(), rows["estimate"].max()
        far = low > 0 and high > 20 * low
        x = Axis(label=f"{kind.capitalize()} temperature", scale="log" if far else "linear", ticks=6)
        shown.append(
            (x, [mark for line, arm in enumerate(run.comparison.arms) for mark in _marks(run, rows, line, arm)])
        )
    estimate = {**DOT, "linestyle": "-", "linewidth": 1}
    legend = [("estimate ± standard error", estimate), ("set temperature", DASHED)]
    return in_lines([arm.label for arm in run.comparison.arms], shown, legend=legend)


def _marks(run: RunData, table: pd.DataFrame, line: int, arm: Arm) -> list[Mark]:
    mine = table[table["arm"] == arm.name].sort_values("repeat")
    if not len(mine):
        return []
    middle, errors = mine["estimate"].to_numpy(), np.nan_to_num(mine["error"].to_numpy())
    bars = {"linewidth": 0.6, "alpha": 0.35} if len(mine) > FEW else {"linewidth": 1.2, "alpha": 0.85}
    ends = (middle - errors, middle + errors)
    estimates = dots(line, middle, {"color": run.arm_styles[arm].colour}, level=ends, bars=bars)
    return [estimates, Rule(at=mine["set"].iloc[0], upright=True, ends=(line - 0.45, line + 0.45))]
