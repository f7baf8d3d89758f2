"""The table builder: our mean ± standard error of every cell next to the published value, in four renderings.

Parts stand side by side as groups of columns, as in the papers. No cell is blank: one without a value is a dash with a
footnote that gives the reason, and a published value has a mark that tells where the number was found.
"""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import TYPE_CHECKING, Any

from raychains.plotting import tables as builder

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as RichTable

MARKS: Mapping[str, str] = {
    "in the paper's text": "†",
    "in the authors' repository": "‡",
    "quoted elsewhere": "§",
    "derived": "‖",
}
"""Footnote marks by the place where a published number was found."""
EXPLAINED: Mapping[str, str] = {
    "in the paper's text": "published in the paper's text",
    "in the authors' repository": "published in the authors' repository",
    "quoted elsewhere": "published, quoted by another public source",
    "derived": "not printed: derived from the paper's formula",
}
CAPTION = "Ours: mean ± standard error of the mean (number of repeats)."
UNPUBLISHED = "no published value"
FAILED = "no value: every repeat failed"
UNKNOWN = "no value, and no reason was given"
Key = tuple[str, str, str]
"""(part, row, column)"""


@dataclass(frozen=True)
class Heading:
    """One row, column or part: its key in the cells, and its label."""

    key: str
    label: str
    unit: str = ""
    """A column's unit, shown after its label."""
    decimals: int | None = None
    """A column's decimals; None: two significant digits of the standard error, four of a mean without one."""

    @property
    def text(self) -> str:
        """``Error (%)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
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
    """Its chains' digests, each once."""
    samples: int
    """The number of samples of all its repeats together."""
    reason: str
    """The reason for a missing value, or the repeats that were left out; empty if neither."""
    published: str
    """As printed; empty if there is none."""
    provenance: str
    """A key of `MARKS`, or empty."""

    @property
    def text(self) -> str:
        """``4.27 ± 0.03 (3)``; a dash without a value."""
        if not self.n:
            return builder.DASH
        places = self.column.decimals
        if places is None:
            digits, of = (2, self.se) if self.se > 0 else (4, self.mean)
            places = decimals(of, digits) if of else 1
        error = f" ± {number(self.se, places)}" if math.isfinite(self.se) else ""
        return f"{number(self.mean, places)}{error} ({self.n})"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as shown, built by `build`."""

    title: str
    parts: tuple[Heading, ...]
    rows: tuple[Heading, ...]
    columns: tuple[Heading, ...]
    cells: Mapping[Key, Cell]
    """Every part, row and column has one."""


def build(
    cells: pd.DataFrame,
    *,
    parts: Sequence[Heading],
    rows: Sequence[Heading],
    columns: Sequence[Heading],
    published: Mapping[Key, tuple[str, str]],
    missing: Mapping[Key, str],
    title: str = "",
) -> Table:
    """Return the table of a long table of cells.

    Args:
        cells: part, row, column, repeat, value, digests (separated by spaces) and samples. A value of nan is a repeat
            that
            failed: it is left out, which a footnote tells.
        parts, rows, columns: what is shown, in this order. A single part with an empty label has no heading of its own.
        published: text and provenance (a key of `MARKS`) of the paper's numbers.
        missing: why a cell has no value. An empty part, row or column in a key stands for all of them.
        title: of the table.
    """
    found = dict(list(cells.sort_values("repeat").groupby(["part", "row", "column"])))
    made = {}
    for where in product(parts, rows, columns):
        key = (where[0].key, where[1].key, where[2].key)
        made[key] = _cell(where, found.get(key, cells.iloc[:0]), published.get(key, ("", "")), _reason(key, missing))
    return Table(title=title, parts=tuple(parts), rows=tuple(rows), columns=tuple(columns), cells=made)


def _reason(key: Key, missing: Mapping[Key, str]) -> str:
    """Return the most specific reason for a cell."""
    fits = [k for k in missing if all(mine in ("", own) for mine, own in zip(k, key, strict=True))]
    return missing[max(fits, key=lambda k: sum(map(bool, k)))] if fits else ""


def _cell(where: tuple[Heading, Heading, Heading], found: pd.DataFrame, published: tuple[str, str], why: str) -> Cell:
    values = found["value"].astype(float).tolist()
    have = [v for v in values if not math.isnan(v)]
    finite = all(map(math.isfinite, have))
    mean = math.nan if not have else statistics.fmean(have) if finite else sum(have)
    se = statistics.stdev(have) / math.sqrt(len(have)) if finite and len(have) > 1 else math.nan
    out = len(values) - len(have)
    if not have:
        reason = FAILED if values else (why or UNKNOWN)
    else:
        reason = f"{out} of {len(values)} repeats left out, without a value" if out else ""
    digests = tuple(dict.fromkeys(" ".join(found["digests"]).split()))
    return Cell(*where, mean, se, len(have), out, digests, int(found["samples"].sum()), reason, *published)


def rows(table: Table) -> list[dict[str, Any]]:
    """Return one flat row per cell, for parquet and for a page: None where there is no number."""

    made = []
    for row, part, column in product(table.rows, table.parts, table.columns):
        c = table.cells[part.key, row.key, column.key]
        where = {"part": part.key, "part_label": part.label, "row": row.key, "row_label": row.label}
        where |= {"column": column.key, "column_label": column.label, "unit": column.unit}
        mean, se = (None if math.isnan(v) else v for v in (c.mean, c.se))
        ours = {"mean": mean, "se": se, "n": c.n, "left_out": c.left_out, "text": c.text}
        ours |= {"reason": c.reason, "published": c.published, "standing": c.provenance}
        made.append({**where, **ours, "digests": " ".join(c.digests), "samples": c.samples})
    return made


Leaf = tuple[Heading, Heading, bool]
"""One column as drawn: its part, its column, and whether it is the published values or ours."""


def _leaves(table: Table) -> list[Leaf]:
    """Return the columns: that of published values only where there are some."""
    printed = {(c.part.key, c.column.key) for c in table.cells.values() if c.published}
    return [
        (part, column, published)
        for part, column, published in product(table.parts, table.columns, (False, True))
        if not published or (part.key, column.key) in printed
    ]


def _layout(table: Table) -> tuple[list[Leaf], list[builder.Row], list[builder.Cell]]:
    """Return the columns, rows and footnotes that every rendering draws."""
    leaves = _leaves(table)
    numbers: dict[str, str] = {}
    provenances = {c.provenance for c in table.cells.values() if c.published}

    def entry(cell: Cell, published: bool) -> builder.Cell:
        if published and cell.published:
            return builder.Cell(cell.published, mark=MARKS[cell.provenance])
        reason = UNPUBLISHED if published else cell.reason
        mark = numbers.setdefault(reason, str(len(numbers) + 1)) if reason else ""
        return builder.Cell(builder.DASH if published else cell.text, mark=mark)

    rows = []
    for row in table.rows:
        cells = [entry(table.cells[part.key, row.key, column.key], published) for part, column, published in leaves]
        rows.append(builder.Row((row.text,), cells))
    notes = [builder.Cell(CAPTION)] if any(c.n for c in table.cells.values()) else []
    notes += [builder.Cell(f"{EXPLAINED[s]}.", mark=mark) for s, mark in MARKS.items() if s in provenances]
    notes += [builder.Cell(f"{reason.rstrip('.')}.", mark=number) for reason, number in numbers.items()]
    return leaves, rows, notes


def _built(leaves: Sequence[Leaf], rows: Sequence[builder.Row], mark: str) -> builder.Table:
    """Return it for the table builder; ``mark`` ends the head of a column of published values."""
    return builder.Table("", [(part.text, column.text + mark * published) for part, column, published in leaves], rows)


def number(value: float, places: int) -> str:
    """Return a number with a true minus sign, and none before zero; one of ten digits or more as 1.23e10."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1e9:
        return f"{value:.2e}".replace("-", "−").replace("e+", "e")
    return f"{round(value, places) + 0.0:,.{max(0, places)}f}".replace("-", "−")


def decimals(value: float, digits: int) -> int:
    """Return the places after the point (negative: before it) that leave so many significant digits of a value."""
    if value == 0 or not math.isfinite(value):
        return digits - 1
    # As it is printed: .0996 has two significant digits in .10, not in .100.
    return digits - 1 - int(f"{abs(value):.{digits - 1}e}".partition("e")[2])


def _note(one: builder.Cell, text: str) -> str:
    return f"{one.mark.translate(builder.RAISED)} {text}" if one.mark else text


# Markdown


def markdown(table: Table) -> str:
    """Return the table in GitHub's Markdown: title, table, footnotes; one row of heads (``C10: Error (%)``)."""
    leaves, rows, marked = _layout(table)
    title = [f"**{builder.markdown_text(table.title)}**"] if table.title else []
    notes = [_note(one, builder.markdown_text(one.text)) for one in marked]
    body = builder.markdown(_built(leaves, rows, ", published")).rstrip()
    return "\n\n".join([*title, body, *notes]) + "\n"


# LaTeX


def latex(table: Table) -> str:
    """Return the table as a LaTeX ``table`` that needs the package booktabs; parts and columns head their groups."""
    leaves, rows, marked = _layout(table)
    lines = ["% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering"]
    if table.title:
        lines.append(f"\\caption{{{tex(table.title)}}}")
    lines += [f"\\begin{{tabular}}{{l{'r' * len(leaves)}}}", "\\toprule"]
    lines += [*_tex_heads(leaves), "\\midrule"]
    lines += [_tex_row([tex(row.heads[0]), *(tex(c.text) + _tex_mark(c) for c in row.cells)]) for row in rows]
    lines += ["\\bottomrule", "\\end{tabular}"]
    if notes := [" ".join(filter(None, (_tex_mark(e), tex(e.text)))) for e in marked]:
        lines.append("\\par\\smallskip{\\footnotesize " + "\\\\\n".join(notes) + "\\par}")
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def _tex_heads(leaves: Sequence[Leaf]) -> list[str]:
    """Return the rows of heads: parts over columns over ours and published."""
    texts = [(part.text, column.text, "published" if published else "ours") for part, column, published in leaves]
    shared = [(part.key, column.key, published) for part, column, published in leaves]
    # Without any published value no column is marked as ours; a level without any text would be an empty line.
    drawn = [depth for depth in (0, 1) if any(text[depth] for text in texts)]
    drawn += [2] if any(published for _, _, published in leaves) else []
    lines = []
    for depth in drawn[:-1]:
        groups = [list(of) for _, of in groupby(range(len(leaves)), key=lambda i: shared[i][: depth + 1])]
        heads = [f"\\multicolumn{{{len(of)}}}{{c}}{{{tex(texts[of[0]][depth])}}}" for of in groups]
        rules = [f"\\cmidrule(lr){{{of[0] + 2}-{of[-1] + 2}}}" for of in groups if texts[of[0]][depth]]
        lines += [_tex_row(["", *heads]), "".join(rules)]
    return [*lines, _tex_row(["", *(tex(text[drawn[-1]]) for text in texts)])]


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _tex_mark(entry: builder.Cell) -> str:
    return f"\\textsuperscript{{{tex(entry.mark)}}}" if entry.mark else ""


TEX = dict(
    pair.split(" ")
    for pair in re.split(
        r"  |\n",
        r"""{ \{  } \}  $ \$  & \&  # \#  % \%  _ \_  [ {[}  * {*}  \ \textbackslash{}
~ \textasciitilde{}  ^ \textasciicircum{}
< \textless{}  > \textgreater{}  | \textbar{}  " ''  ` \textasciigrave{}  – --  — ---  “ ``  ” ''  ‘ `  ’ '
± $\pm$  − $-$  × $\times$
· $\cdot$  ∞ $\infty$  ≤ $\le$  ≥ $\ge$  ≈ $\approx$  → $\to$  ↓ $\downarrow$  ↑ $\uparrow$  √ $\surd$  ∛ $\sqrt[3]{\,}$
‖ $\Vert$  ∝ $\propto$
† \dag{}  ‡ \ddag{}  § \S{}  ¶ \P{}  … \ldots{}  ° $^\circ$  ₐ $_a$  ⁻ $^-$  ⅔ 2/3  ½ 1/2  ¼ 1/4""",
    )
) | {"\u00a0": "~"}
"""LaTeX for characters of text; others that are beyond Latin are left as they are.

``[`` and ``*`` stand in braces: after the end of a line LaTeX would take them for an option.
"""


def tex(text: str) -> str:
    """Return text that LaTeX shows as it is, on one line; Greek letters, and raised or lowered digits, in
    mathematics."""
    return "".join(_tex_character(c) for c in re.sub(r"[ \t\r\n]+", " ", text))


def _tex_character(c: str) -> str:
    if c in TEX:
        return TEX[c]
    name, plain = unicodedata.name(c, ""), unicodedata.normalize("NFKD", c)
    if name.startswith("GREEK SMALL LETTER ") and c not in "οςάέήίόύώ":
        return f"$\\{name.rpartition(' ')[2].lower().replace('lamda', 'lambda')}$"
    if name.startswith(("SUPERSCRIPT ", "SUBSCRIPT ")) and plain.isdigit():
        return f"${'^' if name.startswith('SUPER') else '_'}{plain}$"
    return c


# The terminal


def rich_table(table: Table) -> RichTable:
    """Return the table for a terminal, with the footnotes under it."""
    leaves, rows, marked = _layout(table)
    notes = "\n".join(_note(one, one.text) for one in marked)
    drawn = builder.terminal(_built(leaves, rows, "\npublished"), table.title, notes)
    for column in drawn.columns[1:]:
        column.overflow = "fold"
    return drawn
