"""What a network's outputs say of targets: one class for each value of `Task.predicts`, and the one place that asks
for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal

from raychains.core.errors import UserError
from raychains.core.tree import Tree
from raychains.evaluation.classification import Average, log_probabilities
from raychains.evaluation.evaluation import Array, normalised
from raychains.evaluation.position_classification import probabilities
from raychains.evaluation.regression import gaussians, mixture_moments, moments, outputs
from raychains.inference.ensemble import noise_to_json
from raychains.tasks import Task

Samples = Iterable[Mapping[str, Tensor]]
"""Each sample's tensors, read once in turn."""


class Family:
    """Outputs of no known meaning: those of a user's loss function, and the base of the others.

    Args:
        task: a task of networks.
        model: its network in evaluation mode; overwritten by each sample.
    """

    one_label = False
    """True if an example has one label."""
    numbers = True
    """True if targets are no labels of classes."""

    def __init__(self, task: Any, model: nn.Module | None = None) -> None:
        self._task, self._given = task, model

    @property
    def _model(self) -> nn.Module:
        if self._given is None:
            self._given = self._task.build_model(seed=0, lanes=1).eval()
        return self._given

    def exported(self) -> dict[str, Any]:
        """Return the settings of an ensemble of its samples.

        Raises:
            UserError: nobody but the task's own code knows them.
        """
        raise UserError(
            "task must be a classification or a regression with a known likelihood, got one that predicts "
            f"{self._task.predicts}: what its likelihood says of an input is known to its own code alone"
        )

    def prepared(self, inputs: Tree) -> Tree:
        """Return inputs as the network takes them."""
        return inputs

    def distribution(self, tensors: Mapping[str, Tensor], inputs: Tree) -> Distribution:
        """Return p(y | x, θ) under one sample, whose draws are [inputs, targets].

        Raises:
            UserError: it is not known.
        """
        raise UserError("task has a likelihood of its own: predictive().outputs(x) gives the outputs of its samples")

    def average(self, samples: Samples, inputs: Tree, weights: Sequence[float] | None) -> Array:
        """Return p̄ of classes, else the mean of the mixture over the samples, with their weights.

        Raises:
            UserError: as `distribution`.
        """
        return _narrow(self.moments(samples, inputs, weights)[0])

    def moments(self, samples: Samples, inputs: Tree, weights: Sequence[float] | None) -> tuple[Array, Array]:
        """Return mean and standard deviation of the mixture over the samples, each [inputs, targets].

        Raises:
            UserError: as `distribution`, or targets are classes.
        """
        found = [self.distribution(tensors, inputs) for tensors in samples]
        means, variances = (np.stack([getattr(d, name).numpy() for d in found]) for name in ("mean", "variance"))
        return mixture_moments(means, variances, normalised(weights, len(means)))

    def quantiles(
        self, samples: Samples, inputs: Tree, weights: Sequence[float] | None, levels: Sequence[float]
    ) -> Array:
        """Return quantiles of the mixture over the samples, [inputs, targets, levels].

        Raises:
            UserError: they are those of a regression with Gaussian noise alone.
        """
        self._refuse("quantiles", "; use np.quantile(draws(x, n), levels, axis=0)")

    def drawn(self, block: Array, streams: np.random.Generator) -> Array | None:
        """Return a target of every example, drawn under a sample from its block of predictions; None where blocks have
        too little."""
        return None

    def _refuse(self, asked: str, instead: str = "") -> NoReturn:
        raise UserError(
            f"{asked} needs a regression with Gaussian noise, got a task that predicts {self._task.predicts}{instead}"
        )


class _Classes(Family):
    one_label, numbers = True, False

    def exported(self) -> dict[str, Any]:
        return {"kind": "classification"}

    def prepared(self, inputs: Tree) -> Tree:
        return self._task.prepare(inputs) if _stored(inputs) else inputs

    def _logs(self, tensors: Mapping[str, Tensor], inputs: Tree) -> Array:
        prepare = self._task.prepare if _stored(inputs) else None
        return log_probabilities(self._model, tensors, inputs, prepare=prepare)

    def distribution(self, tensors: Mapping[str, Tensor], inputs: Tree) -> Distribution:
        logs = torch.from_numpy(self._logs(tensors, inputs))
        return Categorical(logits=logs.double()[:, None], validate_args=False)

    def average(self, samples: Samples, inputs: Tree, weights: Sequence[float] | None) -> Array:
        average = Average.of((self._logs(tensors, inputs) for tensors in samples), weights)
        assert average is not None  # a selection holds a sample
        return average.mean

    def moments(self, samples: Samples, inputs: Tree, weights: Sequence[float] | None) -> NoReturn:
        self._refuse("mean_and_std")

    def quantiles(self, *_: Any) -> NoReturn:
        self._refuse("quantiles")

    def drawn(self, block: Array, streams: np.random.Generator) -> Array | None:
        edges = np.exp(block.astype(np.float64)).cumsum(axis=1)
        return (streams.random((len(block), 1)) * edges[:, -1:] >= edges).sum(axis=1)


class _Positions(_Classes):
    one_label = False

    def exported(self) -> dict[str, Any]:
        axis = self._task.likelihood.axis
        return {"kind": "classification", **({} if axis == -1 else {"class_axis": axis})}

    def prepared(self, inputs: Tree) -> Tree:
        return inputs

    def distribution(self, tensors: Mapping[str, Tensor], inputs: Tree) -> Distribution:
        logs = torch.from_numpy(log_probabilities(self._model, tensors, inputs, axis=self._task.likelihood.axis))
        return Categorical(logits=logs.double(), validate_args=False)

    def average(self, samples: Samples, inputs: Tree, weights: Sequence[float] | None) -> Array:
        return probabilities(self._model, samples, inputs, weights, self._task.likelihood.axis)

    def drawn(self, block: Array, streams: np.random.Generator) -> None:
        return None


class _Gaussian(Family):
    def exported(self) -> dict[str, Any]:
        return {"kind": "regression", "noise": noise_to_json(self._task.noise)}

    def _blocks(self, samples: Samples, inputs: Tree) -> list[Array]:
        """Return each sample's means and σ, [inputs, outputs + 1]."""
        return [gaussians(self._model, tensors, inputs, self._task.noise) for tensors in samples]

    def distribution(self, tensors: Mapping[str, Tensor], inputs: Tree) -> Distribution:
        block = torch.from_numpy(self._blocks([tensors], inputs)[0])
        return Normal(block[:, :-1], block[:, -1:], validate_args=False)

    def moments(self, samples: Samples, inputs: Tree, weights: Sequence[float] | None) -> tuple[Array, Array]:
        return moments(self._blocks(samples, inputs), weights)

    def quantiles(
        self, samples: Samples, inputs: Tree, weights: Sequence[float] | None, levels: Sequence[float]
    ) -> Array:
        from raychains.inference.intervals import mixture_quantiles  # SciPy, which nothing else here needs

        stacked = np.stack(self._blocks(samples, inputs))
        shares = np.ones(len(stacked)) if weights is None else np.asarray(weights)
        return mixture_quantiles(stacked[..., :-1], stacked[..., -1:], shares, levels)

    def drawn(self, block: Array, streams: np.random.Generator) -> Array:
        return block[:, :-1] + block[:, -1:] * streams.standard_normal(block[:, :-1].shape)


class _Distribution(Family):
    def exported(self) -> dict[str, Any]:
        return {"kind": "distribution", "likelihood": self._task.likelihood}

    def distribution(self, tensors: Mapping[str, Tensor], inputs: Tree) -> Distribution:
        out = outputs(self._model, tensors, inputs).double()
        found: Distribution = self._task.likelihood.distribution(out.reshape(len(out), -1))
        return found


FAMILIES: Mapping[str, type[Family]] = {
    "classes": _Classes,
    "positions": _Positions,
    "gaussian": _Gaussian,
    "distribution": _Distribution,
}


def family_of(task: Task, model: nn.Module | None = None) -> Family:
    """Return the family of a task's predictions; ``model`` as for `Family`, built where it is needed and not given."""
    return FAMILIES.get(task.predicts, Family)(task, model)


def _narrow(values: Array) -> Array:
    """Return [n, 1, …] as [n, …]."""
    return values[:, 0] if values.shape[1] == 1 else values


def _stored(inputs: Tree) -> bool:
    """Return whether inputs are images as they are stored, in bytes."""
    return isinstance(inputs, Tensor) and inputs.dtype == torch.uint8
