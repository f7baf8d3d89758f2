"""The network that HMC sampled on CIFAR-10, against a transcription of the published JAX model in einsums over
patches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from raychains.models.frn import TLU
from raychains.models.resnet_frn_silu import RectifiedTLU, ResNetFrnSilu
from tests.checks import refused

Array = np.ndarray


def made(depth: int = 8, width: int = 3, **settings: int) -> ResNetFrnSilu:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ResNetFrnSilu(depth, width=width, **settings).double()
        for p in model.parameters():  # starting values, 0 and 1, would hide a swap
            if p.ndim == 1:
                nn.init.uniform_(p, -0.5, 1.5)
    return model


def same_convolution(x: Array, w: Array, b: Array, stride: int) -> Array:
    """[n, h, w, c] by TensorFlow's rule SAME, one output position after the other."""
    k, sizes = w.shape[-1], x.shape[1:3]
    outs = [-(-n // stride) for n in sizes]
    pads = [max((o - 1) * stride + k - n, 0) for o, n in zip(outs, sizes, strict=True)]
    padded = np.pad(x, [(0, 0), *((p // 2, p - p // 2) for p in pads), (0, 0)])
    out = np.empty((len(x), *outs, len(w)))
    for i, j in np.ndindex(*outs):
        patch = padded[:, i * stride : i * stride + k, j * stride : j * stride + k]
        out[:, i, j] = np.einsum("nhwc,ochw->no", patch, w) + b
    return out


def swish(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def transcription(model: ResNetFrnSilu, x: Array, blocks: int, width: int) -> Array:
    """make_resnet_fn of bnn_hmc's models.py, on arrays [n, h, w, c]; parameters are taken in the order of its
    layers."""
    parameters = [p.detach().numpy() for p in model.parameters()]

    def layer(x: Array, filters: int, kernel: int = 3, stride: int = 1, activation: bool = False) -> Array:
        w, b, gamma, beta, tau = (parameters.pop(0) for _ in range(5))
        assert w.shape == (filters, x.shape[-1], kernel, kernel)
        x = same_convolution(x, w, b, stride)
        x = x / np.sqrt((x**2).mean(axis=(1, 2), keepdims=True) + 1e-6)
        x = np.maximum(gamma * x + beta, tau)
        return swish(x) if activation else x

    x = layer(x, width, activation=True)
    for stack in range(3):
        filters = width * 2**stack
        for block in range(blocks):
            first = stack > 0 and block == 0
            y = layer(x, filters, stride=2 if first else 1, activation=True)
            y = layer(y, filters)
            if first:
                x = layer(x, filters, kernel=1, stride=2)
            x = swish(x + y)
    weight, bias = parameters
    n, side = len(x), x.shape[1] // 8
    assert side == 1  # its pooling is over 8 × 8, and the linear layer sees what is left
    return x.reshape(n, 64, -1).mean(axis=1) @ weight.T + bias


@pytest.mark.parametrize(("depth", "width", "classes"), [(8, 3, 4), (14, 2, 10)])
def test_it_computes_what_the_published_model_does(depth: int, width: int, classes: int) -> None:
    model = made(depth, width, classes=classes)
    images = np.random.default_rng(0).standard_normal((2, 32, 32, 3))
    with torch.no_grad():
        ours = model(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    expected = transcription(model, images, (depth - 2) // 6, width)
    assert expected.std() > 0.01
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-10)


def test_strided_layers_pad_odd_sizes_as_published_too() -> None:
    layer = made().blocks[1].first  # type: ignore[union-attr]
    x = np.random.default_rng(1).standard_normal((1, 7, 8, 3))
    conv = layer.conv  # type: ignore[union-attr]
    expected = same_convolution(x, conv.weight.detach().numpy(), conv.bias.detach().numpy(), 2)
    expected = expected / np.sqrt((expected**2).mean(axis=(1, 2), keepdims=True) + 1e-6)
    norm, tau = layer.norm, layer.threshold.threshold.detach().numpy()  # type: ignore[union-attr]
    expected = np.maximum(norm.weight.detach().numpy() * expected + norm.bias.detach().numpy(), tau)
    with torch.no_grad():
        ours = layer(torch.from_numpy(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).numpy()  # type: ignore[operator]
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


def test_its_threshold_has_the_value_and_the_gradients_of_the_maximum() -> None:
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((4, 3, 5, 5))).requires_grad_()
    found = []
    for kind in (TLU, RectifiedTLU):
        layer = kind(3).double()
        with torch.no_grad():
            layer.threshold.copy_(torch.tensor([-1.0, 0.0, 0.5]))
        y = layer(x)
        found.append([y.detach(), *torch.autograd.grad((y * x.detach()).sum(), [x, layer.threshold])])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-14)


def test_it_has_as_many_parameters_as_published_and_nothing_depends_on_the_batch() -> None:
    assert sum(p.numel() for p in ResNetFrnSilu().parameters()) == 274_042
    model, x = made(), torch.randn(3, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert not list(model.buffers())
    torch.testing.assert_close(model(x)[:1], model(x[:1]), rtol=1e-10, atol=1e-12)


def test_weights_start_with_variance_two_over_fan_in() -> None:
    """37k weights of the largest layer: their sd is exact to 5/√(2n)."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ResNetFrnSilu()
    weights = [p.detach() for p in model.parameters() if p.ndim == 4]
    large = max(weights, key=torch.Tensor.numel)
    assert abs(float(large.std()) / (2 / (64 * 9)) ** 0.5 - 1) < 5 / (2 * large.numel()) ** 0.5
    ones = {name.rpartition(".")[2] for name, p in model.named_parameters() if p.ndim == 1 and bool((p == 1).all())}
    zeros = {name.rpartition(".")[2] for name, p in model.named_parameters() if p.ndim == 1 and bool((p == 0).all())}
    assert ones == {"weight"} and zeros == {"bias", "threshold"}


def test_wrong_sizes_are_refused() -> None:
    for settings in ({"depth": 18}, {"width": 0}, {"classes": 0}):
        ((name, value),) = settings.items()
        with refused(name, str(value)):
            ResNetFrnSilu(**settings)
