"""Tables as parquet files that hold their own sha256: page checksums leave out what says how pages are read.

The digest stands in the file's metadata, under `NAME`, and is that of the file with zeros in its place.
"""

from __future__ import annotations

import hashlib
import io
import re

import pyarrow as pa
import pyarrow.parquet as pq

from raychains.core import bounded

NAME = b"raychains_sha256"
_ZEROS = b"0" * 64
_SHA256 = re.compile(rb"[0-9a-f]{64}")
_BEFORE = NAME + b"\x18\x40"
"""What stands before the digest: in Thrift's compact protocol a text's field and its length follow the name."""


def encode(table: pa.Table) -> bytes:
    """Return a table as a parquet file with its checksum."""
    out = io.BytesIO()
    named = table.replace_schema_metadata({**(table.schema.metadata or {}), NAME: _ZEROS})
    pq.write_table(named, out, write_page_checksum=True)
    data = out.getvalue()
    at = data.rindex(_BEFORE + _ZEROS) + len(_BEFORE)
    return b"".join((data[:at], _digest(data, at), memoryview(data)[at + len(_ZEROS) :]))


def decode(data: bytes, where: object, *, rows: int | None = bounded.ROWS) -> pa.Table:
    """Return the table of a parquet file; one without a checksum is read as `bounded.table` does.

    So is one whose digest is zeros: another program read the table from such a file and wrote it again.

    Raises:
        UserError, ArrowException, OSError, ValueError: as `bounded.table`, or the file differs from its checksum.
    """
    found = data.rfind(_BEFORE)
    at = found + len(_BEFORE)
    stated = data[at : at + len(_ZEROS)] if found >= 0 else None
    if stated not in (None, _ZEROS, _digest(data, at)):
        raise ValueError("the file differs from its sha256")
    table = bounded.table(data, where, rows=rows)
    metadata = dict(table.schema.metadata or {})
    if stated is None and any(map(_SHA256.fullmatch, metadata.values())):
        raise ValueError("the file's sha256 has lost its name")
    metadata.pop(NAME, None)
    return table.replace_schema_metadata(metadata or None)


def _digest(data: bytes, at: int) -> bytes:
    whole = hashlib.sha256(memoryview(data)[:at])
    whole.update(_ZEROS)
    whole.update(memoryview(data)[at + len(_ZEROS) :])
    return whole.hexdigest().encode()
