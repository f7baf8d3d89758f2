"""Models by name: all of them work, mistakes are one line, and torchvision is loaded for its own model alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from raychains.models import NAMES, build, revision
from raychains.models.cnn import LeNet, SmallCNN
from raychains.models.mlp import MLP, Linear
from raychains.models.resnet import ResNet18
from raychains.models.resnet_plus import ResNetPlus
from tests.checks import refused

CASES: list[tuple[str, dict[str, Any], tuple[int, ...], int]] = [
    ("mlp", {"inputs": 9, "hidden": [4], "outputs": 3}, (2, 9), 3),
    ("mlp3", {}, (2, 1, 28, 28), 10),
    ("linear", {"inputs": 9, "outputs": 2}, (2, 3, 3), 2),
    ("lenet", {"in_channels": 3, "classes": 5, "size": 32}, (2, 3, 32, 32), 5),
    ("small_cnn", {"norm": "frn"}, (2, 64), 10),
    ("resnet18", {"classes": 10, "norm": "frn"}, (2, 3, 32, 32), 10),
    ("resnet_thin", {"depth": 8, "norm": "frn"}, (2, 3, 32, 32), 10),
    ("resnet_frn_silu", {"depth": 8, "width": 4}, (2, 3, 32, 32), 10),
    ("resnet_plus", {"depth": 8, "width": 4}, (2, 3, 32, 32), 10),
    ("resnet50", {"classes": 6}, (2, 3, 32, 32), 6),
]


@pytest.mark.parametrize(("name", "settings", "shape", "outputs"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_name_builds_a_network_that_learns_in_either_precision(
    name: str, settings: dict[str, Any], shape: tuple[int, ...], outputs: int, dtype: torch.dtype
) -> None:
    model = build(name, **settings).to(dtype)
    y = model(torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)))
    assert y.shape == (shape[0], outputs) and y.dtype == dtype and bool(y.isfinite().all())
    y.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    assert isinstance(revision(name), int) and revision(name) >= 1


def test_the_cases_above_are_all_names() -> None:
    assert [c[0] for c in CASES] == list(NAMES)


@pytest.mark.parametrize("name", ["mlp3", "lenet", "resnet_plus"])
def test_equal_seeds_give_equal_networks(name: str) -> None:
    def made(seed: int) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return torch.cat([p.detach().flatten() for p in build(name).parameters()])

    assert torch.equal(made(3), made(3)) and not torch.equal(made(3), made(4))


BAD: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
    (lambda: ResNet18(10, norm="layer"), ("norm", "layer")),
    (lambda: ResNet18(0), ("classes", "0")),
    *((lambda depth=depth: ResNetPlus(depth), ("depth",)) for depth in (2, 9, 57, "56")),
    (lambda: ResNetPlus(8, branch_scale=0), ("branch_scale", "0")),
    (lambda: ResNetPlus(8, width=0), ("width", "0")),
    (lambda: SmallCNN(norm="layer"), ("norm", "layer")),
    (lambda: Linear(3, 0), ("outputs", "0")),
    (lambda: LeNet(1, 10, 15), ("size", "15", "16")),
    (lambda: LeNet(0, 10, 28), ("in_channels", "0")),
    (lambda: MLP(3, [0], 2), ("hidden", "0")),
    (lambda: build("mlp3", width=0), ("width", "0")),
    (lambda: MLP(3, 5, 2), ("hidden", "5")),  # type: ignore[arg-type]
    (lambda: MLP(0, [3], 2), ("inputs",)),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[" ".join(words) for _, words in BAD])
def test_a_bad_setting_is_one_line(make: Callable[[], Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        make()


def test_mistakes_are_one_line() -> None:
    with refused("model", "resnet18", "resnet-18"):
        build("resnet-18")
    with refused("model", "lenet5"):
        revision("lenet5")
    with refused("lenet", "colour"):
        build("lenet", colour=True)
    with refused("resnet18", "classes"):
        build("resnet18")
    for name in ("resnet_plus", "resnet_thin", "resnet_frn_silu"):
        with refused("depth", "9"):
            build(name, depth=9)
    with refused("classes", "0"):
        build("resnet50", classes=0)


def test_imagenets_network_is_torchvisions() -> None:
    assert sum(p.numel() for p in build("resnet50").parameters()) == 25_557_032  # torchvision's documentation
