"""Shards and manifest: what is in them is the source, whatever the number of files; damaged pictures are named.

A small set prepared in this process is what the cluster prepares of the same pictures.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from raychains.core.errors import UserError
from raychains.data.prepared import local_preparation, plan, sources
from raychains.data.prepared.manifest import NAME, Manifest, Rows, fingerprint, manifest_at
from tests.checks import refused
from tests.data.prepared.made import folder_of_classes, picture, pixels, prepared


def test_rows_are_the_sources_pictures_in_a_seeded_order(tmp_path: Path) -> None:
    source = folder_of_classes(tmp_path / "in")
    manifest = prepared(source, tmp_path / "out")
    rows = Rows(str(tmp_path / "out"), manifest, "train")
    assert len(rows) == 60 and manifest.classes == ("n01", "n02", "n03")
    names, jpegs = [], []
    for shard in manifest.splits["train"].shards:
        table = pq.read_table(tmp_path / "out" / shard.file)
        names += table["name"].to_pylist()
        jpegs += table["image"].to_pylist()
        assert hashlib.sha256((tmp_path / "out" / shard.file).read_bytes()).hexdigest() == shard.sha256
    assert sorted(names) == sorted(f"{c}/{c}_{i}.JPEG" for c in manifest.classes for i in range(20)) != names
    assert [manifest.classes[label] for label in rows.labels] == [n.partition("/")[0] for n in names]
    assert jpegs == [(source / "train" / n).read_bytes() for n in names]
    assert [bytes(j) for g in range(len(rows.counts)) for j in rows.read(g)] == jpegs
    assert rows.groups_of(np.arange(60)).tolist() == np.repeat(np.arange(len(rows.counts)), rows.counts).tolist()


@pytest.mark.parametrize(("count", "row_group"), [(1, 100), (5, 3), (60, 1), (99, 7)])
def test_a_fingerprint_knows_nothing_of_shards(tmp_path: Path, count: int, row_group: int) -> None:
    source = folder_of_classes(tmp_path / "in")
    one = prepared(source, tmp_path / "a")
    other = prepared(source, tmp_path / "b", shard_count=count, row_group=row_group)
    assert {s: p.fingerprint for s, p in one.splits.items()} == {s: p.fingerprint for s, p in other.splits.items()}
    a, b = Rows(str(tmp_path / "a"), one, "train"), Rows(str(tmp_path / "b"), other, "train")
    assert a.labels.tolist() == b.labels.tolist()
    changed = prepared(source, tmp_path / "c", seed=1)
    assert changed.splits["train"].fingerprint != one.splits["train"].fingerprint


def test_a_fingerprint_is_of_index_label_and_bytes() -> None:
    images = [(1, 0, "b"), (0, 4, "a")]
    assert fingerprint(images) == hashlib.sha256(b"0 4 a\n1 0 b\n").hexdigest() == fingerprint(images[::-1])
    assert (
        len({fingerprint(images), fingerprint([(1, 1, "b"), (0, 4, "a")]), fingerprint([(1, 0, "c"), (0, 4, "a")])})
        == 3
    )


def test_odd_formats_become_rgb_jpegs_and_plain_ones_stay_as_they_are() -> None:
    for plain in (picture(1), picture(2, mode="L")):
        assert plan.as_jpeg(plain) == (plain, False)
    for odd in (picture(1, mode="CMYK"), picture(1, "PNG")):
        jpeg, converted = plan.as_jpeg(odd)
        image = Image.open(io.BytesIO(jpeg))
        assert converted and image.format == "JPEG" and image.mode == "RGB"
        assert np.abs(pixels(jpeg).astype(int) - pixels(odd)).mean() < 4


def test_damaged_pictures_are_left_out_by_name(tmp_path: Path) -> None:
    files = {"good.jpg": picture(1), "cut.jpg": picture(2)[:300], "no.jpg": b"no picture", "empty.jpg": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    items = [(i, sources.Item(n, "c", str(tmp_path / n)), 0) for i, n in enumerate(files)]
    _, written = plan.encode(items, "x.parquet")
    assert written.shard.rows == (1,) and [index for index, _, _ in written.images] == [0]
    assert [d.partition(":")[0] for d in written.damaged] == ["cut.jpg", "no.jpg", "empty.jpg"]


def test_places_are_divided_evenly() -> None:
    for count, parts in ((10, 3), (3, 10), (64, 8), (1, 1)):
        ranges = plan.divided(count, parts)
        assert [i for r in ranges for i in r] == list(range(count))
        assert len(ranges) == min(parts, count) and max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_a_rotten_page_is_noticed(tmp_path: Path) -> None:
    manifest = prepared(folder_of_classes(tmp_path / "in"), tmp_path / "out", shard_count=1)
    file = tmp_path / "out" / manifest.splits["train"].shards[0].file
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))
    rows = Rows(str(tmp_path / "out"), manifest, "train")
    with pytest.raises(OSError):
        for group in range(len(rows.counts)):
            rows.read(group)


def test_manifests_are_read_back_and_others_are_refused(tmp_path: Path) -> None:
    manifest = prepared(folder_of_classes(tmp_path / "in", train=3, val=1), tmp_path / "out")
    assert manifest_at(str(tmp_path / "out")) == manifest == manifest_at(f"file://{tmp_path}/out")
    assert Manifest.loads(manifest.dumps(), "x") == manifest
    with refused("manifest", str(tmp_path)):
        manifest_at(str(tmp_path))
    with refused("prepared set", "nowhere"):
        manifest_at("nowhere://x")
    with refused("split", "train, val", "test"):
        Rows(str(tmp_path / "out"), manifest, "test")
    file = tmp_path / "out" / NAME
    for wrong in (b"", b"[]", b'{"format": 1}', b"\xff"):
        file.write_bytes(wrong)
        with refused("manifest"):
            manifest_at(str(tmp_path / "out"))
    file.write_bytes(json.dumps({**manifest.to_json(), "format": 9}).encode())
    with refused("format", "9", "later version"):
        manifest_at(str(tmp_path / "out"))


def pictures(folder: Path) -> Path:
    for split, n in (("train", 7), ("val", 3)):
        for i in range(n):
            file = folder / split / f"c{i % 2}" / f"{i}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (20 * i, 100, 10 * n)).save(file)
    return folder


def test_shards_hold_the_pictures_and_the_manifest_tells_of_them(tmp_path: Path) -> None:
    source, to = pictures(tmp_path / "raw"), tmp_path / "small"
    made = local_preparation.prepare(source, to, row_group=4)
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
    assert (
        local_preparation.prepare(source, to) == made and {p.name: p.stat().st_mtime_ns for p in to.iterdir()} == before
    )


def test_a_shard_of_damaged_pictures_alone_is_no_part_of_the_set(tmp_path: Path) -> None:
    source = pictures(tmp_path / "raw")
    (source / "train/c0/0.jpg").write_bytes(b"no picture")
    found = plan.Plan(name="small", source=sources.find(source), shards=64)
    written = {work.name: plan.encode(work.items, work.name)[1] for work in found.works}
    made = found.manifest(written, skip_damaged=True)
    assert Manifest.loads(made.dumps(), "") == made and len(made.skipped) == 1
    assert [shard.rows for shard in made.splits["train"].shards] == [(1,)] * 6


def test_a_damaged_picture_leaves_nothing_behind_that_looks_whole(tmp_path: Path) -> None:
    source = pictures(tmp_path / "raw")
    (source / "train/c0/0.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match="damaged"):
        local_preparation.prepare(source, tmp_path / "small")
    assert not (tmp_path / "small").exists()
