"""The gradient of a batch, on a GPU recorded as a CUDA graph: one call launches all kernels, and the results have the
same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raychains import samplers, tasks
from raychains.core import gpus, tree
from raychains.core.errors import UserError, format_error
from raychains.core.rng import globals_state
from raychains.core.spec import ChainSpec
from raychains.core.tree import Tree
from raychains.data.source import Pair
from raychains.tasks import Task
from raychains.tasks.base import PredictiveTask, own_methods

EAGER = 2
"""Gradients of each batch size that are evaluated operator by operator before one is recorded: libraries choose kernels
in them."""


def recorded(spec: ChainSpec, task: Task) -> bool:
    """Return whether a chain's gradients are recorded on a GPU.

    Those of built-in networks are, unless packed; those of a user's network with ``compile="cuda-graphs"``: what its
    Python code does besides launching kernels is done when it is recorded, not at every step.
    """
    return not spec.pack and why_not(task) is None and (not tasks.is_own(spec.task) or spec.compile == "cuda-graphs")


def why_not(task: Task) -> str | None:
    """Return why the gradients of a task's batches cannot be recorded; None where they can."""
    if not isinstance(task, PredictiveTask):
        return "it is no network with a likelihood"
    own = own_methods(task, "loss", "backward")
    return f"it has its own {own[0]}()" if own else None


@dataclass(frozen=True)
class _Recorded:
    """A recording for one batch size; all tensors keep their places in memory."""

    examples: Pair
    loss: Tensor
    gradients: Sequence[Tensor | None]
    replay: Callable[[], None]


class Backward:
    """Fills in the gradients of a chain's batches, as `Task.backward` does; see `recorded`.

    Args:
        augmentation: the generator that training inputs are drawn from.
    """

    def __init__(self, spec: ChainSpec, task: Task, model: nn.Module, augmentation: torch.Generator) -> None:
        self._task, self._model, self._augmentation = task, model, augmentation
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        device = next(model.parameters()).device
        self._graphs = gpus.Graphs(device, augmentation) if gpus.is_gpu(device) and recorded(spec, task) else None
        self._own = tasks.is_own(spec.task)
        self._again = samplers.KINDS[spec.sampler.kind].gradients_per_step > 1
        """True if gradients are still needed when the next ones are evaluated."""
        self._seen: Counter[int] = Counter()
        self._recorded: dict[int, _Recorded] = {}

    def __call__(self, batch: Tensor) -> Tensor | None:
        """Fill every gradient with that of the batch's mean loss, and return this; None of a density.

        Raises:
            UserError: the network cannot be recorded.
        """
        if self._graphs is None:
            return self._task.backward(self._model, batch, self._augmentation)
        assert isinstance(self._task, PredictiveTask)
        examples, size = self._task.source.batch(batch), len(batch)
        if size not in self._recorded:
            self._seen[size] += 1
            if self._seen[size] <= EAGER:
                return self._graphs.beside(lambda: self._evaluate(*examples))
            self._recorded[size] = self._record(examples, self._graphs)
        recorded = self._recorded[size]
        tree.mapped(Tensor.copy_, recorded.examples, examples)
        recorded.replay()
        for p, gradient in zip(self._parameters, recorded.gradients, strict=True):
            p.grad = gradient.clone() if self._again and gradient is not None else gradient
        return recorded.loss.clone()

    def _evaluate(self, inputs: Tree, targets: Tensor) -> Tensor:
        assert isinstance(self._task, PredictiveTask)
        loss = self._task.loss_on(self._model, inputs, targets, self._augmentation)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    def _record(self, examples: Pair, graphs: gpus.Graphs) -> _Recorded:
        static = tree.mapped(torch.clone, examples)
        for p in self._parameters:
            p.grad = None
        before = globals_state()
        try:
            loss, replay = graphs.record(lambda: self._evaluate(*static))
        except Exception as error:
            if not self._own or isinstance(error, torch.OutOfMemoryError):
                raise
            raise UserError(
                f"compile must be none or default for this task, got cuda-graphs: {format_error(error)}"
            ) from error
        if self._own and globals_state() != before:
            raise UserError(
                "compile must be none or default for this task, got cuda-graphs: its forward pass draws from Python's "
                "or NumPy's generators, and a recording would repeat these numbers in every step"
            )
        return _Recorded(static, loss, [p.grad for p in self._parameters], replay)
