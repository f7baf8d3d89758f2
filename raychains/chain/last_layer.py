"""The last linear layer of a chain's network, measured batch by batch: what it is given, and the Fisher information of
its outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from raychains.chain import initialization
from raychains.chain.early_stopping import predicting
from raychains.core.errors import UserError, require
from raychains.core.spec import ChainSpec
from raychains.samplers.laplace import LastLayerLaplace, check
from raychains.tasks import Task
from raychains.tasks.base import PredictiveTask, own_methods
from raychains.tasks.likelihoods import belongs

Call = tuple[nn.Linear, Tensor, Tensor]
"""A layer, what it was given and what it returned."""


class LastLayer:
    """Measures the last layer for a `LastLayerLaplace`, with the network as it predicts: without dropout or
    augmentation.

    Raises:
        UserError: as `check_chain`.
    """

    def __init__(
        self,
        spec: ChainSpec,
        task: Task,
        model: nn.Module,
        sampler: LastLayerLaplace,
        device: torch.device,
    ) -> None:
        self._layer = check_chain(spec, task, model, device)
        assert isinstance(task, PredictiveTask)
        self._task, self._model, self._sampler, self._device = task, model, sampler, device

    def measure(self, batch: Any) -> Tensor:
        """Add a batch to what the sampler has measured; return its mean loss.

        Raises:
            UserError: it is predicted by another layer.
        """
        call, outputs, loss = _run(self._task, self._model, batch, self._device)
        if call is None or call[0] is not self._layer:
            raise UserError(
                "sampler must be another one for this network, got 'laplace': its last linear layer is not the same in "
                "all batches"
            )
        self._sampler.measure(call[0], call[1], self._task.likelihood.fisher(self._model, outputs))
        return loss


def check_chain(spec: ChainSpec, task: Task, model: nn.Module, device: torch.device) -> nn.Linear:
    """Return the last layer, found by predicting one training example; refuse a chain in which it cannot be measured.

    Raises:
        UserError: a task, a network or an execution that has none that can be measured.
    """
    why = refusal(task)
    require(why is None, "sampler", spec.sampler.kind, f"be another one for task {spec.task.kind}: {why}")
    assert isinstance(task, PredictiveTask)
    kind = None if spec.prior is None else spec.prior.kind
    require(
        kind is None, "prior", kind, "be a Gaussian on all parameters for laplace: its last layer has one weight decay"
    )
    decay = spec.sampler.settings.get("weight_decay", 0.0)
    require(decay > 0, "weight_decay", decay, "be above 0 for laplace: it is the prior of the last layer")
    for name, allowed in (("compile", "none"), ("micro_batch", None)):
        value = getattr(spec, name)
        require(value == allowed, name, value, f"be {'left out' if allowed is None else allowed} for laplace")
    call, outputs, _ = _run(task, model, torch.zeros(1, dtype=torch.int64, device=device), device)
    if call is not None:
        layer, features, out = call
        # A network in half precision returns single, and one output for each example may have no axis of its own.
        same = outputs.numel() == out.numel() and torch.equal(outputs.reshape(-1), out.reshape(-1).to(outputs))
        if same and features.ndim == 2:
            check(layer)
            ours = {id(p) for p in initialization.sampled(model, spec.sample_only).values()}
            whole = all(id(p) in ours for p in layer.parameters())
            allowed = "take in the whole last layer for laplace, which draws it"
            require(whole, "sample_only", " ".join(spec.sample_only), allowed)
            return layer
    raise UserError(
        "sampler must be another one for this network, got 'laplace': what it returns is not what a linear layer "
        "makes of features [n, inputs]"
    )


def check_planned(spec: ChainSpec, task: Task) -> None:
    """Refuse a chain, before it is built, in which the last layer cannot be measured.

    Raises:
        UserError: as `check_chain`.
    """
    check_chain(spec, task, task.build_model(seed=0, lanes=1), torch.device("cpu"))


def refusal(task: Task) -> str | None:
    """Return why a task's last layer cannot be measured; None where it can."""
    if not isinstance(task, PredictiveTask):
        return "laplace needs a network with a likelihood"
    if task.own_prior or task.prior is not None:
        return "laplace needs the weight decay for its prior, and the task has a prior of its own"
    if own_methods(task, "loss", "backward", "held_out_loss"):
        return "laplace needs the likelihood of its outputs, and the task has a loss of its own"
    if not belongs(task.likelihood, "fisher"):
        return "laplace needs the Fisher information of its likelihood, and only its loss is known"
    if getattr(task.likelihood, "missing", False):
        return "laplace needs the Fisher information of its likelihood, which targets that are missing change"
    return None


def _run(
    task: PredictiveTask, model: nn.Module, batch: Any, device: torch.device
) -> tuple[Call | None, Tensor, Tensor]:
    """Return the last call of a linear layer for a batch, the network's outputs, and the mean loss."""
    calls: list[Call] = []
    returned: list[Tensor] = []

    def called(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        assert isinstance(module, nn.Linear)
        calls.append((module, given[0], out))

    hooks = [m.register_forward_hook(called) for m in model.modules() if isinstance(m, nn.Linear)]
    hooks.append(model.register_forward_hook(lambda _, __, out: returned.append(out)))
    try:
        with torch.no_grad(), predicting(model, device):
            loss = task.held_out_loss(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return (calls[-1] if calls else None), returned[0], loss
