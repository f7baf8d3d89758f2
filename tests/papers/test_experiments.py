"""All experiments: claims and published values are of cells that there are, at every scale; printed tables are read
right."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from raychains.papers import ALL, contents, published_table
from raychains.papers.claims import Direction, Of, Rule
from raychains.papers.contents import Listing
from raychains.papers.pages import EMPTY as EMPTY_CELLS
from raychains.papers.pages import Folder
from raychains.papers.study import Study, printed
from raychains.store import Storage
from tests.papers.planned import every, needs_data, planned
from tests.spread import spread

ROOT = Path(__file__).parents[2]
PAPERS = Path(contents.__file__).parent
EMPTY = {("atmc-table2", "cpu"), ("emcmc-imagenet", "cpu")}
"""Without settings: ImageNet needs GPUs."""
STUDIES = ("atmc-calibration", "posterior-budgets", "true-posterior")
REGRESSIONS = {"bde-table", "uci-table", *STUDIES}
"""With plans of many chains."""


def test_the_list_has_every_study_paper_by_paper_and_what_its_file_states() -> None:
    known = contents.published()
    modules = [import_module(f"raychains.papers.{f.parent.name}.{f.stem}") for f in PAPERS.glob("*/*.py")]
    found = {id(one): one for module in modules for one in vars(module).values() if isinstance(one, Study)}
    assert sorted(one.name for one in found.values()) == sorted(one.name for one in known)
    for listing in known:
        own = every()[listing.name]
        assert replace(listing, study="") == Listing(**{f.name: getattr(own, f.name) for f in fields(Listing)})
    assert [paper for paper, _ in itertools.groupby(one.paper for one in known)] == list(contents.PAPERS)
    some = "table1 table2 fig3a fig3b theorem1 atmc-table1 emcmc-table1 emcmc-corrupted emcmc-table2 emcmc-fig2 "
    some += "emcmc-fig3 emcmc-ablations"
    assert [one.name for one in known if one.name in some.split()] == some.split()


@pytest.mark.parametrize("name", every())
def test_claims_and_published_values_can_be_judged_and_are_of_cells_that_there_are(name: str) -> None:
    one = every()[name]
    assert len({(c.name, c.part) for c in one.claims}) == len(one.claims)
    assert set(one.needs) == {name for part in one.parts for name in part.data}
    assert len(one.hours) == len(ALL)
    for scale in ALL:
        parts = {p.name for p in one.parts if scale in p.scales}
        rows, columns = ([h.key for h in of(scale)] for of in (one.row_headings, one.column_headings))
        cells = set(itertools.product(parts, rows, columns))
        judged = [c for c in one.claims if scale in c.scales and c.part in parts]
        assert all(set(claim.cells) <= cells for claim in judged), scale
        assert all((v.part, v.row, v.column) in cells for v in one.values if v.part in parts), scale
        assert bool(one.settings(scale)) == ((name, scale) not in EMPTY), scale
        assert one.differences_at(scale) or (name, scale) in {("table1", "paper")}, scale
    for c in one.claims:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c.name) and c.text.strip()
        assert c.direction in get_args(Direction) and c.rule in get_args(Rule)
        assert c.scales and set(c.scales) <= set(ALL)
        assert (c.rule == "one-sample") == (not isinstance(c.right, Of))
        assert isinstance(c.right, Of) or math.isfinite(c.right)
        assert 0 <= c.tolerance < math.inf and (c.tolerance == 0 or c.direction == "equal")
    for v in one.values:
        assert v.provenance in published_table.MARKS and v.summary.n >= 0
        assert math.isnan(v.summary.se) or 0 <= v.summary.se < math.inf


@needs_data
@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *spread(sorted({*every()} - REGRESSIONS), ["gpu", "paper"]),
        *(pytest.param(name, scale, marks=pytest.mark.long) for name in STUDIES for scale in ("gpu", "paper")),
    ],
)
def test_no_part_is_refused_at_a_larger_scale(name: str, scale: str) -> None:
    """Parts may lack data. cpu is planned with the committed results, and the regression tables in a test of their
    own."""
    assert {part: one.refused for part, one in planned(name, scale).items() if one.refused} == {}


@pytest.mark.parametrize("one", every().values(), ids=every())
def test_stored_cells_have_headings_and_each_repeat_once(one: Study) -> None:
    folder = Folder(Storage(str(ROOT / "docs/results")), "", one.name)
    about, cells = folder.about(), folder.stored().get("cells", EMPTY_CELLS)
    assert about is not None
    keys = ["part", "row", "column"]
    known = (
        {p.name for p in one.parts},
        *({h.key for h in of(about["scale"])} for of in (one.row_headings, one.column_headings)),
    )
    assert all(set(cells[key]) <= of for key, of in zip(keys, known, strict=True))
    assert not cells.duplicated([*keys, "repeat"]).any()


def test_a_printed_table_is_read_by_rows_and_cells() -> None:
    first, second, third = printed(
        "a: 4.27 ± 0.03 | 2,138\nb: | 7", [("p", "x"), ("q", "y")], "Table 9", runs=3, provenance="quoted elsewhere"
    )
    assert (first.part, first.row, first.column, first.text) == ("p", "a", "x", "4.27 ± 0.03")
    assert (first.summary.mean, first.summary.se, first.summary.n) == (4.27, 0.03, 3)
    assert (second.row, second.text, second.summary.mean) == ("a", "2,138", 2138)
    assert (third.part, third.row, third.source, third.provenance) == ("q", "b", "Table 9", "quoted elsewhere")
    with pytest.raises(ValueError, match="zip"):
        printed("a: 1", [("p", "x"), ("q", "y")], "Table 9")
