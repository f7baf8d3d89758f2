"""Files and runs as sources: what is loaded, also of runs that still go on, and that it stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import raychains as rc
from raychains.core.errors import UserError
from raychains.inference.ensemble_source import FileSource, RunSource, source_of
from raychains.inference.requests import InputForm
from tests.inference.runs import digits


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    """Two chains of four samples."""
    return digits(tmp_path_factory.mktemp("served") / "store")


def begun(run: rc.Result, folder: Path, samples: int) -> str:
    """Copy a run as it was when its first chain had so many samples and its second had not begun; return its path."""
    store = Path(run.store.root.location())
    first = run.comparison.arms[0].chains[0][0].digest
    shutil.copytree(store / "runs", folder / "runs")
    shutil.copytree(store / "chains" / first, folder / "chains" / first)
    chain = folder / "chains" / first
    (chain / "samples.parquet").unlink()
    for sample in sorted((chain / "samples").iterdir())[samples:]:
        sample.unlink()
    return str(folder / "runs" / run.store.name)


def continued(run: rc.Result, path: str) -> None:
    """Bring such a copy up to date: each file takes its name when it is whole, as workers write them."""
    store, folder = Path(run.store.root.location()), Path(path).parents[1]
    for source in sorted((store / "chains").rglob("*")):
        target = folder / source.relative_to(store)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            shutil.copy(source, temporary := target.with_name(f".{target.name}"))
            os.replace(temporary, target)


def images() -> torch.Tensor:
    return rc.make_task("digits").splits()["test"].inputs[:20]  # type: ignore[attr-defined]


def test_a_run_is_what_its_posterior_is(run: rc.Result) -> None:
    source = source_of(run.path)
    assert isinstance(source, RunSource)
    posterior, about = source.load("cpu")
    torch.testing.assert_close(posterior(images()), run.posterior()(images()))
    assert len(posterior) == 8
    assert InputForm.of(about["input"]) == InputForm(shape=(64,), dtype="float32")
    assert about["arm"] == run.comparison.arms[0].name and len(about["digests"]) == 8
    first, _ = source_of(run.path, first=3).load("cpu")
    torch.testing.assert_close(first(images()), run.posterior(first=3)(images()))


def test_an_exported_file_is_the_same_and_says_the_same(
    run: rc.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = run.export(str(tmp_path / "d.safetensors")).path
    monkeypatch.chdir(tmp_path)
    source = source_of("d.safetensors")
    assert isinstance(source, FileSource) and source.path == str(file)
    (posterior, about), (posterior_of_run, about_of_run) = source.load("cpu"), source_of(run.path).load("cpu")
    torch.testing.assert_close(posterior(images()), posterior_of_run(images()))
    for name in ("arm", "run", "kind", "input", "samples", "digests"):
        assert about[name] == about_of_run[name], name
    run.export(str(tmp_path / "other.safetensors"), first=2)
    os.replace(tmp_path / "other.safetensors", file)
    assert len(source_of("d.safetensors").load("cpu")[0]) == 2
    with pytest.raises(
        UserError, match="source must be the file that was there when the server started, got another one: "
    ):
        source.load("cpu")


def test_a_run_that_goes_on_is_served_with_the_samples_that_are_there(run: rc.Result, tmp_path: Path) -> None:
    path = begun(run, tmp_path / "store", 3)
    with pytest.raises(UserError, match="has an unfinished chain"):
        rc.load(path).posterior()
    source = source_of(path)
    posterior, about = source.load("cpu")
    assert len(posterior) == 3 == len(source_of(path, first=5).load("cpu")[0])
    continued(run, path)
    again, about_again = source.load("cpu")
    torch.testing.assert_close(again(images()), posterior(images()))
    assert about_again == about
    torch.testing.assert_close(source_of(path).load("cpu")[0](images()), run.posterior()(images()))


def test_a_run_without_a_sample_is_refused(run: rc.Result, tmp_path: Path) -> None:
    path = begun(run, tmp_path / "store", 0)
    with pytest.raises(UserError, match=r"^arm '.*' has no samples yet$"):
        source_of(path)


def test_wrong_sources_are_refused(run: rc.Result, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.write_bytes(run.export(str(tmp_path / "f")).path.read_bytes()[:-1])
    for path, settings, line in [
        (
            "nothing",
            {},
            "source must be an existing file of raychains export, or a run, STORE/runs/NAME, got 'nothing'",
        ),
        (str(tmp_path / "f"), {"arm": "x"}, "arm must be left out for a file, got 'x': it holds one ensemble"),
        (run.path, {"model": torch.nn.Linear(1, 1)}, "model must be left out for a run: its task builds the network"),
    ]:
        with pytest.raises(UserError) as error:
            source_of(path, **settings)
        assert str(error.value) == line
    for path, line in [
        (str(torn), "source must be a whole one"),
        (f"{run.path}x", f"source must be one of the runs in {run.store.root.location()}: small, got '{run.path}x'"),
    ]:
        with pytest.raises(UserError, match=line):
            rc.serve.deployment(path)
