"""CIFAR under cSG-MCMC's settings (§5.2): what Tables 1 and 2 and Fig. 3 have in common, so that their chains
coincide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from raychains import papers as rp

SEED = 5
LABELS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
OF_TABLES = {"cifar10": rp.ALL, "cifar100": rp.NOT_SMOKE}
"""Scales of the data sets: smoke has one for all of these experiments."""
OF_FIGURES = {"cifar100": rp.NOT_SMOKE, "cifar10": ("smoke", "cpu", "gpu")}
"""Scales of figures, which are of CIFAR-100; CIFAR-10 stands in for it where the settings are not the papers'."""
NETWORKS = {"smoke": "lenet", "cpu": "lenet", "gpu": "resnet18", "paper": "resnet18"}
CYCLICAL = {"csgld": "sgld", "csghmc": "sghmc"}
"""Methods with a cyclical step size, and what they are under a decreasing one."""
POINTS = ("sgd", "sgdm")
"""Methods whose last iterate is all that counts."""
SPREAD = 4
"""Samples of a decreasing chain that lie as far apart as its sampling stage lets them."""
FINAL = {"smoke": 0.05, "cpu": 0.01}
"""Last decreasing step size of the LeNet. On 10,000 images over 24 epochs SGD errs on 65 % after a fall to a hundredth
of 0.1, on 48 % after one to a tenth, on 43 % under one cosine."""


SMOKE = {"batch_size": 20, "exploration": 0.5, "thinning": 3}
"""40 steps on 200 images, which a LeNet learns something from; 6 samples of two cycles."""
SIZES: Mapping[str, rp.Size] = {
    "smoke": rp.Size(epochs=4, chains=2, repeats=2, cycles=2, options=SMOKE),
    "cpu": rp.Size(epochs=200, chains=4, repeats=3, options={"train_subset": 5_000}),
    "gpu": rp.Size(epochs=200, chains=4, repeats=2, options={"precision": "bf16"}),
    "paper": rp.Size(epochs=200, chains=4, repeats=3),
}
"""Their chains are those of the parallel arms."""


def preset(
    name: str, about: str, dataset: str, scale: str, variants: Sequence[rp.Variant], **options: Any
) -> rp.Preset:
    """Return a comparison of arms made by `variant`, whose chains every other experiment with the same settings
    shares."""
    about, task = f"{about} (Zhang et al. 2020)", f"{dataset}-{NETWORKS[scale]}"
    common = {"seed": SEED, "chains": 1, "cycles": SIZES[scale].cycles, **options}
    return SIZES[scale].preset(f"{name}-{dataset}", about, task, variants, schedule="decreasing", **common)


def parts(preset: Any, scales: Mapping[str, tuple[str, ...]], tables: Any = None, **asked: Any) -> tuple[rp.Part, ...]:
    """Return the data sets' parts of a table or figure, from (data set, scale) -> comparison, views and measures.

    CIFAR-10 stands for CIFAR-100 where that comes first.
    """
    labels = {name: LABELS[name] for name in scales}
    first, *others = rp.parts(labels, rp.comparison(preset, **asked), tables, scales=scales)
    return first, *(replace(one, stands_for=first.label * (first.name == "cifar100")) for one in others)


def variant(name: str, sampler: str, scale: str, *, halve: bool = False, **options: Any) -> rp.Variant:
    """Return one arm: a method under its own schedule or the decreasing one, perhaps of half the epochs."""
    own: dict[str, Any] = {"epochs": SIZES[scale].epochs // 2} if halve else {}
    if sampler in POINTS:
        own["schedule_settings"] = ("samples=1",)
    elif scale == "smoke" and sampler in CYCLICAL.values():  # its few epochs would have one sample
        own["schedule_settings"] = (f"samples={2 if halve else 4}",)
    if scale in FINAL and sampler in (*POINTS, *CYCLICAL.values()):
        own["final_lr"] = FINAL[scale] / (10 if sampler == "sgdm" else 1)
    return rp.Variant(name, "halved" if halve else "", sampler, own | options)


def apart(scale: str) -> dict[str, Any]:
    """Return options of a decreasing chain whose `SPREAD` samples are spread over its sampling stage."""
    if scale == "smoke":
        return {"schedule_settings": ("samples=2",), "thinning": 9}
    batches = -(-SIZES[scale].options.get("train_subset", 50_000) // 64)
    return {"schedule_settings": (f"samples={SPREAD}",), "thinning": 12 * batches}


def measured(run: rp.CompletedRun, rows: rp.Names, column: str) -> rp.Tables:
    """Return a comparison's test errors in per cent as ``cells``, and the NLL of the same predictions in nats as
    ``nll``."""
    return as_tables(run.cells(rows, {"error": column}), run.cells(rows, {"nll": column}))


def as_tables(errors: Sequence[rp.Row], likelihoods: Sequence[rp.Row]) -> rp.Tables:
    """Return cells of test errors as ``cells``, and those of the NLL of the same predictions as ``nll``."""
    where = ("part", "row", "column", "repeat")
    return {"cells": errors, "nll": [{**{name: c[name] for name in where}, "nll": c["value"]} for c in likelihoods]}


def settings(scale: str) -> list[rp.Setting]:
    """Return what all of these experiments have in common at a scale, and who chose it."""
    size, smoke = SIZES[scale], scale == "smoke"
    fall = {"smoke": "half", "cpu": "a tenth"}.get(scale, "a hundredth")
    ours, code = (rp.OURS, rp.OURS) if smoke else (rp.PUBLISHED, rp.CODE)
    network, lr, whose = ("LeNet", "0.1", rp.OURS) if NETWORKS[scale] == "lenet" else ("ResNet-18", "0.5", rp.PUBLISHED)
    samples = "the last quarter, 4 samples" if smoke else "the last 50 of 200 epochs, 20 samples an epoch apart"
    return [
        rp.Setting("network", network, whose),
        rp.Setting("epochs", str(size.epochs), ours),
        rp.Setting("batch", "20" if smoke else "64", code),
        rp.Setting("initial step size", lr, whose),
        rp.Setting("decreasing step size", f"to {fall} as 1/(b + k)", rp.OURS),
        rp.Setting("step size of SGDM, Snapshot-SGDM", "a tenth, momentum 0.9", rp.OURS),
        rp.Setting("momentum of SGHMC", "0.1", rp.CODE),
        rp.Setting("M", str(size.cycles), ours),
        rp.Setting("β", "0.5" if smoke else "0.8 (CIFAR-10), 0.94 (CIFAR-100)", ours),
        rp.Setting("samples of a cycle", f"3, {'3 steps' if smoke else 'an epoch'} apart", ours),
        rp.Setting("decreasing: noise and samples", samples, ours),
        rp.Setting("temperature", "1/50,000", rp.CODE),
        rp.Setting("weight decay", "5e-4 on all parameters", rp.CODE),
        rp.Setting("augmentation", "crops from 4 pixels of padding, mirrored", rp.CODE),
        rp.Setting("repeats", str(size.repeats), rp.PUBLISHED if scale in ("cpu", "paper") else rp.OURS),
        *rp.reduced(size.options),
    ]


DIFFERENCES = """
smoke: A few steps on 200 made-up images: this only shows that everything runs.
cpu: A LeNet stands in for ResNet-18 and learns from 5,000 images, a tenth of each class: a batch of ResNet-18 takes
    seconds on a CPU. Errors are many times the published ones; only what is above what can be compared.
cpu: Epochs, cycles and samples are the paper's, batch and temperature its code's; 5,000 images make a tenth of the
    steps, and the noise of a step is √10 times as large at the same temperature and step size.
gpu: In bf16.
cpu: The paper does not print the settings of SGD and SGDM nor its decreasing step size: ours falls as 1/(b + k) to a
    tenth, so that the LeNet learns as long as under cycles, for all of them, and SGD and SGDM predict with their last
    iterate.
gpu paper: The paper does not print the settings of SGD and SGDM nor its decreasing step size: ours falls as 1/(b + k)
    to a hundredth for all of them, and SGD and SGDM predict with their last iterate.
cpu: How far the step size falls was chosen by SGD's error on 10,000 images, among a hundredth, a tenth and one cosine,
    in favour of the decreasing methods.
cpu gpu paper: Snapshot-SGDM begins at a tenth of the step size that the paper prints for Snapshot: momentum 0.9 makes a
    step ten times as long.
cpu gpu paper: The temperature is that of the authors' code; the paper's text names another work's. Momentum 0.1 is the
    code's, too, so that SGHMC is close to SGLD.
"""
REPEATED = DIFFERENCES + "gpu: Two repeats in place of three.\n"
"""The differences of experiments with repeats."""
