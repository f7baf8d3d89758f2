"""Parameter groups: what a sampler can be built over, and the settings that it reads from them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Set
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor

from raychains.core.errors import UserError, format_error, near_miss, require
from raychains.core.memory import overlapping
from raychains.core.validation import fraction, is_int, is_number, one_of
from raychains.schedules.schedule import LARGEST_LR

LARGEST_DECAY = 1e8
"""Times the largest step size it is still a single-precision number."""
MISSING_GRAD = "missing_grad"
"""A group's key that says what a step does with a parameter that has no gradient."""
TORCH_KEYS = ("params", "param_names")
SHARDED = "torch.distributed.optim.zero_redundancy_optimizer"
"""The module of torch that gives each rank an optimizer over other parameters."""


def listed(params: Any) -> list[Any]:
    """Return parameters or their groups as a list, read only as far as each is one.

    Raises:
        UserError: something else among them, or nothing.
    """
    allowed = "params must be tensors, (name, tensor) pairs or groups (dicts with 'params') in a fixed order"
    if isinstance(params, Tensor | str | bytes | dict | Set) or not isinstance(params, Iterable):
        raise UserError(f"{allowed}, got {_kind(params)}")
    found: list[Any] = []
    try:
        for one in params:
            named = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)
            value = one[1] if named else one
            if not isinstance(value, Tensor) and not (isinstance(value, dict) and "params" in value):
                raise UserError(f"{allowed}, got {_kind(value)} among them")
            found.append(one)
    except UserError:
        raise
    except Exception as error:  # of a user's iterable
        raise UserError(f"{allowed}, got {_kind(params)} that raised {format_error(error, kind=True)}") from None
    if not found:
        raise UserError(f"{allowed}, at least one, got none: is the model without parameters?")
    return found


def _kind(value: object) -> str:
    return "a tensor alone" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def check_params(params: Iterable[Tensor], kind: str, lanes: int, *, whole: bool) -> None:
    """Refuse parameters that cannot be sampled; if they must be ``whole``, also those of which each rank has a part."""
    for p in params:
        if not p.is_floating_point():
            why = "store its real and imaginary parts" if p.is_complex() else "leave it out"
            raise UserError(
                f"params must be of real floating-point numbers for {kind}, got one of dtype {p.dtype}: {why}"
            )
        if whole and (hasattr(p, "device_mesh") or getattr(p, "_fsdp_flattened", False)):
            by = "a DTensor" if hasattr(p, "device_mesh") else "one that FSDP has flattened"
            raise UserError(
                f"params must be whole on every rank for {kind}, got {by}, of which each rank has a part: use "
                "DistributedDataParallel, with one seed for all ranks"
            )
        if lanes > 1 and (p.ndim == 0 or p.shape[0] != lanes):
            raise UserError(
                f"lanes must be the length of axis 0 of every parameter, got {lanes} for one of shape {tuple(p.shape)}"
            )


def check_unsharded(kind: str) -> None:
    """Refuse to be built by `ZeroRedundancyOptimizer`, which does not tell its optimizers that they are parts of
    one."""
    if called_from(SHARDED):
        raise UserError(
            f"optimizer_class must be no sampler for ZeroRedundancyOptimizer, got {kind}: each rank would have a part "
            "of the parameters; use DistributedDataParallel alone, with one seed for all ranks"
        )


def check_memory(groups: Iterable[dict[str, Any]]) -> None:
    """Refuse parameters that overlap in memory."""
    named: list[tuple[str, Tensor]] = []
    for group in groups:
        names = group.get("param_names", ())
        for i, p in enumerate(group["params"]):
            named.append((names[i] if i < len(names) else f"number {len(named)}", p))
    pair = overlapping(named)
    if pair is not None:
        one, other = pair
        got = f"{one}, an expanded one" if one == other else f"{one} and {other}, which overlap"
        raise UserError(f"params must not share numbers in memory, got {got}: prior and noise would count twice")


def check_settings(group: dict[str, Any]) -> None:
    """Refuse settings out of range."""
    for name, value in group.items():
        if isinstance(value, np.generic):
            group[name] = value = value.item()
        if is_number(value):
            most = LARGEST_DECAY if name.endswith("decay") else LARGEST_LR
            if value > most:
                require(False, name, value, f"be at most {most:g}")
            if is_int(value) and abs(value) > 2**53:  # torch takes larger integers for 64 bits
                group[name] = float(value)
    fraction("momentum", group.get("momentum", 0.0))
    if MISSING_GRAD in group:
        one_of(MISSING_GRAD, group[MISSING_GRAD], ("zero", "skip"))


def check_names(group: dict[str, Any], settings: Collection[str], kind: str, *, new: bool) -> None:
    """Refuse keys of a group that no setting has, in a ``new`` one; in others those that look like a misspelt setting.

    Names that torch's schedulers make of a setting's, as ``initial_lr``, may be there, and labels, which are texts.
    """
    known = {*settings, "lr", "momentum", MISSING_GRAD}
    for name, value in group.items():
        if name in known or name in TORCH_KEYS:
            continue
        if isinstance(name, str) and any(name.endswith(f"_{k}") or name.startswith(f"{k}_") for k in known):
            continue
        near = near_miss(name, {*settings, MISSING_GRAD})
        if near or (new and not isinstance(value, str | None)):
            raise UserError(f"params must have groups with the settings of {kind}, got one with {name!r}{near}")


def called_from(module: str) -> bool:
    """Return whether a function of a module, or of a package, is among those that wait for this call."""
    frame: FrameType | None = sys._getframe(1) if module in sys.modules else None
    while frame is not None and not f"{frame.f_globals.get('__name__')}.".startswith(f"{module}."):
        frame = frame.f_back
    return frame is not None
