"""A likelihood p(y | x, θ) of a network's outputs: what every one of them defines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from raychains.core.errors import UserError
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.regression import Noise
from raychains.tasks.user_dataset import UserDataset


class Likelihood(ABC):
    """p(y | x, θ) of a network's output f_θ(x).

    To write: `name`, `predicts`, `check`, `loss` and `evaluation`; an instance goes to ``Task.from_module(…, loss=)``.
    """

    name: str
    """Identifies it: part of the task's fingerprint."""
    predicts: str
    """As `Task.predicts`."""
    noise: Noise = None
    """σ of Gaussian noise that is known, or an `OutputNoise` where the network gives it."""
    lacks: Sequence[str] = ()
    """Those of `each` and `fisher` that this object is without although its class defines them."""

    def width(self, outputs: Tensor) -> int:
        """Return the number of an example's outputs [n, …]; of classes their number."""
        return outputs.shape[-1] if outputs.ndim > 1 else 1

    def labels_per_example(self, targets: Tensor) -> float:
        """Return how many labels of an example log p adds up, on average over targets [n, …].

        Default step sizes of samplers whose steps grow with the gradient are divided by it.
        """
        return 1.0

    def extend(self, model: nn.Module) -> nn.Module:
        """Return the model with the likelihood's own parameters added."""
        return model

    @abstractmethod
    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs that do not fit the targets, of the same few examples."""

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:  # noqa: B027  most have nothing to add
        """Refuse targets [n, …] of a whole set that do not fit outputs like ``outputs``."""

    @abstractmethod
    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of a batch."""

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood [chains, n] of every example, for packs; undefined where only `loss` is
        known.

        Args:
            parameters: by name, [chains, …].
            outputs: [chains, n, …].
            targets: [chains, n, …].
        """
        raise TypeError(f"{type(self).__name__} gives the loss of a batch alone")

    def gradients(
        self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the losses Σ ``weights``·`each`, [chains], and their gradients in ``outputs`` and in each of
        ``parameters``.

        Args:
            parameters, outputs, targets: as for `each`.
            weights: of the examples, [chains, n].
        """
        with torch.enable_grad():
            places = [t.detach().requires_grad_() for t in (outputs, *parameters.values())]
            named = dict(zip(parameters, places[1:], strict=True))
            losses = (self.each(named, places[0], targets) * weights).sum(1)
            first, *others = torch.autograd.grad(losses, places, torch.ones_like(losses), materialize_grads=True)
        return losses.detach(), first, dict(zip(named, others, strict=True))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return the Fisher information of p(y | f) about the outputs f of every example, float64 [n, k, k]; undefined
        where only `loss` is known.

        It is the Hessian of −log p in f, averaged over y.
        """
        raise TypeError(f"{type(self).__name__} gives the loss of a batch alone")

    @abstractmethod
    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        """Return the evaluation of a split."""


@lru_cache(maxsize=32)
def placed(numbers: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return numbers of a likelihood as a tensor on the outputs' device, where they are put once."""
    with torch.inference_mode(False):  # gradients may need it later
        return torch.tensor(numbers, device=device, dtype=dtype)


def dtype_name(t: Tensor) -> str:
    """Return a tensor's dtype as a message shows it."""
    return str(t.dtype).removeprefix("torch.")


def check_labels(labels: Tensor, classes: int, name: str, also: str = "") -> None:
    """Refuse labels outside of [0, classes)."""
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise UserError(
            f"{name} must have labels in [0, {classes - 1}]{also}, since the model has {classes} outputs, got "
            f"{least if least < 0 else most}"
        )


def belongs(likelihood: Likelihood, name: str) -> bool:
    """Return whether ``each``, ``gradients`` or ``fisher`` is of the loss that a likelihood has: a class below may
    replace `loss` alone, and an object lack it."""
    if name in likelihood.lacks:
        return False
    classes = type(likelihood).__mro__
    own, loss = (next(i for i, c in enumerate(classes) if n in vars(c)) for n in (name, "loss"))
    general = classes[own] is Likelihood and name == "gradients"  # made of each
    return general or (classes[own] is not Likelihood and own <= loss)
