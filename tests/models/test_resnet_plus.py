"""ResNet++ keeps variances over its depth, learns, and has no BatchNorm: on real CIFAR-10 images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.models.batchnorm import has_batchnorm
from raychains.models.resnet_plus import Conv2d, Linear, ResNetPlus, WeightNormalized, norms
from raychains.samplers import SGDM

LR, MOMENTUM = 0.05, 0.9
"""The documented ones."""


@pytest.fixture(scope="module")
def cifar() -> tuple[Tensor, Tensor]:
    """The first 64 training images [64, 3, 32, 32], normalised per channel, and labels."""
    root = os.environ.get("RAYCHAINS_DATA")
    if not root:
        pytest.skip("RAYCHAINS_DATA is not set: it names the folder with cifar-10-batches-py")
    if not (Path(root) / "cifar-10-batches-py").is_dir():
        pytest.skip("RAYCHAINS_DATA has no cifar-10-batches-py")
    from torchvision.datasets import CIFAR10

    data = CIFAR10(root, train=True, download=False)
    x = torch.from_numpy(data.data[:64]).permute(0, 3, 1, 2).float()
    x = (x - x.mean(dim=(0, 2, 3), keepdim=True)) / x.std(dim=(0, 2, 3), keepdim=True)
    return x, torch.tensor(data.targets[:64])


def made(seed: int = 0, **settings: float | int) -> ResNetPlus:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return ResNetPlus(**settings)  # type: ignore[arg-type]


def block_variances(model: ResNetPlus, x: Tensor) -> list[float]:
    """Variance of each block's output over examples, channels and positions."""
    found: list[float] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _module, _inputs, y: found.append(float(y.var())))
    with torch.no_grad():
        model(x)
    return found


# What makes it work: real images, depth 56


def test_block_variances_stay_level_at_initialisation(cifar: tuple[Tensor, Tensor]) -> None:
    variances = block_variances(made(depth=56), cifar[0][:16])
    assert len(variances) == 27
    assert max(variances) < 3 * min(variances), variances


def test_block_variances_explode_with_last_scales_of_1(cifar: tuple[Tensor, Tensor]) -> None:
    """So that the test above can fail."""
    variances = block_variances(made(depth=56, branch_scale=1.0), cifar[0][:16])
    assert variances[-1] > 50 * variances[0], variances


@pytest.mark.long
def test_it_learns_16_images(cifar: tuple[Tensor, Tensor]) -> None:
    x, y = cifar[0][:16], cifar[1][:16]
    model = made(depth=56)
    optimizer = SGDM(model.parameters(), lr=LR, momentum=MOMENTUM)
    losses: list[float] = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        losses.append(float(loss.detach()))
        if losses[-1] < losses[0] / 2:
            break
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0] / 2, losses


def test_the_documented_step_size_is_the_tested_one() -> None:
    assert f"lr {LR}".replace("0.", ".") in str(ResNetPlus.__doc__)
    assert f"momentum {MOMENTUM}".replace("0.", ".") in str(ResNetPlus.__doc__)


# What it is made of


@pytest.mark.parametrize("depth", [56, 50])
def test_no_batchnorm_only_weight_normalised_layers_of_norm_1(depth: int) -> None:
    model = made(depth=depth, width=8)
    assert not has_batchnorm(model) and not list(model.buffers())
    layers = [m for m in model.modules() if not list(m.children()) and list(m.parameters(recurse=False))]
    assert len(layers) > depth - 1 and all(isinstance(m, WeightNormalized) for m in layers)
    for layer in layers:
        assert isinstance(layer, WeightNormalized)
        n = norms(layer.direction)
        torch.testing.assert_close(n, torch.ones_like(n), rtol=0, atol=1e-5)
    named = dict(model.named_parameters())
    last = f"branch.{2 if depth == 50 else 1}.scale"
    for name, p in named.items():
        if name.endswith("scale"):
            expected = 0.1 if name.endswith(last) else 1.0
            torch.testing.assert_close(p, torch.full_like(p, expected))
    assert sum(n.endswith(last) for n in named) == (16 if depth == 50 else 27)


def test_parameter_count_of_depth_56() -> None:
    def conv(i: int, o: int, k: int) -> int:
        return o * (i * k * k + 2)  # directions, scale and bias

    total = conv(3, 32, 3) + conv(128, 10, 1)
    for stage, width in enumerate((32, 64, 128)):
        inputs = width // 2 if stage else width
        total += conv(inputs, width, 3) + 17 * conv(width, width, 3) + (conv(inputs, width, 1) if stage else 0)
    assert sum(p.numel() for p in ResNetPlus().parameters()) == total


def test_depth_50_has_the_convolutions_of_torchvisions_resnet50() -> None:
    from torchvision.models import resnet50

    theirs = [tuple(m.weight.shape) for m in resnet50().modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    ours = [tuple(m.direction.shape) for m in ResNetPlus(50, 1000).modules() if isinstance(m, WeightNormalized)]
    assert sorted(map(str, ours)) == sorted(map(str, theirs))


def weight(model: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """w = s·v/‖v‖ feature by feature, and the bias."""
    layer = model.get_submodule(name)
    assert isinstance(layer, Conv2d | Linear)
    return torch.stack(
        [s * v / (v * v).sum().sqrt() for s, v in zip(layer.scale, layer.direction, strict=True)]
    ), layer.bias


def scrambled(model: ResNetPlus) -> ResNetPlus:
    generator = torch.Generator().manual_seed(1)
    model.double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, dtype=p.dtype, generator=generator) * 0.7)
    return model


def test_depth_8_is_its_definition() -> None:
    model = scrambled(made(depth=8, classes=5, width=4))
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    h = F.conv2d(x, *weight(model, "stem"), padding=1)
    for i, stride in enumerate((1, 2, 2)):
        a = F.selu(h)
        b = F.conv2d(a, *weight(model, f"blocks.{i}.branch.0"), stride=stride, padding=1)
        b = F.conv2d(F.selu(b), *weight(model, f"blocks.{i}.branch.1"), padding=1)
        shortcut = h if stride == 1 else F.conv2d(a, *weight(model, f"blocks.{i}.projection"), stride=2)
        h = shortcut + b
    w, bias = weight(model, "head")
    expected = F.selu(h).mean(dim=(2, 3)) @ w.T + bias
    torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-10)


def test_depth_50_begins_and_projects_as_defined() -> None:
    model = scrambled(made(depth=50, classes=5, width=4))
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    h = F.max_pool2d(F.conv2d(x, *weight(model, "stem"), stride=2, padding=3), 3, stride=2, padding=1)
    counts = iter([(s, i) for s, n in enumerate((3, 4, 6, 3)) for i in range(n)])
    for k, (stage, i) in enumerate(counts):
        stride = 2 if stage > 0 and i == 0 else 1
        a = F.selu(h)
        b = F.selu(F.conv2d(a, *weight(model, f"blocks.{k}.branch.0")))
        b = F.selu(F.conv2d(b, *weight(model, f"blocks.{k}.branch.1"), stride=stride, padding=1))
        b = F.conv2d(b, *weight(model, f"blocks.{k}.branch.2"))
        h = b + (F.conv2d(a, *weight(model, f"blocks.{k}.projection"), stride=stride) if i == 0 else h)
    w, bias = weight(model, "head")
    torch.testing.assert_close(model(x), F.selu(h).mean(dim=(2, 3)) @ w.T + bias, rtol=1e-8, atol=1e-8)
