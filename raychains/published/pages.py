"""An experiment's page and files: drawn from the tables in its folder alone."""

from __future__ import annotations

from dataclasses import asdict

from raychains.published import output, tables
from raychains.published.claims import Verdict
from raychains.published.experiment import PAPERS, SCALES, Experiment
from raychains.published.folder import Folder
from raychains.report import page as pages
from raychains.report import results


def write(experiment: Experiment, folder: Folder) -> list[Verdict]:
    """Draw an experiment's page again: table.md, table.tex, table.parquet, claims.parquet, figures/ and index.html.

    Raises:
        UserError: a table is missing or damaged.
    """
    about = folder.about()
    assert about is not None
    scale = about["scale"]
    stored = output.stored(folder, about)
    cells = stored.get("cells", output.EMPTY)
    table = output.table_of(experiment, scale, cells, about)
    verdicts = output.verdicts(experiment, scale, cells)
    folder.write_file("table.md", tables.markdown(table).encode())
    folder.write_file("table.tex", tables.latex(table).encode())
    results.write_rows(folder, "table", tables.rows(table))
    results.write_rows(folder, "claims", [output.plain(asdict(v)) for v in verdicts])
    makers = {d.name: (lambda d=d: d) for d in experiment.figures(scale, stored)}
    figures, failed = pages.drawn(folder, makers)
    folder.keep_figures(figures)
    html = pages.template("reproduced.html.j2").render(
        style=pages.style(),
        experiment=experiment,
        paper=PAPERS[experiment.paper],
        scale=scale,
        about_scale=SCALES[scale],
        about=about,
        table=table,
        sources={(v.part, v.row, v.column): v.source for v in experiment.values},
        marks=tables.STANDINGS,
        explained=tables.EXPLAINED,
        standings=[s for s in tables.STANDINGS if any(c.published and c.standing == s for c in table.cells.values())],
        notes=_numbered(table),
        verdicts=verdicts,
        settings=experiment.settings(scale),
        differences=experiment.differences(scale),
        figures=list(figures.values()),
        failed=failed,
    )
    folder.write_file("index.html", html.encode(errors="replace"))
    return verdicts


def _numbered(table: tables.Table) -> dict[str, int]:
    """Footnotes: reasons of cells in their order, each once."""
    ordered = [table.cells[p.key, r.key, c.key] for r in table.rows for p in table.parts for c in table.columns]
    return {reason: n for n, reason in enumerate(dict.fromkeys(c.reason for c in ordered if c.reason), start=1)}
