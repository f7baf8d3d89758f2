"""Table 1b and Fig. 11: accuracy on CIFAR-10-C by severity, mean over the types of corruption, and by type."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from raychains import papers as rp
from raychains.papers.emcmc import emcmc_chains
from raychains.papers.emcmc.emcmc_chains import NAMES, preset, rule, settings
from raychains.plotting.charts import Axis, Panel

ROWS = ("sgd", "sgld", "emcmc")
STYLES = rp.styles(NAMES, "sgd decreasing 0, sgld other 1, emcmc cyclical 0")
SEVERITIES = range(1, 6)
PART = "cifar10-c"


def tables(run: rp.CompletedRun) -> rp.Tables:
    """Return mean accuracies over the types by severity, and every type's."""
    table = run.table("corrupted")
    cells, types = [], []
    for row in ROWS:
        mine = table[(table["arm"] == run.arm(row).name) & (table["severity"] > 0)]
        mine = mine.assign(accuracy=100 * (1 - mine["error"]))
        for (repeat, severity), of in mine.groupby(["repeat", "severity"], sort=True):
            origin = run.origin(row, int(repeat))
            cells.append(rp.cell(PART, row, str(severity), int(repeat), of["accuracy"].mean(), **origin))
        mean = mine.groupby(["corruption", "severity"], sort=False)["accuracy"].mean().reset_index()
        types += [{"part": PART, "row": row, **one} for one in mean.to_dict("records")]
    return {"cells": cells, "types": types}


def _draw(types: pd.DataFrame) -> Figure:
    """Draw Fig. 11: a panel for every type."""
    titles = {kind: kind.replace("_", " ") for kind in types["corruption"]}
    types = types.sort_values("severity", kind="stable")
    return rp.by_part(titles, _panel, of="corruption", height=1.8, share_x=True, share_y=True)(types)


def _panel(types: pd.DataFrame) -> Panel:
    of = rp.styled(types, STYLES)
    lines = [style.line(mine["severity"], mine["accuracy"], size=3, linewidth=1.2) for style, mine in of]
    x = Axis(label="Severity", ticks={float(s): f"{s}" for s in SEVERITIES})
    return Panel(marks=lines, x=x, y=Axis(label="Accuracy (%)"))


STUDY = rp.Study(
    name="emcmc-corrupted",
    paper="emcmc",
    where="Table 1b",
    title="accuracy on corrupted CIFAR-10",
    needs=("cifar10", "cifar10-c"),
    hours=(0.02, 0.6, 1.5, 5),
    parts=(
        rp.Part(
            name=PART,
            label="CIFAR-10-C",
            sampled=rp.comparison(partial(preset, "cifar10", methods=ROWS), measures=("corrupted",)),
            tables=tables,
        ),
    ),
    rows={row: NAMES[row] for row in ROWS},
    columns=[rp.Heading(str(s), f"Severity {s}", "%", 2) for s in SEVERITIES],
    claims=rp.stated(
        f"emcmc-above-{other}-severity-{s} | {PART} {s} | emcmc > {other} {rule(other)} | Entropy-MCMC is more "
        f"accurate than {NAMES[other]} at severity {s}."
        for other in ("sgd", "sgld")
        for s in SEVERITIES
    ),
    settings=settings,
    differences=emcmc_chains.DIFFERENCES
    + """
cpu gpu paper: The paper's numbers are unreadable in the text that we have. Means are over the types of CIFAR-10-C
    that are in the data root, 19 where it is whole.
""",
    figures=rp.figure(
        "types",
        _draw,
        name="corruptions",
        title="Accuracy by type of corruption",
        caption="Test accuracy against the severity of each corruption, mean over the repeats.",
        alt="Accuracy against severity of SGD, SGLD and Entropy-MCMC, a panel for every type of corruption",
    ),
)
