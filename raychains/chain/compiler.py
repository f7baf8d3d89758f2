"""Steps of packs as compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from raychains.core.errors import UserError, format_error


def compiled(function: Callable[..., Any], *tensors: Tensor) -> Callable[..., Any]:
    """Return ``function`` compiled for tensors of these shapes; tracing calls it once. It is compiled when it is first
    called.

    Raises:
        UserError: torch cannot trace it.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # torch's compiler: seconds to import

    try:
        traced = make_fx(function)(*tensors)
    except Exception as error:
        raise UserError(f"compile must be none for this task, got default: {format_error(error)}") from error
    # It is only ever called with such tensors: without guards a call takes half the time.
    options: Any = {"guard_filter_fn": lambda guards: [False] * len(guards)}
    return torch.compile(traced.forward, dynamic=False, options=options)
