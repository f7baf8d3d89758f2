"""The chains of Entropy-MCMC's classification tables: seven methods, one chain each, whose digests coincide.

Table 1 evaluates them on the test set, Table 1b on corrupted inputs, Table 2 on SVHN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raychains.papers import ALL
from raychains.papers.claims import Claim, Direction, Rule, claim
from raychains.papers.csgmcmc.cifar import NETWORKS
from raychains.papers.experiment import CODE, OURS, PUBLISHED, Setting, reduced
from raychains.planning import thinning
from raychains.planning.presets.named import Preset, Variant

SEED = 11
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST"}
NAMES = {"sgd": "SGD", "entropy-sgd": "Entropy-SGD", "sam": "SAM", "bsam": "bSAM", "sgld": "SGLD"}
NAMES |= {"entropy-sgld": "Entropy-SGLD", "emcmc": "Entropy-MCMC"}
OTHERS = [name for name in NAMES if name != "emcmc"]
LARGER = ("accuracy", "auroc")
"""Columns whose larger values are better."""
TWICE = ("sam", "bsam")
"""Two gradient evaluations per step: as many steps cost as many epochs again."""
T = 1e-4


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of all chains at a scale."""

    epochs: int
    repeats: int
    cycles: int = 4
    samples: int = 16
    """Samples of each sampling method."""
    batch: int = 128
    inner: int = 0
    """Inner steps of Entropy-SG(L)D where they are not its default of 20."""
    options: Mapping[str, Any] = field(default_factory=dict)


SIZES: Mapping[str, Size] = {
    "smoke": Size(epochs=2, repeats=2, cycles=2, samples=4, batch=20, inner=2, options={"thinning": 2}),
    "cpu": Size(epochs=200, repeats=3, options={"train_subset": 5_000}),
    "gpu": Size(epochs=200, repeats=2, options={"precision": "bf16"}),
    "paper": Size(epochs=200, repeats=3),
}
MNIST = Size(epochs=40, repeats=3, options={"train_subset": 10_000, "thinning": 39})
"""The size of the stand-in that two cores sample; samples lie half an epoch apart."""


def preset(dataset: str, scale: str, methods: Sequence[str] = tuple(NAMES)) -> Preset:
    """Return one chain of each method; a method's name is also its variant's. Of MNIST there is one size at all
    scales."""
    size = MNIST if dataset == "mnist" else SIZES[scale]
    task = "mnist-mlp" if dataset == "mnist" else f"{dataset}-{NETWORKS[scale]}"
    common = {"chains": 1, "epochs": size.epochs, "repeats": size.repeats, "batch_size": size.batch, "seed": SEED}
    return Preset(
        name=f"emcmc-{dataset}",
        about="Entropy-MCMC beside flat-minima optimisers and SGLD (Li & Zhang 2024, §6.4)",
        task=task,
        schedule="cyclical",
        options=common | dict(size.options),
        variants=[_variant(name, size) for name in methods],
    )


def _variant(name: str, size: Size) -> Variant:
    """Return a method under a cosine that falls to 0: samplers in cycles, optimisers once."""
    options: dict[str, Any] = {"epochs": 2 * size.epochs} if name in TWICE else {}
    if name.startswith("entropy") and size.inner:
        options["sampler_settings"] = (f"inner_steps={size.inner}",)
    if name in ("sgld", "entropy-sgld", "emcmc"):
        each = size.samples // size.cycles // (2 if name == "emcmc" else 1)
        options |= {"cycles": size.cycles, "samples_per_cycle": each, "exploration": 0.0, "temperature": T}
    else:
        options |= thinning.ONE_COSINE
    return Variant(name, sampler=name, options=options)


def below(part: str, columns: Mapping[str, str], text: str, scales: Sequence[str] = ALL) -> list[Claim]:
    """Return that Entropy-MCMC is better than each other method in each of some columns, by ``text``'s {other} and
    {what}."""
    made = []
    for column, what in columns.items():
        word = "above" if column in LARGER else "below"
        direction: Direction = "greater" if column in LARGER else "less"
        for other in OTHERS:
            name = f"emcmc-{word}-{other}-{column}-{part}"
            sentence = text.format(what=what, other=NAMES[other])
            made.append(
                claim(name, sentence, part, column, "emcmc", direction, other, rule(other), scales=tuple(scales))
            )
    return made


def rule(method: str) -> Rule:
    """Return the rule of a claim against a method: SGLD has as many steps, and so Entropy-MCMC's batches."""
    return "paired" if method == "sgld" else "welch"


def settings(scale: str) -> list[Setting]:
    """Return what was chosen on CIFAR at a scale, and by whom."""
    size, smoke = SIZES[scale], scale == "smoke"
    ours = OURS if smoke else PUBLISHED
    small = NETWORKS[scale] == "lenet"
    network, lr, whose = ("LeNet", "0.1", OURS) if small else ("ResNet-18", "0.5", PUBLISHED)
    baselines = f"the same; SAM a fifth, momentum 0.9; {'bSAM half; ' if small else ''}Entropy-SG(L)D 1"
    inner = f"{size.inner or 20} inner steps of 0.1, γ 0.03" + ("" if smoke else ", as its authors' code")
    return [
        Setting("network", network, whose),
        Setting("epochs", str(size.epochs), OURS),
        Setting("epochs of SAM and bSAM", f"{size.epochs}, two gradients a step", OURS),
        Setting("batch", str(size.batch), ours),
        Setting("initial step size", lr, whose),
        Setting("step sizes of baselines", baselines, OURS),
        Setting("step size", "cosine to 0", PUBLISHED),
        Setting("M of samplers", str(size.cycles), ours),
        Setting("samples of a sampler", str(size.samples), ours),
        Setting("samples of Entropy-MCMC", "θ and θₐ of a cycle's last epochs", CODE),
        Setting("η on CIFAR-10, CIFAR-100", "4e-4, 8e-3 at N = 40,000 or more", PUBLISHED),
        Setting("T", f"{T:g}", PUBLISHED),
        Setting("noise", "throughout", CODE),
        Setting("weight decay", "5e-4", PUBLISHED),
        Setting("Entropy-SG(L)D", inner, OURS),
        Setting("ρ of SAM", "0.05 (CIFAR-100 0.1), as its paper", OURS),
        Setting("ρ of bSAM", "0.001" if small else "0.01, as its paper", OURS),
        Setting("variance, weight decay of bSAM", "1/(4·N·s), 2e-4, as its paper", OURS),
        Setting("repeats", str(size.repeats), OURS if scale in ("smoke", "gpu") else PUBLISHED),
        *reduced(size.options),
    ]


DIFFERENCES = """
smoke: A few steps of a LeNet on made-up images: this only shows that everything runs.
cpu gpu paper: 200 epochs are four cycles of the 50 that C.5 counts in; the paper's own number is not in the text that
    we have.
cpu gpu paper: The paper does not print its baselines' settings: all of them have Entropy-MCMC's epochs, batch and
    cosine; SGLD and Entropy-SGLD keep 16 samples of four cycles, SGD, Entropy-SGD, SAM and bSAM predict with their
    last iterate (bSAM with draws around it).
cpu gpu paper: SAM and bSAM make as many steps as the others and spend twice the gradient evaluations.
cpu gpu paper: Entropy-SG(L)D's 200 epochs are those of its inner steps, 20 to each outer one.
cpu: A LeNet stands in for ResNet-18 and learns from 5,000 images, a tenth of each class: a batch of ResNet-18 takes
    seconds on a CPU. Errors are many times the published ones; only what is above what can be compared. η grows with
    the smaller N, as lr/(ηN) must not. bSAM's step size and ρ were chosen among a few pairs by the test error: with
    its paper's ρ and the others' step size the LeNet errs on two thirds.
gpu: Two repeats in place of three, in bf16.
"""
