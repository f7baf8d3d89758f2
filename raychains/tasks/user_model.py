"""Checks of a user's network and loss: whose parameters they have, and that each example counts by itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from raychains.core.errors import UserError
from raychains.core.memory import overlapping
from raychains.core.rng import seeded
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
    if (pair := overlapping(model.named_parameters())) is not None:
        one, other = pair
        both = (
            f"{one!r} and {other!r}, which share some" if one != other else f"{one!r}, whose entries share one number"
        )
        raise UserError(
            f"{field} must build parameters with numbers of their own, got {both}: the prior and the noise would count twice. "
            "Tie two layers by assigning the parameter itself (head.weight = embed.weight); copy expanded ones (.clone())"
        )
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if buffer.dtype == torch.complex128:
            raise UserError(
                f"{field} must build buffers that a safetensors file can hold, got {name!r} of complex128: make it complex64, or "
                "keep its real and imaginary parts"
            )
        rounds = buffer.is_floating_point() or buffer.is_complex()
        if name in saved and rounds and not bool(torch.isfinite(buffer).all()):
            raise UserError(
                f"{field} must build finite buffers, got {name!r} with others: register a mask that holds infinities with persistent=False"
            )
    return model


def train(model: nn.Module) -> nn.Module:
    """Call the model's ``train()`` and return it; modules whose parameters are all frozen keep the mode that they have."""
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


class Precision(TorchFunctionMode):
    """Notes the largest ε of the floating tensors that torch's functions return in its body."""

    epsilon = torch.finfo(torch.float64).eps

    @property
    def tolerance(self) -> float:
        """√ε: rounding errors stay far below it."""
        return self.epsilon**0.5

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.is_floating_point():
            self.epsilon = max(self.epsilon, torch.finfo(out.dtype).eps)
        return out


def equal(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Return whether finite entries differ by at most ``tolerance`` times the largest one, and the others are the same."""
    if a.shape != b.shape:
        return False
    a, b = a.double(), b.double()
    finite = a.isfinite()
    near = (a - b).abs() <= tolerance * a[finite].abs().amax() if bool(finite.any()) else finite
    return bool(torch.where(finite, near, (a == b) | (a.isnan() & b.isnan())).all())


def check_loss(loss: Tensor, model: nn.Module) -> None:
    """Refuse a loss whose gradient reaches parameters that are none of the model's.

    Raises:
        UserError: the line names the first one's shape.
    """
    own = {id(p) for p in model.parameters()}
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [before for before, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in own:
            raise UserError(
                f"loss must depend on the network's parameters alone, got another one of shape {list(leaf.shape)} that requires "
                "gradients: it would be neither sampled nor stored. Put it into the network, layers of a list into torch.nn.ModuleList; "
                "learn the noise of a regression by loss='gaussian', noise='learned'; or freeze it by requires_grad_(False)"
            )


def check_apart(
    model: nn.Module, prepare: Callable[[Tensor, torch.dtype], Tensor], inputs: Tensor, field: str = "model_fn"
) -> bool:
    """Refuse a network whose outputs for an example change with the other examples of the batch, in evaluation mode.

    The examples go through the network together, in halves and in another order, in double precision where the network computes
    in that. Outputs are compared by `equal`, with the tolerance of the lowest precision that is seen.

    Args:
        model: left in evaluation mode and in another precision.
        prepare: what the network is given, of inputs and its parameters' dtype.
        inputs: [n, …], as they are stored.

    Returns:
        False if outputs in evaluation mode are random; then nothing is compared.

    Raises:
        UserError: the outputs differ.
    """
    n, own = len(inputs), next(model.parameters()).dtype

    def run(at: Any, seed: int = 0) -> Tensor:
        with torch.no_grad(), seeded(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: Tensor = model(prepare(inputs[at].clone(), next(model.parameters()).dtype))
        return found

    model.eval()
    with Precision() as precision:
        try:
            model.double()
            together = run(slice(n))
        except Exception:  # of a forward pass that takes its own precision alone
            model.to(own)
            together = run(slice(n))
    if not equal(together, run(slice(n), seed=1), precision.tolerance):
        return False
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    ways = {
        "together and in two halves": torch.cat([run(slice(n // 2)), run(slice(n // 2, n))]) if n > 1 else together,
        "in two orders": run(order)[order.argsort()],
    }
    for how, other in ways.items():
        if not equal(together, other, precision.tolerance):
            raise UserError(
                f"{field} must build a network whose outputs for an example depend on that example alone, in evaluation mode: got "
                f"others for {n} examples {how}. A mean or an attention over axis 0, a recurrent layer without "
                "batch_first=True and BatchNorm without running statistics do that"
            )
    return True
