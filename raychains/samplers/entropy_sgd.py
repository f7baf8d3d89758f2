"""Entropy-SGD (Chaudhari et al., 2017) and Entropy-SGLD (Dziugaite & Roy, 2018): seek wide valleys by local entropy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.sample import THETA
from raychains.core.validation import at_least_0, fraction, positive, positive_int
from raychains.samplers.sampler import MethodPreset, Presets, Sampler, wide
from raychains.samplers.settings import setting


class LocalEntropySampler(Sampler):
    """The nested loops of Entropy-SG(L)D: an inner Langevin chain θ′ around x, and outer steps of x toward its mean.

    One `step` is one inner step on one minibatch, so that an outer step spends ``inner_steps`` gradients. The
    parameters hold θ′; x, μ and the outer velocity are states, as is the number of inner steps made.
    """

    lr: float = setting("size of the outer step, the share of the way from x to μ; 1 goes to μ.")
    weight_decay: float = setting("λ of a Gaussian prior N(0, 1/(Nλ)), part of g.", default=0.0)
    momentum: float = setting("m in [0, 1) of the outer step; 0 is no momentum.", default=0.0)
    inner_steps: int = setting("L, minibatches per outer step.", default=20, check=positive_int)
    inner_lr: float = setting("lr′, step size of the inner loop on the mean-loss scale.", default=0.1, check=positive)
    inner_noise: float = setting(
        "ε, the inner noise's size per square root of step; at least 0.", default=1e-4, check=at_least_0
    )
    gamma: float = setting('γ₀, the initial pull of θ′ towards x ("scope" in the paper).', default=0.03, check=positive)
    gamma_growth: float = setting("γ₁, growth of γ per outer step; at least 0.", default=1e-3, check=at_least_0)
    averaging: float = setting("a in [0, 1), how slowly μ forgets.", default=0.75, check=fraction)

    statistics_fit = False

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        alike: dict[int, list[int]] = {}
        for number, p in enumerate(params):
            state = self.state[p]
            if "x" not in state:
                state["x"] = p.detach().to(wide(p.dtype), copy=True)
                state["average"] = state["x"].clone()
                state["inner_steps"] = 0
            alike.setdefault(state["inner_steps"], []).append(number)
        for made, which in alike.items():
            ends = (made + 1) % group["inner_steps"] == 0
            # A parameter's outer noise is drawn right after its inner noise.
            for together in [[i] for i in which] if ends else [which]:
                moved = [params[i] for i in together]
                self._inner_step(group, made, moved, [grads[i].to(wide(grads[i].dtype)) for i in together])
                if ends:
                    self._outer_step(group, *moved)

    def _inner_step(self, group: dict[str, Any], made: int, params: list[Tensor], grads: list[Tensor]) -> None:
        gamma = scope(group, made // group["inner_steps"])
        states = [self.state[p] for p in params]
        changes = torch._foreach_add(grads, torch._foreach_mul(params, group["weight_decay"]))
        pulls = torch._foreach_sub(params, [state["x"] for state in states])
        torch._foreach_mul_(pulls, gamma)
        torch._foreach_add_(changes, pulls)
        torch._foreach_mul_(changes, -group["inner_lr"])
        for change in changes:
            self.add_noise([change], inner_noise_std(group))
        torch._foreach_add_(params, changes)
        averages = [state["average"] for state in states]
        torch._foreach_mul_(averages, group["averaging"])
        torch._foreach_add_(averages, params, alpha=1 - group["averaging"])
        for state in states:
            state["inner_steps"] += 1

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
        """Yield x, the last outer iterate; before the first step the parameters."""
        yield THETA, [self.state[p]["x"].to(p.dtype) if p in self.state else p.detach() for p in self.parameters()]


class EntropySGD(LocalEntropySampler):
    """Repeat L times: θ′ ← θ′ − lr′·[g + γ(θ′−x)] + ε·√(2·lr′)·ξ and μ ← a·μ + (1−a)·θ′. Then x ← x − lr·(x−μ). x is
    the outer iterate, μ the running mean of the inner iterates θ′, and γ = γ₀(1+γ₁)^t at outer step t.

    Each ``step`` is one inner step on a minibatch of its own. θ′ and μ start at x; after ``inner_steps`` (L) of them
    the outer step number t = 0, 1, … moves x with the lr of that moment, and θ′ and μ restart there. With momentum the
    outer step is Nesterov's: v ← m·v − lr·(x−μ); x ← x + m·v − lr·(x−μ), which for a constant lr is the rule of
    `torch.optim.SGD`. The inner noise is part of the optimiser and always on.

    γ₀ is .03 for CIFAR-10 in the authors' instructions and 1e-4 for MNIST, γ₁ 1e-3 by default in their code. γ grows
    without bound, and γ ≥ 2/lr′ is refused when it is reached. The authors' code has Nesterov momentum in the inner
    loop, too, and adds the penalty's gradient λx to the outer step; neither is done here.

    Target: none; an optimiser of the local entropy, whose temperature is 0 and must stay so.

    Raises:
        UserError: a setting out of range, γ too large for lr′, a complex parameter or a sparse gradient.

    Source: Chaudhari et al. 2017, https://arxiv.org/abs/1611.01838, Algorithm 1; constants from the authors' code.
    """

    num_data: int = setting("N; not used by the update.", default=1)
    temperature: float = setting("0, the only value allowed.", default=0.0)
    weight_decay: float = setting("λ of the L2 penalty ½λ‖θ′‖², part of g.", default=0.0)
    momentum: float = setting("m in [0, 1) of the outer step; 0 is no momentum.", default=0.9)

    kind = "entropy-sgd"
    presets: ClassVar[Presets] = {"entropy-sgd": MethodPreset(schedule="decreasing", label="Entropy-SGD")}
    revision = 2
    missing_grad = "skip"
    noisy_counterpart = "entropy-sgld"

    def effective_noise_std(self) -> float:
        """Return ε·√(2·lr′), which every inner step injects into θ′."""
        return inner_noise_std(self.param_groups[0])


class EntropySGLD(LocalEntropySampler):
    """The inner loop of `EntropySGD`, then x ← x − lr·(x−μ) + √(2·lr·T/N)·ξ.

    `EntropySGD` with noise in the outer step. There is no outer momentum by default; with one, the pushes
    −lr·(x−μ) + √(2(1−m)·lr·T/N)·ξ go through Nesterov's rule, where the factor 1−m keeps the temperature at T.

    The published step sizes are unknown to us; the defaults are Entropy-SGD's.

    Target: the density exp(−N·F(x)/(γT)) of x, with F(x) = −ε²·log ∫ exp(−[ℓ(θ′) + ½λ‖θ′‖² + ½γ‖θ′−x‖²]/ε²) dθ′, as lr
    and lr′ → 0, L → ∞ and a → 1, because ∇F = γ(x−μ) then. The target changes with γ unless ``gamma_growth`` is 0.

    Raises:
        UserError: a setting out of range, γ too large for lr′, a complex parameter or a sparse gradient.

    Source: Dziugaite & Roy 2018, https://arxiv.org/abs/1712.09376, Algorithm 1; Chaudhari et al. 2017.
    """

    temperature: float = setting("T of the outer step; 0 is Entropy-SGD.", default=1.0)

    kind = "entropy-sgld"
    presets: ClassVar[Presets] = {"entropy-sgld": MethodPreset(schedule="decreasing", label="Entropy-SGLD")}
    revision = 2

    def effective_noise_std(self) -> float:
        """Return the outer step's noise, which x, the draw, gets."""
        return outer_noise_std(self.param_groups[0], self.num_data)


def scope(group: dict[str, Any], outer_steps: int) -> float:
    """Return γ = γ₀(1+γ₁)^t, refused where it alone makes the inner loop diverge."""
    gamma: float = group["gamma"] * (1 + group["gamma_growth"]) ** outer_steps
    limit = 2 / group["inner_lr"]
    allowed = f"stay below 2/inner_lr = {limit:.6g} after {outer_steps} outer steps: lower gamma_growth"
    require(gamma < limit, "gamma", gamma, allowed)
    return gamma


def inner_noise_std(group: dict[str, Any]) -> float:
    """Return ε·√(2·lr′)."""
    return float(group["inner_noise"] * math.sqrt(2 * group["inner_lr"]))


def outer_noise_std(group: dict[str, Any], num_data: int) -> float:
    """Return √(2·(1−m)·lr·T/N); the momentum multiplies drift by 1/(1−m), and this factor keeps T what it says."""
    return math.sqrt(2 * (1 - group["momentum"]) * group["lr"] * group["temperature"] / num_data)
