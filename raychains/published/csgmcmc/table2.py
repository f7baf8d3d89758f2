"""Table 2: four chains against one at equal and at lower cost, with decreasing and cyclical steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Of, Summary
from raychains.published.csgmcmc import cifar
from raychains.published.experiment import Experiment, Part, Sampled, Setting, Tables, Value
from raychains.published.found import Found, joined
from raychains.published.tables import Heading

SAMPLERS = {"sgld": "SGLD", "sghmc": "SGHMC"}
ARMS = {
    "cyclical-parallel": "Cyclical + parallel", "decreasing-parallel": "Decreasing + parallel",
    "decreasing-half": "Decreasing + parallel, half", "cyclical-single": "Cyclical + single",
}  # fmt: skip
PUBLISHED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "cyclical-parallel": {"cifar10": (4.09, 3.95), "cifar100": (19.37, 19.19)},
    "decreasing-parallel": {"cifar10": (4.15, 4.09), "cifar100": (20.29, 19.72)},
    "decreasing-half": {"cifar10": (5.11, 4.52), "cifar100": (21.16, 20.82)},
    "cyclical-single": {"cifar10": (4.29, 4.27), "cifar100": (20.55, 20.50)},
}
"""Test error in per cent under SGLD and SGHMC, without standard errors."""
BELOW = (
    ("cyclical-parallel", "decreasing-parallel", ", with as many epochs"),
    ("cyclical-single", "decreasing-half", ", with no more epochs"),
    ("cyclical-parallel", "cyclical-single", ""),
)
"""Which error is below which (§5.2 and the caption), at what cost."""


def preset(dataset: str, scale: str) -> Preset:
    """Four arms under two samplers; the single cyclical one is the first chain of the parallel cyclical one."""
    about, n = "four chains against one, with decreasing and cyclical steps", cifar.SIZES[scale].chains
    variants = []
    for sampler in SAMPLERS:
        variants += [
            cifar.variant(f"cyclical-parallel-{sampler}", f"c{sampler}", scale, chains=n),
            cifar.variant(f"decreasing-parallel-{sampler}", sampler, scale, chains=n),
            cifar.variant(f"decreasing-half-{sampler}", sampler, scale, halve=True, chains=n),
            cifar.variant(f"cyclical-single-{sampler}", f"c{sampler}", scale),
        ]
    return cifar.preset("table2", about, dataset, scale, variants)


def cost(arm: str, scale: str) -> str:
    """Epochs per chain / of all chains, as the paper writes it."""
    size = cifar.SIZES[scale]
    epochs = size.epochs // 2 if arm == "decreasing-half" else size.epochs
    return f"{epochs}/{epochs * (1 if arm == 'cyclical-single' else size.chains)}"


def part(dataset: str) -> Part:
    """One half of the table."""

    def tables(scale: str, found: Sequence[Found]) -> Tables:
        (run,) = found
        arms = {sampler: {f"{arm}-{sampler}": arm for arm in ARMS} for sampler in SAMPLERS}
        return joined([cifar.measured(run, dataset, rows, sampler) for sampler, rows in arms.items()])

    return Part(
        name=dataset, label=cifar.LABELS[dataset], data=lambda scale: (dataset,),
        sampled=lambda scale: [Sampled(preset=preset(dataset, scale))], tables=tables,
        scales=cifar.ALL if dataset == "cifar10" else cifar.WHOLE,
    )  # fmt: skip


def settings(scale: str) -> list[Setting]:
    n = cifar.SIZES[scale].chains
    more = Setting(name="parallel chains", value=str(n), origin="published" if n == 4 else "ours")
    return [*cifar.settings(scale), more]


def differences(scale: str) -> list[str]:
    made = cifar.differences(scale)
    if scale != "smoke":
        made.append(
            "Chains of 100 epochs keep 10 samples, as 20 are kept of 200; the paper does not say how many they had, nor its "
            "standard errors."
        )
    return made


EXPERIMENTS = (
    Experiment(
        name="table2", title="test error of parallel and single chains on CIFAR", paper="csgmcmc", where="Table 2", order=2,
        parts=tuple(part(dataset) for dataset in cifar.LABELS),
        rows=lambda scale: [Heading(key, f"{label}, {cost(key, scale)}") for key, label in ARMS.items()],
        columns=lambda scale: [Heading(key, f"Test error, {label}", unit="%") for key, label in SAMPLERS.items()],
        values=tuple(
            Value(
                part=dataset, row=row, column=sampler, text=f"{mean:.2f}",
                summary=Summary(mean=mean, se=math.nan, n=0), source="Zhang et al. 2020, Table 2",
            )
            for row, of in PUBLISHED.items()
            for dataset, means in of.items()
            for sampler, mean in zip(SAMPLERS, means, strict=True)
        ),
        claims=tuple(
            Claim(
                name=f"{left}-below-{right}-{sampler}-{dataset}", part=dataset, direction="less", rule="welch",
                text=f"{label} on {cifar.LABELS[dataset]}: {ARMS[left].lower()} has a lower test error than "
                f"{ARMS[right].lower()}{cost}.",
                left=Of(row=left, column=sampler), right=Of(row=right, column=sampler),
            )
            for dataset in cifar.LABELS
            for sampler, label in SAMPLERS.items()
            for left, right, cost in BELOW
        ),
        settings=settings,
        differences=differences,
        hours=cifar.hours({"smoke": 48, "cpu": 60, "gpu": 80, "paper": 120}),
    ),
)  # fmt: skip
