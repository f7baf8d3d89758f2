"""How flat the loss is around samples: the diagonal Fisher's spectrum, random directions, planes through three samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.evaluation.vectors import generator

RANKS = 200
"""Ranks of a spectrum that are kept: enough for a curve on logarithmic axes."""
TRACE, PARAMETERS, RANK = "trace", "parameters", "rank:"


def direction(name: str, like: Tensor, seed: int, normalise: str = "filter") -> Tensor:
    """A random direction of one parameter, of its shape, on the CPU, float64; equal on every machine.

    Standard normal; under ``filter`` every filter d_{i,·} is scaled to the norm of θ_{i,·}, where a filter is what feeds
    one output (a row of a linear layer, [in, h, w] of a convolution), and tensors of one axis do not move. Under ``none``
    it stays as drawn.

    Args:
        name: the parameter's.
        like: its value θ.
        seed: of the direction.
        normalise: ``filter`` or ``none``.

    Source: Li et al. 2018, Visualizing the Loss Landscape of Neural Nets, §4; biases and normalisation layers as in
        their code.
    """
    require(normalise in ("filter", "none"), "normalise", normalise, "be filter or none")
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
    """Put θ + Σ_j a_j·d_j into a network that holds θ; see `direction`.

    Args:
        model: the network; a parameter with two names moves once.
        along: (a_j, seed of d_j).
        names: parameters that move.
        normalise: as for `direction`.
    """
    along = list(along)
    for name, p in model.named_parameters():
        if name in names and along:
            moved = p.detach().cpu().double()
            p.copy_(moved + sum(a * direction(name, p, seed, normalise) for a, seed in along))


def diagonal_fisher(
    model: nn.Module, examples: Iterable[Any], gradient: Callable[[Any], object], names: Collection[str] | None = None
) -> Array:
    """Diagonal of the empirical Fisher information, F_k = (1/n) Σ_i (∂ log p(y_i | x_i, θ)/∂θ_k)², float64 [d].

    F is diagonal under this approximation, so its entries are its eigenvalues (Entropy-MCMC §6.3). Labels are the data's
    own. One example at a time, so that the likelihood may be any and memory holds one gradient.

    Args:
        model: the network at θ; set it to evaluation mode, lest a batch of one disturb its statistics.
        examples: single examples.
        gradient: fills every parameter's ``.grad`` with the gradient of −log p of one example.
        names: parameters that count; default all. A parameter with two names counts once.

    Raises:
        UserError: no example, or no such parameter.
    """
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    require(len(chosen) > 0, "names", names, "name a parameter")
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
    require(count > 0, "examples", count, "be at least 1")
    return np.concatenate([(t / count).cpu().numpy().reshape(-1) for t in total])


def spectrum(eigenvalues: Array, ranks: int = RANKS) -> dict[str, float]:
    """Some of the sorted eigenvalues, with their sum and number.

    Args:
        eigenvalues: [d], in any order.
        ranks: about how many to keep, evenly spread over the logarithm of the rank; the first and the last among them.

    Returns:
        ``trace`` (their sum), ``parameters`` (d), and ``rank:R`` for the R-th largest one, from 1.

    Raises:
        UserError: none, or some that are not finite.
    """
    values = np.sort(np.asarray(eigenvalues, dtype=np.float64))[::-1]
    require(values.ndim == 1 and len(values) > 0, "eigenvalues", values.shape, "be a vector of at least one")
    require(bool(np.isfinite(values).all()), "eigenvalues", "others", "be finite")
    at = np.unique(np.rint(np.geomspace(1, len(values), ranks)).astype(int))
    kept = {f"{RANK}{r}": float(values[r - 1]) for r in at}
    return {TRACE: float(values.sum()), PARAMETERS: float(len(values)), **kept}


def ranks_of(found: Mapping[str, float]) -> list[tuple[int, float]]:
    """(rank, eigenvalue) of what `spectrum` kept, the largest first."""
    return sorted((int(k.removeprefix(RANK)), v) for k, v in found.items() if k.startswith(RANK))


class Plane:
    """The plane through three samples, with coordinates in the unit of θ (Garipov et al. 2018, App. A.1).

    û = (θ₂ − θ₁)/‖θ₂ − θ₁‖, v̂ the part of θ₃ − θ₁ orthogonal to it, of norm 1; (x, y) is θ₁ + x·û + y·v̂. All of it follows
    from the three distances, so that no sample has to be read.

    Args:
        distance: ‖θ_i − θ_j‖ between the three, [3, 3].

    Raises:
        UserError: they lie on one line.
    """

    def __init__(self, distance: Any) -> None:
        d = np.asarray(distance, dtype=np.float64)
        require(d.shape == (3, 3), "distance", d.shape, "have the shape [3, 3]")
        d12, d13, d23 = d[0, 1], d[0, 2], d[1, 2]
        along = (d12**2 + d13**2 - d23**2) / (2 * d12) if d12 > 0 else 0.0
        above = d13**2 - along**2
        require(d12 > 0 and above > 1e-12 * d13**2, "samples", "three on one line", "span a plane")
        self.corners = np.array([[0.0, 0.0], [d12, 0.0], [along, np.sqrt(above)]])
        """Where the samples lie, [3, 2]."""

    def grid(self, points: int, margin: float = 0.25) -> tuple[Array, Array]:
        """Coordinates of the columns and rows of a grid around the samples.

        Args:
            points: along each axis.
            margin: beyond the samples on each side, as a share of their extent.
        """
        low, high = self.corners.min(0), self.corners.max(0)
        room = margin * (high - low)
        x, y = (np.linspace(a, b, points) for a, b in zip(low - room, high + room, strict=True))
        return x, y

    def coefficients(self, x: float, y: float) -> tuple[float, float, float]:
        """c with Σ_i c_i·θ_i at (x, y) and Σ_i c_i = 1."""
        (_, _), (width, _), (along, above) = self.corners
        third = y / above
        second = (x - third * along) / width
        return float(1 - second - third), float(second), float(third)
