"""Exact laws of every sampler whose update is linear, on quadratic losses with exact or minibatch gradients.

A linear update is s ← F·s + G·g(θ) + B·ξ with θ = R·s the first d entries of the state s = (θ[, v][, θₐ][, vₐ]) and
ξ ~ N(0, I). Datum i has the loss gradient Hᵢθ − cᵢ and the prior adds λθ; a minibatch is the mean over b data drawn
with replacement (or over all of them), plus noise ε of constant variance. With z = (s, 1) one step is therefore

    z ← Ã·z + w,  Ã = mean over the minibatch of Ãᵢ,  Ãᵢ = [[F + G(Hᵢ + λI)R, −Gcᵢ], [0, 1]],  w ~ N(0, BBᵀ + GΣ_εGᵀ)

and M = E zzᵀ, which holds mean and covariance, follows the exact recursion vec M ← E[Ã⊗Ã]·vec M + vec Q. A minibatch is
a mean of b independent Ãᵢ, so that E[Ã⊗Ã] = Ā⊗Ā + (mean of Ãᵢ⊗Ãᵢ − Ā⊗Ā)/b. The fixed point is one linear solve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy import ndarray


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A quadratic mean loss over data, its prior, and how a step's gradient is made."""

    hessians: ndarray
    """[n, d, d], Hᵢ."""
    offsets: ndarray
    """[n, d], cᵢ."""
    num_data: int
    """N of the potential U = N·(mean loss + ½λ‖θ‖²); n = 1 may stand for N equal data."""
    decay: float = 0.0
    """λ."""
    batch: int | None = None
    """b; None takes all data."""
    noise: tuple[float, ...] = ()
    """sd of the constant gradient noise by coordinate; none when empty."""

    @property
    def dimension(self) -> int:
        return int(self.offsets.shape[1])

    @property
    def hessian(self) -> ndarray:
        """Of the mean loss with its prior."""
        return self.hessians.mean(0) + self.decay * np.eye(self.dimension)

    def target(self, temperature: float) -> Law:
        """exp(−U/T): N(H⁻¹c, T(NH)⁻¹)."""
        return Law(
            np.linalg.solve(self.hessian, self.offsets.mean(0)),
            temperature * np.linalg.inv(self.num_data * self.hessian),
        )


@dataclass(frozen=True)
class Law:
    """Mean [k] and covariance [k, k]."""

    mean: ndarray
    covariance: ndarray

    def of(self, count: int, start: int = 0) -> Law:
        """The marginal of ``count`` entries."""
        part = slice(start, start + count)
        return Law(self.mean[part], self.covariance[part, part])

    @property
    def moments(self) -> ndarray:
        """M of (s, 1)."""
        second = self.covariance + np.outer(self.mean, self.mean)
        return np.block([[second, self.mean[:, None]], [self.mean[None, :], np.ones((1, 1))]])

    @classmethod
    def from_moments(cls, moments: ndarray) -> Law:
        mean = moments[:-1, -1]
        return cls(mean, moments[:-1, :-1] - np.outer(mean, mean))


@dataclass(frozen=True)
class Update:
    """F [k, k], G [k, d] and B [k, q] of s ← F·s + G·g(θ) + B·ξ."""

    keep: ndarray
    force: ndarray
    noise: ndarray


def velocity(
    d: int, *, lr: float, temperature: float, num_data: int, momentum: float = 0.0, noise_estimate: float = 0.0
) -> Update:
    """SGLD and SGHMC, s = (θ, v): v ← m·v − lr·g + σξ, θ ← θ + v, σ² = 2(1 − m − γ̂)·lr·T/N."""
    sd = math.sqrt(2 * (1 - momentum - noise_estimate) * lr * temperature / num_data)
    return Update(blocks(d, [[1, momentum], [0, momentum]]), blocks(d, [[-lr], [-lr]]), blocks(d, [[sd], [sd]]))


def preconditioned(scale: ndarray, *, lr: float, temperature: float, num_data: int) -> Update:
    """pSGLD with a constant preconditioner, s = θ: θ ← θ − lr·P·g + √(2·lr·T·P/N)·ξ."""
    return Update(np.eye(len(scale)), -lr * np.diag(scale), np.diag(np.sqrt(2 * lr * temperature * scale / num_data)))


def entropy(
    d: int,
    *,
    lr: float,
    temperature: float,
    num_data: int,
    eta: float,
    momentum: float = 0.0,
    anchor_decay: float = 0.0,
    update: str = "joint",
) -> Update:
    """Entropy-MCMC, s = (θ, θₐ, v, vₐ): SGHMC on the pair, or θₐ drawn from its conditional given the new θ.

    With r = 1/(ηN): v ← m·v − lr·[g + r(θ − θₐ)] + σξ₁ and vₐ ← m·vₐ − lr·[r(θₐ − θ) + λₐθₐ] + σξ₂, then both move.
    Gibbs: exp(−[‖θ−θₐ‖²/(2η) + ½Nλₐ‖θₐ‖²]/T) as a density of θₐ is N(θ/(1+ηNλₐ), Tη/(1+ηNλₐ)).
    """
    r, m = 1 / (eta * num_data), momentum
    sd = math.sqrt(2 * (1 - m) * lr * temperature / num_data)
    theta_velocity = [-lr * r, lr * r, m, 0.0]
    anchor_velocity = [lr * r, -lr * (r + anchor_decay), 0.0, m]
    theta = [1 + theta_velocity[0], *theta_velocity[1:]]
    if update == "joint":
        anchor = [anchor_velocity[0], 1 + anchor_velocity[1], *anchor_velocity[2:]]
        noise = [[sd, 0], [0, sd], [sd, 0], [0, sd]]
        return Update(
            blocks(d, [theta, anchor, theta_velocity, anchor_velocity]),
            blocks(d, [[-lr], [0], [-lr], [0]]),
            blocks(d, noise),
        )
    shrink = 1 / (1 + eta * num_data * anchor_decay)
    spread = math.sqrt(temperature * eta * shrink)
    return Update(
        blocks(d, [theta, [shrink * x for x in theta], theta_velocity, [0, 0, 0, 0]]),
        blocks(d, [[-lr], [-shrink * lr], [-lr], [0]]),
        blocks(d, [[sd, 0], [shrink * sd, spread], [sd, 0], [0, 0]]),
    )


def thermostat(
    d: int, *, lr: float, temperature: float, num_data: int, friction: float, integrator: str = "strang"
) -> Update:
    """SGNHT and ATMC at a thermostat that stays at 0, s = (θ, p); ``friction`` is a₀ = h·D, h = √(lr/N).

    Strang: the exact solution of dp = −N·g dt − D·p dt + √(2DT) dW over h; Euler: its first order. Then θ ← θ + h·p.
    """
    h = math.sqrt(lr / num_data)
    rate = friction / h
    if integrator == "strang":
        decay = math.exp(-rate * h)
        push, sd = num_data * (1 - decay) / rate, math.sqrt(temperature * (1 - decay**2))
    else:
        decay, push, sd = 1 - friction, num_data * h, math.sqrt(2 * friction * temperature)
    return Update(
        blocks(d, [[1, h * decay], [0, decay]]), blocks(d, [[-h * push], [-push]]), blocks(d, [[h * sd], [sd]])
    )


def local_entropy(
    d: int,
    *,
    lr: float,
    temperature: float,
    num_data: int,
    inner_lr: float,
    inner_noise: float,
    gamma: float,
    averaging: float,
    outer: bool,
    momentum: float = 0.0,
) -> Update:
    """Entropy-SGLD, s = (θ′, x, μ, v): an inner step, and behind it, where ``outer``, the outer step and the restart.

    θ′ ← θ′ − lr′[g + γ(θ′ − x)] + ε√(2lr′)ξ₁; μ ← aμ + (1 − a)θ′. Outer: push = lr(μ − x) + √(2(1 − m)·lr·T/N)ξ₂;
    v ← m·v + push; x ← x + m·v + push (Nesterov); θ′ = μ = x.
    """
    sd, a, m = inner_noise * math.sqrt(2 * inner_lr), averaging, momentum
    theta = np.array([1 - inner_lr * gamma, inner_lr * gamma, 0, 0])
    average = (1 - a) * theta + np.array([0, 0, a, 0])
    x, v = np.array([0, 1.0, 0, 0]), np.array([0, 0, 0, 1.0])
    # Coefficients on (θ′, x, μ, v), on g and on (ξ₁, ξ₂).
    on_g = {"theta": -inner_lr, "average": -(1 - a) * inner_lr}
    if not outer:
        return Update(
            blocks(d, [list(theta), list(x), list(average), list(v)]),
            blocks(d, [[on_g["theta"]], [0], [on_g["average"]], [0]]),
            blocks(d, [[sd, 0], [0, 0], [(1 - a) * sd, 0], [0, 0]]),
        )
    kick = math.sqrt(2 * (1 - m) * lr * temperature / num_data)
    push, push_g = lr * (average - x), lr * on_g["average"]
    push_noise = np.array([lr * (1 - a) * sd, kick])
    velocity = m * v + push
    moved = x + m * velocity + push
    moved_g, moved_noise = (1 + m) * push_g, (1 + m) * push_noise
    return Update(
        blocks(d, [list(moved), list(moved), list(moved), list(velocity)]),
        blocks(d, [[moved_g], [moved_g], [moved_g], [push_g]]),
        blocks(d, [list(moved_noise), list(moved_noise), list(moved_noise), list(push_noise)]),
    )


def blocks(d: int, scalars: list[list[float]]) -> ndarray:
    """Each scalar times the d×d identity."""
    return np.kron(np.array(scalars, dtype=float), np.eye(d))


def recursion(update: Update, problem: Problem) -> tuple[ndarray, ndarray]:
    """E[Ã⊗Ã] [(k+1)², (k+1)²] and vec Q [(k+1)²]."""
    k, d, n = len(update.keep), problem.dimension, len(problem.hessians)
    each = np.zeros((n, k + 1, k + 1))
    each[:, :k, :k] = update.keep
    each[:, :k, :d] += update.force @ (problem.hessians + problem.decay * np.eye(d))
    each[:, :k, k] = -problem.offsets @ update.force.T
    each[:, k, k] = 1
    mean = each.mean(0)
    operator = np.kron(mean, mean)
    if problem.batch is not None:
        squares = np.einsum("nij,nkl->ikjl", each, each).reshape(operator.shape) / n
        operator = operator + (squares - operator) / problem.batch
    noise = np.zeros((k + 1, k + 1))
    noise[:k, :k] = update.noise @ update.noise.T
    if problem.noise:
        noise[:k, :k] += update.force @ np.diag(np.square(problem.noise)) @ update.force.T
    return operator, noise.ravel()


def path(start: Law, updates: Iterable[Update], problem: Problem) -> Iterator[Law]:
    """The exact law after each update."""
    moments = start.moments
    for update in updates:
        operator, noise = recursion(update, problem)
        moments = (operator @ moments.ravel() + noise).reshape(moments.shape)
        yield Law.from_moments(moments)


def stationary(update: Update, problem: Problem) -> Law:
    """The fixed point of the recursion, with M's last entry, E 1², known."""
    operator, noise = recursion(update, problem)
    size = len(update.keep) + 1
    known = np.linalg.solve(np.eye(size**2 - 1) - operator[:-1, :-1], noise[:-1] + operator[:-1, -1])
    return Law.from_moments(np.append(known, 1.0).reshape(size, size))


def settled(update: Update, problem: Problem, tolerance: float) -> int:
    """Steps after which what is left of the start's second moments is below the share ``tolerance``."""
    operator = recursion(update, problem)[0][:-1, :-1]
    radius = float(np.abs(np.linalg.eigvals(operator)).max())  # ρ(Ā), through the mean, or its square
    assert radius < 1, f"unstable: the spectral radius is {radius:.4g}"
    return math.ceil(math.log(tolerance) / math.log(radius))
