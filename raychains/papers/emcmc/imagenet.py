"""Table 1c: ResNet-50 on ImageNet under SGD, SGLD and Entropy-MCMC."""

from __future__ import annotations

import dataclasses

from raychains import papers as rp
from raychains.papers.csgmcmc import table3
from raychains.papers.csgmcmc.table3 import NLL, TOP1, TOP5
from raychains.papers.emcmc.emcmc_chains import NAMES

ROWS = ("sgd", "sgld", "emcmc")
PART = "imagenet"
SMOKE = {"epochs": 2, "cycles": 2, "batch_size": 20, "thinning": 1, "repeats": 2, "task_settings": ("size=32",)}
CLAIMED = {NLL: "lower test NLL", TOP1: "higher top-1 accuracy", TOP5: "higher top-5 accuracy"}


def sampled(scale: str) -> list[rp.Sampled]:
    """Return the samplers as `raychains compare --preset imagenet-emcmc`; SGD is Table 3's SGDM of cSG-MCMC.

    Raises:
        Unfit: at scale cpu.
    """
    known, optimised = rp.named("imagenet-emcmc"), table3.preset(scale)
    (eta,) = known.variants
    # As many samples of θ alone as Entropy-MCMC has of θ and θₐ.
    variants = [
        dataclasses.replace(eta, name="emcmc", label="", options={**eta.options, "samples_per_cycle": 2}),
        rp.Variant("sgld", sampler="sghmc", options={"samples_per_cycle": 4}),
    ]
    options = dict(known.options) | {"exploration": 0.0} | (SMOKE if scale == "smoke" else table3.LENGTHS[scale])
    task = "imagefolder-lenet" if scale == "smoke" else known.task
    sgd = [dataclasses.replace(v, name="sgd") for v in optimised.variants if v.sampler == "sgdm"]
    return [
        rp.Sampled(dataclasses.replace(known, task=task, options=options, variants=variants)),
        rp.Sampled(dataclasses.replace(optimised, name="imagenet-emcmc-sgd", variants=sgd)),
    ]


def settings(scale: str) -> list[rp.Setting]:
    if scale == "cpu":
        return []
    smoke = scale == "smoke"
    ours = rp.OURS if smoke else rp.PUBLISHED
    return [
        rp.Setting("network", "LeNet at 32×32" if smoke else "ResNet-50", ours),
        rp.Setting("epochs", str(table3.EPOCHS[scale]), rp.OURS),
        rp.Setting("M of samplers", "2" if smoke else "3", ours),
        rp.Setting("samples", "8" if smoke else "12, of θ and θₐ together for Entropy-MCMC", rp.OURS),
        rp.Setting("batch", "20" if smoke else "256", ours),
        rp.Setting("step size, momentum", "0.1, 0.9", rp.PUBLISHED),
        rp.Setting("η, T", "1.6, 1e-6", rp.PUBLISHED),
        rp.Setting("SGD", "SGDM of cSG-MCMC's Table 3", rp.OURS),
        rp.Setting("repeats", "2" if smoke else "1", rp.OURS),
    ]


STUDY = rp.Study(
    name="emcmc-imagenet",
    paper="emcmc",
    where="Table 1c",
    title="ResNet-50 on ImageNet",
    needs=("imagenet",),
    hours=(0.01, 0, 35, 180),
    parts=(rp.Part(name=PART, label="ImageNet", sampled=sampled),),
    rows={row: NAMES[row] for row in ROWS},
    columns=(rp.Heading(NLL, "NLL", "nats", 4), rp.Heading(TOP1, "Top-1", "%", 2), rp.Heading(TOP5, "Top-5", "%", 2)),
    claims=rp.stated(
        f"emcmc-{'below' if column == NLL else 'above'}-{other}-{column} | {PART} {column} | emcmc "
        f"{'<' if column == NLL else '>'} {other} | Entropy-MCMC has a {what} than {NAMES[other]} on ImageNet."
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
)
