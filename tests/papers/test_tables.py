"""The table of an experiment: its numbers by hand, its renderings read back."""

from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from raychains.papers import published_table
from raychains.papers.pages import EMPTY
from raychains.papers.published_table import Heading, Table, tex

NAN = math.nan
ROWS = [Heading("sgld", "SGLD"), Heading("csgld", "cSGLD")]
COLUMNS = [Heading("error", "Error", "%", 2), Heading("nll", "NLL")]
PARTS = [Heading("c10", "C10"), Heading("c100", "C100")]
PAPER = {
    ("c10", "sgld", "error"): ("5.20 ± .06", "in the paper's text"),
    ("c10", "csgld", "error"): ("4.29 ± .06", "in the paper's text"),
    ("c100", "csgld", "error"): ("20.5", "quoted elsewhere"),
}
ABSENT = {("c100", "", ""): "not run: CIFAR-100 is not in the data root"}


def cell(part: str, row: str, column: str, repeat: int, value: float, **more: Any) -> dict[str, Any]:
    return {"part": part, "row": row, "column": column, "repeat": repeat, "value": value} | more


def values(found: Mapping[tuple[str, str, str], list[float]]) -> list[dict[str, Any]]:
    return [cell(*key, i, v) for key, each in found.items() for i, v in enumerate(each)]


CELLS = values(
    {
        ("c10", "sgld", "error"): [5.1, 5.3, 5.5],
        ("c10", "csgld", "error"): [4.2, NAN, 4.4],
        ("c10", "sgld", "nll"): [0.2107, 0.2243, 0.2291],
        ("c10", "csgld", "nll"): [0.1934],
    }
)
GOLDEN = """\
**Table 1**

|  | C10: Error (%) | C10: Error (%), published | C10: NLL | C100: Error (%) | C100: Error (%), published | C100: NLL |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| SGLD | 5.30 ± 0.12 (3) | 5.20 ± .06† | 0.2214 ± 0.0055 (3) | –¹ | –² | –¹ |
| cSGLD | 4.30 ± 0.10 (2)³ | 4.29 ± .06† | 0.1934 (1) | –¹ | 20.5§ | –¹ |

Ours: mean ± standard error of the mean (number of repeats).

† published in the paper's text.

§ published, quoted by another public source.

¹ not run: CIFAR-100 is not in the data root.

² no published value.

³ 1 of 3 repeats left out, without a value.
"""


def frame(cells: Any) -> pd.DataFrame:
    return pd.DataFrame(cells, columns=EMPTY.columns).fillna({"digests": "", "samples": 0})


def build(cells: Any = CELLS, **changes: Any) -> Table:
    asked: dict[str, Any] = {
        "rows": ROWS, "columns": COLUMNS, "parts": PARTS, "published": PAPER, "missing": ABSENT,
        "title": "Table 1",
    }  # fmt: skip
    return published_table.build(frame(cells), **(asked | changes))


def one(value: float | list[float], **heading: Any) -> Table:
    each = value if isinstance(value, list) else [value]
    return published_table.build(
        frame(values({("p", "r", "c"): each})), rows=[Heading("r", "row")], columns=[Heading("c", "Column", **heading)],
        parts=[Heading("p", "")], published={}, missing={},
    )  # fmt: skip


# The cells


def test_the_cells_order_is_nothing_and_without_any_all_have_a_reason() -> None:
    assert published_table.markdown(build(CELLS[::-1])) == published_table.markdown(build())
    assert all(c.n == 0 and c.text == "–" and c.reason for c in build([]).cells.values())


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        ([5.1, 5.3, 5.5], 2, "5.30 ± 0.12 (3)"),
        ([5.1, 5.3, 5.5], 0, "5 ± 0 (3)"),
        ([5.1, 5.3, 5.5], None, "5.30 ± 0.12 (3)"),
        ([0.00012, 0.00014], None, "0.000130 ± 0.000010 (2)"),
        ([1200.0, 1500.0, 1900.0], None, "1,530 ± 200 (3)"),
        ([0.1934], None, "0.1934 (1)"),
        ([25.0, 25.0], None, "25.00 ± 0.00 (2)"),
        ([-1e-9, 0.0], 2, "0.00 ± 0.00 (2)"),
        ([-1.5], 1, "−1.5 (1)"),
        ([0.0], None, "0.0 (1)"),
        ([math.inf, 1.0], None, "∞ (2)"),
        ([NAN, 2.0], 1, "2.0 (1)"),
        ([NAN, NAN], 1, "–"),
        ([-123_456_789_012.0], 2, "−1.23e11 (1)"),
        ([1e30, 1e30], 2, "1.00e30 ± 0.00 (2)"),
    ],
)
def test_a_cell_has_the_columns_decimals_or_two_digits_of_its_error(
    value: list[float], decimals: int | None, shown: str
) -> None:
    assert one(value, decimals=decimals).cells["p", "r", "c"].text == shown


def test_what_is_missing_has_the_most_specific_reason() -> None:
    reasons = {
        ("", "", ""): "all",
        ("c10", "", ""): "part",
        ("", "csgld", "nll"): "row and column",
        ("c10", "sgld", ""): "part and row",
        ("c10", "sgld", "nll"): "cell",
    }
    found = {key: c.reason for key, c in build([], missing=reasons).cells.items()}
    assert found["c10", "sgld", "nll"] == "cell" and found["c10", "sgld", "error"] == "part and row"
    assert found["c10", "csgld", "error"] == "part" and found["c100", "sgld", "nll"] == "all"
    assert found["c10", "csgld", "nll"] == "row and column"
    # A reason that ends as a sentence has one full stop.
    assert "¹ all.\n" in published_table.markdown(build([], missing={("", "", ""): "all."}, published={}))
    # A value needs no reason.
    assert build(missing={("", "", ""): "all"}).cells["c10", "sgld", "nll"].reason == ""


def test_no_cell_is_left_without_a_reason() -> None:
    for missing in ({}, {("", "", ""): "not measured"}):
        found = build([*CELLS, cell("c100", "sgld", "nll", 0, NAN)], missing=missing).cells
        assert found["c100", "sgld", "nll"].reason == "no value: every repeat failed"
    found = build(CELLS, missing={}).cells
    assert found["c100", "sgld", "error"].reason == "no value, and no reason was given"


def test_plain_rows_go_to_parquet_and_have_everything() -> None:
    cells = [c | {"digests": f"aa b{i}", "samples": 12} for i, c in enumerate(CELLS)]
    found = published_table.rows(
        build(pd.DataFrame([*cells, cell("c100", "csgld", "nll", 0, 0.5)]))
    )  # nan in the last one's digests
    assert len(found) == len(ROWS) * len(COLUMNS) * len(PARTS)
    by = {(r["part"], r["row"], r["column"]): r for r in pa.Table.from_pylist(found).to_pylist()}
    first, failed, absent = by["c10", "sgld", "error"], by["c10", "csgld", "error"], by["c100", "sgld", "nll"]
    assert (first["digests"], first["samples"], first["n"]) == ("aa b0 b1 b2", 36, 3)
    assert published_table.rows(build(cells[::-1]))[0]["digests"] == "aa b0 b1 b2"
    assert first["mean"] == pytest.approx(5.3) and first["text"] == "5.30 ± 0.12 (3)"
    assert (first["published"], first["standing"]) == ("5.20 ± .06", "in the paper's text")
    assert (first["row_label"], first["column_label"], first["unit"]) == ("SGLD", "Error", "%")
    assert (failed["n"], failed["left_out"]) == (2, 1)
    assert by["c100", "csgld", "nll"]["digests"] == "" and by["c100", "csgld", "nll"]["samples"] == 0
    assert (absent["mean"], absent["se"], absent["reason"]) == (None, None, ABSENT["c100", "", ""])


# Markdown


def read(text: str) -> list[list[str]]:
    """The tables' cells as a Markdown reader shows them, row by row."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level >= 4:
            children = token.children or []
            assert {child.type for child in children} <= {"text", "text_special"}
            rows[-1].append("".join(child.content for child in children))
    return rows


def test_the_markdown_is_this() -> None:
    assert published_table.markdown(build()) == GOLDEN


NASTY = "|\\`*_{}[]()<>$~#&!%^\"'- ab1.:θ₄±"


def test_any_label_survives_markdown() -> None:
    draw = random.Random(5)
    for _ in range(150):
        texts = [" ".join("".join(draw.choices(NASTY, k=12)).split()) or "x" for _ in range(4)]
        row, column, part, printed = texts
        made = published_table.build(
            frame([]), rows=[Heading("r", row)], columns=[Heading("c", column)], parts=[Heading("p", part)],
            published={("p", "r", "c"): (printed, "derived")}, missing={("", "", ""): "why"},
        )  # fmt: skip
        heads, body = read(published_table.markdown(made))
        assert heads == ["", f"{part}: {column}", f"{part}: {column}, published"]
        assert body == [row, "–¹", f"{printed}‖"]


def test_one_part_without_a_label_and_no_published_values_need_no_heads_for_them() -> None:
    text = published_table.markdown(one([1.0, 2.0], decimals=1))
    assert text.splitlines()[0] == "|  | Column |" and "1.5 ± 0.5 (2)" in text
    assert "ours" not in published_table.latex(one(1.0)) and "cmidrule" not in published_table.latex(one(1.0))


# LaTeX


def plain(text: str) -> str:
    """LaTeX's text as it reads: what `tex` wrote, undone by patterns of its own."""
    back = [
        (r"\\textbackslash\{\}", "\0"), (r"\\textasciitilde\{\}", "~"), (r"\\textasciicircum\{\}", "^"),
        (r"\\textless\{\}", "<"), (r"\\textgreater\{\}", ">"), (r"\\textbar\{\}", "|"), (r"\\textasciigrave\{\}", "`"),
        (r"''", '"'), (r"\$\\pm\$", "±"), (r"\$\\theta\$", "θ"), (r"\$_4\$", "₄"), (r"\{([\[*])\}", r"\1"),
        (r"\\([{}$&#%_])", r"\1"),
    ]  # fmt: skip
    for pattern, stands_for in back:
        text = re.sub(pattern, stands_for, text)
    return text.replace("\0", "\\")


def sound(text: str) -> None:
    """Braces balance, mathematics is closed, nothing but what LaTeX may read is left bare, all rows have as many
    cells."""
    bare = re.sub(r"\\[{}$&#%_\\]", "", text)
    depth = 0
    for c in bare:
        depth += {"{": 1, "}": -1}.get(c, 0)
        assert depth >= 0
    assert depth == 0 and bare.count("$") % 2 == 0
    inside = bare.partition("\\toprule")[2].partition("\\bottomrule")[0]
    assert not set("#~%") & set(inside)
    outside = re.sub(r"\$[^$]*\$", "", inside)
    assert not set("_^<>|") & set(outside)
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1])  # type: ignore[index]
    lines = [
        line for line in text.partition("\\toprule")[2].partition("\\bottomrule")[0].splitlines() if "\\\\" in line
    ]
    for line in lines:
        spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
        assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) - len(spans) == columns
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1


def test_the_latex_has_parts_and_columns_over_their_groups() -> None:
    text = published_table.latex(build())
    sound(text)
    head, _, body = text.partition("\\toprule")[2].partition("\\midrule")
    assert head.strip("\n").splitlines() == [
        r" & \multicolumn{3}{c}{C10} & \multicolumn{3}{c}{C100} \\",
        r"\cmidrule(lr){2-4}\cmidrule(lr){5-7}",
        r" & \multicolumn{2}{c}{Error (\%)} & \multicolumn{1}{c}{NLL} & \multicolumn{2}{c}{Error (\%)} & "
        r"\multicolumn{1}{c}{NLL} \\",
        r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}\cmidrule(lr){5-6}\cmidrule(lr){7-7}",
        r" & ours & published & ours & ours & published & ours \\",
    ]
    assert (
        body.strip()
        .splitlines()[1]
        .startswith(
            r"cSGLD & 4.30 $\pm$ 0.10 (2)\textsuperscript{3} & 4.29 $\pm$ .06\textsuperscript{\dag{}} & 0.1934 (1)"
        )
    )
    assert r"\textsuperscript{1} not run: CIFAR-100 is not in the data root." in text
    assert r"\caption{Table 1}" in text


def test_columns_of_one_name_keep_heads_of_their_own() -> None:
    text = published_table.latex(build([], columns=[Heading("error", "Same"), Heading("nll", "Same")], published={}))
    sound(text)
    assert r" & Same & Same & Same & Same \\" in text


def test_any_text_survives_latex() -> None:
    draw = random.Random(6)
    for _ in range(300):
        text = "".join(draw.choices(NASTY.replace("'", ""), k=14))
        assert plain(tex(text)) == re.sub(" +", " ", text)
        sound(published_table.latex(build(rows=[Heading("sgld", text), Heading("csgld", "b")], title=text)))


def test_every_character_that_the_house_writes_has_its_latex() -> None:
    """All but Latin letters with accents, which LaTeX reads as they are, comes out in ASCII."""
    for c in "αβγδεζηθλμξπρσφψω±−–—×·∞≤≥≈→↓↑√‖∝†‡§¶…°“”‘’₀₁₄ₐ⁰²⁻⅔½¼\u00a0":
        assert tex(c).isascii() and tex(c), c
    assert tex("[a]*") == "{[}a]{*}"  # no option of the line before
    assert tex("θₐ, é, λ10⁻⁵") == r"$\theta$$_a$, é, $\lambda$10$^-$$^5$"


# The terminal


def test_the_terminal_shows_the_same_cells_and_takes_nothing_for_markup() -> None:
    stream = io.StringIO()
    made = build(rows=[Heading("sgld", "[bold]SGLD[/bold]"), Heading("csgld", "cSGLD")], title="[red]T")
    Console(file=stream, width=200).print(published_table.rich_table(made))
    shown = stream.getvalue()
    for text in ("[red]T", "[bold]SGLD[/bold]", "5.30 ± 0.12 (3)", "4.30 ± 0.10 (2)³", "5.20 ± .06†", "20.5§", "–¹"):
        assert text in shown
    assert "¹ not run: CIFAR-100 is not in the data root." in shown
