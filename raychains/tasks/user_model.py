"""Checks of a user's network: a module of Python whose state dict is dense tensors with values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from raychains.core.errors import UserError
from raychains.data.source import check_plain

if TYPE_CHECKING:
    from raychains.tasks.base import Task

EXTRA = "_extra_state"
"""The last part of the names of what modules give as ``get_extra_state``, in state dicts."""


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
        if name in saved and buffer.is_floating_point() and not bool(torch.isfinite(buffer).all()):
            raise UserError(
                f"{field} must build finite buffers, got {name!r} with others: register a mask that holds infinities with persistent=False"
            )
    return model


def check_state(task: Task, lanes: int) -> None:
    """Refuse a task whose model's state dict holds other things than tensors; a build that fails is left to workers.

    Raises:
        UserError: such a state dict.
    """
    try:
        state = task.build_model(seed=0, lanes=lanes).state_dict()
    except Exception:
        return
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise UserError(
                "build_model must build a model whose state dict holds tensors alone, got a "
                f"{type(value).__name__} as {name!r}: keep it in a buffer, or in an attribute where it never changes"
            )


def without_extra_state(model: Any) -> Any:
    """Return the model with state dicts that leave out what modules give as ``get_extra_state``: it is no variable.

    Like attributes, it must not change what a chain samples or predicts. Loading a state dict leaves it as it is.
    """
    for module in model.modules() if isinstance(model, nn.Module) else ():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            module.register_state_dict_post_hook(_leave_out)
            if type(module).set_extra_state is not nn.Module.set_extra_state:
                module.register_load_state_dict_pre_hook(_put_back)
    return model


def _leave_out(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    del state[prefix + EXTRA]


def _put_back(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    state[prefix + EXTRA] = module.get_extra_state()
