"""The chains of ATMC's tables and figures: ATMC, SGNHT and SGD on ResNet++, and SGD on a ResNet with BatchNorm.

Its two tables and its two reliability plots are of the same chains: they coincide by their digests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raychains.experiments import presets
from raychains.experiments.presets import Preset, Variant
from raychains.published.csgmcmc import imagenet
from raychains.published.experiment import Origin, Setting, reduced
from raychains.published.presence import Unfit

SEED = 7
CIFAR, IMAGENET = "cifar10", "imagenet"
LABELS = {CIFAR: "CIFAR-10", IMAGENET: "ImageNet"}
SGD, BATCHNORM, ATMC, SGNHT = "sgd", "sgd-bn", "atmc", "sgnht"
SINGLE = "-single"
"""Ends the row of a sampler's last sample alone."""
NAMES = {SGD: "SGD", BATCHNORM: "SGD + BatchNorm", ATMC: "ATMC", SGNHT: "SGNHT"}
METHODS = {SGD: "sgdm", ATMC: "atmc", SGNHT: "sgnht"}
ONE_COSINE = {"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
"""A point estimate is the last iterate; its step size falls once, from the first step to the last."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run on CIFAR-10 at a scale."""

    epochs: int
    cycles: int
    repeats: int
    optimised: int
    """Epochs of SGD."""
    batch: int = 128
    network: tuple[str, ...] = ()
    """Settings of the task ResNet++ where it is not the paper's."""
    batchnorm: tuple[str, ...] = ("depth=56", "width=32")
    """The same of the network with BatchNorm."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


TINY, SMALL = ("depth=8", "width=4"), ("depth=8", "width=8")
SIZES: Mapping[str, Size] = {
    "smoke": Size(epochs=2, cycles=2, repeats=2, optimised=2, batch=20, network=TINY, batchnorm=TINY),
    "cpu": Size(
        epochs=150, cycles=3, repeats=3, optimised=150, network=SMALL, batchnorm=SMALL, options={"train_subset": 5_000}
    ),
    "gpu": Size(epochs=250, cycles=5, repeats=2, optimised=250, options={"precision": "bf16"}),
    "paper": Size(epochs=1_000, cycles=20, repeats=3, optimised=250),
}
BIG = {"smoke": 2, "gpu": 60, "paper": 400}
"""Epochs of the samplers on ImageNet."""
SMOKE_IMAGENET = {"epochs": 2, "batch_size": 20, "repeats": 2, "cycles": 2, "samples_per_cycle": 1, "chains": 1}


def comparisons(dataset: str, scale: str, rows: Sequence[str]) -> list[Preset]:
    """Those of ResNet++ and that of the network with BatchNorm, of whose arms the experiment wants these.

    Args:
        dataset: `CIFAR` or `IMAGENET`.
        scale: of `SIZES`.
        rows: keys of `NAMES`.

    Raises:
        Unfit: ImageNet at scale cpu.
    """
    plus, norm = _cifar(scale) if dataset == CIFAR else _imagenet(scale)
    made = [dataclasses.replace(plus, variants=[v for v in plus.variants if v.name in rows])]
    return made + ([norm] if BATCHNORM in rows else [])


def _cifar(scale: str) -> tuple[Preset, Preset]:
    size = SIZES[scale]
    common = {"chains": 1, "repeats": size.repeats, "batch_size": size.batch, "seed": SEED, **size.options}
    long = {"epochs": size.epochs, "cycles": size.cycles}
    short = {"epochs": size.optimised, **ONE_COSINE}
    plus = Preset(
        name="atmc-cifar10", about="ATMC, SGNHT and SGD on ResNet++ (Heek & Kalchbrenner 2019, Table 1)",
        task="cifar10-resnetpp56", schedule="cyclical",
        options=common | ({"task_settings": size.network} if size.network else {}),
        variants=[
            Variant(name=name, label="", sampler=sampler, options=short if name == SGD else long)
            for name, sampler in METHODS.items()
        ],
    )  # fmt: skip
    norm = Preset(
        name="atmc-cifar10-batchnorm", about="SGD on a ResNet with BatchNorm (Heek & Kalchbrenner 2019, Table 1)",
        task="cifar10-resnet20", schedule="cyclical", options=common | {"task_settings": size.batchnorm, "lr": 0.1},
        variants=[Variant(name=BATCHNORM, label="BatchNorm", sampler="sgdm", options=short)],
    )  # fmt: skip
    return plus, norm


def _imagenet(scale: str) -> tuple[Preset, Preset]:
    """ATMC's as in `raychains compare --preset imagenet-atmc`; the network with BatchNorm is Table 3's SGDM of cSG-MCMC."""
    if scale == "cpu":
        raise Unfit("ResNet-50 on ImageNet needs GPUs: see scales gpu and paper")
    known, table3 = presets.named("imagenet-atmc"), imagenet.preset(scale)
    smoke = scale == "smoke"
    epochs = BIG[scale]
    options = dict(known.options) | {"epochs": epochs, "cycles": epochs // 20, "repeats": 1, "seed": SEED}
    if smoke:
        options = SMOKE_IMAGENET | {"task_settings": ("size=32", *TINY), "seed": SEED}
    elif scale == "gpu":
        options["precision"] = "bf16"
    optimised = {**ONE_COSINE, "epochs": imagenet.EPOCHS[scale]}
    plus = dataclasses.replace(
        known, task="imagefolder-resnetpp" if smoke else known.task, schedule="cyclical", options=options,
        variants=[
            Variant(name=name, label="", sampler=sampler, options=optimised if name == SGD else {})
            for name, sampler in METHODS.items()
        ],
    )  # fmt: skip
    norm = dataclasses.replace(
        table3, name="atmc-imagenet-batchnorm",
        variants=[dataclasses.replace(v, name=BATCHNORM) for v in table3.variants if v.sampler == "sgdm"],
    )  # fmt: skip
    return plus, norm


def settings(scale: str, dataset: str = CIFAR) -> list[Setting]:
    """What was chosen at a scale, and by whom."""
    if dataset == IMAGENET:
        return _settings_imagenet(scale)
    size = SIZES[scale]
    plus = "56, 32 channels" if not size.network else ", ".join(size.network).replace("=", " ")
    norm = ", ".join(size.batchnorm).replace("=", " ")
    ours = bool(size.network)
    made = [
        Setting(name="ResNet++", value=f"depth {plus}".replace("depth depth", "depth"), origin="ours" if ours else "published"),
        Setting(name="ResNet with BatchNorm", value=norm, origin="ours"),
        Setting(name="epochs of samplers, cycles", value=f"{size.epochs}, {size.cycles}", origin="ours"),
        Setting(
            name="epochs of a cycle", value=str(size.epochs // size.cycles), origin="ours" if scale == "smoke" else "published"
        ),
        Setting(name="samples of a cycle", value="1, its last", origin="published"),
        Setting(name="epochs of SGD", value=f"{size.optimised}, one cosine", origin="ours"),
        Setting(name="batch", value=str(size.batch), origin="ours"),
        Setting(name="initial step size", value="0.05 on ResNet++, 0.1 with BatchNorm", origin="ours"),
        Setting(name="momentum, thermostat's rate", value="0.9, 1e-3", origin="ours"),
        Setting(name="momentum's energy", value="Gaussian, no speed limit", origin="ours"),
        Setting(name="temperature", value="1", origin="published"),
        Setting(name="prior's widths", value="scales 1, directions 0.01, biases 1", origin="ours"),
        Setting(name="weight decay with BatchNorm", value="5e-4", origin="ours"),
        Setting(name="repeats", value=str(size.repeats), origin="ours"),
    ]  # fmt: skip
    return [*made, *reduced(size.options)]


def _settings_imagenet(scale: str) -> list[Setting]:
    if scale == "cpu":
        return []
    smoke = scale == "smoke"
    network, norm = ("depth 8, 4 channels, 32×32", "LeNet, 32×32") if smoke else ("depth 50", "ResNet-50")
    origin: Origin = "ours" if smoke else "published"
    return [
        Setting(name="ResNet++", value=network, origin=origin),
        Setting(name="network of SGD + BatchNorm", value=norm, origin=origin),
        Setting(name="epochs of samplers", value=str(BIG[scale]), origin="ours"),
        Setting(name="epochs of a cycle", value="1" if smoke else "20", origin=origin),
        Setting(name="epochs of SGD", value=f"{imagenet.EPOCHS[scale]}, one cosine", origin="ours"),
        Setting(name="SGD + BatchNorm", value="SGDM of cSG-MCMC's Table 3, 1/(b + k)", origin="ours"),
        Setting(name="batch of samplers", value="20" if smoke else "1,024", origin=origin),
        Setting(name="initial step size", value="0.05", origin="ours"),
        Setting(name="repeats", value="2" if smoke else "1", origin="ours"),
    ]


def differences(scale: str, dataset: str = CIFAR) -> list[str]:
    """What differs from the paper at a scale, and why."""
    if scale == "smoke":
        return ["A few steps of small networks on made-up images: this only shows that everything runs."]
    made = [
        "The paper's step sizes, momentum, mass, speed limit, batch on CIFAR-10, prior's width and numbers of epochs are "
        "unreadable in the text that we have: ours stand in for them, with Gaussian momentum.",
        "A single sample is the last one of the chain; the paper does not say which it takes.",
    ]
    if dataset == IMAGENET:
        made.append("SGD with BatchNorm is the chain of cSG-MCMC's Table 3.")
        if scale == "gpu":
            made.append("60 epochs of each sampler and a quarter of SGD's, in bf16, for one GPU.")
        return [*made, "One repeat: no claim can be told."]
    if scale == "cpu":
        made.append(
            "ResNets of depth 8 and 8 channels stand in for depth 56 and 32 channels, on 5,000 images, a tenth of each class: "
            "the paper's network takes seconds a batch on a CPU. What is above what can be compared, the numbers cannot."
        )
        made.append(
            "With a tenth of the data the posterior at T = 1 is wider, and cycles of 50 epochs have a tenth of the whole set's steps."
        )
    if scale == "gpu":
        made.append("Five cycles and two repeats, in bf16.")
    return made
