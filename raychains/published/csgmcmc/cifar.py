"""CIFAR under cSG-MCMC's settings (§5.2): what Tables 1 and 2 and Fig. 3 have in common, so that their chains coincide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raychains.experiments.presets import Preset, Variant
from raychains.published.experiment import Setting, Tables, reduced
from raychains.published.found import Found

SEED = 5
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
ALL = ("smoke", "cpu", "gpu", "paper")
WHOLE = ("cpu", "gpu", "paper")
"""Scales of CIFAR-100: smoke has one data set for all of these experiments."""
STAND_IN = ("smoke", "cpu", "gpu")
"""Scales at which CIFAR-10 stands in for CIFAR-100: the papers' settings are for the papers' data."""
NETWORKS = {"smoke": "lenet", "cpu": "lenet", "gpu": "resnet18", "paper": "resnet18"}
CYCLICAL = {"csgld": "sgld", "csghmc": "sghmc"}
"""Methods with a cyclical step size, and what they are under a decreasing one."""
POINTS = ("sgd", "sgdm")
"""Methods whose last iterate is all that counts."""
SPREAD = 4
"""Samples of a decreasing chain that lie as far apart as its sampling stage lets them."""
FINAL = {"smoke": 0.05, "cpu": 0.01}
"""Last decreasing step size of the LeNet. On 10,000 images over 24 epochs SGD errs on 65 % after a fall to a hundredth of 0.1,
on 48 % after one to a tenth, on 43 % under one cosine."""
HOURS_PER_CHAIN = {"smoke": 0.0002, "cpu": 0.02, "gpu": 0.22, "paper": 0.44}
"""Of a whole chain: on two cores, of which it takes one, .7 s an epoch; on a GPU 4 s an epoch in bf16 and 8 s in fp32."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run at a scale."""

    epochs: int
    chains: int
    """Of the parallel arms."""
    repeats: int
    cycles: int = 4
    options: Mapping[str, Any]
    """Further options of all chains."""


SMOKE = {"batch_size": 20, "exploration": 0.5, "thinning": 3}
"""40 steps on 200 images, which a LeNet learns something from; 6 samples of two cycles."""
SIZES: Mapping[str, Size] = {
    "smoke": Size(epochs=4, chains=2, repeats=2, cycles=2, options=SMOKE),
    "cpu": Size(epochs=200, chains=4, repeats=3, options={"train_subset": 5_000}),
    "gpu": Size(epochs=200, chains=4, repeats=2, options={"precision": "bf16"}),
    "paper": Size(epochs=200, chains=4, repeats=3, options={}),
}


def preset(name: str, about: str, dataset: str, scale: str, variants: Sequence[Variant], **options: Any) -> Preset:
    """A comparison of chains that every other experiment with the same settings shares.

    Args:
        name: the preset's.
        about: what is compared.
        dataset: ``cifar10`` or ``cifar100``.
        scale: of `SIZES`.
        variants: its arms, of `variant`.
        options: over those of the scale.
    """
    size = SIZES[scale]
    common = {"epochs": size.epochs, "repeats": size.repeats, "cycles": size.cycles, "seed": SEED, "chains": 1}
    return Preset(
        name=f"{name}-{dataset}", about=f"{about} (Zhang et al. 2020)", task=f"{dataset}-{NETWORKS[scale]}",
        schedule="decreasing", options=common | dict(size.options) | options, variants=variants,
    )  # fmt: skip


def variant(name: str, sampler: str, scale: str, *, halve: bool = False, **options: Any) -> Variant:
    """One arm: a method under its own schedule, or under the decreasing one.

    Args:
        name: unique in its preset.
        sampler: the method.
        scale: of `SIZES`.
        halve: half the epochs.
        options: over those of the method.
    """
    own: dict[str, Any] = {"epochs": SIZES[scale].epochs // 2} if halve else {}
    if sampler in POINTS:
        own["schedule_settings"] = ("samples=1",)
    elif scale == "smoke" and sampler in CYCLICAL.values():  # its few epochs would have one sample
        own["schedule_settings"] = (f"samples={2 if halve else 4}",)
    if scale in FINAL and sampler in (*POINTS, *CYCLICAL.values()):
        own["final_lr"] = FINAL[scale] / (10 if sampler == "sgdm" else 1)
    return Variant(name=name, label="halved" if halve else "", sampler=sampler, options=own | options)


def apart(scale: str) -> dict[str, Any]:
    """Options of a decreasing chain whose samples, `SPREAD` of them, are spread over its sampling stage."""
    if scale == "smoke":
        return {"schedule_settings": ("samples=2",), "thinning": 9}
    batches = -(-SIZES[scale].options.get("train_subset", 50_000) // 64)
    return {"schedule_settings": (f"samples={SPREAD}",), "thinning": 12 * batches}


def measured(run: Found, part: str, rows: Mapping[str, str], column: str) -> Tables:
    """Test errors in per cent as ``cells``, and the NLL of the same predictions in nats as ``nll``.

    Args:
        run: a finished comparison.
        part: the part's name.
        rows: the table's row by the preset's variant.
        column: the table's column.
    """
    where = ("part", "row", "column", "repeat")
    likelihoods = run.cells(part, rows, {"nll": column})
    return {
        "cells": run.cells(part, rows, {"error": column}, {"error": 100}),
        "nll": [{**{name: c[name] for name in where}, "nll": c["value"]} for c in likelihoods],
    }


def hours(chains: Mapping[str, float]) -> dict[str, float]:
    """Hours by scale.

    Args:
        chains: whole chains by scale; one of half the epochs counts as half.
    """
    return {scale: float(f"{chains[scale] * HOURS_PER_CHAIN[scale]:.2g}") for scale in SIZES}


def settings(scale: str) -> list[Setting]:
    """What all of these experiments have in common at a scale, and who chose it."""
    size, small = SIZES[scale], NETWORKS[scale] == "lenet"
    smoke = scale == "smoke"
    fall = {"smoke": "half", "cpu": "a tenth"}.get(scale, "a hundredth")
    made = [
        Setting(name="network", value="LeNet" if small else "ResNet-18", origin="ours" if small else "published"),
        Setting(name="epochs", value=str(size.epochs), origin="ours" if smoke else "published"),
        Setting(name="batch", value="20" if smoke else "64", origin="ours" if smoke else "authors' code"),
        Setting(name="initial step size", value="0.1" if small else "0.5", origin="ours" if small else "published"),
        Setting(name="decreasing step size", value=f"to {fall} as 1/(b + k)", origin="ours"),
        Setting(name="step size of SGDM, Snapshot-SGDM", value="a tenth, momentum 0.9", origin="ours"),
        Setting(name="momentum of SGHMC", value="0.1", origin="authors' code"),
        Setting(name="M", value=str(size.cycles), origin="ours" if smoke else "published"),
        Setting(
            name="β", value="0.5" if smoke else "0.8 (CIFAR-10), 0.94 (CIFAR-100)",
            origin="ours" if smoke else "published",
        ),
        Setting(
            name="samples of a cycle", value=f"3, {'3 steps' if smoke else 'an epoch'} apart",
            origin="ours" if smoke else "published",
        ),
        Setting(
            name="decreasing: noise and samples", origin="ours" if smoke else "published",
            value="the last quarter, 4 samples" if smoke else "the last 50 of 200 epochs, 20 samples an epoch apart",
        ),
        Setting(name="temperature", value="1/50,000", origin="authors' code"),
        Setting(name="weight decay", value="5e-4 on all parameters", origin="authors' code"),
        Setting(name="augmentation", value="crops from 4 pixels of padding, mirrored", origin="authors' code"),
        Setting(name="repeats", value=str(size.repeats), origin="published" if scale in ("cpu", "paper") else "ours"),
    ]  # fmt: skip
    return [*made, *reduced(size.options)]


def differences(scale: str) -> list[str]:
    """What differs from the paper in all of these experiments at a scale, and why."""
    made = {
        "smoke": ["A few steps on 200 made-up images: this only shows that everything runs."],
        "cpu": [
            "A LeNet stands in for ResNet-18 and learns from 5,000 images, a tenth of each class: a "
            "batch of ResNet-18 takes seconds on a CPU. Errors are many times the published ones; only what is above what "
            "can be compared.",
            "Epochs, cycles and samples are the paper's, batch and temperature its code's; 5,000 images make a tenth of the "
            "steps, and the noise of a step is √10 times as large at the same temperature and step size.",
        ],
        "gpu": ["Two repeats in place of three, in bf16."],
        "paper": [],
    }[scale]
    if scale != "smoke":
        made.append(
            "The paper does not print the settings of SGD and SGDM nor its decreasing step size: ours falls as 1/(b + k) to a "
            f"{'tenth, so that the LeNet learns as long as under cycles,' if scale == 'cpu' else 'hundredth'} for all of them, "
            "and SGD and SGDM predict with their last iterate."
        )
        if scale == "cpu":
            made.append(
                "How far the step size falls was chosen by SGD's error on 10,000 images, among a hundredth, a tenth "
                "and one cosine, in favour of the decreasing methods."
            )
        made.append(
            "Snapshot-SGDM begins at a tenth of the step size that the paper prints for Snapshot: momentum 0.9 makes a step ten "
            "times as long."
        )
        made.append(
            "The temperature is that of the authors' code; the paper's text names another work's. Momentum 0.1 is the "
            "code's, too, so that SGHMC is close to SGLD."
        )
    return made
