"""Predictive entropy on letters of networks that know digits: seven methods, one chain each (cSG-MCMC §5.3, Fig. 4)."""

from __future__ import annotations

from raychains.experiments.presets import Preset, Variant

LAST = {"schedule_settings": ("samples=1",)}
"""A point estimate is the last iterate, not an average of several."""
RESTARTED = {"lr": 0.2}
"""With the .5 at which the decreasing step begins, the restart of the second cycle throws the chain out."""

PRESETS = (
    Preset(
        name="mnist-uncertainty",
        about="SGD, SGDM, Snapshot-SGDM, SGLD, SGHMC and their cyclical forms on MNIST, one chain each (Zhang et al. 2020, "
        "Fig. 4); raychains evaluate RUN --measures ood then draws their entropy on notMNIST",
        task="mnist-mlp",
        schedule="decreasing",
        options={"epochs": 40, "chains": 1},
        variants=[
            Variant(name="last", label="", sampler="sgd", options=LAST),
            Variant(name="last", label="", sampler="sgdm", options=LAST),
            *(Variant(name="all", label="", sampler=s) for s in ("snapshot-sgdm", "sgld", "sghmc")),
            Variant(name="all", label="", sampler="csgld", options=RESTARTED),
            Variant(name="all", label="", sampler="csghmc"),
        ],
    ),
)
