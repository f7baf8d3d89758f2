"""The nested loops of Entropy-SG(L)D: an inner Langevin chain θ′ around x, and outer steps of x toward its mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.errors import require
from raychains.sample import THETA
from raychains.samplers.base import Params, Sampler, wide
from raychains.schedules.base import is_number, positive, positive_int


class LocalEntropySampler(Sampler):
    """What Entropy-SGD and Entropy-SGLD share; they differ in the outer noise.

    One `step` is one inner step on one minibatch, so that an outer step spends ``inner_steps`` gradients. The
    parameters hold θ′; x, μ and the outer velocity are states, as is the number of inner steps made.
    """

    statistics_fit: ClassVar[bool] = False

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        momentum: float,
        inner_steps: int,
        inner_lr: float,
        inner_noise: float,
        gamma: float,
        gamma_growth: float,
        averaging: float,
        num_data: int,
        temperature: float,
        weight_decay: float,
        seed: int | None,
        lanes: int,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "inner_steps": inner_steps,
            "inner_lr": inner_lr,
            "inner_noise": inner_noise,
            "gamma": gamma,
            "gamma_growth": gamma_growth,
            "averaging": averaging,
        }
        super().__init__(params, defaults, num_data=num_data, temperature=temperature, seed=seed, lanes=lanes)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        positive_int("inner_steps", group["inner_steps"])
        for name in ("inner_lr", "gamma"):
            positive(name, group[name])
        for name in ("inner_noise", "gamma_growth"):
            require(is_number(group[name]) and group[name] >= 0, name, group[name], "be a finite number of at least 0")
        averaging = group["averaging"]
        require(is_number(averaging) and 0 <= averaging < 1, "averaging", averaging, "lie in [0, 1)")

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        for p, grad in zip(params, grads, strict=True):
            state = self.state[p]
            if "x" not in state:
                state["x"] = p.detach().to(wide(p.dtype), copy=True)
                state["average"] = state["x"].clone()
                state["inner_steps"] = 0
            self._inner_step(group, p, grad.to(wide(p.dtype)))
            state["inner_steps"] += 1
            if state["inner_steps"] % group["inner_steps"] == 0:
                self._outer_step(group, p)

    def _inner_step(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        state, inner_lr = self.state[p], group["inner_lr"]
        gamma = scope(group, state["inner_steps"] // group["inner_steps"])
        change = grad + group["weight_decay"] * p + gamma * (p - state["x"])
        change.mul_(-inner_lr)
        self.add_noise([change], inner_noise_std(group))
        p.add_(change)
        state["average"].mul_(group["averaging"]).add_(p, alpha=1 - group["averaging"])

    def _outer_step(self, group: dict[str, Any], p: Tensor) -> None:
        """Move x, by Nesterov's rule in velocity form, and restart θ′ and μ from it."""
        state, momentum = self.state[p], group["momentum"]
        push = (state["average"] - state["x"]).mul_(group["lr"])
        self.add_noise([push], outer_noise_std(group, self.num_data))
        if momentum != 0:
            velocity = self.state_of(p, "velocity").mul_(momentum).add_(push)
            push.add_(velocity, alpha=momentum)
        state["x"].add_(push)
        state["average"].copy_(state["x"])
        p.copy_(state["x"])

    @torch.no_grad()
    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """x, the last outer iterate; before the first step the parameters."""
        yield THETA, [self.state[p]["x"].to(p.dtype) if p in self.state else p.detach() for p in self.parameters()]


def scope(group: dict[str, Any], outer_steps: int) -> float:
    """γ = γ₀(1+γ₁)^t, refused where it alone makes the inner loop diverge."""
    gamma: float = group["gamma"] * (1 + group["gamma_growth"]) ** outer_steps
    limit = 2 / group["inner_lr"]
    allowed = f"stay below 2/inner_lr = {limit:.6g} after {outer_steps} outer steps: lower gamma_growth"
    require(gamma < limit, "gamma", gamma, allowed)
    return gamma


def inner_noise_std(group: dict[str, Any]) -> float:
    """ε·√(2·lr′)."""
    return float(group["inner_noise"] * math.sqrt(2 * group["inner_lr"]))


def outer_noise_std(group: dict[str, Any], num_data: int) -> float:
    """√(2·(1−m)·lr·T/N); the momentum multiplies drift by 1/(1−m), and this factor keeps T what it says."""
    return math.sqrt(2 * (1 - group["momentum"]) * group["lr"] * group["temperature"] / num_data)
