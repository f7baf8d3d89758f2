"""Named tensors of a network as buffers of another module, under the network's own dotted names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from raychains.errors import UserError


def names(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers of a network; of tied ones the first name, since all hold one tensor."""
    saved = model.state_dict().keys()
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: t for name, t in found.items() if name in saved}


def constants(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that a `state_dict` leaves out; they are the network's, not the samples'."""
    saved = model.state_dict().keys()
    return {name: t for name, t in model.named_buffers() if name not in saved}


def held(tensors: Mapping[str, Tensor], *, persistent: bool = True) -> nn.Module:
    """A module with ``tensors`` as buffers: ``named_buffers()`` gives back the same names."""
    root = nn.Module()
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        module = root
        for part in path:  # not register_*: a name that the network may have must not be refused here
            module = module._modules.setdefault(part, nn.Module())  # type: ignore[assignment]
        module._buffers[last] = tensor.detach()
        if not persistent:
            module._non_persistent_buffers_set.add(last)
    return root


def stack(samples: Collection[Mapping[str, Tensor]], wanted: Collection[str]) -> dict[str, Tensor]:
    """``wanted`` tensors of all samples, each [S, …]; samples are read one by one, so memory holds them once.

    Raises:
        UserError: no samples, or samples that differ in names or shapes.
    """
    out: dict[str, Tensor] = {}
    for s, sample in enumerate(samples):
        for name in wanted:
            if name not in sample:
                raise UserError(f"samples must have the network's tensors: sample {s} has no {name!r}")
            t = sample[name].detach()
            if s == 0:
                out[name] = torch.empty((len(samples), *t.shape), dtype=t.dtype, device=t.device)
            if t.shape != out[name].shape[1:]:
                raise UserError(
                    f"samples must be of one network: {name} is {list(t.shape)} in sample {s} and "
                    f"{list(out[name].shape[1:])} before"
                )
            out[name][s] = t
    if not out:
        raise UserError("samples must hold at least one sample, got none")
    return out


def check(
    needed: Collection[str], model: nn.Module, stacked: Mapping[str, Tensor], shared: Mapping[str, Tensor]
) -> int:
    """The number of samples in ``stacked`` [S, …], which with ``shared`` […] must be what is needed of the network's.

    Raises:
        UserError: a tensor too few, too many, or of another shape.
    """
    wanted, saved = names(model), model.state_dict().keys()
    given = {**{n: list(t.shape) for n, t in shared.items()}, **{n: list(t.shape[1:]) for n, t in stacked.items()}}
    if missing := sorted(set(needed) - given.keys()):
        raise UserError(f"samples must have the network's tensors: none is called {missing[0]!r}")
    if unknown := sorted(given.keys() - saved):
        raise UserError(f"samples must have the network's tensors: the network has no {unknown[0]!r}")
    for name, t in wanted.items():
        if name in given and given[name] != list(t.shape):
            raise UserError(f"samples must fit the network: {name} is {given[name]} there and {list(t.shape)} here")
    sizes = {len(t) if t.ndim else 0 for t in stacked.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise UserError(f"samples must be stacked equally often, at least once, got {sorted(sizes)}")
    return sizes.pop()
