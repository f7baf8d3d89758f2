"""Tables' files: no bit changes a table unnoticed; files without a checksum, and those of other programs, are read."""

from __future__ import annotations

import contextlib
import io

import pyarrow as pa
import pyarrow.parquet as pq

from raychains.store import parquet_codec

TABLE = pa.table({"arm": ["a", "b"], "nll": [0.7499, 0.6499], "list": [[1, 2], None]})


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_flipped_bit_changes_a_table_unnoticed() -> None:
    data = parquet_codec.encode(TABLE.replace_schema_metadata({"raychains": "{}"}))
    found = parquet_codec.decode(data, "here")
    assert found.equals(TABLE) and found.schema.metadata == {b"raychains": b"{}"}
    same = 0
    for bit in range(8 * len(data)):
        with contextlib.suppress(ValueError, OSError):
            assert parquet_codec.decode(flipped(data, bit), "here").equals(TABLE), bit
            same += 1
    assert same < 8  # in the name of the checksum


def test_files_of_older_versions_and_of_other_programs_are_read() -> None:
    older, again = io.BytesIO(), io.BytesIO()
    pq.write_table(TABLE, older, write_page_checksum=True)
    pq.write_table(pq.read_table(io.BytesIO(parquet_codec.encode(TABLE))).slice(0, 1), again)
    assert parquet_codec.decode(older.getvalue(), "here").equals(TABLE)
    assert parquet_codec.decode(again.getvalue(), "here").equals(TABLE.slice(0, 1))
    assert pq.read_table(io.BytesIO(parquet_codec.encode(TABLE))).equals(TABLE)


def test_a_page_whose_header_was_altered_in_a_file_without_a_checksum_is_no_table() -> None:
    """Its page checksums are right: Arrow reads an array that is none, of which any use may end the process."""
    repeated = pa.table({"arm": ["a", "b", "c"] * 3, "nll": [0.1 * i for i in range(9)]})
    older = io.BytesIO()
    pq.write_table(repeated.append_column("kind", repeated["arm"].dictionary_encode()), older, write_page_checksum=True)
    read = []
    for bit in range(2000, 2200):  # headers among them
        with contextlib.suppress(pa.ArrowException, ValueError, OSError):
            read.append(parquet_codec.decode(flipped(older.getvalue(), bit), "here"))
    assert read and all(table.validate(full=True) is None for table in read)
