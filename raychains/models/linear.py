"""Softmax regression without intercepts: the model of logistic regression on two classes."""

from __future__ import annotations

from torch import Tensor, nn

from raychains.schedules.base import positive_int


class Linear(nn.Module):
    """Logits [n, outputs] = x·Wᵀ of [n, inputs] (or [n, …] of as many values), without bias; `nn.Linear`'s initialisation.

    With two outputs the probability of class 1 is σ((w₁ − w₀)·x): a logistic regression on w₁ − w₀. Independent Gaussian
    priors of variance v on w₀ and w₁ are one of variance 2v on it.

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
