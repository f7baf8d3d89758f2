"""Samplers written out plainly, step by step, on a loss that couples all coordinates; on any device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from raychains.samplers.noise import Noise

SHAPES = [(4, 3), (2,), (5, 2)]
DECAY, RHO = [0.0, 0.0, 0.2], [0.05, 0.05, 0.3]


def tensors(dtype: torch.dtype = torch.float64, seed: int = 0, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(device, dtype) for s in SHAPES]


def loss_at(params: list[Tensor], step: int, part: int = 0) -> Tensor:
    """Couples all coordinates and changes with the step and the sub-minibatch."""
    total = torch.stack(
        [(p * torch.arange(1, p.numel() + 1, device=p.device).reshape(p.shape) * 0.1).sum() for p in params]
    ).sum()
    return torch.stack([(p**2 + (p + step).sin()).mean() for p in params]).sum() + (total + part).cos()


def closure(params: list[Tensor], step: int, part: int = 0) -> Callable[[], Tensor]:
    def evaluate() -> Tensor:
        for p in params:
            p.grad = None
        loss = loss_at(params, step, part)
        loss.backward()
        return loss

    return evaluate


def gradients(values: list[Tensor], step: int, part: int) -> list[Tensor]:
    points = [v.clone().requires_grad_() for v in values]
    return list(torch.autograd.grad(loss_at(points, step, part), points))


def sam_groups(params: list[Tensor]) -> list[dict[str, Any]]:
    return [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.2, "rho": 0.3}]


def bsam_groups(params: list[Tensor]) -> list[dict[str, Any]]:
    second = {"weight_decay": 0.02, "rho": 0.3, "beta1": 0.5, "beta2": 0.8, "damping": 0.3, "s0": 2.0}
    return [{"params": params[:2]}, {"params": params[2:], **second}]


def psgld_groups(params: list[Tensor]) -> list[dict[str, Any]]:
    return [{"params": params[:2]}, {"params": params[2:], "lr": 0.003, "weight_decay": 0.3, "alpha": 0.8, "eps": 1e-3}]


def entropy_groups(params: list[Tensor]) -> list[dict[str, Any]]:
    second = {"weight_decay": 0.2, "inner_steps": 3, "inner_lr": 0.2, "inner_noise": 0.0, "gamma": 0.5}
    return [{"params": params[:2]}, {"params": params[2:], **second, "lr": 0.3, "gamma_growth": 0.1, "averaging": 0.5}]


def advance(sampler: Any, steps: range, lr: float = 0.05) -> None:
    params = sampler.parameters()
    for k in steps:
        sampler.param_groups[0]["lr"] = lr * (1 + k % 3)
        closures = [closure(params, k, j) for j in range(sampler.parts)]
        sampler.step(closures if sampler.gradients_per_step == 2 else closures[0])


Pairs = Iterator[tuple[list[Tensor], list[Tensor]]]
"""Tensors after each step: the sampler's and those of the transcription."""


def sam_path(sampler: Any, *, momentum: float, steps: int = 8) -> Pairs:
    """Parameters of a `SAM` over `sam_groups` of `tensors`."""
    params, parts = sampler.parameters(), sampler.parts
    theta = [p.detach().clone() for p in params]
    v = [torch.zeros_like(t) for t in theta]
    for k in range(steps):
        advance(sampler, range(k, k + 1))
        mean = [torch.zeros_like(t) for t in theta]
        for j in range(parts):
            g = [d + w * t for d, w, t in zip(gradients(theta, k, j), DECAY, theta, strict=True)]
            norm = math.sqrt(sum(float((x * x).sum()) for x in g))
            worst = [t + r * x / norm for t, r, x in zip(theta, RHO, g, strict=True)]
            again = [d + w * t for d, w, t in zip(gradients(worst, k, j), DECAY, worst, strict=True)]
            mean = [m + x / parts for m, x in zip(mean, again, strict=True)]
        for i in range(3):
            v[i] = momentum * v[i] - (0.05 * (1 + k % 3) if i < 2 else 0.1) * mean[i]
            theta[i] = theta[i] + v[i]
        yield [p.detach() for p in params], theta


def bsam_path(sampler: Any, *, temperature: float, seed: int, steps: int = 6) -> Pairs:
    """Parameters and their s of a `BSAM` with weight decay .01 over `bsam_groups` of `tensors`.

    Each sub-minibatch j: w̃_j from one normal draw per parameter, g_j there, g′_j at m + ρ·g_j/s.
    """
    params, parts, n, noise = sampler.parameters(), sampler.parts, sampler.num_data, Noise(seed)
    m = [p.detach().clone() for p in params]
    average = [torch.zeros_like(t) for t in m]
    s = [torch.full_like(t, s0) for t, s0 in zip(m, (1.0, 1.0, 2.0), strict=True)]
    for k in range(steps):
        advance(sampler, range(k, k + 1))
        absolute, second = ([torch.zeros_like(t) for t in m] for _ in range(2))
        for j in range(parts):
            tilde = list(m)
            if temperature > 0:
                xi = [noise.like(a) for a in m]
                tilde = [a + (temperature / (n * b)).sqrt() * x for a, b, x in zip(m, s, xi, strict=True)]
            g = gradients(tilde, k, j)
            rhos = (0.01, 0.01, 0.3)
            g2 = gradients([a + r * x / b for a, r, x, b in zip(m, rhos, g, s, strict=True)], k, j)
            absolute = [a + x.abs() / parts for a, x in zip(absolute, g, strict=True)]
            second = [a + x / parts for a, x in zip(second, g2, strict=True)]
        for i in range(3):
            lr = 0.05 * (1 + k % 3) if i < 2 else 0.1
            b1, b2, damping, delta = (0.9, 0.999, 0.1, 0.01) if i < 2 else (0.5, 0.8, 0.3, 0.02)
            average[i] = b1 * average[i] + (1 - b1) * (second[i] + delta * m[i])
            m[i] = m[i] - lr * average[i] / s[i]
            s[i] = b2 * s[i] + (1 - b2) * (s[i].sqrt() * absolute[i] + damping + delta)
        yield [p.detach() for p in params] + [sampler.state[p]["s"] for p in params], m + s


def psgld_path(sampler: Any, *, freeze: int | None, seed: int, steps: int = 20) -> Pairs:
    """Parameters of a `PSGLD` over `psgld_groups` of `tensors`."""
    noise, n = Noise(seed), sampler.num_data
    theta, v = tensors(), [torch.zeros(s, dtype=torch.float64) for s in SHAPES]
    for k in range(steps):
        advance(sampler, range(k, k + 1), lr=0.005)  # larger ones amplify rounding
        for i, bar in enumerate(gradients(theta, k, 0)):
            lr, decay, alpha, eps = (0.005 * (1 + k % 3), 0.0, 0.99, 1e-5) if i < 2 else (0.003, 0.3, 0.8, 1e-3)
            if freeze is None or k < freeze:
                v[i] = alpha * v[i] + (1 - alpha) * bar**2
            scale = 1 / (eps + v[i].sqrt())
            drift = lr * scale * (bar + decay * theta[i])
            theta[i] = theta[i] - drift + (2 * lr * scale / n).sqrt() * noise.like(v[i])
        yield (
            [p.detach() for p in sampler.parameters()] + [sampler.state[p]["square_avg"] for p in sampler.parameters()],
            theta + v,
        )


def entropy_path(sampler: Any, *, momentum: float, temperature: float, seed: int, steps: int = 23) -> Pairs:
    """θ′ and x of an `EntropySGD` or `EntropySGLD` with L = 5 and ε = .01 over `entropy_groups` of `tensors`."""
    noise = Noise(seed)
    theta, x, mu = tensors(), tensors(), tensors()
    v = [torch.zeros(s, dtype=torch.float64) for s in SHAPES]
    for k in range(steps):
        advance(sampler, range(k, k + 1))
        for i, g in enumerate(gradients(theta, k, 0)):
            loops, inner_lr, eps, gamma0, growth, a, decay = (
                (5, 0.1, 1e-2, 0.03, 1e-3, 0.75, 0.0) if i < 2 else (3, 0.2, 0.0, 0.5, 0.1, 0.5, 0.2)
            )
            lr = 0.05 * (1 + k % 3) if i < 2 else 0.3
            gamma = gamma0 * (1 + growth) ** (k // loops)
            force = g + decay * theta[i] + gamma * (theta[i] - x[i])
            xi = noise.like(theta[i]) if eps else 0.0
            theta[i] = theta[i] - inner_lr * force + eps * math.sqrt(2 * inner_lr) * xi
            mu[i] = a * mu[i] + (1 - a) * theta[i]
            if (k + 1) % loops == 0:
                push = -lr * (x[i] - mu[i])
                if temperature:
                    xi = noise.like(theta[i])
                    push = push + math.sqrt(2 * (1 - momentum) * lr * temperature / sampler.num_data) * xi
                v[i] = momentum * v[i] + push
                x[i] = x[i] + momentum * v[i] + push
                theta[i] = mu[i] = x[i]
        ((_, drawn),) = sampler.draws()
        yield [p.detach() for p in sampler.parameters()] + drawn, theta + x
