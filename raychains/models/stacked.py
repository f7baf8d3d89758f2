"""Gradients of several networks of one kind at once, each on its own examples, by batched products into static buffers.

A network is a row of linear layers, activations and dropout. Examples are on the last axis, so that narrow layers have
long vectors, too. Every row of every buffer begins at whole vectors and is padded to whole
vectors: matrix products take other instructions for rows that lie otherwise in memory, and elementwise functions for
what is left at a buffer's end, and both have other rounding errors. So a row's bits depend neither on its place nor on
the others.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from raychains.core import gpus
from raychains.core.errors import UserError
from raychains.core.rng import GLOBALS, globals_state, kept_globals

VECTOR = 64
"""Numbers to whose multiple rows are padded: two vectors of 512 bits in single precision, twice over."""
Parameters = Mapping[str, Tensor]
"""By name, as in ``named_parameters()``, with the rows on axis 0."""
aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """An elementwise function and its derivative, into given tensors."""

    forward: Callable[[Tensor, Tensor], Any]
    """(x, y): write f(x) into y."""
    backward: Callable[[Tensor, Tensor], Any]
    """(gradient of y, y, or x where that `needs_input`): turn the gradient into that of x."""
    needs_input: bool = False


RELU = Activation(
    lambda x, y: torch.clamp_min(x, 0, out=y), lambda g, y: aten.threshold_backward(g, y, 0, grad_input=g)
)
TANH = Activation(lambda x, y: torch.tanh(x, out=y), lambda g, y: aten.tanh_backward(g, y, grad_input=g))
SIGMOID = Activation(lambda x, y: torch.sigmoid(x, out=y), lambda g, y: aten.sigmoid_backward(g, y, grad_input=g))
SILU = Activation(lambda x, y: aten.silu(x, out=y), lambda g, x: aten.silu_backward(g, x, grad_input=g), True)
GELU = Activation(lambda x, y: aten.gelu(x, out=y), lambda g, x: aten.gelu_backward(g, x, grad_input=g), True)
MODULES: dict[type[nn.Module], Activation] = {
    nn.ReLU: RELU,
    nn.Tanh: TANH,
    nn.Sigmoid: SIGMOID,
    nn.SiLU: SILU,
    nn.GELU: GELU,
}
FUNCTIONS: dict[Any, Activation] = {
    **{F.relu: RELU, torch.relu: RELU, "relu": RELU, torch.tanh: TANH, F.tanh: TANH, "tanh": TANH},
    **{torch.sigmoid: SIGMOID, F.sigmoid: SIGMOID, "sigmoid": SIGMOID, F.silu: SILU, F.gelu: GELU},
}
NO_ROW = "its network is no row of linear layers and activations"


@dataclass(frozen=True)
class Dropout:
    """Sets each value to 0 with probability ``p``, and divides the others by 1 − p."""

    p: float


Layer = str | Activation | Dropout
"""A linear layer is its name."""


def layers(model: nn.Module) -> list[Layer]:
    """Return a network's layers in order.

    Raises:
        UserError: it has others, or its forward pass is more than a row of them.
    """
    _check_plain(model)
    if type(model) is nn.Linear:
        return [""]
    nodes = _traced(model)
    if nodes[-1].args != (nodes[-2],):
        raise UserError(NO_ROW)
    found: list[Layer] = []
    for before, node in pairwise(nodes[:-1]):
        if list(node.all_input_nodes) != [before]:
            raise UserError(NO_ROW)
        found += _layer(model, node, first=not found)
    linear = [name for name in found if isinstance(name, str)]
    used = {named(name, p) for name in linear for p, _ in model.get_submodule(name).named_parameters()}
    own = {n for n, _ in model.named_parameters()} - beside(model)
    if len(set(linear)) < len(linear) or not linear or own != used:
        raise UserError(f"{NO_ROW}, each of them used once")
    return found


def _check_plain(model: nn.Module) -> None:
    """Refuse a network of more than trainable parameters."""
    if next(iter(model.buffers()), None) is not None:
        raise UserError("its network has buffers, such as BatchNorm's statistics")
    if not all(p.requires_grad for p in model.parameters()):
        raise UserError("some of its parameters are frozen")
    modules = [
        m._forward_hooks | m._forward_pre_hooks | m._backward_hooks | m._backward_pre_hooks for m in model.modules()
    ]
    if any(modules) or any(p._backward_hooks for p in model.parameters()):
        raise UserError("its network has hooks, such as weight normalisation")


def _traced(model: nn.Module) -> list[fx.Node]:
    """Return the operations of a forward pass, which must not draw random numbers."""
    try:
        with GLOBALS, kept_globals():  # tracing patches torch.nn while it lasts
            before = globals_state(), torch.get_rng_state()
            with torch.enable_grad():
                nodes = list(_Tracer().trace(model).nodes)
            drawn = globals_state() != before[0] or not torch.equal(torch.get_rng_state(), before[1])
    except Exception:  # of a user's forward pass
        raise UserError(NO_ROW) from None
    if drawn:
        raise UserError("its forward pass draws random numbers, by which it may choose its layers")
    return nodes


class _Tracer(fx.Tracer):
    """Refuses operations without gradients, which a graph does not tell from others; other threads' networks are left
    alone."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:  # tracing patches torch.nn for all of them
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if not torch.is_grad_enabled():
            raise UserError(NO_ROW)
        return super().create_node(*args, **kwargs)


def named(layer: str, parameter: str) -> str:
    """Return the name of a layer's parameter in the network, which may be the layer itself."""
    return f"{layer}.{parameter}" if layer else parameter


def views(flat: Tensor, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Return parameters [rows, …] of these shapes as views of a buffer [rows, at least their numbers], one after
    another."""
    sizes = [shape.numel() for shape in shapes.values()]
    parts = flat.detach()[:, : sum(sizes)].split(sizes, dim=1)
    return {n: p.unflatten(1, s) if s else p.squeeze(1) for (n, s), p in zip(shapes.items(), parts, strict=True)}


def beside(model: nn.Module) -> set[str]:
    """Return the names of the parameters that a likelihood has added to a network."""
    own = {"weight", "bias"} if type(model) is nn.Linear else set()
    return {name for name, _ in model.named_parameters(recurse=False)} - own


def _layer(model: nn.Module, node: fx.Node, *, first: bool) -> list[Layer]:
    """Return the layer of one operation: none of what changes nothing."""
    given = (node.args[1:], dict(node.kwargs))
    if node.op == "call_module":
        return _module_layer(str(node.target), model.get_submodule(str(node.target)), first)
    if first and node.target in (torch.flatten, "flatten") and given in (((1,), {}), ((), {"start_dim": 1})):
        return []
    if node.target in FUNCTIONS and not given[0] and set(given[1]) <= {"inplace"}:
        return [FUNCTIONS[node.target]]
    raise UserError(f"{NO_ROW}: it has {node.target}")


def _module_layer(name: str, module: nn.Module, first: bool) -> list[Layer]:
    kind = type(module)
    if kind is nn.Linear:
        return [name]
    if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
        if kind is nn.Dropout and module.p < 1 and module.training:
            return [Dropout(module.p)]
        raise UserError(f"its network has {module}")
    flat = first and kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
    if flat or kind is nn.Identity or isinstance(module, nn.modules.dropout._DropoutNd):
        return []
    if kind in MODULES and getattr(module, "approximate", "none") == "none":
        return [MODULES[kind]]
    raise UserError(f"{NO_ROW}: it has {name}")


class StackedNetwork:
    """``rows`` networks, of which each sees ``examples`` inputs at a step.

    Args:
        model: one of them.
        rows: number of networks.
        examples: per network and step.
        inputs: one input, [1, …].
        like: a tensor of the parameters' dtype and device.

    Raises:
        UserError: the network is no row of linear layers and activations.
    """

    def __init__(self, model: nn.Module, rows: int, examples: int, inputs: Tensor, like: Tensor) -> None:
        self._layers = layers(model)
        self._shape, self._like = (rows, examples), like
        self._bias: dict[str, bool] = {}
        self._widths = widths = [inputs[0].numel()]
        for layer in self._layers:
            widths.append(widths[-1])
            if isinstance(layer, str):
                linear = model.get_submodule(layer)
                assert isinstance(linear, nn.Linear)
                self._bias[layer], widths[-1] = linear.bias is not None, linear.out_features
        self._make_buffers()

    def _make_buffers(self) -> None:
        widths = self._widths
        # What stays in a core's cache is fast: activations overwrite a linear layer's outputs, which nothing else
        # needs, gradients what was used.
        self._values, turns = [self._buffer(widths[0])], 0
        self._gradients = [self._values[0]]
        spare = [self._buffer(max(widths))[0] for _ in range(2)]
        self._masks: dict[int, tuple[Tensor, Tensor]] = {}
        """A buffer for each dropout layer, by its number."""
        before: Layer | None = None
        for layer, width in zip(self._layers, widths[1:], strict=True):
            if isinstance(layer, Dropout):
                self._masks[len(self._values) - 1] = self._buffer(width)
            inplace = isinstance(layer, Activation) and not layer.needs_input and isinstance(before, str)
            self._values.append(self._values[-1] if inplace else self._buffer(width))
            turns, before = turns + isinstance(layer, str), layer
            self._gradients.append(self._shaped(spare[turns % 2], width))

    def _buffer(self, width: int) -> tuple[Tensor, Tensor]:
        """Return zeros [rows, padded], and of them a view [rows, width, examples]."""
        rows, examples = self._shape
        padded = -(-examples * width // VECTOR) * VECTOR
        return self._shaped(torch.zeros(rows, padded, dtype=self._like.dtype, device=self._like.device), width)

    def _shaped(self, spare: Tensor, width: int) -> tuple[Tensor, Tensor]:
        rows, examples = self._shape
        size = examples * width
        flat = spare.flatten()[: rows * -(-size // VECTOR) * VECTOR].view(rows, -1)
        return flat, flat[:, :size].unflatten(1, (width, examples))

    @property
    def inputs(self) -> Tensor:
        """The buffer of inputs, [rows, values, examples], to be filled."""
        return self._values[0][1]

    @property
    def outputs(self) -> Tensor:
        """The outputs of `forward`, [rows, outputs, examples]."""
        return self._values[-1][1]

    @property
    def output_gradients(self) -> Tensor:
        """The buffer of the gradients of `outputs`, to be filled before `backward`."""
        return self._gradients[-1][1]

    @property
    def drops(self) -> bool:
        """Return whether it has dropout, whose masks `drop` has to draw."""
        return bool(self._masks)

    def drop(self, row: int, examples: int, generator: torch.Generator) -> None:
        """Draw a row's masks for its first ``examples``, in the order and shape in which `torch.nn.Dropout` draws
        them."""
        for number, (_, mask) in self._masks.items():
            layer = self._layers[number]
            assert isinstance(layer, Dropout)
            if gpus.is_gpu(mask.device):
                drawn = gpus.dropped(mask.new_ones(examples, mask.shape[1]), layer.p, generator)
            else:
                drawn = mask.new_empty(examples, mask.shape[1]).bernoulli_(1 - layer.p, generator=generator)
                drawn.div_(1 - layer.p)
            mask[row, :, :examples] = drawn.mT

    def forward(self, parameters: Parameters) -> None:
        """Compute `outputs` from `inputs`."""
        for number, layer in enumerate(self._layers):
            (x, view), (y, out) = self._values[number], self._values[number + 1]
            if isinstance(layer, Activation):
                layer.forward(x, y)
            elif isinstance(layer, Dropout):
                torch.mul(x, self._masks[number][0], out=y)
            elif self._bias[layer]:
                bias = parameters[named(layer, "bias")].unsqueeze(2)
                torch.baddbmm(bias, parameters[named(layer, "weight")], view, out=out)
            else:
                torch.bmm(parameters[named(layer, "weight")], view, out=out)

    def backward(self, parameters: Parameters, gradients: Parameters) -> None:
        """Write the gradients of every layer's parameters into ``gradients``."""
        first = next(i for i, layer in enumerate(self._layers) if isinstance(layer, str))
        for number in range(len(self._layers) - 1, first - 1, -1):
            layer, (x, view), (g, gradient) = self._layers[number], self._values[number], self._gradients[number + 1]
            if isinstance(layer, Activation):
                layer.backward(g, x if layer.needs_input else self._values[number + 1][0])
                continue
            if isinstance(layer, Dropout):
                g.mul_(self._masks[number][0])
                continue
            torch.bmm(gradient, view.mT, out=gradients[named(layer, "weight")])
            if self._bias[layer]:
                torch.sum(gradient, 2, out=gradients[named(layer, "bias")])
            if number > first:
                torch.bmm(parameters[named(layer, "weight")].mT, gradient, out=self._gradients[number][1])


class TracedNetwork(StackedNetwork):
    """The same for a compiler, which plans memory by itself: nothing is padded, and no buffer has two uses."""

    def read(self) -> list[Tensor]:
        """Return what a step's gradient reads besides parameters: the inputs, and each dropout layer's masks."""
        return [self.inputs, *(mask for _, mask in self._masks.values())]

    def reading(self, inputs: Tensor, *masks: Tensor) -> Self:
        """Return another one that reads these, with buffers of its own."""
        other = copy.copy(self)
        other._make_buffers()
        other.inputs.copy_(inputs)
        other._masks = {n: (mask.flatten(1), mask) for n, mask in zip(self._masks, masks, strict=True)}
        return other

    def _make_buffers(self) -> None:
        super()._make_buffers()
        for number, layer in enumerate(self._layers):
            if not isinstance(layer, str):  # whose gradient takes the place of that of its output
                self._gradients[number + 1] = self._gradients[number]

    def _buffer(self, width: int) -> tuple[Tensor, Tensor]:
        return self._shaped(self._like, width)

    def _shaped(self, spare: Tensor, width: int) -> tuple[Tensor, Tensor]:
        rows, examples = self._shape
        flat = torch.zeros(rows, width * examples, dtype=spare.dtype, device=spare.device)
        return flat, flat.unflatten(1, (width, examples))
