"""Likelihoods that are torch distributions: labels, counts, heavy tails and Gaussian noise of several targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributions, nn
from torch.distributions import Distribution, constraints
from torch.nn import functional as F

from raychains.core.errors import UserError, format_error, require
from raychains.core.validation import is_number, true_or_false
from raychains.evaluation.distributed import Distributed as OfDistributions
from raychains.evaluation.evaluation import Evaluation
from raychains.evaluation.regression import FLOOR
from raychains.tasks.likelihood_base import Likelihood, dtype_name
from raychains.tasks.user_dataset import UserDataset

COUNTS = "be whole numbers of at least 0"


class Distributed(Likelihood):
    """p(y | x, θ) is a torch distribution of the network's outputs, of all targets of an example together.

    To write: `name` and `distribution`, for labels of 0 and 1 ``labels = True``, and `settings` where the constructor
    has arguments; an instance goes to ``Task.from_module(…, loss=)``.

    Args:
        missing: targets may be NaN and count nothing then: log p is that of the others. An example whose targets are
            all missing has log p = 0 and is still one of the N.
    """

    predicts = "distribution"
    labels: bool = False
    """Whether targets, or what is `observed` of them, are 0 or 1, so that wrong ones are counted."""
    allowed: str = "lie in its distribution's support"
    """What targets must do, for a message."""
    per_target: int | None = None
    """Outputs for each target, for a message."""
    missing: bool = False
    """Whether NaN is a target that is missing; `independent` makes the distribution that leaves it out."""

    def __init__(self, missing: bool = False) -> None:
        true_or_false("missing", missing)
        self.missing = missing
        if missing:
            self.name = f"{self.name}, missing"

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Distribution:
        """Return p(y | x, θ) of outputs [..., n, width]: a distribution with the batch [..., n] and the event
        [targets].

        It is asked in every step: give ``validate_args=False``.
        """

    def independent(self, each: Distribution) -> Distribution:
        """Return the distribution of independent targets from that of every one, of the batch [..., n, targets]; with
        `missing` one that leaves NaN out."""
        return (Observed if self.missing else distributions.Independent)(each, 1, validate_args=False)

    def observed(self, targets: Tensor) -> Tensor:
        """Return the numbers [n, m] whose mean and variance the distribution has, NaN where one is not observed: what
        the predictive's mean is compared with. Default the targets [n, targets] themselves."""
        return targets

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON, by which an exported file states the likelihood."""
        return {"missing": True} if self.missing else {}

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        y = flat(targets, 1)
        wide, k = flat(outputs, 1), y.shape[1]
        if targets.is_complex() or not k:
            raise UserError(
                f"loss {self.name} needs real targets [n] or [n, targets], got {dtype_name(targets)} {[*targets.shape]}"
            )
        if self.per_target is not None and wide.shape[1] != k * self.per_target:
            raise UserError(
                f"model_fn must give {k * self.per_target} outputs for each example under loss {self.name}, "
                f"{self.per_target} for each target, got {wide.shape[1]}"
            )
        try:
            found = self.distribution(wide)
            moments = [tuple(t.shape) for t in (found.mean, found.variance, self.observed(y.double()))]
        except Exception as error:
            reason = format_error(error, kind=isinstance(error, NotImplementedError))
            if isinstance(error, NotImplementedError):
                reason += ": its distribution needs mean and variance"
            raise UserError(f"loss {self.name} failed on {wide.shape[1]} outputs: {reason}") from None
        shapes = tuple(found.batch_shape), tuple(found.event_shape)
        if shapes != ((len(y),), (k,)):
            raise UserError(
                f"loss {self.name} must return a distribution with the batch [n] and the event [{k}], the targets of "
                f"an example, got the batch {list(shapes[0])} and the event {list(shapes[1])} for n = {len(y)}"
            )
        if len(set(moments)) > 1:
            mean, variance, observed = map(list, moments)
            raise UserError(
                f"loss {self.name} must have the distribution's mean and variance for what observed() returns, "
                f"[n, m], got {mean}, {variance} and {observed}"
            )

    def check_all(self, outputs: Tensor, targets: Tensor, name: str) -> None:
        y = flat(targets, 1).double()
        support: Any = self.distribution(flat(outputs, 1)).support
        there = (y.isfinite() | y.isnan()) if self.missing else y.isfinite()
        ok = support.check(y) & there.all(1)
        if not bool(ok.all()):
            at = int((~ok).nonzero()[0, 0])
            raise UserError(
                f"targets of {name} must {self.allowed} for loss {self.name}, got {y[at].tolist()} at index {at}"
                f"{self._of_missing if y[at].isnan().any() else ''}"
            )

    @property
    def _of_missing(self) -> str:
        """Return what a message says of NaN among targets."""
        here = not self.missing and type(self).__module__ == __name__
        return f": {type(self).__name__}(missing=True) counts NaN as a target that is missing" if here else ""

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        return -self._log_prob(outputs, targets, 1).mean()

    def each(self, parameters: Mapping[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        return -self._log_prob(outputs, targets, 2)

    def _log_prob(self, outputs: Tensor, targets: Tensor, axis: int) -> Tensor:
        wide = flat(outputs.to(torch.promote_types(outputs.dtype, torch.float32)), axis)
        found: Tensor = self.distribution(wide).log_prob(flat(targets, axis).to(wide.dtype))
        return found

    def evaluation(self, model: nn.Module, data: UserDataset, classes: int) -> Evaluation:
        targets = flat(data.targets, 1).double()
        return OfDistributions(
            model=model,
            inputs=data,
            targets=targets,
            observed=self.observed(targets),
            distribution=self.distribution,
            labels=self.labels,
            fingerprint=f"{data.fingerprint}/{self.name}",
        )


class Observed(distributions.Independent):
    """Independent targets of which some are missing: a NaN counts nothing in log p."""

    def log_prob(self, value: Tensor) -> Tensor:
        each, there = self.base_dist, ~value.isnan()
        # The mean stands in for what is missing: the gradient of log p is finite there, and is not taken.
        known = torch.where(there, value, each.mean.detach().nan_to_num())
        return torch.where(there, each.log_prob(known), 0.0).sum(-1)

    @property
    def support(self) -> Any:
        return _SupportOrMissing(self.base_dist.support)


class _SupportOrMissing(constraints.Constraint):
    event_dim = 1

    def __init__(self, of_each: Any) -> None:
        self._of_each = of_each

    def check(self, value: Tensor) -> Tensor:
        found: Tensor = self._of_each.check(value) | value.isnan()
        return found.all(-1)


class Bernoulli(Distributed):
    """y_j | x, θ ~ Bernoulli(logistic(f_j)), independent labels of 0 or 1: outputs and targets [n] or [n, labels].

    Mean NLL of a batch, in nats: the binary cross-entropy of an example, summed over its labels.

    Args:
        missing: NaN is a label that is not known.
    """

    name, labels, allowed, per_target = "bernoulli", True, "be 0 or 1", 1

    def distribution(self, outputs: Tensor) -> Distribution:
        return self.independent(distributions.Bernoulli(logits=outputs, validate_args=False))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return diag(p(1 − p))."""
        p = flat(outputs, 1).double().sigmoid()
        return torch.diag_embed(p * (1 - p))


class Poisson(Distributed):
    """y_j | x, θ ~ Poisson(exp f_j), independent counts: outputs and targets [n] or [n, counts].

    Args:
        missing: NaN is a count that is not known.
    """

    name, allowed, per_target = "poisson", COUNTS, 1

    def distribution(self, outputs: Tensor) -> Distribution:
        return self.independent(distributions.Poisson(outputs.exp(), validate_args=False))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return diag(μ)."""
        return torch.diag_embed(flat(outputs, 1).double().exp())


class NegativeBinomial(Distributed):
    """Counts with the mean μ_j = exp f_j and the variance μ_j + μ_j²/r_j, r_j = softplus(f_{k+j}) + 1e-6: outputs
    [n, 2k], targets [n] (k = 1) or [n, k].

    Args:
        missing: NaN is a count that is not known.

    Source: Hilbe 2011, the parametrisation NB2.
    """

    name, allowed, per_target = "negative-binomial", COUNTS, 2

    def distribution(self, outputs: Tensor) -> Distribution:
        log_mean, raw = _halves(outputs)
        r = F.softplus(raw) + FLOOR
        return self.independent(distributions.NegativeBinomial(r, logits=log_mean - r.log(), validate_args=False))


class Normal(Distributed):
    """y_j | x, θ ~ N(f_j, σ_j²) with a σ_j = softplus(f_{k+j}) + 1e-6 for each of k targets: outputs [n, 2k], targets
    [n] (k = 1) or [n, k].

    For k = 1 it is the likelihood `heteroscedastic`, whose predictive has quantiles, CRPS and coverage, too.

    Args:
        missing: NaN is a target that is not known.
    """

    name, allowed, per_target = "normal", "be finite", 2

    def distribution(self, outputs: Tensor) -> Distribution:
        mean, raw = _halves(outputs)
        return self.independent(distributions.Normal(mean, F.softplus(raw) + FLOOR, validate_args=False))

    def fisher(self, model: nn.Module, outputs: Tensor) -> Tensor:
        """Return diag(1/σ_j², 2(dσ_j/df)²/σ_j²): dσ/df is the logistic function of f."""
        _, raw = _halves(flat(outputs, 1).double())
        sigma, slope = F.softplus(raw) + FLOOR, raw.sigmoid()
        return torch.diag_embed(torch.cat([1 / sigma.square(), 2 * (slope / sigma).square()], dim=1))


class StudentT(Distributed):
    """y_j | x, θ ~ f_j + σ_j·t_ν, heavy tails for targets with outliers: outputs [n, 2k], σ_j = softplus(f_{k+j}) +
    1e-6, targets [n] (k = 1) or [n, k].

    Args:
        df: ν, the degrees of freedom; above 2 the predictive has a standard deviation.
        missing: NaN is a target that is not known.
    """

    allowed, per_target = "be finite", 2

    def __init__(self, df: float = 4.0, missing: bool = False) -> None:
        require(is_number(df) and df > 0, "df", df, "be a finite number above 0: the degrees of freedom")
        self.df = float(df)
        self.name = f"student-t, df {self.df!r}"
        super().__init__(missing)

    def distribution(self, outputs: Tensor) -> Distribution:
        mean, raw = _halves(outputs)
        return self.independent(distributions.StudentT(self.df, mean, F.softplus(raw) + FLOOR, validate_args=False))

    def settings(self) -> dict[str, Any]:
        return {"df": self.df, **super().settings()}


NAMED: Mapping[str, type[Distributed]] = {
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "normal": Normal,
    "student-t": StudentT,
}
"""Likelihoods that are torch distributions, by the loss's name."""


def flat(values: Tensor, axis: int) -> Tensor:
    """Return values [..., n, …] with one axis behind that of the examples, the one before ``axis``."""
    return values.unsqueeze(axis) if values.ndim == axis else values.flatten(axis)


def _halves(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second half of outputs [..., 2k]."""
    first, second = outputs.chunk(2, dim=-1)
    return first, second
