"""One table in four renderings: the same texts, heads that span their columns and rows, marks of the best and of
footnotes."""

from __future__ import annotations

import io
import re

from rich.console import Console

from raychains.plotting.style import DARK, INK
from raychains.plotting.tables import Cell, Row, Table, heads, html, markdown, terminal, texts

EVIL = '<script>alert("x")</script>'
TABLE = Table(
    "Method",
    [("C10", "Error (%)"), ("C10", "published"), ("C100", "Error (%)"), ("C100", "Error (%)")],
    [
        Row(("SGLD", "one | chain"), [Cell("4.3 ± 0.1", best=True), Cell("4.27", mark="1"), *texts("–", EVIL)]),
        Row(("SGLD", "four chains"), texts("a_b", "5", "6", "7"), INK, "begins"),
        Row(("SGHMC", "four chains"), texts("8", "9", "10", "11")),
    ],
)


def test_html_spans_shared_heads_marks_cells_and_escapes_texts() -> None:
    text = html(TABLE, "mine", "results")
    assert EVIL not in text and "&lt;script&gt;" in text
    assert re.search(r'<table id="T_mine" class="results">', text)
    assert re.findall(r'colspan="(\d)">(\w+)<', text) == [("2", "C10"), ("2", "C100")]
    assert re.findall(r'rowspan="(\d)">(\w+)<', text) == [("2", "SGLD")]
    assert re.findall(r'row0 col0 best" >([^<]+)<', text) == ["4.3 ± 0.1"] and text.count(" best") == 1
    assert text.count(" begins") == 4 and "4.27<sup>1</sup>" in text and text.count(">Error (%)<") == 3
    assert text == html(TABLE, "mine", "results"), "equal bytes"


def test_a_swatch_stands_before_the_first_head() -> None:
    text = html(Table("Arm", heads("NLL"), [Row(("a",), texts("1"), INK)]), "t")
    assert re.search(rf'><i class="swatch" style="--light:{INK};--dark:{DARK[INK]}"></i>a<', text)
    assert re.findall(r"<th[^>]*>([^<]+)</th>", text) == ["Arm", "NLL"]


def test_markdown_has_a_line_of_heads_and_escapes() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "| Method | C10: Error (%) | C10: published | C100: Error (%) | C100: Error (%) |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: |" and len(lines) == 5
    assert lines[2].startswith(r"| SGLD: one \| chain | **4.3 ± 0.1** | 4.27¹ | – | \<script\>")


def test_the_terminal_shows_every_text() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(terminal(TABLE, "The [title]", "a note"))
    for part in ("The [title]", "Method", "C10", "published", "SGLD one | chain", "4.3 ± 0.1", "4.27¹", EVIL, "a note"):
        assert part in out.getvalue(), part
