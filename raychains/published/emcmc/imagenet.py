"""Table 1c: ResNet-50 on ImageNet under SGD, SGLD and Entropy-MCMC."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from raychains.experiments import presets
from raychains.experiments.presets import Preset, Variant
from raychains.published.claims import Claim, Of
from raychains.published.csgmcmc import imagenet as table3
from raychains.published.experiment import Experiment, Origin, Part, Sampled, Setting, Tables
from raychains.published.found import Found
from raychains.published.presence import Unfit
from raychains.published.tables import Heading

NAMES = {"sgd": "SGD", "sgld": "SGLD", "emcmc": "Entropy-MCMC"}
NLL, TOP1, TOP5 = "nll", "top1", "top5"
PART = "imagenet"
CYCLES = 3
SMOKE = {"epochs": 2, "cycles": 2, "batch_size": 20, "thinning": 1, "repeats": 2, "task_settings": ("size=32",)}


def sampled(scale: str) -> list[Sampled]:
    """The samplers as `raychains compare --preset imagenet-emcmc`; SGD is Table 3's SGDM of cSG-MCMC.

    Raises:
        Unfit: at scale cpu.
    """
    if scale == "cpu":
        raise Unfit("ResNet-50 on ImageNet needs GPUs: see scales gpu and paper")
    given, optimised = presets.named("imagenet-emcmc"), table3.preset(scale)
    (eta,) = given.variants
    # As many samples of θ alone as Entropy-MCMC has of θ and θₐ.
    variants = [
        dataclasses.replace(eta, name="emcmc", label="", options={**eta.options, "samples_per_cycle": 2}),
        Variant(name="sgld", label="", sampler="sghmc", options={"samples_per_cycle": 4}),
    ]
    options = dict(given.options) | {"exploration": 0.0}
    if scale == "smoke":
        options |= SMOKE
    else:
        options |= {"epochs": table3.EPOCHS[scale], "repeats": 1} | ({"precision": "bf16"} if scale == "gpu" else {})
    samplers: Preset = dataclasses.replace(
        given, task="imagefolder-lenet" if scale == "smoke" else given.task, options=options, variants=variants
    )
    sgd = [dataclasses.replace(v, name="sgd") for v in optimised.variants if v.sampler == "sgdm"]
    return [
        Sampled(preset=samplers),
        Sampled(preset=dataclasses.replace(optimised, name="imagenet-emcmc-sgd", variants=sgd)),
    ]


def tables(scale: str, found: Sequence[Found]) -> Tables:
    cells = []
    for run in found:
        results = run.results.assign(**{TOP1: lambda t: 1 - t["error"], TOP5: lambda t: 1 - t["top5_error"]})
        rows = {v.name: v.name for v in run.preset.variants}
        cells += run.cells_of(results, PART, rows, {NLL: NLL, TOP1: TOP1, TOP5: TOP5}, {TOP1: 100.0, TOP5: 100.0})
    return {"cells": cells}


def settings(scale: str) -> list[Setting]:
    if scale == "cpu":
        return []
    smoke = scale == "smoke"
    ours: Origin = "ours" if smoke else "published"
    return [
        Setting(name="network", value="LeNet at 32×32" if smoke else "ResNet-50", origin=ours),
        Setting(name="epochs", value=str(table3.EPOCHS[scale]), origin="ours"),
        Setting(name="M of samplers", value="2" if smoke else str(CYCLES), origin=ours),
        Setting(name="samples", value="8" if smoke else "12, of θ and θₐ together for Entropy-MCMC", origin="ours"),
        Setting(name="batch", value="20" if smoke else "256", origin=ours),
        Setting(name="step size, momentum", value="0.1, 0.9", origin="published"),
        Setting(name="η, T", value="1.6, 1e-6", origin="published"),
        Setting(name="SGD", value="SGDM of cSG-MCMC's Table 3", origin="ours"),
        Setting(name="repeats", value="2" if smoke else "1", origin="ours"),
    ]


def differences(scale: str) -> list[str]:
    if scale == "smoke":
        return ["A few steps of a LeNet on made-up pictures: this only shows that everything runs."]
    made = [
        "The paper's numbers are unreadable in the text that we have, and so are its epochs.",
        "SGLD has Entropy-MCMC's momentum of 0.9, that is SGHMC's step. 16 samples do not divide into 3 cycles: 12 are kept.",
        "The step size falls to 0 in every cycle, the paper's to 1e-4.",
        "With one repeat no claim can be told.",
    ]
    if scale == "gpu":
        made.append("A quarter of the epochs, in bf16.")
    return made


EXPERIMENTS = (
    Experiment(
        name="emcmc-imagenet", title="ResNet-50 on ImageNet", paper="emcmc", where="Table 1c", order=32,
        parts=(Part(name=PART, label="ImageNet", data=lambda scale: ("imagenet",), sampled=sampled, tables=tables),),
        rows=lambda scale: [Heading(key, label) for key, label in NAMES.items()],
        columns=lambda scale: (
            Heading(NLL, "NLL", "nats", 4), Heading(TOP1, "Top-1", "%", 2), Heading(TOP5, "Top-5", "%", 2),
        ),
        claims=tuple(
            Claim(
                name=f"emcmc-{'below' if column == NLL else 'above'}-{other}-{column}", part=PART, rule="welch",
                direction="less" if column == NLL else "greater",
                text=f"Entropy-MCMC has a {what} than {NAMES[other]} on ImageNet.",
                left=Of(row="emcmc", column=column), right=Of(row=other, column=column),
            )
            for other in ("sgd", "sgld")
            for column, what in ((NLL, "lower test NLL"), (TOP1, "higher top-1 accuracy"), (TOP5, "higher top-5 accuracy"))
        ),
        settings=settings,
        differences=differences,
        hours={"smoke": 0.01, "cpu": 0.0, "gpu": 35.0, "paper": 180.0},
    ),
)  # fmt: skip
