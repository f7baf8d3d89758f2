"""Tables of texts, built once and rendered as HTML, Markdown or for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from raychains.evaluation.evaluation import Metric

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler
    from rich.table import Table as RichTable

DASH = "–"
"""Stands in a cell without a value."""
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Cell:
    """One value as shown."""

    text: str
    best: bool = False
    """Set in bold."""
    mark: str = ""
    """Mark of a footnote, raised after the text."""


@dataclass(frozen=True)
class Row:
    """One line: its heads from left to right, its cells, and how HTML shows it."""

    heads: tuple[str, ...]
    cells: Sequence[Cell]
    swatch: str = ""
    """Colour of a square before the first head."""
    css: str = ""
    """Class of all its cells."""


@dataclass(frozen=True)
class Table:
    """Columns with heads of one or more levels, and rows with heads of one or more levels.

    Neighbouring columns, and neighbouring rows, whose heads agree from the first level on share them; not the last
    level's.
    """

    corner: str
    """Over the last level of the rows' heads."""
    columns: Sequence[tuple[str, ...]]
    rows: Sequence[Row]

    def without(self, left_out: Collection[int]) -> Table:
        """Return the table without the columns of these numbers."""
        kept = [number not in left_out for number in range(len(self.columns))]
        rows = [replace(row, cells=[*compress(row.cells, kept)]) for row in self.rows]
        return Table(self.corner, [*compress(self.columns, kept)], rows)


def texts(*cells: str) -> list[Cell]:
    """Cells of plain texts."""
    return [Cell(text) for text in cells]


def heads(*columns: str) -> list[tuple[str, ...]]:
    """Columns with heads of one level."""
    return [(column,) for column in columns]


def with_error(mean: float, error: float, metric: Metric) -> str:
    """A mean and its standard error (nan where it is unknown) with the metric's scale and digits."""
    if not math.isfinite(mean):
        return DASH
    text = f"{mean * metric.scale:.{metric.digits}f}"
    return f"{text} ± {error * metric.scale:.{metric.digits}f}" if math.isfinite(error) else text


def seconds(value: float) -> str:
    """``1,234`` or ``12.3``; a dash for nan."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if math.isfinite(value) else DASH


def html(table: Table, name: str, css: str = "") -> Markup:
    """Render the table as HTML, texts escaped.

    Args:
        name: of the table on its page: its id is ``T_<name>``.
        css: class of the table.
    """
    import pandas as pd

    made = _styler(table)
    frame: Any = made.data
    classes = [[f"{row.css}{' best' * cell.best}".strip() for cell in row.cells] for row in table.rows]
    made = made.set_td_classes(pd.DataFrame(classes, index=frame.index, columns=frame.columns))
    attributes = f'class="{css}"' if css else None
    text = made.to_html(table_uuid=name, table_attributes=attributes)
    return Markup(text[text.index("<table") :])  # without the empty style sheet before it


def markdown(table: Table) -> str:
    """Render the table in GitHub's Markdown, with one line of heads, whose levels a colon joins."""
    lines = [[table.corner, *(": ".join(filter(None, column)) for column in table.columns)]]
    lines += [[": ".join(row.heads), *(cell.text for cell in row.cells)] for row in table.rows]
    marks = [[""] * len(lines[0]), *([""] + [cell.mark for cell in row.cells] for row in table.rows)]
    bold = [[False] * len(lines[0]), *([False] + [cell.best for cell in row.cells] for row in table.rows)]
    done = [
        [
            f"{'**' * b}{markdown_text(text)}{'**' * b}{mark.translate(RAISED)}"
            for text, mark, b in zip(*line, strict=True)
        ]
        for line in zip(lines, marks, bold, strict=True)
    ]
    done.insert(1, ["---", *["---:"] * len(table.columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in done)


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|$~#&!" else c for c in " ".join(text.split()))


def terminal(table: Table, title: str = "", caption: str = "") -> RichTable:
    """Render the table for rich's console."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        box=box.SIMPLE,
        title=Text(title) if title else None,
        title_justify="left",
        caption=Text(caption) if caption else None,
        caption_justify="left",
    )
    made.add_column(Text(table.corner), overflow="fold")
    for column in table.columns:
        made.add_column(Text("\n".join(filter(None, column))), justify="right")
    for row in table.rows:
        shown = (Text(cell.text + cell.mark.translate(RAISED), style="bold" * cell.best) for cell in row.cells)
        made.add_row(Text(" ".join(row.heads)), *shown)
    return made


def _html_cell(cell: Cell) -> str:
    return str(escape(cell.text)) + (f"<sup>{escape(cell.mark)}</sup>" if cell.mark else "")


def _styler(table: Table) -> Styler:
    """Return the table as pandas' Styler: numbers for labels, which may repeat, and escaped texts as their formats."""
    import pandas as pd

    from raychains.plotting.style import DARK

    rows, columns = _codes([row.heads for row in table.rows]), _codes(table.columns)
    columns.names = [None] * (columns.nlevels - 1) + [str(escape(table.corner))]
    made = pd.DataFrame([[_html_cell(c) for c in row.cells] for row in table.rows], index=rows, columns=columns).style

    def row_head(level: int) -> Callable[[Any], str]:
        def head(i: int) -> str:
            square = table.rows[i].swatch if level == 0 else None
            before = f'<i class="swatch" style="--light:{square};--dark:{DARK[square]}"></i>' if square else ""
            return before + str(escape(table.rows[i].heads[level]))

        return head

    for level in range(rows.nlevels):
        made = made.format_index(row_head(level), level=level, axis=0)
    for level in range(columns.nlevels):
        made = made.format_index(lambda i, level=level: str(escape(table.columns[i][level])), level=level, axis=1)
    return made


def _codes(labels: Sequence[tuple[str, ...]]) -> pd.Index[Any]:
    """Each label's levels as the number of the first neighbour that agrees up to them; the last level as its own
    number."""
    import pandas as pd

    levels = len(labels[0])
    if levels == 1:
        return pd.RangeIndex(len(labels))
    codes = [[i] * levels for i in range(len(labels))]
    for i in range(1, len(labels)):
        for level in range(levels - 1):
            if labels[i][: level + 1] == labels[i - 1][: level + 1]:
                codes[i][level] = codes[i - 1][level]
    return pd.MultiIndex.from_tuples([tuple(code) for code in codes])
