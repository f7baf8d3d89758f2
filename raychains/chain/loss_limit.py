"""The largest training loss that a kept sample may have: a chain above it has diverged, though its numbers are finite."""

from __future__ import annotations

FACTOR = 10.0
"""Multiples of the first minibatch's loss, or of one nat where that is smaller, by which a loss may lie above it."""


def loss_limit(start: float, *, parameters: int, num_data: int, temperature: float) -> float:
    """Return the largest mean loss of an example that a draw of a chain may have, given its first minibatch's.

    At temperature T the potential U = N·loss + prior of d parameters exceeds its minimum by d·T/2 on average where it is
    quadratic, and by at most d·T where the loss grows at least linearly in the parameters (virial theorem); twice that is
    allowed. The start need not be a minimum, so the limit is never near it: ten times its loss, or ten nats, above it. It is
    a function of the spec and of the chain's first step alone, needs no setting, and holds for losses of any scale and sign.
    """
    return start + max(2 * parameters * temperature / num_data, FACTOR * max(1.0, abs(start)))
