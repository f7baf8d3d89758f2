"""The networks of a pack's rows, whose losses and gradients are computed by one sequence of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from raychains import priors
from raychains.chain.isokinetic_pack import Batch
from raychains.chain.pack_batches import PackBatches
from raychains.chain.pack_row import Member, PackedParameters, Row
from raychains.models import stacked
from raychains.tasks.base import PredictiveTask


class PackedNetworks:
    """The networks of all rows, on the batches that are prepared for them."""

    def __init__(
        self, chain: Member, task: PredictiveTask, parameters: PackedParameters, width: int, *, compiles: bool
    ) -> None:
        self._task, self._parameters = task, parameters
        theta = parameters.theta
        self.batches = PackBatches(chain, task, theta)
        one, _ = task.source.batch(torch.zeros(1, dtype=torch.int64, device=theta.device))
        one = task.network_inputs(one, theta.dtype)
        kind = stacked.TracedNetwork if compiles else stacked.StackedNetwork
        self._network = kind(chain.model, width, self.batches.size, one, theta)
        self._outputs = theta.new_zeros(len(theta), self._network.outputs.shape[1], self.batches.size)
        beside = stacked.beside(chain.model)
        self._of_loss = {n: v for n, v in parameters.parameters.items() if n in beside}
        """Parameters that the loss has beside the network's outputs."""
        self._of_network = [{n: v[:width] for n, v in d.items()} for d in (parameters.parameters, parameters.gradients)]
        self._unpadded = [t[:, : parameters.size] for t in (theta, parameters.grads)]
        self._prior: Callable[..., dict[str, Tensor]] | None = None
        """Returns each row's gradients of −log p(θ)/N, given parameters [rows, …] by name."""
        if chain.spec.prior is not None:
            prior, num_data = priors.build(chain.spec.prior), chain.sampler.num_data

            def of_one(parameters: dict[str, Tensor]) -> Tensor:
                return -prior.log_density(parameters) / num_data

            self._prior = torch.func.vmap(torch.func.grad(of_one))

    @property
    def drops(self) -> bool:
        """True if the networks have dropout."""
        return self._network.drops

    def drop(self, part: int, rows: Sequence[Row]) -> None:
        """Draw dropout of each row for the ``part``-th of the prepared sub-batches, of as many examples as it has."""
        for row in rows:
            self._network.drop(row.index, self.batches.examples(part, row), row.dropout)

    def batch(self, part: int) -> Batch:
        """Fill in the networks' inputs of a prepared sub-batch; return its targets, [rows, examples, …], weights, and
        what compiled gradients read."""
        batch = self.batches.take(part, self._network.inputs)
        return (*batch, *self._network.read()) if isinstance(self._network, stacked.TracedNetwork) else batch

    def gradients(self, targets: Tensor, weights: Tensor) -> Tensor:
        """Fill in the gradients at the networks' inputs with these targets; return the losses, [rows]."""
        network, gradients = self._network, self._parameters.gradients
        network.forward(self._of_network[0])
        self._outputs[: len(network.outputs)] = network.outputs
        losses, after, others = self._task.likelihood.gradients(self._of_loss, self._outputs.mT, targets, weights)
        network.output_gradients.copy_(after.mT[: len(network.outputs)])
        for name, gradient in others.items():
            gradients[name].copy_(gradient)
        network.backward(*self._of_network)
        if self._prior is not None:
            for name, gradient in self._prior(self._parameters.parameters).items():
                gradients[name].add_(gradient)
        return losses

    def gradient_at(self, theta: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses, [rows], and their gradients at ``theta``, as `IsokineticRows` asks for them."""
        own, grads = self._unpadded
        own.copy_(theta)
        return self.gradients(targets, weights), grads

    def traced_gradient(self, theta: Tensor, targets: Tensor, weights: Tensor, *read: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same for a compiler, without reading or writing the pack's buffers."""
        assert isinstance(self._network, stacked.TracedNetwork)
        network, shapes = self._network.reading(*read), self._parameters.shapes
        parameters, gradients = (stacked.views(t, shapes) for t in (theta, torch.zeros_like(theta)))
        network.forward(parameters)

        def loss(outputs: Tensor, of_loss: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            losses = (self._task.likelihood.each(of_loss, outputs, targets) * weights).sum(1)
            return losses.sum(), losses

        of_loss = {name: parameters[name] for name in self._of_loss}
        (after, others), losses = torch.func.grad(loss, (0, 1), has_aux=True)(network.outputs.mT, of_loss)
        network.output_gradients.copy_(after.mT)
        network.backward(parameters, gradients)
        gradients |= others
        return losses, torch.cat([gradients[name].flatten(1) for name in shapes], 1)
