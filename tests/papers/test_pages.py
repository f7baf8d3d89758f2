"""Pages and what they are drawn from: of nothing, of stale files, of parts that others took the place of."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raychains
from raychains.papers import SCALES, pages, reproduce
from raychains.papers.pages import Folder
from raychains.papers.study import Study
from raychains.plotting.style import Drawing
from raychains.store import ChainStore, Storage
from tests.papers.planned import every
from tests.planning.plans import chain
from tests.spread import witnessed

STATE = {"status": "not run", "reason": "no data", "chains": [], "gradients": 0, "chain_seconds": 0.0, "seconds": 0.0}


def folder_of(root: Path, experiment: Study, scale: str, **about: Any) -> Folder:
    """One that says that nothing was run."""
    folder = Folder(Storage(str(root)), "", experiment.name)
    parts = {part.name: STATE for part in experiment.parts if scale in part.scales}
    known = {
        "experiment": experiment.name, "scale": scale, "revision": experiment.revision, "commit": "c", "parts": parts,
        "tables": [], "environments": [], "environments_of": {},
    }  # fmt: skip
    folder.write_about({**known, **about})
    return folder


@pytest.mark.parametrize("scale", witnessed(SCALES, "cpu"))
def test_every_page_is_drawn_where_nothing_was_run(scale: str, tmp_path: Path) -> None:
    for experiment in every().values():
        folder = folder_of(tmp_path, experiment, scale)
        assert pages.write(experiment, folder) == []
        assert "not run: no data" in (tmp_path / experiment.name / "table.md").read_text()
        assert "cells.parquet" not in (tmp_path / experiment.name / "index.html").read_text()
    pages.write_index(Storage(str(tmp_path)), "", scale)
    shown = (tmp_path / "README.md").read_text()
    assert shown.count("| not run |") == len(every())


def test_figures_that_are_not_drawn_any_more_are_gone_and_failed_ones_are_said(tmp_path: Path) -> None:
    def fails() -> Any:
        raise ValueError("no numbers")

    broken = Drawing(name="broken", title="t", caption="c", alt="a", draw=fails)
    experiment = dataclasses.replace(every()["fig1"], figures=lambda scale, tables: [broken])
    folder = folder_of(tmp_path, experiment, "cpu")
    for name in ("broken.svg", "broken.png", "renamed.svg"):
        folder.write_file(f"figures/{name}", b"of an earlier call")
    pages.write(experiment, folder)
    assert list((tmp_path / "fig1/figures").iterdir()) == []
    assert "broken" in (tmp_path / "fig1/index.html").read_text()


def cells_of(*parts: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"part": p, "row": row, "column": "ece", "repeat": r, "value": value + r, "digests": "", "samples": 1}
            for p in parts
            for row, value in (("emcmc", 1.0), ("sgd", 9.0))
            for r in range(3)
        ]
    )


def test_a_stand_in_is_one_only_where_the_other_was_not_run() -> None:
    """Table 2's calibration on CIFAR-10 alone is that of CIFAR-10 → SVHN, of the same chains."""
    experiment = every()["emcmc-table2"]
    about = {"parts": {}}
    for there, headed, judged in (
        (("cifar10-alone",), "CIFAR-10, calibration alone (in place of CIFAR-10 → SVHN)", {"cifar10-alone"}),
        (("cifar10", "cifar10-alone"), "CIFAR-10, calibration alone", {"cifar10"}),
    ):
        cells = cells_of(*there)
        table = pages.table_of(experiment, "cpu", cells, about)
        assert {p.key: p.label for p in table.parts}["cifar10-alone"] == headed
        assert {v.claim.part for v in pages.verdicts(experiment, "cpu", cells)} == judged


def test_a_family_is_corrected_and_the_pages_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = every()["emcmc-table2"]
    claims = [c for c in plain.claims if {of.row for of in (c.left, c.right)} == {"emcmc", "sgd"}]
    claims = [c for c in claims if c.part == "cifar10" and c.direction != "equal"]
    family = dataclasses.replace(plain, claims=tuple(claims), family=True)
    said = f"The claims are one family of {len(claims)}, corrected by Holm&#39;s step-down method: "
    cells = cells_of("cifar10").to_dict("records")
    shown = {}
    for one in (dataclasses.replace(family, family=False), family):
        monkeypatch.setattr(pages, "chosen", lambda names, one=one: [one])
        folder = folder_of(tmp_path / str(one.family), one, "cpu", tables=["cells"])
        folder.write_table("cells", cells)
        found = pages.write(one, folder)
        assert len(found) == len(claims) > 1
        stored = folder.table("claims")
        assert stored is not None
        assert all((p is not None) == one.family for p in stored["adjusted_p"].to_pylist())
        assert stored["line"].to_pylist() == [v.line("cpu") for v in found]
        pages.write_index(folder.root, "", "cpu")
        for file in (f"{one.name}/index.html", "index.html"):
            assert (said in (tmp_path / str(one.family) / file).read_text()) == one.family
        listed = (tmp_path / str(one.family) / one.name / "table.md").read_text()
        assert (said.replace("&#39;", "'") in listed) == one.family
        shown[one.family] = found
    (decided,) = [n for n, v in enumerate(shown[False]) if v.verdict != "inconclusive"]
    assert shown[True][decided].adjusted_p == pytest.approx(len(claims) * shown[False][decided].p)


def test_environments_are_those_of_all_attempts_whatever_their_numbers(tmp_path: Path) -> None:
    spec, root = chain(), Storage(tmp_path)
    for number, torch in ((1_166_770, "2.9"), (2_934_753, "2.11"), (3_142_708, "2.9")):
        ChainStore(root, spec.digest).begin(spec, number, {"environment": {"torch": torch}})
    known, of = reproduce.environments(root, [spec.digest])
    assert known == [{"torch": "2.9"}, {"torch": "2.11"}] and of == {spec.digest: [0, 1]}


def test_the_commit_is_the_packages_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment inside somebody else's checkout is none of ours."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    package = tmp_path / ".venv" / "raychains"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / ".gitignore").write_text(".venv\n")
    git("init", "-q")
    git("add", ".gitignore")
    git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qm", "theirs")
    monkeypatch.setattr(raychains, "__file__", str(package / "__init__.py"))
    assert reproduce.commit() == f"raychains {raychains.__version__}"
    git("add", "-f", ".venv")
    git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qm", "ours")
    assert len(reproduce.commit()) == 12
