"""Table 1c: ResNet-50 on ImageNet under SGD, SGLD and Entropy-MCMC."""

from __future__ import annotations

import dataclasses

from raychains.papers.claims import claim
from raychains.papers.completed_run import CompletedRun, joined
from raychains.papers.contents import listed
from raychains.papers.csgmcmc import table3
from raychains.papers.csgmcmc.table3 import METRICS, NLL, TOP1, TOP5
from raychains.papers.emcmc.emcmc_chains import NAMES
from raychains.papers.experiment import OURS, PUBLISHED, Experiment, Part, Sampled, Setting, Tables
from raychains.papers.published_table import Heading
from raychains.planning.presets.named import Variant, named

ROWS = ("sgd", "sgld", "emcmc")
PART = "imagenet"
SMOKE = {"epochs": 2, "cycles": 2, "batch_size": 20, "thinning": 1, "repeats": 2, "task_settings": ("size=32",)}
CLAIMED = {NLL: "lower test NLL", TOP1: "higher top-1 accuracy", TOP5: "higher top-5 accuracy"}


def sampled(scale: str) -> list[Sampled]:
    """Return the samplers as `raychains compare --preset imagenet-emcmc`; SGD is Table 3's SGDM of cSG-MCMC.

    Raises:
        Unfit: at scale cpu.
    """
    known, optimised = named("imagenet-emcmc"), table3.preset(scale)
    (eta,) = known.variants
    # As many samples of θ alone as Entropy-MCMC has of θ and θₐ.
    variants = [
        dataclasses.replace(eta, name="emcmc", label="", options={**eta.options, "samples_per_cycle": 2}),
        Variant("sgld", sampler="sghmc", options={"samples_per_cycle": 4}),
    ]
    options = dict(known.options) | {"exploration": 0.0} | (SMOKE if scale == "smoke" else table3.LENGTHS[scale])
    task = "imagefolder-lenet" if scale == "smoke" else known.task
    sgd = [dataclasses.replace(v, name="sgd") for v in optimised.variants if v.sampler == "sgdm"]
    return [
        Sampled(dataclasses.replace(known, task=task, options=options, variants=variants)),
        Sampled(dataclasses.replace(optimised, name="imagenet-emcmc-sgd", variants=sgd)),
    ]


def tables(*runs: CompletedRun) -> Tables:
    return joined({"cells": run.cells([v.name for v in run.preset.variants], METRICS)} for run in runs)


def settings(scale: str) -> list[Setting]:
    if scale == "cpu":
        return []
    smoke = scale == "smoke"
    ours = OURS if smoke else PUBLISHED
    return [
        Setting("network", "LeNet at 32×32" if smoke else "ResNet-50", ours),
        Setting("epochs", str(table3.EPOCHS[scale]), OURS),
        Setting("M of samplers", "2" if smoke else "3", ours),
        Setting("samples", "8" if smoke else "12, of θ and θₐ together for Entropy-MCMC", OURS),
        Setting("batch", "20" if smoke else "256", ours),
        Setting("step size, momentum", "0.1, 0.9", PUBLISHED),
        Setting("η, T", "1.6, 1e-6", PUBLISHED),
        Setting("SGD", "SGDM of cSG-MCMC's Table 3", OURS),
        Setting("repeats", "2" if smoke else "1", OURS),
    ]


EXPERIMENTS = (
    Experiment(
        **listed("emcmc-imagenet"),
        parts=(Part(name=PART, label="ImageNet", data=(PART,), sampled=sampled, tables=tables),),
        rows={row: NAMES[row] for row in ROWS},
        columns=(Heading(NLL, "NLL", "nats", 4), Heading(TOP1, "Top-1", "%", 2), Heading(TOP5, "Top-5", "%", 2)),
        claims=tuple(
            claim(
                f"emcmc-{'below' if column == NLL else 'above'}-{other}-{column}",
                f"Entropy-MCMC has a {what} than {NAMES[other]} on ImageNet.",
                *(PART, column, "emcmc", "less" if column == NLL else "greater", other),
            )
            for other in ("sgd", "sgld")
            for column, what in CLAIMED.items()
        ),
        settings=settings,
        differences="""
smoke: A few steps of a LeNet on made-up pictures: this only shows that everything runs.
cpu gpu paper: The paper's numbers are unreadable in the text that we have, and so are its epochs.
cpu gpu paper: SGLD has Entropy-MCMC's momentum of 0.9, that is SGHMC's step. 16 samples do not divide into 3 cycles:
    12 are kept.
cpu gpu paper: The step size falls to 0 in every cycle, the paper's to 1e-4.
cpu gpu paper: With one repeat every claim is inconclusive.
gpu: A quarter of the epochs, in bf16.
""",
    ),
)
