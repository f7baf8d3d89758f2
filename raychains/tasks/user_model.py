"""Checks of a user's network: a module of Python whose parameters and buffers are dense tensors with values."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from raychains.core.errors import UserError
from raychains.data.source import check_plain


def check(model: Any, field: str = "model_fn") -> nn.Module:
    """Return the model that ``field`` built.

    Raises:
        UserError: it is no module, or one that cannot be sampled, evaluated and exported.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"{field} must build a torch.nn.Module, got a {type(model).__name__}")
    for name, module in model.named_modules():
        at = f" as {name!r}" if name else ""
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError(
                f"{field} must build modules of Python, got one of TorchScript{at}: build the network that it was made of; "
                "`compile='default'` compiles that"
            )
        if isinstance(module, nn.DataParallel | DistributedDataParallel):
            raise UserError(
                f"{field} must build a network for one device, got a {type(module).__name__}{at}: build the network inside; "
                "`workers_per_chain` spreads a chain over several GPUs"
            )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise UserError(
                f"{field} must build parameters of known shapes, got {name!r} uninitialised: give lazy modules their sizes, or call "
                "the model on an example there"
            )
        check_plain(tensor, field, f"as {name!r}", verb="build")
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if buffer.dtype == torch.complex128:
            raise UserError(
                f"{field} must build buffers that a safetensors file can hold, got {name!r} of complex128: make it "
                "complex64, or keep its real and imaginary parts"
            )
        rounds = buffer.is_floating_point() or buffer.is_complex()
        if name in saved and rounds and not bool(torch.isfinite(buffer).all()):
            raise UserError(
                f"{field} must build finite buffers, got {name!r} with others: register a mask that holds infinities with persistent=False"
            )
    return model
