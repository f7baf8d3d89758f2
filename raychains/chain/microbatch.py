"""The gradient of a global batch from micro-batches, each a function of its number alone, not of a rank."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from raychains import tasks
from raychains.chain.backward import Backward
from raychains.chain.process_group import Group, run_of
from raychains.chain.random_streams import stream_seed
from raychains.core import gpus
from raychains.core.errors import UserError
from raychains.core.rng import kept_buffers, seed_globals, set_streams, streams, streams_at
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.tasks import Task

EXTRA = 2
"""Numbers after the gradients: the loss, and whether rank 0 requests a pause."""


class MicroBatches:
    """Fills gradients with those of the mean loss of a global batch, a micro-batch at a time, shared among ranks.

    Augmentation, dropout and what a user's network draws in a micro-batch come from streams seeded by (step, number).
    BatchNorm normalises each micro-batch by itself; its running statistics follow micro-batch 0, so they are rank 0's.

    Raises:
        UserError: more ranks than micro-batches.
    """

    def __init__(
        self, spec: ChainSpec, task: Task, model: nn.Module, sampled: Mapping[str, nn.Parameter], group: Group
    ) -> None:
        assert spec.micro_batch is not None
        self.count = math.ceil(spec.batch_size / spec.micro_batch)
        """M: micro-batches of every global batch."""
        self.ask = self.paused = False
        """This rank's request for a pause, of which rank 0's counts, and whether rank 0 had one in the last step."""
        if group.size > self.count:
            raise UserError(
                f"workers_per_chain must be at most the micro-batches of a batch ({self.count}), got {group.size}: "
                "lower micro_batch"
            )
        self._spec, self._task, self._model, self._group = spec, task, model, group
        self._parameters = [p for p in sampled.values() if p.requires_grad]  # others have no gradient and stay
        self._device = self._parameters[0].device
        self._augmentation = torch.Generator(self._device)
        self._backward = Backward(spec, task, model, self._augmentation)
        self._globals = stream_seed(spec, "globals") if tasks.is_own(spec.task) else None
        task.share(*run_of(group.rank, group.size, self.count), self.count)
        group.broadcast(t.data if isinstance(t, nn.Parameter) else t for t in model.state_dict().values())

    def gradient(self, batch: Any, step: int) -> Tensor:
        """Fill every gradient and return the mean loss; ``step`` counts the steps made before this one."""
        parts = self._task.divide(batch, self.count)
        whole = sum(len(p) for p in parts)
        before = streams(self._device)

        def leaf(number: int) -> Tensor:
            return self._leaf(parts, number, whole, step)

        total = self._group.total(leaf, self.count)
        set_streams(self._device, before)
        place = 0
        for p in self._parameters:
            p.grad = total[place : place + p.numel()].view(p.shape)
            place += p.numel()
        # One rank knows its own request; only several have to wait for the device to read rank 0's.
        self.paused = bool(gpus.value(total[place + 1]) > 0) if self._group.size > 1 else self.ask
        return total[place].double()

    def _leaf(self, parts: Any, number: int, whole: int, step: int) -> Tensor:
        """One micro-batch's share of gradient and loss, flat, and the request."""
        first = self._parameters[0]
        flat = torch.zeros(sum(p.numel() for p in self._parameters) + EXTRA, dtype=first.dtype, device=self._device)
        if number == 0:
            flat[-1] = float(self.ask)
        if number >= len(parts):
            return flat  # the last batch of an epoch is too short for all of them
        index = step * self.count + number
        set_streams(self._device, streams_at(self._device, stream_seed(self._spec, "dropout", index)))
        self._augmentation.manual_seed(stream_seed(self._spec, "augmentation", index))
        if self._globals is not None:
            seed_globals(self._globals, index)
        for p in self._model.parameters():
            p.grad = None
        with nullcontext() if number == 0 else kept_buffers(self._model):
            loss = self._backward(parts[number])
        share = len(parts[number]) / whole
        place = 0
        for p in self._parameters:
            if p.grad is not None:
                torch.mul(p.grad.reshape(-1), share, out=flat[place : place + p.numel()])
            place += p.numel()
        if loss is not None:
            flat[place] = loss * share
        return flat


def compare(
    group: Group, sampled: Mapping[str, Tensor], states: Mapping[str, Tensor], sampler: torch.optim.Optimizer
) -> None:
    """Compare this rank's parameters, sampler's states and noise with rank 0's; all ranks call it at the same step.

    Raises:
        RankDiffers: on every rank, naming the one that differs.
    """
    if group.size == 1:
        return
    noise = json.dumps(sampler.state_dict()["sampler"], default=lambda t: t.tolist(), sort_keys=True)
    hashed = {name: tensors_sha256(t) for name, t in {"parameters": sampled, "sampler's states": states}.items()}
    hashed["noise"] = hashlib.sha256(noise.encode()).hexdigest()
    group.agree({name: bytes.fromhex(found) for name, found in hashed.items()})
