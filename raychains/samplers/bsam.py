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
from raychains.samplers.closure import ClosureSampler, Grads
from raychains.samplers.noise import Noise
from raychains.samplers.sampler import MethodPreset, Presets, wide
from raychains.samplers.settings import setting


def _above_0(name: str, value: object) -> None:
    require(is_number(value) and 0 < value < 1, name, value, "lie in (0, 1): s must stay positive")


class BSAM(ClosureSampler):
    """w̃ = m + √(T/(N·s))·ξ;  g = ∇ℓ(w̃);  g′ = ∇ℓ(m + ρ·g/s);  gₘ ← β₁·gₘ + (1−β₁)(g′ + δm);  m ← m − lr·gₘ/s;
    s ← β₂·s + (1−β₂)(√s·|g| + damping + δ).

    The parameters hold m; gₘ starts at 0 and s at ``s0``; m moves with the old s, without bias correction. Each of the
    ``m_sharpness`` sub-minibatches has its own w̃, its own g and its own second point m + ρ·g/s; the |g| and the
    g′ are averaged over them.

    Where data are augmented the paper counts N as 4 × the number of training data. Prediction averages over draws
    w ~ N(m, T/(N·s)), of which a kept step yields ``prediction_samples``.

    Target: none; a variational optimiser that fits the Gaussian N(m, 1/(N·s)); draws of it are kept as θ.

    Raises:
        UserError: a setting out of range, a complex parameter, a sparse gradient or missing closures.

    Source: Möllenhoff & Khan 2023, https://arxiv.org/abs/2210.01620, Algorithm 1 (right).
    """

    lr: float = setting("step size of m; .5 in the paper's CIFAR runs.")
    num_data: int = setting("N, the number of training data; with augmentation the paper uses 4·N.")
    temperature: float = setting("T, which multiplies the variance of w̃ and of draws; 0 takes both at m.", default=1.0)
    weight_decay: float = setting("δ, the precision of the Gaussian prior N(0, 1/(Nδ)) divided by N.", default=0.0)
    beta1: float = setting("β₁ in [0, 1), how slowly the gradient average forgets.", default=0.9, check=fraction)
    beta2: float = setting("β₂ in (0, 1), how slowly the precision forgets.", default=0.999, check=_above_0)
    rho: float = setting("ρ, the size of the perturbation.", default=0.01, check=positive)
    damping: float = setting("added to the precision's target; at least 0.", default=0.1, check=at_least_0)
    s0: float = setting("the initial s; the initial variance is 1/(N·s0).", default=1.0, check=positive)
    m_sharpness: int = setting(
        "parts of the minibatch per step, each with its own perturbation and closure.", default=8
    )
    prediction_samples: int = setting("draws of θ that a kept step yields.", default=1, group=False, check=positive_int)

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

    def stages(self, parts: int) -> Generator[int, Any, Any]:
        """As `ClosureSampler.stages`; the loss returned is that at w̃."""
        self._magnitudes: dict[Tensor, Tensor] = {}
        self._divided = parts
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
        """Yield draws w ~ N(m, T/(N·s)) from a stream of their own, a function of the seed and the number of
        updates."""
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
