"""Early stopping of an optimiser's chain: the loss on examples that it holds out, and the best weights so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from raychains import samplers, schedules
from raychains.chain.random_streams import stream_seed
from raychains.core import gpus
from raychains.core.errors import require
from raychains.core.rng import GLOBALS, kept_buffers, set_streams, streams
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec
from raychains.tasks import Task


class EarlyStopping:
    """Measures a network on held-out training examples after each epoch, and keeps the weights of the lowest loss.

    All of it is a function of the spec and of the chain's path: the examples come from a random stream of their own,
    and a measurement moves no other stream and no buffer of the network. A loss that is not finite is never the lowest.

    Raises:
        UserError: the spec's sampler or schedule keeps other samples than one at the end, or the task cannot hold
            examples out.
    """

    def __init__(self, spec: ChainSpec, task: Task) -> None:
        assert spec.early_stop is not None
        one = schedules.build(spec.schedule).kept == 1 and samplers.variables(spec.sampler) == {THETA: 1}
        optimiser = samplers.KINDS[spec.sampler.kind].noisy_counterpart is not None
        allowed = "be left out for samplers that inject noise, and for schedules that keep more than the last draw"
        require(one and optimiser, "early_stop", spec.early_stop.to_json(), allowed)
        self._spec, self._task, self._patience = spec, task, spec.early_stop.patience
        held = spec.early_stop.held_out(task.num_data)
        generator = torch.Generator().manual_seed(stream_seed(spec, "held-out"))
        order = torch.randperm(task.num_data, generator=generator)
        self.learned, self.held_out = order[held:].sort().values, order[:held].sort().values
        """Numbers of the training examples that are stepped on, and of those that are not: int64, on the CPU."""
        self.loss: float | None = None
        """The last one measured; None where it was not finite."""
        self.best_loss: float | None = None
        """The lowest; None before a finite one."""
        self._best: dict[str, Tensor] = {}
        self._since = 0
        """Epochs since the lowest loss."""

    @property
    def over(self) -> bool:
        """Return whether the loss has not become lower for as many epochs as there is patience."""
        return self._since >= self._patience

    def epoch(self, *, seed: int) -> Sequence[Any]:
        """Return one epoch's batches of the examples that are learned from."""
        return self._task.epoch_among(self.learned, seed=seed, batch_size=self._spec.batch_size)

    def measure(self, model: nn.Module, device: torch.device) -> None:
        """Measure the network after an epoch, and keep its weights if they are the best so far."""
        numbers = self.held_out.to(device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        with torch.no_grad(), predicting(model, device):
            for batch in numbers.split(self._spec.batch_size):
                total += self._task.held_out_loss(model, batch).double() * len(batch)
        loss = gpus.value(total) / len(self.held_out)
        self.loss = loss if math.isfinite(loss) else None
        self._since += 1
        if self.loss is not None and (self.best_loss is None or self.loss < self.best_loss):
            self.best_loss, self._since = self.loss, 0
            self._best = {name: t.detach().clone() for name, t in model.state_dict().items()}

    def restore(self, model: nn.Module) -> None:
        """Set the network to the best weights; as it is where no loss was finite."""
        if self._best:
            model.load_state_dict(self._best)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on."""
        return {"loss": self.loss, "best_loss": self.best_loss, "since": self._since, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue where `state_dict` was taken."""
        self.loss, self.best_loss, self._since = state["loss"], state["best_loss"], state["since"]
        self._best = {name: t.to(device, copy=True) for name, t in state["best"].items()}


@contextmanager
def predicting(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Put a network into evaluation mode in the body; its modes, its buffers and the global streams stay what they
    are."""
    training = [m for m in model.modules() if m.training]
    with GLOBALS:  # a member of a pack is not alone in its process
        before = streams(device)
        try:
            with kept_buffers(model):
                model.eval()
                yield
        finally:
            for module in training:
                module.training = True
            set_streams(device, before)
