"""Experiments at scale smoke, in one Ray session: they run, and what they say follows from what they kept.

`make test` runs one of each kind, `make test-long` all of them.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from raychains.cli import main
from raychains.core.config import Reproduce
from raychains.inference import hmc_reference
from raychains.papers.csgmcmc import mixture_experiments
from raychains.papers.fidelity import hmc_cifar10
from raychains.papers.regression import uci_table
from raychains.papers.reproduce import Reproduced, plan, reproduce
from raychains.papers.study import Sampled, Study
from tests.papers.one_pool import one_pool
from tests.papers.planned import FEW, every
from tests.processes import json_of

SEED = 3
HMC = {"WARMUP": 50, "ROUND": 50, "LEAST_ESS": 200.0}
"""Shorter references: their chains still have to agree."""


@pytest.fixture(scope="module", autouse=True)
def shorter() -> Iterator[None]:
    """The longest experiments with one repeat, and less of HMC: the others have two, and every length the same path."""
    with pytest.MonkeyPatch.context() as patch:
        size, of_tables = hmc_cifar10.SIZES["smoke"], uci_table.SIZES["smoke"]
        patch.setitem(hmc_cifar10.SIZES, "smoke", dataclasses.replace(size, repeats=1))  # type: ignore[arg-type]
        once = {name: dataclasses.replace(one, repeats=1) for name, one in of_tables.items()}
        patch.setitem(uci_table.SIZES, "smoke", once)  # type: ignore[arg-type]
        for name, value in HMC.items():
            patch.setattr(hmc_reference, name, value)
        yield


@pytest.fixture(scope="module", params=["one of each kind", pytest.param("all", marks=pytest.mark.long)])
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return tuple(every()) if request.param == "all" else FEW


@pytest.fixture(scope="module")
def store(names: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke") / "store"


@pytest.fixture(scope="module")
def pool(ray_session: object) -> Iterator[None]:
    with one_pool():
        yield


@pytest.fixture(scope="module")
def done(names: tuple[str, ...], store: Path, pool: None) -> list[Reproduced]:
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


@pytest.mark.parametrize("names", ["one of each kind"], indirect=True)
def test_failed_chains_cost_their_part_and_the_exit_status(
    store: Path, done: list[Reproduced], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step size at which every chain of Fig. 5 diverges, beside an experiment that is well."""
    shutil.rmtree(store / "reproduce/smoke/fig1")
    monkeypatch.setattr(mixture_experiments, "FIG5", diverging(every()["fig5"]))
    assert main(["reproduce", "fig1", "fig5", "--scale", "smoke", "--store", str(store)]) == 3
    said = capsys.readouterr()
    assert "1 part failed: fig5 (mixture)" in said.err and "Traceback" not in said.err
    about = {n: json.loads((store / "reproduce/smoke" / n / "about.json").read_text()) for n in ("fig1", "fig5")}
    part = about["fig5"]["parts"]["mixture"]
    assert part["status"] == "failed" and "chains failed" in part["reason"]
    assert about["fig1"]["parts"]["schedules"]["status"] == "done"


def diverging(experiment: Study) -> Study:
    (part,) = experiment.parts
    (one,) = part.sampled("smoke")
    preset = dataclasses.replace(one.preset, options={**one.preset.options, "lr": 1e30})
    made = dataclasses.replace(part, sampled=lambda scale: [Sampled(preset=preset)])
    return dataclasses.replace(experiment, parts=(made,))
