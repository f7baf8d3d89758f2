"""One chain's folder: spec, attempts, samples, checkpoints and progress, all immutable files, and its listing.

File names carry the attempt, so that a worker believed dead cannot overwrite its successor's files. A chain is one
path: what an attempt wrote after the step from which a later attempt resumed is superseded and does not
count, whenever it was written; of two files for one sample that both count, the higher attempt's does.

No two workers write under the same number. A local or network filesystem creates a name for one caller only, and
numbers count 1, 2, 3. An object store has no such operation here: two drivers may take the same ordinal at once,
therefore the number is ordinal · SPAN plus a random part below SPAN. Of two attempts that run at once the higher counts
wherever it has samples, and the lower's driver leaves the chain to it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from torch import Tensor

from raychains.chain.sample_index import expected_samples
from raychains.core import checksum
from raychains.core.errors import RaychainsError, UserError
from raychains.core.retry import KeepTrying
from raychains.core.sample import Sample, SampleMeta
from raychains.core.spec import ChainSpec
from raychains.core.validation import is_int, is_number
from raychains.store import codec, parquet_codec
from raychains.store.filesystem import Storage, json_bytes, table_of

log = logging.getLogger(__name__)
T = TypeVar("T")

SAMPLES, PROGRESS = "samples.parquet", "progress.parquet"
INDEX_FORMAT = 1
CHECKPOINTS_KEPT = 2
SPAN = 1_000_000
"""Attempt numbers that share an ordinal where names cannot be created exclusively."""
READERS = 16
"""Chains that are read at once: an object store takes tens of milliseconds for each answer."""
RECORDS = 20
"""Attempts of a chain whose records a `ChainListing` reads, the newest ones."""
TAIL = 4096
"""Bytes of a progress file that a `ChainListing` reads: its last records."""
_SAMPLE = re.compile(r"(\d+)-([a-z]+)-(\d+)\.safetensors")
_ATTEMPT = re.compile(r"(\d+)\.json")
_PROGRESS = re.compile(r"(\d+)-(\d+)\.jsonl")
_DIAGNOSIS = re.compile(r"(\d+)-(\d+)\.json")
_CHECKPOINT = re.compile(r"(\d+)-(\d+)(-cycle)?\.safetensors")
_STAMP = b"raychains"


class History:
    """The step from which each attempt of a chain resumed; one without a known step wrote nothing."""

    def __init__(self, from_steps: Mapping[int, int]) -> None:
        self._from_steps = dict(from_steps)

    def superseded(self, attempt: int, step: int) -> bool:
        """Return whether files of ``attempt`` at ``step`` no longer count, whenever they were written."""
        return any(n > attempt and step > resumed for n, resumed in self._from_steps.items())


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A checkpoint's file name; a later attempt's is newer whatever its step."""

    attempt: int
    step: int
    cycle_end: bool = False

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.step:010d}-{self.attempt}{'-cycle' if self.cycle_end else ''}.safetensors"

    @classmethod
    def parse(cls, name: str) -> Checkpoint | None:
        """Return the checkpoint of this name; None when it is no checkpoint's."""
        match = _CHECKPOINT.fullmatch(name)
        return cls(int(match[2]), int(match[1]), bool(match[3])) if match else None


def valid_checkpoints(names: Iterable[str], history: History) -> list[Checkpoint]:
    """Return the checkpoints that a chain may resume from, the newest last."""
    found = [c for name in names if (c := Checkpoint.parse(name)) is not None and c.name == name]
    return sorted(c for c in found if not history.superseded(c.attempt, c.step))


def encode_index(rows: Sequence[Mapping[str, Any]], attempt: int) -> bytes:
    """Return a finished chain's rows as parquet, stamped with the attempt that they describe."""
    table = table_of(rows)
    stamp = json.dumps({"format": INDEX_FORMAT, "incarnation": attempt}).encode()
    return parquet_codec.encode(table.replace_schema_metadata({_STAMP: stamp}))


def _decode_index(data: bytes, attempt: int, where: str) -> list[dict[str, Any]] | None:
    """Return the rows; None for a torn or altered table, or one whose stamp is not of ``attempt``.

    Raises:
        UserError: a newer format.
    """
    try:
        table = parquet_codec.decode(data, where)
        stamp = json.loads((table.schema.metadata or {})[_STAMP])
        made, number = stamp["incarnation"], stamp["format"]
    except UserError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(number, int) or number > INDEX_FORMAT:
        raise UserError(
            f"{where}: format must be at most {INDEX_FORMAT}, got {number!r}: newer files need a newer raychains"
        )
    return table.to_pylist() if made == attempt else None


@dataclass(frozen=True, kw_only=True)
class SampleRecord:
    """A durable sample: its description, its file's name in the chain's folder, and its tensors' sha256."""

    meta: SampleMeta
    file: str
    sha256: str

    @classmethod
    def of(cls, row: Mapping[str, Any], file: str) -> SampleRecord:
        """Return the record in an index's row, or in the description of the file itself."""
        if not isinstance(file, str) or not isinstance(row["sha256"], str):
            raise TypeError(f"no sample's row: {row}")
        return cls(meta=SampleMeta.from_json(row), file=file, sha256=row["sha256"])


class ChainStore:
    """Reads and writes ``chains/<digest>/``. Nothing is unpickled; a torn file is never taken for a whole one."""

    def __init__(self, root: Storage, digest: str) -> None:
        self.root, self.digest = root, digest
        self._folder = f"chains/{digest}"
        self._from_steps: dict[int, int] = {}
        """From the attempts' records, which do not change once they hold the step."""

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _names(self, folder: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        """The names in one of the chain's folders that match ``pattern``."""
        return [m for name in self.root.names(self._name(folder)) if (m := pattern.fullmatch(name))]

    def retrying(self, keep_trying: KeepTrying) -> ChainStore:
        """Return the same folder in `Storage.retrying`'s root."""
        other = copy.copy(self)
        other.root = self.root.retrying(keep_trying)
        return other

    def without_waiting(self) -> ChainStore:
        """Return the same folder in `Storage.without_waiting`'s root."""
        return self.retrying(lambda reason: False)

    # Spec and attempts

    def begin(self, spec: ChainSpec, attempt: int, about: Mapping[str, Any]) -> None:
        """Write the spec, unless it is there, and this attempt's record, whose ``from_step`` supersedes others."""
        there, data = None, json_bytes(spec.to_json(), sealed=False)  # the folder's name is its checksum
        with contextlib.suppress(FileNotFoundError):
            there = self.root.read_object(self._name("spec.json"))
        if there != json.loads(data):  # none yet, or a torn or altered one
            self.root.publish(self._name("spec.json"), data)
        self.root.publish(self._name(f"incarnations/{attempt}.json"), json_bytes(dict(about)))

    def spec(self) -> ChainSpec:
        """Return the chain's spec as stored.

        Raises:
            Corrupt: its file is torn or altered.
        """
        spec = ChainSpec.from_json(self._object("spec.json"))
        if spec.digest != self.digest:
            raise codec.Corrupt(f"{self.location('spec.json')} is the specification of another chain than its folder's")
        return spec

    def location(self, name: str) -> str:
        """Return a file's path or URI for messages."""
        return self.root.location(self._name(name))

    def _object(self, name: str) -> dict[str, Any]:
        """A JSON object of the chain's folder."""
        found = self.root.read_object(self._name(name))
        if found is None:
            raise codec.Corrupt(f"{self.location(name)} is torn or altered")
        return found

    def _attempts(self) -> list[int]:
        return [int(m[1]) for m in self._names("incarnations", _ATTEMPT)]

    def last_attempt(self) -> int:
        """Return the highest attempt that ever began; 0 when none did."""
        return max(self._attempts(), default=0)

    def attempt(self, n: int) -> dict[str, Any]:
        """Return the record that `begin` wrote.

        Raises:
            Corrupt: its file is torn or altered.
        """
        return self._object(f"incarnations/{n}.json")

    def attempt_or_empty(self, n: int) -> dict[str, Any]:
        """Return the record that `begin` wrote; an empty one for none, or a torn or altered one, which is logged."""
        try:
            return self.attempt(n)
        except FileNotFoundError:
            return {}
        except codec.Corrupt as error:
            log.warning("passed over: %s", error)
            return {}

    def attempts(self) -> dict[int, dict[str, Any]]:
        """Return the records of all attempts by number, the newest last, as `attempt_or_empty` does."""
        return {n: self.attempt_or_empty(n) for n in sorted(self._attempts())}

    def reserve(self, above: int, record: Mapping[str, Any]) -> int | None:
        """Take the number that follows ``above`` by writing ``record``; None when another driver was faster."""
        exclusive = self.root.exclusive
        number = above + 1 if exclusive else (above // SPAN + 1) * SPAN + secrets.randbelow(SPAN)
        created = self.root.create(self._name(f"incarnations/{number}.json"), json_bytes(dict(record)))
        return number if created else None

    def newest_attempt(self) -> tuple[int, str | None]:
        """Return the highest attempt (0: none) and the id of its driver; None when the record holds none."""
        last = self.last_attempt()
        driver = self.attempt_or_empty(last).get("driver_id") if last else None
        return last, driver if isinstance(driver, str) else None

    def history(self) -> History:
        """Return from which step each attempt resumed."""
        for n in self._attempts():
            if n not in self._from_steps:
                step = self.attempt_or_empty(n).get("from_step")  # a torn record began nothing
                if isinstance(step, int):
                    self._from_steps[n] = step
        return History(self._from_steps)

    # Samples

    def publish_sample(
        self, sample: Sample, attempt: int, environment: Mapping[str, Any]
    ) -> tuple[SampleRecord, bytes]:
        """Make a sample durable; return its record and the file's bytes, which also travel through the object store."""
        description = {**sample.meta.to_json(), "incarnation": attempt, "environment": dict(environment)}
        data, digest = codec.encode_and_hash(sample.tensors, description)
        file = f"samples/{sample.meta.index:06d}-{sample.meta.variable}-{attempt}.safetensors"
        self.root.publish(self._name(file), data)
        return SampleRecord(meta=sample.meta, file=file, sha256=digest), data

    def read_sample(self, file: str) -> bytes:
        """Return the bytes of a sample's file; `codec.decode_sample` checks and opens them.

        Raises:
            Corrupt: there is no such file.
        """
        try:
            return self.root.read(self._name(file))
        except FileNotFoundError:
            raise codec.Corrupt(f"{self.location(file)}: there is no such sample") from None

    def sample(self, file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and description of a sample's file, checked.

        Raises:
            Corrupt: there is none, it is torn or altered, or has values that are not finite.
        """
        data = self.read_sample(file)
        try:
            return codec.decode_sample(data)
        except codec.Corrupt as error:
            raise codec.Corrupt(f"{self.location(file)}: {error}") from None

    def records(self) -> list[SampleRecord]:
        """Return the valid samples: for each (variable, index) the highest attempt's whole file, in order.

        From the index when the chain is finished, else from the files' headers. Superseded files are left out.
        """
        indexed = self._indexed_records()
        return indexed if indexed is not None else self._records(self._files())

    def _records(self, files: Mapping[tuple[str, int], Sequence[tuple[int, str]]]) -> list[SampleRecord]:
        history, found = self.history(), []
        for versions in files.values():
            for attempt, file in versions:
                record = self._record_from_header(file)
                if record is not None and not history.superseded(attempt, record.meta.step):
                    found.append(record)
                    break
        return found

    def _files(self) -> dict[tuple[str, int], list[tuple[int, str]]]:
        """(attempt, file) by (variable, index) in order, the highest attempt first; some may be torn."""
        found: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for match in self._names("samples", _SAMPLE):
            found.setdefault((match[2], int(match[1])), []).append((int(match[3]), f"samples/{match[0]}"))
        return {key: sorted(files, reverse=True) for key, files in sorted(found.items())}

    def _record_from_header(self, file: str) -> SampleRecord | None:
        """None for a torn or altered file, which is logged."""
        try:
            length = codec.header_length(self.root.read_range(self._name(file), 0, 8))
            header = self.root.read_range(self._name(file), 0, 8 + length)
            record = SampleRecord.of(codec.describe(header), file)
            if codec.is_whole(header, self.root.size(self._name(file))):
                return record
        except FileNotFoundError:
            return None
        except (codec.Corrupt, KeyError, TypeError):  # the last two: whole, but no sample
            pass
        log.warning("passed over, since it is torn or altered: %s", self.location(file))
        return None

    # Checkpoints

    def publish_checkpoint(self, state: Any, step: int, attempt: int, *, cycle_end: bool = False) -> None:
        """Make a nested state durable and drop older checkpoints: the last two and the newest at a cycle's end are
        kept."""
        tensors, tree = codec.flatten(state)
        name = self._name(f"checkpoints/{Checkpoint(attempt, step, cycle_end).name}")
        self.root.publish(name, codec.encode(tensors, {"state": tree}))
        with contextlib.suppress(RaychainsError, OSError):  # the next checkpoint tries again
            self.without_waiting()._drop_checkpoints(attempt)

    def _drop_checkpoints(self, attempt: int) -> None:
        if self.last_attempt() > attempt:
            return  # its successor does this
        names = self.root.names(self._name("checkpoints"))
        valid = valid_checkpoints(names, self.history())
        kept = {c.name for c in valid[-CHECKPOINTS_KEPT:] + [c for c in valid if c.cycle_end][-1:]}
        for name in names:
            if Checkpoint.parse(name) is not None and name not in kept:
                self.root.delete(self._name(f"checkpoints/{name}"))

    def newest_checkpoint(
        self, *, warn: Callable[[str, str], None] | None = None, before: int | None = None, cycle_end: bool = False
    ) -> Any | None:
        """Return the newest valid state, None without one; torn or altered checkpoints are passed over.

        Args:
            warn: called with the location of every checkpoint passed over, and the reason; by default that is logged.
            before: only checkpoints of this step or earlier ones.
            cycle_end: only checkpoints taken at a cycle's end.
        """
        names = self.root.names(self._name("checkpoints"))
        for found in reversed(valid_checkpoints(names, self.history())):
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
            except UserError:
                raise
            except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
                reason = "it holds no state"
            (warn or _log_passed_over)(self.root.location(name), reason)
        return None

    # Progress

    def publish_progress(self, records: Sequence[Mapping[str, Any]], step: int, attempt: int) -> None:
        """Make progress records durable as one file of JSON lines, each with its checksum."""
        lines = "".join(json.dumps(checksum.sealed(r), sort_keys=True) + "\n" for r in records)
        self.root.publish(self._name(f"progress/{step:010d}-{attempt}.jsonl"), lines.encode())

    def progress(self) -> list[dict[str, Any]]:
        """Return progress records in the order of their steps, superseded ones left out."""
        rows = self._indexed(PROGRESS)
        return rows if rows is not None and all(map(is_progress, rows)) else self._progress()

    def _progress(self) -> list[dict[str, Any]]:
        history = self.history()
        by_step: dict[int, dict[str, Any]] = {}
        found = sorted((int(m[2]), int(m[1]), m[0]) for m in self._names("progress", _PROGRESS))
        for attempt, _, name in found:  # of two records of one step the later attempt's stays
            for record in self._records_of_progress(name):
                if not history.superseded(attempt, record["step"]):
                    by_step[record["step"]] = record
        return [by_step[step] for step in sorted(by_step)]

    def _records_of_progress(self, name: str) -> Iterator[dict[str, Any]]:
        for line in self.root.read(self._name(f"progress/{name}")).splitlines():
            record = progress_record(line)
            if record is None:
                log.warning(
                    "the rest is passed over, since it is torn or altered: %s", self.location(f"progress/{name}")
                )
                return
            yield record

    def seconds(self) -> float:
        """Return the chain seconds up to the last progress record, waiting not counted."""
        progress = self.progress()
        return float(progress[-1]["seconds"]) if progress else 0.0

    def publish_diagnosis(self, diagnosis: Mapping[str, Any], step: int, attempt: int) -> None:
        """Make the diagnosis of a divergence durable."""
        self.root.publish(self._name(f"diagnoses/{step:010d}-{attempt}.json"), json_bytes(diagnosis))

    def diagnoses(self) -> list[dict[str, Any]]:
        """Return the diagnoses that `publish_diagnosis` wrote, the oldest first; torn ones are left out."""
        names = sorted((int(m[2]), int(m[1]), m[0]) for m in self._names("diagnoses", _DIAGNOSIS))
        found = []
        for _, _, name in names:
            one = self.root.read_object(self._name(f"diagnoses/{name}"))
            if one is None:
                log.warning("passed over, since it is torn or altered: %s", self.location(f"diagnoses/{name}"))
            else:
                found.append(one)
        return found

    # The finished chain

    def finish(self, *, attempt: int | None = None, expected: int = 0) -> bool:
        """Write the derived indexes ``samples.parquet`` and ``progress.parquet``, which can be rebuilt at will.

        Args:
            attempt: of the worker that asks; one that has a successor writes nothing. None: the newest.
            expected: samples of the whole chain; an index of fewer is not written.

        Returns:
            Whether all samples are there. Where another driver took the chain over, its samples may still be to come.
        """
        last = self.last_attempt()
        if attempt is not None and attempt < last:
            return self.finished(expected)
        rows = [{**r.meta.to_json(), "file": r.file, "sha256": r.sha256} for r in self._records(self._files())]
        if len(rows) < expected:
            return False
        progress = self._progress()
        self.root.publish(self._name(SAMPLES), encode_index(rows, last))
        self.root.publish(self._name(PROGRESS), encode_index(progress, last))
        return True

    def finished(self, expected: int) -> bool:
        """Return whether all ``expected`` samples are there, superseded ones not counted."""
        return self.all_records(expected) is not None

    def all_records(self, expected: int) -> list[SampleRecord] | None:
        """Return `records` when all ``expected`` samples are there, else None."""
        indexed = self._indexed_records()
        if indexed is not None and len(indexed) >= expected:
            return indexed
        files = self._files()  # names first: headers cost reads
        records = self._records(files) if len(files) >= expected else []
        return records if len(records) >= expected else None

    def _indexed_records(self) -> list[SampleRecord] | None:
        rows = self._indexed(SAMPLES)
        if rows is not None:
            with contextlib.suppress(KeyError, TypeError):  # an index of other columns is rebuilt from the files
                return [SampleRecord.of(row, row["file"]) for row in rows]
        return None

    def _indexed(self, name: str) -> list[dict[str, Any]] | None:
        """Rows of an index that describes the newest attempt."""
        try:
            data = self.root.read(self._name(name))
        except FileNotFoundError:
            return None
        return _decode_index(data, self.last_attempt(), self.location(name))


class ChainListing:
    """A chain's folder by one listing; of its files only the newest attempts' records and the end of a progress file
    are read."""

    def __init__(self, root: Storage, digest: str) -> None:
        self.store, self._root, self._folder = ChainStore(root, digest), root, f"chains/{digest}"
        self.files: Mapping[str, tuple[int, int]] = root.below(self._folder)
        """Bytes and time of the last change, nanoseconds, by name."""
        self.attempts = sorted(int(m[1]) for m in self._names("incarnations", _ATTEMPT))
        self.records = {n: self.store.attempt_or_empty(n) for n in self.attempts[-RECORDS:]}
        self.newest: Mapping[str, Any] = self.records[self.attempts[-1]] if self.attempts else {}
        hosts = [record.get("host") for record in self.records.values()]
        self.hosts = tuple(dict.fromkeys(host for host in hosts if isinstance(host, str)))
        """Hosts of these attempts, each once, the newest last."""
        self.begun = max((self.files[f"incarnations/{n}.json"][1] for n in self.attempts), default=0)
        """The time at which the last attempt began, nanoseconds."""
        self.samples = len({(m[1], m[2]) for m in self._names("samples", _SAMPLE)})
        """Samples that are there; of one drawn twice, one. Files are not opened, so torn ones count."""
        steps = {n: record.get("from_step") for n, record in self.records.items()}
        self._history = History({n: step for n, step in steps.items() if isinstance(step, int)})

    def _names(self, folder: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        below = (name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/"))
        return [m for name in below if (m := pattern.fullmatch(name))]

    @property
    def diverged(self) -> bool:
        """True if the folder holds the diagnosis of a divergence."""
        return bool(self._names("diagnoses", _DIAGNOSIS))

    def checkpoint(self) -> tuple[int | None, int | None]:
        """Return the step and the time (nanoseconds) of the newest valid checkpoint; None of none."""
        valid = valid_checkpoints((m[0] for m in self._names("checkpoints", _CHECKPOINT)), self._history)
        return (valid[-1].step, self.files[f"checkpoints/{valid[-1].name}"][1]) if valid else (None, None)

    def last_progress(self) -> list[dict[str, Any]]:
        """Return the last records of the newest progress file that still counts, superseded ones left out."""
        found = sorted((int(m[2]), int(m[1]), f"progress/{m[0]}") for m in self._names("progress", _PROGRESS))
        for attempt, _, name in reversed(found):
            path = f"{self._folder}/{name}"
            start = max(0, self.files[name][0] - TAIL)
            try:
                text = self._root.read_range(path, start, TAIL)
            except FileNotFoundError:
                continue
            read = [progress_record(line) for line in text.splitlines()[1 if start else 0 :]]
            if None in read:
                log.warning("passed over in part, since it is torn or altered: %s", self._root.location(path))
            records = [r for r in read if r is not None and not self._history.superseded(attempt, r["step"])]
            if records:
                return records
        return []


def preemptions(attempts: Mapping[int, Mapping[str, Any]]) -> int:
    """Return how often a chain left a draining node, from its attempts' records: a driver's last one counts
    them."""
    of = {r.get("driver_id"): n for _, r in sorted(attempts.items()) if is_int(n := r.get("preemptions"))}
    return sum(of.values())


def workers(attempt: Mapping[str, Any]) -> int:
    """Return the number of workers that ran a chain together, from an attempt's record."""
    return n if is_number(n := attempt.get("workers")) and is_int(n) and n > 0 else 1


def progress_record(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line of a progress file; None for a torn or altered line, or one of another kind."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    own, whole = checksum.unsealed(record) if isinstance(record, dict) else ({}, False)
    return own if whole and is_progress(own) else None


def is_progress(record: Any) -> bool:
    """Return whether this is a progress record: its step, its chain seconds and a loss, where it has one, are
    numbers."""
    if not isinstance(record, dict) or not is_int(record.get("step")) or not is_number(record.get("seconds")):
        return False
    return all(isinstance(record.get(name), int | float | None) for name in ("loss", "kinetic_temperature"))


def _log_passed_over(file: str, reason: str) -> None:
    log.warning("checkpoint passed over: %s: %s", file, reason)


# Many chains, read by several threads


@dataclass(frozen=True, kw_only=True)
class StoredChain:
    """One chain as the store has it."""

    records: Sequence[SampleRecord] | None
    """All of its samples; None while some are missing."""
    seconds: float = 0.0
    """Chain seconds of a finished chain."""


def stored_chains(root: Storage, specs: Mapping[str, ChainSpec]) -> dict[str, StoredChain]:
    """Return what the store has of each chain, by digest and in the order of ``specs``."""

    def read(digest: str) -> StoredChain:
        store = ChainStore(root, digest)
        records = store.all_records(expected_samples(specs[digest]))
        return StoredChain(records=records, seconds=store.seconds() if records is not None else 0.0)

    return _for_each(specs, read)


def finished_chains(root: Storage, specs: Mapping[str, ChainSpec]) -> set[str]:
    """Return the digests of the chains of which all samples are there."""
    there = _for_each(specs, lambda digest: ChainStore(root, digest).finished(expected_samples(specs[digest])))
    return {digest for digest, whole in there.items() if whole}


def _for_each(specs: Mapping[str, ChainSpec], read: Callable[[str], T]) -> dict[str, T]:
    with ThreadPoolExecutor(READERS, thread_name_prefix="chain-reader") as readers:
        return dict(zip(specs, readers.map(read, specs), strict=True))
