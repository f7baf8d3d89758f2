"""The chains of ATMC's tables and figures: ATMC, SGNHT and SGD on ResNet++, and SGD on a ResNet with BatchNorm.

Its two tables and its two reliability plots are of the same chains: they coincide by their digests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from raychains import papers as rp
from raychains.papers.csgmcmc import table3

SEED = 7
CIFAR, IMAGENET = "cifar10", "imagenet"
LABELS = {CIFAR: "CIFAR-10", IMAGENET: "ImageNet"}
SGD, BATCHNORM, ATMC, SGNHT = "sgd", "sgd-bn", "atmc", "sgnht"
NAMES = rp.labels(SGD) | {BATCHNORM: "SGD + BatchNorm"} | rp.labels(f"{ATMC} {SGNHT}")
METHODS = {SGD: "sgdm", ATMC: "atmc", SGNHT: "sgnht"}


PLUS = "resnet++"
TINY, SMALL = ("depth=8", "width=4"), ("depth=8", "width=8")


def _own(
    optimised: int, network: tuple[str, ...] = (), batchnorm: tuple[str, ...] = ("depth=56", "width=32")
) -> dict[str, dict[str, Any]]:
    """Return the epochs of SGD, and the settings of both networks where they are not the paper's."""
    plus = {PLUS: {"task_settings": network}} if network else {}
    return {SGD: {"epochs": optimised}, BATCHNORM: {"task_settings": batchnorm}, **plus}


FEW = {"train_subset": 5_000}
SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(epochs=2, cycles=2, repeats=2, batch_size=20, own=_own(2, TINY, TINY)),
    "cpu": rp.Size(epochs=150, cycles=3, repeats=3, batch_size=128, own=_own(150, SMALL, SMALL), options=FEW),
    "gpu": rp.Size(epochs=250, cycles=5, repeats=2, batch_size=128, own=_own(250), options={"precision": "bf16"}),
    "paper": rp.Size(epochs=1_000, cycles=20, repeats=3, batch_size=128, own=_own(250)),
}
"""On CIFAR-10."""
BIG = {"smoke": 2, "gpu": 60, "paper": 400}
"""Epochs of the samplers on ImageNet."""
SMOKE_IMAGENET = {"epochs": 2, "batch_size": 20, "repeats": 2, "cycles": 2, "samples_per_cycle": 1, "chains": 1}


def comparisons(dataset: str, scale: str, rows: Sequence[str]) -> list[rp.Preset]:
    """Return the comparison of ResNet++ and that of the network with BatchNorm, as far as their arms are among
    ``rows``.

    Raises:
        Unfit: ImageNet at scale cpu.
    """
    plus, norm = _cifar(scale) if dataset == CIFAR else _imagenet(scale)
    made = [dataclasses.replace(plus, variants=[v for v in plus.variants if v.name in rows])]
    return made + ([norm] if BATCHNORM in rows else [])


def _methods(sgd: Mapping[str, Any], samplers: Mapping[str, Any]) -> list[rp.Variant]:
    """Return the variants on ResNet++ from SGD's options and the samplers'."""
    return [rp.Variant(n, sampler=sampler, options=sgd if n == SGD else samplers) for n, sampler in METHODS.items()]


def _cifar(scale: str) -> tuple[rp.Preset, rp.Preset]:
    size = SIZES[scale]
    short = {**size.own[SGD], **rp.thinning.ONE_COSINE}
    plus = size.preset(
        "atmc-cifar10",
        "ATMC, SGNHT and SGD on ResNet++ (Heek & Kalchbrenner 2019, Table 1)",
        "cifar10-resnetpp56",
        _methods(short, {"epochs": size.epochs, "cycles": size.cycles}),
        seed=SEED,
        **size.own.get(PLUS, {}),
    )
    norm = size.preset(
        "atmc-cifar10-batchnorm",
        "SGD on a ResNet with BatchNorm (Heek & Kalchbrenner 2019, Table 1)",
        "cifar10-resnet20",
        [rp.Variant(BATCHNORM, "BatchNorm", "sgdm", short)],
        seed=SEED,
        lr=0.1,
        **size.own[BATCHNORM],
    )
    return plus, norm


def _imagenet(scale: str) -> tuple[rp.Preset, rp.Preset]:
    """Return `raychains compare --preset imagenet-atmc` with its baselines; with BatchNorm it is cSG-MCMC's Table 3's
    SGDM."""
    known, other = rp.named("imagenet-atmc"), table3.preset(scale)
    task, epochs = known.task, BIG[scale]
    options = dict(known.options) | {"epochs": epochs, "cycles": epochs // 20, "repeats": 1, "seed": SEED}
    if scale == "smoke":
        task, options = "imagefolder-resnetpp", SMOKE_IMAGENET | {"task_settings": ("size=32", *TINY), "seed": SEED}
    elif scale == "gpu":
        options["precision"] = "bf16"
    variants = _methods({**rp.thinning.ONE_COSINE, "epochs": table3.EPOCHS[scale]}, {})
    sgdm = [dataclasses.replace(v, name=BATCHNORM) for v in other.variants if v.sampler == "sgdm"]
    plus = dataclasses.replace(known, task=task, schedule="cyclical", options=options, variants=variants)
    return plus, dataclasses.replace(other, name="atmc-imagenet-batchnorm", variants=sgdm)


def settings(scale: str) -> list[rp.Setting]:
    """Return what was chosen on CIFAR-10 at a scale, and by whom."""
    size = SIZES[scale]
    network = size.own.get(PLUS, {}).get("task_settings", ())
    plus = ", ".join(network).replace("=", " ") or "depth 56, 32 channels"
    return [
        rp.Setting("ResNet++", plus, rp.OURS if network else rp.PUBLISHED),
        rp.Setting("ResNet with BatchNorm", ", ".join(size.own[BATCHNORM]["task_settings"]).replace("=", " "), rp.OURS),
        rp.Setting("epochs of samplers, cycles", f"{size.epochs}, {size.cycles}", rp.OURS),
        rp.Setting("epochs of a cycle", str(size.epochs // size.cycles), rp.OURS if scale == "smoke" else rp.PUBLISHED),
        rp.Setting("samples of a cycle", "1, its last", rp.PUBLISHED),
        rp.Setting("epochs of SGD", f"{size.own[SGD]['epochs']}, one cosine", rp.OURS),
        rp.Setting("batch", str(size.batch_size), rp.OURS),
        rp.Setting("initial step size", "0.05 on ResNet++, 0.1 with BatchNorm", rp.OURS),
        rp.Setting("momentum, thermostat's rate", "0.9, 1e-3", rp.OURS),
        rp.Setting("momentum's energy", "Gaussian, no speed limit", rp.OURS),
        rp.Setting("temperature", "1", rp.PUBLISHED),
        rp.Setting("prior's widths", "scales 1, directions 0.01, biases 1", rp.OURS),
        rp.Setting("weight decay with BatchNorm", "5e-4", rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS),
        *rp.reduced(size.options),
    ]


def imagenet_settings(scale: str) -> list[rp.Setting]:
    """Return what was chosen on ImageNet at a scale, and by whom."""
    if scale == "cpu":
        return []
    smoke = scale == "smoke"
    network, norm = ("depth 8, 4 channels, 32×32", "LeNet, 32×32") if smoke else ("depth 50", "ResNet-50")
    origin = rp.OURS if smoke else rp.PUBLISHED
    return [
        rp.Setting("ResNet++", network, origin),
        rp.Setting("network of SGD + BatchNorm", norm, origin),
        rp.Setting("epochs of samplers", str(BIG[scale]), rp.OURS),
        rp.Setting("epochs of a cycle", "1" if smoke else "20", origin),
        rp.Setting("epochs of SGD", f"{table3.EPOCHS[scale]}, one cosine", rp.OURS),
        rp.Setting("SGD + BatchNorm", "SGDM of cSG-MCMC's Table 3, 1/(b + k)", rp.OURS),
        rp.Setting("batch of samplers", "20" if smoke else "1,024", origin),
        rp.Setting("initial step size", "0.05", rp.OURS),
        rp.Setting("repeats", "2" if smoke else "1", rp.OURS),
    ]


COMMON = """
smoke: A few steps of small networks on made-up images: this only shows that everything runs.
cpu gpu paper: The paper's step sizes, momentum, mass, speed limit, batch on CIFAR-10, prior's width and numbers of
    epochs are unreadable in the text that we have: ours stand in for them, with Gaussian momentum.
cpu gpu paper: A single sample is the last one of the chain; the paper does not say which it takes.
"""
DIFFERENCES = (
    COMMON
    + """
cpu: ResNets of depth 8 and 8 channels stand in for depth 56 and 32 channels, on 5,000 images, a tenth of each class:
    the paper's network takes seconds a batch on a CPU. What is above what can be compared, the numbers cannot.
cpu: With a tenth of the data the posterior at T = 1 is wider, and cycles of 50 epochs have a tenth of the whole set's
    steps.
gpu: Five cycles and two repeats, in bf16.
"""
)
OF_IMAGENET = """
cpu gpu paper: SGD with BatchNorm is the chain of cSG-MCMC's Table 3.
gpu: 60 epochs of each sampler and a quarter of SGD's, in bf16, for one GPU.
cpu gpu paper: One repeat: every claim is inconclusive.
"""
