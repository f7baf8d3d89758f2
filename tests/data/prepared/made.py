"""Small image sets in ImageNet's layouts, and prepared ones, made by the tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from raychains.data.prepared import plan, sources
from raychains.data.prepared.manifest import NAME, Manifest, Shard, Split, fingerprint

CLASSES = ("n02", "n01", "n03")


def picture(seed: int, kind: str = "JPEG", mode: str = "RGB", size: tuple[int, int] | None = None) -> bytes:
    """Smooth noise of a size of its own, encoded."""
    rng = np.random.default_rng(seed)
    width, height = size or (int(rng.integers(20, 60)), int(rng.integers(20, 60)))
    channels = {"RGB": 3, "L": 1, "CMYK": 4}[mode]
    small = rng.integers(0, 256, size=(6, 6, channels), dtype=np.uint8)
    image = Image.fromarray(small[..., 0] if channels == 1 else small, mode)
    out = io.BytesIO()
    image.resize((width, height), Image.Resampling.BICUBIC).save(out, format=kind)
    return out.getvalue()


def folder_of_classes(folder: Path, train: int = 20, val: int = 4) -> Path:
    """``train`` and ``val`` pictures per class."""
    for number, name in enumerate(CLASSES):
        for split, count in (("train", train), ("val", val)):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                seed = 1000 * number + i + (500 if split == "val" else 0)
                (folder / split / name / f"{name}_{i}.JPEG").write_bytes(picture(seed))
    return folder


def prepared(folder: Path, to: Path, *, shard_count: int = 3, row_group: int = 7, seed: int = 0) -> Manifest:
    """The set in ``folder`` prepared by hand, shard after shard."""
    source = sources.find(folder)
    labels = sources.labels_of(source.classes)
    splits: dict[str, Split] = {}
    converted = 0
    to.mkdir(parents=True, exist_ok=True)
    for split, items in source.splits.items():
        ordered = plan.stored_order(items, seed)
        written = []
        for number, places in enumerate(plan.divided(len(ordered), shard_count)):
            name = f"{split}-{number:05d}-of-{shard_count:05d}.parquet"
            data, one = plan.encode([(i, ordered[i], labels[ordered[i].label]) for i in places], name, row_group)
            (to / name).write_bytes(data)
            written.append(one)
        converted += sum(w.converted for w in written)
        print_of = fingerprint([image for w in written for image in w.images])
        splits[split] = Split(shards=tuple(w.shard for w in written), fingerprint=print_of)
    manifest = Manifest(
        name="small", classes=source.classes, words=(), seed=seed, splits=splits, converted=converted, skipped=()
    )
    (to / NAME).write_bytes(manifest.dumps())
    return manifest


def without_pictures(root: Path, name: str, classes: list[str]) -> None:
    """Only the manifest of a prepared set: pictures are read when they are learned from."""
    split = Split(shards=(Shard(file="a.parquet", rows=(64,) * 32, bytes=1, sha256=""),), fingerprint="f")
    splits = {"train": split, "val": split}
    made = Manifest(name=name, classes=tuple(classes), words=(), seed=0, splits=splits, converted=0, skipped=())
    (root / name).mkdir()
    (root / name / NAME).write_bytes(made.dumps())


def pixels(jpeg: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
