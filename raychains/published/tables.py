"""An experiment's table: our mean ± standard error of every cell beside the published value, in four renderings.

Parts stand side by side as groups of columns, as in the papers. No cell is blank: one without a value is a dash with a
footnote that says why, and a published value has a mark that says where the number was found.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from raychains.errors import UserError, require, unknown_name
from raychains.published.tex import tex

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as RichTable

DASH = "–"
STANDINGS: Mapping[str, str] = {
    "in the paper's text": "†",
    "in the authors' repository": "‡",
    "from memory": "§",
    "derived": "‖",
    "unknown": "¶",
}
"""Where a published number was found, and its footnote mark."""
EXPLAINED: Mapping[str, str] = {
    "in the paper's text": "published in the paper's text",
    "in the authors' repository": "published in the authors' repository",
    "from memory": "published, quoted from memory",
    "derived": "not printed: derived from the paper's formula",
    "unknown": "published; where the number comes from is unknown",
}
CAPTION = "Ours: mean ± standard error of the mean (number of repeats)."
UNPUBLISHED = "no published value"
FAILED = "no value: every repeat failed"
UNSAID = "no value, and no reason was given"
Key = tuple[str, str, str]
"""(part, row, column)"""


@dataclass(frozen=True)
class Heading:
    """One row, column or part: its key in the cells, and what people read."""

    key: str
    label: str
    unit: str = ""
    """Of a column's values, shown behind its label."""
    decimals: int | None = None
    """Of a column's values; None: two significant digits of the standard error, four of a mean without one."""

    @property
    def text(self) -> str:
        """``Error (%)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: ours and the published value."""

    part: Heading
    row: Heading
    column: Heading
    mean: float
    """nan without a value."""
    se: float
    """Standard error of the mean; nan with fewer than two values."""
    n: int
    """Repeats with a value."""
    left_out: int
    """Repeats without one (nan)."""
    digests: tuple[str, ...]
    """Of the chains behind it, each once."""
    samples: int
    """Of all its repeats together."""
    reason: str
    """Why there is no value, or what was left out; empty if neither."""
    published: str
    """As printed; empty if there is none."""
    standing: str
    """A key of `STANDINGS`, or empty."""

    @property
    def text(self) -> str:
        """``4.27 ± 0.03 (3)``; a dash without a value."""
        if not self.n:
            return DASH
        decimals = self.column.decimals
        if decimals is None:
            digits, of = (2, self.se) if self.se > 0 else (4, self.mean)
            known = of != 0 and math.isfinite(of)
            decimals = digits - 1 - int(f"{of:.{digits - 1}e}".partition("e")[2]) if known else 1
        error = f" ± {_number(self.se, decimals)}" if math.isfinite(self.se) else ""
        return f"{_number(self.mean, decimals)}{error} ({self.n})"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as shown, built by `build`."""

    title: str
    corner: str
    """Over the row labels."""
    parts: tuple[Heading, ...]
    rows: tuple[Heading, ...]
    columns: tuple[Heading, ...]
    cells: Mapping[Key, Cell]
    """Every part, row and column has one."""


def build(
    cells: pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    rows: Sequence[Heading],
    columns: Sequence[Heading],
    parts: Sequence[Heading],
    published: Mapping[Key, tuple[str, str]] | None = None,
    missing: Mapping[Key, str] | None = None,
    title: str = "",
    corner: str = "",
) -> Table:
    """The table of a long table of cells.

    Args:
        cells: part, row, column, repeat, value, and where they are known digests (separated by spaces) and samples. A
            value of nan is a repeat that failed: it is left out and said.
        rows, columns, parts: what is shown, in this order. A single part with an empty label has no heading of its own.
        published: text and standing (a key of `STANDINGS`) of the paper's numbers.
        missing: why a cell has no value. An empty part, row or column in a key stands for all of them.
    Raises:
        UserError: a cell or a published value that no heading shows, a repeat that is there twice, a standing that does
            not exist, two headings of one key.
    """
    published, missing = published or {}, missing or {}
    shown = [dict.fromkeys(h.key for h in headings) for headings in (parts, rows, columns)]
    for name, headings, keys in zip(("parts", "rows", "columns"), (parts, rows, columns), shown, strict=True):
        require(len(keys) == len(headings) > 0, f"table: {name}", [h.key for h in headings], "be some, all different")
    values: dict[Key, dict[Any, Mapping[str, Any]]] = {}
    for record in _records(cells):
        key = (record["part"], record["row"], record["column"])
        _known(key, shown, "a cell")
        repeats = values.setdefault(key, {})
        if record["repeat"] in repeats:
            raise UserError(
                f"table: repeat {record['repeat']} of cell {'/'.join(key)} must be there once, got it twice"
            )
        repeats[record["repeat"]] = record
    for key, (_, standing) in published.items():
        _known(key, shown, "a published value")
        if standing not in STANDINGS:
            raise unknown_name(f"table: standing of {'/'.join(key)}", standing, STANDINGS)
    made = {}
    for part in parts:
        for row in rows:
            for column in columns:
                key = (part.key, row.key, column.key)
                text, standing = published.get(key, ("", ""))
                found = [values[key][repeat] for repeat in sorted(values[key])] if key in values else []
                made[key] = _cell((part, row, column), found, text, standing, _reason(key, missing))
    return Table(
        title=title, corner=corner, parts=tuple(parts), rows=tuple(rows), columns=tuple(columns), cells=made
    )  # fmt: skip


def _records(cells: Any) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = cells.to_dict("records") if hasattr(cells, "to_dict") else cells
    return found


def _given(record: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """A field that may be absent: not there, None, or a data frame's nan."""
    value = record.get(name)
    return otherwise if value is None or value != value else value


def _known(key: Key, shown: Sequence[Mapping[str, Any]], what: str) -> None:
    for name, value, known in zip(("part", "row", "column"), key, shown, strict=True):
        if value not in known:
            raise unknown_name(f"table: {name} of {what}", str(value), known)


def _reason(key: Key, missing: Mapping[Key, str]) -> str:
    """The most specific reason given for a cell."""
    fits = [k for k in missing if all(mine in ("", wanted) for mine, wanted in zip(k, key, strict=True))]
    return missing[max(fits, key=lambda k: sum(map(bool, k)))] if fits else ""


def _cell(where: tuple[Heading, ...], found: list[Mapping[str, Any]], text: str, standing: str, why: str) -> Cell:
    values = [float(record["value"]) for record in found]
    have = [v for v in values if not math.isnan(v)]
    finite = all(map(math.isfinite, have))
    mean = math.nan if not have else statistics.fmean(have) if finite else sum(have)
    se = statistics.stdev(have) / math.sqrt(len(have)) if finite and len(have) > 1 else math.nan
    out = len(values) - len(have)
    if not have:
        reason = FAILED if values else (why or UNSAID)
    else:
        reason = f"{out} of {len(values)} repeats left out, without a value" if out else ""
    digests = dict.fromkeys(d for record in found for d in str(_given(record, "digests", "")).split())
    return Cell(
        part=where[0], row=where[1], column=where[2], mean=mean, se=se, n=len(have), left_out=out,
        digests=tuple(digests), samples=sum(int(_given(record, "samples", 0)) for record in found), reason=reason,
        published=text, standing=standing,
    )  # fmt: skip


def rows(table: Table) -> list[dict[str, Any]]:
    """One flat row per cell, for parquet and for a page: None where there is no number."""

    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    return [
        {
            "part": c.part.key, "part_label": c.part.label, "row": c.row.key, "row_label": c.row.label,
            "column": c.column.key, "column_label": c.column.label, "unit": c.column.unit,
            "mean": number(c.mean), "se": number(c.se), "n": c.n, "left_out": c.left_out, "text": c.text,
            "reason": c.reason, "published": c.published, "standing": c.standing,
            "digests": " ".join(c.digests), "samples": c.samples,
        }
        for c in (table.cells[p.key, r.key, k.key] for r in table.rows for p in table.parts for k in table.columns)
    ]  # fmt: skip


@dataclass(frozen=True)
class _Leaf:
    """One column as drawn: ours, or the published values beside it."""

    part: Heading
    column: Heading
    published: bool


@dataclass(frozen=True)
class _Entry:
    """One cell as drawn, with the mark of its footnote."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class _Layout:
    """What every rendering draws."""

    leaves: list[_Leaf]
    body: list[tuple[Heading, list[_Entry]]]
    notes: list[_Entry]


def _layout(table: Table) -> _Layout:
    printed = {(c.part.key, c.column.key) for c in table.cells.values() if c.published}
    leaves = [
        _Leaf(part, column, published)
        for part in table.parts
        for column in table.columns
        for published in (False, True)
        if not published or (part.key, column.key) in printed
    ]
    numbers: dict[str, str] = {}
    standings = {c.standing for c in table.cells.values() if c.published}

    def entry(cell: Cell, published: bool) -> _Entry:
        if published and cell.published:
            return _Entry(cell.published, STANDINGS[cell.standing])
        reason = UNPUBLISHED if published else cell.reason
        mark = numbers.setdefault(reason, str(len(numbers) + 1)) if reason else ""
        return _Entry(DASH if published else cell.text, mark)

    body = [
        (row, [entry(table.cells[leaf.part.key, row.key, leaf.column.key], leaf.published) for leaf in leaves])
        for row in table.rows
    ]
    notes = [_Entry(CAPTION)] if any(c.n for c in table.cells.values()) else []
    notes += [_Entry(f"{EXPLAINED[s]}.", mark) for s, mark in STANDINGS.items() if s in standings]
    notes += [_Entry(f"{reason.rstrip('.')}.", number) for reason, number in numbers.items()]
    return _Layout(leaves, body, notes)


def _number(value: float, decimals: int) -> str:
    """A true minus sign, and none before zero."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, decimals) + 0.0:,.{max(0, decimals)}f}".replace("-", "−")


def _raised(mark: str) -> str:
    return mark.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


# Markdown


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown: title, table, footnotes; one row of heads (``C10: Error (%)``)."""
    layout = _layout(table)
    heads = [table.corner, *(_head(leaf, ": ", ", published") for leaf in layout.leaves)]
    lines = [_markdown_row(map(_markdown_text, heads)), _markdown_row(["---"] + ["---:"] * len(layout.leaves))]
    for row, entries in layout.body:
        texts = (_markdown_text(e.text) + _raised(e.mark) for e in entries)
        lines.append(_markdown_row([_markdown_text(row.text), *texts]))
    title = [f"**{_markdown_text(table.title)}**"] if table.title else []
    notes = [" ".join(filter(None, (_raised(e.mark), _markdown_text(e.text)))) for e in layout.notes]
    return "\n\n".join([*title, "\n".join(lines), *notes]) + "\n"


def _head(leaf: _Leaf, between: str, published: str) -> str:
    return between.join(filter(None, (leaf.part.text, leaf.column.text))) + (published if leaf.published else "")


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|$~#&!" else c for c in " ".join(text.split()))


# LaTeX


def latex(table: Table) -> str:
    """The table as a LaTeX ``table`` that needs the package booktabs; parts and columns head their groups."""
    layout = _layout(table)
    lines = ["% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering"]
    if table.title:
        lines.append(f"\\caption{{{tex(table.title)}}}")
    lines += [f"\\begin{{tabular}}{{l{'r' * len(layout.leaves)}}}", "\\toprule"]
    levels = [tuple(_level(leaf, depth) for leaf in layout.leaves) for depth in range(3)]
    # Without any published value nothing is told apart as ours; a level without any text would be an empty line.
    told = [depth for depth in (0, 1) if any(text for text, _ in levels[depth])]
    told += [2] if any(leaf.published for leaf in layout.leaves) else []
    for depth in told:
        groups = [list(group) for _, group in groupby(levels[depth])]
        spans = [(group[0][0], len(group)) for group in groups]
        last = depth == told[-1]
        heads = [tex(text) if last else f"\\multicolumn{{{n}}}{{c}}{{{tex(text)}}}" for text, n in spans]
        lines.append(_tex_row([tex(table.corner) if last else "", *heads]))
        if not last:
            starts = [2 + sum(n for _, n in spans[:i]) for i in range(len(spans))]
            rules = [f"\\cmidrule(lr){{{s}-{s + n - 1}}}" for s, (text, n) in zip(starts, spans, strict=True) if text]
            lines.append("".join(rules))
    lines.append("\\midrule")
    lines += [_tex_row([tex(row.text), *(tex(e.text) + _tex_mark(e) for e in entries)]) for row, entries in layout.body]
    lines += ["\\bottomrule", "\\end{tabular}"]
    notes = [" ".join(filter(None, (_tex_mark(e), tex(e.text)))) for e in layout.notes]
    if notes:
        lines.append("\\par\\smallskip{\\footnotesize " + "\\\\\n".join(notes) + "\\par}")
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def _level(leaf: _Leaf, depth: int) -> tuple[str, tuple[Any, ...]]:
    """A head's text, and what neighbours must share to stand under one head."""
    texts = (leaf.part.text, leaf.column.text, "published" if leaf.published else "ours")
    return texts[depth], (leaf.part.key, leaf.column.key, leaf.published)[: depth + 1]


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _tex_mark(entry: _Entry) -> str:
    return f"\\textsuperscript{{{tex(entry.mark)}}}" if entry.mark else ""


# The terminal


def rich_table(table: Table) -> RichTable:
    """The table for a terminal, with the footnotes under it."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    layout = _layout(table)
    notes = "\n".join(" ".join(filter(None, (_raised(e.mark), e.text))) for e in layout.notes)
    drawn = RichTable(
        box=box.SIMPLE_HEAD, title=Text(table.title) if table.title else None, title_justify="left",
        caption=Text(notes) if notes else None, caption_justify="left",
    )  # fmt: skip
    drawn.add_column(Text(table.corner))
    for leaf in layout.leaves:
        drawn.add_column(Text(_head(leaf, "\n", "\npublished")), justify="right", overflow="fold")
    for row, entries in layout.body:
        drawn.add_row(Text(row.text), *(Text(e.text + _raised(e.mark)) for e in entries))
    return drawn
