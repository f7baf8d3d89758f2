"""A sampler's current draws as samples' tensors: blocks of a low-dimensional target, or a network's whole state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from raychains.chain.initialization import stored
from raychains.core import gpus, tree
from raychains.core.errors import UserError
from raychains.core.rng import GLOBALS
from raychains.core.spec import ChainSpec
from raychains.data.source import EpochOrder
from raychains.models.batchnorm import reestimate
from raychains.samplers import Sampler
from raychains.tasks import Task

Taken = tuple[str, int, dict[str, Tensor]]
"""Variable, number of draws, and named tensors on the CPU."""


class Block:
    """The draws of a low-dimensional target since the last full block: per variable and parameter [draws, lanes, dim].

    A block is full after ``keeps`` kept steps; a sampler that yields several draws of a variable at once fills several
    rows.
    """

    def __init__(self, keeps: int, model: nn.Module, sampler: Sampler) -> None:
        self.count = 0
        """Kept steps so far."""
        self._keeps, self._sampler = keeps, sampler
        self._names = [name for name, _ in model.named_parameters()]
        self._per_keep = Counter(variable for variable, _ in sampler.draws())
        self._buffers = {
            (variable, name): torch.empty(keeps * n, *p.shape, dtype=p.dtype, device=p.device)
            for variable, n in self._per_keep.items()
            for name, p in model.named_parameters()
        }

    def add(self) -> bool:
        """Keep the current draws; return whether the block is full now."""
        rows = {variable: self.count * n for variable, n in self._per_keep.items()}
        for variable, tensors in self._sampler.draws():
            for name, t in zip(self._names, tensors, strict=True):
                self._buffers[variable, name][rows[variable]] = t.detach()
            rows[variable] += 1
        self.count += 1
        return self.count == self._keeps

    def due(self, keep: bool, done: bool) -> bool:
        """Keep the current draws after a step that keeps them; return whether there are samples to take."""
        full = keep and self.add()
        return full or (done and self.count > 0)

    @property
    def room(self) -> int:
        """Kept steps before the one that fills the block."""
        return self._keeps - self.count - 1

    def extend(self, draws: Tensor) -> None:
        """Keep several steps' draws [n, …] of a target with one variable and one parameter, at most `room`."""
        (buffer,) = self._buffers.values()
        buffer[self.count : self.count + len(draws)] = draws
        self.count += len(draws)

    def take(self) -> Iterator[Taken]:
        """Yield the draws so far, variable by variable, and empty the block."""
        count, self.count = self.count, 0
        for variable, n in self._per_keep.items():
            drawn = {name: self._buffers[variable, name][: count * n] for name in self._names}
            yield variable, count * n, copied(drawn)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return the draws so far, for a checkpoint."""
        return {
            variable: {name: self._buffers[variable, name][: self.count * n].clone() for name in self._names}
            for variable, n in self._per_keep.items()
        }

    def load(self, state: Any) -> None:
        """Continue from `state`."""
        for variable, tensors in state.items():
            for name, draws in tensors.items():
                self.count = len(draws) // self._per_keep[variable]
                self._buffers[variable, name][: len(draws)] = draws


class Network:
    """The draws of a network, each a `state_dict`: parameters as drawn, and BatchNorm's statistics as the spec says.

    Where only some parameters are sampled a draw holds these and their modules' buffers.

    ``place`` moves another network, by which statistics are estimated, to the chain's device and dtype.

    Raises:
        UserError: the spec refuses BatchNorm and the model has it, or keeps statistics that are not the draws' own.
    """

    def __init__(
        self,
        spec: ChainSpec,
        task: Task,
        model: nn.Module,
        sampler: Sampler,
        sampled: Mapping[str, nn.Parameter],
        place: Callable[[nn.Module], nn.Module],
    ) -> None:
        self._spec, self._task, self._model, self._sampler = spec, task, model, sampler
        self._sampled, self._place = list(sampled.values()), place
        self._reestimate = self._needs_statistics()
        self.names = stored(model, self._sampled) if spec.sample_only else list(model.state_dict())
        """Names of a draw's tensors."""
        self._probe: nn.Module | None = None

    def _needs_statistics(self) -> bool:
        spec = self._spec
        layers = [m for m in self._model.modules() if isinstance(m, _BatchNorm)]
        moving = [m for m in layers if m.training or not spec.sample_only]  # a frozen layer's are part of the start
        if not moving:
            return False
        if spec.batchnorm == "refuse":
            raise UserError("batchnorm must be keep or reestimate for a model with BatchNorm layers, got refuse")
        if spec.batchnorm == "keep" and not self._sampler.statistics_fit:
            raise UserError(
                f"batchnorm must be reestimate for {self._sampler.kind}, got keep: running statistics belong to other "
                f"parameters than its draws"
            )
        if spec.batchnorm == "reestimate" and len(moving) < len(layers):
            raise UserError(
                f"sample_only must take in all BatchNorm layers or none where statistics are estimated anew, got "
                f"{' '.join(spec.sample_only)}: {len(moving)} of {len(layers)}"
            )
        return spec.batchnorm == "reestimate"

    room = 0
    """Kept steps before one that has samples."""

    def due(self, keep: bool, done: bool) -> bool:
        """Return whether there are samples to take: each step that is kept has its own."""
        return keep

    def state(self) -> None:
        """Return nothing: a checkpoint has no draws."""

    def load(self, state: Any) -> None:
        """Continue from `state`."""

    def take(self) -> Iterator[Taken]:
        """Yield the current draws, as contiguous tensors on the CPU."""
        live = self._model.state_dict(keep_vars=True)
        names = list(live) if self._reestimate else self.names
        for variable, tensors in self._sampler.draws():
            drawn = {id(p): t for p, t in zip(self._sampled, tensors, strict=True)}  # one parameter may have two names
            state = copied({n: drawn.get(id(live[n]), live[n]) for n in names})
            yield variable, 1, self._with_statistics(state) if self._reestimate else state

    def _with_statistics(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """``state`` with BatchNorm's statistics from one pass over the training data under its own parameters."""
        p = self._sampled[0]
        if self._probe is None:
            self._probe = self._place(self._task.build_model(seed=0, lanes=1))
        self._probe.load_state_dict(state)
        pass_over(self._task, self._probe, self._spec.batch_size, p.device)
        known = self._probe.state_dict()
        return copied({n: known[n] for n in self.names})


def pass_over(task: Task, model: nn.Module, batch_size: int, device: torch.device) -> None:
    """Estimate BatchNorm's statistics from one pass over the training data, the same for the same weights."""
    batches, dtype = indices_to(task.epoch(seed=0, batch_size=batch_size), device), next(model.parameters()).dtype
    inputs = (task.inputs(b) for b in batches)
    with GLOBALS, gpus.kept_rng(device):
        torch.manual_seed(0)  # dropout stays on in this pass and must not move the chain's stream
        reestimate(model, (tree.cast(x, dtype) for x in inputs))


def indices_to(order: Sequence[Any], device: torch.device) -> Sequence[Any]:
    """Return an epoch's batches with their indices on the data's device: copied once, not one batch at a time."""
    return order.to(device) if isinstance(order, EpochOrder) else order


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous copies on the CPU; a GPU queues the copies after its running work and is waited for once."""
    copies = {name: gpus.on_host(t) for name, t in tensors.items()}
    for device in {t.device for t in tensors.values() if gpus.is_gpu(t.device)}:
        gpus.wait(device)
    return copies
