"""Weight-normalised layers against torch's own weight_norm, and where they start."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from raychains.models.resnet_plus import Conv2d, Linear, WeightNormalized

CASES = [
    ("linear", lambda: Linear(6, 4), lambda: nn.Linear(6, 4), (5, 6)),
    ("3×3", lambda: Conv2d(3, 4, 3), lambda: nn.Conv2d(3, 4, 3, padding=1), (5, 3, 7, 7)),
    ("1×1 stride 2", lambda: Conv2d(3, 4, 1, stride=2), lambda: nn.Conv2d(3, 4, 1, stride=2), (5, 3, 7, 7)),
    ("7×7 stride 2", lambda: Conv2d(3, 4, 7, stride=2), lambda: nn.Conv2d(3, 4, 7, stride=2, padding=3), (5, 3, 9, 9)),
]


def seeded(make: object, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double()  # type: ignore[operator]


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("ours", "torchs", "shape"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_outputs_and_gradients_equal_torchs_weight_norm(ours: object, torchs: object, shape: tuple[int, ...]) -> None:
    layer, oracle = seeded(ours), weight_norm(seeded(torchs))
    assert isinstance(layer, WeightNormalized)
    with torch.no_grad():  # directions far from norm 1, scales and biases far from their start
        layer.direction.copy_(3 * normal(*layer.direction.shape))
        layer.scale.copy_(normal(4, seed=2))
        layer.bias.copy_(normal(4, seed=3))
        oracle.parametrizations.weight.original1.copy_(layer.direction)
        oracle.parametrizations.weight.original0.copy_(layer.scale.view_as(oracle.parametrizations.weight.original0))
        oracle.bias.copy_(layer.bias)
    x = normal(*shape, seed=4)
    a, b = layer(x), oracle(x)
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for y in (a, b):
        (y * normal(*a.shape, seed=5)).sum().backward()
    for mine, theirs in (
        (layer.direction, oracle.parametrizations.weight.original1),
        (layer.scale, oracle.parametrizations.weight.original0),
        (layer.bias, oracle.bias),
    ):
        assert mine.grad is not None and mine.grad.abs().min() > 0
        torch.testing.assert_close(mine.grad, theirs.grad.view_as(mine), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_start_on_the_unit_sphere_scales_at_the_given_value_biases_at_zero(dtype: torch.dtype) -> None:
    layer = seeded(lambda: Conv2d(8, 32, 3, scale=0.1)).to(dtype)
    assert isinstance(layer, WeightNormalized)
    norms = layer.direction.flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(32, dtype=dtype), rtol=0, atol=1e-6)  # made in float32
    torch.testing.assert_close(layer.scale, torch.full((32,), 0.1, dtype=dtype), rtol=0, atol=1e-7)
    assert layer.bias.abs().max() == 0
    assert {n for n, _ in layer.named_parameters()} == {"direction", "scale", "bias"}
    assert len(torch.unique(layer.direction)) == layer.direction.numel()


def test_variance_is_kept_at_scale_1_and_multiplied_by_the_scale_squared() -> None:
    """With ‖v‖ = 1 and x ~ N(0, I) each output is N(0, s²): n of one feature are independent, s.e. of var = √(2/n)."""
    n = 40_000
    for scale in (1.0, 0.1):
        layer = seeded(lambda s=scale: Linear(50, 3, scale=s))
        var = layer(normal(n, 50)).var(dim=0) / scale**2
        assert (var - 1).abs().max() < 5 * math.sqrt(2 / n), var
