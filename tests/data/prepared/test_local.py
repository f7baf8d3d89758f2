"""A small set prepared in this process is what the cluster prepares of the same pictures."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from raychains.data.prepared import local
from raychains.data.prepared.manifest import Manifest, fingerprint
from raychains.errors import UserError


def pictures(folder: Path) -> Path:
    for split, n in (("train", 7), ("val", 3)):
        for i in range(n):
            file = folder / split / f"c{i % 2}" / f"{i}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (20 * i, 100, 10 * n)).save(file)
    return folder


def test_shards_hold_the_pictures_and_the_manifest_tells_of_them(tmp_path: Path) -> None:
    source, to = pictures(tmp_path / "raw"), tmp_path / "small"
    made = local.prepare(source, to, row_group=4)
    assert made == Manifest.loads((to / "manifest.json").read_bytes(), "") and made.name == "small"
    assert made.classes == ("c0", "c1") and {s: v.rows for s, v in made.splits.items()} == {
        "train": (4, 3),
        "val": (3,),
    }
    for split, of in made.splits.items():
        (shard,) = of.shards
        rows = pq.read_table(to / shard.file).to_pylist()
        assert hashlib.sha256((to / shard.file).read_bytes()).hexdigest() == shard.sha256
        assert of.fingerprint == fingerprint(
            [(r["index"], r["label"], hashlib.sha256(r["image"]).hexdigest()) for r in rows]
        )
        for row in rows:
            assert (source / split / row["name"]).read_bytes() == row["image"] and row["name"][1] == str(row["label"])
    before = {p.name: p.stat().st_mtime_ns for p in to.iterdir()}
    assert local.prepare(source, to) == made and {p.name: p.stat().st_mtime_ns for p in to.iterdir()} == before


def test_a_damaged_picture_leaves_nothing_behind_that_looks_whole(tmp_path: Path) -> None:
    source = pictures(tmp_path / "raw")
    (source / "train/c0/0.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match="damaged"):
        local.prepare(source, tmp_path / "small")
    assert not (tmp_path / "small").exists()
