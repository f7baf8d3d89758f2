"""SWAG (Maddox et al., 2019): a Gaussian fitted to SGD's iterates, and draws of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core.sample import THETA
from raychains.core.validation import integer, positive, positive_int
from raychains.samplers.noise import Noise
from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting
from raychains.samplers.sghmc import VelocitySampler


class SWAG(VelocitySampler):
    """v ← m·v − lr·g; θ ← θ + v; every c-th θ updates the mean θ̄, the variance Σ of each coordinate and the
    last K deviations D = θ − θ̄; a draw is θ̄ + √(s/2)·√Σ·ξ₁ + √(s/(2(K−1)))·D·ξ₂.

    Iterates are collected at steps with a temperature above 0, which a schedule without cycles has after its
    ``noise_from``, under its burn-in SGD only trains. Nothing is injected into SGD, and the temperature scales nothing:
    the Gaussian's width is that of SGD's own noise at this lr. A kept step yields a fresh draw of the Gaussian as it is
    then, so that draws late in a run come from more iterates. Before two are collected, and at temperature 0, a draw is
    the iterate itself. Steps at temperature 0 forget what was collected: cycles that begin without noise (β above 0)
    have a Gaussian of their own each.

    Σ is that of the paper, mean(θ²) − θ̄², kept as the mean of squared deviations, which single precision does not
    cancel.

    Several chains are MultiSWAG (Wilson & Izmailov 2020), the mixture of their Gaussians.

    Target: none; a Gaussian approximation around one mode.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Maddox et al. 2019, https://arxiv.org/abs/1902.02476, Algorithm 1; MultiSWAG: Wilson & Izmailov 2020,
    https://arxiv.org/abs/2002.08791.
    """

    num_data: int = setting("N; not used by the update.", default=1)
    temperature: float = setting(
        "0 (in a run: during the burn-in): SGD only; above 0: iterates are collected for the Gaussian.", default=1.0
    )
    seed: int | None = setting("of the draws; drawn from torch's global generator when left out.", default=None)
    momentum: float = setting("m in [0, 1).", default=0.9)
    collect_every: int = setting(
        "c, steps between collected iterates; a run's default is an epoch.", default=1, check=positive_int
    )
    rank: int = setting(
        "K, the deviations that are kept, at least 2.", default=20, check=partial(integer, least=2, most=10_000)
    )
    scale: float = setting("s > 0, which multiplies the covariance.", default=1.0, check=positive)

    kind = "swag"
    missing_grad = "skip"
    revision = 2
    presets: ClassVar[Presets] = {
        "swag": MethodPreset(schedule="constant", label="SWAG"),
        "multiswag": MethodPreset(schedule="constant", label="MultiSWAG"),
    }
    statistics_fit = False

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        super()._update({**group, "temperature": 0.0}, params, grads)
        for p in params:
            if group["temperature"] > 0:
                self._collect(group, p)
            elif "noisy_steps" in self.state[p]:  # of the last cycle
                for name in ("mean", "variance", "deviations"):
                    self.state[p].pop(name, None)
                self.state[p]["forgotten"] = self.state[p]["noisy_steps"]

    def _collect(self, group: dict[str, Any], p: Tensor) -> None:
        state = self.state[p]
        state["noisy_steps"] = state.get("noisy_steps", 0) + 1
        count, rest = divmod(_steps(state), group["collect_every"])
        if rest:
            return
        mean, variance = self.state_of(p, "mean"), self.state_of(p, "variance")
        away = p.to(mean.dtype) - mean
        mean.add_(away, alpha=1 / count)
        variance.lerp_(away * (p - mean), 1 / count)  # Welford 1962
        if "deviations" not in state:
            state["deviations"] = mean.new_zeros((group["rank"], *p.shape))
        state["deviations"][(count - 1) % group["rank"]] = p - mean

    def kinetic(self) -> Tensor | None:
        return None  # its velocity has SGD's noise alone

    def effective_noise_std(self) -> float:
        return 0.0

    @torch.no_grad()
    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """Yield a draw of the Gaussian from a stream of its own, a function of the seed and the number of steps."""
        params = self.parameters()
        steps = max((self.state.get(p, {}).get("noisy_steps", 0) for p in params), default=0)
        noise = Noise.of_draws(self.kind, self._noise.seed, steps)
        ranks = max(group["rank"] for group in self.param_groups)
        shared = noise.like(torch.empty(ranks, self.lanes, dtype=torch.float64)).clone()
        yield THETA, [self._drawn(group, p, shared, noise) for group in self.param_groups for p in group["params"]]

    def _drawn(self, group: dict[str, Any], p: Tensor, shared: Tensor, noise: Noise) -> Tensor:
        """Return one parameter of a draw; ``shared`` is ξ₂, [K, lanes], of all parameters."""
        state = self.state.get(p, {})
        count = _steps(state) // group["collect_every"]
        if count < 2 or group["temperature"] == 0:
            return p.detach().clone()
        mean, deviations = state["mean"], state["deviations"]
        spread = state["variance"].clamp_min(0.0).sqrt()
        half = group["scale"] / 2
        kept = min(count, group["rank"])
        weights = shared[:kept].to(mean.device, mean.dtype)
        low = (deviations[:kept].reshape(kept, self.lanes, -1) * weights[:, :, None]).sum(0).reshape(p.shape)
        drawn = mean + math.sqrt(half) * spread * noise.like(spread) + math.sqrt(half / (kept - 1)) * low
        return drawn.to(p.dtype)


def _steps(state: Mapping[str, Any]) -> int:
    """Return the steps above temperature 0 since the last one at 0."""
    return int(state.get("noisy_steps", 0) - state.get("forgotten", 0))
