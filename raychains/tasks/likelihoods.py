"""Likelihoods of a network's outputs: classes, Gaussian noise, torch distributions, or a user's loss function."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.core import user_code
from raychains.core.errors import UserError, format_error, near_miss, require, shown
from raychains.core.validation import as_number, is_number
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.regression import FLOOR, LOG_NOISE, OutputNoise, Pointwise, Regression
from raychains.tasks.distributions import NAMED, Bernoulli, Distributed, NegativeBinomial, Normal, Poisson, StudentT
from raychains.tasks.likelihood_base import Likelihood, belongs, check_labels, dtype_name, placed
from raychains.tasks.positions import AXES, PerPosition
from raychains.tasks.survival import DiscreteHazard
from raychains.tasks.user_dataset import UserDataset

__all__ = [
    "LEARNED",
    "LOG_NOISE",
    "NAMED",
    "Bernoulli",
    "Classes",
    "DiscreteHazard",
    "Distributed",
    "GaussianNoise",
    "Heteroscedastic",
    "Likelihood",
    "LossFunction",
    "NegativeBinomial",
    "Normal",
    "PerPosition",
    "Poisson",
    "StudentT",
    "belongs",
    "distributed_from_json",
    "distributed_to_json",
    "likelihood",
]

LEARNED = "learned"
IN_FILES: Mapping[str, type[Distributed]] = {**NAMED, "discrete-hazard": DiscreteHazard}
"""Those that an exported file states by a name."""


class Classes(Likelihood):
    """log p(y | x, θ) = log softmax(f)_y of logits f [n, classes] and labels [n].

    Args:
        weights: w_c, one for each class: log p of an example is multiplied by that of its label, so that the posterior
            is ∝ Π_i p(y_i | x_i, θ)^w(y_i) · prior. N stays the number of examples; weights whose mean over them is 1
            leave the data's total weight against the prior as it is. Metrics and predictions have no weights.
    """

    name, predicts = "cross_entropy", "classes"
    weights: tuple[float, ...] | None = None

    def __init__(self, weights: Sequence[float] | None = None) -> None:
        if weights is None:
            return
        given = weights.tolist() if hasattr(weights, "tolist") else weights
        ok = isinstance(given, list | tuple) and all(is_number(w) and w >= 0 for w in given) and any(given)
        require(ok, "weights", weights, "be a list of a finite number of at least 0 for each class, not all 0")
        self.weights = tuple(map(float, given))
        self.name, self.lacks = f"cross_entropy, weights {list(self.weights)}", ("fisher",)

    def _weights(self, outputs: Tensor) -> Tensor | None:
        return None if self.weights is None else placed(self.weights, outputs.device, outputs.dtype)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        ok = outputs.ndim == 2 and targets.ndim == 1 and outputs.shape[1] >= 2
        if not ok or targets.is_floating_point() or targets.is_complex():
            raise UserError(
                "loss cross_entropy needs logits [n, classes] and integer labels [n], got outputs "
                f"{list(outputs.shape)} and {dtype_name(targets)} targets {list(targets.shape)} for {len(targets)} "
                "examples"
            )
        if self.weights is not None and len(self.weights) != outputs.shape[1]:
            raise UserError(
                f"weights must be one for each class, {outputs.shape[1]} as the model has outputs, got "
                f"{len(self.weights)}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        check_labels(targets.long(), outputs.shape[1], name)  # torch has no least uint16

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        weights, labels = self._weights(outputs), targets.long()
        if weights is None:
            return F.cross_entropy(outputs, labels)
        return F.cross_entropy(outputs, labels, weight=weights, reduction="sum") / len(labels)

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        weights, labels = self._weights(outputs), targets.flatten().long()
        flat = F.cross_entropy(outputs.flatten(0, 1), labels, weight=weights, reduction="none")
        return flat.view(targets.shape)

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        p = outputs.double().softmax(dim=1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return _Labelled(data, model=model, labels=data.targets.long().numpy(), classes=classes)


class _Labelled(Classification):
    """A split whose inputs are read when they are needed and whose fingerprint is known."""

    def __init__(self, data: UserDataset, **others: Any) -> None:
        super().__init__(inputs=data, **others)
        self._known = data.fingerprint

    @property
    def fingerprint(self) -> str:
        return f"own/{self._known}"


class GaussianNoise(Likelihood):
    """y | x, θ ~ N(f_θ(x), σ²I) of outputs and targets [n] or [n, k].

    Mean NLL of a batch, in nats: (1/n) Σ_i ‖y_i − f_i‖²/(2σ²) + k·log σ + (k/2)·log 2π.

    Args:
        noise: σ, a positive number; or ``"learned"``: log σ is one more parameter of the model, ``log_noise`` of shape
            [1]. It starts at 0 (σ = 1) and has the prior of all others: with weight decay λ, log σ ~ N(0, 1/(Nλ)).
            Standardise the targets, so that σ = 1 is where to start.
    """

    predicts = "gaussian"

    def __init__(self, noise: float | str) -> None:
        noise = as_number(noise)
        ok = noise == LEARNED if isinstance(noise, str) else is_number(noise) and noise > 0
        require(ok, "noise", noise, "be a finite number above 0, σ, or 'learned'")
        self.noise: float | None = None if isinstance(noise, str) else float(noise)
        self.name = f"gaussian, noise {noise if isinstance(noise, str) else float(noise)!r}"

    def extend(self, model: nn.Module) -> nn.Module:
        if self.noise is None:
            if hasattr(model, LOG_NOISE):
                raise UserError(
                    f"model_fn must leave the name {LOG_NOISE!r} free, which is that of the learned noise's log σ"
                )
            model.register_parameter(LOG_NOISE, nn.Parameter(torch.zeros(1)))
        return model

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        if not outputs.is_floating_point() or targets.is_complex() or _width(outputs) != _width(targets):
            raise UserError(
                "loss gaussian needs outputs and targets [n] or [n, k], got outputs "
                f"{list(outputs.shape)} and targets {list(targets.shape)} for {len(targets)} examples"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        _check_finite(targets, name)

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = outputs.reshape(len(outputs), -1).to(torch.promote_types(outputs.dtype, torch.float32))
        squares = (targets.reshape(len(targets), -1).to(outputs.dtype) - outputs).square().sum(1).mean()
        k, constant = outputs.shape[1], 0.5 * outputs.shape[1] * math.log(2 * math.pi)
        if self.noise is not None:
            return squares / (2 * self.noise**2) + (k * math.log(self.noise) + constant)
        log_sigma = model.get_parameter(LOG_NOISE)[0]
        return 0.5 * squares * torch.exp(-2 * log_sigma) + k * log_sigma + constant

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = outputs.flatten(2) if outputs.ndim > 2 else outputs.unsqueeze(2)
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        squares = (targets.reshape(outputs.shape).to(outputs.dtype) - outputs).square().sum(2)
        k, constant = outputs.shape[2], 0.5 * outputs.shape[2] * math.log(2 * math.pi)
        if self.noise is not None:
            return squares / (2 * self.noise**2) + (k * math.log(self.noise) + constant)
        log_sigma = parameters[LOG_NOISE]
        return 0.5 * squares * torch.exp(-2 * log_sigma) + k * log_sigma + constant

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return I/σ²; σ is taken as it is where it is learned."""
        outputs = outputs.double().reshape(len(outputs), -1)
        sigma = self.noise if self.noise is not None else float(model.get_parameter(LOG_NOISE).detach().exp())
        return torch.diag_embed(torch.full_like(outputs, 1 / sigma**2))

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return _regression(self, model, data)


class Heteroscedastic(Likelihood):
    """y | x, θ ~ N(μ(x), σ(x)²) of outputs f = (μ, r) [n, 2] and targets [n] or [n, 1]; σ = softplus(r) + floor.

    Mean NLL of a batch, in nats: (1/n) Σ_i (y_i − μ_i)²/(2σ_i²) + log σ_i + ½·log 2π. Standardise the targets: a new
    network has σ near softplus(0) = .69.

    Args:
        floor: least σ, in the targets' unit.

    Source: Nix & Weigend 1994; softplus and the floor's default as in bde and MILE (Sommer et al. 2025).
    """

    predicts = "gaussian"

    def __init__(self, floor: float = FLOOR) -> None:
        require(is_number(floor) and floor >= 0, "floor", floor, "be a finite number of at least 0: the least σ")
        self.noise: OutputNoise = OutputNoise(floor=float(floor))
        self.name = f"heteroscedastic, floor {float(floor)!r}"

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        ok = outputs.ndim == 2 and outputs.shape[1] == 2 and outputs.is_floating_point()
        if not ok or targets.is_complex() or _width(targets) != (1,):
            raise UserError(
                "loss heteroscedastic needs outputs [n, 2], the mean and what gives σ, and targets [n] or [n, 1], got "
                f"outputs {list(outputs.shape)} and targets {list(targets.shape)} for {len(targets)} examples"
                f"{': loss normal has a σ for each of several targets' if _width(targets) != (1,) else ''}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        _check_finite(targets, name)

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        mean, sigma = self.noise.split(outputs)
        z = (targets.reshape(-1, 1).to(outputs.dtype) - mean) / sigma
        return (0.5 * z.square() + sigma.log()).mean() + 0.5 * math.log(2 * math.pi)

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        mean, sigma = self.noise.split(outputs)
        z = (targets.reshape(mean.shape).to(outputs.dtype) - mean) / sigma
        return (0.5 * z.square() + sigma.log()).squeeze(2) + 0.5 * math.log(2 * math.pi)

    def gradients(
        self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return them by their formula, in a third of the time: with z = (y − μ)/σ, −z/σ in μ and (1 − z²)/σ·dσ/dr in
        r."""
        if type(self).each is not Heteroscedastic.each:  # a subclass's own
            return super().gradients(parameters, outputs, targets, weights)
        wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        mean, sigma = (part.squeeze(2) for part in self.noise.split(wide))
        z = (targets.reshape(mean.shape).to(wide.dtype) - mean) / sigma
        squares = z.square()
        losses = ((0.5 * squares + sigma.log() + 0.5 * math.log(2 * math.pi)) * weights).sum(1)
        weighted = weights / sigma
        gradients = torch.empty_like(wide)
        gradients[..., 0] = -z * weighted
        gradients[..., 1] = (1 - squares) * weighted * wide[..., 1].sigmoid()
        return losses, gradients.to(outputs.dtype), {}

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return diag(1/σ², 2(dσ/dr)²/σ²) of outputs (μ, r): dσ/dr is the logistic function of r."""
        outputs = outputs.double()
        _, sigma = self.noise.split(outputs)
        slope = outputs[:, 1:].sigmoid()
        return torch.diag_embed(torch.cat([torch.ones_like(slope), 2 * slope.square()], dim=1) / sigma.square())

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return _regression(self, model, data)


class LossFunction(Likelihood):
    """−log p(y | x, θ) = loss(f_θ(x), y), of which only the mean over a batch can be asked.

    Args:
        function: (outputs [n, …], targets [n, …]) to the mean over the n examples, each of which counts by itself: the
            loss of a batch must be the mean of those of its examples, as posterior and predictive take it for.
    """

    predicts = "outputs"

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = function
        self.name = f"callable {getattr(function, '__qualname__', type(function).__name__)}"

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        try:
            value = self.function(outputs.clone(), targets.clone())
        except Exception as error:
            raise UserError(f"loss failed on the first training examples: {format_error(error, kind=True)}") from None
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise UserError("loss must return a tensor of one number, the mean over the batch's examples")

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.function(outputs, targets).reshape(())

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return Pointwise(
            model=model,
            inputs=data,
            targets=data.targets,
            loss=self.function,
            fingerprint=f"{data.fingerprint}/{self.name}",
        )


BY_NAME: Mapping[str, Callable[[], Likelihood]] = {
    "cross_entropy": Classes,
    "heteroscedastic": Heteroscedastic,
    **NAMED,
    **{name: partial(PerPosition, axis) for name, axis in AXES.items()},
}
"""Likelihoods without a setting, by the loss's name."""


def likelihood(loss: Any, noise: float | str | None) -> Likelihood:
    """Return the likelihood of a loss's name or function; one that is a `Likelihood` already is returned as it is.

    Raises:
        UserError: another name, or a noise where none is.
    """
    name = loss if isinstance(loss, str) else ""
    if name == "gaussian":
        return GaussianNoise(1.0 if noise is None else noise)
    itself = noise is None or name != "heteroscedastic"
    require(itself, "noise", noise, "be left out: the network of loss 'heteroscedastic' gives σ itself")
    require(noise is None, "noise", noise, "be left out: only loss 'gaussian' has it")
    if isinstance(loss, Likelihood):
        named = getattr(loss, "name", None)
        require(
            isinstance(named, str) and bool(named), "loss", type(loss).__name__, "have a `name`, part of the identity"
        )
        return loss
    if isinstance(loss, type) and issubclass(loss, Likelihood):
        raise UserError(f"loss must be a likelihood, {loss.__name__}(…), got its class")
    if name in BY_NAME:
        return BY_NAME[name]()
    if not callable(loss):
        first, *others = BY_NAME
        names = (first, "gaussian", *others)
        raise UserError(
            f"loss must be {', '.join(map(repr, names))}, a Likelihood or a function of outputs and targets, got "
            f"{shown(loss)}{near_miss(loss, names)}"
        )
    return LossFunction(loss)


def distributed_to_json(likelihood: Distributed) -> dict[str, Any]:
    """Return how a file states a likelihood: ``{"name": …}`` and the settings of one of raychains, or ``{"path":
    "module:Class", "settings": {…}}`` of another class that can be imported.

    Raises:
        UserError: a class that no other process can import, or one that its `settings` do not make again.
    """
    kind = type(likelihood)
    settings = likelihood.settings()
    name = next((name for name, known in IN_FILES.items() if kind is known), None)
    if name is not None:
        return {"name": name, **settings}
    path = f"{kind.__module__}:{kind.__qualname__}"
    if user_code.is_local(path) or user_code.imported(path) is not kind:
        raise UserError(
            "task must have a likelihood of raychains, or of a class that can be imported, to be written to a file, "
            f"got {kind.__name__}: use `Result.posterior`, which is in memory"
        )
    try:
        settings = json.loads(json.dumps(settings, allow_nan=False))
        ok = kind(**settings).name == likelihood.name
    except Exception:  # of JSON, or of the user's class
        ok = False
    require(
        ok, f"settings() of {kind.__name__}", settings, "be JSON of the arguments by which its constructor makes it"
    )
    return {"path": path, "settings": settings}


def distributed_from_json(data: Any, file: str = "the file", trust: bool = False) -> Distributed:
    """Return the likelihood that `distributed_to_json` wrote.

    Args:
        data: the JSON.
        file: that states it, for messages.
        trust: import the class that is named by its path, which runs that module's code.

    Raises:
        UserError: it is none, one that is not trusted, or one that cannot be made here.
    """
    if isinstance(data, Mapping) and "path" in data:
        return _imported(str(data["path"]), data.get("settings"), file, trust)
    ok = isinstance(data, Mapping) and data.get("name") in IN_FILES
    require(ok, "likelihood", data, f"name one of {', '.join(IN_FILES)}")
    settings = {name: value for name, value in data.items() if name != "name"}
    kind: Any = IN_FILES[data["name"]]
    try:
        inspect.signature(kind).bind(**settings)
    except TypeError:
        require(False, "likelihood", data, "have settings that this version knows")
    made: Distributed = kind(**settings)
    return made


def _imported(path: str, settings: Any, file: str, trust: bool) -> Distributed:
    if not trust:
        raise UserError(
            f"trust must be True to load {file}: it names the likelihood {path!r}, whose module would be imported; or "
            "give the likelihood, load(file, likelihood=…)"
        )
    made = user_code.built("likelihood", path, settings, file)
    require(isinstance(made, Distributed), "likelihood", path, f"make a Distributed: {file} names it")
    return made


def _check_finite(targets: Tensor, name: str) -> None:
    wrong = (~torch.isfinite(targets.reshape(len(targets), -1)).all(1)).nonzero()[:, 0].tolist()
    if wrong:
        raise UserError(
            f"{name} must have finite targets, got one that is not at index {wrong[0]}: Normal(missing=True) counts "
            "NaN as a target that is missing"
        )


def _regression(likelihood: Likelihood, model: nn.Module, data: UserDataset) -> Regression:
    fingerprint = f"{data.fingerprint}/{likelihood.name}"
    targets = data.targets.double().numpy()
    return Regression(model=model, inputs=data, targets=targets, noise=likelihood.noise, fingerprint=fingerprint)


def _width(t: Tensor) -> tuple[int, ...]:
    """Return the shape of an example's outputs, of [n] as of [n, 1]."""
    return tuple(t.shape[1:]) or (1,)
