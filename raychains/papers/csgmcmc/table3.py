"""Table 3: ResNet-50 on ImageNet under four methods, one chain of 120 epochs each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from raychains import papers as rp

NAMES = rp.labels("sgdm snapshot-sgdm sghmc csghmc")
NLL, TOP1, TOP5 = METRICS = ("nll", "top1", "top5")
PRINTED = """
sgdm: 0.9595 | 76.046 | 92.776
snapshot-sgdm: 0.8941 | 77.142 | 93.344
sghmc: 0.9308 | 76.274 | 92.994
csghmc: 0.8882 | 77.114 | 93.524
"""
"""NLL in nats, top-1 and top-5 accuracy in per cent."""
SMOKE = {"epochs": 2, "cycles": 2, "batch_size": 20, "exploration": 0.5, "thinning": 1, "samples_per_cycle": 3}
SMOKE |= {"repeats": 2, "chains": 1}
PICTURES = {"task_settings": ("size=32",)}
EPOCHS = {"smoke": 2, "cpu": 120, "gpu": 30, "paper": 120}
LENGTHS: Mapping[str, dict[str, Any]] = {
    "gpu": {"epochs": 30, "repeats": 1, "precision": "bf16"},
    "paper": {"epochs": 120, "repeats": 1},
}
"""Changes that the scales make to the presets on ImageNet."""


def preset(scale: str) -> rp.Preset:
    """Return `raychains compare --preset imagenet-table3`, shorter at scale gpu; small pictures under a LeNet at smoke.

    Raises:
        Unfit: at scale cpu.
    """
    known = rp.named("imagenet-table3")
    if scale == "cpu":
        raise rp.Unfit("ResNet-50 on ImageNet needs GPUs: see scales gpu and paper")
    variants = [dataclasses.replace(v, name=v.sampler) for v in known.variants]
    if scale == "smoke":
        few = rp.Variant("sghmc", sampler="sghmc", options={"schedule_settings": ("samples=4",)})
        variants = [few if v.name == "sghmc" else v for v in variants]
        return dataclasses.replace(known, task="imagefolder-lenet", options=SMOKE | PICTURES, variants=variants)
    return dataclasses.replace(known, options=dict(known.options) | LENGTHS[scale], variants=variants)


def settings(scale: str) -> list[rp.Setting]:
    smoke = scale == "smoke"
    ours = rp.OURS if smoke else rp.PUBLISHED
    made = [
        rp.Setting("network", "LeNet at 32×32" if smoke else "ResNet-50", ours),
        rp.Setting("epochs", str(EPOCHS[scale]), rp.OURS if scale in ("smoke", "gpu") else rp.PUBLISHED),
        rp.Setting("M", "2" if smoke else "3", ours),
        rp.Setting("samples of a cycle", "3", rp.PUBLISHED),
        rp.Setting("samples of SGHMC", "4" if smoke else "9", rp.OURS),
        rp.Setting("repeats", "2" if smoke else "1", rp.OURS),
    ]
    if smoke:
        return made
    made += [
        rp.Setting("batch", "256", rp.OURS),
        rp.Setting("initial step size", "0.1, momentum 0.9", rp.OURS),
        rp.Setting("β", "0.8", rp.OURS),
        rp.Setting("temperature", "1e-6", rp.OURS),
        rp.Setting("weight decay", "1e-4", rp.OURS),
    ]
    return [*made, rp.Setting("precision", "bf16", rp.OURS)] if scale == "gpu" else made


STUDY = rp.Study(
    name="table3",
    paper="csgmcmc",
    where="Table 3",
    title="ResNet-50 on ImageNet",
    needs=("imagenet",),
    hours=(0.01, 0, 45, 240),
    parts=(rp.Part(name="imagenet", label="ImageNet", sampled=rp.comparison(preset)),),
    rows=NAMES,
    columns=(rp.Heading(NLL, "NLL", "nats"), rp.Heading(TOP1, "Top-1", "%"), rp.Heading(TOP5, "Top-5", "%")),
    values=rp.printed(PRINTED, [("imagenet", m) for m in METRICS], "Zhang et al. 2020, Table 3"),
    claims=rp.stated(
        f"csghmc-below-{other} | imagenet {NLL} | csghmc < {other} | cSGHMC has a lower test NLL than {NAMES[other]} "
        "on ImageNet."
        for other in ("sgdm", "snapshot-sgdm", "sghmc")
    ),
    settings=settings,
    differences="""
smoke: A few steps of a LeNet on made-up pictures: this only shows that everything runs.
cpu gpu paper: The paper prints epochs, M and samples of a cycle, and no other settings: step sizes, batch, β,
    temperature, weight decay and SGHMC's 9 samples are ours.
cpu gpu paper: 3 samples of a cycle are kept of Snapshot-SGDM as of cSGHMC, as the paper's sentence on both may be
    read; an earlier version of it has 2.
cpu gpu paper: Neither the number of runs nor standard errors are published; with one repeat every claim is
    inconclusive.
gpu: A quarter of the epochs, in bf16: 120 epochs of four chains are ten days of one GPU.
""",
)
