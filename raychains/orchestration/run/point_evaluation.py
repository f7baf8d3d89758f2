"""One point in this process: its network made from stored samples, and measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from raychains.chain.draw_capture import indices_to, pass_over
from raychains.core.errors import UserError
from raychains.evaluation.evaluation import Evaluation, load_sample
from raychains.evaluation.loss_landscape import diagonal_fisher, move, spectrum
from raychains.evaluation.vectors import combined
from raychains.models.batchnorm import has_batchnorm
from raychains.planning.points import Point, Term
from raychains.store import ChainStore, Storage, codec, initial_states
from raychains.tasks import Task

SEED = 0
"""Seed of the training examples that a Fisher is estimated on."""


class PointEvaluator:
    """Makes and measures networks of one task, one at a time; holds the samples of the last one.

    Raises:
        UserError: of `measure`, a task that is a density, or a network with BatchNorm whose task gives no inputs.
        Corrupt: of `measure`, a sample that is damaged or another than the point says.
    """

    def __init__(self, root: Storage, task: Task, device: torch.device | None = None) -> None:
        if task.low_dimensional:
            raise UserError("points must be networks, got a task that is a density")
        self._root, self._task = root, task
        self._device = device if device is not None else torch.device("cpu")
        self._complete = initial_states.Completion(root)
        self._held: dict[str, dict[str, Tensor]] = {}
        self._model: nn.Module | None = None
        self._moved = False

    def measure(self, split: Evaluation, point: Point) -> dict[str, float]:
        """Return the split's metrics of the point's network, or its Fisher's spectrum where the point asks for that."""
        model, sampled = self.network(point)
        if point.fisher:
            return spectrum(diagonal_fisher(model, self._examples(point.fisher), self._gradient(model), sampled))
        tensors = model.state_dict()
        parts = [split.reduce([split.predict(tensors, shard)], shard) for shard in range(split.shards)]
        (metrics,) = split.measure(parts)
        return {name: float(value) for name, value in metrics.items()}

    def network(self, point: Point) -> tuple[nn.Module, set[str]]:
        """Return the network at a point, in evaluation mode, and the names of what its samples hold."""
        self._held = {t.sha256: self._held.get(t.sha256) or self._read(t) for t in point.samples}
        sampled = set.intersection(*(set(self._held[t.sha256]) for t in point.samples))
        whole = [(t.coefficient, self._complete(self._held[t.sha256], t.start)) for t in point.samples]
        if self._model is None:
            self._model = self._task.build_model(seed=0, lanes=1).to(self._device).eval()
        load_sample(self._model, _ordered(combined([(c, _ordered(w)) for c, w in whole])))
        move(self._model, point.directions, sampled, point.normalise)
        if point.reestimate and has_batchnorm(self._model):
            self._reestimate(self._model, point.samples[0])
        return self._model, sampled

    def _read(self, term: Term) -> dict[str, Tensor]:
        tensors, own = ChainStore(self._root, term.digest).sample(term.file)
        if own.get("sha256") != term.sha256:
            where = self._root.location(f"chains/{term.digest}/{term.file}")
            raise codec.Corrupt(f"{where} holds another sample than the point was planned with")
        return tensors

    def _move_data(self) -> None:
        if not self._moved:
            self._task.to(self._device)
            self._moved = True

    def _reestimate(self, model: nn.Module, like: Term) -> None:
        """Estimate statistics as the chain of ``like`` estimates those of its draws: from its batch size, with dropout
        on."""
        self._move_data()
        size = ChainStore(self._root, like.digest).spec().batch_size
        pass_over(self._task, model, size, self._device)

    def _examples(self, count: int) -> Iterator[Any]:
        self._move_data()
        return itertools.islice(iter(indices_to(self._task.epoch(seed=SEED, batch_size=1), self._device)), count)

    def _gradient(self, model: nn.Module) -> Any:
        generator = torch.Generator(self._device).manual_seed(SEED)
        return lambda example: self._task.backward(model, example, generator)


def _ordered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by name: completed samples hold theirs in another order than whole ones."""
    return {name: tensors[name] for name in sorted(tensors)}
