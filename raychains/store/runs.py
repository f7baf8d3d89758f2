"""One run's folder: its plan, its results and its report."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from raychains.errors import UserError, unknown_name
from raychains.spec import check_format
from raychains.store.filesystem import Root

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """A run's name, which is a folder's: refuse anything that could leave the store."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"name must be 1 to 100 letters, digits, '.', '_' or '-' and start with a letter or digit, got {name!r}"
        )
    return name


class RunStore:
    """Reads and writes ``runs/<name>/``: plan.json, *.parquet, report.html, figures/."""

    kind: ClassVar[str] = "run"
    """What lies here; its plural is the folder's name in the store."""

    def __init__(self, root: Root, name: str) -> None:
        self.root, self.name = root, check_name(name)

    def _name(self, name: str) -> str:
        return f"{self.kind}s/{self.name}/{name}"

    def location(self, name: str = "") -> str:
        """Where a file of the run lies, for people."""
        return self.root.location(self._name(name)).rstrip("/")

    def exists(self) -> bool:
        """Whether a run of this name was ever planned."""
        return self.root.exists(self._name("plan.json"))

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Publish the plan as JSON with its format number."""
        text = json.dumps({"format": FORMAT, **plan}, indent=1, sort_keys=True, allow_nan=False)
        self.root.publish(self._name("plan.json"), text.encode())

    def plan(self) -> dict[str, Any]:
        """The plan that `write_plan` published.

        Raises:
            UserError: no run of this name (the nearest is suggested), or a newer format.
        """
        if not self.exists():
            known = self.root.names(f"{self.kind}s")
            if not known:
                raise UserError(
                    f"{self.kind} must be the name of a {self.kind} in {self.root.location()}, got {self.name!r}: "
                    "there are none yet"
                )
            raise unknown_name(self.kind, self.name, known)
        try:
            data = json.loads(self.root.read(self._name("plan.json")))
        except (ValueError, RecursionError):
            raise UserError(
                f"{self.kind} {self.name}: plan.json is damaged; repeat its command under another --name"
            ) from None
        return check_format(data, f"{self.kind} {self.name}")

    def write_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Publish rows as ``<name>.parquet``."""
        self.write_arrow(name, pa.Table.from_pylist([dict(r) for r in rows]))

    def write_arrow(self, name: str, table: pa.Table) -> None:
        """Publish an Arrow table as ``<name>.parquet``."""
        out = io.BytesIO()
        pq.write_table(table, out, write_page_checksum=True)
        self.root.publish(self._name(f"{name}.parquet"), out.getvalue())

    def table(self, name: str) -> pa.Table | None:
        """The table of ``<name>.parquet``, None when it was never written.

        Raises:
            UserError: the file is damaged.
        """
        if not self.root.exists(self._name(f"{name}.parquet")):
            return None
        data = pa.BufferReader(self.root.read(self._name(f"{name}.parquet")))
        try:
            return pq.read_table(data, page_checksum_verification=True)
        except (pa.ArrowException, OSError, ValueError, TypeError, RecursionError):
            raise self.damaged(name) from None

    def damaged(self, name: str) -> UserError:
        """What to tell about a table that cannot be read."""
        return UserError(f"run {self.name}: {name}.parquet is damaged; evaluate the run to write it again")

    def write_file(self, name: str, data: bytes) -> str:
        """Publish any other file; where it lies."""
        self.root.publish(self._name(name), data)
        return self.location(name)


def split_run_path(path: str, kind: str = "run") -> tuple[str, str]:
    """STORE and NAME of ``STORE/runs/NAME``, or of another ``kind``'s; what follows a URI's ``?`` belongs to STORE.

    Raises:
        UserError: the path has another form.
    """
    plain, question, query = path.partition("?") if "://" in path else (path, "", "")
    trimmed = plain.rstrip("/")
    store, _, name = trimmed.rpartition(f"/{kind}s/")
    if not store and trimmed.startswith(f"{kind}s/"):
        store, name = ".", trimmed.removeprefix(f"{kind}s/")
    if not store or not name or "/" in name:
        raise UserError(f"{kind} must be a path of the form STORE/{kind}s/NAME, got {path!r}")
    return f"{store}{question}{query}", name
