"""The mixture of 25 Gaussians (§5.1, A.1): mode coverage (Table 4), and what four chains and one drew (Figs. 2 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from raychains.experiments.presets import Preset, Variant
from raychains.published.claims import Claim, Of, Summary
from raychains.published.experiment import Experiment, Part, Sampled, Setting, Tables, Value
from raychains.published.found import Found, cell
from raychains.published.tables import Heading
from raychains.report.figures import density
from raychains.report.material import Material
from raychains.report.style import Drawing

STEPS = {"smoke": 2_000, "cpu": 50_000, "gpu": 50_000, "paper": 50_000}
REPEATS = {"smoke": 4, "cpu": 100, "gpu": 100, "paper": 10}
CYCLES = {"smoke": 4, "cpu": 30, "gpu": 30, "paper": 30}
HOURS = {"smoke": 0.01, "cpu": 0.05, "gpu": 0.05, "paper": 0.05}
NAMES = {"sgld": "SGLD", "csgld": "cSGLD", "sgld-4": "4 × SGLD", "csgld-4": "4 × cSGLD"}
ROWS = tuple(Heading(key, label) for key, label in NAMES.items())
MODES, INDEPENDENT = "modes", "independent"
TOLERANCE = 0.5
"""Modes by which a mean may be off a whole number of modes that a figure's text gives."""
FAR = 3.0
"""Standard errors of a published mean that ours may be off it."""
PUBLISHED = {
    "sgld": ("1.8 ± 0.13", 1.8, 0.13),
    "csgld": ("6.7 ± 0.52", 6.7, 0.52),
    "sgld-4": ("18 ± 0.47", 18, 0.47),
    "csgld-4": ("24.4 ± 0.22", 24.4, 0.22),
}


def preset(scale: str) -> Preset:
    """SGLD and cSGLD, one chain and four: the single ones are the first of the four."""
    cyclical = {"cycles": CYCLES[scale]}
    return Preset(
        name="mixture",
        about="mode coverage of 25 Gaussians (Zhang et al. 2020, Table 4, Figs. 2 and 5)",
        task="mixture25",
        schedule="decreasing",
        options={"steps": STEPS[scale], "repeats": REPEATS[scale], "seed": 11},
        variants=[
            Variant(name="sgld", label="", sampler="sgld", options={"chains": 1}),
            Variant(name="csgld", label="", sampler="csgld", options={"chains": 1, **cyclical}),
            Variant(name="sgld-4", label="", sampler="sgld", options={"chains": 4}),
            Variant(name="csgld-4", label="", sampler="csgld", options={"chains": 4, **cyclical}),
        ],
    )


def independent(row: str, scale: str) -> float:
    """Modes that are met if every cycle, or every chain whose step only falls, lands in one of 25 at random."""
    draws = (4 if row.endswith("-4") else 1) * (CYCLES[scale] if row.startswith("c") else 1)
    return float(25 * (1 - (1 - 1 / 25) ** draws))


def coverage(scale: str, found: Sequence[Found]) -> Tables:
    """Modes covered by every arm and repeat, beside what independent modes give."""
    (run,) = found
    made = run.cells("mixture", {row: row for row in NAMES}, {"modes": MODES})
    return {"cells": made + [cell("mixture", row, INDEPENDENT, 0, independent(row, scale)) for row in NAMES]}


def drawn(*rows: str) -> Callable[[str, Sequence[Found]], Tables]:
    """Modes covered, and the density of the first repeat's draws on a grid, of some of the arms."""

    def tables(scale: str, found: Sequence[Found]) -> Tables:
        (run,) = found
        material = Material(run.store, run.comparison)
        grid = []
        for row in rows:
            histogram = density.histogram(material, run.arm(row))
            assert histogram is not None
            grid += [{**point, "arm": row} for point in density.cells(row, histogram)]
        return {"cells": run.cells("mixture", {row: row for row in rows}, {"modes": MODES}), "density": grid}

    return tables


def figure(name: str, rows: Sequence[str]) -> Callable[[str, Mapping[str, pd.DataFrame]], list[Drawing]]:
    """The paper's panels: target, SGLD, cSGLD."""

    def drawings(scale: str, tables: Mapping[str, pd.DataFrame]) -> list[Drawing]:
        if "density" not in tables:
            return []
        cells, grid = tables["cells"], tables["density"]
        panels = []
        for row in rows:
            first = cells[(cells["row"] == row) & (cells["repeat"] == 0) & (cells["column"] == MODES)]["value"].iloc[0]
            panels.append(
                density.Panel(NAMES[row], f"{first:.0f} of 25 modes", density.gridded(grid[grid["arm"] == row]))
            )
        return [
            Drawing(
                name=name,
                title="Density of the draws",
                caption="All kept draws of the first repeat, beside the exact target, on one colour scale. Circles have "
                "the radius within which a draw counts for a mode.",
                alt="Two-dimensional histograms of the target and of the draws of SGLD and of cSGLD",
                draw=lambda theme: density.draw(panels, theme, target=True),
            )
        ]

    return drawings


def settings(scale: str) -> list[Setting]:
    """As published, but for the number of repeats."""
    smoke = scale == "smoke"
    return [
        Setting(name="K", value=f"{STEPS[scale]:,}", origin="ours" if smoke else "published"),
        Setting(name="step size of SGLD", value="0.05 k^-0.55", origin="published"),
        Setting(name="step size of cSGLD", value="cosine from 0.09", origin="published"),
        Setting(name="M", value=str(CYCLES[scale]), origin="ours" if smoke else "published"),
        Setting(name="β", value="1/4", origin="published"),
        Setting(name="start", value="uniform on [−10, 10]²", origin="published"),
        Setting(name="covered", value="more than 100 draws within 0.25", origin="published"),
        Setting(name="repeats", value=str(REPEATS[scale]), origin="published" if scale == "paper" else "ours"),
    ]


def differences(scale: str) -> list[str]:
    """In words."""
    if scale == "smoke":
        return ["2,000 steps and 4 cycles cover few modes: this shows that everything runs, and nothing else."]
    return [
        f"{REPEATS[scale]} repeats" + (", as published." if scale == "paper" else " instead of 10, for narrower intervals."),
        "The published 6.7 modes of one cSGLD chain do not follow from the published settings, nor from the authors' code: "
        "each of 30 cycles ends in a nearly uniformly random mode, which makes 17.65 modes on average.",
        "For four SGLD chains the paper says 18 modes in Table 4 and 4 in Fig. 2: four chains that each stay in one random "
        "mode meet 3.77.",
    ]  # fmt: skip


def _value(row: str, text: str, mean: float, se: float, n: int, source: str) -> Value:
    summary = Summary(mean=mean, se=se, n=n)
    return Value(part="mixture", row=row, column=MODES, text=text, summary=summary, source=source)


def _equal(name: str, text: str, row: str, right: float, tolerance: float, must: bool = True) -> Claim:
    return Claim(
        name=name, text=text, part="mixture", left=Of(row=row, column=MODES), right=right, direction="equal",
        tolerance=tolerance, rule="one-sample", must_decide=must, scales=("cpu", "gpu", "paper"),
    )  # fmt: skip


def _above(name: str, text: str, left: str, right: str) -> Claim:
    return Claim(
        name=name, text=text, part="mixture", left=Of(row=left, column=MODES), right=Of(row=right, column=MODES),
        direction="greater", rule="welch", must_decide=True,
    )  # fmt: skip


def _experiment(name: str, title: str, where: str, order: float, rows: Sequence[str], **more: object) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        paper="csgmcmc",
        where=where,
        order=order,
        rows=lambda scale: [h for h in ROWS if h.key in rows],
        settings=settings,
        differences=differences,
        hours=HOURS,
        **more,  # type: ignore[arg-type]
    )


def _figure(name: str, title: str, where: str, order: float, sgld: str, csgld: str, **more: object) -> Experiment:
    part = Part(
        name="mixture",
        label="",
        sampled=lambda scale: [Sampled(preset=preset(scale))],
        tables=drawn(sgld, csgld),
    )
    return _experiment(
        name, title, where, order, (sgld, csgld),
        parts=(part,), figures=figure(name, (sgld, csgld)),
        columns=lambda scale: (Heading(MODES, "Modes covered", decimals=2),), **more,
    )  # fmt: skip


EXPERIMENTS = (
    _figure(
        "fig2", "25 Gaussians, four chains of 50,000 steps", "Fig. 2", 2, "sgld-4", "csgld-4",
        values=(
            _value("sgld-4", "4", 4, float("nan"), 0, "Zhang et al. 2020, caption of Fig. 2"),
            _value("csgld-4", "fully explored", 25, float("nan"), 0, "Zhang et al. 2020, caption of Fig. 2"),
        ),
        claims=(
            _equal("four-by-sgld", "Four SGLD chains discover 4 of the 25 modes.", "sgld-4", 4, TOLERANCE),
            _equal("all-by-csgld", "Four cSGLD chains explore the distribution fully.", "csgld-4", 25, TOLERANCE),
            _above("csgld-above-sgld", "Four cSGLD chains cover more modes than four SGLD chains.", "csgld-4", "sgld-4"),
        ),
    ),
    _experiment(
        "table4", "mode coverage of 25 Gaussians", "Table 4", 4, tuple(NAMES),
        parts=(
            Part(name="mixture", label="", sampled=lambda scale: [Sampled(preset=preset(scale))], tables=coverage),
        ),
        columns=lambda scale: (
            Heading(MODES, "Modes covered", decimals=2),
            Heading(INDEPENDENT, "If every mode were drawn independently", decimals=2),
        ),
        values=tuple(_value(row, *numbers, 10, "Zhang et al. 2020, Table 4") for row, numbers in PUBLISHED.items()),
        claims=(
            _above("csgld-above-sgld", "One cSGLD chain covers more modes than one SGLD chain.", "csgld", "sgld"),
            _above("parallel-csgld-above-sgld", "Four cSGLD chains cover more than four SGLD chains.", "csgld-4", "sgld-4"),
            *(
                _equal(f"published-{row}", f"{NAMES[row]} covers {mean:g} modes, as Table 4 has it.", row, mean, FAR * se)
                for row, (_, mean, se) in PUBLISHED.items()
            ),
            *(
                _equal(
                    f"independent-{row}", f"{NAMES[row]} covers as many modes as independent draws of them.", row,
                    independent(row, "paper"), TOLERANCE,
                )
                for row in NAMES
            ),
        ),
    ),
    _figure(
        "fig5", "25 Gaussians, one chain of 50,000 steps", "Fig. 5", 5, "sgld", "csgld",
        values=(_value("sgld", "1", 1, float("nan"), 0, "Zhang et al. 2020, caption of Fig. 5"),),
        claims=(
            _equal("one-by-sgld", "One SGLD chain discovers one of the 25 modes.", "sgld", 1, TOLERANCE, False),
            _above("csgld-above-sgld", "One cSGLD chain covers more modes than one SGLD chain.", "csgld", "sgld"),
        ),
    ),
)  # fmt: skip
