"""Table 3: ResNet-50 on ImageNet under four methods, one chain of 120 epochs each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from raychains.experiments import presets
from raychains.experiments.presets import Preset, Variant
from raychains.published.claims import Claim, Of, Summary
from raychains.published.experiment import Experiment, Origin, Part, Sampled, Setting, Tables, Value
from raychains.published.found import Found
from raychains.published.presence import Unfit
from raychains.published.tables import Heading

NAMES = {"sgdm": "SGDM", "snapshot-sgdm": "Snapshot-SGDM", "sghmc": "SGHMC", "csghmc": "cSGHMC"}
NLL, TOP1, TOP5 = "nll", "top1", "top5"
PUBLISHED = {
    "sgdm": (0.9595, 76.046, 92.776),
    "snapshot-sgdm": (0.8941, 77.142, 93.344),
    "sghmc": (0.9308, 76.274, 92.994),
    "csghmc": (0.8882, 77.114, 93.524),
}
"""NLL in nats, top-1 and top-5 accuracy in per cent."""
SMOKE = {
    "epochs": 2, "cycles": 2, "batch_size": 20, "exploration": 0.5, "thinning": 1, "samples_per_cycle": 3, "repeats": 2, "chains": 1,
    "task_settings": ("size=32",),
}  # fmt: skip
EPOCHS = {"smoke": 2, "cpu": 120, "gpu": 30, "paper": 120}


def preset(scale: str) -> Preset:
    """`raychains compare --preset imagenet-table3`, shorter at scale gpu; small pictures under a LeNet at smoke.

    Raises:
        Unfit: at scale cpu.
    """
    given = presets.named("imagenet-table3")
    if scale == "cpu":
        raise Unfit("ResNet-50 on ImageNet needs GPUs: see scales gpu and paper")
    names = {v.sampler: dataclasses.replace(v, name=v.sampler) for v in given.variants}
    if scale == "smoke":
        names |= {
            "sghmc": Variant(name="sghmc", label="", sampler="sghmc", options={"schedule_settings": ("samples=4",)})
        }
        return dataclasses.replace(given, task="imagefolder-lenet", options=SMOKE, variants=list(names.values()))
    more = {"epochs": EPOCHS[scale], "repeats": 1} | ({"precision": "bf16"} if scale == "gpu" else {})
    return dataclasses.replace(given, options=dict(given.options) | more, variants=list(names.values()))


def tables(scale: str, found: Sequence[Found]) -> Tables:
    (run,) = found
    results = run.results.assign(**{TOP1: lambda t: 1 - t["error"], TOP5: lambda t: 1 - t["top5_error"]})
    rows = {name: name for name in NAMES}
    metrics = {NLL: NLL, TOP1: TOP1, TOP5: TOP5}
    return {"cells": run.cells_of(results, "imagenet", rows, metrics, {TOP1: 100, TOP5: 100})}


def settings(scale: str) -> list[Setting]:
    smoke = scale == "smoke"
    ours: Origin = "ours" if smoke else "published"
    made = [
        Setting(name="network", value="LeNet at 32×32" if smoke else "ResNet-50", origin=ours),
        Setting(name="epochs", value=str(EPOCHS[scale]), origin="ours" if scale in ("smoke", "gpu") else "published"),
        Setting(name="M", value="2" if smoke else "3", origin=ours),
        Setting(name="samples of a cycle", value="3", origin="published"),
        Setting(name="samples of SGHMC", value="4" if smoke else "9", origin="ours"),
        Setting(name="repeats", value="2" if smoke else "1", origin="ours"),
    ]
    if smoke:
        return made
    made += [
        Setting(name="batch", value="256", origin="ours"),
        Setting(name="initial step size", value="0.1, momentum 0.9", origin="ours"),
        Setting(name="β", value="0.8", origin="ours"),
        Setting(name="temperature", value="1e-6", origin="ours"),
        Setting(name="weight decay", value="1e-4", origin="ours"),
    ]
    return [*made, Setting(name="precision", value="bf16", origin="ours")] if scale == "gpu" else made


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["A few steps of a LeNet on made-up pictures: this only shows that everything runs."]
    made = [
        "The paper prints epochs, M and samples of a cycle, and no other settings: step sizes, batch, β, temperature, weight "
        "decay and SGHMC's 9 samples are ours.",
        "3 samples of a cycle are kept of Snapshot-SGDM as of cSGHMC, as the paper's sentence on both may be read; an earlier "
        "version of it has 2.",
        "Neither the number of runs nor standard errors are published; with one repeat no claim can be told.",
    ]
    if scale == "gpu":
        made.append("A quarter of the epochs, in bf16: 120 epochs of four chains are ten days of one GPU.")
    return made


EXPERIMENTS = (
    Experiment(
        name="table3", title="ResNet-50 on ImageNet", paper="csgmcmc", where="Table 3", order=3,
        parts=(
            Part(
                name="imagenet", label="ImageNet", data=lambda scale: ("imagenet",),
                sampled=lambda scale: [Sampled(preset=preset(scale))], tables=tables,
            ),
        ),
        rows=lambda scale: [Heading(key, label) for key, label in NAMES.items()],
        columns=lambda scale: [
            Heading(NLL, "NLL", unit="nats"), Heading(TOP1, "Top-1", unit="%"), Heading(TOP5, "Top-5", unit="%"),
        ],
        values=tuple(
            Value(
                part="imagenet", row=row, column=column, text=f"{value:.{4 if column == NLL else 3}f}",
                summary=Summary(mean=value, se=math.nan, n=0), source="Zhang et al. 2020, Table 3",
            )
            for row, of in PUBLISHED.items()
            for column, value in zip((NLL, TOP1, TOP5), of, strict=True)
        ),
        claims=tuple(
            Claim(
                name=f"csghmc-below-{other}", text=f"cSGHMC has a lower test NLL than {NAMES[other]} on ImageNet.",
                part="imagenet", left=Of(row="csghmc", column=NLL), right=Of(row=other, column=NLL), direction="less",
                rule="welch",
            )
            for other in ("sgdm", "snapshot-sgdm", "sghmc")
        ),
        settings=settings,
        differences=differences,
        hours={"smoke": 0.01, "cpu": 0.0, "gpu": 45.0, "paper": 240.0},
    ),
)  # fmt: skip
