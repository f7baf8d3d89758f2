"""Fully connected networks: the multilayer perceptron, and softmax regression without intercepts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from raychains.core.errors import require
from raychains.core.validation import positive_int


class MLP(nn.Module):
    """Fully connected ReLU network from [n, inputs] (or [n, …] of as many values) to logits [n, outputs].

    Args:
        inputs: values per example.
        hidden: widths of the hidden layers; with none it is a linear model.
        outputs: number of logits.

    Raises:
        UserError: a width that is not an integer of at least 1.

    Source: cSG-MCMC §5.3 samples a "three-layer MLP" on MNIST and gives no widths: see `three_layer`.
    """

    revision = 1

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        positive_int("inputs", inputs)
        positive_int("outputs", outputs)
        require(isinstance(hidden, list | tuple), "hidden", hidden, "be a list of integers: the hidden layers' widths")
        for width in hidden:
            positive_int("hidden", width)
        widths = [inputs, *hidden, outputs]
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(pairwise(widths)):
            layers += [nn.ReLU()] * (i > 0) + [nn.Linear(a, b)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1))


def three_layer(inputs: int = 784, width: int = 200, outputs: int = 10) -> MLP:
    """The three-layer MLP for MNIST: three linear layers, i.e. two hidden ones.

    The paper says no more than "three-layer", so the width is ours.

    Source: cSG-MCMC §5.3.
    """
    positive_int("width", width)
    return MLP(inputs, (width, width), outputs)


class Linear(nn.Module):
    """Logits [n, outputs] = x·Wᵀ of [n, inputs] (or [n, …] of as many values), without bias; `nn.Linear`'s
    initialisation.

    With two outputs the probability of class 1 is σ((w₁ − w₀)·x): a logistic regression on w₁ − w₀. Independent
    Gaussian priors of variance v on w₀ and w₁ are one of variance 2v on it.

    Args:
        inputs: values per example.
        outputs: number of logits.

    Raises:
        UserError: a number that is not an integer of at least 1.
    """

    revision = 1

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        positive_int("inputs", inputs)
        positive_int("outputs", outputs)
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))
