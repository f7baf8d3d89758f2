"""Draws of stored chains and numbers followed along them: densities' blocks, their target, networks' projections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from raychains import schedules, tasks
from raychains.chain.sample_index import expected_samples
from raychains.core.errors import require
from raychains.core.sample import THETA, SampleMeta
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.evaluation.exact import Exact
from raychains.evaluation.vectors import projections
from raychains.inference.predictive import Selection
from raychains.store import ChainStore, Storage
from raychains.tasks import Task

ROWS = 10_000
"""Points at which the potential is computed at a time."""
COORDINATES = 50
"""Coordinates of a density that are followed; of more the first ones, and projections of all."""
DIRECTIONS = 4
"""Random projections of θ."""
EXAMPLES = 5
"""Test examples whose log p(label) is followed."""
LOG_DENSITY, TRAIN_NLL, P_LABEL, ENTROPY = "log density", "train NLL", "mean p(label)", "mean entropy"
MOST_ROWS = 1_000_000_000
"""Draws of a chain times data up to which its log density is followed: it reads all data at every draw."""
SHOWN = 6
"""Quantities that traces and autocorrelations are kept of."""


@dataclass(frozen=True, kw_only=True)
class Draws:
    """One variable's draws in their order."""

    values: Array
    """[draws, lanes, dim], all parameters side by side in the model's order."""
    step: Array
    """[draws], the step after which each was kept."""
    cycle: Array
    """[draws], from 0."""


def read(root: Storage, spec: ChainSpec, variable: str = THETA) -> Draws:
    """Read the draws of one finished chain.

    Raises:
        Corrupt: a block is torn or altered.
    """
    store = ChainStore(root, spec.digest)
    blocks = []
    for record in store.records():
        if record.meta.variable == variable:
            tensors, _ = store.sample(record.file)
            parts = [t.numpy().reshape(*t.shape[:2], -1) for t in _in_order(tensors, spec)]
            blocks.append(np.concatenate(parts, axis=2))
    values = np.concatenate(blocks)
    schedule = schedules.build(spec.schedule)
    kept = [(k, setting.cycle) for k in range(1, spec.steps + 1) if (setting := schedule.at(k)).keep]
    # A sampler may yield several draws of a variable at each kept step.
    each = np.repeat(np.array(kept), len(values) // len(kept), axis=0)
    return Draws(values=values, step=each[:, 0], cycle=each[:, 1])


def _in_order(tensors: Mapping[str, Tensor], spec: ChainSpec) -> list[Tensor]:
    """Return a block's parameters in the model's order; its file has them in that of their names."""
    if len(tensors) == 1:
        return list(tensors.values())
    model = tasks.build(spec.task).build_model(seed=0, lanes=1)
    return [tensors[name] for name, _ in model.named_parameters()]


def finished(root: Storage, chains: Sequence[ChainSpec]) -> list[tuple[int, ChainSpec]]:
    """Return the chains of a group whose samples are all stored, with their positions; others were dropped."""
    found = [(i, s) for i, s in enumerate(chains) if ChainStore(root, s.digest).finished(expected_samples(s))]
    require(len(found) > 0, "chains", 0, "be finished, at least one of the group's")
    return found


def stacked(root: Storage, chains: Sequence[ChainSpec]) -> Array:
    """Return θ of a group's finished chains, [chains, draws, lanes, dim]: the last draws, as many as the shortest
    has."""
    return last_draws([read(root, spec).values for _, spec in finished(root, chains)])


def last_draws(chains: Sequence[Array]) -> Array:
    """Stack chains [draws, …] of unequal length with their last draws."""
    least = min(len(c) for c in chains)
    return np.stack([c[len(c) - least :] for c in chains])


def evenly(count: int, most: int) -> Array:
    """Return at most ``most`` positions of ``count``, evenly spread, the first and the last among them."""
    return np.linspace(0, count - 1, min(most, count)).round().astype(int)


def variables_of(root: Storage, spec: ChainSpec) -> list[str]:
    """Return the variables that a chain's samples hold, θ first."""
    return theta_first(record.meta.variable for record in ChainStore(root, spec.digest).records())


def theta_first(variables: Iterable[str]) -> list[str]:
    """Return the variables, each once, θ first."""
    return sorted(set(variables), key=lambda v: (v != THETA, v))


@dataclass(frozen=True)
class Target:
    """The target of one chain's θ, as its spec has it: exp(−[U(θ) + ½Nλ‖θ‖²]/T), and what is known of it."""

    task: Task
    temperature: float
    """T of the chain; 0 for an optimiser, which is compared with T = 1."""
    precision: float
    """Nλ of the sampler's weight decay λ: a prior beside the task's own."""

    @property
    def reference_temperature(self) -> float:
        """The temperature of the law that draws are compared with: T, or 1 where the chain has no noise."""
        return self.temperature if self.temperature > 0 else 1.0

    @cached_property
    def exact(self) -> Exact | None:
        """The exact facts of the density; None without any."""
        known = self.task.reference()
        return None if known is None else known.at(self.reference_temperature, self.precision)

    def potential(self, theta: Array) -> tuple[Array, Array] | None:
        """Return U with the sampler's weight decay, [n], and its gradient, [n, dim], at ``theta`` [n, dim]; None if
        unknown."""
        if self.task.prior is not None:  # the task's own part alone would be another target
            return None
        energies, gradients = [], []
        for start in range(0, max(len(theta), 1), ROWS):
            points = np.asarray(theta[start : start + ROWS], dtype=np.float64)
            found = self.task.potential(points)
            if found is None:
                return None
            energies.append(found[0] + self.precision * (points**2).sum(-1) / 2)
            gradients.append(found[1] + self.precision * points)
        return np.concatenate(energies), np.concatenate(gradients)


def target_of(task: Task, spec: ChainSpec) -> Target:
    """Return the target of the chains of ``spec``."""
    settings = spec.sampler.settings
    precision = float(settings.get("num_data", task.num_data)) * float(settings.get("weight_decay", 0.0))
    return Target(task, float(schedules.build(spec.schedule).temperature), precision)


@dataclass(frozen=True, kw_only=True)
class Followed:
    """Numbers of one variable along the chains of one arm and group, all cut to their last draws."""

    variable: str
    values: Mapping[str, Array]
    """By the quantity's name, [chains, draws, lanes]; lanes are repeats."""
    cycle: Array
    """[chains, draws], from 0."""
    chains: tuple[int, ...]
    """Positions of the chains in the arm."""

    @property
    def draws(self) -> int:
        """Draws of each chain."""
        return int(self.cycle.shape[1])

    @property
    def shown(self) -> list[str]:
        """The few that are drawn: the log density or what networks predict first, then coordinates and projections."""
        first = [q for q in (LOG_DENSITY, TRAIN_NLL, P_LABEL, ENTROPY, "norm") if q in self.values]
        return (first + [q for q in self.values if q not in first])[:SHOWN]


def of_density(root: Storage, task: Task, chains: Sequence[ChainSpec], *, seed: int = 0) -> Iterator[Followed]:
    """Follow a density's finished chains, variable by variable; the seed is that of the projections.

    Raises:
        UserError: no chain is finished.
        Corrupt: a block is torn or altered.
    """
    found = finished(root, chains)
    target = target_of(task, chains[0])
    labels = [label for v in task.variables for label in v.labels()]
    for variable in variables_of(root, found[0][1]):
        columns: list[dict[str, Array]] = []
        cycles = []
        for _, spec in found:
            drawn = read(root, spec, variable)
            columns.append(_columns(drawn.values, variable, seed, labels if variable == THETA else []))
            cycles.append(drawn.cycle)
            if variable == THETA and len(drawn.values) * drawn.values.shape[1] * task.num_data <= MOST_ROWS:
                flat = drawn.values.reshape(-1, drawn.values.shape[2])
                known = target.potential(flat)
                if known is not None:
                    columns[-1][LOG_DENSITY] = -known[0].reshape(drawn.values.shape[:2])
        yield _gathered(variable, columns, cycles, tuple(i for i, _ in found))


def _columns(values: Array, variable: str, seed: int, labels: Sequence[str]) -> dict[str, Array]:
    """Return coordinates and, where there are too many, projections of draws [draws, lanes, dim]: each [draws,
    lanes]."""
    dim = values.shape[2]
    names = labels or [f"{variable}[{i}]" for i in range(dim)]
    found = {name: values[..., i].astype(np.float64) for i, name in enumerate(names[:COORDINATES])}
    if dim > COORDINATES:
        directions = np.random.default_rng(seed).standard_normal((dim, DIRECTIONS))
        along = values.astype(np.float64) @ (directions / np.linalg.norm(directions, axis=0))
        found |= {f"projection {r + 1}": along[..., r] for r in range(DIRECTIONS)}
    return found


def of_network(
    selection: Selection,
    chains: Sequence[ChainSpec],
    *,
    predictions: Iterable[Array] | None = None,
    evaluation: Evaluation | None = None,
    seed: int = 0,
) -> Iterator[Followed]:
    """Follow networks of one arm and group, variable by variable.

    Args:
        selection, chains: their samples and chains.
        predictions: each sample's log-probabilities [examples, classes], in the selection's order; None without
            classes.
        evaluation: the split that they are on.
        seed: of the projections and of the test examples that are chosen.
    """
    position = {spec.digest: i for i, spec in enumerate(chains)}
    found: dict[str, dict[int, list[tuple[SampleMeta, dict[str, float]]]]] = {}
    for digest, meta, numbers in _numbers(selection, predictions, evaluation, seed):
        found.setdefault(meta.variable, {}).setdefault(position[digest], []).append((meta, numbers))
    for variable in theta_first(found):
        columns, cycles = [], []
        for _, mine in sorted(found[variable].items()):
            drawn = sorted(mine, key=lambda pair: pair[0].index)
            names = set.intersection(*(set(numbers) for _, numbers in drawn))
            ordered = [n for n in drawn[0][1] if n in names]
            columns.append({n: np.array([[numbers[n]] for _, numbers in drawn]) for n in ordered})
            cycles.append(np.array([meta.cycle for meta, _ in drawn]))
        yield _gathered(variable, columns, cycles, tuple(sorted(found[variable])))


def _numbers(
    selection: Selection, predictions: Iterable[Array] | None, evaluation: Evaluation | None, seed: int
) -> Iterator[tuple[str, SampleMeta, dict[str, float]]]:
    """Yield each sample's chain, its description, and its numbers by name."""
    blocks = iter(predictions) if predictions is not None else None
    labels: list[Array | None] = []
    parameters = [name for name, _ in selection.task.build_model(seed=0, lanes=1).named_parameters()]
    for (spec, record), tensors in zip(selection.records, selection.stored(), strict=True):
        numbers = projections(tensors, [n for n in parameters if n in tensors], count=DIRECTIONS, seed=seed)
        if record.meta.train_nll is not None:
            numbers[TRAIN_NLL] = record.meta.train_nll
        if blocks is not None and evaluation is not None:
            block = next(blocks)
            labels = labels or [labels_of(evaluation, block)]
            numbers |= predicted_numbers(block, labels[0], seed)
        yield spec.digest, record.meta, numbers


def predicted_numbers(block: Array, labels: Array | None, seed: int = 0) -> dict[str, float]:
    """Return numbers of one sample's log-probabilities [examples, classes]: p(label) and entropy, averaged, and a few
    examples' log p(label), which the seed chooses; the entropy alone without labels [examples].
    """
    log_p = np.maximum(block.astype(np.float64), np.log(np.finfo(np.float64).tiny))
    entropy = {ENTROPY: float(-(np.exp(log_p) * log_p).sum(1).mean())}
    if labels is None:
        return entropy
    of_label = log_p[np.arange(len(labels)), labels]
    chosen = np.random.default_rng(seed).choice(len(labels), min(EXAMPLES, len(labels)), replace=False)
    examples = {f"log p(label) of example {i}": float(of_label[i]) for i in sorted(chosen.tolist())}
    return {P_LABEL: float(np.exp(of_label).mean()), **entropy, **examples}


def labels_of(evaluation: Evaluation, block: Array) -> Array | None:
    """Return the labels of a classifier's split, [examples], from one sample's predictions on it; None without any."""
    if -(-len(block) // evaluation.per_shard) != evaluation.shards:
        return None
    parts = [block[evaluation.range_of(shard)] for shard in range(evaluation.shards)]
    rows = [evaluation.reduce([part], shard).rows for shard, part in enumerate(parts)]
    if not all("label" in r and "log_p_label" in r for r in rows):
        return None
    return np.concatenate([r["label"] for r in rows]).astype(np.int64)


def _gathered(
    variable: str, columns: Sequence[Mapping[str, Array]], cycles: Sequence[Array], chains: tuple[int, ...]
) -> Followed:
    """Put chains side by side; where one is shorter the others count with their last draws."""
    names = [n for n in columns[0] if all(n in c for c in columns)]
    values: dict[str, Any] = {n: last_draws([c[n] for c in columns]) for n in names}
    return Followed(variable=variable, values=values, cycle=last_draws(cycles), chains=chains)
