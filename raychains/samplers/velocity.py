"""The one update that SGD, SGDM, SGLD and SGHMC are cases of: velocity form, with noise in the velocity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from raychains.samplers.base import Number, Sampler, add_, mean_of, scale_, scaled, squares


def noise_std(group: Mapping[str, Any], num_data: int) -> float:
    """Return √(2·(1−m−γ̂)·lr·T/N), the standard deviation of the injected noise (cSG-MCMC Eq. 3 on the mean-loss scale).

    Only SGHMC has a noise estimate γ̂.
    """
    friction = max(
        0.0, 1 - group["momentum"] - group.get("noise_estimate", 0.0)
    )  # γ̂ = 1 − m may round to just above it
    return math.sqrt(2 * friction * group["lr"] * group["temperature"] / num_data)


class VelocitySampler(Sampler):
    """v ← m·v − lr·g + √(2(1−m−γ̂)·lr·T/N)·ξ;  θ ← θ + v;  g = ∇loss + weight_decay·θ;  v starts at 0.

    v holds −lr·g (the papers' form), so a changing lr leaves the accumulated velocity as it is; that is where it
    differs from `torch.optim.SGD`. Without momentum no velocity is stored, and the arithmetic is the same.
    """

    elementwise = frozenset({"momentum", "noise_estimate", "weight_decay"})

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> dict[str, float]:
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        numbers = {"step": -lr, "noise": noise_std(group, self.num_data)}
        return (
            numbers | ({"momentum": momentum} if momentum != 0 else {}) | ({"decay": -lr * decay} if decay != 0 else {})
        )

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"velocity": 0.0} if group["momentum"] != 0 else {}

    def apply(
        self, group: Mapping[str, Any], numbers: Mapping[str, Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        if "momentum" in numbers:
            velocities = [self.state_of(p, "velocity") for p in params]
            scale_(velocities, numbers["momentum"])
            add_(velocities, grads, numbers["step"])
        else:
            velocities = scaled(grads, numbers["step"])
        if "decay" in numbers:  # in place: a temporary of every parameter's size costs more than all the rest
            add_(velocities, params, numbers["decay"])
        self.add_noise(velocities, numbers["noise"])
        torch._foreach_add_(params, velocities)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        self.apply(group, self.coefficients(group), params, grads)

    def kinetic(self) -> Tensor | None:
        """Return N(1+m)‖v‖²/(2·lr·d), whose mean on a flat potential is T at any constant lr.

        A curvature λ of the mean loss adds a share of lr·λ/(2(1+m)): N‖v‖²(2(1+m) − lr·λ)/(4·lr·d) has the mean T. A changing lr is not allowed for: v remembers some 1/(1 − m) steps of it.
        """
        sums, count = [], 0
        for group in self.param_groups:
            velocities = [v for p in group["params"] if (v := self.state.get(p, {}).get("velocity")) is not None]
            if velocities and group["temperature"] > 0 and group["lr"] > 0:
                sums.append(self.num_data * (1 + group["momentum"]) / (2 * group["lr"]) * squares(velocities))
                count += sum(v.numel() for v in velocities)
        return mean_of(sums, count)

    def effective_noise_std(self) -> float:
        return noise_std(self.param_groups[0], self.num_data)
