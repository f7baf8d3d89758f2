"""Last-layer Laplace approximation: SGD with momentum to a mode, and draws of the Gaussian of its last linear layer
there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from raychains.core.errors import UserError, require
from raychains.core.sample import THETA
from raychains.core.validation import positive_int
from raychains.samplers.noise import Noise
from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting
from raychains.samplers.sghmc import VelocitySampler

LARGEST = 6_000
"""Most weights and biases K of the last layer: its precision is a dense [K, K] in double precision, at most 288 MB."""


class LastLayerLaplace(VelocitySampler):
    """At T = 0 (in a run: before the last epoch): v ← m·v − lr·g; θ ← θ + v. At T > 0 θ is fixed, and P ← P + Σᵢ Fᵢ ⊗
    φᵢφᵢᵀ over the batch, from P = 0 (φᵢ: the layer's input, Fᵢ: its outputs' Fisher information); a draw is θ with the
    last layer's weights w replaced by w + √T·(P + NλI)^(−½)·ξ.

    φᵢ is what the last linear layer is given for example i, and 1 for its bias; Fᵢ the Fisher information of p(yᵢ | f)
    about its outputs f = Wφ + b, so that P is the generalised Gauss–Newton matrix of the layer's weights: of softmax
    and of Gaussian noise of known size the two are the same. For a Gaussian likelihood with known σ the law of the
    draws is exactly Bayesian linear regression on the features, given θ at its optimum. `measure` takes a batch in;
    once N examples have been, nothing is added, and before that P is multiplied by N/n of the n that have. Steps at
    temperature 0 forget P.

    In a run the last epoch measures, unless a burn-in is given, and the last step is kept. Several chains are a mixture
    of Laplace approximations; under a cyclical schedule one chain gives one for each cycle.

    Target: none; a Gaussian approximation around one mode, in the last layer alone.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: Daxberger et al. 2021, https://arxiv.org/abs/2106.14806; Kristiadi et al. 2020,
    https://arxiv.org/abs/2002.10118; mixtures: Eschenhagen et al. 2021, https://arxiv.org/abs/2111.03577.
    """

    temperature: float = setting("T, by which the covariance is multiplied; 0 optimises.", default=1.0)
    weight_decay: float = setting(
        "λ > 0, the strength of the L2 penalty ½λ‖θ‖², a Gaussian prior N(0, 1/(Nλ)).", default=0.0
    )
    seed: int | None = setting("of the draws; drawn from torch's global generator when left out.", default=None)
    lanes: int = setting("independent chains stacked on axis 0 of every parameter; only 1 can be measured.", default=1)
    momentum: float = setting("m in [0, 1).", default=0.9)
    prediction_samples: int = setting(
        "draws of θ that a kept step yields.", default=20, group=False, check=positive_int
    )

    kind = "laplace"
    missing_grad = "skip"
    presets: ClassVar[Presets] = {
        "laplace": MethodPreset(schedule="linear", label="Last-layer Laplace", last_epoch_measures=True)
    }

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        common, given = self.param_groups[0]["temperature"], group["temperature"]
        require(
            given == common, "temperature", given, f"be that of the first group, {common!r}: all are fitted together"
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As `Sampler.step`; above temperature 0 it moves nothing and counts, so that later draws are others."""
        if self.param_groups[0]["temperature"] > 0:
            first = self.state[self.parameters()[0]]
            first["noisy_steps"] = first.get("noisy_steps", 0) + 1
        return super().step(closure)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        if group["temperature"] > 0:
            return
        for p in params:
            for name in ("precision", "measured", "bias"):
                self.state[p].pop(name, None)
        super()._update(group, params, grads)

    def kinetic(self) -> Tensor | None:
        return None  # its velocity has SGD's noise alone

    def effective_noise_std(self) -> float:
        return 0.0

    def _measured(self) -> tuple[Tensor | None, int]:
        """Return the weight whose layer is measured, and how many examples have been."""
        for p in self.parameters():
            if "precision" in self.state.get(p, {}):
                return p, self.state[p]["measured"]
        return None, 0

    @torch.no_grad()
    def measure(self, layer: nn.Linear, features: Tensor, fisher: Tensor) -> None:
        """Add a batch to the precision of the network's last layer; nothing once N examples have been.

        Args:
            layer: the last layer, whose weight and bias are among the parameters.
            features: φ, [n, inputs], what the layer is given.
            fisher: F, [n, outputs, outputs], the Fisher information about what it returns.

        Raises:
            UserError: another layer's parameters, one that is too large, or shapes that do not fit.
        """
        check(layer)
        params = self.parameters()
        strange = [name for name, p in layer.named_parameters() if not any(p is q for q in params)]
        if strange:
            raise UserError(
                f"layer must have its parameters among the sampler's, got one whose {' and '.join(strange)} is not"
            )
        other, _ = self._measured()
        if other is not None and other is not layer.weight:
            raise UserError("layer must be the one that was measured before, got another")
        require(self.lanes == 1, "lanes", self.lanes, "be 1 to measure a layer")
        shapes = (*features.shape, *fisher.shape)
        n, k = len(features), layer.out_features
        require(
            shapes == (n, layer.in_features, n, k, k),
            "features",
            shapes,
            "be [n, inputs], with fisher [n, outputs, outputs]",
        )
        state = self.state[layer.weight]
        if state.get("measured", 0) >= self.num_data:
            return
        phi = features.detach().double()
        if layer.bias is not None:
            phi = torch.cat([phi, phi.new_ones(n, 1)], dim=1)
        f = phi.shape[1]
        if "precision" not in state:
            bias = -1 if layer.bias is None else next(i for i, p in enumerate(params) if p is layer.bias)
            state |= {"precision": phi.new_zeros(k * f, k * f), "measured": 0, "bias": bias}
        for a in range(k):  # the rows of one output: Σᵢ Fᵢ[a, b]·φᵢφᵢᵀ for all b
            weighted = (fisher[:, a, :].to(phi)[:, :, None] * phi[:, None, :]).reshape(n, k * f)
            state["precision"][a * f : (a + 1) * f].addmm_(phi.T, weighted)
        state["measured"] += n

    @classmethod
    def variables(cls, settings: Mapping[str, Any]) -> Mapping[str, int]:
        return {THETA: settings.get("prediction_samples", 20)}

    @torch.no_grad()
    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """Yield draws from a stream of their own, a function of the seed and the steps above temperature 0; θ itself
        before anything is measured."""
        params = self.parameters()
        weight, measured = self._measured()
        groups = [group for group in self.param_groups for _ in group["params"]]
        temperature = self.param_groups[0]["temperature"]
        if weight is None or temperature == 0:
            for _ in range(self.prediction_samples):
                yield THETA, list(params)
            return
        place = next(i for i, p in enumerate(params) if p is weight)
        state = self.state[weight]
        layer = [place] if state["bias"] < 0 else [place, state["bias"]]
        mean = torch.cat([params[i].detach().double().reshape(len(weight), -1) for i in layer], dim=1)
        prior = torch.cat(
            [
                torch.full_like(params[i], groups[i]["weight_decay"], dtype=mean.dtype).reshape(len(weight), -1)
                for i in layer
            ],
            dim=1,
        )
        for i in layer:
            allowed = "be above 0 in the last layer: without a prior its Gaussian has no bounds"
            require(groups[i]["weight_decay"] > 0, "weight_decay", groups[i]["weight_decay"], allowed)
        precision = state["precision"] * (self.num_data / measured)
        precision.diagonal().add_(self.num_data * prior.reshape(-1))
        root, failed = torch.linalg.cholesky_ex(precision)
        root.masked_fill_(failed > 0, math.nan)  # of a diverged network, whose draws a chain refuses
        noise = Noise.of_draws(self.kind, self._noise.seed, self.state[params[0]].get("noisy_steps", 0))
        for _ in range(self.prediction_samples):
            white = noise.like(mean.reshape(-1, 1))
            away = torch.linalg.solve_triangular(root.mT, white, upper=True) * math.sqrt(temperature)
            drawn = mean + away.reshape(mean.shape)
            tensors = list(params)
            tensors[place] = drawn[:, : weight.shape[1]].to(weight.dtype)
            if state["bias"] >= 0:
                tensors[state["bias"]] = drawn[:, -1].to(weight.dtype)
            yield THETA, tensors


def check(layer: nn.Linear) -> None:
    """Refuse a layer whose dense precision is too large.

    Raises:
        UserError: more than `LARGEST` weights and biases.
    """
    size = sum(p.numel() for p in layer.parameters())
    if size > LARGEST:
        raise UserError(
            f"the last layer must have at most {LARGEST:,} weights and biases for laplace, which keeps their full "
            f"covariance, got {size:,}"
        )
