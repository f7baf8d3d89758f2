"""Fig. 3c: test error against the number of cycles, of cSGLD and of Snapshot ensembles."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from raychains import papers as rp
from raychains.papers.csgmcmc import cifar
from raychains.plotting.charts import Axis, Panel

METHODS = rp.labels("csgld snapshot-sgd")
STYLES = rp.styles(METHODS, "csgld cyclical 0, snapshot-sgd decreasing 1")
NUMBERS: Mapping[str, tuple[int, ...]] = {
    "smoke": (1, 2),
    "cpu": (2, 4, 8),
    "gpu": (2, 4, 8),
    "paper": (2, 4, 5, 8, 10),
}
"""M by scale: divisors of 200 epochs."""


def preset(dataset: str, scale: str) -> rp.Preset:
    """Return both methods with every number of cycles; those with Table 1's number are its chains."""
    variants = [cifar.variant(f"{name}-{m}", name, scale, cycles=m) for name in METHODS for m in NUMBERS[scale]]
    return cifar.preset("fig3c", "error against the number of cycles", dataset, scale, variants)


def tables(run: rp.CompletedRun) -> rp.Tables:
    cycles = NUMBERS[run.scale]
    return rp.joined(cifar.measured(run, {f"{method}-{m}": str(m) for m in cycles}, method) for method in METHODS)


def _panel(cells: pd.DataFrame) -> Panel:
    """Show the error against M, a line per method through its means."""
    cells, marks = cells.assign(m=cells["row"].astype(int)), []
    for style, mine in rp.styled(cells, STYLES, "column"):
        means = mine.groupby("m")["value"].mean()
        marks.append(style.line(mine["m"], mine["value"], size=4.5, linestyle="", alpha=0.8))
        marks.append(style.line(means.index, means))
    x = Axis(label="M, number of cycles", ticks={float(m): f"{m}" for m in sorted(set(cells["m"]))})
    return Panel(marks=marks, x=x, y=Axis(label="Test error (%)"))


def claims(dataset: str) -> tuple[rp.Claim, ...]:
    """Return what the paper reads from the figure; its numbers of cycles are not printed."""
    made: tuple[rp.Claim, ...] = ()
    for m in sorted({m for scale in cifar.OF_FIGURES[dataset] for m in NUMBERS[scale]}):
        below = (
            f"csgld-below-snapshot-{m}-{dataset} | {dataset} csgld | {m} < {m}:snapshot-sgd paired | With {m} cycle"
            f"{'s' * (m > 1)} cSGLD has a lower test error than Snapshot-SGD on {cifar.LABELS[dataset]}."
        )
        made += rp.stated(below, scales=tuple(scale for scale, numbers in NUMBERS.items() if m in numbers))
    improves = (
        f"{method}-improves-with-cycles-{dataset} | {dataset} {method} | 8 < 2:{method} | {label} has a lower test "
        f"error with 8 cycles than with 2 on {cifar.LABELS[dataset]}."
        for method, label in METHODS.items()
    )
    return made + rp.stated(improves, scales=rp.NOT_SMOKE)


def settings(scale: str) -> list[rp.Setting]:
    common = [s for s in cifar.settings(scale) if s.name != "M"]
    return [*common, rp.Setting("M", ", ".join(map(str, NUMBERS[scale])), rp.OURS)]


STUDY = rp.Study(
    name="fig3c",
    paper="csgmcmc",
    where="Fig. 3c",
    title="test error against the number of cycles",
    needs=("cifar100", "cifar10"),
    hours=(0.0016, 0.36, 2.6, 13),
    parts=cifar.parts(preset, cifar.OF_FIGURES, tables),
    rows=lambda scale: {str(m): f"M = {m}" for m in NUMBERS[scale]},
    columns=[rp.Heading(key, f"Test error, {label}", "%") for key, label in METHODS.items()],
    claims=tuple(c for dataset in cifar.OF_FIGURES for c in claims(dataset)),
    settings=settings,
    differences=cifar.REPEATED
    + """
cpu gpu paper: The figure's numbers of cycles are not in the paper's text: ours divide the epochs.
cpu gpu paper: With β 0.94 a cycle of 25 epochs or fewer samples for less than two: cSGLD then keeps 2 samples of it,
    not 3.
cpu gpu: The paper's figure is of CIFAR-100; CIFAR-10 stands in for it with Table 1's chains.
""",
    figures=rp.figure(
        "cells",
        rp.by_part(cifar.LABELS, _panel, height=3.2),
        name="cycles",
        title="Test error against the number of cycles",
        caption="Test error against M. Points are repeats, lines join their means.",
        alt="Test error against the number of cycles of cSGLD and Snapshot-SGD",
    ),
)
