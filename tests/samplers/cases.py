"""The samplers under test, with the linear update each claims, and the Gaussian that all are put through."""

from __future__ import annotations

import numpy as np

from raychains.samplers.atmc import ATMC
from raychains.samplers.emcmc import EntropyMCMC
from raychains.samplers.psgld import PSGLD
from raychains.samplers.sghmc import SGHMC
from raychains.samplers.sgld import SGLD
from raychains.samplers.sgnht import SGNHT
from tests.samplers import laws
from tests.samplers.laws import Problem
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

UNBIASED = [name for name in LINEAR if "decay" not in name and "estimate" not in name]
"""Those that reach the posterior as lr → 0; a decay of θₐ alters the joint target (Lemma 1 of its paper needs none), and
a constant noise estimate is too large for noise that vanishes."""

RUNNING = {
    "sgnht": Method(kind=SGNHT),
    "sgnht-scalar": Method(kind=SGNHT, settings={"thermostat": "scalar"}),
    "atmc": Method(kind=ATMC),
    "atmc-relativistic": Method(kind=ATMC, settings={"speed_limit": 1.2}),
}
"""Thermostats that move."""

PRECISION = np.array([[1.2, 0.5, -0.3], [0.5, 0.8, 0.2], [-0.3, 0.2, 0.6]])
MEAN = np.array([1.0, -2.0, 0.5])
N = 10


def gaussian(d: int = 3, *, decay: float = 0.1, noise: tuple[float, ...] = ()) -> Problem:
    """The mean loss ½(θ − μ)ᵀH(θ − μ) with a prior; H is not diagonal and μ not 0."""
    hessian = PRECISION[:d, :d]
    return Problem(hessians=hessian[None], offsets=(hessian @ MEAN[:d])[None], num_data=N, decay=decay, noise=noise)
