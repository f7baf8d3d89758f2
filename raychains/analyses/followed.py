"""Numbers that are followed along chains: coordinates of densities; of networks projections, norm and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.analyses import blocks
from raychains.analyses.target import target_of
from raychains.errors import require
from raychains.evaluation.base import Array, Evaluation
from raychains.evaluation.vectors import projections
from raychains.positions import expected_samples
from raychains.predictive import Selection
from raychains.sample import THETA, SampleMeta
from raychains.spec import ChainSpec
from raychains.store import ChainStore, Root
from raychains.tasks import Task

COORDINATES = 50
"""Coordinates of a density that are followed; of more come the first, and projections of all."""
DIRECTIONS = 4
"""Random projections of θ."""
EXAMPLES = 5
"""Test examples whose log p(label) is followed."""
LOG_DENSITY, TRAIN_NLL, P_LABEL, ENTROPY = "log density", "train NLL", "mean p(label)", "mean entropy"
SHOWN = 6
"""Quantities that traces and autocorrelations are kept of."""


@dataclass(frozen=True, kw_only=True)
class Followed:
    """The numbers of one variable along the chains of one arm and group, all cut to their last draws."""

    variable: str
    values: Mapping[str, Array]
    """By the quantity's name, [chains, draws, lanes]; lanes are repeats."""
    cycle: Array
    """[chains, draws], from 0."""
    chains: tuple[int, ...]
    """Positions of the chains in the arm."""

    @property
    def draws(self) -> int:
        """Of each chain."""
        return int(self.cycle.shape[1])

    @property
    def shown(self) -> list[str]:
        """The few that are drawn: the log density or what networks predict first, then coordinates and projections."""
        first = [q for q in (LOG_DENSITY, TRAIN_NLL, P_LABEL, ENTROPY, "norm") if q in self.values]
        return (first + [q for q in self.values if q not in first])[:SHOWN]


def finished(root: Root, chains: Sequence[ChainSpec]) -> list[tuple[int, ChainSpec]]:
    """The chains of a group whose samples are all there, with their positions; others were dropped."""
    there = [(i, s) for i, s in enumerate(chains) if ChainStore(root, s.digest).finished(expected_samples(s))]
    require(len(there) > 0, "chains", 0, "be finished, at least one of the group's")
    return there


def variables_of(root: Root, spec: ChainSpec) -> list[str]:
    """The variables that a chain's samples hold, θ first."""
    found = {record.meta.variable for record in ChainStore(root, spec.digest).records()}
    return sorted(found, key=lambda v: (v != THETA, v))


def of_density(root: Root, task: Task, chains: Sequence[ChainSpec], *, seed: int = 0) -> Iterator[Followed]:
    """What is followed of a density's chains, variable by variable.

    Args:
        root: the store.
        task: the density.
        chains: the group's; those that are not finished are left out.
        seed: of the projections.

    Raises:
        UserError: no chain is finished.
        Corrupt: a block is torn or altered.
    """
    there = finished(root, chains)
    target = target_of(task, chains[0])
    for variable in variables_of(root, there[0][1]):
        columns: list[dict[str, Array]] = []
        cycles = []
        for _, spec in there:
            drawn = blocks.read(root, spec, variable)
            columns.append(_columns(drawn.values, variable, seed))
            cycles.append(drawn.cycle)
            if variable == THETA:
                flat = drawn.values.reshape(-1, drawn.values.shape[2])
                found = target.potential(flat)
                if found is not None:
                    columns[-1][LOG_DENSITY] = -found[0].reshape(drawn.values.shape[:2])
        yield _gathered(variable, columns, cycles, tuple(i for i, _ in there))


def _columns(values: Array, variable: str, seed: int) -> dict[str, Array]:
    """Coordinates and, where there are too many, projections of draws [draws, lanes, dim]: each [draws, lanes]."""
    dim = values.shape[2]
    found = {f"{variable}[{i}]": values[..., i].astype(np.float64) for i in range(min(dim, COORDINATES))}
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
    """What is followed of networks, variable by variable.

    Args:
        selection: the samples of one arm and group.
        chains: the group's, in the arm's order.
        predictions: each sample's log-probabilities [examples, classes], in the selection's order; None of what is no
            classifier.
        evaluation: the split that they are on.
        seed: of the projections and of the test examples that are chosen.
    """
    position = {spec.digest: i for i, spec in enumerate(chains)}
    predicted = iter(predictions) if predictions is not None else None
    says = Predicted(evaluation, seed) if predicted is not None and evaluation is not None else None
    parameters = [name for name, _ in selection.task.build_model(seed=0, lanes=1).named_parameters()]
    found: dict[tuple[str, int], list[tuple[SampleMeta, dict[str, float]]]] = {}
    for (spec, record), tensors in zip(selection.records, selection.stored(), strict=True):
        meta = record.meta
        along = projections([tensors], count=DIRECTIONS, seed=seed, names=[n for n in parameters if n in tensors])
        numbers = {name: float(values[0]) for name, values in along.items()}
        if meta.train_nll is not None:
            numbers[TRAIN_NLL] = meta.train_nll
        if predicted is not None:
            block = next(predicted)
            numbers |= says(block) if says is not None else {}
        found.setdefault((meta.variable, position[spec.digest]), []).append((meta, numbers))
    for variable in sorted({v for v, _ in found}, key=lambda v: (v != THETA, v)):
        places = sorted(i for v, i in found if v == variable)
        columns, cycles = [], []
        for i in places:
            drawn = sorted(found[variable, i], key=lambda pair: pair[0].index)
            names = set.intersection(*(set(numbers) for _, numbers in drawn))
            ordered = [n for n in drawn[0][1] if n in names]
            columns.append({n: np.array([[numbers[n]] for _, numbers in drawn]) for n in ordered})
            cycles.append(np.array([meta.cycle for meta, _ in drawn]))
        yield _gathered(variable, columns, cycles, tuple(places))


class Predicted:
    """Numbers of one sample's predictions on a labelled split: p(label) and entropy, averaged, and a few examples'.

    Args:
        evaluation: a classifier's split; other splits give nothing.
        seed: of the examples that are chosen.
    """

    def __init__(self, evaluation: Evaluation, seed: int = 0) -> None:
        self._evaluation, self._seed = evaluation, seed
        self._labels: Array | None = None
        self._known = False

    def labels(self, block: Array) -> Array | None:
        """Each example's label, [examples]; None of a split without them."""
        if not self._known:
            self._labels, self._known = labels_of(self._evaluation, block), True
        return self._labels

    def __call__(self, block: Array) -> dict[str, float]:
        """Of log-probabilities [examples, classes]."""
        log_p = np.maximum(block.astype(np.float64), np.log(np.finfo(np.float64).tiny))
        numbers: dict[str, float] = {}
        labels = self.labels(block)
        if labels is not None:
            of_label = log_p[np.arange(len(labels)), labels]
            numbers[P_LABEL] = float(np.exp(of_label).mean())
        numbers[ENTROPY] = float(-(np.exp(log_p) * log_p).sum(1).mean())
        if labels is not None:
            chosen = np.random.default_rng(self._seed).choice(len(labels), min(EXAMPLES, len(labels)), replace=False)
            numbers |= {f"log p(label) of example {i}": float(of_label[i]) for i in sorted(chosen.tolist())}
        return numbers


def labels_of(evaluation: Evaluation, block: Array) -> Array | None:
    """The labels of a classifier's split, [examples], given one sample's predictions on all of it; None without any."""
    from raychains.evaluation.classification import SHARD

    parts = [block[i : i + SHARD] for i in range(0, len(block), SHARD)]
    if len(parts) != evaluation.shards:
        return None
    rows = [evaluation.reduce([part], shard).rows for shard, part in enumerate(parts)]
    if not all("label" in r and "log_p_label" in r for r in rows):
        return None
    return np.concatenate([r["label"] for r in rows]).astype(np.int64)


def _gathered(
    variable: str, columns: Sequence[Mapping[str, Array]], cycles: Sequence[Array], chains: tuple[int, ...]
) -> Followed:
    """Chains side by side; where one is shorter the others count with their last draws."""
    least = min(len(c) for c in cycles)
    names = [n for n in columns[0] if all(n in c for c in columns)]
    values: dict[str, Any] = {n: np.stack([c[n][len(c[n]) - least :] for c in columns]) for n in names}
    return Followed(
        variable=variable, values=values, cycle=np.stack([c[len(c) - least :] for c in cycles]), chains=chains
    )
