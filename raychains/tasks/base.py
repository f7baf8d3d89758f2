"""A task is what is sampled: a fresh model, a mean minibatch loss, deterministic batches, and how to evaluate draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from raychains.errors import UserError
from raychains.evaluation.base import Array, Evaluation
from raychains.spec import TaskSpec

if TYPE_CHECKING:
    from raychains.data.prepared.carrier import Carry
    from raychains.evaluation.exact import Exact
    from raychains.priors import Prior


class Task(ABC):
    """Base of all tasks. A task is rebuilt from its `TaskSpec` in every process: its arguments are JSON."""

    revision: ClassVar[int] = 1
    """Raised by a change that alters samples."""
    low_dimensional: ClassVar[bool] = False
    """Whether draws are stored as blocks [draws, lanes, dim] instead of one by one."""
    streams: ClassVar[bool] = False
    """Whether its batches are pictures of a prepared set, which decoders elsewhere may cut: see `carried`."""
    supports_lanes: ClassVar[bool] = False
    """Whether independent chains can be stacked on axis 0 of every parameter."""

    minibatch: int = 1
    """Examples that one step reads, of a low-dimensional task that draws them itself."""
    prior: Prior | None = None
    """The prior on the model's parameters, where the sampler's weight decay is not the prior."""
    own_prior: bool = False
    """Whether `backward` adds a prior's gradient itself."""
    num_data: int
    """N; 1 for a density given in closed form."""
    fingerprint: str
    """Identifies the data: a hash of them and of the split."""
    data_notes: Sequence[str] = ()
    """What a run's plan and page say of the data, a line each."""
    predicts: str = "classes"
    """What a network's samples average to: probabilities of ``classes``; the mean and variance of a ``gaussian``
    regression, whose task has σ as ``noise`` (None where samples hold ``log_noise``); or ``outputs`` of no known meaning."""
    origin: tuple[str, Mapping[str, Any]] | None = None
    """Import path and JSON arguments of the function that made the task, where that is how it is rebuilt."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Values of options that a person leaves out, by their names in `raychains.options.Run` (``{"epochs": 40, "lr": .05,
    "batch_size": 128, "sampler": "csghmc"}``). Read where `raychains.methods.defaults` has no entry for the task."""
    memory_format: torch.memory_format = torch.contiguous_format
    """How a model of 4-dimensional weights lies in memory; ``torch.channels_last`` is faster for some convolutions."""

    def settings(self) -> dict[str, Any]:
        """The JSON arguments that rebuild this task."""
        return {}

    def spec(self) -> TaskSpec:
        """This task as plain data."""
        path, settings = self.origin or (f"{type(self).__module__}:{type(self).__qualname__}", self.settings())
        return TaskSpec(kind=path, revision=self.revision, settings=settings, fingerprint=self.fingerprint)

    @abstractmethod
    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        """A freshly initialised model; equal seeds give equal parameters."""

    @abstractmethod
    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        """One epoch's batches as a random-access sequence, a function of ``seed`` alone."""

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        """The mean minibatch loss, a scalar with its graph: what a task defines instead of `backward`.

        Args:
            model: the network.
            batch: an element of `epoch`.
            generator: the stream for randomness in the data, as for `backward`.

        Raises:
            UserError: the task defines neither this nor `backward`.
        """
        raise UserError(f"task {type(self).__name__} must define loss() or backward()")

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Fill every parameter's ``.grad`` with the gradient of the mean minibatch loss; return the loss, detached.

        ``generator`` is the stream for randomness in the data (augmentation, artificial gradient noise). Densities
        return None: their potential is nobody's loss. By default the gradient of `loss`.
        """
        loss = self.loss(model, batch, generator)
        loss.backward()
        return loss.detach()

    def divide(self, batch: Any, parts: int) -> Sequence[Any]:
        """At most ``parts`` sub-batches of one batch, of nearly equal length, for methods that take gradients of each.

        A density's batch is None and each part the whole. Batches that are no index tensors need an own version.
        """
        if batch is None:
            return [None] * parts
        return batch.tensor_split(min(parts, len(batch)))

    def share(self, first: int, last: int, parts: int) -> None:  # noqa: B027  # most have nothing to do
        """Of each batch only the sub-batches [first, last) of ``parts``, as `divide` gives them, will be read here.

        The others are other processes'. A task whose data are in memory anyway need not listen.
        """

    def carried(self, carry: Carry | None) -> None:  # noqa: B027  # most have nothing to carry
        """Take batches from what ``carry`` makes, where the task streams; None: as it does by itself."""

    def inputs(self, batch: Any) -> Tensor:
        """What the model is given for one batch, [n, …], to estimate BatchNorm's statistics from.

        Raises:
            UserError: the task does not say.
        """
        raise UserError(f"batchnorm must be keep or refuse for task {type(self).__name__}, which defines no inputs()")

    def prepare(self, inputs: Tensor) -> Tensor:
        """What the network takes, from inputs [n, …] as they are stored (uint8 images, say): by default themselves.

        A function of each input alone and free of randomness; training, evaluation and exported ensembles share it.
        """
        return inputs

    def preparation(self) -> dict[str, Any] | None:
        """`prepare` as JSON, for ensembles that are used without the task; None where it changes nothing.

        ``{"kind": "normalise", "mean": [per channel], "std": [per channel]}`` is (x/255 − mean)/std in float32.
        """
        return None

    def named_network(self) -> dict[str, Any] | None:
        """How `build_model` makes its network, as JSON, so that an exported ensemble is rebuilt without the task's data.

        ``{"name": …, "settings": {…}}`` names a network of `raychains.models`; ``{"path": "module:callable", "settings":
        {…}}`` any other, which is imported only for people who trust the file. None: whoever loads it brings the network.
        """
        return None

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move the data that `backward` reads to the chain's device."""

    @abstractmethod
    def splits(self) -> Mapping[str, Evaluation]:
        """What draws can be evaluated on, by name; densities have the one split ``target``.

        Names are known without their data: a mapping that reads a split when it is asked for is welcome.
        """

    def holding_out(self, val_split: float, split_seed: int = 0) -> Task:
        """This task with some of its training examples held out as the split ``val``; with 0 the task itself.

        Args:
            val_split: below 1 the share, from 1 on the number of examples.
            split_seed: of the choice.

        Raises:
            UserError: a task that cannot be divided from outside, or a value out of range.
        """
        if not val_split:
            return self
        raise UserError(
            f"val_split must be left out for task {type(self).__name__}, got {val_split}: only tasks of Task.from_module are "
            "divided from outside, others where they are made"
        )

    def potential(self, theta: Array) -> tuple[Array, Array] | None:
        """U(θ), [...], up to a constant, and its gradient, [..., dim], at points ``theta`` [..., dim] of a density.

        U is over the whole data and with the task's own prior, free of a sampler's noise and weight decay, so that the
        target is exp(−U). None where nobody says: then there is no log density, temperature or Stein discrepancy.
        """
        return None

    def reference(self) -> Exact | None:
        """What is known exactly of exp(−U); None where nothing is."""
        return None

    @staticmethod
    def from_module(
        model_fn: Callable[[], nn.Module],
        train_set: Any,
        test_set: Any,
        loss: str | Callable[[Tensor, Tensor], Tensor] = "cross_entropy",
        **settings: Any,
    ) -> Task:
        """The posterior of any network on any data: see `raychains.tasks.module.FromModule` for the settings.

        Example: ``rc.Task.from_module(lambda: Net(4, 3), (x, y), (x_test, y_test), name="flowers")``

        Raises:
            UserError: a model or data that do not fit one another, or a setting out of range.
        """
        from raychains.tasks.module import FromModule

        return FromModule(model_fn, train_set, test_set, loss, **settings)


def check_decay(task: Task, decay: float) -> None:
    """Refuse a sampler's weight decay beside a prior of the task's own: the prior counts once."""
    if (task.prior is not None or task.own_prior) and decay:
        raise UserError(
            f"weight_decay must be 0 for a task with a prior of its own, got {decay}: the prior counts once"
        )


def seeded(seed: int) -> Any:
    """Context in which torch's global generator starts from ``seed``; `torch.nn` initialises from it."""
    return _Seeded(seed)


class _Seeded:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        self._before = torch.get_rng_state()
        torch.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        torch.set_rng_state(self._before)
