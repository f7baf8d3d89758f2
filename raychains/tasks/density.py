"""The task of any log density, a torch function of one position: `Task.from_log_density`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import vmap

from raychains.core.errors import UserError, format_error, require
from raychains.core.sample import THETA, tensors_sha256
from raychains.core.spec import canonical_json
from raychains.core.validation import at_least_0, positive_int
from raychains.data.source import check_plain, tensor_of
from raychains.evaluation import moments
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.evaluation.exact import Exact
from raychains.tasks.base import LogDensity, Position, Variable
from raychains.tasks.fingerprint import check_own_name, checked_defaults, fingerprint

AT_ONCE = 4_000_000
"""Rows of data, over all points, that are evaluated together: bounds the memory of evaluations at many points."""
MOST_COORDINATES = 10_000_000
"""Coordinates of a position made of ``dim``: eight starts of as many take .6 GB."""
TRIED = 8
"""Starts at which a density is tried, and by whose values it is identified."""
DIGITS = 7
"""Digits of these values that count: the last ones differ between machines."""
AXES = ("chain", "draw", "repeat")
"""Names that exports give to axes of their own."""

Data = Tensor | Mapping[str, Tensor] | tuple[Tensor, ...]


class FromLogDensity(LogDensity):
    """The density ∝ exp(logp(position)): ``rc.Task.from_log_density(logp, dim=2)``.

    ``logp`` is written with torch for ONE position, in float64, up to a constant; `torch.func.vmap` maps it over
    chains' lanes and autograd differentiates it. It must not branch on values (`torch.where` instead), call
    ``.item()``, or draw random numbers; `torch.distributions` may be used.

    Without data N = 1, and ``lr`` is the step of the discretised Langevin equation itself. With ``data`` of N rows
    ``logp(position, batch)`` gives the log-likelihood of each row of a batch, [n], ``log_prior(position)`` the log
    density of the prior, and the density is ∝ exp(log_prior + Σ over all rows). A step with the run's ``batch_size`` n
    < N draws n rows with replacement, its own for every lane, and follows the gradient of log_prior + (N/n)·Σ over
    them, which is unbiased; with ``batch_size`` N, the default, it reads every row once. ``lr`` is then on the scale of
    the mean loss −logp/N, as in `torch.optim.SGD`.

    The object travels to workers and evaluators by Ray's own pickling, lambdas included, and never into the store: a
    run's plan holds its name, its version and hashes of the data, of the starting point, and of the log density at a
    few points. A function that makes the task, named by import path, needs no object: every process calls it.

    Args:
        logp: the log density of a position, a tensor of shape []; with ``data`` the log-likelihoods of a batch's rows.
        dim: positions are tensors [dim], and chains start around 0.
        init: instead of ``dim``: where chains start, as a number, a tensor or an array, and positions are tensors of
            its shape; or a dict of these by name, and positions are dicts of tensors of their shapes.
        init_sd: every chain starts at a draw of N(init, init_sd²), independently in every coordinate; 0 starts all of
            them at ``init``. R-hat only tells something of chains that start farther apart than the density is wide.
        names: of a tensor's coordinates, in the order of its entries; of a dict's arrays the names of their axes, as in
            ``{"effect": ["school"]}``. Tables, figures and `Result.to_arviz` show them.
        data: a tensor or an array, a tuple or a dict of them, each with the N rows on its first axis. A batch is of the
            same kind; numbers with a fraction become float64.
        log_prior: the prior's log density of a position, beside ``data``; without it the prior is flat, or that of the
            sampler's ``weight_decay``.
        reference: what the draws are compared with: independent draws [n, dim], or a dict of named ones [n, …]; a tuple
            (mean [dim], covariance [dim, dim]); or ``"hmc"``, a long Hamiltonian chain. Without it evaluation tells the
            draws' effective sample size, means and standard deviations.
        name: what the run is called, 1 to 60 letters, digits, spaces, dots or dashes.
        version: part of the identity, for changes that leave the values at the few points as they were.
        defaults: values of options that are left out of a run, as in ``{"steps": 10_000}``. Unless they say otherwise
            there is one repeat, and the sampler is MCLMC that tunes itself; in one dimension, or where they or a run
            state ``lr``, ``momentum``, ``schedule`` or ``batch_size``, it is SGHMC of a constant step size.

    Raises:
        UserError: a function that cannot be sampled, or a setting out of range.
    """

    measures = ("diagnostics",)
    takes_batch_size = True

    def __init__(
        self,
        logp: Callable[..., Tensor],
        *,
        dim: int | None = None,
        init: Any = None,
        init_sd: float = 1.0,
        names: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        data: Any = None,
        log_prior: Callable[..., Tensor] | None = None,
        reference: Any = None,
        name: str = "own",
        version: str | int = "1",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        check_own_name(name, version)
        require(callable(logp), "logp", type(logp).__name__, "be a function of a position")
        ok = log_prior is None or callable(log_prior)
        require(ok, "log_prior", type(log_prior).__name__, "be a function of a position")
        if log_prior is not None and data is None:
            raise UserError("log_prior must be left out without data: add it to logp")
        at_least_0("init_sd", init_sd)
        self.name, self.version = name, str(version)
        self._logp, self._log_prior, self._init_sd = logp, log_prior, float(init_sd)
        self._arrays, self._named = _arrays(dim, init)
        self._init = torch.cat([a.reshape(-1) for a in self._arrays.values()])
        self.dim = len(self._init)
        self.variables = _variables(self._arrays, self._named, names)
        self._data = None if data is None else _data(data)
        self.num_data = 1 if self._data is None else _rows(self._data)
        self.minibatch, self.own_prior = self.num_data, log_prior is not None
        given = checked_defaults(defaults)
        self.defaults = {"sampler": "sghmc", "schedule": "constant", "repeats": 1, **given}
        steps = self.dim < 2 or bool(given.keys() & {"sampler", "schedule", "lr", "momentum", "batch_size"})
        self.untuned = None if steps else "tuned-mclmc"
        starts = self.starts(TRIED, torch.Generator().manual_seed(0))
        self._try(starts[0] if init is None else self._init)
        values = self._try_together(starts)
        self._target = _reference(reference, self._arrays, self.dim)
        self._hamiltonian = isinstance(reference, str)
        self.fingerprint = fingerprint(self._parts(values))

    def settings(self) -> dict[str, Any]:
        """Return what a plan shows of the task, which cannot be rebuilt from it."""
        return {"name": self.name, "version": self.version}

    def log_density(self, theta: Tensor) -> Tensor:
        return self.estimate(theta)

    def estimate(self, theta: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return log p, [...], at ``theta`` [..., dim], from ``rows`` of the data alone: an unbiased estimate for
        random ones.

        Args:
            theta: points.
            rows: for each point the positions of its rows, [..., n]; default all.
        """
        likelihood, prior = self._terms(theta.reshape(-1, self.dim), rows)
        return (self.num_data * likelihood + prior).reshape(theta.shape[:-1])

    def gradient(self, theta: Tensor) -> Tensor:
        parts = theta.reshape(-1, self.dim).split(max(1, AT_ONCE // self.num_data))
        return torch.cat([super(FromLogDensity, self).gradient(part) for part in parts]).reshape(theta.shape)

    def has_packed_gradient(self, batch_size: int) -> bool:
        return batch_size >= self.num_data

    def packed_gradient(self, theta: Tensor) -> Tensor:
        return self.gradient(theta) / self.num_data

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        return self._init + self._init_sd * super().starts(lanes, generator)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        """Return the number of rows that each lane draws for a step."""
        return (batch_size,)

    def divide(self, batch: Any, parts: int) -> Sequence[Any]:
        return [batch] * parts

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Write the gradient of −log p/N per lane; with data return the mean loss of all lanes, without the prior."""
        if self._data is None:
            return super().backward(model, None, generator)
        assert isinstance(model, Position)
        theta = model.theta.detach().requires_grad_()
        rows = self._rows_of(batch, theta, generator)
        with torch.enable_grad():
            likelihood, prior = self._terms(theta, rows)
            (model.theta.grad,) = torch.autograd.grad(-(likelihood + prior / self.num_data).sum(), theta)
        return -likelihood.detach().mean()

    def objective(self, model: nn.Module, batch: Any, generator: torch.Generator, loss: Tensor | None) -> Tensor:
        """Return −log p/N of each lane, [lanes], from the rows that `backward` read."""
        assert isinstance(model, Position)
        theta = model.theta.detach()
        with torch.no_grad():
            likelihood, prior = self._terms(theta, self._rows_of(batch, theta, generator))
        return -(likelihood + prior / self.num_data)

    def _rows_of(self, batch: Any, theta: Tensor, generator: torch.Generator) -> Tensor | None:
        """Draw each lane's rows of a step; None for all."""
        if self._data is None or batch >= self.num_data:
            return None
        return torch.randint(self.num_data, (len(theta), batch), generator=generator, device=theta.device)

    def to(self, device: torch.device) -> None:
        if self._data is not None:
            self._data = _each(self._data, lambda t: t.to(device))

    def _near(self) -> Array:
        return self._init.numpy()

    def reference(self) -> Exact | None:
        return self._target

    def splits(self) -> Mapping[str, Evaluation]:
        if self._target is not None or self._hamiltonian:
            return super().splits()
        labels = [label for v in self.variables for label in v.labels()]
        return {"target": moments.DrawMoments(centre=self._init.numpy(), labels=labels)}

    def _position(self, theta: Tensor) -> Any:
        """Return a position as ``logp`` takes it, of coordinates [dim]."""
        parts = theta.split([a.numel() for a in self._arrays.values()])
        shaped = {name: part.reshape(a.shape) for part, (name, a) in zip(parts, self._arrays.items(), strict=True)}
        return shaped if self._named else shaped[THETA]

    def _terms(self, theta: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean log-likelihood of rows (without data log p) and the log prior, [points] each, at [points,
        dim]."""
        data, size = self._data, 1
        if data is not None:
            data, size = _each(data, lambda t: t.to(theta.device)), self.num_data
        if data is not None and rows is not None:
            data, size = _each(data, lambda t: t[rows.reshape(len(theta), -1)]), rows.shape[-1]
        with _unvalidated():
            if len(theta) == 1:  # vmap costs more than most functions do
                own = data if data is None or rows is None else _each(data, lambda t: t[0])
                likelihood, prior = self._of_one(theta[0].double(), own)
                return likelihood[None], prior[None]
            dims = (0, None if rows is None else 0)
            at_once = max(1, AT_ONCE // size)  # without gradients; with them `gradient` takes no more points
            mapped = vmap(self._of_one, in_dims=dims, chunk_size=at_once if len(theta) > at_once else None)
            found: tuple[Tensor, Tensor] = mapped(theta.double(), data)
            return found

    def _of_one(self, theta: Tensor, data: Any) -> tuple[Tensor, Tensor]:
        position = self._position(theta)
        prior = theta.new_zeros(()) if self._log_prior is None else self._log_prior(position)
        return (self._logp(position) if data is None else self._logp(position, data).mean()), prior

    def _try(self, theta: Tensor) -> None:
        """Evaluate the functions at one position as the user wrote them, and refuse what they must not return."""
        point = theta.clone().requires_grad_()
        position = self._position(point)
        with torch.enable_grad():
            if self._data is None:
                value = _called("logp", self._logp, (position,), [])
            else:
                value = _called("logp", self._logp, (position, self._data), [self.num_data])
                few = min(2, self.num_data)
                _called("logp", self._logp, (position, _each(self._data, lambda t: t[:few])), [few])
            total = value.sum()
            if self._log_prior is not None:
                total = total + _called("log_prior", self._log_prior, (position,), [])
        if not value.requires_grad:
            raise UserError(
                "logp must be computed from the position by differentiable torch operations, got a value without a "
                "gradient"
            )
        (gradient,) = torch.autograd.grad(total, point)
        if not torch.isfinite(total) or not torch.isfinite(gradient).all():
            what = f"the value {float(total.detach())}" if not torch.isfinite(total) else "a gradient that is not"
            raise UserError(f"logp must be finite where chains start, got {what} at {_shown(theta)}: give another init")

    def _try_together(self, starts: Tensor) -> Array:
        """Return log p at several starts by vmap, as chains evaluate it."""
        try:
            with torch.no_grad():
                values = self.estimate(starts)
                if self._data is not None:
                    few = torch.arange(min(2, self.num_data)).expand(len(starts), -1)
                    self._terms(starts, few)
        except Exception as error:
            raise UserError(
                "logp must be a function that torch.func.vmap maps over positions and batches of any length (no "
                f"branches on values, no .item(), no random numbers): {format_error(error, kind=True)}"
            ) from None
        finite = torch.isfinite(values)
        if not finite.all():
            where = _shown(starts[int((~finite).nonzero()[0])])
            raise UserError(
                f"logp must be finite where chains start, N(init, {self._init_sd:g}²), got "
                f"{float(values[~finite][0])} at {where}: give another init or a smaller init_sd"
            )
        return values.numpy()

    def _parts(self, values: Array) -> dict[str, str]:
        layout = [[name, list(a.shape)] for name, a in self._arrays.items()]
        target = self._target
        known: dict[str, str] = {}
        if self._data is not None:
            named = self._data if isinstance(self._data, Mapping) else dict(enumerate(_tensors(self._data)))
            known["data"] = tensors_sha256({str(name): t for name, t in named.items()})
        if target is not None:
            known["reference"] = _hashed([_rounded(target.moments.mean), _rounded(target.moments.covariance)])
        elif self._hamiltonian:
            known["reference"] = "hmc"
        start = _hashed([layout, self._init.tolist(), self._init_sd])
        return {"version": self.version, "density": _hashed(_rounded(values)), "start": start, **known}


# What a user gives


def _arrays(dim: object, init: Any) -> tuple[dict[str, Tensor], bool]:
    """Return the start as named float64 tensors, and whether a position is a dict of them."""
    if (dim is None) == (init is None):
        got = "neither" if dim is None else "both"
        raise UserError(f"dim or init must be given, one of them, got {got}")
    if init is None:
        positive_int("dim", dim)
        require(dim <= MOST_COORDINATES, "dim", dim, f"be at most {MOST_COORDINATES:,}")  # type: ignore[operator]
        return {THETA: torch.zeros(dim, dtype=torch.float64)}, False  # type: ignore[call-overload]
    named = isinstance(init, Mapping)
    given = init if named else {THETA: init}
    require(len(given) > 0, "init", init, "have at least one array")
    found = {}
    for name, value in given.items():
        field = f"init[{name!r}]" if named else "init"
        require(isinstance(name, str) and name != "", "init", name, "have texts as names")
        array = _tensor(field, value).double()
        require(array.numel() > 0, field, list(array.shape), "have at least one entry")
        require(bool(torch.isfinite(array).all()), field, array.tolist(), "be finite")
        found[name] = array
    return found, named


def _variables(arrays: Mapping[str, Tensor], named: bool, names: Any) -> tuple[Variable, ...]:
    """Return what coordinates are called; nothing of a tensor without names."""
    if not named and names is None:
        return ()
    found = _of_arrays(arrays, names) if named else _of_coordinates(arrays[THETA].numel(), names)
    axes = {*AXES, *(d for v in found for d in v.dims)}
    taken = [v.name for v in found if v.name in axes]
    require(not taken, "names", taken[0] if taken else "", "differ from the names of axes")
    return found


def _of_coordinates(size: int, names: Any) -> tuple[Variable, ...]:
    given = list(names) if isinstance(names, list | tuple) else []
    ok = len(given) == size and all(isinstance(n, str) and n for n in given) and len(set(given)) == size
    require(ok, "names", names, f"be {size} different texts, one for each coordinate")
    return tuple(Variable(name=n) for n in given)


def _of_arrays(arrays: Mapping[str, Tensor], names: Any) -> tuple[Variable, ...]:
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    ok = names is None or (isinstance(names, Mapping) and set(names) <= set(shapes))
    require(ok, "names", names, f"be a dict with some of the names {', '.join(shapes)}")
    return tuple(Variable(name=n, shape=s, dims=_dims(n, s, names or {})) for n, s in shapes.items())


def _dims(name: str, shape: tuple[int, ...], names: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    if name not in names:
        return ()
    dims: Any = [names[name]] if isinstance(names[name], str) else names[name]
    ok = isinstance(dims, Sequence) and len(dims) == len(shape) and len({*dims, *AXES}) == len(dims) + len(AXES)
    ok = ok and all(isinstance(d, str) and d for d in dims)
    axes = f"{len(shape)} text{'s' * (len(shape) != 1)}, one for each axis"
    require(ok, f"names[{name!r}]", names[name], f"be {axes}, but not {', '.join(AXES)}")
    return tuple(dims)


def _tensor(field: str, value: Any) -> Tensor:
    check_plain(value, field, "as numbers")
    try:
        found = tensor_of(value).detach().clone()  # the caller may change the values
        require(not found.is_complex(), field, found.dtype, "be real numbers")
        found = found if found.is_floating_point() or found.dtype == torch.bool else found.long()
        return found.double() if found.is_floating_point() else found
    except UserError:
        raise
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"{field} must be a number, a tensor or an array of numbers, got a {type(value).__name__}"
        ) from None


def _data(data: Any) -> Data:
    if isinstance(data, Mapping):
        return {name: _tensor(f"data[{name!r}]", value) for name, value in data.items()}
    if isinstance(data, tuple):
        return tuple(_tensor(f"data[{i}]", value) for i, value in enumerate(data))
    return _tensor("data", data)


def _tensors(data: Data) -> list[Tensor]:
    if isinstance(data, Tensor):
        return [data]
    return list(data.values() if isinstance(data, Mapping) else data)


def _each(data: Data, change: Callable[[Tensor], Tensor]) -> Data:
    if isinstance(data, Tensor):
        return change(data)
    if isinstance(data, Mapping):
        return {name: change(t) for name, t in data.items()}
    return tuple(change(t) for t in data)


def _rows(data: Data) -> int:
    lengths = [len(t) if t.ndim else 0 for t in _tensors(data)]
    if not lengths or not lengths[0] or len(set(lengths)) > 1:
        got = ", ".join(map(str, lengths)) or "no tensor"
        raise UserError(f"data must have the same number of rows in all tensors, at least one, got {got}")
    return lengths[0]


def _reference(given: Any, arrays: Mapping[str, Tensor], dim: int) -> Exact | None:
    """Return the moments that a user gives; None of none, and where a Hamiltonian chain shall give them."""
    if given is None:
        return None
    if isinstance(given, str):
        require(given == "hmc", "reference", given, "be 'hmc', draws, or a tuple (mean, covariance)")
        return None
    if isinstance(given, tuple):
        require(len(given) == 2, "reference", len(given), "be draws, or a tuple of two, (mean, covariance)")
        mean, covariance = (_tensor("reference", part).double().numpy() for part in given)
        source = "given"
    else:
        draws = _drawn(given, arrays)
        ok = draws.ndim == 2 and draws.shape[1] == dim and len(draws) > dim
        require(ok, "reference", list(draws.shape), f"have the shape [n, {dim}] with n of at least {dim + 1}")
        fitted = moments.fit(draws)
        mean, covariance, source = fitted.mean, fitted.covariance, f"{len(draws)} draws"
    shapes = (list(mean.shape), list(covariance.shape))
    require(shapes == ([dim], [dim, dim]), "reference", shapes, f"have a mean [{dim}] and a covariance [{dim}, {dim}]")
    ok = bool(np.isfinite(mean).all() and np.isfinite(covariance).all()) and np.allclose(covariance, covariance.T)
    ok = ok and bool(np.linalg.eigvalsh(covariance)[0] > 0)
    require(ok, "reference", covariance.tolist(), "have a finite mean and a symmetric positive definite covariance")
    return Exact(moments=moments.Gaussian(mean=mean, covariance=covariance), source=source)


def _drawn(given: Any, arrays: Mapping[str, Tensor]) -> Array:
    """Return reference draws as [n, dim]."""
    if not isinstance(given, Mapping):
        return _tensor("reference", given).double().numpy()
    require(set(given) == set(arrays), "reference", sorted(map(str, given)), f"have the names {', '.join(arrays)}")
    parts = {name: _tensor(f"reference[{name!r}]", given[name]).double() for name in arrays}
    for name, part in parts.items():
        shape = list(arrays[name].shape)
        ok = list(part.shape[1:]) == shape and part.ndim > 0
        require(ok, f"reference[{name!r}]", list(part.shape), f"have the shape {['n', *shape]}")
    lengths = {len(part) for part in parts.values()}
    require(len(lengths) == 1, "reference", sorted(lengths), "have as many draws of every array")
    return torch.cat([part.reshape(len(part), -1) for part in parts.values()], dim=1).numpy()


# Trying a function, and its identity


def _called(name: str, function: Callable[..., Any], arguments: tuple[Any, ...], shape: list[int]) -> Tensor:
    """Return a function's value at one position, a floating-point tensor of ``shape``."""
    try:
        value = function(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name} raised {format_error(error, kind=True)}") from None
    what = f"one number per row, a tensor of shape {shape}" if shape else "one number, a tensor of shape []"
    if not isinstance(value, Tensor):
        raise UserError(f"{name} must return {what}, got a {type(value).__name__}")
    if list(value.shape) != shape or not value.is_floating_point():
        raise UserError(f"{name} must return {what}, got {value.dtype} of shape {list(value.shape)}")
    return value


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Let `torch.distributions` skip checks that branch on values, which vmap cannot do."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def _shown(values: Tensor) -> str:
    flat = [f"{v:.3g}" for v in values.reshape(-1)[:4].tolist()]
    return f"[{', '.join(flat)}{', …' if values.numel() > 4 else ''}]"


def _rounded(values: Array) -> list[float]:
    scale = float(np.abs(values).max()) or 1.0
    digits = float(f"{scale:.{DIGITS - 1}e}")
    return [digits, *(np.round(values.reshape(-1) / scale, DIGITS) + 0.0).tolist()]


def _hashed(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
