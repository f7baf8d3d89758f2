"""When a chain has diverged: a number that is not finite, or a loss that no draw of its posterior has."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from raychains.core import gpus
from raychains.core.errors import RaychainsError

JUDGED_FROM = 100
"""Steps before which no chain is judged by its loss: pSGLD's first ones may throw parameters far away, MILE's look for
a step size."""
NATS = 10.0
"""Nats of an example by which a loss may lie above the chain's first one in any case: starts are no minima, and
minibatches heat."""
FACTOR = 5.0
"""Multiples of the first loss by which it may, whatever its scale: of targets that nobody standardised, of sums over
pixels."""


class Diverged(RaychainsError):
    """A non-finite loss, draw, parameter or sampler state, or a loss beyond `loss_limit`; its sample is never handed
    out.

    ``step`` is where it was seen, at or after the step at which it arose: see `raychains.chain.divergence_replay`.
    ``loss`` is the one beyond the limit, None where a number is not finite.
    """

    def __init__(self, message: str, step: int = 0, loss: float | None = None) -> None:
        super().__init__(message)
        self.step, self.loss = step, loss


def non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a value that is not finite; None where all values are."""
    finite = {name: torch.isfinite(t).all() for name, t in tensors.items() if t.is_floating_point() or t.is_complex()}
    if not finite or gpus.value(torch.stack(list(finite.values())).all()):  # a GPU is waited for once
        return None
    return next(name for name, ok in finite.items() if not bool(ok))


def loss_limit(start: float, *, parameters: int, num_data: int, temperature: float) -> float:
    """Return the largest mean loss of an example that a draw of a chain may have, given the chain's first one.

    At temperature T the potential N·loss + prior of d parameters exceeds its minimum by d·T/2 on average where it is
    quadratic, as it nearly is where draws at T ≤ 1 are, and by at most d·T where it grows at least linearly (virial
    theorem): twice that is allowed. The limit is a function of the spec and of the chain's first losses alone, so that
    a chain which resumes has the same one.
    """
    heat = parameters * temperature * (1 if temperature <= 1 else 2) / num_data
    return start + max(heat, NATS, FACTOR * abs(start))
