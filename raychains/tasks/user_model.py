"""Checks of a user's network: a module of Python whose state dict is dense tensors with values, each a number of its
own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from raychains.core import tree
from raychains.core.errors import UserError
from raychains.core.memory import overlapping
from raychains.data.source import check_plain

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
                f"{field} must build modules of Python, got one of TorchScript{at}: build the network that it was "
                "made of; `compile='default'` compiles that"
            )
        if isinstance(module, nn.DataParallel | DistributedDataParallel):
            raise UserError(
                f"{field} must build a network for one device, got a {type(module).__name__}{at}: build the network "
                "inside; `workers_per_chain` spreads a chain over several GPUs"
            )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise UserError(
                f"{field} must build parameters of known shapes, got {name!r} uninitialised: give lazy modules their "
                "sizes, or call the model on an example there"
            )
        check_plain(tensor, field, f"as {name!r}", verb="build")
    if (pair := overlapping(model.named_parameters())) is not None:
        one, other = pair
        both = (
            f"{one!r} and {other!r}, which share some" if one != other else f"{one!r}, whose entries share one number"
        )
        raise UserError(
            f"{field} must build parameters with numbers of their own, got {both}: the prior and the noise would count "
            "twice. Tie two layers by assigning the parameter itself (head.weight = embed.weight); copy expanded ones "
            "(.clone())"
        )
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if buffer.dtype == torch.complex128:
            raise UserError(
                f"{field} must build buffers that a safetensors file can hold, got {name!r} of complex128: make it "
                "complex64, or keep its real and imaginary parts"
            )
        if name in saved and not bool(torch.isfinite(buffer).all()):
            raise UserError(
                f"{field} must build finite buffers, got {name!r} with others: register a mask that holds infinities "
                "with persistent=False"
            )
    return model


def train(model: nn.Module) -> nn.Module:
    """Call the model's ``train()`` and return it; modules whose parameters are all frozen keep the mode that they
    have."""
    frozen = [m for m in model.modules() if _requires(m.parameters()) == {False}]
    modes = {m: m.training for part in frozen for m in part.modules()}
    model.train()
    for module, mode in modes.items():
        module.training = mode
    return model


def _requires(parameters: Iterable[nn.Parameter]) -> set[bool]:
    return {p.requires_grad for p in parameters}


def evaluating(model: nn.Module) -> list[str]:
    """Return the names of the outermost modules in evaluation mode below a model in training mode."""
    names = [name for name, m in model.named_modules() if name and not m.training and type(m) is not nn.Identity]
    return [n for n in names if not any(n.startswith(f"{other}.") for other in names)]


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


def adapt(model: nn.Module, output: str | int | None) -> nn.Module:
    """Return the model so that ``model(inputs)`` takes the inputs of a batch, a dict or a tuple of tensors as well,
    and returns one tensor.

    It is called as `raychains.core.tree.arguments` says, and ``output`` is as for `raychains.core.tree.picked`. Both
    are done by
    hooks: names of parameters stay.
    """
    model.register_forward_pre_hook(_spread, with_kwargs=True)
    model.register_forward_hook(partial(_pick, output))
    return model


def _spread(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (args, kwargs) if kwargs or len(args) != 1 else tree.arguments(args[0])


def _pick(output: str | int | None, model: nn.Module, args: Any, returned: Any) -> Any:
    return tree.picked(returned, output)
