"""A run or a sweep as people look at it from Python: HTML in a notebook, text in a terminal."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from raychains.core.errors import format_error
from raychains.plotting.style import as_svg, laid_out
from raychains.plotting.tables import Table, terminal
from raychains.plotting.tables import html as table_html
from raychains.report import run_page
from raychains.report.console import standard_output
from raychains.report.figures.mapping import Figures

log = logging.getLogger(__name__)


def html(
    title: str,
    table: Table,
    figures: Figures,
    names: Iterable[str],
    report: str,
    *,
    width: str,
    suspicions: Sequence[str] = (),
) -> str:
    """Return a run as a notebook shows it: its table, some figures and a link to its report, without scripts.

    Args:
        title: says which run it is.
        table: of its arms.
        figures: its figures.
        names: those of them that are shown; one that cannot be drawn is left out.
        report: where its page lies.
        width: of a figure, in CSS.
        suspicions: sentences below the table.
    """
    shown = []
    for name in names:
        try:
            drawing = figures.drawing(name)
            with laid_out(drawing) as figure:
                image = base64.b64encode(as_svg(figure)).decode()
        except Exception as error:  # the table is worth showing without it
            log.warning("figure %s could not be drawn: %s", name, format_error(error))
            continue
        shown.append((drawing, f"data:image/svg+xml;base64,{image}"))
    text = run_page.filled(
        "notebook.html.j2",
        title=title,
        table=table_html(table, "arms", "results") if table.rows else "",
        figures=shown,
        report=report,
        link=link(report),
        width=width,
        suspicions=suspicions,
    )
    return text.decode()


def link(report: str) -> str:
    """Return an address that a notebook opens: relative for a file below the current folder, which Jupyter serves."""
    if not os.path.isabs(report):
        return report
    path, here = Path(report), Path.cwd()
    return quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()


def show(title: str, table: Table, figures: Figures, report: str, suspicions: Sequence[str] = ()) -> None:
    """Display the table and all figures in a notebook; elsewhere print the table and where the report lies."""
    console = standard_output()
    if console.is_jupyter:
        from IPython.display import HTML, display

        display(HTML(html(title, table, figures, figures, report, width="100%", suspicions=suspicions)))
    else:
        console.print(title, highlight=False, markup=False, soft_wrap=True)
        console.print(terminal(table))
        for line in suspicions:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        console.print(report, highlight=False, markup=False, soft_wrap=True)
