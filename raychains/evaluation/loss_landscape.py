"""Flatness of the loss around a network: random directions, and the diagonal Fisher information with its spectrum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.evaluation.evaluation import Array, finite
from raychains.evaluation.vectors import generator

RANKS = 200
"""Ranks of a spectrum that are kept: enough for a curve on logarithmic axes."""
TRACE, PARAMETERS, RANK = "trace", "parameters", "rank:"


def direction(name: str, like: Tensor, seed: int, normalise: str = "filter") -> Tensor:
    """Return a random direction of one parameter, of its shape, on the CPU, float64; equal on every machine.

    Standard normal; under ``filter`` every filter d_{i,·} is scaled to the norm of θ_{i,·}, where a filter is what
    feeds one output (a row of a linear layer, [in, h, w] of a convolution), and tensors of one axis do not move. Under
    ``none`` it stays as drawn.

    Args:
        name: the parameter's.
        like: its value θ.
        seed: of the direction.
        normalise: ``filter`` or ``none``.

    Source: Li et al. 2018, Visualizing the Loss Landscape of Neural Nets, §4; biases and normalisation layers as in
        their code.
    """
    drawn = generator(seed, name).standard_normal(like.numel(), dtype=np.float32)
    d = torch.from_numpy(drawn).double().reshape(like.shape)
    if normalise == "none":
        return d
    if like.ndim < 2:
        return torch.zeros_like(d)
    rows, own = d.flatten(1), like.detach().cpu().double().flatten(1)
    return (rows * (own.norm(dim=1) / rows.norm(dim=1))[:, None]).reshape(like.shape)


@torch.no_grad()
def move(
    model: nn.Module, along: Iterable[tuple[float, int]], names: Collection[str], normalise: str = "filter"
) -> None:
    """Put θ + Σ_j a_j·d_j into a network that holds θ, from (a_j, seed of d_j) and the names that move; see
    `direction`.

    A parameter with two names moves once.
    """
    along = list(along)
    for name, p in model.named_parameters():
        if name in names and along:
            moved = p.detach().cpu().double()
            p.copy_(moved + sum(a * direction(name, p, seed, normalise) for a, seed in along))


def diagonal_fisher(
    model: nn.Module, examples: Iterable[Any], gradient: Callable[[Any], object], names: Collection[str]
) -> Array:
    """Return the diagonal of the empirical Fisher information, F_k = (1/n) Σ_i (∂ log p(y_i | x_i, θ)/∂θ_k)², float64
    [d].

    F is diagonal under this approximation, so its entries are its eigenvalues (Entropy-MCMC §6.3). Labels are the
    data's own. One example at a time, so that the likelihood may be any and memory holds one gradient.

    Args:
        model: the network at θ; set it to evaluation mode, lest a batch of one disturb its statistics.
        examples: single examples.
        gradient: fills every parameter's ``.grad`` with the gradient of −log p of one example.
        names: parameters that count. A parameter with two names counts once.
    """
    chosen = [p for name, p in model.named_parameters() if name in names]
    total = [torch.zeros(p.shape, dtype=torch.float64, device=p.device) for p in chosen]
    count = 0
    for example in examples:
        model.zero_grad(set_to_none=True)
        gradient(example)
        for t, p in zip(total, chosen, strict=True):
            if p.grad is not None:  # None where the loss does not depend on it
                t.addcmul_(p.grad.double(), p.grad.double())
        count += 1
    model.zero_grad(set_to_none=True)
    return np.concatenate([(t / count).cpu().numpy().reshape(-1) for t in total])


def spectrum(eigenvalues: Array) -> dict[str, float]:
    """Return some `RANKS` of the sorted eigenvalues, with their sum and number.

    They are evenly spread over the logarithm of the rank, the first and the last among them.

    Args:
        eigenvalues: [d], in any order.

    Returns:
        ``trace`` (their sum), ``parameters`` (d), and ``rank:R`` for the R-th largest one, from 1.

    Raises:
        UserError: some that are not finite.
    """
    values = np.sort(finite(eigenvalues, "eigenvalues"))[::-1]
    at = np.unique(np.rint(np.geomspace(1, len(values), RANKS)).astype(int))
    kept = {f"{RANK}{r}": float(values[r - 1]) for r in at}
    return {TRACE: float(values.sum()), PARAMETERS: float(len(values)), **kept}


def ranks_of(found: Mapping[str, float]) -> list[tuple[int, float]]:
    """Return (rank, eigenvalue) of those that `spectrum` kept, the largest first."""
    return sorted((int(k.removeprefix(RANK)), v) for k, v in found.items() if k.startswith(RANK))
