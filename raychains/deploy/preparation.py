"""What a task does to its inputs as they are stored before the network takes them, recorded as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from raychains.data.augment import normalise
from raychains.errors import UserError
from raychains.schedules.base import is_number


def check(preparation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """``preparation`` if `prepare` knows it.

    Raises:
        UserError: it does not.
    """
    if preparation is None:
        return None
    ok = isinstance(preparation, Mapping) and preparation.get("kind") == "normalise"
    for field in ("mean", "std"):
        values = preparation.get(field) if ok else None
        ok = ok and isinstance(values, list | tuple) and bool(values) and all(is_number(v) for v in values)
    if not ok or len(preparation["mean"]) != len(preparation["std"]) or not all(s > 0 for s in preparation["std"]):
        raise UserError(
            "prepare must be None or {'kind': 'normalise', 'mean': […], 'std': […]}, a number per channel each, "
            f"got {preparation!r}"
        )
    return {"kind": "normalise", "mean": list(preparation["mean"]), "std": list(preparation["std"])}


def prepare(x: Tensor, preparation: Mapping[str, Any] | None, dtype: torch.dtype) -> Tensor:
    """What the network is given for ``x`` [n, …].

    With a preparation uint8 images [n, c, h, w] become (x/255 − mean)/std, in float32 at least. Floating inputs are taken
    as prepared already. Those that are floating then have ``dtype``, the network's; others, such as token numbers, stay.
    """
    if preparation is not None and x.dtype == torch.uint8:
        channels = len(preparation["mean"])
        if x.ndim != 4 or x.shape[1] != channels:
            raise UserError(
                f"uint8 inputs must be images of {channels} channel{'s' * (channels != 1)}, [n, {channels}, height, width], "
                f"got {list(x.shape)}"
            )
        return normalise(x, preparation["mean"], preparation["std"], dtype)
    return x.to(dtype) if x.is_floating_point() else x
