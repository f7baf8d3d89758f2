"""Folders of runs, fits and sweeps: plan, tables, report; a fit's decisions, a sweep's trial reports and best point.

A sweep's reports are immutable files, one per chain and cycle, written before any decision is based on them: a sweep
whose driver was killed has lost none. Its tables are derived from them at its end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from raychains.core import bounded, checksum
from raychains.core.errors import UserError, near_miss, shown
from raychains.core.spec import check_format
from raychains.core.validation import is_int, is_number
from raychains.store import parquet_codec
from raychains.store.filesystem import Storage, json_bytes, table_of

log = logging.getLogger(__name__)

FORMAT = 1
BEST = "best.json"
COLUMNAR = ("rows", "llc_example_losses")
"""Tables with a row for each example or draw, which are never read row by row."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REPORT = re.compile(r"(\d+)-(\d+)\.json")


def check_run_name(name: str) -> str:
    """Return a run's name, which is a folder's; refuse anything that could leave the store."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"name must be 1 to 100 letters, digits, '.', '_' or '-' and start with a letter or digit, got {name!r}"
        )
    return name


class RunStore:
    """Reads and writes ``runs/<name>/``: plan.json, *.parquet, report.html, figures/."""

    kind: ClassVar[str] = "run"
    """Its plural is the folder's name in the store."""

    def __init__(self, root: Storage, name: str) -> None:
        self.root, self.name = root, check_run_name(name)

    @property
    def lease_name(self) -> str:
        """Its name in its driver's lease."""
        return self.name

    def _name(self, name: str) -> str:
        return f"{self.kind}s/{self.name}/{name}"

    def location(self, name: str = "") -> str:
        """Return a file's path or URI for messages."""
        return self.root.location(self._name(name)).rstrip("/")

    def exists(self) -> bool:
        """Return whether a run of this name was ever planned."""
        return self.root.exists(self._name("plan.json"))

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Publish the plan as JSON with its format number."""
        self.root.publish(self._name("plan.json"), json_bytes({"format": FORMAT, **plan}))

    def remove_plan(self) -> None:
        """Remove the plan, so that another may have the name."""
        self.root.delete(self._name("plan.json"))

    def plan(self, path: str | os.PathLike[str] = "") -> dict[str, Any]:
        """Return the plan that `write_plan` published; messages show the ``path`` that the user wrote.

        Raises:
            UserError: no run of this name (the nearest is suggested), or a newer format.
        """
        if not self.exists():
            written = os.fspath(path)
            got = shown(self.location() if not written or "://" in written else written)  # a URI may hold secrets
            names = self.root.names(f"{self.kind}s")
            if self.name in names:
                raise UserError(
                    f"{self.kind} must be one with a plan, got {got}: {self.location('plan.json')} is missing; the "
                    "call that made it writes one, and its finished chains stay"
                )
            known = [name for name in names if self.root.exists(f"{self.kind}s/{name}/plan.json")]
            if known:
                raise UserError(
                    f"{self.kind} must be one of the {self.kind}s in {self.root.location()}: "
                    f"{', '.join(sorted(known))}, got {got}{near_miss(self.name, known)}"
                )
            raise UserError(
                f"{self.kind} must be one of the {self.kind}s in {self.root.location()}, got {got}: there are none yet"
            )
        plan = self.root.read_object(self._name("plan.json"))
        if plan is None:
            raise UserError(f"{self.kind} {self.name}: plan.json is damaged; repeat it under another `name`")
        return check_format(plan, f"{self.kind} {self.name}")

    def write_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Publish rows as ``<name>.parquet``, by `table_of`."""
        self.write_arrow(name, table_of(rows))

    def remove_table(self, name: str) -> None:
        """Remove ``<name>.parquet``, if there is one."""
        self.root.delete(self._name(f"{name}.parquet"))

    def write_arrow(self, name: str, table: pa.Table) -> None:
        """Publish an Arrow table as ``<name>.parquet``."""
        self.root.publish(self._name(f"{name}.parquet"), parquet_codec.encode(table))

    def table(self, name: str) -> pa.Table | None:
        """Return the table of ``<name>.parquet``, None when it was never written.

        Raises:
            UserError: the file is damaged, or too large: see `parquet_codec.decode`.
        """
        if not self.root.exists(self._name(f"{name}.parquet")):
            return None
        data = self.root.read(self._name(f"{name}.parquet"))
        rows = None if name in COLUMNAR or name.startswith("draws/") else bounded.ROWS
        try:
            return parquet_codec.decode(data, self.location(f"{name}.parquet"), rows=rows)
        except UserError:
            raise
        except (pa.ArrowException, OSError, ValueError, TypeError, RecursionError):
            raise self.damaged(name) from None

    def damaged(self, name: str) -> UserError:
        """Return the error for a table that cannot be read."""
        return UserError(f"run {self.name}: {name}.parquet is damaged; evaluate the run to write it again")

    def write_file(self, name: str, data: bytes) -> str:
        """Publish any other file; return its location."""
        self.root.publish(self._name(name), data)
        return self.location(name)


class FitStore(RunStore):
    """Reads and writes ``fits/<name>/``: plan.json and decisions/<rung>.json."""

    kind: ClassVar[str] = "fit"

    def publish_decision(self, rung: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Make the decision after a rung durable, before it is acted on."""
        found = {"rung": rung, "candidates": [dict(row) for row in rows]}
        self.root.publish(self._name(f"decisions/{rung}.json"), json_bytes(found, allow_nan=True))

    def decision(self, rung: int) -> list[dict[str, Any]] | None:
        """Return the decision after a rung; None where it was not taken yet, or its file is torn or altered."""
        try:
            found = self.root.read_object(self._name(f"decisions/{rung}.json"))
        except FileNotFoundError:
            return None
        return None if found is None else list(found["candidates"])


class SweepStore(RunStore):
    """Reads and writes ``sweeps/<name>/``: the files of a run's folder, best.json, reports/, stops/ and asked/."""

    kind: ClassVar[str] = "sweep"

    @property
    def lease_name(self) -> str:
        return f"sweep:{self.name}"

    def publish_report(self, digest: str, report: Mapping[str, Any]) -> None:
        """Make the report of one chain's cycle durable."""
        name = self._name(f"reports/{digest}/{report['cycle']:05d}-1.json")
        self.root.publish(name, json_bytes(dict(report), allow_nan=True))

    def reports(self, digest: str, metric: str | None = None) -> list[dict[str, Any]]:
        """Return a chain's reports by cycle, those that have ``metric``; torn and altered ones are left out and logged.

        Of two on one cycle the higher number's counts.
        """
        found: dict[int, tuple[int, dict[str, Any]]] = {}
        for name in self.root.names(self._name(f"reports/{digest}")):
            if (match := _REPORT.fullmatch(name)) is None:
                continue
            cycle, attempt = int(match[1]), int(match[2])
            report = self._object(f"reports/{digest}/{name}", partial(_is_report, cycle=cycle, metric=metric))
            if report is not None and attempt >= found.get(cycle, (-1, {}))[0]:
                found[cycle] = attempt, report
        return [found[cycle][1] for cycle in sorted(found)]

    def publish_stopped_at(self, digest: str, report: Mapping[str, Any]) -> None:
        """Record the report at which the scheduler stopped a chain: it is not run again."""
        self.root.publish(self._name(f"stops/{digest}.json"), json_bytes(dict(report), allow_nan=True))

    def stopped_at(self, digest: str) -> dict[str, Any] | None:
        """Return where the scheduler stopped a chain; None where it did not, or the file is torn or altered."""
        return self._object(f"stops/{digest}.json", lambda stop: is_number(stop.get("epoch")))

    def stopped(self) -> dict[str, dict[str, Any]]:
        """Return where the scheduler stopped chains, by digest; one listing tells which they are."""
        names = self.root.names(self._name("stops"))
        digests = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        found = {digest: self.stopped_at(digest) for digest in digests}
        return {digest: at for digest, at in found.items() if at is not None}

    def publish_asked(self, point: int, values: Mapping[str, Any]) -> None:
        """Record a point that the search chose, before it is run."""
        self.root.publish(self._name(f"asked/{point:06d}.json"), json_bytes(dict(values), allow_nan=True))

    def asked(self) -> list[dict[str, Any]]:
        """Return the points that the search chose so far, in order, up to the first gap."""
        points: list[dict[str, Any]] = []
        while (found := self._object(f"asked/{len(points):06d}.json")) is not None:
            points.append(found)
        return points

    def write_best(self, options: Mapping[str, Any]) -> str:
        """Publish the options of the best point; return their location."""
        return self.write_file(BEST, json_bytes(dict(options), allow_nan=True))

    def best(self) -> dict[str, Any] | None:
        """Return the options of the best point, None without any; that somebody edited them is logged."""
        try:
            found = json.loads(self.root.read(self._name(BEST)))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            log.warning("passed over, since it is torn: %s", self.location(BEST))
            return None
        own, whole = checksum.unsealed(found)
        if not whole:
            log.warning("changed since the sweep wrote it, and read as it is now: %s", self.location(BEST))
        return own

    def damaged(self, name: str) -> UserError:
        return UserError(f"sweep {self.name}: {name}.parquet is damaged; repeat it with `resume=True` to write it")

    def _object(self, name: str, ok: Callable[[dict[str, Any]], bool] = bool) -> dict[str, Any] | None:
        """A JSON object; None without one, or for one that is torn, altered or not ``ok``, which is logged."""
        try:
            value = self.root.read_object(self._name(name))
        except FileNotFoundError:
            return None
        if value is None or not ok(value):
            log.warning("passed over, since it is torn or altered: %s", self.location(name))
            return None
        return value


def _is_report(report: Mapping[str, Any], *, cycle: int, metric: str | None) -> bool:
    """Return whether this is what `SweepStore.publish_report` wrote for a cycle, with this metric."""
    metrics = report.get("metrics")
    return (
        report.get("cycle") == cycle
        and is_number(report.get("epoch"))
        and is_int(report.get("gradients"))
        and is_int(report.get("samples"))
        and isinstance(metrics, dict)
        and all(isinstance(value, float) for value in metrics.values())  # not finite is a value, too
        and (metric is None or metric in metrics)
    )


def split_run_path(path: str | os.PathLike[str], kind: str = "run") -> tuple[str, str]:
    """Return STORE and NAME of ``STORE/runs/NAME``, or of another ``kind``'s; a URI's query belongs to STORE.

    Raises:
        UserError: the path has another form.
    """
    with contextlib.suppress(Exception):  # of a user's class
        path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str):
        raise UserError(f"{kind} must be a path of the form STORE/{kind}s/NAME, got {shown(path)}")
    plain, question, query = path.partition("?") if "://" in path else (path, "", "")
    trimmed = plain.rstrip("/")
    store, _, name = trimmed.rpartition(f"/{kind}s/")
    if not store and trimmed.startswith(f"{kind}s/"):
        store, name = ".", trimmed.removeprefix(f"{kind}s/")
    if not store or not name or "/" in name:
        raise UserError(f"{kind} must be a path of the form STORE/{kind}s/NAME, got {path!r}")
    return f"{store}{question}{query}", name


def load_sweep(path: str) -> SweepStore:
    """Return the folder STORE/sweeps/NAME.

    Raises:
        UserError: the path has another form.
    """
    store, name = split_run_path(path, kind=SweepStore.kind)
    return SweepStore(Storage(store), name)
