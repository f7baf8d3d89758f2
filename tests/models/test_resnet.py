"""ResNet-18 against torchvision's with its stem replaced; the thin networks against a plain transcription."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains.models.batchnorm import has_batchnorm
from raychains.models.frn import FRN, TLU
from raychains.models.resnet import ResNet18, ThinResNet
from tests.checks import refused


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def torchvisions(classes: int) -> nn.Module:
    from torchvision.models import resnet18

    model = resnet18(weights=None, num_classes=classes)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(4, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_it_has_as_many_parameters_as_published_and_as_torchvisions() -> None:
    assert count(ResNet18(10)) == 11_173_962 == count(torchvisions(10))
    assert count(ResNet18(100)) == count(torchvisions(100))


@pytest.mark.parametrize("training", [False, True])
def test_it_computes_what_torchvisions_does(images: torch.Tensor, training: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours, theirs = ResNet18(10).double(), torchvisions(10).double()
        for p in ours.parameters():  # BatchNorm's own start, 1 and 0, would hide a swap
            if p.ndim == 1:
                nn.init.uniform_(p, 0.5, 1.5)
    theirs.load_state_dict({k.replace("norm", "bn"): v for k, v in ours.state_dict().items()})
    ours.train(training), theirs.train(training)
    a, b = ours(images), theirs(images)
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert a.std() > 0.01


def test_weights_start_as_torchvisions_law() -> None:
    """Kaiming normal, fan-out: sd √(2/(out·k²)); 2.4 million weights, so the sample sd is exact to 5/√(2n) = .0023."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ResNet18(10)
    w = model.get_submodule("layer4.1.conv2").weight
    assert isinstance(w, torch.Tensor)
    assert abs(float(w.detach().std()) / (2 / (512 * 9)) ** 0.5 - 1) < 5 / (2 * w.numel()) ** 0.5


def test_frn_takes_the_place_of_every_batchnorm_and_tlu_of_every_relu(images: torch.Tensor) -> None:
    batch, frn = ResNet18(10), ResNet18(10, norm="frn").double()
    kinds = [type(m) for m in batch.modules()]
    assert has_batchnorm(batch) and not has_batchnorm(frn)
    swapped = {nn.BatchNorm2d: FRN, nn.ReLU: TLU}
    assert [type(m) for m in frn.modules()] == [swapped.get(k, k) for k in kinds]
    assert not list(frn.buffers())
    thresholds = sum(m.threshold.numel() for m in frn.modules() if isinstance(m, TLU))
    assert thresholds == 64 + 4 * (64 + 128 + 256 + 512) == count(frn) - count(batch)
    torch.testing.assert_close(frn(images)[:1], frn(images[:1]), rtol=1e-10, atol=1e-12)


def test_grey_images_are_taken() -> None:
    assert ResNet18(7, in_channels=1)(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (56, 853_018)])
def test_thin_networks_have_as_many_parameters_as_their_layers(depth: int, parameters: int) -> None:
    """He et al. 2016, Table 6: .27 million at depth 20, .85 million at depth 56; every convolution is counted here."""
    n, widths = (depth - 2) // 6, [16, 16, 32, 64]
    layers = [(3, 16)]
    for before, width in itertools.pairwise(widths):
        layers += [(before, width)] + [(width, width)] * (2 * n - 1)
    by_hand = sum(9 * a * b + 2 * b for a, b in layers) + 64 * 10 + 10
    model = ThinResNet(depth)
    assert count(model) == by_hand == parameters and len(layers) == depth - 1
    assert sum(isinstance(m, nn.Conv2d) for m in model.modules()) == depth - 1  # shortcuts have no parameters


@pytest.mark.parametrize("training", [False, True])
def test_a_thin_network_is_blocks_around_shortcuts_of_zeros(images: Tensor, training: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ThinResNet(14, classes=5).double().train(training)
        for p in model.parameters():
            if p.ndim == 1:
                nn.init.uniform_(p, 0.5, 1.5)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]

    def normed(h: Tensor, stride: int = 1) -> Tensor:
        convolution, norm = layers.pop(0), layers.pop(0)
        h = F.conv2d(h, convolution.weight, stride=stride, padding=1)
        if training:
            var, mean = torch.var_mean(h, (0, 2, 3), correction=0, keepdim=True)
            spread = (h - mean) / (var + 1e-5).sqrt()
        else:
            spread = h / (1 + 1e-5) ** 0.5  # where running statistics start
        return spread * norm.weight.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)

    h = normed(images).clamp(min=0)
    for stage, width in enumerate((16, 32, 64)):
        for i in range(2):
            stride = 2 if stage and not i else 1
            branch = normed(normed(h, stride).clamp(min=0))
            shortcut = torch.zeros_like(branch)
            shortcut[:, : h.shape[1]] = h[:, :, ::stride, ::stride]
            h = (branch + shortcut).clamp(min=0)
            assert h.shape == (4, width, 32 >> stage, 32 >> stage)
    expected = h.sum((2, 3)) / 64 @ model.fc.weight.T + model.fc.bias
    assert not layers and expected.std() > 0.01
    torch.testing.assert_close(model(images), expected, rtol=1e-10, atol=1e-10)


def test_thin_networks_of_other_depths_are_refused() -> None:
    for depth in (2, 18, "20"):
        with refused("depth", str(depth)):
            ThinResNet(depth)  # type: ignore[arg-type]
