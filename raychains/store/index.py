"""The tables beside a finished chain's files: derived, checksummed, stamped with the incarnation that they describe."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raychains.errors import UserError

FORMAT = 1
_KEY = b"raychains"


def encode(rows: Sequence[Mapping[str, Any]], incarnation: int) -> bytes:
    """Rows as parquet."""
    table = pa.Table.from_pylist([dict(r) for r in rows])
    stamp = json.dumps({"format": FORMAT, "incarnation": incarnation}).encode()
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({_KEY: stamp}), out, write_page_checksum=True)
    return out.getvalue()


def decode(data: bytes, incarnation: int, where: str) -> list[dict[str, Any]] | None:
    """The rows; None for a torn table, or one that was made before ``incarnation`` began.

    Raises:
        UserError: a newer format.
    """
    try:
        table = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
        stamp = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
        made, number = stamp.get("incarnation"), stamp.get("format", FORMAT)
    except (pa.ArrowException, OSError, ValueError, AttributeError):
        return None
    if not isinstance(number, int) or number > FORMAT:
        raise UserError(f"{where}: format must be at most {FORMAT}, got {number!r}: newer files need a newer raychains")
    # Tables of the first version bear no stamp.
    return table.to_pylist() if made in (None, incarnation) else None
