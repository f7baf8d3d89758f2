"""Log densities of priors: frozen, chosen per parameter by name pattern, normalised, and plain data as JSON."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core import registry
from raychains.core.errors import UserError, renamed, require, shown
from raychains.core.spec import Part
from raychains.core.validation import positive

WIDE = 3.0
"""A standard deviation of weights above which plans call a Gaussian prior very wide."""


class Prior(ABC):
    """Base of all priors: log p(θ) of named parameters, differentiable, with its normalising constant.

    Parameters are one chain's; lanes (chains stacked on axis 0) are not supported: the scalar would add chains up.
    """

    kind: ClassVar[str]
    revision: ClassVar[int] = 1
    """Raised by a change that alters the density."""

    @abstractmethod
    def log_density(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """log p as a scalar: in float64 where the device has it, because millions of terms add up.

        Raises:
            UserError: a pattern that matches no parameter, or what a `Product` does not cover exactly once.
        """

    @abstractmethod
    def part(self) -> Part:
        """Return kind, revision and settings; `build` gives the prior back."""

    def to_json(self) -> dict[str, Any]:
        """Return `part` as plain data; `from_json` gives the prior back."""
        return self.part().to_json()


@dataclass(frozen=True, kw_only=True)
class Factor(Prior):
    """A prior on the parameters whose name ``match`` matches (shell pattern, case-sensitive; * takes dots too)."""

    match: str = "*"

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            if f.name == "match":
                ok = isinstance(self.match, str) and self.match != ""
                require(ok, "match", self.match, "be a pattern of parameter names, such as '*.weight'")
            else:  # 1 and 1.0 are one setting and must have one JSON
                positive(f.name, getattr(self, f.name))
                object.__setattr__(self, f.name, float(getattr(self, f.name)))

    def matches(self, name: str) -> bool:
        """Return whether the parameter of this name is under this factor."""
        return fnmatchcase(name, self.match)

    def log_density(self, parameters: Mapping[str, Tensor]) -> Tensor:
        parts = [self._of(_wide(p)) for name, p in parameters.items() if self.matches(name)]
        require(bool(parts), f"match of the {self.kind} prior", self.match, "match at least one parameter")
        return torch.stack(parts).sum()

    def part(self) -> Part:
        return Part(kind=self.kind, revision=self.revision, settings=dataclasses.asdict(self))

    @abstractmethod
    def _of(self, p: Tensor) -> Tensor:
        """log density of one parameter."""


@dataclass(frozen=True, kw_only=True)
class Gaussian(Factor):
    """log p(w) = −Σ w²/(2·std²) − n·log(std·√(2π)): independent N(0, std²). ``weight_decay`` λ is std = 1/√(Nλ)."""

    kind: ClassVar[str] = "gaussian"
    std: float

    def _of(self, p: Tensor) -> Tensor:
        constant = p.numel() * (math.log(self.std) + 0.5 * math.log(2 * math.pi))
        return -_total(p.square()) / (2 * self.std**2) - constant


@dataclass(frozen=True, kw_only=True)
class Centred(Gaussian):
    """log p(w) = −Σ (w − w*)²/(2·std²) − n·log(std·√(2π)): independent N(w*, std²) around a chain's start w*.

    Of a target exp(−nβ·L − (γ/2)‖w − w*‖²) std = √(nβ/(Nγ)), at the temperature N/nβ: γ/nβ on the mean-loss scale.
    """

    kind: ClassVar[str] = "centred"
    _centre: ClassVar[Mapping[str, Tensor] | None] = None

    def around(self, centre: Mapping[str, Tensor]) -> Centred:
        """Return this prior with its centre, copies of the named parameters; the centre is no part of its JSON."""
        made = dataclasses.replace(self)
        object.__setattr__(made, "_centre", {name: p.detach().clone() for name, p in centre.items()})
        return made

    def log_density(self, parameters: Mapping[str, Tensor]) -> Tensor:
        centre = self._centre
        if centre is None:
            raise UserError("a centred prior must have its centre before it is asked: around(the chain's start)")
        return super().log_density({name: p - centre[name] for name, p in parameters.items() if name in centre})


@dataclass(frozen=True, kw_only=True)
class FanIn(Factor):
    """N(0, gain²/fan_in) on weights and N(0, 1) on all other parameters, independently.

    Weights are the parameters of two axes or more, [outputs, …], and fan_in is the number of entries of one output, as
    in `torch.nn.init`: a layer's outputs then keep the scale of its inputs for any width (Neal 1996).
    """

    kind: ClassVar[str] = "fan_in"
    gain: float = 1.0

    def _of(self, p: Tensor) -> Tensor:
        std = self.gain / math.sqrt(p[0].numel()) if p.ndim > 1 else 1.0
        return Gaussian(std=std)._of(p)


@dataclass(frozen=True, kw_only=True)
class StudentT(Factor):
    """Independent Student's t with ``df`` degrees of freedom times ``scale``: its tails let single weights be large."""

    kind: ClassVar[str] = "student_t"
    df: float
    scale: float

    def _of(self, p: Tensor) -> Tensor:
        half = (self.df + 1) / 2
        constant = math.lgamma(self.df / 2) - math.lgamma(half) + math.log(math.sqrt(self.df * math.pi) * self.scale)
        return -half * _total(torch.log1p((p / self.scale).square() / self.df)) - p.numel() * constant


@dataclass(frozen=True, kw_only=True)
class Laplace(Factor):
    """log p(w) = −Σ |w|/scale − n·log(2·scale): independent Laplace, pulling single weights to 0."""

    kind: ClassVar[str] = "laplace"
    scale: float

    def _of(self, p: Tensor) -> Tensor:
        return -_total(p.abs()) / self.scale - p.numel() * math.log(2 * self.scale)


@dataclass(frozen=True, kw_only=True)
class GroupLaplace(Factor):
    """p(w_g) ∝ exp(−‖w_g‖₂/scale) for each group g, one per output feature (axis 0), pulling whole features to 0.

    With d weights in a group the radius is Gamma(d, scale) and the direction uniform, so the normaliser is
    area(d)·Γ(d)·scale^d, area(d) = 2·π^(d/2)/Γ(d/2). For d = 1, e.g. a vector of scales, it is `Laplace`. At
    w_g = 0 the gradient is 0, a subgradient.
    """

    kind: ClassVar[str] = "group_laplace"
    scale: float

    def _of(self, p: Tensor) -> Tensor:
        norms, d = _group_norms(p)
        constant = _log_area(d) + math.lgamma(d) + d * math.log(self.scale)
        return -_total(norms) / self.scale - norms.numel() * constant


@dataclass(frozen=True, kw_only=True)
class UnitNorm(Factor):
    """p(v) ∝ exp(−(‖v‖₂ − 1)²/(2·std²)) for each output feature's direction v (axis 0): holds ‖v‖ near 1.

    For weight normalisation's directions, whose length changes no output but the effective step size. The paper says
    that the prior forces unit length; its Eq. 13 is unreadable in our text, and this form is our choice.

    In d dimensions a shell's volume grows as ‖v‖^(d−1), so draws lie around the root of r(r − 1) = (d − 1)·std², above
    1: keep std below about .3/√d (d = fan-in). The normaliser is area(d)·∫ r^(d−1)·exp(−(r−1)²/(2·std²)) dr, exactly,
    by a recursion over d.
    """

    kind: ClassVar[str] = "unit_norm"
    std: float

    def _of(self, p: Tensor) -> Tensor:
        norms, d = _group_norms(p)
        constant = _log_area(d) + _log_radial_integral(d - 1, self.std)
        return -_total((norms - 1).square()) / (2 * self.std**2) - norms.numel() * constant


@dataclass(frozen=True, kw_only=True)
class Flat(Factor):
    """log p(w) = 0: no prior, stated on purpose. Improper, so the one factor without a normaliser."""

    kind: ClassVar[str] = "flat"

    def _of(self, p: Tensor) -> Tensor:
        return _total(p) * 0  # not a constant: callers differentiate it


@dataclass(frozen=True)
class Product(Prior):
    """Independent factors that together cover every parameter exactly once."""

    kind: ClassVar[str] = "product"
    factors: Sequence[Factor]

    def __post_init__(self) -> None:
        ok = isinstance(self.factors, list | tuple) and bool(self.factors)
        require(
            ok and all(isinstance(f, Factor) for f in self.factors), "factors", self.factors, "be a list of factors"
        )
        object.__setattr__(self, "factors", tuple(self.factors))

    def log_density(self, parameters: Mapping[str, Tensor]) -> Tensor:
        for name in parameters:
            covering = [f"{f.kind} {f.match!r}" for f in self.factors if f.matches(name)]
            if len(covering) != 1:
                how = f"by {' and '.join(covering)}" if covering else "by none: add Flat(match=…) for no prior on it"
                raise UserError(f"prior must cover parameter {name!r} by exactly one factor, got it covered {how}")
        return torch.stack([f.log_density(parameters) for f in self.factors]).sum()

    def part(self) -> Part:
        settings = {"factors": [f.to_json() for f in self.factors]}
        return Part(kind=self.kind, revision=self.revision, settings=settings)


FACTORS = (Gaussian, FanIn, Laplace, StudentT, GroupLaplace, UnitNorm, Flat)
"""Those that a text can name."""
KINDS: dict[str, type[Prior]] = {c.kind: c for c in (*FACTORS, Centred, Product)}


def from_json(data: Mapping[str, Any]) -> Prior:
    """The prior that `Prior.to_json` described.

    Raises:
        UserError: an unknown kind, another revision, or settings that the prior lacks, misses or refuses.
    """
    require(isinstance(data, Mapping), "prior", data, "be an object with a kind, a revision and settings")
    return build(Part.from_json(data))


def build(part: Part) -> Prior:
    """Return the prior that a spec's part describes.

    Raises:
        UserError: as `from_json`.
    """
    factors = part.settings.get("factors")
    if part.kind == Product.kind and isinstance(factors, list | tuple):
        made = [from_json(factor) for factor in factors]
        part = dataclasses.replace(part, settings={**part.settings, "factors": made})
    return registry.build("prior", KINDS, part)


# As options


def _numbers(kind: type[Factor]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(kind) if f.name != "match"]


def _form(kind: type[Factor]) -> str:
    """Return ``student-t:DF,SCALE``."""
    return ":".join(filter(None, [kind.kind.replace("_", "-"), ",".join(f.name.upper() for f in _numbers(kind))]))


FORMS = ", ".join(_form(kind) for kind in FACTORS)
"""The texts of all factors: ``gaussian:STD, fan-in:GAIN, …``."""


def read(texts: Sequence[str]) -> Prior:
    """Return the prior of texts ``[PATTERN=]KIND[:NUMBER,…]``, as in ``["*.weight=fan-in:1.4", "*.bias=gaussian:1"]``.

    A pattern chooses parameters by name and may be left out of a single text; the numbers are the factor's settings in
    their order.

    Raises:
        UserError: an unknown factor, or settings that it lacks, misses or refuses.
    """
    factors = [_factor(text) for text in texts]
    return factors[0] if len(factors) == 1 else Product(factors)


def _factor(text: str) -> Factor:
    match, _, rest = text.rpartition("=")
    name, _, numbers = rest.partition(":")
    kind = KINDS.get(name.strip().replace("-", "_"))
    if kind not in FACTORS:
        raise UserError(f"prior must be one of {FORMS}, of some parameters as in '*.weight=fan-in', got {text!r}")
    fields = _numbers(kind)
    given = numbers.split(",") if numbers else []
    least = sum(f.default is dataclasses.MISSING for f in fields)
    values: dict[str, Any] = {}
    try:
        values = {f.name: float(number) for f, number in zip(fields, given, strict=False)}
    except ValueError:
        given = []
    if not least <= len(given) <= len(fields) or (numbers and not given):
        form = _form(kind)
        raise UserError(f"prior must be written {form} with numbers, got {text!r}")
    with renamed({name: f"{name} of prior {text!r}" for name in values}):
        return kind(match=match or "*", **values)


def _text(factor: Factor) -> str:
    numbers = ",".join(repr(getattr(factor, f.name)) for f in _numbers(type(factor)))
    text = ":".join(filter(None, [factor.kind.replace("_", "-"), numbers]))
    return text if factor.match == "*" else f"{factor.match}={text}"


def as_texts(prior: Any) -> tuple[str, ...]:
    """Return the texts that `read` makes the prior of, from these, from a mapping of patterns to them, or from the
    prior.

    Raises:
        UserError: something else, or a prior that no text names.
    """
    if isinstance(prior, Mapping):
        one = {name: as_texts(value) for name, value in prior.items() if isinstance(name, str)}
        if len(one) == len(prior) and all(len(texts) == 1 for texts in one.values()):
            return tuple(f"{name}={text.rpartition('=')[2]}" for name, (text,) in one.items())
    if isinstance(prior, Product):
        prior = prior.factors
    if isinstance(prior, FACTORS):
        return (_text(prior),)
    if isinstance(prior, str):
        _factor(prior)
        return (prior,)
    if isinstance(prior, list | tuple) and prior:
        return tuple(text for one in prior for text in as_texts(one))
    raise UserError(
        "prior must be a text such as 'gaussian:0.1', a prior of raychains.priors, or a dict of these, got "
        f"{shown(prior)}"
    )


def in_words(prior: Prior) -> str:
    """Return the prior in words, for plans."""
    if isinstance(prior, Product):
        return "; ".join(in_words(factor) for factor in prior.factors)
    assert isinstance(prior, Factor)
    on = "every parameter" if prior.match == "*" else f"parameters {prior.match}"
    if isinstance(prior, Gaussian):
        return f"N(0, {prior.std**2:.3g}) on {on}{': very wide' if prior.std > WIDE else ''}"
    if isinstance(prior, FanIn):
        some = "" if prior.match == "*" else f", of {on}"
        return f"N(0, {prior.gain**2:.3g}/fan_in) on weights and N(0, 1) on other parameters{some}"
    settings = [f"{f.name} {getattr(prior, f.name):g}" for f in dataclasses.fields(prior) if f.name != "match"]
    return f"{prior.kind.replace('_', '-')}{' ' * bool(settings)}{', '.join(settings)} on {on}"


def stated(
    own: Prior | None, part: Part | None, parameters: Mapping[str, Tensor], sampled: Mapping[str, Tensor]
) -> list[tuple[Prior, Mapping[str, Tensor]]]:
    """Return the priors of a chain, none is usual, each with the parameters that it is on.

    Args:
        own: the task's.
        part: the one of the chain's spec, on the sampled parameters; a centred one is centred where they are now.
        parameters: the network's, by name.
        sampled: those that the chain moves.

    Raises:
        UserError: a part that is no prior.
    """
    found: list[tuple[Prior, Mapping[str, Tensor]]] = [] if own is None else [(own, parameters)]
    if part is not None:
        made = build(part)
        found.append((made.around(sampled) if isinstance(made, Centred) else made, sampled))
    return found


def resnet_plus_prior(*, scale: float = 1.0, std: float = 0.01, bias_std: float = 1.0) -> Product:
    """ResNet++'s prior: `UnitNorm` on directions, `GroupLaplace` on scales, `Gaussian` on biases.

    The paper regularises "the scales of each linear feature" by a group Laplace. A feature's weights w = s·v/‖v‖ have
    the norm |s|, so the group is the feature and its density depends on s alone: each s is a group of one, Laplace
    distributed. Its bias stays outside. The paper's scale is unreadable in our text; the defaults are ours.

    Args:
        scale: b of the group Laplace.
        std: of ‖v‖ around 1; .01 keeps ‖v‖ below 1.11 for a fan-in of 1,152, the largest of the CIFAR network.
        bias_std: of the biases.

    Raises:
        UserError: a setting that is not a number above 0.

    Source: Heek & Kalchbrenner 2019, §4.3 and §5.
    """
    for field, value in (("scale", scale), ("std", std), ("bias_std", bias_std)):
        positive(field, value)
    directions, scales = UnitNorm(std=std, match="*direction"), GroupLaplace(scale=scale, match="*scale")
    return Product([directions, scales, Gaussian(std=bias_std, match="*bias")])


def _group_norms(p: Tensor) -> tuple[Tensor, int]:
    """‖·‖₂ of each slice along axis 0, [groups], and the number d of values in a slice. A scalar is one group."""
    flat = p.reshape(p.shape[0] if p.ndim else 1, -1)
    return torch.linalg.vector_norm(flat, dim=1), flat.shape[1]


def _wide(p: Tensor) -> Tensor:
    return p.to(torch.promote_types(p.dtype, torch.float32))  # half precision cannot tell ‖v‖ = 1.003 from 1


def _total(terms: Tensor) -> Tensor:
    return terms.sum(
        dtype=torch.float32 if terms.device.type == "mps" else torch.float64
    )  # Apple's GPUs lack the latter


def _log_area(d: int) -> float:
    """log of the surface area of the unit sphere in d dimensions (2 for d = 1)."""
    return math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)


@lru_cache(maxsize=1024)
def _log_radial_integral(n: int, std: float) -> float:
    """log I_n, I_n = ∫₀^∞ rⁿ·exp(−(r−1)²/(2·std²)) dr.

    By parts I_n = I_{n−1} + std²·(n−1)·I_{n−2}, with I_1 = I_0 + std²·exp(−1/(2·std²)): all terms are positive, so
    nothing cancels. Values are rescaled as they grow.
    """
    before = std * math.sqrt(math.pi / 2) * math.erfc(-1 / (std * math.sqrt(2)))
    if n == 0:
        return math.log(before)
    last, log_scale = before + std**2 * math.exp(-0.5 / std**2), 0.0
    for k in range(2, n + 1):
        before, last = last, last + std**2 * (k - 1) * before
        if last > 1e100:
            before, last, log_scale = before / last, 1.0, log_scale + math.log(last)
    return math.log(last) + log_scale
