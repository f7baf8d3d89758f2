"""Sharpness-aware minimisation: descend with the gradient at the worst point nearby (Foret et al., 2021)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.validation import positive
from raychains.samplers.base import MethodPreset, Params, Presets, arguments, lane_sums, spread
from raychains.samplers.closure import ClosureSampler, Grads


class SAM(ClosureSampler):
    """g = ∇ℓ(θ) + λθ;  θ̂ = θ + ρ·g/‖g‖;  g′ = ∇ℓ(θ̂) + λθ̂;  v ← m·v − lr·g′;  θ ← θ + v.

    ‖g‖ runs over all parameters of all groups, and over one lane's at a time; where it is 0 there is no perturbation.
    ρ is each group's own. The velocity carries lr, as in SGDM. With ``m_sharpness`` above 1 every sub-minibatch has its
    own perturbation and the g′ are averaged.

    Target: none; an optimiser of max over ‖e‖ ≤ ρ of ℓ(θ + e), whose temperature is 0 and must stay so.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size on the mean-loss scale.
        momentum: m in [0, 1).
        rho: ρ, the distance of the perturbed point; .05 for CIFAR-10, .1 for CIFAR-100.
        m_sharpness: sub-minibatches per step, each with its own closure.
        num_data: N; not used by the update, kept so that every method is built alike.
        temperature: 0, the only value allowed.
        weight_decay: λ, the strength of the L2 penalty ½λ‖θ‖², which counts as part of the loss at both points.
        seed: not used.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter, a sparse gradient or a missing closure.

    Source: Foret et al. 2021, https://arxiv.org/abs/2010.01412, Algorithm 1 with p = 2.
    """

    kind = "sam"
    presets: ClassVar[Presets] = {
        # One cosine from the first step to the last, as in the paper's code; the last iterate is the sample.
        "sam": MethodPreset(
            schedule="cyclical", label="SAM", settings={"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
        )
    }
    missing_grad = "skip"
    noisy_counterpart = "bsam"

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        momentum: float = 0.9,
        rho: float = 0.05,
        m_sharpness: int = 1,
        num_data: int = 1,
        temperature: float = 0.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        positive("rho", group["rho"])

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
