"""Fig. 3c: test error against the number of cycles, of cSGLD and of Snapshot ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from raychains.experiments.presets import Preset
from raychains.published.claims import Claim, Of
from raychains.published.csgmcmc import cifar
from raychains.published.experiment import Experiment, Part, Sampled, Setting, Tables
from raychains.published.found import Found, joined
from raychains.published.tables import Heading
from raychains.report.figures.layout import PLAIN, handle, legend, panels
from raychains.report.looks import Look
from raychains.report.style import Drawing, Theme, line, marker

METHODS = {"csgld": "cSGLD", "snapshot-sgd": "Snapshot-SGD"}
LOOKS = {"csgld": Look("cyclical", 0, "cSGLD"), "snapshot-sgd": Look("decreasing", 1, "Snapshot-SGD")}
NUMBERS: Mapping[str, tuple[int, ...]] = {
    "smoke": (1, 2),
    "cpu": (2, 4, 8),
    "gpu": (2, 4, 8),
    "paper": (2, 4, 5, 8, 10),
}
"""M by scale: divisors of 200 epochs."""


def preset(dataset: str, scale: str) -> Preset:
    """Both methods with every number of cycles; those with Table 1's number are its chains."""
    variants = [
        cifar.variant(f"{method}-{m}", method, scale, cycles=m) for method in METHODS for m in NUMBERS[scale]
    ]  # fmt: skip
    return cifar.preset("fig3c", "error against the number of cycles", dataset, scale, variants)


def part(dataset: str, **more: object) -> Part:
    """The figure on one data set."""

    def tables(scale: str, found: Sequence[Found]) -> Tables:
        (run,) = found
        variants = {method: {f"{method}-{m}": str(m) for m in NUMBERS[scale]} for method in METHODS}
        return joined([cifar.measured(run, dataset, rows, method) for method, rows in variants.items()])

    return Part(
        name=dataset, label=cifar.LABELS[dataset], data=lambda scale: (dataset,),
        sampled=lambda scale: [Sampled(preset=preset(dataset, scale))], tables=tables,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def figures(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
    """Error against M, a line per method through its means."""
    cells = tables.get("cells")
    if cells is None or not len(cells):
        return []
    return [
        Drawing(
            name="cycles", title="Test error against the number of cycles",
            caption="Test error against M. Points are repeats, lines join their means.",
            alt="Test error against the number of cycles of cSGLD and Snapshot-SGD",
            draw=lambda theme: _draw(cells, theme),
        )
    ]  # fmt: skip


def _draw(cells: pd.DataFrame, theme: Theme) -> Figure:
    parts = list(dict.fromkeys(cells["part"]))
    figure, ((*axes,),) = panels(1, len(parts), 3.2, sharex=True)
    for axis, name in zip(axes, parts, strict=True):
        mine = cells[cells["part"] == name].assign(m=lambda c: c["row"].astype(int))
        for method, look in LOOKS.items():
            some = mine[mine["column"] == method]
            colour = theme.colour(look)
            means = some.groupby("m")["value"].mean()
            axis.plot(means.index, means, color=colour, linestyle=line(look))
            axis.plot(
                some["m"], some["value"], color=colour, linestyle="", marker=marker(look), markersize=4.5, alpha=0.8
            )
        axis.set_title(cifar.LABELS[name])
        axis.set_xlabel("M, number of cycles")
        axis.set_xticks(sorted(set(mine["m"])))
        axis.xaxis.set_major_formatter(PLAIN)
    axes[0].set_ylabel("Test error (%)")
    legend(figure, [handle(theme, look, markers=True) for look in LOOKS.values()])
    return figure


def claims(dataset: str, scales: tuple[str, ...]) -> list[Claim]:
    """What the paper reads from the figure; its numbers of cycles are not printed."""
    where = cifar.LABELS[dataset]
    made = [
        Claim(
            name=f"csgld-below-snapshot-{m}-{dataset}", part=dataset, direction="less", rule="paired",
            text=f"With {m} cycle{'s' * (m > 1)} cSGLD has a lower test error than Snapshot-SGD on {where}.",
            left=Of(row=str(m), column="csgld"), right=Of(row=str(m), column="snapshot-sgd"),
            scales=tuple(s for s in scales if m in NUMBERS[s]),
        )
        for m in sorted({m for s in scales for m in NUMBERS[s]})
    ]  # fmt: skip
    return made + [
        Claim(
            name=f"{method}-improves-with-cycles-{dataset}", part=dataset, direction="less", rule="welch",
            text=f"{label} has a lower test error with 8 cycles than with 2 on {where}.",
            left=Of(row="8", column=method), right=Of(row="2", column=method),
            scales=tuple(s for s in scales if s != "smoke"),
        )
        for method, label in METHODS.items()
    ]  # fmt: skip


def settings(scale: str) -> list[Setting]:
    common = [s for s in cifar.settings(scale) if s.name != "M"]
    return [*common, Setting(name="M", value=", ".join(map(str, NUMBERS[scale])), origin="ours")]


def differences(scale: str) -> list[str]:
    made = cifar.differences(scale)
    if scale != "smoke":
        made.append("The figure's numbers of cycles are not in the paper's text: ours divide the epochs.")
        made.append(
            "With β 0.94 a cycle of 25 epochs or fewer samples for less than two: cSGLD then keeps 2 samples of it, not 3."
        )
    if scale in ("cpu", "gpu"):
        made.append("The paper's figure is of CIFAR-100; CIFAR-10 stands in for it with Table 1's chains.")
    return made


EXPERIMENTS = (
    Experiment(
        name="fig3c", title="test error against the number of cycles", paper="csgmcmc", where="Fig. 3c", order=3.3,
        parts=(
            part("cifar100", scales=cifar.WHOLE),
            part("cifar10", stands_for="CIFAR-100", scales=cifar.STAND_IN),
        ),
        rows=lambda scale: [Heading(str(m), f"M = {m}") for m in NUMBERS[scale]],
        columns=lambda scale: [Heading(key, f"Test error, {label}", unit="%") for key, label in METHODS.items()],
        claims=(*claims("cifar100", cifar.WHOLE), *claims("cifar10", cifar.STAND_IN)),
        settings=settings,
        differences=differences,
        hours=cifar.hours({"smoke": 8, "cpu": 18, "gpu": 12, "paper": 30}),
        figures=figures,
    ),
)  # fmt: skip
