"""ImageNet under ResNet-50: the arms of cSG-MCMC's Table 3, and Entropy-MCMC's and ATMC's settings."""

from __future__ import annotations

from raychains.experiments.presets import Preset, Variant

LAST = {"schedule_settings": ("samples=1",)}
"""A point estimate is the last iterate."""
AS_MANY = {"schedule_settings": ("samples=9",)}
"""As the cyclical arms keep; the paper does not say how many SGHMC had."""

PRESETS = (
    Preset(
        name="imagenet-table3",
        about="SGDM, Snapshot-SGDM, SGHMC and cSGHMC on ImageNet, one chain of 120 epochs each (Zhang et al. 2020, Table 3)",
        task="imagenet-resnet50",
        schedule="decreasing",
        options={"epochs": 120, "chains": 1, "cycles": 3, "samples_per_cycle": 3},
        variants=[
            Variant(name="last", label="", sampler="sgdm", options=LAST),
            Variant(name="all", label="", sampler="snapshot-sgdm"),
            Variant(name="all", label="", sampler="sghmc", options=AS_MANY),
            Variant(name="all", label="", sampler="csghmc"),
        ],
    ),
    Preset(
        name="imagenet-emcmc",
        about="Entropy-MCMC on ImageNet: batch 256, lr .1, three cycles, η 1.6, T 1e-6, momentum .9 (Li & Zhang 2024)",
        task="imagenet-resnet50",
        options={"chains": 1, "lr": 0.1, "batch_size": 256, "cycles": 3, "temperature": 1e-6, "momentum": 0.9},
        variants=[Variant(name="eta-1.6", label="η = 1.6", options={"sampler_settings": ("eta=1.6",)})],
    ),
    Preset(
        name="imagenet-atmc",
        about="ATMC on ResNet++ of depth 50, cycles of 20 epochs, batches of 1,024 (Heek & Kalchbrenner 2019, Table 2); its step "
        "size is ours",
        task="imagenet-resnetpp50",
        options={"chains": 1, "epochs": 120, "cycles": 6, "samples_per_cycle": 1, "batch_size": 1024},
        variants=[Variant(name="all", label="", sampler="atmc")],
    ),
)
