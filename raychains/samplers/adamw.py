"""AdamW, the optimiser that deep ensembles are trained with: Adam with decoupled weight decay (Loshchilov & Hutter,
2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.validation import fraction, positive
from raychains.samplers.columns import Number, addcdiv_, addcmul_, divide_, lerp_, scale_
from raychains.samplers.sampler import EarlyStop, MethodPreset, Presets, Sampler, wide
from raychains.samplers.settings import setting


class AdamW(Sampler):
    """m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  θ ← (1 − lr·λ)θ − lr·m̂/(√v̂ + ε),  m̂ = m/(1−β₁ᵏ), v̂ = v/(1−β₂ᵏ), step k.

    g is the gradient of the mean loss alone: the weight decay λ acts on the parameters directly and is not divided by
    the gradients' size. m and v start at 0; k counts the updates. Equals `torch.optim.AdamW`, and at λ = 0
    `torch.optim.Adam`.

    Target: none; an optimiser.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, Algorithm 2; Kingma & Ba 2015,
    https://arxiv.org/abs/1412.6980.
    """

    lr: float = setting("step size: about how far a coordinate moves per step, whatever its gradient's size.")
    num_data: int = setting("N; not used by the update.", default=1)
    temperature: float = setting("0, the only value allowed.", default=0.0)
    seed: int | None = setting("not used.", default=None)
    weight_decay: float = setting(
        "λ, decoupled: each step multiplies the parameters by 1 − lr·λ.", default=0.0, column=True
    )
    beta1: float = setting("β₁ in [0, 1), how slowly m forgets.", default=0.9, check=fraction, column=True)
    beta2: float = setting("β₂ in [0, 1), how slowly v forgets.", default=0.999, check=fraction, column=True)
    eps: float = setting("ε, added to √v̂.", default=1e-8, check=positive)

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

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        """Return no noise, 1 − β₁, β₂, 1 − β₂, √(1−β₂ᵏ), 1 − lr·λ and −lr/(1−β₁ᵏ)."""
        lr, beta1, beta2 = group["lr"], group["beta1"], group["beta2"]
        corrections = math.sqrt(1 - beta2**update), 1 - beta1**update
        return 0.0, 1 - beta1, beta2, 1 - beta2, corrections[0], 1 - lr * group["weight_decay"], -lr / corrections[1]

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"mean": 0.0, "square_avg": 0.0}

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        _, learn, forget_squares, learn_squares, correction, keep, step = numbers
        grads = [g.to(wide(p.dtype)) for p, g in zip(params, grads, strict=True)]
        means, squares = ([self.state_of(p, name) for p in params] for name in ("mean", "square_avg"))
        lerp_(means, grads, learn)
        scale_(squares, forget_squares)
        addcmul_(squares, grads, grads, learn_squares)
        sizes = list(torch._foreach_sqrt(squares))
        divide_(sizes, correction)
        torch._foreach_add_(sizes, group["eps"])
        scale_(params, keep)
        addcdiv_(params, means, sizes, step)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        alike: dict[int, list[int]] = {}
        for number, p in enumerate(params):
            state = self.state[p]
            state["updates"] = state.get("updates", 0) + 1
            alike.setdefault(state["updates"], []).append(number)
        for updates, which in alike.items():
            numbers = self.coefficients(group, updates)
            self.apply(group, numbers, [params[i] for i in which], [grads[i] for i in which])
