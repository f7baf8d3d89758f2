"""Likelihoods of a network's outputs: classes, also one for each position, Gaussian noise, torch distributions, or a
user's loss function."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributions, nn
from torch.distributions import Distribution
from torch.nn import functional as F

from raychains.core.errors import UserError, format_error, near_miss, require, shown
from raychains.core.validation import as_number, is_int, is_number
from raychains.evaluation.base import Evaluation
from raychains.evaluation.classification import Classification
from raychains.evaluation.distributed import Distributed as OfDistributions
from raychains.evaluation.positions import Positions
from raychains.evaluation.regression import FLOOR, LOG_NOISE, Noise, OutputNoise, Pointwise, Regression
from raychains.tasks.user_dataset import UserDataset

LEARNED, COUNTS = "learned", "be whole numbers of at least 0"


class Likelihood(ABC):
    """p(y | x, θ) of a network's output f_θ(x).

    To write: `name`, `predicts`, `check`, `loss` and `evaluation`; an instance goes to ``Task.from_module(…, loss=)``.
    """

    name: str
    """Identifies it: part of the task's fingerprint."""
    predicts: str
    """As `Task.predicts`."""
    noise: Noise = None
    """σ of Gaussian noise that is known, or an `OutputNoise` where the network gives it."""
    lacks: Sequence[str] = ()
    """Those of `each` and `fisher` that this object is without although its class defines them."""

    def width(self, outputs: Tensor) -> int:
        """Return the number of an example's outputs [n, …]; of classes their number."""
        return outputs.shape[-1] if outputs.ndim > 1 else 1

    def labels_per_example(self, targets: Tensor) -> float:
        """Return how many labels of an example log p adds up, on average over targets [n, …].

        Default step sizes of samplers whose steps grow with the gradient are divided by it.
        """
        return 1.0

    def extend(self, model: nn.Module) -> nn.Module:
        """Return the model with the likelihood's own parameters added."""
        return model

    @abstractmethod
    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs that do not fit the targets, of the same few examples."""

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:  # noqa: B027  most have nothing to add
        """Refuse targets [n, …] of a whole set that do not fit outputs like ``outputs``."""

    @abstractmethod
    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of a batch."""

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood [chains, n] of every example, for packs; undefined where only `loss` is known.

        Args:
            parameters: by name, [chains, …].
            outputs: [chains, n, …].
            targets: [chains, n, …].
        """
        raise TypeError(f"{type(self).__name__} gives the loss of a batch alone")

    def gradients(
        self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the losses Σ ``weights``·`each`, [chains], and their gradients in ``outputs`` and in each of ``parameters``.

        Args:
            parameters, outputs, targets: as for `each`.
            weights: of the examples, [chains, n].
        """
        with torch.enable_grad():
            places = [t.detach().requires_grad_() for t in (outputs, *parameters.values())]
            named = dict(zip(parameters, places[1:], strict=True))
            losses = (self.each(named, places[0], targets) * weights).sum(1)
            first, *others = torch.autograd.grad(losses, places, torch.ones_like(losses), materialize_grads=True)
        return losses.detach(), first, dict(zip(named, others, strict=True))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return the Fisher information of p(y | f) about the outputs f of every example, float64 [n, k, k]; undefined where only `loss` is known.

        It is the Hessian of −log p in f, averaged over y.
        """
        raise TypeError(f"{type(self).__name__} gives the loss of a batch alone")

    @abstractmethod
    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        """Return the evaluation of a split."""


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
        self._on: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def _weights(self, outputs: Tensor) -> Tensor | None:
        """Return the weights on the outputs' device, where they are put once."""
        if self.weights is None:
            return None
        at = (outputs.device, outputs.dtype)
        if at not in self._on:
            self._on[at] = torch.tensor(self.weights, device=at[0], dtype=at[1])
        return self._on[at]

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        ok = outputs.ndim == 2 and targets.ndim == 1 and outputs.shape[1] >= 2
        if not ok or targets.is_floating_point() or targets.is_complex():
            raise UserError(
                "loss cross_entropy needs logits [n, classes] and integer labels [n], got outputs "
                f"{list(outputs.shape)} and {_kind(targets)} targets {list(targets.shape)} for {len(targets)} examples"
            )
        if self.weights is not None and len(self.weights) != outputs.shape[1]:
            raise UserError(
                f"weights must be one for each class, {outputs.shape[1]} as the model has outputs, got {len(self.weights)}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        _check_labels(targets.long(), outputs.shape[1], name)  # torch has no least uint16

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


class PerPosition(Likelihood):
    """log p(y | x, θ) = Σ_j log softmax(f_j)_{y_j} over the labelled positions j of an example: words, pixels, voxels.

    Outputs are logits [n, positions …, classes], or [n, classes, positions …] with ``axis=1``; labels [n, positions …].
    The loss of a batch is the mean over its n examples of that sum, so that T = 1 is the posterior. An example without
    a label has log p = 0 and counts in N.

    Args:
        axis: of the classes among the outputs' axes: -1, the last one, or 1, the one behind the examples'.
        ignore_index: the label of positions that are left out, such as padding.
    """

    predicts = "positions"

    def __init__(self, axis: int = -1, ignore_index: int = -100) -> None:
        ok = is_int(axis) and axis in (-1, 1)
        require(ok, "axis", axis, "be -1 or 1: classes last, as of words, or behind the examples, as of pixels")
        require(is_int(ignore_index), "ignore_index", ignore_index, "be an integer, the label of what is left out")
        self.axis, self.ignore_index = axis, ignore_index
        self.name = f"positions, axis {axis}, ignoring {ignore_index}"

    def width(self, outputs: Tensor) -> int:
        return outputs.shape[self.axis]

    def labels_per_example(self, targets: Tensor) -> float:
        return max(1.0, self._labelled(targets).sum().item() / len(targets))

    def _labelled(self, targets: Tensor) -> Tensor:
        return targets.long() != self.ignore_index

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        ok = outputs.ndim >= 3 and outputs.movedim(self.axis, -1).shape[:-1] == targets.shape
        ok = ok and outputs.is_floating_point() and self.width(outputs) >= 2
        if not ok or targets.is_floating_point() or targets.is_complex():
            form = "[n, positions …, classes]" if self.axis == -1 else "[n, classes, positions …]"
            raise UserError(
                f"a loss of labels per position, classes on axis {self.axis}, needs logits {form} and integer labels "
                f"[n, positions …], got outputs {list(outputs.shape)} and {_kind(targets)} targets {list(targets.shape)}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        labels = targets.long()[self._labelled(targets)]
        require(len(labels) > 0, name, f"{self.ignore_index} at all positions", "have a label somewhere")
        _check_labels(labels, self.width(outputs), name, f" or {self.ignore_index}")

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        logits = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        labels = targets.long()
        if self.axis == -1:
            logits, labels = logits.flatten(0, -2), labels.flatten()
        # Of images torch's own sum is another one at each call on a GPU.
        return F.cross_entropy(logits, labels, ignore_index=self.ignore_index, reduction="none").sum() / len(targets)

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return Positions(
            model=model,
            data=data,
            classes=classes,
            positions=math.prod(data.first(1)[1].shape[1:]),
            axis=self.axis,
            ignore_index=self.ignore_index,
            fingerprint=f"{data.fingerprint}/{self.name}",
        )


def _check_labels(labels: Tensor, classes: int, name: str, also: str = "") -> None:
    """Refuse labels outside of [0, classes)."""
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise UserError(
            f"{name} must have labels in [0, {classes - 1}]{also}, since the model has {classes} outputs, got "
            f"{least if least < 0 else most}"
        )


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
        """Return them by their formula, in a third of the time: with z = (y − μ)/σ, −z/σ in μ and (1 − z²)/σ·dσ/dr in r."""
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


class Distributed(Likelihood):
    """p(y | x, θ) is a torch distribution of the network's outputs, of all targets of an example together.

    To write: `name` and `distribution`, and for labels of 0 and 1 ``labels = True``; an instance goes to
    ``Task.from_module(…, loss=)``.
    """

    predicts = "distribution"
    labels: bool = False
    """Whether targets are 0 or 1, so that wrong ones are counted."""
    allowed: str = "lie in its distribution's support"
    """What targets must do, for a message."""
    per_target: int | None = None
    """Outputs for each target, for a message."""

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Distribution:
        """Return p(y | x, θ) of outputs [..., n, width]: a distribution with the batch [..., n] and the event
        [targets].

        It is asked in every step: give ``validate_args=False``.
        """

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        y = _flat(targets, 1)
        wide, k = _flat(outputs, 1), y.shape[1]
        if targets.is_complex() or not k:
            raise UserError(
                f"loss {self.name} needs real targets [n] or [n, targets], got {_kind(targets)} {[*targets.shape]}"
            )
        if self.per_target is not None and wide.shape[1] != k * self.per_target:
            raise UserError(
                f"model_fn must give {k * self.per_target} outputs for each example under loss {self.name}, "
                f"{self.per_target} for each target, got {wide.shape[1]}"
            )
        try:
            found = self.distribution(wide)
        except Exception as error:
            raise UserError(f"loss {self.name} failed on {wide.shape[1]} outputs: {format_error(error)}") from None
        shapes = tuple(found.batch_shape), tuple(found.event_shape)
        if shapes != ((len(y),), (k,)):
            raise UserError(
                f"loss {self.name} must return a distribution with the batch [n] and the event [{k}], the targets of "
                f"an example, got the batch {list(shapes[0])} and the event {list(shapes[1])} for n = {len(y)}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        y = _flat(targets, 1).double()
        support: Any = self.distribution(_flat(outputs, 1)).support
        ok = support.check(y) & y.isfinite().all(1)
        if not bool(ok.all()):
            at = int((~ok).nonzero()[0, 0])
            raise UserError(
                f"targets of {name} must {self.allowed} for loss {self.name}, got {y[at].tolist()} at index {at}"
            )

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        return -self._log_prob(outputs, targets, 1).mean()

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        return -self._log_prob(outputs, targets, 2)

    def _log_prob(self, outputs: Tensor, targets: Tensor, axis: int) -> Tensor:
        wide = _flat(outputs.to(torch.promote_types(outputs.dtype, torch.float32)), axis)
        found: Tensor = self.distribution(wide).log_prob(_flat(targets, axis).to(wide.dtype))
        return found

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        return OfDistributions(
            model=model,
            inputs=data,
            targets=data.targets,
            distribution=self.distribution,
            labels=self.labels,
            fingerprint=f"{data.fingerprint}/{self.name}",
        )


class Bernoulli(Distributed):
    """y_j | x, θ ~ Bernoulli(logistic(f_j)), independent labels of 0 or 1: outputs and targets [n] or [n, labels].

    Mean NLL of a batch, in nats: the binary cross-entropy of an example, summed over its labels.
    """

    name, labels, allowed, per_target = "bernoulli", True, "be 0 or 1", 1

    def distribution(self, outputs: Tensor) -> Distribution:
        return _independent(distributions.Bernoulli(logits=outputs, validate_args=False))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return diag(p(1 − p))."""
        p = _flat(outputs, 1).double().sigmoid()
        return torch.diag_embed(p * (1 - p))


class Poisson(Distributed):
    """y_j | x, θ ~ Poisson(exp f_j), independent counts: outputs and targets [n] or [n, counts]."""

    name, allowed, per_target = "poisson", COUNTS, 1

    def distribution(self, outputs: Tensor) -> Distribution:
        return _independent(distributions.Poisson(outputs.exp(), validate_args=False))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return diag(μ)."""
        return torch.diag_embed(_flat(outputs, 1).double().exp())


class NegativeBinomial(Distributed):
    """Counts with the mean μ_j = exp f_j and the variance μ_j + μ_j²/r_j, r_j = softplus(f_{k+j}) + 1e-6: outputs
    [n, 2k], targets [n] (k = 1) or [n, k].

    Source: Hilbe 2011, the parametrisation NB2.
    """

    name, allowed, per_target = "negative-binomial", COUNTS, 2

    def distribution(self, outputs: Tensor) -> Distribution:
        log_mean, raw = _halves(outputs)
        r = F.softplus(raw) + FLOOR
        return _independent(distributions.NegativeBinomial(r, logits=log_mean - r.log(), validate_args=False))


class StudentT(Distributed):
    """y_j | x, θ ~ f_j + σ_j·t_ν, heavy tails for targets with outliers: outputs [n, 2k], σ_j = softplus(f_{k+j}) +
    1e-6, targets [n] (k = 1) or [n, k].

    Args:
        df: ν, the degrees of freedom; above 2 the predictive has a standard deviation.
    """

    allowed, per_target = "be finite", 2

    def __init__(self, df: float = 4.0) -> None:
        require(is_number(df) and df > 0, "df", df, "be a finite number above 0: the degrees of freedom")
        self.df = float(df)
        self.name = f"student-t, df {self.df!r}"

    def distribution(self, outputs: Tensor) -> Distribution:
        mean, raw = _halves(outputs)
        return _independent(distributions.StudentT(self.df, mean, F.softplus(raw) + FLOOR, validate_args=False))


NAMED: Mapping[str, type[Distributed]] = {
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "student-t": StudentT,
}
"""Likelihoods that are torch distributions, by the loss's name."""


AXES = {"tokens": -1, "pixels": 1}
"""Axis of the classes of a label per position, by the loss's name: the orders of Hugging Face and of torch."""


def distributed_to_json(likelihood: Distributed) -> dict[str, Any]:
    """Return a likelihood of `NAMED` as a file states it.

    Raises:
        UserError: a class of the user's own, which no file names.
    """
    name = next((name for name, kind in NAMED.items() if type(likelihood) is kind), None)
    if name is None:
        raise UserError(
            f"task must have a likelihood of raychains to be written to a file, got {type(likelihood).__name__}: use "
            "`Result.posterior`, which is in memory"
        )
    return {"name": name, **({"df": likelihood.df} if isinstance(likelihood, StudentT) else {})}


def distributed_from_json(data: Any) -> Distributed:
    """Return the likelihood that `distributed_to_json` wrote.

    Raises:
        UserError: it is none.
    """
    ok = isinstance(data, Mapping) and data.get("name") in NAMED
    require(ok, "likelihood", data, f"name one of {', '.join(NAMED)}")
    settings = {name: value for name, value in data.items() if name != "name"}
    known = {"df"} if data["name"] == "student-t" else set()
    require(settings.keys() <= known, "likelihood", data, "have settings that this version knows")
    return NAMED[data["name"]](**settings)


def _flat(values: Tensor, axis: int) -> Tensor:
    """Return values [..., n, …] with one axis behind that of the examples, the one before ``axis``."""
    return values.unsqueeze(axis) if values.ndim == axis else values.flatten(axis)


def _halves(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second half of outputs [..., 2k]."""
    first, second = outputs.chunk(2, dim=-1)
    return first, second


def _independent(each: Distribution) -> Distribution:
    return distributions.Independent(each, 1, validate_args=False)


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


def likelihood(loss: Any, noise: float | str | None) -> Likelihood:
    """Return the likelihood of a loss's name or function; one that is a `Likelihood` already is returned as it is.

    Raises:
        UserError: another name, or a noise where none is.
    """
    if isinstance(loss, str) and loss == "gaussian":
        return GaussianNoise(1.0 if noise is None else noise)
    if isinstance(loss, str) and loss == "heteroscedastic":
        require(noise is None, "noise", noise, "be left out: the network of loss 'heteroscedastic' gives σ itself")
        return Heteroscedastic()
    require(noise is None, "noise", noise, "be left out: only loss 'gaussian' has it")
    if isinstance(loss, Likelihood):
        return loss
    if isinstance(loss, str) and loss in NAMED:
        return NAMED[loss]()
    if isinstance(loss, str) and loss in AXES:
        return PerPosition(AXES[loss])
    if callable(loss):
        return LossFunction(loss)
    if not isinstance(loss, str) or loss != "cross_entropy":
        names = ("cross_entropy", "gaussian", "heteroscedastic", *NAMED, *AXES)
        raise UserError(
            f"loss must be {', '.join(map(repr, names))} or a function of outputs and targets, got "
            f"{shown(loss)}{near_miss(loss, names)}"
        )
    return Classes()


def _check_finite(targets: Tensor, name: str) -> None:
    if not bool(torch.isfinite(targets).all()):
        raise UserError(f"{name} must have finite targets, got one that is not")


def _regression(likelihood: Likelihood, model: nn.Module, data: UserDataset) -> Regression:
    fingerprint = f"{data.fingerprint}/{likelihood.name}"
    targets = data.targets.double().numpy()
    return Regression(model=model, inputs=data, targets=targets, noise=likelihood.noise, fingerprint=fingerprint)


def _width(t: Tensor) -> tuple[int, ...]:
    """Return the shape of an example's outputs, of [n] as of [n, 1]."""
    return tuple(t.shape[1:]) or (1,)


def _kind(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def belongs(likelihood: Likelihood, name: str) -> bool:
    """Return whether ``each``, ``gradients`` or ``fisher`` is of the loss that a likelihood has: a class below may replace `loss` alone, and an object lack it."""
    if name in likelihood.lacks:
        return False
    classes = type(likelihood).__mro__
    own, loss = (next(i for i, c in enumerate(classes) if n in vars(c)) for n in (name, "loss"))
    general = classes[own] is Likelihood and name == "gradients"  # made of each
    return general or (classes[own] is not Likelihood and own <= loss)
