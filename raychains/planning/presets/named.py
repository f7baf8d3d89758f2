"""The named comparisons as data: several arms that differ in one setting; `raychains compare --preset NAME` plans
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """One arm of a preset."""

    name: str
    """Ends the arm's name: ``eta-0.01``."""
    label: str = ""
    """The difference from the other arms, in words: ``η = 0.01``; empty where the sampler's name tells it."""
    sampler: str = "emcmc"
    """The method."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of options, by their names in `raychains.core.config.Compare`."""
    variables: tuple[str, ...] = ()
    """The variables whose draws the arm predicts with; empty is all of them."""
    schedule: str = ""
    """The schedule of a method that does not bring its own; empty is the preset's."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named comparison."""

    name: str
    about: str
    """The comparison in one line, with its source."""
    task: str = "digits"
    schedule: str = "cyclical"
    """The schedule of the arms whose method does not bring its own, as csgld does."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The values that all arms have where the user passes none."""
    variants: Sequence[Variant]


# Entropy-MCMC's ablations and ATMC's ensembles of many cycles, on digits: minutes on a laptop.

ETAS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Around digits' own .01; at N = 500 and lr .3 the coupling lr/(ηN) is unstable below about .001."""
TEMPERATURES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
EXPLORATIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.94)
"""0, 10, 20, 30, 40 and 47 epochs of cycles of 50."""
NORMS = {
    "shared": ("BatchNorm, θ's statistics", "batch", "shared"),
    "reestimated": ("BatchNorm, re-estimated", "batch", "reestimate"),
    "frn": ("FRN", "frn", "reestimate"),
}
ABLATIONS = (
    Preset(
        name="emcmc-eta",
        about="Entropy-MCMC under several η, the variance of θₐ around θ (Li & Zhang 2024, C.1)",
        variants=[Variant(f"eta-{e:g}", f"η = {e:g}", options={"sampler_settings": (f"eta={e:g}",)}) for e in ETAS],
    ),
    Preset(
        name="emcmc-temperature",
        about="Entropy-MCMC at temperatures from 1 to 1e-5 (Li & Zhang 2024, Table 4)",
        variants=[Variant(f"t-{t:g}", f"T = {t:g}", options={"temperature": t}) for t in TEMPERATURES],
    ),
    Preset(
        name="emcmc-variables",
        about="the same chains of Entropy-MCMC, predicting with θ, with θₐ and with both (Li & Zhang 2024, Table 7)",
        variants=[
            Variant("theta", "θ", variables=("theta",)),
            Variant("anchor", "θₐ", variables=("anchor",)),
            Variant("both", "θ and θₐ"),
        ],
    ),
    Preset(
        name="emcmc-batchnorm",
        about="BatchNorm's statistics of θₐ: θ's own, re-estimated, or FRN in its place (Li & Zhang 2024, Table 8); "
        "the network is a small convolutional one",
        variants=[
            Variant(name, label, options={"task_settings": (f"norm={norm}",), "batchnorm": how})
            for name, (label, norm, how) in NORMS.items()
        ],
    ),
    Preset(
        name="emcmc-burn-in",
        about="Entropy-MCMC with a share of each cycle without noise: 0 to 47 of 50 epochs (Li & Zhang 2024, Table 9)",
        variants=[
            Variant(f"burn-in-{b:g}", f"burn-in {b:.0%} of a cycle", options={"exploration": b}) for b in EXPLORATIONS
        ],
    ),
    Preset(
        name="emcmc-augmentation",
        about="SGD, SGLD and Entropy-MCMC with and without random shifts by one pixel (Li & Zhang 2024, Table 3)",
        variants=[
            Variant(name, label, sampler, {"task_settings": (f"augment={augment}",)})
            for sampler in ("sgd", "sgld", "emcmc")
            for name, label, augment in (("augmented", "augmented", "true"), ("plain", "not augmented", "false"))
        ],
    ),
    Preset(
        name="atmc-cycles",
        about="ATMC and SGNHT with one sample at the end of each of 20 cycles: NLL against the number of cycles (Heek "
        "& Kalchbrenner 2019, §5)",
        options={"cycles": 20},
        variants=[Variant("cycles", sampler=sampler) for sampler in ("atmc", "sgnht")],
    ),
)

# Single settings of the papers.

QUARTER = 51
"""Steps between samples: a quarter of the 204 that batches of 64 of 13,007 images make an epoch."""
LAST = {"schedule_settings": ("samples=1",)}
"""A point estimate is the last iterate, not an average of several."""
AS_MANY = {"schedule_settings": ("samples=9",)}
"""As many samples as the cyclical arms keep; the paper does not say how many SGHMC had."""
RESTARTED = {"lr": 0.2}
"""With the .5 at which the decreasing step begins, the restart of the second cycle throws the chain out."""
PUBLISHED = (
    Preset(
        name="mnist-1v7",
        about="Entropy-MCMC, Entropy-SGD, Entropy-SGLD and SGLD on MNIST's 1 against 7 by gradient evaluations (Li & "
        "Zhang 2024, Fig. 3); Entropy-MCMC predicts with θ alone, since η = 1 lets θₐ wander far",
        task="mnist-1v7",
        schedule="constant",
        options={"epochs": 10, "thinning": QUARTER},
        variants=[
            Variant("theta", "θ", variables=("theta",)),
            *(Variant("outer", sampler=s) for s in ("entropy-sgd", "entropy-sgld")),
            Variant("theta", sampler="sgld"),
        ],
    ),
    Preset(
        name="mnist-uncertainty",
        about="SGD, SGDM, Snapshot-SGDM, SGLD, SGHMC and their cyclical forms on MNIST, one chain each (Zhang et al. "
        "2020, Fig. 4); raychains evaluate RUN --measures ood then draws their entropy on notMNIST",
        task="mnist-mlp",
        schedule="decreasing",
        options={"epochs": 40, "chains": 1},
        variants=[
            *(Variant("last", sampler=s, options=LAST) for s in ("sgd", "sgdm")),
            *(Variant("all", sampler=s) for s in ("snapshot-sgdm", "sgld", "sghmc")),
            Variant("all", sampler="csgld", options=RESTARTED),
            Variant("all", sampler="csghmc"),
        ],
    ),
    Preset(
        name="imagenet-table3",
        about="SGDM, Snapshot-SGDM, SGHMC and cSGHMC on ImageNet, one chain of 120 epochs each (Zhang et al. 2020, "
        "Table 3)",
        task="imagenet-resnet50",
        schedule="decreasing",
        options={"epochs": 120, "chains": 1, "cycles": 3, "samples_per_cycle": 3},
        variants=[
            Variant("last", sampler="sgdm", options=LAST),
            Variant("all", sampler="snapshot-sgdm"),
            Variant("all", sampler="sghmc", options=AS_MANY),
            Variant("all", sampler="csghmc"),
        ],
    ),
    Preset(
        name="imagenet-emcmc",
        about="Entropy-MCMC on ImageNet: batch 256, lr .1, three cycles, η 1.6, T 1e-6, momentum .9 (Li & Zhang 2024)",
        task="imagenet-resnet50",
        options={"chains": 1, "lr": 0.1, "batch_size": 256, "cycles": 3, "temperature": 1e-6, "momentum": 0.9},
        variants=[Variant("eta-1.6", "η = 1.6", options={"sampler_settings": ("eta=1.6",)})],
    ),
    Preset(
        name="imagenet-atmc",
        about="ATMC on ResNet++ of depth 50, cycles of 20 epochs, batches of 1,024 (Heek & Kalchbrenner 2019, Table "
        "2); its step size is ours",
        task="imagenet-resnetpp50",
        options={"chains": 1, "epochs": 120, "cycles": 6, "samples_per_cycle": 1, "batch_size": 1024},
        variants=[Variant("all", sampler="atmc")],
    ),
)
PRESETS = {preset.name: preset for preset in (*ABLATIONS, *PUBLISHED)}


def named(name: str) -> Preset:
    """Return the preset of a name that an option has, checked there."""
    return PRESETS[name]
