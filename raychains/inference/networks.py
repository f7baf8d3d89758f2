"""Networks of an ensemble: rebuilt from an exported file's description, and their named tensors as buffers of another
module."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import models
from raychains.core import tree, user_code
from raychains.core.errors import RaychainsError, UserError, format_error, require, shown
from raychains.core.tree import Tree
from raychains.data.source import check_plain, without_labels
from raychains.tasks import Task


def tensor_of(x: Any) -> Tensor:
    """Return a user's inputs [n, …], a tensor or what NumPy takes for an array, as a tensor.

    Raises:
        UserError: it is no block of numbers.
    """
    check_plain(x, "x", "as inputs")
    try:
        found = torch.as_tensor(x.detach() if isinstance(x, Tensor) else np.asarray(x))
    except Exception:  # of a user's class, or of NumPy's and torch's many
        what = f"a {type(x).__name__} of {type(x[0]).__name__}s" if isinstance(x, list) and x else shown(x)
        raise UserError(
            f"x must be an array or a tensor of numbers [n, …], or a dict or a tuple of them, got {what}"
        ) from None
    require(found.ndim > 0, "x", x, "have an axis of examples, [n, …]")
    return found


def tree_of(x: Any) -> Tree:
    """Return a user's inputs as a tree of tensors: an array, or a dict or a tuple of arrays; a dict's ``labels`` are
    left out.

    Raises:
        UserError: a leaf is no block of numbers.
    """
    x = without_labels(x)
    if isinstance(x, Mapping) and x:
        return {name: tree_of(part) for name, part in x.items()}
    if isinstance(x, tuple) and x and all(isinstance(part, Tensor | np.ndarray | Mapping) for part in x):
        return tuple(map(tree_of, x))
    return tensor_of(x)


def first_input(task: Any) -> Tree | None:
    """Return the first input [1, …] of a task's data as it is stored; None where it is not known here."""
    splits = task.splits()
    for name in splits:
        with contextlib.suppress(Exception):  # of a user's task, or of data that are not on this machine
            return splits[name].inputs[:1]
    return None


def refused(x: Tree, error: Exception, usual: str = "") -> UserError:
    """Return the error of inputs that a network does not take; ``usual`` are those of its task."""
    beside = f" (the task's are {usual})" if usual else ""
    return UserError(
        f"x must be inputs that the network takes, [n, …], got {tree.described(x)}{beside}: "
        f"{format_error(error, kind=True)}"
    )


def check_tensors(samples: Any, shared: Any) -> None:
    """Refuse what is no collection of dicts of tensors, or no dict of stacked ones; and shared tensors that are
    none."""
    allowed = "be dicts of tensors by name, one for each sample, or one dict of stacked tensors"
    for field, given in (("samples", samples), ("shared", {} if shared is None else shared)):
        if isinstance(given, Mapping):
            _check_dict(field, given)
        else:
            # other collections are read one by one: `stack`
            known = field == "samples" and isinstance(given, Collection) and not isinstance(given, str | bytes | Tensor)
            require(known, field, given, allowed if field == "samples" else "be a dict of tensors by name")


def _check_dict(field: str, given: Any) -> None:
    ok = isinstance(given, Mapping) and all(isinstance(n, str) and isinstance(t, Tensor) for n, t in given.items())
    require(ok, field, given, "be tensors by name")
    for name, tensor in given.items():
        check_plain(tensor, field, f"as {name!r}")


def names(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers of a network; of tied ones the first name, since all hold one tensor."""
    saved = model.state_dict().keys()
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: t for name, t in found.items() if name in saved}


def constants(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that a `state_dict` leaves out; they are the network's, not the samples'."""
    saved = model.state_dict().keys()
    return {name: t for name, t in model.named_buffers() if name not in saved}


def held(tensors: Mapping[str, Tensor], *, persistent: bool = True) -> nn.Module:
    """Return a module with ``tensors`` as buffers: ``named_buffers()`` gives back the same names."""
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


def stack(samples: Collection[Mapping[str, Tensor]], needed: Collection[str]) -> dict[str, Tensor]:
    """Return the ``needed`` tensors of all samples, each [S, …]; samples are read one by one, so memory holds them
    once.

    Raises:
        UserError: no samples, or samples that differ in names or shapes.
    """
    out: dict[str, Tensor] = {}
    for s, sample in enumerate(_each(samples)):
        _check_dict("samples", sample)
        for name in needed:
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


def _each(samples: Collection[Any]) -> Iterator[Any]:
    """Yield samples; what a user's collection raises is the user's error."""
    try:
        yield from samples
    except RaychainsError:
        raise
    except Exception as error:
        raise UserError(
            f"samples must be a collection of dicts, got one that raised {format_error(error, kind=True)}"
        ) from None


def check(
    needed: Collection[str], model: nn.Module, stacked: Mapping[str, Tensor], shared: Mapping[str, Tensor]
) -> int:
    """Return the number of samples in ``stacked`` [S, …], which with ``shared`` […] must be all needed tensors.

    Raises:
        UserError: a tensor too few, too many, or of another shape.
    """
    own, saved = names(model), model.state_dict().keys()
    found = {**{n: list(t.shape) for n, t in shared.items()}, **{n: list(t.shape[1:]) for n, t in stacked.items()}}
    if missing := sorted(set(needed) - found.keys()):
        raise UserError(f"samples must have the network's tensors: none is called {missing[0]!r}")
    if unknown := sorted(found.keys() - saved):
        raise UserError(f"samples must have the network's tensors: the network has no {unknown[0]!r}")
    for name, t in own.items():
        if name in found and found[name] != list(t.shape):
            raise UserError(f"samples must fit the network: {name} is {found[name]} there and {list(t.shape)} here")
    sizes = {len(t) if t.ndim else 0 for t in stacked.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise UserError(f"samples must be stacked equally often, at least once, got {sorted(sizes)}")
    return sizes.pop()


def named(task: Task) -> dict[str, Any] | None:
    """Return the task's network as JSON, with the revision of one of ours; None when the task names none."""
    network = task.named_network()
    if network is None or "name" not in network:
        return network
    return {**network, "revision": models.revision(network["name"])}


def rebuild(network: Any, file: str, trust: bool) -> nn.Module:
    """Return the network that ``file`` names; one of ours has no parameters of its own, which an ensemble does not use.

    Only networks of `raychains.models` are built without ``trust``: any other path is code that would be imported.

    Raises:
        UserError: the file names none, one that is not trusted, or one that cannot be built here.
    """
    if network is None:
        raise UserError(
            f"model must be given for {file}: its task does not name its network, as in load(file, model=net)"
        )
    settings = network.get("settings", {}) if isinstance(network, Mapping) else None
    if not isinstance(settings, Mapping) or not all(isinstance(k, str) for k in settings):
        raise UserError(f"{file}: it must name a network and its settings, got {network!r}")
    if "name" in network:
        name = str(network["name"])
        if network.get("revision") != models.revision(name):
            raise UserError(
                f"{file}: network {name} must be of revision {models.revision(name)}, this version's, "
                f"got {network.get('revision')!r}"
            )
        return _ours(name, settings, file)
    path = str(network.get("path"))
    if not trust:
        raise UserError(
            f"trust must be True to load {file}: it names the network {path!r}, whose module would be imported; "
            "or give the network, load(file, model=net)"
        )
    made = user_code.built("network", path, settings, file)
    if not isinstance(made, nn.Module):
        raise UserError(f"{file}: {path!r} must build a torch.nn.Module, got {type(made).__name__}")
    return made


def _ours(name: str, settings: Mapping[str, Any], file: str) -> nn.Module:
    """A network of `raychains.models` without memory, whatever sizes a file asks for, but for buffers that none
    stores."""
    try:
        with torch.device("meta"):
            network = models.build(name, **settings)
        return models.build(name, **settings) if constants(network) else network
    except UserError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        reason = format_error(error)
        raise UserError(f"{file}: the network {name!r} cannot be built of {dict(settings)!r}: {reason}") from None
