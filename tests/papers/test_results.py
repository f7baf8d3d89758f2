"""The committed results: drawn again from their tables they say what they say, and they are of today's chains."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from raychains.core.config import Compare
from raychains.core.data_root import rooted
from raychains.papers import pages, plan_status
from raychains.papers.claims import VERDICTS
from raychains.papers.pages import Folder
from raychains.store import Storage
from tests.papers.planned import FEW, every, needs_data
from tests.spread import witnessed

RESULTS = Path(__file__).parents[2] / "docs" / "results"
NAMES = sorted(p.parent.name for p in RESULTS.glob("*/about.json"))
MOST_BYTES = 20_000_000


def test_all_are_there_and_they_are_small() -> None:
    assert set(NAMES) == set(every())
    assert sum(p.stat().st_size for p in RESULTS.rglob("*") if p.is_file()) <= MOST_BYTES


@pytest.mark.parametrize("name", witnessed(NAMES, *FEW))
def test_they_are_drawn_again_from_their_tables(name: str, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / name, tmp_path / name)
    for drawn in ("table.md", "table.tex", "index.html"):
        (tmp_path / name / drawn).unlink()
    experiment, folder = every()[name], Folder(Storage(str(tmp_path)), "", name)
    verdicts = pages.write(experiment, folder)
    parts = (folder.about() or {})["parts"]
    owed = {
        c.name for c in experiment.claims if c.must_decide and "cpu" in c.scales and parts[c.part]["status"] == "done"
    }
    assert owed <= {v.claim.name for v in verdicts if not v.owed}
    for drawn in ("table.md", "table.tex"):
        assert (tmp_path / name / drawn).read_text() == (RESULTS / name / drawn).read_text()
    before, after = (pq.read_table(folder / name / "claims.parquet").to_pylist() for folder in (RESULTS, tmp_path))
    assert [row["line"] for row in after] == [row["line"] for row in before]
    assert (tmp_path / name / "index.html").read_text().count("<section") >= 3
    figures = {p.name for p in (RESULTS / name).glob("figures/*.svg")}
    assert {p.name for p in (tmp_path / name).glob("figures/*.svg")} == figures
    assert figures or not every()[name].where.startswith("Fig")


def test_the_index_counts_their_claims_and_shows_their_figures(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    pages.write_index(Storage(str(tmp_path)), "", "cpu")
    for file, pictures in (("README.md", r"!\[[^]]*\]\(([^)]+)\)"), ("index.html", r'<img[^>]* src="([^"]+)"')):
        drawn = (tmp_path / file).read_text()
        stored = (RESULTS / file).read_text()
        assert len({re.sub(r"(?s)<style>.*?</style>", "", text) for text in (drawn, stored)}) == 1
        shown = set(re.findall(pictures, drawn))
        assert shown == {str(p.relative_to(RESULTS)) for p in RESULTS.glob("*/figures/*.svg")}
    counted = re.findall(
        r"^\| [\w-]+ \| \[.*\| `(.+)` \| (.+) \| (\d*) \| (\d*) \| (\d*) \|$",
        (tmp_path / "README.md").read_text(),
        re.M,
    )
    assert sorted(name for name, *_ in counted) == NAMES
    for name, state, *numbers in counted:
        verdicts = [row["verdict"] for row in pq.read_table(RESULTS / name / "claims.parquet").to_pylist()]
        assert [int(n or 0) for n in numbers] == [verdicts.count(word) for word in VERDICTS]
        parts = json.loads((RESULTS / name / "about.json").read_text())["parts"].values()
        assert (state == "done") == all(part["status"] == "done" for part in parts)


@needs_data
@pytest.mark.parametrize("name", witnessed(NAMES, *FEW, "true-posterior"))
def test_they_are_of_todays_chains_and_know_where_they_come_from(name: str) -> None:
    about = json.loads((RESULTS / name / "about.json").read_text())
    experiment = every()[name]
    with rooted(None):
        parts = plan_status.plan(experiment, about["scale"], Compare())
    assert about["scale"] == "cpu" and plan_status.outdated(about, parts) == []
    assert about["commit"] and "dirty" not in about["commit"]
    chains = {d for part in about["parts"].values() if part["status"] == "done" for d in part["chains"]}
    assert chains == set(about["environments_of"])
    cells = pq.read_table(RESULTS / name / "cells.parquet").to_pylist() if "cells" in about["tables"] else []
    assert bool(cells) == any(part["status"] == "done" for part in about["parts"].values()), "cells of what was run"
    assert {d for c in cells for d in c["digests"].split()} <= chains
    assert all(c["samples"] > 0 for c in cells if c["digests"])
