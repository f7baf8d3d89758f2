"""Each example counts by itself: checks that a network's outputs depend on one example, and that a loss is a mean over
them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from raychains.core import tree
from raychains.core.errors import UserError, format_error
from raychains.core.rng import seeded
from raychains.core.tree import Tree

if TYPE_CHECKING:
    from raychains.tasks.likelihoods import Likelihood


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
    """Return whether finite entries differ by at most ``tolerance`` times the largest one, and the others are the
    same."""
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
                f"loss must depend on the network's parameters alone, got another one of shape {list(leaf.shape)} that "
                "requires gradients: it would be neither sampled nor stored. Put it into the network, layers of a list "
                "into torch.nn.ModuleList; learn the noise of a regression by loss='gaussian', noise='learned'; or "
                "freeze it by requires_grad_(False)"
            )


def check_apart(
    model: nn.Module,
    prepare: Callable[[Tree, torch.dtype], Tree],
    inputs: Tree,
    field: str = "model_fn",
    alone: Sequence[Tree] = (),
) -> bool:
    """Refuse a network whose outputs for an example change with the other examples of the batch, in evaluation mode.

    The examples go through the network together, in halves and in another order, in double precision where the network
    computes in that. Outputs are compared by `equal`, with the tolerance of the lowest precision that is seen.

    Args:
        model: left in evaluation mode and in another precision.
        prepare: what the network is given, of inputs and its parameters' dtype.
        inputs: [n, …], as they are stored.
        alone: each of these examples as a batch of its own, where a collate_fn pads batches.

    Returns:
        False if outputs in evaluation mode are random; then nothing is compared.

    Raises:
        UserError: the outputs differ.
    """
    n, own = tree.size(inputs), next(model.parameters()).dtype

    def run(at: Any, seed: int = 0, batch: Tree = inputs) -> Tensor:
        with torch.no_grad(), seeded(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = tree.mapped(torch.clone, tree.at(batch, at))
            found: Tensor = model(prepare(given, next(model.parameters()).dtype))
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
                f"{field} must build a network whose outputs for an example depend on that example alone, in "
                f"evaluation mode: got others for {n} examples {how}. A mean or an attention over axis 0, a recurrent "
                "layer without batch_first=True and BatchNorm without running statistics do that"
            )
    singly = [run(slice(1), batch=one) for one in alone]
    comparable = bool(singly) and all(one.shape[1:] == together.shape[1:] for one in singly)  # else outputs are padded
    if comparable and not equal(together, torch.cat(singly), precision.tolerance):
        raise UserError(
            f"{field} must build a network whose outputs for an example do not depend on its padding, got others for "
            f"an example alone and in a batch of {n}: mask what collate_fn pads"
        )
    return True


def check_mean(likelihood: Likelihood, model: nn.Module, outputs: Tensor, targets: Tensor) -> int:
    """Refuse a loss that is not the mean of the losses of a batch's examples, whichever examples these are.

    Examples are tried one by one, in halves and together, in several pairings of outputs with targets: at first outputs
    hardly depend on inputs. Losses are compared in double precision where the loss takes it.

    Returns:
        The number of entries of an example over which the loss averages; 1 where it adds them up.

    Raises:
        UserError: it is none, or it fails on an example alone.
    """

    def loss(f: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return likelihood.loss(model, f.clone(), y.clone()).double()

    n, streams = len(outputs), torch.Generator().manual_seed(0)
    with Precision() as precision:
        try:
            wide = outputs.double(), targets.double() if targets.is_floating_point() else targets
            loss(*wide)
            outputs, targets = wide
        except Exception:  # a loss with constants in single precision
            loss(outputs, targets)
        for order in (torch.arange(n), *(torch.randperm(n, generator=streams) for _ in range(3))):
            f = outputs[order]
            try:
                each = torch.stack([loss(f[i : i + 1], targets[i : i + 1]) for i in range(n)])
            except Exception as error:
                raise UserError(
                    f"loss failed on one training example alone: {format_error(error, kind=True)}"
                ) from None
            for part in (slice(n), slice(n // 2), slice(n // 2, n)):
                if len(each[part]) and not _agree(
                    mean := each[part].mean(), found := loss(f[part], targets[part]), each, precision
                ):
                    raise UserError(
                        f"loss must be the mean over a batch's examples, got {float(found):.6g} for {len(each[part])} "
                        f"examples whose own losses average {float(mean):.6g}: outputs are {list(outputs.shape)}, "
                        f"targets {list(targets.shape)}. Give both one shape, and divide a sum over the examples "
                        "(reduction='sum') by their number, not by their weights"
                    )
        return _averaged(loss, outputs, targets, precision)


def _agree(mean: Tensor, found: Tensor, each: Tensor, precision: Precision) -> bool:
    scale = each.abs().amax()
    return bool((mean - found).abs() <= precision.tolerance * scale) or torch.equal(
        mean.nan_to_num(), found.nan_to_num()
    )


def _averaged(loss: Callable[..., Tensor], outputs: Tensor, targets: Tensor, precision: Precision) -> int:
    """Return the number of an example's entries that a loss averages over: its value is the mean of those of two parts
    of an axis."""
    entries, whole = 1, loss(outputs, targets)
    for axis in range(1, targets.ndim):
        k = targets.shape[axis]
        for at in (axis, axis + 1):  # an axis of classes may stand before it
            if k < 2 or at >= outputs.ndim or outputs.shape[at] != k:
                continue
            sizes = [k // 2, k - k // 2]
            try:
                pairs = zip(outputs.split(sizes, at), targets.split(sizes, axis), strict=True)
                parts = torch.stack([loss(f, y) for f, y in pairs])
            except Exception:  # it takes whole examples alone
                continue
            if _agree((parts * torch.tensor(sizes) / k).sum(), whole, parts, precision):
                entries *= k
                break
    return entries


def varied(targets: Tensor, most: int) -> list[int]:
    """Return the indices of at most ``most`` examples whose targets [n, …] differ as much as possible, rare ones among
    them."""
    rows = targets.reshape(len(targets), -1).double().nan_to_num(nan=-1e9)
    chosen: dict[int, None] = {}
    for key in (rows.sum(1), rows.amin(1), rows.amax(1)):
        values, where = torch.unique(key, return_inverse=True)
        first = torch.full((len(values),), len(rows)).scatter_reduce(0, where, torch.arange(len(rows)), "amin")
        picks = first[torch.linspace(0, len(values) - 1, max(1, most // 4)).round().long()]
        chosen.update(dict.fromkeys(picks.tolist()))
    others = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most].tolist()
    return list(dict.fromkeys([*chosen, *others]))[:most]
