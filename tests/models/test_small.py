"""The multilayer perceptron and LeNet against plain transcriptions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.models.cnn import LeNet, SmallCNN
from raychains.models.mlp import MLP, Linear, three_layer


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_mlp_is_linear_layers_with_relu_between() -> None:
    model, x = MLP(12, [5, 4], 3).double(), normal(6, 3, 2, 2)
    w1, b1, w2, b2, w3, b3 = model.parameters()
    h = (x.reshape(6, 12) @ w1.T + b1).clamp(min=0)
    expected = (h @ w2.T + b2).clamp(min=0) @ w3.T + b3
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-14)
    assert len(list(MLP(12, [], 3).parameters())) == 2


def test_three_layer_mlp_has_two_hidden_layers() -> None:
    model = three_layer()
    assert [p.shape for p in model.parameters() if p.ndim == 2] == [(200, 784), (200, 200), (10, 200)]
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_lenet_has_the_originals_number_of_parameters() -> None:
    layers = [6 * (25 + 1), 16 * (6 * 25 + 1), 120 * (400 + 1), 84 * (120 + 1), 10 * (84 + 1)]
    assert count(LeNet(1, 10, 32)) == sum(layers) == 61_706


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 16), (2, 33)])
def test_lenet_is_convolution_relu_pooling_twice_then_three_linear_layers(channels: int, size: int) -> None:
    model, x = LeNet(channels, 7, size).double(), normal(3, channels, size, size)
    p = list(model.parameters())
    h = F.max_pool2d(F.conv2d(x, p[0], p[1]).clamp(min=0), 2)
    h = F.max_pool2d(F.conv2d(h, p[2], p[3]).clamp(min=0), 2).reshape(3, -1)
    h = (h @ p[4].T + p[5]).clamp(min=0)
    expected = (h @ p[6].T + p[7]).clamp(min=0) @ p[8].T + p[9]
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-14)
    assert model(x).shape == (3, 7)


def test_linear_is_one_product_without_intercepts() -> None:
    model, x = Linear(12, 3).double(), normal(6, 3, 2, 2)
    (weights,) = model.parameters()
    torch.testing.assert_close(model(x), x.reshape(6, 12) @ weights.T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("norm", ["batch", "frn"])
def test_small_cnn_is_two_normalised_convolutions_and_a_linear_layer(norm: str) -> None:
    model, x = SmallCNN(5, 4, norm).double(), normal(7, 25)
    p = list(model.parameters())
    h = x.reshape(7, 1, 5, 5)
    layers = [(p[0], p[1:-2][: 2 if norm == "batch" else 3], 1), (p[3 if norm == "batch" else 4], p[-5:-2], 2)]
    for weights, own, stride in layers:
        h = F.conv2d(h, weights, padding=1, stride=stride)
        if norm == "batch":
            h = (h - h.mean((0, 2, 3), keepdim=True)) / (h.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
            h = h.clamp(min=0)  # γ = 1 and β = 0 at the start
        else:
            h = h / (h.square().mean((2, 3), keepdim=True) + 1e-6).sqrt()
            assert [float(t.detach().sum()) for t in own] == [own[0].numel(), 0, 0]
            h = h.clamp(min=0)  # and τ = 0
    expected = h.reshape(7, -1) @ p[-2].T + p[-1]
    torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-12)
    assert h.shape[1:] == (16, 3, 3) and bool(list(model.buffers())) == (norm == "batch")
