"""A chain's initial state: tensors of a file fitted to a network, and the parameters that are sampled."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn

from raychains.core import bounded
from raychains.core.errors import UserError, format_error
from raychains.core.sample import tensors_sha256
from raychains.tasks.user_model import EXTRA

WRAPPERS = ("state_dict", "model", "model_state_dict")
"""Entries under which training scripts keep the network, next to optimizers and counters."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""Put before every name by DistributedDataParallel, torch.compile and Lightning."""
FOLDER = "raychains-init-from-"
"""The beginning of the temporary folder's name."""
SHOWN = 6
"""Names that a message lists."""

Tensors = Mapping[str, Tensor]


def read(path: str) -> dict[str, Tensor]:
    """Return the named tensors of a safetensors file, or of a torch file that holds a state dict and nothing that is
    unpickled.

    Raises:
        UserError: no such file, or one of another kind.
    """
    try:
        stat = Path(path).stat()
        return dict(_read(path, stat.st_mtime_ns, stat.st_size))
    except OSError as error:
        copy = "; a run's store has a copy of its start below starts/" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"init_from must be a file, got {path!r}: {error.strerror or error}{copy}") from None


@lru_cache(maxsize=1)  # every arm of a comparison asks
def _read(path: str, _modified: int, _size: int) -> Tensors:
    found = _loaded(path)
    for key in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
            break
    if not isinstance(found, Mapping) or not found or not all(isinstance(name, str) for name in found):
        raise UserError(f"init_from must hold a state dict, names with tensors, got {path!r}: {type(found).__name__}")
    found = _without_extra(found)
    for name, value in found.items():
        if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
            raise UserError(f"init_from must hold dense tensors alone, got {path!r}: {name!r} is something else")
    return {name: t.detach() for name, t in found.items()}


def _loaded(path: str) -> Any:
    """Return the object in a safetensors or a torch file."""
    try:
        data = bounded.read(path)
    except UserError as error:
        raise UserError(f"init_from must be a file that can be read: {error}") from None
    if data[8:9] == b"{":
        return _opened(path, "safetensors file", lambda: dict(sorted(load_safetensors(data).items())))
    if data[:2] == b"PK" or data[:1] == b"\x80":
        return _opened(path, "torch file", lambda: torch.load(path, map_location="cpu", weights_only=True))
    raise UserError(f"init_from must be a whole safetensors or torch file, got {path!r}: it begins otherwise")


def _opened(path: str, kind: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # both libraries raise classes of their own for torn files
        if type(error).__name__ == "UnpicklingError":
            raise UserError(
                f"init_from must hold tensors alone, got {path!r}: it holds other Python objects, which are never "
                "unpickled; write it anew by torch.save(model.state_dict(), …)"
            ) from None
        raise UserError(f"init_from must be a whole {kind}, got {path!r}: {format_error(error)}") from None


def to_file(start: Any) -> str:
    """Write a module's or a state dict's tensors to a temporary file of this process, and return its path.

    Raises:
        UserError: neither a module nor a mapping of names to dense tensors.
    """
    state = start.state_dict() if isinstance(start, nn.Module) else start
    if not isinstance(state, Mapping) or not state:
        got = type(start).__name__
        raise UserError(f"init_from must be a file, a torch.nn.Module or its state dict, got {got}")
    state = _without_extra(state)
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or value.layout is not torch.strided:
            raise UserError(f"init_from must hold names with dense tensors alone, got {name!r}: {type(value).__name__}")
    # Copies: parameters may share memory, which a safetensors file cannot hold.
    data = save_safetensors({name: value.detach().cpu().clone().contiguous() for name, value in state.items()})
    path = Path(_folder(), f"{hashlib.sha256(data).hexdigest()[:16]}.safetensors")
    path.write_bytes(data)
    return str(path)


def _without_extra(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a state dict without what modules gave as ``get_extra_state``, which is no variable."""
    return {name: t for name, t in state.items() if str(name).rpartition(".")[2] != EXTRA}


def is_own(path: str) -> bool:
    """Return whether the file was written by `to_file`: the user knows nothing of it."""
    return FOLDER in path


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix=FOLDER)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def overlapping(tensors: Tensors, model: nn.Module, file: str) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """Return ``model.state_dict()`` with those of ``tensors`` that fit by name and shape, as ``strict=False`` of torch.

    Returns:
        The tensors, the names of ``tensors`` that were left out, and the names that stay as the model has them.

    Raises:
        UserError: none fits.
    """
    live = model.state_dict(keep_vars=True)
    expected = model.state_dict()
    found: dict[str, Tensor] = {}
    left_out: list[str] = []
    for given, tensor in tensors.items():
        name = given
        while name not in expected and (prefix := next((p for p in PREFIXES if name.startswith(p)), None)):
            name = name.removeprefix(prefix)
        if name in expected and expected[name].shape == tensor.shape:
            found[name] = tensor
        else:
            left_out.append(given)
    if not found:
        raise UserError(
            f"init_from must have a tensor of the task's network, got {some(tensors)}{file and f' in {file!r}'}; the "
            f"network's are {some(expected)}"
        )
    tied = {id(live[n]): t for n, t in found.items()}  # files may have one name of a tensor that has several
    whole = {n: found.get(n, tied.get(id(live[n]), t)) for n, t in expected.items()}
    return whole, left_out, [n for n in expected if id(live[n]) not in tied]


def fitted(tensors: Tensors, model: nn.Module, file: str) -> tuple[dict[str, Tensor], str | None]:
    """Return the ``tensors`` of a file under the names of ``model.state_dict()``, and the prefix that was removed.

    Raises:
        UserError: a name or shape that differs; the line names the first.
    """
    expected, removed = model.state_dict(), ""
    found = dict(tensors)
    while found.keys() != expected.keys():
        prefix = next((p for p in PREFIXES if all(n.startswith(p) for n in found)), None)
        if prefix is None:
            break
        found, removed = {n.removeprefix(prefix): t for n, t in found.items()}, removed + prefix
    check(found, expected, file)
    return {name: found[name] for name in expected}, removed or None


def check(found: Tensors, expected: Tensors, file: str = "") -> None:
    """Refuse tensors, of a ``file`` or not, that are not those of a network.

    Raises:
        UserError: the first name that one of the two lacks, or the first shape that differs.
    """
    refused = f"init_from must fit the task's network{file and f', got {file!r}'}"
    for name, t in expected.items():
        if name not in found:
            raise UserError(
                f"{refused}: it lacks {name!r} of shape {_shape(t)}, which the network has; its own are {some(found)}"
            )
        if found[name].shape != t.shape:
            raise UserError(
                f"{refused}: {name!r} has shape {_shape(found[name])} in the file and {_shape(t)} in the network"
            )
    for name in found:
        if name not in expected:
            raise UserError(
                f"{refused}: it has {name!r} of shape {_shape(found[name])}, which the network "
                f"lacks; the network's are {some(expected)}"
            )


def check_finite(tensors: Tensors, path: str) -> None:
    """Refuse the start of a network that is not finite.

    Raises:
        UserError: the first such tensor.
    """
    for name, t in tensors.items():
        if wrong := int((~torch.isfinite(t)).sum()):
            raise UserError(
                f"init_from must hold finite numbers, got {path!r}: {wrong:,} of {t.numel():,} in {name!r} are not"
            )


def begin(model: nn.Module, tensors: Tensors | None, digest: str | None, chain: str | None = None) -> None:
    """Set ``model`` to the start whose sha256 is ``digest``, or to the last sample of ``chain``; None of all leaves it
    as initialised.

    Raises:
        UserError: a start is missing, superfluous, another one, or does not fit.
    """
    if chain is not None:
        if tensors is None:
            raise UserError(f"start must be given for a chain that begins at another: the last sample of {chain[:12]}…")
        check(tensors, model.state_dict())
        model.load_state_dict(dict(tensors))
        return
    if digest is None:
        if tensors is not None:
            raise UserError("start must be left out for a spec that has none: it is part of the spec")
        return
    if tensors is None:
        raise UserError(f"start must be given for a chain that begins at one: tensors of sha256 {digest[:12]}…")
    if (got := tensors_sha256(tensors)) != digest:
        raise UserError(f"start must be the tensors of sha256 {digest[:12]}…, got {got[:12]}…")
    check(tensors, model.state_dict())
    model.load_state_dict(dict(tensors))


def sampled(model: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the parameters whose name one of the shell patterns matches (``*`` takes dots too); all without patterns.

    Raises:
        UserError: a pattern that matches none.
    """
    named = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UserError(f"sample_only must match names of parameters, got {pattern!r}: there are {some(named)}")
    return {n: p for n, p in named.items() if not patterns or any(fnmatchcase(n, pattern) for pattern in patterns)}


def freeze(model: nn.Module, kept: Iterable[nn.Parameter]) -> None:
    """Hold every other parameter fixed, and put modules without a parameter of ``kept`` into evaluation mode.

    BatchNorm's statistics of frozen layers then stay, and features under a sampled head are the same every time.
    """
    ids = {id(p) for p in kept}
    for p in model.parameters():
        p.requires_grad_(id(p) in ids)
    for module in model.modules():
        module.training = _owns(module, ids)


def stored(model: nn.Module, kept: Iterable[nn.Parameter]) -> list[str]:
    """Return the names in ``model.state_dict()`` of a sample's tensors: ``kept`` and their modules' buffers."""
    ids = {id(p) for p in kept}
    ids |= {id(b) for module in model.modules() if _owns(module, ids) for b in module.buffers(recurse=False)}
    return [name for name, t in model.state_dict(keep_vars=True).items() if id(t) in ids]


def unsaved(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers by name that ``model.state_dict()`` lacks: those registered with ``persistent=False``."""
    ids = {id(t) for t in model.state_dict(keep_vars=True).values()}
    return {name: b for name, b in model.named_buffers() if id(b) not in ids}


def restore(model: nn.Module, buffers: Tensors) -> None:
    """Set the buffers of `unsaved`, also those that the model makes or enlarges in its forward pass."""
    device = next(model.parameters()).device
    for name, value in buffers.items():
        path, _, last = name.rpartition(".")
        module = model.get_submodule(path)
        there = module._buffers.get(last)
        if there is not None and there.shape == value.shape and there.dtype == value.dtype:
            there.copy_(value)
        else:
            module.register_buffer(last, value.to(device).clone(), persistent=False)


def _owns(module: nn.Module, ids: set[int]) -> bool:
    return any(id(p) in ids for p in module.parameters(recurse=False))


def _shape(t: Tensor) -> str:
    return f"[{', '.join(map(str, t.shape))}]"


def some(names: Iterable[str]) -> str:
    """The first of the names, for a message."""
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
