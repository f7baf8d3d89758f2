"""A task is what is sampled: a fresh model, a mean minibatch loss, deterministic batches, and how to evaluate draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from raychains.errors import UserError
from raychains.evaluation.base import Evaluation
from raychains.spec import TaskSpec

if TYPE_CHECKING:
    from raychains.priors import Prior


class Task(ABC):
    """Base of all tasks. A task is rebuilt from its `TaskSpec` in every process: its arguments are JSON."""

    revision: ClassVar[int] = 1
    """Raised by a change that alters samples."""
    low_dimensional: ClassVar[bool] = False
    """Whether draws are stored as blocks [draws, lanes, dim] instead of one by one."""
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

    def settings(self) -> dict[str, Any]:
        """The JSON arguments that rebuild this task."""
        return {}

    def spec(self) -> TaskSpec:
        """This task as plain data."""
        return TaskSpec(
            kind=f"{type(self).__module__}:{type(self).__qualname__}",
            revision=self.revision,
            settings=self.settings(),
            fingerprint=self.fingerprint,
        )

    @abstractmethod
    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        """A freshly initialised model; equal seeds give equal parameters."""

    @abstractmethod
    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        """One epoch's batches as a random-access sequence, a function of ``seed`` alone."""

    @abstractmethod
    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        """Fill every parameter's ``.grad`` with the gradient of the mean minibatch loss; return the loss, detached.

        ``generator`` is the stream for randomness in the data (augmentation, artificial gradient noise). Densities
        return None: their potential is nobody's loss.
        """

    def divide(self, batch: Any, parts: int) -> Sequence[Any]:
        """At most ``parts`` sub-batches of one batch, of nearly equal length, for methods that take gradients of each.

        A density's batch is None and each part the whole. Batches that are no index tensors need an own version.
        """
        if batch is None:
            return [None] * parts
        return batch.tensor_split(min(parts, len(batch)))

    def inputs(self, batch: Any) -> Tensor:
        """What the model is given for one batch, [n, …], to estimate BatchNorm's statistics from.

        Raises:
            UserError: the task does not say.
        """
        raise UserError(f"batchnorm must be keep or refuse for task {type(self).__name__}, which defines no inputs()")

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move the data that `backward` reads to the chain's device."""

    @abstractmethod
    def splits(self) -> Mapping[str, Evaluation]:
        """What draws can be evaluated on, by name; densities have the one split ``target``."""


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
