"""bSAM: its plain transcription, and draws from N(m, T/(Ns)) that change nothing and can be drawn again."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers.bsam import BSAM
from raychains.samplers.noise import Noise
from tests.checks import refused
from tests.samplers.test_sam import SHAPES, advance, gradients, tensors


def settings(params: list[Tensor]) -> list[dict[str, Any]]:
    second = {"weight_decay": 0.02, "rho": 0.3, "beta1": 0.5, "beta2": 0.8, "damping": 0.3, "s0": 2.0}
    return [{"params": params[:2]}, {"params": params[2:], **second}]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.4])
def test_it_is_the_plain_transcription(temperature: float, parts: int) -> None:
    """Each sub-minibatch j: w̃_j from one normal draw per parameter, g_j there, g′_j at m + ρ·g_j/s."""
    params, n = [t.requires_grad_() for t in tensors()], 30
    sampler = BSAM(
        settings(params), lr=0.1, num_data=n, temperature=temperature, weight_decay=0.01, m_sharpness=parts, seed=5
    )
    noise = Noise(5)
    m, average = tensors(), [torch.zeros(s, dtype=torch.float64) for s in SHAPES]
    s = [torch.full(shape, s0, dtype=torch.float64) for shape, s0 in zip(SHAPES, (1.0, 1.0, 2.0), strict=True)]
    for k in range(6):
        advance(sampler, range(k, k + 1))
        absolute, second = ([torch.zeros_like(t) for t in m] for _ in range(2))
        for j in range(parts):
            tilde = list(m)
            if temperature > 0:
                xi = [noise.like(a) for a in m]
                tilde = [a + (temperature / (n * b)).sqrt() * x for a, b, x in zip(m, s, xi, strict=True)]
            g = gradients(tilde, k, j)
            rhos = (0.01, 0.01, 0.3)
            g2 = gradients([a + r * x / b for a, r, x, b in zip(m, rhos, g, s, strict=True)], k, j)
            absolute = [a + x.abs() / parts for a, x in zip(absolute, g, strict=True)]
            second = [a + x / parts for a, x in zip(second, g2, strict=True)]
        for i in range(3):
            lr = 0.05 * (1 + k % 3) if i < 2 else 0.1
            b1, b2, damping, delta = (0.9, 0.999, 0.1, 0.01) if i < 2 else (0.5, 0.8, 0.3, 0.02)
            average[i] = b1 * average[i] + (1 - b1) * (second[i] + delta * m[i])
            m[i] = m[i] - lr * average[i] / s[i]
            s[i] = b2 * s[i] + (1 - b2) * (s[i].sqrt() * absolute[i] + damping + delta)
            torch.testing.assert_close(params[i].detach(), m[i], rtol=1e-11, atol=1e-13)
            torch.testing.assert_close(sampler.state[params[i]]["s"], s[i], rtol=1e-11, atol=1e-13)
    inverse = float(torch.cat([(1 / x).flatten() for x in s[:2]]).mean())
    assert sampler.effective_noise_std() == pytest.approx(math.sqrt(temperature * inverse / n), rel=1e-9)


def drawn(sampler: BSAM) -> list[list[Tensor]]:
    draws = list(sampler.draws())
    assert {name for name, _ in draws} == {"theta"}
    return [values for _, values in draws]


def test_drawing_changes_nothing_and_can_be_repeated() -> None:
    def run(draw: bool) -> tuple[BSAM, list[list[Tensor]]]:
        sampler = BSAM(
            settings([t.requires_grad_() for t in tensors()]),
            lr=0.1,
            num_data=5,
            m_sharpness=2,
            prediction_samples=3,
            seed=7,
        )
        for k in range(4):
            if draw:
                drawn(sampler)
            advance(sampler, range(k, k + 1))
        return sampler, drawn(sampler)

    (quiet, one), (busy, two) = run(False), run(True)
    for a, b in zip(quiet.parameters(), busy.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(one) == 3
    for values in (two, drawn(busy)):
        assert all(torch.equal(a, b) for x, y in zip(one, values, strict=True) for a, b in zip(x, y, strict=True))
    resumed = BSAM(
        settings([p.detach().clone().requires_grad_() for p in quiet.parameters()]),
        lr=0.1, num_data=5, m_sharpness=2, prediction_samples=3, seed=1,
    )  # fmt: skip
    resumed.load_state_dict(copy.deepcopy(quiet.state_dict()))
    again = drawn(resumed)
    assert all(torch.equal(a, b) for x, y in zip(one, again, strict=True) for a, b in zip(x, y, strict=True))
    advance(resumed, range(4, 5))
    noise = [
        (x - p.detach())[0, 0] for x, p in ((one[0][0], quiet.parameters()[0]), (one[1][0], quiet.parameters()[0]))
    ]
    assert noise[0] != noise[1], "draws of one step differ"
    later = (drawn(resumed)[0][0] - resumed.parameters()[0].detach()) / (one[0][0] - quiet.parameters()[0].detach())
    assert float(later.std()) > 0.1, "another update has other noise, not the same rescaled"


def test_draws_have_the_variational_law() -> None:
    """Mean m and variance T/(Ns) within 5 standard errors, for the s0 of each group before any update."""
    count, n, temperature = 40_000, 8, 0.5
    first, second = (torch.full((count,), value, dtype=torch.float64, requires_grad=True) for value in (1.0, -3.0))
    groups = [{"params": [first], "s0": 0.25}, {"params": [second], "s0": 4.0}]
    sampler = BSAM(groups, lr=0.1, num_data=n, temperature=temperature, prediction_samples=2, seed=1)
    before = copy.deepcopy(sampler.state_dict())
    for values in drawn(sampler):
        for w, mean, s in zip(values, (1.0, -3.0), (0.25, 4.0), strict=True):
            variance = temperature / (n * s)
            assert float(w.mean()) == pytest.approx(mean, abs=5 * math.sqrt(variance / count))
            assert float((w - mean).square().mean()) == pytest.approx(variance, rel=5 * math.sqrt(2 / count))
    assert sampler.state_dict()["state"] == before["state"] == {}
    for group in sampler.param_groups:
        group["temperature"] = 0.0
    assert all(torch.equal(w, p) for v in drawn(sampler) for w, p in zip(v, sampler.parameters(), strict=True))


def test_variables_count_the_prediction_samples() -> None:
    assert BSAM.variables({"prediction_samples": 5}) == {"theta": 5}
    assert BSAM.variables({}) == {"theta": 1}
    assert not BSAM.statistics_fit


def test_draws_of_bf16_parameters_are_bf16() -> None:
    sampler = BSAM([t.requires_grad_() for t in tensors(torch.bfloat16)], lr=0.1, num_data=5, m_sharpness=1)
    advance(sampler, range(2))
    assert {w.dtype for values in drawn(sampler) for w in values} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rho", 0.0), ("rho", math.nan), ("beta1", 1.0), ("beta1", -0.1), ("beta2", 1.0), ("beta2", 0.0),
        ("damping", -0.1), ("damping", "1"), ("s0", 0.0), ("m_sharpness", 0), ("prediction_samples", 0),
        ("prediction_samples", True), ("num_data", 0), ("temperature", -1.0), ("lr", math.inf),
    ],
)  # fmt: skip
def test_bad_setting_is_refused_in_one_line(field: str, value: Any) -> None:
    with refused(field):
        BSAM([torch.zeros(2, requires_grad=True)], **{"lr": 0.1, "num_data": 4, field: value})
