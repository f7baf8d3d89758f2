"""One chain's folder: spec, incarnations, samples, checkpoints and progress, all immutable files.

File names carry the incarnation, so that a worker believed dead cannot overwrite its successor's files; of two files
for one sample the higher incarnation's counts, since a resumed chain supersedes what came after its checkpoint.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raychains.sample import Sample, SampleMeta
from raychains.spec import ChainSpec
from raychains.store import codec
from raychains.store.filesystem import Root

CHECKPOINTS_KEPT = 2
_SAMPLE = re.compile(r"(\d+)-([a-z]+)-(\d+)\.safetensors")
_INCARNATION = re.compile(r"(\d+)\.json")
_STEP = re.compile(r"(\d+)-(\d+)\.(?:safetensors|jsonl)")


@dataclass(frozen=True, kw_only=True)
class SampleRecord:
    """A durable sample: its description, its file's name in the chain's folder, and its tensors' sha256."""

    meta: SampleMeta
    file: str
    sha256: str


class ChainStore:
    """Reads and writes ``chains/<digest>/``. Nothing is unpickled; a torn file is never taken for a whole one."""

    def __init__(self, root: Root, digest: str) -> None:
        self.root, self.digest = root, digest
        self._folder = f"chains/{digest}"

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def begin(self, spec: ChainSpec, incarnation: int, about: Mapping[str, Any]) -> None:
        """Write the spec, unless it is there, and this incarnation's record."""
        if not self.root.exists(self._name("spec.json")):
            self.root.publish(self._name("spec.json"), _json(spec.to_json()))
        self.root.publish(self._name(f"incarnations/{incarnation}.json"), _json(dict(about)))

    def spec(self) -> ChainSpec:
        """The chain's spec as stored."""
        return ChainSpec.from_json(json.loads(self.root.read(self._name("spec.json"))))

    def last_incarnation(self) -> int:
        """The highest incarnation that ever began; 0 when none did."""
        names = self.root.names(self._name("incarnations"))
        return max((int(m[1]) for n in names if (m := _INCARNATION.fullmatch(n))), default=0)

    def incarnation(self, n: int) -> dict[str, Any]:
        """The record that `begin` wrote."""
        return json.loads(self.root.read(self._name(f"incarnations/{n}.json")))

    # Samples

    def publish_sample(
        self, sample: Sample, incarnation: int, environment: Mapping[str, Any]
    ) -> tuple[SampleRecord, bytes]:
        """Make a sample durable; its record and the file's bytes, which also travel through the object store."""
        description = {**sample.meta.to_json(), "incarnation": incarnation, "environment": dict(environment)}
        data = codec.encode(sample.tensors, description)
        file = f"samples/{sample.meta.index:06d}-{sample.meta.variable}-{incarnation}.safetensors"
        self.root.publish(self._name(file), data)
        return SampleRecord(meta=sample.meta, file=file, sha256=codec.describe(data)["sha256"]), data

    def read_sample(self, file: str) -> bytes:
        """The bytes of a sample's file; `codec.decode` checks and opens them."""
        return self.root.read(self._name(file))

    def sample_files(self) -> list[str]:
        """Files of `records`."""
        return [r.file for r in self.records()]

    def records(self) -> list[SampleRecord]:
        """Records of the valid samples: for each (variable, index) the highest incarnation's whole file, in order.

        From the index when the chain is finished, else from the files' headers.
        """
        if self.root.exists(self._name("samples.parquet")):
            table = pq.read_table(pa.BufferReader(self.root.read(self._name("samples.parquet"))))
            return [_record(row, row["file"]) for row in table.to_pylist()]
        newest = (next(filter(None, map(self._record_from_header, files)), None) for files in self._files().values())
        return [record for record in newest if record is not None]

    def _files(self) -> dict[tuple[str, int], list[str]]:
        """Files by (variable, index) in order, the highest incarnation's first; a torn one may be among them."""
        found: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for name in self.root.names(self._name("samples")):
            if match := _SAMPLE.fullmatch(name):
                found.setdefault((match[2], int(match[1])), []).append((int(match[3]), f"samples/{name}"))
        return {key: [file for _, file in sorted(files, reverse=True)] for key, files in sorted(found.items())}

    def _record_from_header(self, file: str) -> SampleRecord | None:
        """None for a torn file."""
        try:
            length = codec.header_length(self.root.read_range(self._name(file), 0, 8))
            header = self.root.read_range(self._name(file), 0, 8 + length)
            description = codec.describe(header)
        except codec.Corrupt:
            return None
        whole = codec.is_whole(header, self.root.size(self._name(file)))
        return _record(description, file) if whole else None

    # Checkpoints and progress

    def publish_checkpoint(self, state: Any, step: int, incarnation: int) -> None:
        """Make a nested state durable and drop all but the last two checkpoints."""
        tensors, tree = codec.flatten(state)
        name = f"checkpoints/{step:010d}-{incarnation}.safetensors"
        self.root.publish(self._name(name), codec.encode(tensors, {"state": tree}))
        for old in self._by_age("checkpoints")[:-CHECKPOINTS_KEPT]:
            self.root.delete(self._name(f"checkpoints/{old}"))

    def newest_checkpoint(self) -> Any | None:
        """The newest valid state, None without one; a torn checkpoint is passed over for the one before it."""
        for name in reversed(self._by_age("checkpoints")):
            try:
                tensors, description = codec.decode(self.root.read(self._name(f"checkpoints/{name}")))
            except codec.Corrupt:
                continue
            return codec.unflatten(tensors, description["state"])
        return None

    def _by_age(self, folder: str) -> list[str]:
        """File names by (incarnation, step): a later incarnation's are newer whatever their step."""
        found = [(m, n) for n in self.root.names(self._name(folder)) if (m := _STEP.fullmatch(n))]
        return [name for _, _, name in sorted((int(m[2]), int(m[1]), n) for m, n in found)]

    def publish_progress(self, records: Sequence[Mapping[str, Any]], step: int, incarnation: int) -> None:
        """Make progress records durable as one file of JSON lines."""
        lines = "".join(json.dumps(dict(r), sort_keys=True) + "\n" for r in records)
        self.root.publish(self._name(f"progress/{step:010d}-{incarnation}.jsonl"), lines.encode())

    def progress(self) -> list[dict[str, Any]]:
        """Progress records in the order of their steps; of two for one step the later incarnation's."""
        if self.root.exists(self._name("progress.parquet")):
            return pq.read_table(pa.BufferReader(self.root.read(self._name("progress.parquet")))).to_pylist()
        by_step: dict[int, dict[str, Any]] = {}
        for name in self._by_age("progress"):
            for line in self.root.read(self._name(f"progress/{name}")).splitlines():
                try:
                    record = json.loads(line)
                    by_step[record["step"]] = record
                except (ValueError, TypeError, KeyError):
                    break  # the rest of this file is torn
        return [by_step[step] for step in sorted(by_step)]

    def seconds(self) -> float:
        """Chain seconds up to the last progress record, waiting not counted."""
        progress = self.progress()
        return float(progress[-1]["seconds"]) if progress else 0.0

    # The finished chain

    def finish(self) -> None:
        """Write the derived indexes ``samples.parquet`` and ``progress.parquet``; they can be rebuilt at will."""
        rows = [{**r.meta.to_json(), "file": r.file, "sha256": r.sha256} for r in self.records()]
        progress = self.progress()
        self.root.publish(self._name("samples.parquet"), _parquet(rows))
        self.root.publish(self._name("progress.parquet"), _parquet(progress))

    def finished(self, expected: int) -> bool:
        """Whether all ``expected`` samples are there."""
        if self.root.exists(self._name("samples.parquet")):
            return True
        return len(self._files()) >= expected and len(self.records()) >= expected  # names first: headers cost reads


def _record(row: Mapping[str, Any], file: str) -> SampleRecord:
    return SampleRecord(meta=SampleMeta.from_json(row), file=file, sha256=row["sha256"])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(r) for r in rows]), out)
    return out.getvalue()
