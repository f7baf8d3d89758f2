"""Bayesian SAM: SAM whose perturbation is scaled by a learnt posterior variance (Möllenhoff & Khan, 2023)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.sample import THETA
from raychains.core.validation import at_least_0, fraction, is_number, positive, positive_int
from raychains.samplers.base import MethodPreset, Params, Presets, arguments, wide
from raychains.samplers.closure import ClosureSampler, Grads
from raychains.samplers.noise import Noise


class BSAM(ClosureSampler):
    """w̃ = m + √(T/(N·s))·ξ;  g = ∇ℓ(w̃);  g′ = ∇ℓ(m + ρ·g/s);  gₘ ← β₁·gₘ + (1−β₁)(g′ + δm);  m ← m − lr·gₘ/s;
    s ← β₂·s + (1−β₂)(√s·|g| + damping + δ).

    The parameters hold m; gₘ starts at 0 and s at ``s0``; m moves with the old s, without bias correction. Each of the
    ``m_sharpness`` sub-minibatches has its own w̃, its own g and its own second point m + ρ·g/s; the |g| and the
    g′ are averaged over them.

    Where data are augmented the paper counts N as 4 × the number of training data. Prediction averages over draws
    w ~ N(m, T/(N·s)), of which a kept step yields ``prediction_samples``.

    Target: none; a variational optimiser that fits the Gaussian N(m, 1/(N·s)), whose draws are kept as θ.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size of m; .5 in the paper's CIFAR runs.
        num_data: N, the number of training data, times the augmentation factor.
        temperature: T, by which the variance of w̃ and of draws is multiplied; 0 takes both at m.
        weight_decay: δ, the precision of the Gaussian prior N(0, 1/(Nδ)) divided by N.
        beta1: β₁ in [0, 1), how slowly the gradient average forgets.
        beta2: β₂ in (0, 1), how slowly the precision forgets.
        rho: ρ, the size of the perturbation.
        damping: added to the precision's target; at least 0.
        s0: the first s, so that the first variance is 1/(N·s0).
        m_sharpness: sub-minibatches per step, each with its own closure.
        prediction_samples: draws of θ that a kept step yields.
        seed: of the noise; drawn from torch's global generator when left out.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter, a sparse gradient or missing closures.

    Source: Möllenhoff & Khan 2023, https://arxiv.org/abs/2210.01620, Algorithm 1 (right).
    """

    kind = "bsam"
    presets: ClassVar[Presets] = {
        # One cosine from the first step to the last, as in the paper's code; the last iterate is the sample.
        "bsam": MethodPreset(
            schedule="cyclical", label="bSAM", settings={"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
        )
    }
    revision = 2
    statistics_fit = False

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        rho: float = 0.01,
        damping: float = 0.1,
        s0: float = 1.0,
        m_sharpness: int = 8,
        prediction_samples: int = 1,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        settings = arguments(locals())
        self.prediction_samples: int = settings.pop("prediction_samples")
        positive_int("prediction_samples", prediction_samples)
        self._magnitudes: dict[Tensor, Tensor] = {}
        super().__init__(**settings)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        fraction("beta1", group["beta1"])
        above_0 = "lie in (0, 1): s must stay positive"
        require(is_number(group["beta2"]) and 0 < group["beta2"] < 1, "beta2", group["beta2"], above_0)
        for name in ("rho", "s0"):
            positive(name, group[name])
        at_least_0("damping", group["damping"])

    def step(self, closure: Any = None) -> Any:
        """As `ClosureSampler.step`; the loss returned is that at w̃."""
        self._magnitudes = {}
        self._divided = len(closure) if isinstance(closure, Sequence) else 1
        try:
            return super().step(closure)
        finally:
            self._magnitudes = {}

    def _first_points(self, start: list[Tensor]) -> list[Tensor]:
        """Return w̃, drawn anew for every sub-minibatch."""
        return [self._blurred(g, p, m, self._noise) for (g, p), m in zip(self._grouped(), start, strict=True)]

    def _second_points(self, start: list[Tensor], first: Grads) -> list[Tensor]:
        points = list(start)
        for i, ((group, p), g) in enumerate(zip(self._grouped(), first, strict=True)):
            if g is not None:
                points[i] = start[i] + group["rho"] * g / self._precision(group, p)
                part = g.abs() / self._divided
                self._magnitudes[p] = self._magnitudes[p] + part if p in self._magnitudes else part
        return points

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        beta1, beta2, delta = group["beta1"], group["beta2"], group["weight_decay"]
        for p, g in zip(params, grads, strict=True):
            s, average = self.state_of(p, "s", group["s0"]), self.state_of(p, "grad_avg")
            average.mul_(beta1).add_(g + delta * p, alpha=1 - beta1)
            p.sub_(group["lr"] * average / s)
            s.copy_(beta2 * s + (1 - beta2) * (s.sqrt() * self._magnitudes[p] + group["damping"] + delta))
            self.state[p]["updates"] = self.state[p].get("updates", 0) + 1

    def _grouped(self) -> list[tuple[dict[str, Any], Tensor]]:
        """Return all parameters, each with its group."""
        return [(group, p) for group in self.param_groups for p in group["params"]]

    def _precision(self, group: dict[str, Any], p: Tensor) -> Tensor:
        """Return s of one parameter, of its shape; leaves the state as it is."""
        if p in self.state and "s" in self.state[p]:
            return self.state[p]["s"]
        return torch.full_like(p, group["s0"], dtype=wide(p.dtype))

    def _blurred(self, group: dict[str, Any], p: Tensor, m: Tensor, noise: Noise) -> Tensor:
        """Return m + √(T/(N·s))·ξ for parameter ``p``; m itself without noise and for a parameter that is not trained."""
        if group["temperature"] == 0 or not p.requires_grad:
            return m
        std = (group["temperature"] / (self.num_data * self._precision(group, p))).sqrt_()
        return m + std * noise.like(std)

    @classmethod
    def variables(cls, settings: Mapping[str, Any]) -> Mapping[str, int]:
        return {THETA: settings.get("prediction_samples", 1)}

    @torch.no_grad()
    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """Yield draws w ~ N(m, T/(N·s)) from a stream of their own, a function of the seed and the number of updates."""
        params = self.parameters()
        updates = max((self.state[p]["updates"] for p in params if p in self.state), default=0)
        noise = Noise.of_draws("bsam", self._noise.seed, updates)
        for _ in range(self.prediction_samples):
            yield THETA, [self._blurred(g, p, p.detach(), noise).to(p.dtype) for g, p in self._grouped()]

    @torch.no_grad()
    def effective_noise_std(self) -> float:
        """Return the root mean square of √(T/(N·s)), the noise of w̃, over the first group's coordinates."""
        group = self.param_groups[0]
        inverses = [self._precision(group, p).double().reciprocal() for p in group["params"]]
        mean = sum(float(i.sum()) for i in inverses) / sum(i.numel() for i in inverses)
        return math.sqrt(group["temperature"] * mean / self.num_data)
