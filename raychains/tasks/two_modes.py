"""A sharp and a flat mode of equal depth: the landscape on which Entropy-MCMC shows its pull to flat regions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core.errors import require
from raychains.core.validation import is_number, positive
from raychains.evaluation import exact
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.exact import ModeShare
from raychains.tasks.base import LogDensity
from raychains.tasks.defaults import density, density_rates

SHARP_CENTRE, FLAT_CENTRE = CENTRES = ((-1.0, -1.0), (1.0, 1.0))
RIDGE = (-2 / 3, -2 / 3)
"""Between the modes where, with standard deviations .1 and .5, both pull about alike."""
BOX = 2.0
"""Without a starting point chains start uniformly in [−BOX, BOX]²."""


class TwoModes(LogDensity):
    """−log[σ_s²·N(θ; (−1,−1), σ_s²I) + σ_f²·N(θ; (1,1), σ_f²I)], N = 1: equal depths, masses as σ_s² : σ_f².

    In two dimensions σ²·N(μ; μ, σ²I) = 1/2π whatever σ is, so that both modes are equally deep and differ in width
    only. With r the flat mode's responsibility, ∇U = (1−r)·(θ−μ_s)/σ_s² + r·(θ−μ_f)/σ_f² and
    r = sigmoid(‖θ−μ_s‖²/2σ_s² − ‖θ−μ_f‖²/2σ_f²).

    Args:
        sharp: σ_s, standard deviation of the mode at (−1, −1).
        flat: σ_f, of the mode at (1, 1).
        start: where all lanes start; None for independent uniform draws from [−2, 2]².

    Raises:
        UserError: a setting out of range.
    """

    name = "two-modes"
    dim = 2
    # Oracle-sized steps: near the sharp mode's limit of stability, 2/lr = 1/.1².
    defaults = density(
        0.016,
        samplers=("sgld", "emcmc"),
        lr=density_rates(0.01, decreasing=0.01, gradient=3),
        steps=2_000,
        cycles=1,
        exploration=0.0,
        repeats=100,
    )

    def __init__(self, sharp: float = 0.1, flat: float = 0.5, start: Sequence[float] | None = RIDGE) -> None:
        positive("sharp", sharp)
        positive("flat", flat)
        require(sharp < flat, "sharp", sharp, f"be below flat ({flat})")
        ok = start is None or (isinstance(start, Sequence) and len(start) == 2 and all(is_number(x) for x in start))
        require(ok, "start", start, "be None or a list of two finite numbers")
        self.sharp, self.flat = float(sharp), float(flat)
        self.start = None if start is None else (float(start[0]), float(start[1]))
        self._centres = torch.tensor(CENTRES, dtype=torch.float64)

    @property
    def flat_share(self) -> float:
        """The flat mode's mass, σ_f²/(σ_s² + σ_f²)."""
        return self.flat**2 / (self.sharp**2 + self.flat**2)

    def settings(self) -> dict[str, Any]:
        return {"sharp": self.sharp, "flat": self.flat, "start": None if self.start is None else list(self.start)}

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        if self.start is not None:
            return torch.tensor([self.start], dtype=torch.float64).repeat(lanes, 1)
        return torch.empty(lanes, 2, dtype=torch.float64).uniform_(-BOX, BOX, generator=generator)

    def responsibility(self, theta: Tensor) -> Tensor:
        """Return r, the probability that the flat mode made ``theta`` [..., 2]; [..., 1]."""
        return torch.sigmoid(self._exponent(theta, 0) - self._exponent(theta, 1))

    def log_density(self, theta: Tensor) -> Tensor:
        exponents = torch.cat([self._exponent(theta, mode) for mode in (0, 1)], dim=-1)
        return torch.logsumexp(-exponents, dim=-1) - math.log(2 * math.pi)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ∇U at ``theta`` of shape [lanes, 2], same shape."""
        sharp, flat = self._centres.to(theta)
        to_sharp = (theta - sharp) / self.sharp**2
        return to_sharp + self.responsibility(theta) * ((theta - flat) / self.flat**2 - to_sharp)

    def to(self, device: torch.device) -> None:
        self._centres = self._centres.to(device)

    def splits(self) -> Mapping[str, Evaluation]:
        return {"target": ModeShare(centres=CENTRES, scales=self._scales, weights=self._weights, mode=1)}

    def reference(self) -> exact.Exact:
        scales, weights = np.array(self._scales), np.array(self._weights)
        modes = exact.Modes(names=("sharp", "flat"), centres=np.array(CENTRES), scales=scales, weights=weights)
        return exact.mixture(modes)

    @property
    def _scales(self) -> tuple[float, float]:
        return self.sharp, self.flat

    @property
    def _weights(self) -> tuple[float, float]:
        return 1 - self.flat_share, self.flat_share

    def _exponent(self, theta: Tensor, mode: int) -> Tensor:
        """Return ‖θ−μ‖²/2σ² of one mode, [..., 1]."""
        scale = self._scales[mode]
        return (theta - self._centres[mode].to(theta)).square().sum(-1, keepdim=True) / (2 * scale**2)
