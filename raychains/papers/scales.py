"""The scales that published tables and figures run at, and the papers that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SCALES: Mapping[str, str] = {
    "smoke": "a test of the code in minutes, on small made-up data, which says nothing about the papers",
    "cpu": "smaller networks or less data than in the papers, so that two CPU cores finish in hours",
    "gpu": "the papers' networks with shorter or fewer chains, on one GPU",
    "paper": "the published settings",
}
"""By name, from small to large: what each is."""
ALL = tuple(SCALES)
NOT_SMOKE, ON_GPU = ALL[1:], ALL[2:]


@dataclass(frozen=True)
class Paper:
    """The source of published tables."""

    method: str
    """Its name in lists, where two papers have a Table 1."""
    citation: str


PAPERS: Mapping[str, Paper] = {
    "csgmcmc": Paper(
        "cSG-MCMC",
        "Zhang, Li, Zhang, Chen, Wilson: Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning, ICLR 2020",
    ),
    "atmc": Paper("ATMC", "Heek, Kalchbrenner: Bayesian Inference for Large Scale Image Classification, 2019"),
    "emcmc": Paper("Entropy-MCMC", "Li, Zhang: Entropy-MCMC: Sampling from Flat Basins with Ease, ICLR 2024"),
    "bde": Paper(
        "bde",
        "scikit-learn-contrib/bde: Bayesian deep ensembles by MILE (Sommer et al.: Microcanonical Langevin Ensembles, "
        "ICLR 2025)",
    ),
    "dropout": Paper(
        "Dropout", "Gal, Ghahramani: Dropout as a Bayesian Approximation, ICML 2016 (yaringal/DropoutUncertaintyExps)"
    ),
    "hmc": Paper(
        "HMC", "Izmailov, Vikram, Hoffman, Wilson: What Are Bayesian Neural Network Posteriors Really Like?, ICML 2021"
    ),
    "ours": Paper("ours", "studies that no paper has"),
}
"""In the order of lists."""
