"""Samples and pages as anybody reads them, without raychains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

SHOWN = 3
"""Numbers of each tensor that are kept."""


def described(store: Path, digest: str) -> dict[str, dict[str, Any]]:
    """Of each sample of a finished chain, by variable and index: sha256 of its tensors, their norms and first
    numbers."""
    chain = store / "chains" / digest
    found = {}
    for row in pq.read_table(chain / "samples.parquet").to_pylist():
        tensors = load_file(chain / row["file"])
        h = hashlib.sha256()
        numbers = {}
        for name in sorted(tensors):
            t = tensors[name]
            h.update(f"{name}|{t.dtype}|{t.shape}|".encode() + t.tobytes())
            norm = float((t.astype("float64") ** 2).sum()) ** 0.5
            numbers[name] = [norm, *t.reshape(-1)[:SHOWN].astype("float64").tolist()]
        found[f"{row['variable']}-{row['index']}"] = {"sha256": h.hexdigest(), "numbers": numbers}
    return found


def machine(store: Path, digests: Sequence[str]) -> dict[str, Any]:
    """What decides the bytes of samples: the one environment that the newest attempts recorded, and the kind of CPU."""
    found = []
    for digest in digests:
        records = (store / "chains" / digest / "incarnations").glob("*.json")
        newest = max(records, key=lambda path: int(path.stem))
        found.append(json.loads(newest.read_text())["environment"])
    assert all(environment == found[0] for environment in found)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = dict(reversed([tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line]))
    return {**found[0], "cpu": " ".join(cpu.get(key, "") for key in ("vendor_id", "cpu family", "model"))}


class _Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.tables[-1][-1][-1] += data


def tables_of(page: str) -> list[list[list[str]]]:
    """The tables of an HTML page: rows of cells, each text with single spaces."""
    parser = _Tables()
    parser.feed(page)
    return [[[" ".join(cell.split()) for cell in row] for row in table] for table in parser.tables]


def digest_of(spec: Any) -> str:
    """The digest that a chain's stored spec has: sha256 of its JSON without spaces, by sorted keys."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
