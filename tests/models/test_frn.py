"""Filter response normalisation and TLU against the paper's formulas in numpy."""

from __future__ import annotations

import numpy as np
import torch

from raychains.models.frn import EPS, FRN, TLU


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape) * 3 + 1


def test_frn_is_the_papers_formula() -> None:
    x = images(4, 3, 5, 6)
    gamma, beta = np.array([0.5, -2.0, 3.0]), np.array([1.0, 0.0, -4.0])
    layer = FRN(3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(gamma))
        layer.bias.copy_(torch.from_numpy(beta))
    expected = np.empty_like(x)
    for n in range(4):
        for c in range(3):
            nu2 = (x[n, c] ** 2).sum() / 30
            expected[n, c] = gamma[c] * x[n, c] / np.sqrt(nu2 + EPS) + beta[c]
    np.testing.assert_allclose(layer(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-12)


def test_frn_starts_as_plain_normalisation_with_mean_square_1() -> None:
    y = FRN(3).double()(torch.from_numpy(images(4, 3, 8, 8)))
    torch.testing.assert_close(y.square().mean(dim=(2, 3)), torch.ones(4, 3, dtype=torch.float64), rtol=1e-5, atol=0)


def test_tlu_is_the_maximum_with_its_threshold_and_learns_it() -> None:
    x = images(4, 3, 5, 5)
    tau = np.array([-1.0, 0.0, 2.0])
    layer = TLU(3).double()
    np.testing.assert_array_equal(layer(torch.from_numpy(x)).detach().numpy(), np.maximum(x, 0))  # starts as ReLU
    with torch.no_grad():
        layer.threshold.copy_(torch.from_numpy(tau))
    y = layer(torch.from_numpy(x))
    np.testing.assert_array_equal(y.detach().numpy(), np.maximum(x, tau[:, None, None]))
    y.sum().backward()
    assert layer.threshold.grad is not None
    np.testing.assert_array_equal(layer.threshold.grad.numpy(), (x < tau[:, None, None]).sum(axis=(0, 2, 3)))
