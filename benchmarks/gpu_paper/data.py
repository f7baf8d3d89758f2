"""CIFAR-10 in three uploads of 33 MB, for a machine that nothing can be downloaded to: lossless WebP, byte for byte.

    python -m benchmarks.gpu_paper.data pack .gpu-data           # here: .gpu-data/1, .gpu-data/2, .gpu-data/3
    python -m benchmarks.gpu_paper.data unpack .gpu-data/1 data  # there, after each upload

Of a file of torchvision's layout its images become one WebP picture, 100 side by side, and its other bytes (labels,
names of images) an xz file. `unpack` checks the sha256 of both on arrival and the published md5 of the file that it
makes of them.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.gpu_paper import replacing
from raychains.core.data_root import data_root, rooted
from raychains.core.errors import UserError
from raychains.data import catalogue, formats

PARTS = 3
"""Uploads: each carries two of the six files."""
ACROSS, SIDE, CHANNELS = 100, 32, 3
"""Images side by side in a picture; pixels of an image's side; colours."""
MANIFEST = "manifest.json"


def split(data: bytes, what: str) -> tuple[np.ndarray, bytes, int]:
    """Return a batch file's images [n, 3, 32, 32], its other bytes, and where among these the images belong."""
    images, _ = formats.read_batch(data, what)
    pixels = np.ascontiguousarray(images).tobytes()
    at = data.find(pixels)
    if at < 0:
        raise UserError(f"{what} must hold its images as one piece, row after row")
    return images, data[:at] + data[at + len(pixels) :], at


def picture(images: np.ndarray) -> bytes:
    """Return images [n, 3, 32, 32] uint8 as one lossless WebP picture, which black ones fill up."""
    rows = -(-len(images) // ACROSS)
    full = np.zeros((rows * ACROSS, CHANNELS, SIDE, SIDE), np.uint8)
    full[: len(images)] = images
    tiles = full.reshape(rows, ACROSS, CHANNELS, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
    file = io.BytesIO()
    # Method 2 takes 3 s for 10,000 images and 1.71 kB an image; the slowest, minutes and 1.65 kB.
    whole = Image.fromarray(tiles.reshape(rows * SIDE, ACROSS * SIDE, CHANNELS))
    whole.save(file, "webp", lossless=True, method=2, quality=50, exact=True)
    return file.getvalue()


def images_of(webp: bytes, count: int) -> np.ndarray:
    """Return the first ``count`` images [count, 3, 32, 32] of `picture`."""
    pixels = np.asarray(Image.open(io.BytesIO(webp)))
    tiles = pixels.reshape(-1, SIDE, ACROSS, SIDE, CHANNELS).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, CHANNELS, SIDE, SIDE)[:count])


def write_upload(folder: Path, files: Mapping[str, bytes], below: str) -> None:
    """Write batch files, by name, as one upload: they belong into the folder ``below`` of a data root."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for name, data in files.items():
        images, others, at = split(data, name)
        row = {"name": name, "md5": hashlib.md5(data).hexdigest(), "images": len(images), "at": at}
        for kind, content in (("webp", picture(images)), ("xz", lzma.compress(others))):
            (folder / f"{name}.{kind}").write_bytes(content)
            row[kind] = hashlib.sha256(content).hexdigest()
        listed.append(row)
    (folder / MANIFEST).write_text(json.dumps({"folder": below, "files": listed}, indent=1) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 2**20:.1f} MiB, {' and '.join(files)}", flush=True)


def pack(to: Path) -> None:
    """Write the data root's CIFAR-10, whose md5s are the published ones, as ``to/1``, ``to/2`` and ``to/3``."""
    entry = catalogue.entry("cifar10")
    files = [file for each in entry.splits.values() for file in each]
    for number, some in enumerate(np.array_split(np.arange(len(files)), PARTS), start=1):
        folder = data_root() / entry.folder
        mine = {files[i].name: formats.read_checked(folder / files[i].name, files[i].md5, entry.name) for i in some}
        write_upload(to / str(number), mine, entry.folder)


def unpack(folder: Path, root: Path) -> None:
    """Write the files of one upload below a data root.

    Raises:
        UserError: a file of the upload is missing or damaged.
    """
    known = json.loads(_read(folder / MANIFEST))
    for row in known["files"]:
        name, held = row["name"], {}
        for kind in ("webp", "xz"):
            held[kind] = _read(folder / f"{name}.{kind}")
            if hashlib.sha256(held[kind]).hexdigest() != row[kind]:
                raise UserError(f"{folder / name}.{kind} is damaged: upload {folder} again")
        others, at = lzma.decompress(held["xz"]), row["at"]
        data = others[:at] + images_of(held["webp"], row["images"]).tobytes() + others[at:]
        if hashlib.md5(data).hexdigest() != row["md5"]:
            raise UserError(f"{name} of {folder} is not the file that was packed: its md5 is another one")
        path = root / known["folder"] / name
        with replacing(path) as file:
            file.write(data)
        print(f"{path}: md5 {row['md5']}", flush=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write the uploads")
    packing.add_argument("to", type=Path, help="a folder for them, which git ignores")
    packing.add_argument("--data-root", help="where cifar-10-batches-py lies; default: RAYCHAINS_DATA")
    unpacking = commands.add_parser("unpack", help="make the data set's files of one upload")
    unpacking.add_argument("upload", type=Path, help="one of the folders that pack wrote")
    unpacking.add_argument("to", type=Path, help="the data root")
    args = parser.parse_args(argv)
    began = time.monotonic()
    try:
        if args.command == "pack":
            with rooted(args.data_root):
                pack(args.to)
        else:
            unpack(args.upload, args.to)
    except UserError as error:
        print(f"{args.command}: {error}", file=sys.stderr)
        return 2
    print(f"{time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
