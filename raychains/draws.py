"""A sampler's current draws as samples' tensors: blocks of a low-dimensional target, or a network's whole state."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from raychains.errors import UserError
from raychains.models.batchnorm import has_batchnorm, reestimate
from raychains.samplers import Sampler
from raychains.spec import ChainSpec
from raychains.tasks import Task

Taken = tuple[str, int, dict[str, Tensor]]
"""Variable, number of draws, and named tensors on the CPU."""


class Block:
    """The draws of a low-dimensional target since the last full block: per variable and parameter [draws, lanes, dim].

    Args:
        keeps: kept steps per block; a sampler that yields several draws of a variable at once fills several rows.
        model: names and shapes of the parameters.
        sampler: what yields the draws.
    """

    def __init__(self, keeps: int, model: nn.Module, sampler: Sampler) -> None:
        self.count = 0
        """Kept steps so far."""
        self._keeps, self._sampler = keeps, sampler
        self._names = [name for name, _ in model.named_parameters()]
        per_keep: dict[str, int] = {}
        for variable, _ in sampler.draws():
            per_keep[variable] = per_keep.get(variable, 0) + 1
        self._per_keep = per_keep
        self._buffers = {
            (variable, name): torch.empty(keeps * n, *p.shape, dtype=p.dtype)
            for variable, n in per_keep.items()
            for name, p in model.named_parameters()
        }

    def add(self) -> bool:
        """Keep the current draws; whether the block is full now."""
        rows = {variable: self.count * n for variable, n in self._per_keep.items()}
        for variable, tensors in self._sampler.draws():
            for name, t in zip(self._names, tensors, strict=True):
                self._buffers[variable, name][rows[variable]] = t.detach()
            rows[variable] += 1
        self.count += 1
        return self.count == self._keeps

    def take(self) -> Iterator[Taken]:
        """The draws so far, variable by variable, leaving the block empty."""
        count, self.count = self.count, 0
        for variable, n in self._per_keep.items():
            yield (
                variable,
                count * n,
                {name: self._buffers[variable, name][: count * n].clone() for name in self._names},
            )

    def state(self) -> dict[str, dict[str, Tensor]]:
        """The draws so far, for a checkpoint."""
        return {
            variable: {name: self._buffers[variable, name][: self.count * n].clone() for name in self._names}
            for variable, n in self._per_keep.items()
        }

    def load(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Continue from `state`."""
        for variable, tensors in state.items():
            for name, draws in tensors.items():
                self.count = len(draws) // self._per_keep[variable]
                self._buffers[variable, name][: len(draws)] = draws


class Network:
    """The draws of a network, each a whole `state_dict`: parameters as drawn, and BatchNorm's statistics as the spec says.

    Raises:
        UserError: the spec refuses BatchNorm and the model has it, or keeps statistics that are not the draws' own.
    """

    def __init__(self, spec: ChainSpec, task: Task, model: nn.Module, sampler: Sampler) -> None:
        self._spec, self._task, self._model, self._sampler = spec, task, model, sampler
        self._names = [name for name, _ in model.named_parameters()]
        self._reestimate = False
        if has_batchnorm(model):
            if spec.batchnorm == "refuse":
                raise UserError("batchnorm must be keep or reestimate for a model with BatchNorm layers, got refuse")
            if spec.batchnorm == "keep" and not sampler.statistics_fit:
                raise UserError(
                    f"batchnorm must be reestimate for {sampler.kind}, got keep: running statistics belong to other "
                    f"parameters than its draws"
                )
            self._reestimate = spec.batchnorm == "reestimate"
        self._probe: nn.Module | None = None

    def take(self) -> Iterator[Taken]:
        """The current draws."""
        for variable, tensors in self._sampler.draws():
            drawn = dict(zip(self._names, tensors, strict=True))
            state = {n: drawn.get(n, t).detach().to("cpu", copy=True) for n, t in self._model.state_dict().items()}
            yield variable, 1, self._with_statistics(state) if self._reestimate else state

    def _with_statistics(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """``state`` with BatchNorm's statistics from one pass over the training data under its own parameters."""
        p = next(self._model.parameters())
        if self._probe is None:
            self._probe = self._task.build_model(seed=0, lanes=1).to(p.device, p.dtype)
        self._probe.load_state_dict(state)
        batches = self._task.epoch(seed=0, batch_size=self._spec.batch_size)
        with torch.random.fork_rng([p.device] if p.device.type == "cuda" else []):
            torch.manual_seed(0)  # dropout stays on in this pass and must not move the chain's stream
            reestimate(self._probe, (self._task.inputs(b).to(p.dtype) for b in batches))
        return {n: t.detach().to("cpu", copy=True) for n, t in self._probe.state_dict().items()}
