"""SGD, SGLD and Entropy-MCMC on a sharp and a flat mode: what the pull to flat regions is, and what the step size is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from raychains.errors import require
from raychains.evaluation.base import Array
from raychains.sample import THETA
from raychains.samplers import SGD, SGLD, Sampler
from raychains.samplers.emcmc import ANCHOR, EntropyMCMC
from raychains.schedules.base import positive_int
from raychains.tasks.two_modes import RIDGE, TwoModes

METHODS = ("sgd", "sgld", "emcmc")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One landscape and how it is sampled, at T = 1 and N = 1."""

    sharp: float
    flat: float
    lr: float
    eta: float
    steps: int
    start: tuple[float, float] | None

    @property
    def task(self) -> TwoModes:
        return TwoModes(sharp=self.sharp, flat=self.flat, start=self.start)

    def instability(self, method: str) -> float:
        """lr times the largest curvature in the sharp mode (for Entropy-MCMC that of the pair); unstable above 2."""
        h, k = 1 / self.sharp**2, 1 / self.eta if method == "emcmc" else 0.0
        return self.lr * float(np.linalg.eigvalsh([[h + k, -k], [-k, k]]).max())


SETUPS: Mapping[str, Setup] = {
    "law": Setup(sharp=0.3, flat=0.6, lr=0.004, eta=0.2, steps=30_000, start=None),
    "large step": Setup(sharp=0.1, flat=0.5, lr=0.01, eta=0.016, steps=2_000, start=RIDGE),
    "small step": Setup(sharp=0.1, flat=0.5, lr=0.002, eta=0.016, steps=2_000, start=RIDGE),
}
"""What each variable is distributed as; the published effect; the same at a fifth of the step size."""


@dataclass(frozen=True)
class Paths:
    """What the chains were at the recorded steps."""

    steps: Array
    """[records]"""
    theta: Array
    """[records, seeds, 2]"""
    anchor: Array | None
    """θₐ, as ``theta``; None for methods without it."""


def simulate(setup: Setup, method: str, *, seeds: int, every: int = 1, seed: int = 0, first: int = 0) -> Paths:
    """Independent chains of one method, stacked as lanes of one public sampler.

    Args:
        setup: landscape, step size and length.
        method: sgd, sgld or emcmc.
        seeds: number of chains.
        every: steps between records.
        seed: of the starts and of the noise.
        first: burn-in: only later steps are recorded.

    Raises:
        UserError: an unknown method, or numbers below 1.
    """
    require(method in METHODS, "method", method, f"be one of {', '.join(METHODS)}")
    positive_int("seeds", seeds)
    positive_int("every", every)
    task = setup.task
    model = task.build_model(seed=seed, lanes=seeds)
    sampler = _sampler(setup, method, model, seed + 1)
    generator = torch.Generator()
    kept: dict[str, list[Array]] = {THETA: [], ANCHOR: []}
    recorded = [k for k in range(first + 1, setup.steps + 1) if k % every == 0]
    wanted = set(recorded)
    for k in range(1, setup.steps + 1):
        task.backward(model, None, generator)
        sampler.step()
        if k in wanted:
            for name, tensors in sampler.draws():
                kept[name].append(tensors[0].detach().numpy().copy())
    anchor = np.stack(kept[ANCHOR]) if kept[ANCHOR] else None
    return Paths(np.array(recorded), np.stack(kept[THETA]), anchor)


def _sampler(setup: Setup, method: str, model: torch.nn.Module, seed: int) -> Sampler:
    params = model.parameters()
    if method == "sgd":
        return SGD(params, lr=setup.lr)
    if method == "sgld":
        return SGLD(params, lr=setup.lr, num_data=1, seed=seed)
    return EntropyMCMC(params, lr=setup.lr, eta=setup.eta, num_data=1, seed=seed)


def flat_share(setup: Setup, points: Array) -> Array:
    """Responsibility of the flat mode for points [..., 2]."""
    return np.asarray(setup.task.responsibility(torch.from_numpy(np.array(points))).squeeze(-1).numpy())


def diagonal_density(setup: Setup, x: Array, extra: float = 0.0) -> Array:
    """Exact density of (θ₁+θ₂)/√2 under the mixture with variances σ² + ``extra``, which is η for θₐ."""
    share = setup.task.flat_share
    out = np.zeros_like(x)
    for weight, centre, sd in ((1 - share, -1.0, setup.sharp), (share, 1.0, setup.flat)):
        variance = sd**2 + extra
        out += weight * np.exp(-((x - centre * np.sqrt(2)) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    return out
