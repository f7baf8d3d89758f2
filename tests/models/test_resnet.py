"""ResNet-18 against torchvision's with its stem replaced."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from raychains.models.batchnorm import has_batchnorm
from raychains.models.frn import FRN, TLU
from raychains.models.resnet import ResNet18
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


def test_grey_images_and_bad_settings() -> None:
    assert ResNet18(7, in_channels=1)(torch.zeros(2, 1, 28, 28)).shape == (2, 7)
    with refused("norm", "layer"):
        ResNet18(10, norm="layer")
    with refused("classes", "0"):
        ResNet18(0)
