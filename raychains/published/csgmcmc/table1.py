"""Table 1: test errors of eight methods that run one chain."""

from __future__ import annotations

from collections.abc import Sequence

from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Of, Rule, Summary
from raychains.published.csgmcmc import cifar
from raychains.published.experiment import Experiment, Part, Sampled, Tables, Value
from raychains.published.found import Found
from raychains.published.tables import Heading

NAMES = {
    "sgd": "SGD", "sgdm": "SGDM", "snapshot-sgd": "Snapshot-SGD", "snapshot-sgdm": "Snapshot-SGDM",
    "sgld": "SGLD", "csgld": "cSGLD", "sghmc": "SGHMC", "csghmc": "cSGHMC",
}  # fmt: skip
PUBLISHED = {
    "sgd": {"cifar10": (5.29, 0.15), "cifar100": (23.61, 0.09)},
    "sgdm": {"cifar10": (5.17, 0.09), "cifar100": (22.98, 0.27)},
    "snapshot-sgd": {"cifar10": (4.46, 0.04), "cifar100": (20.83, 0.01)},
    "snapshot-sgdm": {"cifar10": (4.39, 0.01), "cifar100": (20.81, 0.10)},
    "sgld": {"cifar10": (5.20, 0.06), "cifar100": (23.23, 0.01)},
    "csgld": {"cifar10": (4.29, 0.06), "cifar100": (20.55, 0.06)},
    "sghmc": {"cifar10": (4.93, 0.1), "cifar100": (22.60, 0.17)},
    "csghmc": {"cifar10": (4.27, 0.03), "cifar100": (20.50, 0.11)},
}
"""Test error in per cent, mean and standard error of 3 runs."""
BELOW: Sequence[tuple[str, str, Rule]] = (
    ("csgld", "sgd", "welch"), ("csghmc", "sgdm", "welch"),
    ("csgld", "snapshot-sgd", "paired"), ("csghmc", "snapshot-sgdm", "welch"),
    ("csgld", "sgld", "welch"), ("csghmc", "sghmc", "welch"),
    ("snapshot-sgd", "sgd", "welch"), ("snapshot-sgdm", "sgdm", "welch"),
    ("sgld", "sgd", "paired"), ("sghmc", "sgdm", "welch"),
)  # fmt: skip
"""Which error is below which in §5.2. Pairs are one path until the noise sets in."""
ERROR = "error"


def preset(dataset: str, scale: str) -> Preset:
    """One chain of each method; the sampling methods' are the first ones of Table 2's arms."""
    about = "SGD(M), Snapshot-SGD(M), SGLD and SGHMC with decreasing and cyclical steps, one chain each"
    return cifar.preset("table1", about, dataset, scale, [cifar.variant(name, name, scale) for name in NAMES])


def part(dataset: str) -> Part:
    """One half of the table."""

    def tables(scale: str, found: Sequence[Found]) -> Tables:
        (run,) = found
        return cifar.measured(run, dataset, {name: name for name in NAMES}, ERROR)

    return Part(
        name=dataset, label=cifar.LABELS[dataset], data=lambda scale: (dataset,),
        sampled=lambda scale: [Sampled(preset=preset(dataset, scale))], tables=tables,
        scales=cifar.ALL if dataset == "cifar10" else cifar.WHOLE,
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        name="table1", title="test error of single chains on CIFAR", paper="csgmcmc", where="Table 1", order=1,
        parts=tuple(part(dataset) for dataset in cifar.LABELS),
        rows=lambda scale: [Heading(key, label) for key, label in NAMES.items()],
        columns=lambda scale: [Heading(ERROR, "Test error", unit="%")],
        values=tuple(
            Value(
                part=dataset, row=row, column=ERROR, text=f"{mean:.2f} ± {se:.2f}", summary=Summary(mean=mean, se=se, n=3),
                source="Zhang et al. 2020, Table 1",
            )
            for row, of in PUBLISHED.items()
            for dataset, (mean, se) in of.items()
        ),
        claims=tuple(
            Claim(
                name=f"{left}-below-{right}-{dataset}", part=dataset, direction="less", rule=rule,
                text=f"{NAMES[left]} has a lower test error than {NAMES[right]} on {cifar.LABELS[dataset]}.",
                left=Of(row=left, column=ERROR), right=Of(row=right, column=ERROR),
            )
            for dataset in cifar.LABELS
            for left, right, rule in BELOW
        ),
        settings=cifar.settings,
        differences=cifar.differences,
        hours=cifar.hours({"smoke": 32, "cpu": 24, "gpu": 32, "paper": 48}),
    ),
)  # fmt: skip
