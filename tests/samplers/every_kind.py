"""Builds and steps a sampler of any registered kind, so that a test over `KINDS` forgets none."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from raychains.samplers import KINDS, Sampler

REQUIRED: dict[str, Any] = {"lr": 0.05, "num_data": 20, "momentum": 0.7, "eta": 0.5}
"""Values for settings without a default."""
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "psgld": [{"freeze_preconditioner_after": 7}],
    "sgnht": [
        {"thermostat_rate": 0.05}, {"thermostat_rate": 0.05, "thermostat": "scalar"}, {"integrator": "euler"},
    ],
    "atmc": [{"thermostat_rate": 0.05}, {"thermostat_rate": 0.05, "speed_limit": 1.0}],
    "emcmc": [{"momentum": 0.6}, {"update": "gibbs", "anchor_decay": 0.1}],
    "entropy-sgd": [{"inner_steps": 3, "inner_noise": 0.1}],
    "entropy-sgld": [{"inner_steps": 3, "momentum": 0.5}],
    "sam": [{"m_sharpness": 2}],
    "mclmc": [{"length": 2.0}, {"tune": 15}, {"tune": 20, "preconditioner": "diagonal"}],
    "swag": [{"collect_every": 3, "rank": 8, "scale": 0.5}],
    "laplace": [{"prediction_samples": 2}],
    "bsam": [{"m_sharpness": 2, "prediction_samples": 3}, {"beta2": 0.9, "s0": 0.5}],
}  # fmt: skip
"""Settings beside the defaults that bring states of their own."""
CASES: list[tuple[str, dict[str, Any]]] = [
    (kind, own) for kind in sorted(KINDS) for own in [{}, *VARIANTS.get(kind, [])]
]
IDS = ["-".join([kind, *(f"{k}={v}" for k, v in own.items())]) for kind, own in CASES]


def build(kind: str, params: Any, **settings: Any) -> Sampler:
    """With noise where the kind has any, and the required settings filled in."""
    signature = inspect.signature(KINDS[kind]).parameters
    required = {n for n, p in signature.items() if p.default is p.empty and n != "params"}
    missing = required - REQUIRED.keys()
    assert not missing, f"{kind} requires {missing}: give them a value in REQUIRED"
    # Laplace moves at temperature 0 alone; what it does above has a file of its own.
    temperature = 0.0 if KINDS[kind].noisy_counterpart is not None or kind == "laplace" else 1.0
    filled = {n: REQUIRED[n] for n in required | {"lr", "num_data"}}
    return KINDS[kind](params, **{**filled, "temperature": temperature, **settings})


def two_groups(kind: str, params: list[Tensor], **settings: Any) -> Sampler:
    """The second group has its own lr and decay."""
    return build(kind, [{"params": params[:2]}, {"params": params[2:], "lr": 0.02, "weight_decay": 0.1}], **settings)


def force(p: Tensor, i: int, k: int) -> Tensor:
    """A gradient that depends on the parameter, its number, the step and the coordinate, in lanes alike."""
    return torch.sin(p * (i % 3 + 1) + k) + 0.1 * p


Force = Callable[[Tensor, int, int], Tensor]


def steps(sampler: Sampler, count: int, *, start: int = 0, force: Force = force) -> None:
    """``count`` steps, by closures where the kind takes two gradients each."""
    params = sampler.parameters()

    def evaluate(k: int, part: int) -> Tensor:
        for i, p in enumerate(params):
            p.grad = force(p.detach(), i + part, k).to(p.dtype)
        return torch.zeros(())

    for k in range(start, start + count):
        if sampler.gradients_per_step == 1:
            evaluate(k, 0)
            sampler.step()
        else:
            closures: Any = [lambda k=k, part=part: evaluate(k, part) for part in range(sampler.parts)]
            sampler.step(closures)


def everything(sampler: Sampler) -> list[Any]:
    """Parameters, draws, and all states but the generators'."""
    tensors: list[Any] = [p.detach() for p in sampler.parameters()]
    tensors += [p.detach() for _, ps in sampler.draws() for p in ps]
    return tensors + [s[name] for s in sampler.state.values() for name in sorted(s)]


def same_bits(a: list[Any], b: list[Any]) -> bool:
    """Equal in number, dtype and every bit (NaN is equal to nothing, and must not appear)."""
    return len(a) == len(b) and all(map(same, a, b))


def same(x: Any, y: Any) -> bool:
    if isinstance(x, Tensor):
        return isinstance(y, Tensor) and x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y)
    return type(x) is type(y) and x == y and not (isinstance(x, float) and math.isnan(x))
