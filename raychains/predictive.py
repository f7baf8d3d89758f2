"""The posterior predictive of a run's samples: the equally weighted average of their probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from raychains import tasks
from raychains.chain import expected_samples
from raychains.errors import UserError, unknown_name
from raychains.evaluation.classification import log_probabilities
from raychains.planning.comparison import Comparison
from raychains.store import ChainStore, Root, codec


class Predictive:
    """p(y | x) = (1/S) Σ_s p(y | x, θ_s) over the samples of one arm and one group of repeats.

    Samples are read from the store one at a time at each call, so memory holds one network.
    """

    def __init__(self, model: nn.Module, samples: list[tuple[ChainStore, str]]) -> None:
        self._model, self._samples = model.eval(), samples

    def __len__(self) -> int:
        """How many samples are averaged."""
        return len(self._samples)

    @classmethod
    def load(cls, root: Root, comparison: Comparison, arm: str | None = None, group: int = 0) -> Predictive:
        """The predictive of a run's arm.

        Args:
            root: the store.
            comparison: the run's comparison.
            arm: the arm's name; default the first.
            group: which group of repeats.

        Raises:
            UserError: an unknown arm or group, an unfinished chain, or a task that predicts nothing.
        """
        arms = {a.name: a for a in comparison.arms}
        name = arm if arm is not None else comparison.arms[0].name
        if name not in arms:
            raise unknown_name("arm", name, arms)
        groups = arms[name].chains
        if not 0 <= group < len(groups):
            raise UserError(f"group must lie in [0, {len(groups) - 1}], got {group}")
        task = tasks.build(comparison.task_spec)
        if task.low_dimensional:
            raise UserError(
                f"task {comparison.task} is a density and predicts nothing: its draws are in {root.location('chains')}"
            )
        samples: list[tuple[ChainStore, str]] = []
        for spec in groups[group]:
            store = ChainStore(root, spec.digest)
            if not store.finished(expected_samples(spec)):
                raise UserError(
                    f"arm {name!r} has an unfinished chain, {spec.digest[:12]}: continue the run with --resume"
                )
            samples += [(store, file) for file in store.sample_files()]
        return cls(task.build_model(seed=0, lanes=1), samples)

    def __call__(self, x: Any) -> np.ndarray[Any, Any]:
        """Probabilities [n, classes], float64, of inputs ``x`` [n, …] (array or tensor, as the task's data are)."""
        inputs = torch.as_tensor(np.asarray(x) if not isinstance(x, torch.Tensor) else x)
        total: Any = 0.0
        for store, file in self._samples:
            tensors, _ = codec.decode(store.read_sample(file))
            total = total + np.exp(log_probabilities(self._model, tensors, inputs).astype(np.float64))
        return total / len(self._samples)
