"""BatchNorm's running statistics: whether a model has any, and their re-estimation by one pass over training data."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn


def has_batchnorm(model: nn.Module) -> bool:
    """Whether any module normalises by batch statistics."""
    return any(isinstance(m, _BatchNorm) for m in model.modules())


def reestimate(model: nn.Module, inputs: Iterable[Tensor]) -> None:
    """Set every running mean and variance to those of ``inputs`` (batches [n, …]) under the present parameters.

    The model is left in the mode, training or evaluation, that it was in.
    """
    update_bn(inputs, model)  # type: ignore[no-untyped-call]
