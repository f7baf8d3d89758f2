"""The samplers under test, with the linear update each claims, and the Gaussian that all are put through."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raychains.samplers.atmc import ATMC
from raychains.samplers.emcmc import EntropyMCMC
from raychains.samplers.psgld import PSGLD
from raychains.samplers.sgd import SGD, SGDM
from raychains.samplers.sghmc import SGHMC
from raychains.samplers.sgld import SGLD
from raychains.samplers.sgnht import SGNHT
from tests.samplers import laws
from tests.samplers.laws import Law, Problem, Update
from tests.samplers.simulate import ALPHA, WARM, Method, frozen, still

STILL = {"momentum": 0.7, "thermostat_rate": 0.0}
LINEAR = {
    "sgld": Method(kind=SGLD, law=laws.velocity),
    "sghmc": Method(kind=SGHMC, law=laws.velocity, settings={"momentum": 0.8}),
    "sghmc-estimate": Method(kind=SGHMC, law=laws.velocity, settings={"momentum": 0.7, "noise_estimate": 0.1}),
    "psgld-frozen": Method(
        kind=PSGLD, law=frozen, settings={"alpha": ALPHA, "eps": 0.1, "freeze_preconditioner_after": WARM}
    ),
    "emcmc": Method(kind=EntropyMCMC, law=laws.entropy, settings={"eta": 0.3}),
    "emcmc-momentum": Method(kind=EntropyMCMC, law=laws.entropy, settings={"eta": 0.3, "momentum": 0.7}),
    "emcmc-gibbs": Method(kind=EntropyMCMC, law=laws.entropy, settings={"eta": 0.3, "update": "gibbs"}),
    "emcmc-gibbs-momentum": Method(
        kind=EntropyMCMC, law=laws.entropy, settings={"eta": 0.3, "update": "gibbs", "momentum": 0.7}
    ),
    "emcmc-decay": Method(kind=EntropyMCMC, law=laws.entropy, settings={"eta": 0.3, "anchor_decay": 0.2}),
    "emcmc-gibbs-decay": Method(
        kind=EntropyMCMC, law=laws.entropy, settings={"eta": 0.3, "anchor_decay": 0.2, "update": "gibbs"}
    ),
    "sgnht-still": Method(kind=SGNHT, law=still, settings={**STILL, "integrator": "strang"}),
    "sgnht-still-euler": Method(kind=SGNHT, law=still, settings={**STILL, "integrator": "euler"}),
    "atmc-still": Method(kind=ATMC, law=still, settings={**STILL, "integrator": "strang"}),
    "atmc-still-euler": Method(kind=ATMC, law=still, settings={**STILL, "integrator": "euler"}),
}
"""Every sampler that is linear, and the thermostats while they stand still."""

UNBIASED = [name for name in LINEAR if "estimate" not in name]
"""Those that reach their target as lr → 0; a constant noise estimate is too large for noise that vanishes."""

RUNNING = {
    "sgnht": Method(kind=SGNHT),
    "sgnht-scalar": Method(kind=SGNHT, settings={"thermostat": "scalar"}),
    "atmc": Method(kind=ATMC),
    "atmc-relativistic": Method(kind=ATMC, settings={"speed_limit": 1.2}),
}
"""Thermostats that move."""

NOISE = (0.3, 0.5, 0.2)
THERMOSTATS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sgnht": ("sgnht", ()),
    "sgnht-noise": ("sgnht", NOISE),
    "sgnht-scalar": ("sgnht-scalar", ()),
    "sgnht-scalar-isotropic-noise": ("sgnht-scalar", (0.4, 0.4, 0.4)),
    "atmc": ("atmc", ()),
    "atmc-noise": ("atmc", NOISE),
    "atmc-relativistic-noise": ("atmc-relativistic", NOISE),
}
"""They with the gradient noise whose effect they remove."""

OPTIMISERS = {
    "sgd": Method(kind=SGD, law=laws.velocity),
    "sgdm": Method(kind=SGDM, law=laws.velocity, settings={"momentum": 0.8}),
}
"""Linear methods without noise of their own: at T = 0 their law is what the gradient's noise makes."""

PRECISION = np.array([[1.2, 0.5, -0.3], [0.5, 0.8, 0.2], [-0.3, 0.2, 0.6]])
MEAN = np.array([1.0, -2.0, 0.5])
N = 10


def gaussian(d: int = 3, *, decay: float = 0.1, noise: tuple[float, ...] = ()) -> Problem:
    """The mean loss ½(θ − μ)ᵀH(θ − μ) with a prior; H is not diagonal and μ not 0."""
    hessian = PRECISION[:d, :d]
    return Problem(hessians=hessian[None], offsets=(hessian @ MEAN[:d])[None], num_data=N, decay=decay, noise=noise)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Features [12, 2], correlated, and responses [12]."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2)) @ np.array([[1.0, 0.5], [0.0, 0.7]])
    return x, x @ np.array([1.5, -1.0]) + 0.8 * rng.normal(size=12) + 0.5


def regression(batch: int | None = 2) -> Problem:
    """Mean loss of ½(xᵢᵀθ − yᵢ)²: Hᵢ = xᵢxᵢᵀ, cᵢ = yᵢxᵢ."""
    x, y = data()
    return Problem(hessians=np.einsum("ni,nj->nij", x, x), offsets=y[:, None] * x, num_data=12, decay=0.1, batch=batch)


INNER = 4
OWN = {"inner_lr": 0.3, "inner_noise": 0.2, "gamma": 0.9, "averaging": 0.6}
"""Settings of Entropy-SGD and Entropy-SGLD: steps of an inner loop, and the others."""
BEGIN = Law(np.array([3.0, 1.0]), np.array([[0.5, -0.2], [-0.2, 0.4]]))
"""The law of θ at the first step."""


def local_entropy_path(
    problem: Problem, settings: list[tuple[float, float]], *, growth: float, momentum: float
) -> Iterator[Law]:
    """The exact law of (θ′, x, μ, v) after each (lr, T), from `BEGIN`; γ grows by the share ``growth`` per outer
    step."""

    def updates() -> Iterator[Update]:
        for k, (lr, temperature) in enumerate(settings):
            yield laws.local_entropy(
                problem.dimension,
                lr=lr,
                temperature=temperature,
                num_data=problem.num_data,
                momentum=momentum,
                outer=(k + 1) % INNER == 0,
                **{**OWN, "gamma": OWN["gamma"] * (1 + growth) ** (k // INNER)},
            )

    begin = Law(np.append(np.tile(BEGIN.mean, 3), [0, 0]), np.kron(np.diag([1, 1, 1, 0]), BEGIN.covariance))
    begin.covariance[:6, :6] = np.tile(BEGIN.covariance, (3, 3))
    return laws.path(begin, updates(), problem)
