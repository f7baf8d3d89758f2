"""Preconditioned SGLD: each coordinate steps on the scale of its own gradients (Li, Chen, Carlson & Carin, 2016)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.validation import fraction, positive, positive_int
from raychains.samplers.columns import Number, addcmul_, plus, positive_number, scale_
from raychains.samplers.sampler import MethodPreset, Presets, Sampler, wide
from raychains.samplers.settings import setting, unless_none


class PSGLD(Sampler):
    """V ← α·V + (1−α)·(∇ℓ)²;  G = 1/(ε + √V);  θ ← θ − lr·G·g + √(2·lr·T·G/N)·ξ.

    ∇ℓ is the gradient of the mean loss without the prior, g = ∇ℓ + λθ. V starts at 0 and is updated before it is used.
    At T = 0 this is `torch.optim.RMSprop`.

    The drift term Γ = ∂G/∂θ of the paper is dropped, as every library does, and without it the running G biases the
    samples: on U = θ²/2 with exact gradients the variance is 1.33 at lr .01 and 1.76 at lr .001, and goes to 2
    as lr → 0, where the target has 1; with gradient noise of standard deviation 3 it is about 1.08. With G constant
    there is no Γ: ``freeze_preconditioner_after`` stops V after so many updates, and what is drawn later is unbiased as
    lr → 0. Place that end inside the burn-in. From a cold start a coordinate whose first gradients happen to be near 0
    has a tiny V and may be thrown far away by its first steps.

    Target: exp(−U/T) as lr → 0, but only with a frozen preconditioner.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Li et al. 2016, https://arxiv.org/abs/1512.07666, Algorithm 1, without its term Γ (the derivative of the
    preconditioner).
    """

    lr: float = setting("step size on the mean-loss scale, before preconditioning.")
    temperature: float = setting("T; 1 samples the posterior, 0 is RMSprop.", default=1.0)
    weight_decay: float = setting("strength λ of a Gaussian prior N(0, 1/(Nλ)).", default=0.0, column=True)
    alpha: float = setting(
        "α in [0, 1), how slowly V forgets; .99 remembers about 100 steps.", default=0.99, check=fraction, column=True
    )
    eps: float = setting("ε, added to √V; bounds G by 1/ε.", default=1e-5, check=positive)
    freeze_preconditioner_after: int | None = setting(
        "updates of V after which it stays as it is; None never freezes it.",
        default=None,
        check=unless_none(positive_int),
    )

    kind = "psgld"
    presets: ClassVar[Presets] = {
        "psgld": MethodPreset(schedule="decreasing", label="pSGLD", cyclical_label="cpSGLD"),
        "cpsgld": MethodPreset(schedule="cyclical", label="cpSGLD", fixed=True),
    }
    revision = 2

    @classmethod
    def updates_together(cls, settings: Mapping[str, Any]) -> bool:
        return settings.get("freeze_preconditioner_after") is None  # else it depends on how many updates were made

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        """Return the noise's standard deviation where G is 1, −lr, α, 1 − α and λ."""
        lr, alpha = group["lr"], group["alpha"]
        std = math.sqrt(2 * lr * group["temperature"] / self.num_data)
        return std, -lr, alpha, 1 - alpha, group["weight_decay"]

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"square_avg": 0.0}

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        std, step, forget, learn, decay = numbers
        grads = [g.to(wide(p.dtype)) for p, g in zip(params, grads, strict=True)]
        self._learn(group, forget, learn, params, grads)
        if group["weight_decay"] != 0:
            grads = plus(grads, params, decay)
        scales = self._preconditioners(group, params)
        changes = list(torch._foreach_mul(scales, grads))
        scale_(changes, step)
        if positive_number(std):
            torch._foreach_sqrt_(scales)
            addcmul_(changes, scales, self.noises_like(changes), std)
        torch._foreach_add_(params, changes)

    def _learn(
        self, group: Mapping[str, Any], forget: Number, learn: Number, params: list[Tensor], grads: list[Tensor]
    ) -> None:
        """Update V with mean-loss gradients, where it is not frozen."""
        last = group["freeze_preconditioner_after"]
        updates = [self.state[p].get("updates", 0) for p in params]
        learning = [i for i, made in enumerate(updates) if last is None or made < last]
        if not learning:
            return
        averages, squared = [self.state_of(params[i], "square_avg") for i in learning], [grads[i] for i in learning]
        scale_(averages, forget)
        addcmul_(averages, squared, squared, learn)
        for i in learning:
            self.state[params[i]]["updates"] = updates[i] + 1

    def _preconditioners(self, group: Mapping[str, Any], params: list[Tensor]) -> list[Tensor]:
        """Return G of each parameter, of its shape."""
        scales = torch._foreach_sqrt([self.state_of(p, "square_avg") for p in params])
        torch._foreach_add_(scales, group["eps"])
        torch._foreach_reciprocal_(scales)
        return list(scales)

    @torch.no_grad()
    def effective_noise_std(self) -> float:
        """Return the root mean square over the first group's coordinates, with V as it stands; before the first step
        with G = 1."""
        group = self.param_groups[0]
        begun = [p for p in group["params"] if p in self.state]
        scales = [s.double() for s in self._preconditioners(group, begun)] if begun else []
        mean = sum(float(s.sum()) for s in scales) / sum(s.numel() for s in scales) if scales else 1.0
        return math.sqrt(2 * group["lr"] * group["temperature"] * mean / self.num_data)
