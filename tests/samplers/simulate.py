"""Runs any sampler on a quadratic problem in many independent lanes, and compares draws with a law in standard
errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
        """The sampler over θ [L, d] as a stack of L lanes; a pSGLD that is to be frozen has learnt its
        preconditioner."""
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
                theta.grad = theta.new_tensor(LEARNED)[: theta.shape[1]].expand_as(theta).clone()
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
    hessians, offsets = (torch.from_numpy(a).to(theta) for a in (problem.hessians, problem.offsets))
    if problem.batch is None:
        g = theta @ hessians.mean(0).T - offsets.mean(0)
    else:
        (lanes, d), n = theta.shape, len(offsets)
        drawn = torch.randint(n, (lanes, problem.batch), generator=generator, device=theta.device)
        share = theta.new_zeros(lanes, n)
        share.scatter_add_(1, drawn, theta.new_full(drawn.shape, 1 / problem.batch))
        mixed = (share @ hessians.reshape(n, d * d)).reshape(lanes, d, d)
        g = torch.bmm(mixed, theta[:, :, None])[:, :, 0] - share @ offsets
    if problem.noise:
        g += g.new_tensor(problem.noise) * torch.empty_like(g).normal_(generator=generator)
    return g


def run(
    sampler: Sampler, problem: Problem, settings: Iterable[tuple[float, float]], *, seed: int
) -> Iterator[np.ndarray]:
    """Draws [L, d × variables] after one step for each (lr, T)."""
    (theta,) = sampler.parameters()
    generator = torch.Generator(theta.device).manual_seed(seed)
    for lr, temperature in settings:
        sampler.param_groups[0]["lr"], sampler.param_groups[0]["temperature"] = lr, temperature
        theta.grad = gradient(problem, theta.detach(), generator)
        sampler.step()
        yield draws(sampler)


def draws(sampler: Sampler) -> np.ndarray:
    """Every variable side by side: θ, and θₐ where there is one."""
    return np.concatenate(
        [p.detach().double().cpu().numpy() for _, tensors in sampler.draws() for p in tensors], axis=1
    )


def start(lanes: int, law: Law, seed: int, device: str = "cpu") -> Tensor:
    """θ [L, d] in float64, drawn from ``law``."""
    torch.set_num_threads(1)
    root = torch.linalg.cholesky(torch.from_numpy(law.covariance))
    normal = torch.randn(lanes, len(law.mean), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (normal @ root.T + torch.from_numpy(law.mean)).to(device).requires_grad_()


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


def late(
    method: Method,
    problem: Problem,
    *,
    lr: float,
    temperature: float,
    burn_in: int,
    times: int = 1,
    apart: int = 1,
    lanes: int,
    seed: int = 1,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> list[np.ndarray]:
    """Draws at ``times`` steps, ``apart`` each, after ``burn_in`` steps from a point mass away from the mean."""
    theta = torch.zeros(lanes, problem.dimension, dtype=dtype, device=device, requires_grad=True)
    torch.set_num_threads(1)
    sampler = method.make(theta, problem, lr=lr, temperature=temperature, seed=seed)
    steps = [(lr, temperature)] * (burn_in + (times - 1) * apart)
    path = run(sampler, problem, steps, seed=seed + 1000)
    return [x for k, x in enumerate(path, 1) if k >= burn_in and (k - burn_in) % apart == 0]


def stationary_draws(
    method: Method, problem: Problem, *, lr: float, temperature: float, lanes: int, **where: Any
) -> tuple[list[np.ndarray], Law]:
    """Draws of a linear sampler at five steps once it has settled, and the exact law of their variables."""
    update = method.update(problem, lr=lr, temperature=temperature)
    burn_in = laws.settled(update, problem, 1e-4)  # 2 % of a standard error of 20,000 lanes
    apart = burn_in // 3  # a twentieth is left of the mean's correlation; lanes give the errors, whatever is left
    rest = {"burn_in": burn_in, "times": 5, "apart": apart, "lanes": lanes, **where}
    got = late(method, problem, lr=lr, temperature=temperature, **rest)
    return got, laws.stationary(update, problem).of(got[0].shape[1])


def halved(
    method: Method, problem: Problem, *, temperature: float, halvings: int, lanes: int, device: str = "cpu"
) -> Measured:
    """Moments of θ at the time step h = .14/2^halvings with the continuous dynamics (D, m_ζ) kept."""
    scale = 0.5**halvings
    method = replace(
        method, settings={**method.settings, "momentum": 1 - 0.4 * scale, "thermostat_rate": 0.02 * scale**2}
    )
    burn_in, apart = int(150 / scale), int(20 / scale)
    kept = late(
        method,
        problem,
        lr=0.2 * scale**2,
        temperature=temperature,
        burn_in=burn_in,
        times=6,
        apart=apart,
        lanes=lanes,
        device=device,
    )
    return measure(kept, problem.target(temperature).mean)


def excess(coarse: Measured, fine: Measured, target: Law, *, order: int) -> tuple[float, float]:
    """Distance of the finer step's mean and covariance from ``target``, in standard errors.

    From the covariance's is taken what Richardson's rule makes of the two steps, whose error is of ``order``.
    """
    far, gap = np.abs(fine.covariance - target.covariance), np.abs(coarse.covariance - fine.covariance)
    mean = np.abs((fine.mean - target.mean) / fine.mean_error).max()
    return float(mean), float(((far - gap / (2**order - 1)) / fine.covariance_error).max())


@dataclass(frozen=True)
class Agreement:
    """How draws agree with a law: their worst moment, in standard errors, and the mean square of the whitened draws.

    The square is 1 for the law; it pools all coordinates.
    """

    worst: float
    square: float
    square_error: float


def agreement(samples: Sequence[np.ndarray], law: Law) -> Agreement:
    """Of draws [L, k] at several times with ``law``."""
    worst = float(np.abs(measure(samples, law.mean).deviations(law)).max())
    away = np.stack(samples) - law.mean
    squares = np.einsum("tli,ij,tlj->l", away, np.linalg.inv(law.covariance), away) / (len(away) * len(law.mean))
    return Agreement(worst, float(squares.mean()), float(squares.std() / np.sqrt(len(squares))))


def assert_law(samples: Sequence[np.ndarray], law: Law, *, errors: float = 5.0) -> None:
    """Every entry of mean and covariance lies within ``errors`` standard errors of ``law``'s, and so does their sum."""
    found = agreement(samples, law)
    assert found.worst < errors, f"a moment is {found.worst:.1f} standard errors from the exact one"
    z = (found.square - 1) / found.square_error
    assert abs(z) < errors, f"the whitened mean square is {z:.1f} standard errors from 1: {found.square:.4f}"
