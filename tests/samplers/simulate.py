"""Runs any sampler on a quadratic problem in many independent lanes, and compares draws with a law in standard errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.samplers import Sampler
from tests.samplers import laws
from tests.samplers.laws import Law, Problem, Update

ALPHA, WARM = 0.9, 2
LEARNED = (1.5, 0.4, 0.8)
"""Gradient from which pSGLD learns its preconditioner before it is frozen."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A sampler with its own settings, and the linear update it claims to make (None if it is not linear)."""

    kind: Callable[..., Sampler]
    settings: dict[str, Any] = field(default_factory=dict)
    law: Callable[..., Update] | None = None

    def make(self, theta: Tensor, problem: Problem, *, lr: float, temperature: float, seed: int) -> Sampler:
        """The sampler over θ [L, d] as a stack of L lanes; a pSGLD that is to be frozen has learnt its preconditioner."""
        sampler = self.kind(
            [theta],
            lr=lr,
            temperature=temperature,
            num_data=problem.num_data,
            weight_decay=problem.decay,
            seed=seed,
            lanes=len(theta),
            **self.settings,
        )
        if "freeze_preconditioner_after" in self.settings:
            (group,) = sampler.param_groups
            group["lr"] = group["temperature"] = 0.0
            for _ in range(WARM):
                theta.grad = torch.tensor(LEARNED, dtype=theta.dtype)[: theta.shape[1]].expand_as(theta).clone()
                sampler.step()
            group["lr"], group["temperature"] = lr, temperature
        return sampler

    def update(self, problem: Problem, *, lr: float, temperature: float) -> Update:
        assert self.law is not None
        return self.law(problem.dimension, lr=lr, temperature=temperature, num_data=problem.num_data, **self.settings)


def frozen(d: int, *, alpha: float, eps: float, freeze_preconditioner_after: int, **rest: Any) -> Update:
    """pSGLD after `WARM` equal gradients r: V = (1 − αᵏ)r²."""
    root = np.sqrt(1 - alpha**freeze_preconditioner_after) * np.array(LEARNED[:d])
    return laws.preconditioned(1 / (eps + root), **rest)


def still(d: int, *, momentum: float, thermostat_rate: float, **rest: Any) -> Update:
    """A thermostat that never moves."""
    assert thermostat_rate == 0
    return laws.thermostat(d, friction=1 - momentum, **rest)


def gradient(problem: Problem, theta: Tensor, generator: torch.Generator) -> Tensor:
    """The mean loss's gradient without the prior, [L, d], each lane with its own minibatch and noise."""
    hessians, offsets = torch.from_numpy(problem.hessians), torch.from_numpy(problem.offsets)
    if problem.batch is None:
        g = theta @ hessians.mean(0).T - offsets.mean(0)
    else:
        (lanes, d), n = theta.shape, len(offsets)
        drawn = torch.randint(n, (lanes, problem.batch), generator=generator)
        share = torch.zeros(lanes, n, dtype=theta.dtype)
        share.scatter_add_(1, drawn, torch.full(drawn.shape, 1 / problem.batch, dtype=theta.dtype))
        mixed = (share @ hessians.reshape(n, d * d)).reshape(lanes, d, d)
        g = torch.bmm(mixed, theta[:, :, None])[:, :, 0] - share @ offsets
    if problem.noise:
        g += torch.tensor(problem.noise, dtype=g.dtype) * torch.empty_like(g).normal_(generator=generator)
    return g


def run(
    sampler: Sampler, problem: Problem, settings: Iterable[tuple[float, float]], *, seed: int
) -> Iterator[np.ndarray]:
    """Draws [L, d × variables] after one step for each (lr, T)."""
    (theta,) = sampler.parameters()
    generator = torch.Generator().manual_seed(seed)
    for lr, temperature in settings:
        sampler.param_groups[0]["lr"], sampler.param_groups[0]["temperature"] = lr, temperature
        theta.grad = gradient(problem, theta.detach(), generator)
        sampler.step()
        yield draws(sampler)


def draws(sampler: Sampler) -> np.ndarray:
    """Every variable side by side: θ, and θₐ where there is one."""
    return np.concatenate([p.detach().numpy() for _, tensors in sampler.draws() for p in tensors], axis=1)


def start(lanes: int, law: Law, seed: int) -> Tensor:
    """θ [L, d] in float64, drawn from ``law``."""
    torch.set_num_threads(1)
    root = torch.linalg.cholesky(torch.from_numpy(law.covariance))
    normal = torch.randn(lanes, len(law.mean), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (normal @ root.T + torch.from_numpy(law.mean)).requires_grad_()


def starting(method: Method, law: Law, problem: Problem) -> Law:
    """The law of the whole state when θ has ``law``: momenta are 0 and θₐ is a copy of θ."""
    size, d = len(method.update(problem, lr=0.1, temperature=1.0).keep), problem.dimension
    copies = 2 if method.law is laws.entropy else 1
    mean, covariance = np.zeros(size), np.zeros((size, size))
    mean[: copies * d] = np.tile(law.mean, copies)
    covariance[: copies * d, : copies * d] = np.tile(law.covariance, (copies, copies))
    return Law(mean, covariance)


@dataclass(frozen=True)
class Measured:
    """Mean and covariance around a known centre over lanes, each with standard errors from the lanes' own spread."""

    mean: np.ndarray
    covariance: np.ndarray
    mean_error: np.ndarray
    covariance_error: np.ndarray

    def deviations(self, law: Law) -> np.ndarray:
        """Distance of every mean and covariance from ``law``'s, in standard errors."""
        return np.concatenate(
            [
                (self.mean - law.mean) / self.mean_error,
                ((self.covariance - law.covariance) / self.covariance_error).ravel(),
            ]
        )


def measure(samples: Sequence[np.ndarray], centre: np.ndarray) -> Measured:
    """From draws [L, k] at several times: a lane's times are averaged first, then lanes are independent."""
    away = np.stack(samples) - centre
    lanes, k = away.shape[1:]
    products = np.einsum("tli,tlj->lij", away, away) / len(away)
    centred = away.mean(0)
    root = np.sqrt(lanes)
    return Measured(
        centre + centred.mean(0),
        products.mean(0),
        centred.std(0) / root,
        products.reshape(lanes, k * k).std(0).reshape(k, k) / root,
    )


def assert_law(samples: Sequence[np.ndarray], law: Law, *, errors: float = 5.0) -> None:
    """Every entry of mean and covariance lies within ``errors`` standard errors of ``law``'s, and so does their sum.

    The sum is the mean square of the whitened draws, 1 for the law; it pools all coordinates.
    """
    worst = float(np.abs(measure(samples, law.mean).deviations(law)).max())
    assert worst < errors, f"a moment is {worst:.1f} standard errors from the exact one"
    away = np.stack(samples) - law.mean
    squares = np.einsum("tli,ij,tlj->l", away, np.linalg.inv(law.covariance), away) / (len(away) * len(law.mean))
    z = float((squares.mean() - 1) / squares.std() * np.sqrt(len(squares)))
    assert abs(z) < errors, f"the whitened mean square is {z:.1f} standard errors from 1: {squares.mean():.4f}"
