"""What a command left, as sha256 by name: samples, tables, exported and prepared files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pandas as pd
from pyarrow import fs
from safetensors.torch import load

from raychains.core.sample import tensors_sha256
from raychains.store import Storage

SAMPLE = re.compile(r"chains/(\w+)/samples/(.+)-\d+\.safetensors")
TIMES = ("chain_seconds", "seconds")
"""Columns of tables that are measured times."""
TABLE = re.compile(r"(runs|sweeps|reproduce)/.+\.parquet")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _table(data: bytes) -> str:
    from io import BytesIO

    frame = pd.read_parquet(BytesIO(data))
    return _digest(frame.drop(columns=[c for c in TIMES if c in frame]).to_json(double_precision=15).encode())


def of_store(uri: str) -> dict[str, str]:
    """Of every sample, whoever drew it, and of every table without its times."""
    root, found = Storage(uri), {}
    filesystem, base = fs.FileSystem.from_uri(uri) if "://" in uri else (fs.LocalFileSystem(), uri)
    for info in filesystem.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
        name = info.path.removeprefix(base).lstrip("/")
        if info.type is not fs.FileType.File:
            continue
        if sample := SAMPLE.fullmatch(name):
            key, value = f"{sample[1]} {sample[2]}", tensors_sha256(load(root.read(name)))
            if found.setdefault(key, value) != value:
                found[f"{key} again"] = value
        elif TABLE.fullmatch(name):
            found[name] = _table(root.read(name))
    return found


def of_folder(folder: Path) -> dict[str, str]:
    """Of the files that a command exported or prepared; the hidden temporary one of a killed process is none, as in a
    store."""
    files = [*folder.glob("exported*"), *sorted((folder / "prepared").rglob("[!.]*"))]
    return {str(f.relative_to(folder)): _digest(f.read_bytes()) for f in files if f.is_file()}


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """A line for each name that is missing, new or other."""
    words = [(expected.keys() - found.keys(), "is missing"), (found.keys() - expected.keys(), "should not be there")]
    lines = [f"{name} {word}" for names, word in words for name in sorted(names)]
    return lines + [f"{n} has other bytes" for n in sorted(found.keys() & expected.keys()) if found[n] != expected[n]]
