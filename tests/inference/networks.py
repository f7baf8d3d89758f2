"""Small networks for ensembles, and what an ensemble of them must say, straight from the formulas in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains.models import MLP, LeNet

Array = np.ndarray[Any, Any]


class Normalised(nn.Module):
    """A convolution with BatchNorm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(self.norm(self.conv(x)).relu()).mean(dim=(2, 3)))


class Tied(nn.Module):
    """One matrix under two names, token numbers as inputs, a buffer that no state dict holds."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.out = nn.Embedding(9, 5), nn.Linear(5, 9, bias=False)
        self.out.weight = self.tokens.weight
        self.register_buffer("scale", torch.tensor([3.0]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.tokens(x).mean(1)) * self.scale


class Branching(nn.Module):
    """Its way depends on the values, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return y if y.sum() > 0 else 2 * y


class _Doubled(torch.autograd.Function):
    """Written as before torch.func: without setup_context."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


class OwnGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return _Doubled.apply(self.fc(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(x)[0][:, -1])


def images(n: int, channels: int, side: int) -> Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(n))


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "mlp": (lambda: MLP(6, (8, 8), 4), lambda n: torch.randn(n, 6, generator=torch.Generator().manual_seed(n))),
    "lenet": (lambda: LeNet(1, 10, 16), lambda n: images(n, 1, 16)),
    "batchnorm": (Normalised, lambda n: images(n, 3, 8)),
    "tied": (Tied, lambda n: torch.randint(0, 9, (n, 4), generator=torch.Generator().manual_seed(n))),
}
"""What makes a network, and its inputs."""
NO_VMAP: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "branching": (Branching, (6,)), "own gradient": (OwnGradient, (6,)), "recurrent": (Recurrent, (3, 4)),
}  # fmt: skip


def draws(make: Callable[[], nn.Module], size: int) -> list[nn.Module]:
    """Networks that differ in parameters and in BatchNorm's statistics, in evaluation mode."""
    torch.manual_seed(0)
    made = [make().eval() for _ in range(size)]
    for network in made:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 2)
    return made


def states(networks: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
    return [{name: t.clone() for name, t in network.state_dict().items()} for network in networks]


def expected(networks: Sequence[nn.Module], x: Tensor, weights: Sequence[float] | None = None) -> dict[str, Array]:
    """p̄, H[p̄], E[H], and their difference, in nats."""
    w = np.ones(len(networks)) if weights is None else np.asarray(weights, dtype=np.float64)
    w = w / w.sum()
    with torch.no_grad():
        logits = np.stack([network.eval()(x).double().numpy() for network in networks])
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    mean = np.tensordot(w, p, 1)
    entropy = -(mean * np.log(mean)).sum(-1)
    conditional = np.tensordot(w, -(p * np.log(p)).sum(-1), 1)
    return {
        "probabilities": mean, "entropy": entropy, "expected_entropy": conditional,
        "mutual_information": entropy - conditional,
    }  # fmt: skip


def agrees(found: Any, wanted: dict[str, Array], atol: float = 1e-6) -> None:
    """Every quantity of a prediction within ``atol``."""
    assert found._fields == tuple(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(
            getattr(found, name).detach().double().numpy(), value, rtol=0, atol=atol, err_msg=name
        )
