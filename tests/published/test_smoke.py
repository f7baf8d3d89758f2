"""Every experiment at scale smoke, in one Ray session: all of them run, and what they say follows from what they kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from raychains.api.reproducing import Reproduced, plan, reproduce
from raychains.options import Reproduce
from raychains.published import catalogue

SEED = 3
NAMES = tuple(catalogue.every())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke") / "store"


@pytest.fixture(scope="module")
def done(store: Path, ray_session: object) -> list[Reproduced]:
    return reproduce(Reproduce(names=("all",), scale="smoke", store=str(store)))


@pytest.fixture(scope="module")
def again(store: Path, done: list[Reproduced]) -> Mapping[str, Any]:
    return recomputed(store, *NAMES)


def recomputed(store: Path, *names: str) -> dict[str, Any]:
    """By name: the stored value, the one made of predictions or draws, and the files that it is made of."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.published.recompute", str(store / "reproduce/smoke"), str(store), str(SEED), *names],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_every_experiment_runs_whole(done: list[Reproduced]) -> None:
    assert [one.experiment.name for one in done] == list(NAMES)
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
    assert all(f'href="{name}/index.html"' in index for name in NAMES)


def tables_of(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pq.read_table(folder / f"{name}.parquet").to_pandas() for name in about["tables"]}


def test_nothing_is_run_twice(store: Path, done: list[Reproduced]) -> None:
    ledger = plan(Reproduce(names=("all",), scale="smoke", store=str(store))).ledger
    assert ledger.chains > 0 and ledger.chains_to_run == ledger.to_run == 0 and ledger.saved > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_follows_from_predictions_or_draws(name: str, again: Mapping[str, Any]) -> None:
    found = again[name]
    assert found["again"] == pytest.approx(found["stored"], rel=1e-5, abs=1e-6)
    assert found["files"], "nothing was read that the value is made of"


def test_altering_what_was_kept_changes_every_cell(store: Path, again: Mapping[str, Any]) -> None:
    """One file of those that a value is made of, drawn by the seed."""
    for name in NAMES:
        files = sorted(set(again[name]["files"]))
        path = Path(files[int(np.random.default_rng(SEED).integers(len(files)))])
        before = path.read_bytes()
        alter(path)
        try:
            changed = recomputed(store, name)[name]["again"]
        finally:
            path.write_bytes(before)
        assert changed != pytest.approx(again[name]["again"], rel=1e-9, abs=1e-12), name


def alter(path: Path) -> None:
    """Other numbers of the same shape: every prediction becomes that of the next class, every draw moves."""
    if path.suffix == ".safetensors":
        tensors = {k: np.roll(v, 1, axis=-1) + 0.37 if v.dtype.kind == "f" else v for k, v in load_file(path).items()}
        save_file(tensors, path)
        return
    table = pq.read_table(path)
    for i, field in enumerate(table.schema):
        shift = 0.37 * (np.arange(table.num_rows) % 3 + 1)
        values = table[field.name].to_numpy(zero_copy_only=False)
        if pa.types.is_floating(field.type):
            table = table.set_column(i, field, pa.array(values * (1 + shift) + shift))
        elif pa.types.is_list(field.type):
            moved = np.stack(values) + shift[:, None]
            table = table.set_column(i, field, pa.array(list(moved), field.type))
    pq.write_table(table, path)
