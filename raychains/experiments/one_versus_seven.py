"""Entropy-MCMC's logistic regression on MNIST's ones and sevens: four methods by gradient evaluations (§6.2, Fig. 3)."""

from __future__ import annotations

from raychains.experiments.presets import Preset, Variant

QUARTER = 51
"""Steps between samples: a quarter of the 204 that batches of 64 of 13,007 images make an epoch."""

PRESETS = (
    Preset(
        name="mnist-1v7",
        about="Entropy-MCMC, Entropy-SGD, Entropy-SGLD and SGLD on MNIST's 1 against 7 by gradient evaluations (Li & Zhang "
        "2024, Fig. 3); Entropy-MCMC predicts with θ alone, since η = 1 lets θₐ wander far",
        task="mnist-1v7",
        schedule="constant",
        options={"epochs": 10, "thinning": QUARTER},
        variants=[
            Variant(name="theta", label="θ", variables=("theta",)),
            *(Variant(name="outer", label="", sampler=s) for s in ("entropy-sgd", "entropy-sgld")),
            Variant(name="theta", label="", sampler="sgld"),
        ],
    ),
)
