"""Bayesian SAM: SAM whose perturbation is scaled by a learnt posterior variance (Möllenhoff & Khan, 2023)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
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
    missing_grad = "skip"
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

    def stages(self, parts: int) -> Generator[int, Any, Any]:
        """As `ClosureSampler.stages`; the loss returned is that at w̃."""
        self._magnitudes, self._divided = {}, parts
        try:
            return (yield from super().stages(parts))
        finally:
            self._magnitudes = {}

    def _first_points(self, start: list[Tensor]) -> list[Tensor]:
        """Return w̃, drawn anew for every sub-minibatch."""
        return self._blurred(start, self._noise)

    def _second_points(self, start: list[Tensor], first: Grads) -> list[Tensor]:
        points, params = list(start), self.parameters()
        for group, places, grads in self._by_group(first):
            moves = torch._foreach_mul(grads, group["rho"])
            torch._foreach_div_(moves, self._precisions(group, [params[i] for i in places]))
            sizes = torch._foreach_abs(grads)
            torch._foreach_div_(sizes, self._divided)
            for i, move, size in zip(places, moves, sizes, strict=True):
                points[i] = start[i] + move
                p = params[i]
                self._magnitudes[p] = self._magnitudes[p] + size if p in self._magnitudes else size
        return points

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        beta1, beta2, delta = group["beta1"], group["beta2"], group["weight_decay"]
        precisions = [self.state_of(p, "s", group["s0"]) for p in params]
        averages = [self.state_of(p, "grad_avg") for p in params]
        torch._foreach_mul_(averages, beta1)
        torch._foreach_add_(averages, torch._foreach_add(grads, torch._foreach_mul(params, delta)), alpha=1 - beta1)
        moves = torch._foreach_mul(averages, group["lr"])
        torch._foreach_div_(moves, precisions)
        torch._foreach_sub_(params, moves)
        targets = torch._foreach_sqrt(precisions)
        torch._foreach_mul_(targets, [self._magnitudes[p] for p in params])
        for addend in (group["damping"], delta):
            torch._foreach_add_(targets, addend)
        torch._foreach_mul_(targets, 1 - beta2)
        torch._foreach_mul_(precisions, beta2)
        torch._foreach_add_(precisions, targets)
        for p in params:
            self.state[p]["updates"] = self.state[p].get("updates", 0) + 1

    def _precisions(self, group: dict[str, Any], params: list[Tensor]) -> list[Tensor]:
        """Return s of parameters, each of its shape; leaves the state as it is."""
        return [
            self.state[p]["s"] if "s" in self.state.get(p, {}) else torch.full_like(p, group["s0"], dtype=wide(p.dtype))
            for p in params
        ]

    def _blurred(self, means: list[Tensor], noise: Noise) -> list[Tensor]:
        """Return m + √(T/(N·s))·ξ for all parameters; m itself without noise and for those that are not trained."""
        points, params = list(means), self.parameters()
        end = 0
        for group in self.param_groups:
            begin, end = end, end + len(group["params"])
            trained = [i for i in range(begin, end) if params[i].requires_grad]
            if group["temperature"] == 0 or not trained:
                continue
            stds = torch._foreach_mul(self._precisions(group, [params[i] for i in trained]), self.num_data)
            torch._foreach_reciprocal_(stds)
            torch._foreach_mul_(stds, group["temperature"])
            torch._foreach_sqrt_(stds)
            for i, std in zip(trained, stds, strict=True):
                points[i] = means[i] + std * noise.like(std)
        return points

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
            drawn = self._blurred([p.detach() for p in params], noise)
            yield THETA, [w.to(p.dtype) for w, p in zip(drawn, params, strict=True)]

    @torch.no_grad()
    def effective_noise_std(self) -> float:
        """Return the root mean square of √(T/(N·s)), the noise of w̃, over the first group's coordinates."""
        group = self.param_groups[0]
        inverses = [s.double().reciprocal() for s in self._precisions(group, group["params"])]
        mean = sum(float(i.sum()) for i in inverses) / sum(i.numel() for i in inverses)
        return math.sqrt(group["temperature"] * mean / self.num_data)
