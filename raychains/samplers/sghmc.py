"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014), and the update that SGLD, SGD and SGDM are
cases of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import is_number
from raychains.samplers.columns import Number, add_, scale_, scaled
from raychains.samplers.sampler import MethodPreset, Presets, Sampler, mean_of, squares
from raychains.samplers.settings import setting


class VelocitySampler(Sampler):
    """v ← m·v − lr·g + √(2(1−m−γ̂)·lr·T/N)·ξ;  θ ← θ + v;  g = ∇loss + λθ;  v starts at 0.

    v holds −lr·g (the papers' form), so a changing lr leaves the accumulated velocity as it is; that is where it
    differs from `torch.optim.SGD`. Without momentum no velocity is stored, and the arithmetic is the same.
    Only SGHMC has a noise estimate γ̂.
    """

    momentum: float = setting("m in [0, 1).", column=True)
    weight_decay: float = setting("λ, the strength of the L2 penalty ½λ‖θ‖².", default=0.0, column=True)

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        """Return the noise's standard deviation √(2(1−m−γ̂)·lr·T/N) (cSG-MCMC Eq. 3 on the mean-loss scale), m, −lr
        and −lr·λ."""
        lr, momentum = group["lr"], group["momentum"]
        friction = max(0.0, 1 - momentum - group.get("noise_estimate", 0.0))  # γ̂ = 1 − m may round to just above it
        std = math.sqrt(2 * friction * lr * group["temperature"] / self.num_data)
        return std, momentum, -lr, -lr * group["weight_decay"]

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        std, momentum, step, decay = numbers
        if group["momentum"] != 0:
            velocities = [self.state_of(p, "velocity") for p in params]
            scale_(velocities, momentum)
            add_(velocities, grads, step)
        else:
            velocities = scaled(grads, step)
        if group["weight_decay"] != 0:  # in place: a temporary of every parameter's size costs more than all the rest
            add_(velocities, params, decay)
        self.add_noise(velocities, std)
        torch._foreach_add_(params, velocities)

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"velocity": 0.0} if group["momentum"] != 0 else {}

    def kinetic(self) -> Tensor | None:
        """Return N(1+m)‖v‖²/(2·lr·d), whose mean on a flat potential is T at any constant lr.

        A curvature λ of the mean loss adds a share of lr·λ/(2(1+m)): N‖v‖²(2(1+m) − lr·λ)/(4·lr·d) has the mean T. A
        changing lr is not allowed for: v remembers some 1/(1 − m) steps of it.
        """
        sums, count = [], 0
        for group in self.param_groups:
            velocities = [v for p in group["params"] if (v := self.state.get(p, {}).get("velocity")) is not None]
            if velocities and group["temperature"] > 0 and group["lr"] > 0:
                sums.append(self.num_data * (1 + group["momentum"]) / (2 * group["lr"]) * squares(velocities))
                count += sum(v.numel() for v in velocities)
        return mean_of(sums, count)

    def effective_noise_std(self) -> float:
        return self.coefficients(self.param_groups[0])[0]


class SGHMC(VelocitySampler):
    """v ← m·v − lr·g + √(2(1−m−γ̂)·lr·T/N)·ξ;  θ ← θ + v.

    The friction of the papers is a = 1 − ``momentum``. The minibatch gradient brings noise of its own: γ̂ is the share
    of the friction that this noise feeds already, and that much less is injected. If each coordinate of the mean-loss
    gradient has an error of standard deviation σ, then γ̂ = lr·N·σ²/(2T) makes the total noise what it would be with
    exact gradients. That value goes with lr/T and γ̂ is constant: under a schedule choose it for the sampling steps.

    Target: exp(−U/T) as lr → 0; on a quadratic U the variance at a finite step is known exactly (`tests/samplers`
    checks it).

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Chen et al. 2014, https://arxiv.org/abs/1402.4102, Eq. 15, where γ̂ is called β̂; cSG-MCMC (ICLR 2020),
    Eq. 3.
    """

    momentum: float = setting("m in [0, 1); 0 is SGLD, bit for bit.")
    noise_estimate: float = setting(
        "γ̂ in [0, 1 − momentum]; 0 injects as if gradients were exact.", default=0.0, column=True
    )
    temperature: float = setting("T; 1 samples the posterior, 0 is SGD with momentum.", default=1.0)
    weight_decay: float = setting("strength λ of a Gaussian prior N(0, 1/(Nλ)).", default=0.0)

    kind = "sghmc"
    presets: ClassVar[Presets] = {
        "sghmc": MethodPreset(schedule="decreasing", label="SGHMC", cyclical_label="cSGHMC"),
        "csghmc": MethodPreset(schedule="cyclical", label="cSGHMC", fixed=True),
    }
    revision = 2
    omitted_defaults: ClassVar[Mapping[str, Any]] = {"noise_estimate": 0.0}

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        estimate, friction = group["noise_estimate"], 1 - group["momentum"]
        allowed = f"lie in [0, {friction:.6g}]: at most the friction 1 − momentum"
        require(is_number(estimate) and 0 <= estimate <= friction + 1e-12, "noise_estimate", estimate, allowed)
