"""Experiments at scale smoke, in one Ray session: they run, and what they say follows from what they kept.

`make test` runs one of each kind, `make test-long` all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from raychains.core.config import Reproduce
from raychains.papers.reproduce import Reproduced, plan, reproduce
from tests.papers.planned import FEW, every
from tests.processes import json_of

SEED = 3


@pytest.fixture(scope="module", params=["one of each kind", pytest.param("all", marks=pytest.mark.long)])
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(every()) if request.param == "all" else FEW


@pytest.fixture(scope="module")
def store(names: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke") / "store"


@pytest.fixture(scope="module")
def done(names: tuple[str, ...], store: Path, ray_session: object) -> list[Reproduced]:
    asked = names if names == FEW else ("all",)
    return reproduce(Reproduce(names=asked, scale="smoke", store=str(store)))


def test_every_experiment_runs_whole(names: tuple[str, ...], done: list[Reproduced]) -> None:
    assert [one.experiment.name for one in done] == list(names)
    states = {f"{one.experiment.name} {part}": state for one in done for part, state in one.states().items()}
    assert {name: state for name, state in states.items() if state != "done"} == {}


def test_every_cell_of_chains_says_how_many_samples_it_is_made_of(done: list[Reproduced], store: Path) -> None:
    for one in done:
        cells = pq.read_table(store / "reproduce/smoke" / one.experiment.name / "cells.parquet").to_pylist()
        assert [c for c in cells if c["digests"] and c["samples"] < 1] == [], one.experiment.name


def test_every_page_is_there_and_says_smoke(done: list[Reproduced], store: Path) -> None:
    for one in done:
        folder = store / "reproduce/smoke" / one.experiment.name
        assert "SMOKE" in (folder / "index.html").read_text() and "SMOKE" in (folder / "table.md").read_text()
        assert (folder / "table.tex").read_text().count("\\toprule") == 1
        drawn = {d.name for d in one.experiment.figures("smoke", tables_of(folder, one.about))}
        assert drawn == {p.stem for p in (folder / "figures").glob("*.svg")}, one.experiment.name
    index = (store / "reproduce/smoke/index.html").read_text()
    assert all(f'href="{one.experiment.name}/index.html"' in index for one in done)


def tables_of(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pq.read_table(folder / f"{name}.parquet").to_pandas() for name in about["tables"]}


def test_nothing_is_run_twice(names: tuple[str, ...], store: Path, done: list[Reproduced]) -> None:
    ledger = plan(Reproduce(names=names, scale="smoke", store=str(store))).ledger
    assert ledger.chains > 0 and ledger.chains_to_run == ledger.to_run == 0 and ledger.saved > 0


def test_a_cell_follows_from_predictions_or_draws_and_altering_them_changes_it(
    names: tuple[str, ...], store: Path, done: list[Reproduced]
) -> None:
    again = json_of("-m", "tests.papers.recompute", str(store / "reproduce/smoke"), str(store), str(SEED), *names)
    assert list(again) == list(names)
    for name, found in again.items():
        assert found["again"] == pytest.approx(found["stored"], rel=1e-5, abs=1e-6), name
        assert found["altered"] != pytest.approx(found["again"], rel=1e-9, abs=1e-12), name
