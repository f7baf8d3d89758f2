"""Sharpness-aware minimisation: descend with the gradient at the worst point nearby (Foret et al., 2021)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.validation import positive
from raychains.samplers.closure import ClosureSampler, Grads
from raychains.samplers.sampler import MethodPreset, Presets, lane_sums, spread
from raychains.samplers.settings import setting


class SAM(ClosureSampler):
    """g = ∇ℓ(θ) + λθ;  θ̂ = θ + ρ·g/‖g‖;  g′ = ∇ℓ(θ̂) + λθ̂;  v ← m·v − lr·g′;  θ ← θ + v.

    ‖g‖ runs over all parameters of all groups, and over one lane's at a time; where it is 0 there is no perturbation.
    ρ is each group's own. The velocity carries lr, as in SGDM. With ``m_sharpness`` above 1 every sub-minibatch has its
    own perturbation and the g′ are averaged.

    Target: none; an optimiser of max over ‖e‖ ≤ ρ of ℓ(θ + e), whose temperature is 0 and must stay so.

    Raises:
        UserError: a setting out of range, a complex parameter, a sparse gradient or a missing closure.

    Source: Foret et al. 2021, https://arxiv.org/abs/2010.01412, Algorithm 1 with p = 2.
    """

    num_data: int = setting("N; not used by the update.", default=1)
    temperature: float = setting("0, the only value allowed.", default=0.0)
    seed: int | None = setting("not used.", default=None)
    weight_decay: float = setting(
        "λ, the strength of the L2 penalty ½λ‖θ‖², which is added to the loss at θ and at θ̂.", default=0.0
    )
    momentum: float = setting("m in [0, 1).", default=0.9)
    rho: float = setting(
        "ρ, the distance of the perturbed point; .05 for CIFAR-10, .1 for CIFAR-100.", default=0.05, check=positive
    )
    m_sharpness: int = setting(
        "parts of the minibatch per step, each with its own perturbation and closure.", default=1
    )

    kind = "sam"
    presets: ClassVar[Presets] = {
        # One cosine from the first step to the last, as in the paper's code; the last iterate is the sample.
        "sam": MethodPreset(
            schedule="cyclical", label="SAM", settings={"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
        )
    }
    missing_grad = "skip"
    noisy_counterpart = "bsam"

    def _gradients(self, params: list[Tensor]) -> Grads:
        """Return the gradients with the L2 penalty's at the same point."""
        found = super()._gradients(params)
        for group, places, grads in self._by_group(found):
            if group["weight_decay"] != 0:
                points = [params[i] for i in places]
                penalised = torch._foreach_add(grads, points, alpha=group["weight_decay"])
                for i, g in zip(places, penalised, strict=True):
                    found[i] = g
        return found

    def _second_points(self, start: list[Tensor], first: Grads) -> list[Tensor]:
        squares = [g.square() for g in first if g is not None]
        if not squares:
            return start
        norm = lane_sums(squares, self.lanes).sqrt_()
        inverse = torch.where(norm > 0, 1 / norm, 0.0)
        points = list(start)
        for group, places, grads in self._by_group(first):
            length = group["rho"] * inverse
            for i, g in zip(places, grads, strict=True):
                points[i] = start[i] + spread(length, g) * g
        return points

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """One velocity step with gradients that contain the penalty's already."""
        if group["momentum"] == 0:
            torch._foreach_add_(params, grads, alpha=-group["lr"])
            return
        velocities = [self.state_of(p, "velocity") for p in params]
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, grads, alpha=-group["lr"])
        torch._foreach_add_(params, velocities)
