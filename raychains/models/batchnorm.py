"""BatchNorm's running statistics for parameters that never saw a forward pass, such as an anchor's or an average's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from raychains.core.errors import require


def has_batchnorm(model: nn.Module) -> bool:
    """Return whether any module of ``model`` is a BatchNorm layer (instance, group and filter response norms are
    not)."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def reestimate(model: nn.Module, inputs: Iterable[Tensor]) -> None:
    """Set every BatchNorm layer's running mean and variance from one forward pass over ``inputs``, in training mode.

    Done by `torch.optim.swa_utils.update_bn`: running statistics become the plain average over batches of each batch's
    mean and unbiased variance (so all batches count alike, and equal sizes are best). Parameters, every module's
    training mode and momentum stay as they were, even when ``inputs`` raises. Dropout, if any, is active meanwhile. A
    model without BatchNorm is left alone and ``inputs`` is not read.

    Args:
        model: the network whose parameters are the draw.
        inputs: batches [n, …] as the model takes them, on its device.

    Raises:
        UserError: no batch in ``inputs``, which would leave mean 0 and variance 1.
    """
    if not has_batchnorm(model):
        return
    modes = {module: module.training for module in model.modules()}
    momenta = {module: module.momentum for module in modes if isinstance(module, _BatchNorm)}
    count = 0

    def counted() -> Iterator[Tensor]:
        nonlocal count
        for x in inputs:
            count += 1
            yield (x,) if isinstance(x, tuple) else x  # of a tuple update_bn takes the first

    try:
        with torch.no_grad():
            update_bn(counted(), model)
    finally:
        for module, mode in modes.items():  # update_bn sets one mode for all
            module.training = mode
        for layer, momentum in momenta.items():
            layer.momentum = momentum
    require(count > 0, "inputs", count, "yield at least one batch")
