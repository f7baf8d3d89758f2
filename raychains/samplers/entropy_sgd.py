"""Entropy-SGD (Chaudhari et al., 2017) and Entropy-SGLD (Dziugaite & Roy, 2018): seek wide valleys by local entropy."""

from __future__ import annotations

from typing import ClassVar

from raychains.samplers.base import Params
from raychains.samplers.local_entropy import LocalEntropySampler, inner_noise_std, outer_noise_std


class EntropySGD(LocalEntropySampler):
    """L times θ′ ← θ′ − lr′·[g + γ(θ′−x)] + ε·√(2·lr′)·ξ and μ ← a·μ + (1−a)·θ′;  then x ← x − lr·(x−μ);  γ = γ₀(1+γ₁)^t.

    Each ``step`` is one inner step on a minibatch of its own. θ′ and μ start at x; after ``inner_steps`` (L) of them
    the outer step number t = 0, 1, … moves x with the lr of that moment, and θ′ and μ restart there. With momentum the
    outer step is Nesterov's: v ← m·v − lr·(x−μ); x ← x + m·v − lr·(x−μ), which for a constant lr is the rule of
    `torch.optim.SGD`. The inner noise is part of the optimiser and always on.

    γ₀ is .03 for CIFAR-10 in the authors' instructions and 1e-4 for MNIST, γ₁ 1e-3 by default in their code. γ grows
    without bound, and γ ≥ 2/lr′ is refused when it is reached. The authors' code has Nesterov momentum in the inner loop,
    too, and adds the penalty's gradient λx to the outer step; neither is done here.

    Target: none; an optimiser of the local entropy, whose temperature is 0 and must stay so.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: size of the outer step, the share of the way from x to μ; 1 goes to μ.
        momentum: m in [0, 1) of the outer step; 0 is plain.
        inner_steps: L, minibatches per outer step.
        inner_lr: lr′, step size of the inner loop on the mean-loss scale.
        inner_noise: ε, the inner noise's size per square root of step; at least 0.
        gamma: γ₀, the first scope: how strongly θ′ is held at x.
        gamma_growth: γ₁, growth of γ per outer step; at least 0.
        averaging: a in [0, 1), how slowly μ forgets.
        num_data: N; not used by the update, kept so that every method is built alike.
        temperature: 0, the only value allowed.
        weight_decay: λ of the L2 penalty ½λ‖θ′‖², part of g.
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, γ too large for lr′, a complex parameter or a sparse gradient.

    Source: Chaudhari et al. 2017, https://arxiv.org/abs/1611.01838, Algorithm 1; constants from the authors' code.
    """

    kind: ClassVar[str] = "entropy-sgd"
    revision: ClassVar[int] = 2
    instead: ClassVar[str | None] = "entropy-sgld"

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        momentum: float = 0.9,
        inner_steps: int = 20,
        inner_lr: float = 0.1,
        inner_noise: float = 1e-4,
        gamma: float = 0.03,
        gamma_growth: float = 1e-3,
        averaging: float = 0.75,
        num_data: int = 1,
        temperature: float = 0.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            inner_steps=inner_steps,
            inner_lr=inner_lr,
            inner_noise=inner_noise,
            gamma=gamma,
            gamma_growth=gamma_growth,
            averaging=averaging,
            num_data=num_data,
            temperature=temperature,
            weight_decay=weight_decay,
            seed=seed,
            lanes=lanes,
        )

    def effective_noise_std(self) -> float:
        """ε·√(2·lr′), which every inner step injects into θ′."""
        return inner_noise_std(self.param_groups[0])


class EntropySGLD(LocalEntropySampler):
    """L times θ′ ← θ′ − lr′·[g + γ(θ′−x)] + ε·√(2·lr′)·ξ and μ ← a·μ + (1−a)·θ′;  then x ← x − lr·(x−μ) + √(2·lr·T/N)·ξ.

    `EntropySGD` with noise in the outer step. There is no outer momentum by default; with one, the pushes
    −lr·(x−μ) + √(2(1−m)·lr·T/N)·ξ go through Nesterov's rule, where the factor 1−m keeps the temperature at T.

    The published step sizes are unknown to us; the defaults are Entropy-SGD's.

    Target: of x, exp(−N·F(x)/(γT)) with F(x) = −ε²·log ∫ exp(−[ℓ(θ′) + ½λ‖θ′‖² + ½γ‖θ′−x‖²]/ε²) dθ′, as lr and lr′ → 0,
    L → ∞ and a → 1, because ∇F = γ(x−μ) then; it moves with γ unless ``gamma_growth`` is 0.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: size of the outer step, the share of the way from x to μ; 1 goes to μ.
        num_data: N, the number of training data.
        temperature: T of the outer step; 0 is Entropy-SGD.
        weight_decay: λ of a Gaussian prior N(0, 1/(Nλ)), part of g.
        momentum: m in [0, 1) of the outer step; 0 is plain.
        inner_steps: L, minibatches per outer step.
        inner_lr: lr′, step size of the inner loop on the mean-loss scale.
        inner_noise: ε, the inner noise's size per square root of step; at least 0.
        gamma: γ₀, the first scope: how strongly θ′ is held at x.
        gamma_growth: γ₁, growth of γ per outer step; at least 0.
        averaging: a in [0, 1), how slowly μ forgets.
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, γ too large for lr′, a complex parameter or a sparse gradient.

    Source: Dziugaite & Roy 2018, https://arxiv.org/abs/1712.09376, Algorithm 1; Chaudhari et al. 2017.
    """

    kind: ClassVar[str] = "entropy-sgld"
    revision: ClassVar[int] = 2

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        inner_steps: int = 20,
        inner_lr: float = 0.1,
        inner_noise: float = 1e-4,
        gamma: float = 0.03,
        gamma_growth: float = 1e-3,
        averaging: float = 0.75,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            inner_steps=inner_steps,
            inner_lr=inner_lr,
            inner_noise=inner_noise,
            gamma=gamma,
            gamma_growth=gamma_growth,
            averaging=averaging,
            num_data=num_data,
            temperature=temperature,
            weight_decay=weight_decay,
            seed=seed,
            lanes=lanes,
        )

    def effective_noise_std(self) -> float:
        """Of the outer step, which is what x, the draw, gets."""
        return outer_noise_std(self.param_groups[0], self.num_data)
