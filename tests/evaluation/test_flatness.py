"""Fisher against direct gradients and its analytic form, filter-wise directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from raychains.evaluation.loss_landscape import diagonal_fisher, direction, move, ranks_of, spectrum
from raychains.evaluation.vectors import projections
from tests.checks import refused


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


ALL = {"0.weight", "0.bias", "2.weight", "2.bias"}


def examples(n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, 5, generator=g, dtype=torch.float64), torch.randint(3, (n,), generator=g)


# Fisher


def test_fisher_equals_squared_gradients_of_each_examples_loss_in_one_batch() -> None:
    model, (x, y) = network(), examples()
    losses = F.cross_entropy(model(x), y, reduction="none")
    each = [torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for loss in losses]
    expected = torch.cat([torch.stack(g).square().mean(0).reshape(-1) for g in zip(*each, strict=True)])
    found = diagonal_fisher(
        model, range(40), lambda i: F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward(), ALL
    )
    assert found == pytest.approx(expected.numpy(), rel=1e-10)
    some = diagonal_fisher(
        model, range(40), lambda i: F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward(), {"0.weight"}
    )
    assert (some == found[: 5 * 7]).all()
    assert all(p.grad is None for p in model.parameters())


def test_a_parameter_that_the_loss_does_not_depend_on_has_no_information() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(3, 1)})
    names = dict(model.named_parameters())
    found = diagonal_fisher(model, [1.0], lambda c: (model["used"](torch.tensor([c, 2.0])) * 3).sum().backward(), names)
    by = dict(zip([n for n, p in model.named_parameters() for _ in range(p.numel())], found.tolist(), strict=True))
    assert by["used.bias"] == 9 and by["idle.bias"] == by["idle.weight"] == 0


def test_a_spectrum_keeps_sorted_eigenvalues_at_ranks_spread_over_their_logarithm() -> None:
    values = np.random.default_rng(0).gamma(0.3, size=5000)
    found = spectrum(values)
    ranks = ranks_of(found)
    assert found["trace"] == pytest.approx(values.sum()) and found["parameters"] == 5000
    ordered = np.sort(values)[::-1]
    assert [v for _, v in ranks] == [ordered[r - 1] for r, _ in ranks]
    assert ranks[0][0] == 1 and ranks[-1][0] == 5000 and 100 <= len(ranks) <= 200
    gaps = np.diff(np.log([r for r, _ in ranks if r > 500]))
    assert gaps.max() < 1.2 * gaps.min()
    assert [r for r, _ in ranks_of(spectrum(values[:3]))] == [1, 2, 3]
    with refused("eigenvalues", "finite"):
        spectrum(np.array([1.0, np.nan]))


# Directions


def test_filters_of_a_direction_have_the_norms_of_the_parameters_filters() -> None:
    g = torch.Generator().manual_seed(0)
    kernel = torch.randn(4, 3, 5, 5, generator=g)
    kernel[2] = 0
    d = direction("conv.weight", kernel, seed=3)
    assert d.shape == kernel.shape and d.dtype == torch.float64
    assert d.flatten(1).norm(dim=1).numpy() == pytest.approx(kernel.double().flatten(1).norm(dim=1).numpy(), rel=1e-12)
    raw = direction("conv.weight", kernel, seed=3, normalise="none")
    cosine = F.cosine_similarity(d.flatten(1), raw.flatten(1))[[0, 1, 3]]
    assert cosine.numpy() == pytest.approx(1, rel=1e-12), "scaled, not turned"
    assert not direction("bias", torch.ones(9), seed=3).any(), "tensors of one axis stay"
    assert direction("bias", torch.ones(9), seed=3, normalise="none").all()


def test_directions_are_standard_normal_and_differ_by_seed_and_name() -> None:
    like = torch.ones(200, 200)
    drawn = {(n, s): direction(n, like, s, "none").reshape(-1).numpy() for n in "ab" for s in (0, 1)}
    assert (direction("a", like, 0, "none").reshape(-1).numpy() == drawn["a", 0]).all()
    for values in drawn.values():  # 40,000 draws: five standard errors
        assert abs(values.mean()) < 5 / 200 and abs(values.var() - 1) < 5 * np.sqrt(2) / 200
    correlations = np.corrcoef(list(drawn.values()))[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / 200


def test_the_first_projection_is_along_the_unfiltered_direction_of_its_seed() -> None:
    """One definition of a seeded direction in the whole package."""
    theta = {"w": torch.arange(12.0).reshape(3, 4)}
    u = direction("w", theta["w"], 7, "none")
    along = projections(theta, ["w"], count=1, seed=7)["projection 1"]
    assert along == pytest.approx(float((u * theta["w"]).sum() / u.norm()), rel=1e-12)


def test_a_network_moves_by_the_sum_of_its_directions() -> None:
    model = network()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    move(model, [(0.5, 1), (-2.0, 2)], {"0.weight", "0.bias"}, "none")
    for name, p in model.named_parameters():
        step = 0.5 * direction(name, before[name], 1, "none") - 2 * direction(name, before[name], 2, "none")
        expected = before[name] + step if name.startswith("0.") else before[name]
        assert torch.equal(p, expected), name


def test_a_parameter_with_two_names_moves_once() -> None:
    model = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)])
    model[1].weight = model[0].weight
    before = model[0].weight.detach().clone()
    move(model, [(1.0, 0)], {"0.weight", "1.weight"})
    step = (model[1].weight - before).detach().norm(dim=1)
    assert step.numpy() == pytest.approx(before.norm(dim=1).numpy(), rel=1e-5)
