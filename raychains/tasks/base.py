"""The classes that a user's own task is written from: `Task`, or with less to write `PredictiveTask` or
`LogDensity`."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raychains import models
from raychains.core import gpus, tree
from raychains.core.errors import UserError
from raychains.core.rng import seeded
from raychains.core.spec import TaskSpec
from raychains.core.tree import Tree
from raychains.data.source import EpochOrder, Source
from raychains.evaluation.evaluation import Array, Evaluation

if TYPE_CHECKING:
    from raychains.evaluation.exact import Exact
    from raychains.priors import Prior
    from raychains.tasks.defaults import Defaults
    from raychains.tasks.likelihoods import Likelihood


class _Identity:
    """The name of a task, how it is stored and rebuilt. Arguments are JSON: every process makes the task anew from its
    `TaskSpec`."""

    revision: ClassVar[int] = 1
    """Raised by a change that alters samples."""
    fingerprint: str
    """Identifies the data: a hash of them and of the split."""
    origin: tuple[str, Mapping[str, Any]] | None = None
    """Import path and JSON arguments of the function that made the task, where that is how it is rebuilt."""
    untuned: str | None = None
    """The method of a run that names none and states nothing of its steps; None is that of `defaults`."""
    defaults: Mapping[str, Any] | Defaults = MappingProxyType({})
    """Values of options that the user leaves out, by their names in `raychains.core.config.Run` (``{"epochs": 40, "lr":
    .05, "batch_size": 128, "sampler": "csghmc"}``); built-in tasks state a whole
    `raychains.tasks.defaults.Defaults`."""
    data_notes: Sequence[str] = ()
    """Lines on the data in a run's plan and report."""
    measures: Sequence[str] = ()
    """Measures that every run of a density has in its report (`raychains.measures.NAMES`)."""

    def settings(self) -> dict[str, Any]:
        """Return the JSON arguments that rebuild this task."""
        return {}

    def spec(self) -> TaskSpec:
        """Return this task as plain data."""
        path, settings = self.origin or (f"{type(self).__module__}:{type(self).__qualname__}", self.settings())
        return TaskSpec(kind=path, revision=self.revision, settings=settings, fingerprint=self.fingerprint)

    def _changed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments whose value differs from the default in the class that introduced the argument."""
        defaults: dict[str, Any] = {}
        for kind in type(self).__mro__:
            if "__init__" in vars(kind):
                defaults |= {
                    name: p.default for name, p in inspect.signature(vars(kind)["__init__"]).parameters.items()
                }
        return {name: value for name, value in values.items() if value != defaults[name]}


class _Training:
    """Hooks of a chain beside batches and loss; the defaults fit most tasks."""

    minibatch: int = 1
    """Examples that one step reads, of a density that draws them itself."""
    takes_batch_size: ClassVar[bool] = False
    """True of a density whose number of examples per step is the run's ``batch_size``, which `epoch` is given."""
    prior: Prior | None = None
    """The prior on the model's parameters, where the sampler's weight decay is not the prior."""
    own_prior: bool = False
    """True if `backward` adds a prior's gradient itself."""
    padded: bool = False
    """True if batches of as many examples have several shapes."""
    memory_format: torch.memory_format = torch.contiguous_format
    """Memory format of 4-dimensional weights; ``torch.channels_last`` is faster for some convolutions."""

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        """Return the mean loss of a minibatch, a scalar with its graph.

        Args:
            model: the network.
            batch: an element of `epoch`.
            generator: the random stream of the data (augmentation, artificial gradient noise).

        Raises:
            UserError: the task defines neither this nor `backward`.
        """
        raise UserError(f"task {type(self).__name__} must define loss() or backward()")

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Fill every parameter's ``.grad`` with the gradient of `loss`; return the loss, detached; None of a density.

        Parameters that the loss does not depend on may be left without one: it is 0.
        """
        loss = self.loss(model, batch, generator)
        if loss.requires_grad:  # else it depends on none
            loss.backward()
        return loss.detach()

    def objective(self, model: nn.Module, batch: Any, generator: torch.Generator, loss: Tensor | None) -> Tensor:
        """Return the function whose gradient `backward` has just filled in, one number or one for each lane; by default
        its loss.

        Samplers that compare energies ask for it; ``generator`` is where it was before `backward`. `prior` is not part
        of it.

        Raises:
            UserError: a task whose `backward` returns no loss and that does not define this.
        """
        if loss is None:
            raise UserError(f"task {type(self).__name__} must define objective() for a sampler that compares energies")
        return loss

    def to(self, device: torch.device) -> None:
        """Move the data that `loss` reads to the chain's device."""

    def epoch_among(self, examples: Tensor, *, seed: int, batch_size: int) -> Sequence[Any]:
        """Return one epoch's batches of some of the training examples alone, as `Task.epoch` those of all.

        Args:
            examples: their numbers, int64 [n], on the CPU.

        Raises:
            UserError: the task cannot leave examples out.
        """
        raise UserError(
            f"task {type(self).__name__} must define epoch_among() and held_out_loss() to hold examples out, which "
            "members of a deep ensemble do to stop early"
        )

    def held_out_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss of a batch of `epoch_among` as it is predicted, without augmentation: a scalar.

        Raises:
            UserError: as `epoch_among`.
        """
        raise UserError(f"task {type(self).__name__} must define held_out_loss() to hold examples out")

    def divide(self, batch: Any, parts: int) -> Sequence[Any]:
        """Divide a batch into at most ``parts`` sub-batches of nearly equal length, for methods that take gradients of
        each.

        A density's batch is None and each part the whole. Batches that are no index tensors need an own version.
        """
        if batch is None:
            return [None] * parts
        return batch.tensor_split(min(parts, len(batch)))

    def share(self, first: int, last: int, parts: int) -> None:
        """Prepare to be asked only for the sub-batches [first, last) of ``parts`` of each batch, as `divide` gives
        them."""

    def inputs(self, batch: Any) -> Tree:
        """Return what the model is given for one batch, [n, …], to estimate BatchNorm's statistics from.

        Raises:
            UserError: the task does not define it.
        """
        raise UserError(f"batchnorm must be keep or refuse for task {type(self).__name__}, which defines no inputs()")


class _Prediction:
    """Hooks of evaluation and export, for networks; the defaults fit most tasks."""

    predicts: str = "classes"
    """The meaning of the average of a network's outputs: probabilities of ``classes``; the mean and variance of a
    ``gaussian`` regression, whose task has σ as ``noise`` (an `OutputNoise` where the network gives it, None where
    samples hold ``log_noise``); those of a ``distribution``, the `likelihood`'s; probabilities at all ``positions`` of
    an example; or ``outputs`` of no known meaning."""
    labels_per_example: float = 1.0
    """How many labels of an example the loss adds up, on average: default step sizes of samplers whose steps grow with
    the gradient are divided by it."""

    output: str | int | None = None
    """The entry that the likelihood takes of what the network returns, where that is no tensor; None is ``logits``."""

    def prepare(self, inputs: Tree) -> Tree:
        """Return what the network takes, from inputs [n, …] as they are stored (uint8 images, say): by default the
        inputs.

        A function of each input alone and free of randomness; training, evaluation and exported ensembles share it.
        """
        return inputs

    def preparation(self) -> dict[str, Any] | None:
        """Return `prepare` as JSON, for ensembles that are used without the task; None where it changes nothing.

        ``{"kind": "normalise", "mean": [per channel], "std": [per channel]}`` is (x/255 − mean)/std in float32.
        """
        return None

    def reference_file(self, split: str) -> Path | None:
        """Return the file of a reference's probabilities on a split, which the measure ``fidelity`` compares with; None
        without."""
        return None

    def named_network(self) -> dict[str, Any] | None:
        """Return how `build_model` makes its network, as JSON, so that an exported ensemble needs no task.

        ``{"name": …, "settings": {…}}`` names a network of `raychains.models`; ``{"path": "module:callable",
        "settings": {…}}`` any other, which is imported only for users who trust the file. None: whoever loads it brings
        the network.
        """
        return None

    def holding_out(self, val_split: float, split_seed: int = 0) -> Any:
        """Return this task with some of its training examples held out as the split ``val``; with 0 the task itself.

        Args:
            val_split: below 1 the share, from 1 on the number of examples.
            split_seed: of the choice.

        Raises:
            UserError: a task that cannot be divided from outside, or a value out of range.
        """
        if not val_split:
            return self
        raise UserError(
            f"val_split must be left out for task {type(self).__name__}, got {val_split}: only tasks of "
            "Task.from_module are divided from outside, others where they are made"
        )


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A named array of a density's coordinates."""

    name: str
    shape: tuple[int, ...] = ()
    dims: tuple[str, ...] = ()
    """Names of its axes in exports; () for none."""

    @property
    def size(self) -> int:
        """The number of its entries."""
        return math.prod(self.shape)

    def labels(self) -> list[str]:
        """Return the names of its entries: ``w[0, 1]``; of a scalar its own."""
        return [f"{self.name}[{', '.join(map(str, i))}]" if i else self.name for i in np.ndindex(*self.shape)]


class _Density:
    """Knowledge of a low-dimensional target; the defaults are those of networks."""

    low_dimensional: ClassVar[bool] = False
    """True if draws are stored as blocks [draws, lanes, dim] instead of one by one."""
    supports_lanes: ClassVar[bool] = False
    """True if independent chains can be stacked on axis 0 of every parameter."""
    variables: Sequence[Variable] = ()
    """The named arrays whose entries, one after another, are θ's coordinates; () where these have no names."""

    def potential(self, theta: Array) -> tuple[Array, Array] | None:
        """Return U(θ), [...], up to a constant, and its gradient, [..., dim], at points ``theta`` [..., dim] of a
        density.

        U is over the whole data and with the task's own prior, free of a sampler's noise and weight decay, so that the
        target is exp(−U). Without it there is no log density, temperature or Stein discrepancy.
        """
        return None

    def reference(self) -> Exact | None:
        """Return what is known exactly of exp(−U); None where nothing is."""
        return None


class Task(_Identity, _Training, _Prediction, _Density, ABC):
    """A posterior that chains sample: a model, its batches, their mean loss, and N.

    To write: ``num_data``, ``fingerprint``, `build_model`, `epoch`, `loss` and `splits`, and `settings` where the
    constructor takes arguments. Everything else has a default. With less to write: `Task.from_module` for any network
    and data set, `Task.from_log_density` for any log density, `PredictiveTask` for a network with batches from a
    `Source`, `LogDensity` for a log density of any number of points at once.
    """

    num_data: int
    """N; 1 for a density given in closed form."""

    @abstractmethod
    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        """Build a freshly initialised model; equal seeds give equal parameters."""

    @abstractmethod
    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        """Return one epoch's batches as a random-access sequence, a function of ``seed`` alone."""

    @abstractmethod
    def splits(self) -> Mapping[str, Evaluation]:
        """Return what draws can be evaluated on, by name; densities have the one split ``target``.

        Names are known without their data: a mapping that reads a split when it is asked for is welcome.
        """

    @staticmethod
    def from_module(
        model_fn: Callable[[], nn.Module],
        train_set: Any,
        test_set: Any = None,
        loss: str | Likelihood | Callable[[Tensor, Tensor], Tensor] = "cross_entropy",
        **settings: Any,
    ) -> Task:
        """Return the posterior of any network on any data: see `raychains.tasks.module.FromModule` for the settings.

        Example: ``rc.Task.from_module(lambda: Net(4, 3), (x, y), (x_test, y_test), name="flowers")``

        Raises:
            UserError: a model or data that do not fit one another, or a setting out of range.
        """
        from raychains.tasks.module import FromModule

        return FromModule(model_fn, train_set, test_set, loss, **settings)

    @staticmethod
    def from_log_density(logp: Callable[..., Tensor], **settings: Any) -> Task:
        """Return the density ∝ exp(logp): see `raychains.tasks.density.FromLogDensity` for the settings.

        Example: ``rc.Task.from_log_density(lambda x: -(x**2).sum() / 2, dim=2)``

        Raises:
            UserError: a function that cannot be sampled, or a setting out of range.
        """
        from raychains.tasks.density import FromLogDensity

        return FromLogDensity(logp, **settings)


class PredictiveTask(Task):
    """The posterior of a network that predicts targets from inputs.

    To write: ``num_data``, ``fingerprint``, ``source`` (training batches), ``likelihood``, `splits`, and
    `named_network` or `build_model`; `augmented` where training inputs are drawn at random.
    """

    source: Source
    """The training examples as batches on the chain's device."""
    likelihood: Likelihood
    """p(y | x, θ) of the network's outputs."""

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        network = self.named_network()
        assert network is not None, "a task without a named network defines build_model()"
        with seeded(seed):
            return models.build(network["name"], **network["settings"])

    @cached_property
    def evaluated_model(self) -> nn.Module:
        """A network for evaluations to put samples into."""
        return self.build_model(seed=0, lanes=1)

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        order = EpochOrder(self.num_data, batch_size, seed)
        self.source.follow(order)
        return order

    def epoch_among(self, examples: Tensor, *, seed: int, batch_size: int) -> Sequence[Any]:
        order = EpochOrder(len(examples), batch_size, seed, examples)
        self.source.follow(order)
        return order

    def augmented(self, inputs: Tree, generator: torch.Generator) -> Tree:
        """Return training inputs [n, …] as they are learned from, drawn anew from ``generator`` at every step."""
        return inputs

    def network_inputs(self, inputs: Tree, dtype: torch.dtype) -> Tree:
        """Return what the network is given in training: `prepare` in its parameters' dtype; integers stay integers."""
        return tree.cast(self.prepare(inputs), dtype)

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        return self.loss_on(model, *self.source.batch(batch), generator)

    def loss_on(self, model: nn.Module, inputs: Tree, targets: Tensor, generator: torch.Generator) -> Tensor:
        """Return `loss` of examples as the source gives them."""
        dtype = next(model.parameters()).dtype
        outputs = model(self.network_inputs(self.augmented(inputs, generator), dtype))
        return self.likelihood.loss(model, outputs, targets)

    def held_out_loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = self.source.batch(batch)
        outputs = model(self.network_inputs(inputs, next(model.parameters()).dtype))
        return self.likelihood.loss(model, outputs, targets)

    def inputs(self, batch: Any) -> Tree:
        return self.prepare(self.source.batch(batch)[0])

    def to(self, device: torch.device) -> None:
        self.source.to(device)


def own_methods(task: PredictiveTask, *names: str) -> list[str]:
    """Return those of the named methods of `PredictiveTask` that the task's class overrides."""
    return [name for name in names if getattr(type(task), name) is not getattr(PredictiveTask, name)]


class Position(nn.Module):
    """A point per lane: parameter ``theta`` of shape [lanes, dim]."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = nn.Parameter(theta)


class LogDensity(Task):
    """A log density on ℝ^dim, of which a lane is an independent repeat.

    To write: ``dim`` and `log_density`; `starts` where chains should not start at standard normal draws, `reference`
    where moments are known (else a long Hamiltonian chain from the mode gives them), `gradient` where a formula is
    faster.
    """

    low_dimensional = True
    supports_lanes = True
    num_data = 1
    fingerprint = "closed form"
    dim: int
    gradient_noise: float = 0.0
    """Standard deviation of Gaussian noise that is added to every coordinate of the gradient."""
    pointwise: ClassVar[bool] = False
    """True if a point's gradient has the same bits whatever other points are given with it, so that packs can hold its
    chains."""

    def log_density(self, theta: Tensor) -> Tensor:
        """Return log p, [...], up to a constant, at points ``theta`` [..., dim], differentiably.

        Raises:
            UserError: the task defines neither this nor `gradient` and `potential`.
        """
        raise UserError(f"task {type(self).__name__} must define log_density()")

    def gradient(self, theta: Tensor) -> Tensor:
        """Return −∇log p at ``theta`` [..., dim], of the same shape."""
        with torch.enable_grad():
            points = theta.detach().requires_grad_()
            (found,) = torch.autograd.grad(-self.log_density(points).sum(), points)
        return found

    def has_packed_gradient(self, batch_size: int) -> bool:
        """Return whether `packed_gradient` is what `backward` writes: not an estimate from rows of data."""
        return type(self).backward is LogDensity.backward and not self.gradient_noise

    def packed_gradient(self, theta: Tensor) -> Tensor:
        """Return what `backward` writes, to rounding, at the many points of a pack; `pointwise` holds of it."""
        return self.gradient(theta)

    def starts(self, lanes: int, generator: torch.Generator) -> Tensor:
        """Return where chains start, float64 [lanes, dim]."""
        return torch.empty(lanes, self.dim, dtype=torch.float64).normal_(generator=generator)

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        return Position(self.starts(lanes, torch.Generator().manual_seed(seed)))

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        return (None,)

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        assert isinstance(model, Position)
        gradient = self.gradient(model.theta.detach())
        if self.gradient_noise:
            gradient.add_(torch.empty_like(gradient).normal_(generator=generator), alpha=self.gradient_noise)
        model.theta.grad = gradient
        return None

    def objective(self, model: nn.Module, batch: Any, generator: torch.Generator, loss: Tensor | None) -> Tensor:
        """Return −log p of each lane, [lanes], without the artificial noise of the gradient."""
        assert isinstance(model, Position)
        theta = model.theta.detach()
        if type(self).log_density is LogDensity.log_density:  # which tells the energy by `potential`
            return torch.from_numpy(self.potential(gpus.array(theta.double()))[0]).to(theta.device)
        with torch.no_grad():
            return -self.log_density(theta)

    def potential(self, theta: Array) -> tuple[Array, Array]:
        return self._energy(theta), self._slope(theta)

    def _energy(self, theta: Array) -> Array:
        with torch.no_grad():
            return -self.log_density(torch.from_numpy(np.asarray(theta, dtype=np.float64))).numpy()

    def _slope(self, theta: Array) -> Array:
        return self.gradient(torch.from_numpy(np.asarray(theta, dtype=np.float64))).numpy()

    def splits(self) -> Mapping[str, Evaluation]:
        from raychains.evaluation.moments import GaussianMoments, SampledMoments

        known = self.reference()
        if known is not None:
            return {"target": GaussianMoments(mean=known.moments.mean, covariance=known.moments.covariance)}
        identity = f"{type(self).__module__}:{type(self).__qualname__}/{self.fingerprint}/{self.settings()!r}"
        return {"target": SampledMoments(centre=np.zeros(self.dim), identity=identity, reference=self._sampled)}

    def _near(self) -> Array:
        """Return where the search for the mode begins, [dim]."""
        return np.zeros(self.dim)

    def _sampled(self) -> Any:
        """Return the moments of Hamiltonian Monte Carlo around the mode."""
        from scipy.optimize import minimize

        from raychains.evaluation import hmc

        found = minimize(self._energy, self._near(), jac=self._slope, method="BFGS")
        return hmc.reference(self._energy, self._slope, centre=found.x, covariance=found.hess_inv)


def check_decay(task: Task, decay: float) -> None:
    """Refuse a sampler's weight decay beside a prior of the task's own: the prior counts once."""
    if (task.prior is not None or task.own_prior) and decay:
        raise UserError(
            f"weight_decay must be 0 for a task with a prior of its own, got {decay}: the prior counts once"
        )
