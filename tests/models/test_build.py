"""Models by name: all of them work, mistakes are one line, and torchvision is loaded for its own model alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest
import torch

from raychains.models import NAMES, build, revision
from tests.checks import refused

CASES: list[tuple[str, dict[str, Any], tuple[int, ...], int]] = [
    ("mlp", {"inputs": 9, "hidden": [4], "outputs": 3}, (2, 9), 3),
    ("mlp3", {}, (2, 1, 28, 28), 10),
    ("linear", {"inputs": 9, "outputs": 2}, (2, 3, 3), 2),
    ("lenet", {"in_channels": 3, "classes": 5, "size": 32}, (2, 3, 32, 32), 5),
    ("small_cnn", {"norm": "frn"}, (2, 64), 10),
    ("resnet18", {"classes": 10, "norm": "frn"}, (2, 3, 32, 32), 10),
    ("resnet_thin", {"depth": 8, "norm": "frn"}, (2, 3, 32, 32), 10),
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


def test_mistakes_are_one_line() -> None:
    with refused("model", "resnet18", "resnet-18"):
        build("resnet-18")
    with refused("model", "lenet5"):
        revision("lenet5")
    with refused("lenet", "colour"):
        build("lenet", colour=True)
    with refused("resnet18", "classes"):
        build("resnet18")
    for name in ("resnet_plus", "resnet_thin"):
        with refused("depth", "9"):
            build(name, depth=9)
    with refused("classes", "0"):
        build("resnet50", classes=0)


def test_imagenets_network_is_torchvisions() -> None:
    assert sum(p.numel() for p in build("resnet50").parameters()) == 25_557_032  # torchvision's documentation


def test_only_imagenets_network_loads_torchvision() -> None:
    code = (
        "import sys\nfrom raychains.models import build\n"
        "build('resnet18', classes=10), build('resnet_plus', depth=8), build('lenet')\n"
        "print([n in sys.modules for n in ('torch', 'torchvision', 'scipy')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == [True, False, False]
