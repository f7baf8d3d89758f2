"""One chain's folder: spec, incarnations, samples, checkpoints and progress, all immutable files.

File names carry the incarnation, so that a worker believed dead cannot overwrite its successor's files. A chain is one
path: what an incarnation wrote at steps behind the one from which a later incarnation went on is superseded and counts
for nothing, whenever it was written; of two files for one sample that both count the higher incarnation's does.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raychains.errors import StorageAway
from raychains.retry import KeepTrying
from raychains.sample import Sample, SampleMeta
from raychains.spec import ChainSpec
from raychains.store import checkpoints, codec, index
from raychains.store.filesystem import Root
from raychains.store.history import History

log = logging.getLogger(__name__)

_SAMPLE = re.compile(r"(\d+)-([a-z]+)-(\d+)\.safetensors")
_INCARNATION = re.compile(r"(\d+)\.json")
_PROGRESS = re.compile(r"(\d+)-(\d+)\.jsonl")
_DIAGNOSIS = re.compile(r"(\d+)-(\d+)\.json")
SAMPLES, PROGRESS = "samples.parquet", "progress.parquet"


@dataclass(frozen=True, kw_only=True)
class SampleRecord:
    """A durable sample: its description, its file's name in the chain's folder, and its tensors' sha256."""

    meta: SampleMeta
    file: str
    sha256: str


class ChainStore:
    """Reads and writes ``chains/<digest>/``. Nothing is unpickled; a torn file is never taken for a whole one.

    Methods that write take ``keep_trying``: see `Root.publish`.
    """

    def __init__(self, root: Root, digest: str) -> None:
        self.root, self.digest = root, digest
        self._folder = f"chains/{digest}"
        self._from_steps: dict[int, int] = {}
        """Known from the incarnations' records, which do not change once they hold the step."""

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _waiting(self, keep_trying: KeepTrying | None) -> ChainStore:
        other = copy.copy(self)
        other.root = self.root.waiting(keep_trying)
        return other

    def begin(
        self, spec: ChainSpec, incarnation: int, about: Mapping[str, Any], *, keep_trying: KeepTrying | None = None
    ) -> None:
        """Write the spec, unless it is there, and this incarnation's record, whose ``from_step`` supersedes others."""
        root = self.root.waiting(keep_trying)
        try:
            json.loads(root.read(self._name("spec.json")))
        except (FileNotFoundError, ValueError):  # none yet, or a torn one
            root.publish(self._name("spec.json"), _json(spec.to_json()))
        root.publish(self._name(f"incarnations/{incarnation}.json"), _json(dict(about)))

    def spec(self) -> ChainSpec:
        """The chain's spec as stored.

        Raises:
            Corrupt: its file is torn.
        """
        return ChainSpec.from_json(self._object("spec.json"))

    def _object(self, name: str) -> dict[str, Any]:
        """A JSON object of the chain's folder."""
        try:
            found = json.loads(self.root.read(self._name(name)))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise codec.Corrupt(f"{self.root.location(self._name(name))} is torn")
        return found

    def last_incarnation(self) -> int:
        """The highest incarnation that ever began; 0 when none did."""
        return max(self._incarnations(), default=0)

    def incarnation(self, n: int) -> dict[str, Any]:
        """The record that `begin` wrote.

        Raises:
            Corrupt: its file is torn.
        """
        return self._object(f"incarnations/{n}.json")

    def _incarnations(self) -> list[int]:
        names = self.root.names(self._name("incarnations"))
        return [int(m[1]) for n in names if (m := _INCARNATION.fullmatch(n))]

    def history(self) -> History:
        """From which step each incarnation went on."""
        for n in self._incarnations():
            if n not in self._from_steps:
                with contextlib.suppress(FileNotFoundError, codec.Corrupt):  # a torn record began nothing
                    step = self.incarnation(n).get("from_step")
                    if isinstance(step, int):
                        self._from_steps[n] = step
        return History(self._from_steps)

    # Samples

    def publish_sample(
        self,
        sample: Sample,
        incarnation: int,
        environment: Mapping[str, Any],
        *,
        keep_trying: KeepTrying | None = None,
    ) -> tuple[SampleRecord, bytes]:
        """Make a sample durable; its record and the file's bytes, which also travel through the object store."""
        description = {**sample.meta.to_json(), "incarnation": incarnation, "environment": dict(environment)}
        data = codec.encode(sample.tensors, description)
        file = f"samples/{sample.meta.index:06d}-{sample.meta.variable}-{incarnation}.safetensors"
        self.root.publish(self._name(file), data, keep_trying=keep_trying)
        return SampleRecord(meta=sample.meta, file=file, sha256=codec.describe(data)["sha256"]), data

    def read_sample(self, file: str) -> bytes:
        """The bytes of a sample's file; `codec.decode` checks and opens them."""
        return self.root.read(self._name(file))

    def sample_files(self) -> list[str]:
        """Files of `records`."""
        return [r.file for r in self.records()]

    def records(self) -> list[SampleRecord]:
        """Records of the valid samples: for each (variable, index) the highest incarnation's whole file, in order.

        From the index when the chain is finished, else from the files' headers. Superseded files are left out.
        """
        rows = self._indexed(SAMPLES)
        if rows is not None:
            with contextlib.suppress(KeyError, TypeError):  # an index of other columns is rebuilt from the files
                return [_record(row, row["file"]) for row in rows]
        return self._records(self._files())

    def _records(self, files: Mapping[tuple[str, int], Sequence[tuple[int, str]]]) -> list[SampleRecord]:
        history, found = self.history(), []
        for versions in files.values():
            for incarnation, file in versions:
                record = self._record_from_header(file)
                if record is not None and not history.superseded(incarnation, record.meta.step):
                    found.append(record)
                    break
        return found

    def _files(self) -> dict[tuple[str, int], list[tuple[int, str]]]:
        """(incarnation, file) by (variable, index) in order, the highest incarnation first; some may be torn."""
        found: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for name in self.root.names(self._name("samples")):
            if match := _SAMPLE.fullmatch(name):
                found.setdefault((match[2], int(match[1])), []).append((int(match[3]), f"samples/{name}"))
        return {key: sorted(files, reverse=True) for key, files in sorted(found.items())}

    def _record_from_header(self, file: str) -> SampleRecord | None:
        """None for a torn file."""
        try:
            length = codec.header_length(self.root.read_range(self._name(file), 0, 8))
            header = self.root.read_range(self._name(file), 0, 8 + length)
            record = _record(codec.describe(header), file)
        except (codec.Corrupt, FileNotFoundError, KeyError, TypeError):  # the last two: whole, but no sample
            return None
        return record if codec.is_whole(header, self.root.size(self._name(file))) else None

    # Checkpoints

    def publish_checkpoint(
        self,
        state: Any,
        step: int,
        incarnation: int,
        *,
        cycle_end: bool = False,
        keep_trying: KeepTrying | None = None,
    ) -> None:
        """Make a nested state durable and drop the checkpoints that are no longer needed: see `checkpoints`."""
        tensors, tree = codec.flatten(state)
        name = checkpoints.Checkpoint(incarnation, step, cycle_end).name
        self.root.publish(
            self._name(f"checkpoints/{name}"), codec.encode(tensors, {"state": tree}), keep_trying=keep_trying
        )
        with contextlib.suppress(StorageAway, OSError):  # the next checkpoint tries again
            self._waiting(lambda _: False)._drop_checkpoints(incarnation)

    def _drop_checkpoints(self, incarnation: int) -> None:
        if self.last_incarnation() > incarnation:
            return  # it has a successor, whose business this is
        for old in checkpoints.to_drop(self.root.names(self._name("checkpoints")), self.history()):
            self.root.delete(self._name(f"checkpoints/{old}"))

    def newest_checkpoint(
        self,
        *,
        warn: Callable[[str, str], None] | None = None,
        before: int | None = None,
        cycle_end: bool = False,
    ) -> Any | None:
        """The newest valid state, None without one; a torn or altered checkpoint is passed over for the one before it.

        Args:
            warn: told the location of every checkpoint passed over, and why; without it that is logged.
            before: only checkpoints of this step or earlier ones.
            cycle_end: only checkpoints taken at a cycle's end.
        """
        names = self.root.names(self._name("checkpoints"))
        for found in reversed(checkpoints.valid(names, self.history())):
            if (before is not None and found.step > before) or (cycle_end and not found.cycle_end):
                continue
            name = self._name(f"checkpoints/{found.name}")
            try:
                tensors, description = codec.decode(self.root.read(name))
                return codec.unflatten(tensors, description["state"])
            except FileNotFoundError:
                continue  # dropped meanwhile
            except codec.Corrupt as error:
                reason = str(error)
            except (KeyError, TypeError, AttributeError):
                reason = "it holds no state"
            (warn or _log_passed_over)(self.root.location(name), reason)
        return None

    # Progress

    def publish_progress(
        self,
        records: Sequence[Mapping[str, Any]],
        step: int,
        incarnation: int,
        *,
        keep_trying: KeepTrying | None = None,
    ) -> None:
        """Make progress records durable as one file of JSON lines."""
        lines = "".join(json.dumps(dict(r), sort_keys=True) + "\n" for r in records)
        name = self._name(f"progress/{step:010d}-{incarnation}.jsonl")
        self.root.publish(name, lines.encode(), keep_trying=keep_trying)

    def progress(self) -> list[dict[str, Any]]:
        """Progress records in the order of their steps, superseded ones left out."""
        rows = self._indexed(PROGRESS)
        return rows if rows is not None else self._progress()

    def _progress(self) -> list[dict[str, Any]]:
        history = self.history()
        by_step: dict[int, dict[str, Any]] = {}
        names = self.root.names(self._name("progress"))
        found = sorted((int(m[2]), int(m[1]), n) for n in names if (m := _PROGRESS.fullmatch(n)))
        for incarnation, _, name in found:  # of two records of one step the later incarnation's stays
            for line in self.root.read(self._name(f"progress/{name}")).splitlines():
                try:
                    record = json.loads(line)
                    if not history.superseded(incarnation, int(record["step"])):
                        by_step[int(record["step"])] = record
                except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                    break  # the rest of this file is torn
        return [by_step[step] for step in sorted(by_step)]

    def seconds(self) -> float:
        """Chain seconds up to the last progress record, waiting not counted."""
        progress = self.progress()
        return float(progress[-1]["seconds"]) if progress else 0.0

    def publish_diagnosis(
        self, diagnosis: Mapping[str, Any], step: int, incarnation: int, *, keep_trying: KeepTrying | None = None
    ) -> None:
        """Make what was found out about a divergence durable."""
        name = self._name(f"diagnoses/{step:010d}-{incarnation}.json")
        self.root.publish(name, _json(diagnosis), keep_trying=keep_trying)

    def diagnoses(self) -> list[dict[str, Any]]:
        """What `publish_diagnosis` wrote, the oldest first; torn ones are left out."""
        names = self.root.names(self._name("diagnoses"))
        told = []
        for _, _, name in sorted((int(m[2]), int(m[1]), n) for n in names if (m := _DIAGNOSIS.fullmatch(n))):
            with contextlib.suppress(ValueError):
                told.append(json.loads(self.root.read(self._name(f"diagnoses/{name}"))))
        return told

    # The finished chain

    def finish(self, *, incarnation: int | None = None, keep_trying: KeepTrying | None = None) -> None:
        """Write the derived indexes ``samples.parquet`` and ``progress.parquet``; they can be rebuilt at will.

        Args:
            incarnation: whose worker asks; one that has a successor writes nothing. None: whoever is the newest.
        """
        store = self._waiting(keep_trying)
        last = store.last_incarnation()
        if incarnation is not None and incarnation < last:
            return
        rows = [{**r.meta.to_json(), "file": r.file, "sha256": r.sha256} for r in store._records(store._files())]
        progress = store._progress()
        store.root.publish(self._name(SAMPLES), index.encode(rows, last))
        store.root.publish(self._name(PROGRESS), index.encode(progress, last))

    def finished(self, expected: int) -> bool:
        """Whether all ``expected`` samples are there, superseded ones not counted."""
        return self.all_records(expected) is not None

    def all_records(self, expected: int) -> list[SampleRecord] | None:
        """`records` of a chain of which all ``expected`` samples are there; None of any other."""
        rows = self._indexed(SAMPLES)
        if rows is not None and len(rows) >= expected:
            with contextlib.suppress(KeyError, TypeError):
                return [_record(row, row["file"]) for row in rows]
        files = self._files()  # names first: headers cost reads
        records = self._records(files) if len(files) >= expected else []
        return records if len(records) >= expected else None

    def _indexed(self, name: str) -> list[dict[str, Any]] | None:
        """Rows of an index that describes the newest incarnation."""
        try:
            data = self.root.read(self._name(name))
        except FileNotFoundError:
            return None
        return index.decode(data, self.last_incarnation(), self.root.location(self._name(name)))


def _log_passed_over(file: str, reason: str) -> None:
    log.warning("checkpoint passed over: %s: %s", file, reason)


def _record(row: Mapping[str, Any], file: str) -> SampleRecord:
    return SampleRecord(meta=SampleMeta.from_json(row), file=file, sha256=row["sha256"])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
