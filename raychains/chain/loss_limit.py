"""The largest training loss that a kept sample may have: a chain above it has diverged, though its numbers are
finite."""

from __future__ import annotations

FIRST = 100
"""Steps before which no chain is judged: pSGLD's first ones may throw parameters far away, MILE's look for a step
size."""
NATS = 10.0
"""Nats of an example by which a loss may lie above the chain's first one in any case: starts are no minima, and
minibatches heat."""
FACTOR = 5.0
"""Multiples of the first loss by which it may, whatever its scale: of targets that nobody standardised, of sums over
pixels."""


def loss_limit(start: float, *, parameters: int, num_data: int, temperature: float) -> float:
    """Return the largest mean loss of an example that a draw of a chain may have, given the chain's first one.

    At temperature T the potential N·loss + prior of d parameters exceeds its minimum by d·T/2 on average where it is
    quadratic, as it nearly is where draws at T ≤ 1 are, and by at most d·T where it grows at least linearly (virial
    theorem): twice that is allowed. The limit is a function of the spec and of the chain's first losses alone, so that
    a chain which resumes has the same one.
    """
    heat = parameters * temperature * (1 if temperature <= 1 else 2) / num_data
    return start + max(heat, NATS, FACTOR * abs(start))
