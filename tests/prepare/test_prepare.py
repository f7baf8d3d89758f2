"""Preparing the Tiny-ImageNet sample, or a small set in its layout, on Ray: whole, interrupted, damaged, twice."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray.data.exceptions import omit_traceback_stdout

from raychains.data.prepared import sources
from raychains.data.prepared.manifest import NAME, Manifest, Rows, manifest_at
from raychains.data.prepared.plan import Plan
from raychains.orchestration.prepare import PLAN, REPORTS, prepare
from raychains.store import Storage
from tests.checks import refused
from tests.data.prepared.made import folder_of_classes, picture
from tests.data.prepared.made import prepared as by_hand

pytestmark = pytest.mark.usefixtures("ray_session")


def plan(folder: Path, **more: int) -> Plan:
    return Plan(name="small", source=sources.find(folder), **{"shards": 3, "row_group": 7, **more})


@dataclass(frozen=True)
class Made:
    """A set that was prepared once, in ``out``, from ``folder``."""

    folder: Path
    out: Path
    manifest: Manifest
    told: list[tuple[str, int, int]]

    def copied(self, to: Path) -> Path:
        """The prepared set once more, to be altered."""
        return Path(shutil.copytree(self.out, to))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Made:
    place = tmp_path_factory.mktemp("made")
    folder, told = folder_of_classes(place / "in"), list[tuple[str, int, int]]()
    manifest = prepare(plan(folder), Storage(place / "out"), progress=lambda *a: told.append(a))
    return Made(folder, place / "out", manifest, told)


def test_it_is_what_is_made_by_hand(tmp_path: Path, made: Made) -> None:
    folder, out, manifest, told = made.folder, made.out, made.manifest, made.told
    assert manifest == by_hand(folder, tmp_path / "hand") == manifest_at(str(out))
    for split in manifest.splits.values():
        for shard in split.shards:
            assert (out / shard.file).read_bytes() == (tmp_path / "hand" / shard.file).read_bytes()
    assert len(told) == 6 and told[-1] == ("preparing small", 72, 72) and sorted(told) == told
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*")}
    assert prepare(plan(folder), Storage(out)) == manifest
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*")} == before


def test_an_interrupted_one_goes_on_where_it_was(tmp_path: Path, made: Made) -> None:
    folder, manifest, out = made.folder, made.manifest, made.copied(tmp_path / "out")
    (out / NAME).unlink()
    (out / REPORTS / "train-00001-of-00003.parquet.json").unlink()  # killed before the report
    (out / "val-00000-of-00003.parquet").write_bytes(b"torn")
    (out / REPORTS / "val-00001-of-00003.parquet.json").write_bytes(b"{")
    kept = (out / "train-00000-of-00003.parquet").stat().st_mtime_ns
    done: list[int] = []
    assert prepare(plan(folder), Storage(out), progress=lambda _, n, __: done.append(n)) == manifest
    assert len(done) == 3 and done[-1] == 72
    assert (out / "train-00000-of-00003.parquet").stat().st_mtime_ns == kept
    assert len(Rows(str(out), manifest, "val").labels) == 12


def test_damaged_pictures_are_refused_by_name_or_left_out(tmp_path: Path) -> None:
    folder = folder_of_classes(tmp_path / "in")
    (folder / "train" / "n01" / "n01_3.JPEG").write_bytes(picture(3)[:200])
    (folder / "val" / "n02" / "n02_1.JPEG").write_bytes(b"nothing")
    with refused("source", "2", "n01/n01_3.JPEG", "n02/n02_1.JPEG", "`skip_damaged=True`"):
        prepare(plan(folder), Storage(tmp_path / "out"))
    assert not (tmp_path / "out" / NAME).exists()
    again: list[int] = []
    manifest = prepare(
        plan(folder), Storage(tmp_path / "out"), skip_damaged=True, progress=lambda _, n, __: again.append(n)
    )
    assert not again and [s.partition(":")[0] for s in manifest.skipped] == ["n01/n01_3.JPEG", "n02/n02_1.JPEG"]
    assert {s: p.images for s, p in manifest.splits.items()} == {"train": 59, "val": 11}


def test_a_picture_that_cannot_be_read_is_not_damaged_and_is_tried_again(tmp_path: Path) -> None:
    """As on a node where the source is not mounted."""
    folder, out = folder_of_classes(tmp_path / "in"), Storage(tmp_path / "out")
    made, away = plan(folder), tmp_path / "away"
    folder.rename(away)
    for skip in (False, True):
        with refused("source", "readable on every node", "No such file"):
            prepare(made, out, skip_damaged=skip)
    away.rename(folder)
    assert prepare(made, out) == by_hand(folder, tmp_path / "hand")


def test_a_target_that_takes_no_files_is_refused_in_one_line(tmp_path: Path, made: Made) -> None:
    out = made.copied(tmp_path / "out")
    (out / NAME).unlink()
    (out / REPORTS / "val-00002-of-00003.parquet.json").unlink()
    (out / "val-00002-of-00003.parquet").unlink()
    (out / "val-00002-of-00003.parquet").mkdir()
    with refused("store", str(out), "val-00002-of-00003.parquet"):
        prepare(plan(made.folder), Storage(out))


@pytest.mark.usefixtures("made")
def test_ray_data_tells_nothing_of_a_ray_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Its threads, which outlive a command's Ray for a moment, tell their stacks as errors."""
    told = logging.getLogger("ray.data")
    told.addHandler(caplog.handler)
    try:
        with pytest.raises(RuntimeError, match="not been started"):
            omit_traceback_stdout(_without_ray)()
    finally:
        told.removeHandler(caplog.handler)
    assert caplog.text == ""


def _without_ray() -> None:
    raise RuntimeError("Ray has not been started yet.")


def test_another_sets_place_is_left_alone(tmp_path: Path, made: Made) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with refused("to", "empty", "thesis.tex"):
        prepare(plan(made.folder), Storage(tmp_path / "full"))
    with refused("to", "seed"):
        prepare(plan(made.folder, seed=1), Storage(made.out))
    assert not (tmp_path / "full" / PLAN).exists()
