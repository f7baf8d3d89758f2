"""AdamW, the optimiser that deep ensembles are trained with: Adam with decoupled weight decay (Loshchilov & Hutter, 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.validation import fraction, positive
from raychains.samplers.base import (
    EarlyStop,
    MethodPreset,
    Number,
    Params,
    Presets,
    Sampler,
    addcdiv_,
    addcmul_,
    arguments,
    divide_,
    lerp_,
    scale_,
    wide,
)


class AdamW(Sampler):
    """m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  θ ← (1 − lr·λ)θ − lr·m̂/(√v̂ + ε),  m̂ = m/(1−β₁ᵏ), v̂ = v/(1−β₂ᵏ).

    g is the gradient of the mean loss alone: the weight decay λ acts on the parameters directly and is not divided by
    the gradients' size. m and v start at 0; k counts the updates. Equals `torch.optim.AdamW`, and at λ = 0
    `torch.optim.Adam`.

    Target: none; an optimiser.

    Args:
        params: parameters or parameter groups, as for any torch optimizer.
        lr: step size; a coordinate moves by about so much per step, whatever its gradient's size.
        num_data: N; not used by the update, kept so that every method is built alike.
        temperature: 0, the only value allowed.
        weight_decay: λ, decoupled: each step multiplies the parameters by 1 − lr·λ.
        beta1: β₁ in [0, 1), how slowly m forgets.
        beta2: β₂ in [0, 1), how slowly v forgets.
        eps: ε, added to √v̂.
        seed: not used.
        lanes: independent chains stacked on axis 0 of every parameter.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, Algorithm 2; Kingma & Ba 2015,
    https://arxiv.org/abs/1412.6980.
    """

    kind = "adamw"
    presets: ClassVar[Presets] = {
        "adamw": MethodPreset(schedule="constant", label="AdamW", settings={"lr": 1e-3}),
        # Lakshminarayanan et al. 2017, https://arxiv.org/abs/1612.01474; stopped early as in bde and MILE.
        "deep-ensemble": MethodPreset(
            schedule="constant",
            label="Deep ensemble",
            settings={"lr": 1e-3},
            fixed=True,
            early_stop=EarlyStop(share=0.15, patience=20),
        ),
    }
    missing_grad = "skip"
    noisy_counterpart = "psgld"
    elementwise = frozenset({"beta1", "beta2", "weight_decay"})

    def __init__(
        self,
        params: Params,
        *,
        lr: float,
        num_data: int = 1,
        temperature: float = 0.0,
        weight_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        seed: int | None = None,
        lanes: int = 1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        fraction("beta1", group["beta1"])
        fraction("beta2", group["beta2"])
        positive("eps", group["eps"])

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> dict[str, float]:
        lr, beta1, beta2 = group["lr"], group["beta1"], group["beta2"]
        return {
            "noise": 0.0,
            "learn": 1 - beta1,
            "forget_squares": beta2,
            "learn_squares": 1 - beta2,
            "correction": math.sqrt(1 - beta2**update),
            "keep": 1 - lr * group["weight_decay"],
            "step": -lr / (1 - beta1**update),
        }

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"mean": 0.0, "square_avg": 0.0}

    def apply(
        self, group: Mapping[str, Any], numbers: Mapping[str, Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        grads = [g.to(wide(p.dtype)) for p, g in zip(params, grads, strict=True)]
        means, squares = ([self.state_of(p, name) for p in params] for name in ("mean", "square_avg"))
        lerp_(means, grads, numbers["learn"])
        scale_(squares, numbers["forget_squares"])
        addcmul_(squares, grads, grads, numbers["learn_squares"])
        sizes = list(torch._foreach_sqrt(squares))
        divide_(sizes, numbers["correction"])
        torch._foreach_add_(sizes, group["eps"])
        scale_(params, numbers["keep"])
        addcdiv_(params, means, sizes, numbers["step"])

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        alike: dict[int, list[int]] = {}
        for number, p in enumerate(params):
            state = self.state[p]
            state["updates"] = state.get("updates", 0) + 1
            alike.setdefault(state["updates"], []).append(number)
        for updates, which in alike.items():
            numbers = self.coefficients(group, updates)
            self.apply(group, numbers, [params[i] for i in which], [grads[i] for i in which])
