"""Networks as people write them, each a function of its state dict and of each example alone: none may be refused."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

FEATURES, CLASSES, LENGTH, WORDS = 6, 3, 5, 11
G = torch.Generator().manual_seed(0)
VECTORS = torch.randn(40, FEATURES, generator=G)
IMAGES = torch.randn(40, 3, 8, 8, generator=G)
SERIES = torch.randn(40, LENGTH, FEATURES, generator=G)
TOKENS = torch.randint(0, WORDS, (40, LENGTH), generator=G)
LABELS = torch.randint(0, CLASSES, (40,), generator=G)


def linear() -> nn.Linear:
    return nn.Linear(FEATURES, CLASSES)


class Body(nn.Module):
    """A linear classifier whose inputs a subclass or a function changes."""

    def __init__(self, width: int = FEATURES, body: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        super().__init__()
        self.out, self.given = nn.Linear(width, CLASSES), body

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x))

    def body(self, x: Tensor) -> Tensor:
        return self.given(x)


class Recurrent(Body):
    def __init__(self, kind: Any, **settings: Any) -> None:
        super().__init__(16 if settings.get("bidirectional") else 8)
        self.layer = kind(FEATURES, 8, batch_first=True, **settings)

    def body(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


class Transformer(Body):
    """Causal, with a mask of −∞ that is no part of the state."""

    def __init__(self) -> None:
        super().__init__(8)
        self.words = nn.Embedding(WORDS, 8)
        self.places = nn.Parameter(torch.zeros(LENGTH, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def body(self, x: Tensor) -> Tensor:
        return self.layers(self.words(x) + self.places, mask=self.mask, is_causal=True)[:, -1]


class Attends(Body):
    """Attention over time, not over examples."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(FEATURES, 2, batch_first=True)

    def body(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0].mean(1)


class Experts(Body):
    """One expert an example: in most batches some have none. Keeps its auxiliary loss and how often each was chosen."""

    def __init__(self) -> None:
        super().__init__(8)
        self.router = nn.Linear(FEATURES, 4)
        self.experts = nn.ModuleList(nn.Linear(FEATURES, 8) for _ in range(4))
        self.auxiliary: Tensor | None = None
        self.chosen = [0] * 4

    def body(self, x: Tensor) -> Tensor:
        gates = self.router(x).softmax(-1)
        self.auxiliary = gates.mean(0).square().sum()
        weight, which = gates.max(-1)
        out = x.new_zeros(len(x), 8)
        for number, expert in enumerate(self.experts):
            rows = (which == number).nonzero()[:, 0]
            if len(rows):
                self.chosen[number] += len(rows)
                out = out.index_put((rows,), expert(x[rows]) * weight[rows, None])
        return out


class FrozenNorm(Body):
    """BatchNorm that stays in evaluation mode whatever train() says."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.norm.requires_grad_(False)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def body(self, x: Tensor) -> Tensor:
        return self.norm(x)


def frozen_backbone() -> nn.Module:
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2)).requires_grad_(False)
    return nn.Sequential(body.eval(), nn.Linear(8, CLASSES))


def pruned() -> nn.Module:
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    return model


def old_norms() -> nn.Module:
    with_weight = nn.utils.weight_norm(nn.Linear(FEATURES, 8))
    return nn.Sequential(with_weight, nn.ReLU(), nn.utils.spectral_norm(nn.Linear(8, CLASSES)))


class Lora(nn.Module):
    """A frozen layer and a low-rank change of it that starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.base = linear().requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, FEATURES)), nn.Parameter(torch.zeros(CLASSES, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


class StochasticDepth(Body):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(3))

    def body(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if not self.training or float(torch.rand(())) > 0.3:
                x = x + torch.tanh(block(x))
        return x


class Dense(nn.Module):
    """DenseNet's way: norm and a ReLU that changes its input, and all feature maps side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(3 + 2 * i), nn.ReLU(inplace=True), nn.Conv2d(3 + 2 * i, 2, 3, padding=1))
            for i in range(3)
        )
        self.out = nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.out(F.relu(x, inplace=True).mean((2, 3)))


class Tied(nn.Module):
    """One matrix as embedding and as output; it predicts the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x).mean(1))


class ActNorm(Body):
    """Initialised by the first batch that it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(FEATURES)), nn.Parameter(torch.zeros(FEATURES))
        self.register_buffer("begun", torch.tensor(False))

    def body(self, x: Tensor) -> Tensor:
        if self.training and not self.begun:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.scale.copy_(1 / (x.std(0) + 0.1))
                self.begun.fill_(True)
        return (x + self.shift) * self.scale


class Rotary(Body):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cis", torch.polar(torch.ones(3), torch.arange(3.0)))

    def body(self, x: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x.reshape(-1, 3, 2)) * self.cis).flatten(1)


class Fourier(Body):
    def __init__(self) -> None:
        super().__init__(8)
        self.register_buffer("B", torch.randn(FEATURES, 4))

    def body(self, x: Tensor) -> Tensor:
        return torch.cat([(x @ self.B).sin(), (x @ self.B).cos()], 1)


class Table(Body):
    """A table of sines as a plain attribute, made by a formula, and a cache of others by length."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.sin(torch.arange(FEATURES) / 3)
        self.cached: dict[int, Tensor] = {}
        self.calls = 0

    def body(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.cached.setdefault(x.shape[1], torch.cos(torch.arange(x.shape[1]) / 3))
        return x + self.table.to(x.dtype) + self.cached[x.shape[1]].to(x.dtype)


class Averages(Body):
    """Keeps a running mean of its inputs as a part of its state, and subtracts it."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))

    def body(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


class HalfInside(Body):
    def body(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.tanh(x @ self.out.weight.T @ self.out.weight).to(x.dtype)


class SingleInside(Body):
    def body(self, x: Tensor) -> Tensor:
        return F.normalize(x.float(), dim=1).to(self.out.weight.dtype)


class Noisy(Body):
    """Adds noise to its inputs while it trains, and chooses by Gumbel's trick."""

    def body(self, x: Tensor) -> Tensor:
        return x * F.gumbel_softmax(x, dim=1) + torch.randn_like(x) if self.training else x * x.softmax(1)


class Straight(Body):
    """The nearest of some learned codes, with a straight-through gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(5, FEATURES))

    def body(self, x: Tensor) -> Tensor:
        near = self.codes[torch.cdist(x, self.codes).argmin(1)]
        return x + near - x.detach()


class Hyper(nn.Module):
    """A small network makes the weights of another."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.maker = nn.Parameter(torch.randn(4)), nn.Linear(4, FEATURES * CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.maker(self.code).view(FEATURES, CLASSES)


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(FEATURES, FEATURES) / 3, torch.randn(FEATURES, CLASSES) / 3])
        self.more = nn.ParameterDict({"bias": torch.zeros(CLASSES)})

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weights[0]) @ self.weights[1] + self.more["bias"]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grads[0]


class Unused(Body):
    """Has a head that no loss reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(FEATURES, 2)


class Flat(nn.Module):
    """Two layers whose parameters are views of one buffer."""

    def __init__(self) -> None:
        super().__init__()
        buffer = torch.randn(2 * FEATURES * CLASSES)
        self.a = nn.Parameter(buffer[: FEATURES * CLASSES].view(CLASSES, FEATURES))
        self.b = nn.Parameter(buffer[FEATURES * CLASSES :].view(CLASSES, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.a.T + torch.tanh(x) @ self.b.T


class InstanceNorms(Body):
    calls: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__(8)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.GELU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8)
        )

    def body(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return self.layers(x).mean((2, 3))


def in_double() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()


def convolutional() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, momentum=None), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(nn.ReLU(inplace=True), *layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(36, CLASSES))


def copied() -> nn.Module:
    first = nn.Linear(FEATURES, FEATURES)
    return nn.Sequential(OrderedDict(a=first, act=nn.SiLU(), b=copy.deepcopy(first), out=linear()))


def parametrized() -> nn.Module:
    layers = [parametrizations.weight_norm(nn.Linear(FEATURES, 8)), nn.ReLU()]
    layers += [parametrizations.spectral_norm(nn.Linear(8, 8)), parametrizations.orthogonal(nn.Linear(8, 8))]
    return nn.Sequential(*layers, nn.Linear(8, CLASSES))


def pretrained() -> nn.Module:
    """A network in evaluation mode, as libraries of trained ones give them."""
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, CLASSES)
    ).eval()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "transformer": (Transformer, TOKENS),
    "attention over time": (Attends, SERIES),
    "LSTM": (lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.1), SERIES),
    "GRU in both directions": (lambda: Recurrent(nn.GRU, bidirectional=True), SERIES),
    "mixture of experts": (Experts, VECTORS),
    "BatchNorm frozen by train()": (FrozenNorm, VECTORS),
    "frozen backbone": (frozen_backbone, VECTORS),
    "spectral, weight and orthogonal norm": (parametrized, VECTORS),
    "weight and spectral norm by hooks": (old_norms, VECTORS),
    "pruning": (pruned, VECTORS),
    "LoRA": (Lora, VECTORS),
    "stochastic depth": (StochasticDepth, VECTORS),
    "DenseNet with inplace ReLU": (Dense, IMAGES),
    "convolutions, inplace ReLU first": (convolutional, IMAGES),
    "instance and group norm": (InstanceNorms, IMAGES),
    "tied embeddings": (Tied, TOKENS),
    "initialised by data": (ActNorm, VECTORS),
    "complex buffer": (Rotary, VECTORS),
    "random features in a buffer": (Fourier, VECTORS),
    "table and counter as attributes": (Table, VECTORS),
    "running mean in a buffer": (Averages, VECTORS),
    "autocast inside": (HalfInside, VECTORS),
    "single precision inside": (SingleInside, VECTORS),
    "noise in training": (Noisy, VECTORS),
    "dropout in evaluation": (lambda: Body(body=F.dropout), VECTORS),
    "vector quantisation": (Straight, VECTORS),
    "hypernetwork": (Hyper, VECTORS),
    "parameter lists": (Listed, VECTORS),
    "own autograd function": (lambda: Body(body=Square.apply), VECTORS),
    "unused head": (Unused, VECTORS),
    "vmap inside": (lambda: Body(body=torch.vmap(lambda row: row - row.mean())), VECTORS),
    "views of one buffer": (Flat, VECTORS),
    "double precision": (in_double, VECTORS),
    "deep copies of a layer": (copied, VECTORS),
    "in evaluation mode": (pretrained, VECTORS),
}
