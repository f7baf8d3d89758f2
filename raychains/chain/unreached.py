"""The parameters of a model that no loss reaches: they are sampled from their prior alone, and a run's plan names
them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from raychains import tasks
from raychains.chain.initialization import some
from raychains.core.errors import UserError
from raychains.core.rng import GLOBALS, seeded
from raychains.tasks import Task

EXAMPLES = 16
"""Of a batch."""
BATCHES, MOST = 16, 256
"""Batches that are tried where some parameters have a gradient in none, and where all have: a few examples may use a
branch."""


def unreached(task: Task, model: nn.Module, sampled: Mapping[str, nn.Parameter]) -> list[str]:
    """Return the plan's line on parameters that have a gradient in none of a few batches; nothing where all have one.

    Gradients and buffers of ``model`` change.

    Raises:
        UserError: no parameter has one.
    """
    if task.low_dimensional:
        return []
    all_of_them = {name: p for name, p in sampled.items() if p.requires_grad}
    left, tried = all_of_them, 0
    batches = task.epoch(seed=0, batch_size=min(EXAMPLES, task.num_data))
    generator = torch.Generator().manual_seed(0)
    with GLOBALS, seeded(0):
        while left and tried < min(len(batches), MOST if len(left) == len(all_of_them) else BATCHES):
            for p in model.parameters():
                p.grad = None
            task.backward(model, batches[tried], generator)
            left, tried = {name: p for name, p in left.items() if p.grad is None}, tried + 1
    if left and len(left) == len(all_of_them):
        raise UserError(
            f"task {tasks.name_of(task)!r} must have a loss with a gradient, got none for any parameter in {tried} "
            "batches: look for detach(), no_grad() or numbers taken out of tensors in the model and the loss"
        )
    one = "its prior alone moves it" if len(left) == 1 else "their prior alone moves them"
    return [f"no loss of {tried} batches reaches {some(left)}: {one}, unless other examples do"] if left else []
