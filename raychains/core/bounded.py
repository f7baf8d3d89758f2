"""Reads of files that somebody else may have written: regular ones only, and no more than this machine can hold.

Every file of a store or a data root is read through here. Sizes are looked at before anything is read or unpacked: a
file that takes no space on the disk may claim any length, and a table of a few kilobytes any number of rows.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any

from raychains.core.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL.Image import Image

MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
"""Bytes of this machine's memory."""
LARGEST = MEMORY // 3
"""Bytes of the largest file that is read whole: its tensors are beside it in memory, and are copied once."""
LARGEST_TEXT = min(100_000_000, LARGEST)
"""Bytes of the largest file of text: as Python's objects JSON takes up to thirty times as much."""
TEXTS = (".json", ".jsonl", ".txt", ".csv")
ROWS = 1_000_000
"""Most rows of a table that becomes Python's objects, a row at a time."""
BATCH = 4096
"""Rows of a table that are read at once."""
PIXELS = 89_000_000
"""Most pixels of a picture, a few less than those of which PIL warns; ImageNet's largest has 17 million."""
PICTURES = ("JPEG", "PNG", "PPM", "BMP", "WEBP", "TIFF", "GIF")
"""Formats of pictures; others would be handed to programs of their own."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def largest(name: str) -> int:
    """Return the most bytes that are read of a file of this name."""
    return LARGEST_TEXT if PurePath(name).suffix in TEXTS else LARGEST


def check_size(where: object, size: int, most: int) -> None:
    """Raise `UserError` where a file's ``size`` is above ``most`` bytes."""
    if size > most:
        raise UserError(f"file must have at most {most:,} bytes to be read here, got {str(where)!r} of {size:,}")


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a local file to read; nothing is waited for.

    Raises:
        UserError: it is no regular file: opening a named pipe would wait for its writer.
        OSError: the system's.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise UserError(f"file must be a regular file, got {os.fspath(path)!r}, {kind}")
    with open(number, "rb") as f:
        yield f


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise `UserError` for what `opened` refuses."""
    with opened(path):
        pass


def read(path: str | os.PathLike[str], *, most: int | None = None, start: int = 0, length: int | None = None) -> bytes:
    """Return the bytes of a local file, or ``length`` from ``start`` on (fewer at its end).

    Args:
        path: the file.
        most: bytes that it, or the part, may have; by default `largest`.

    Raises:
        UserError: no regular file, or a larger one.
        OSError: the system's.
    """
    with opened(path) as f:
        size = os.fstat(f.fileno()).st_size
        return part(f, os.fspath(path), size, most=most, start=start, length=length)


def part(f: Any, where: str, size: int, *, most: int | None = None, start: int = 0, length: int | None = None) -> bytes:
    """Return bytes of an open file of ``size`` bytes; for arguments and errors see `read`."""
    wanted = max(0, size - start) if length is None else min(length, max(0, size - start))
    check_size(where, wanted, largest(where) if most is None else most)
    f.seek(min(start, size))  # some filesystems refuse to go further
    data: bytes = f.read(wanted)
    return data


def unzipped(data: bytes, where: object) -> bytes:
    """Return what gzip packed.

    Raises:
        UserError: it is larger than `LARGEST`.
        OSError, EOFError, zlib.error: it is torn.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as f:
        found = f.read(LARGEST + 1)
    check_size(f"{where}, unpacked", len(found), LARGEST)
    return found


def table(data: bytes, where: object, *, rows: int | None = ROWS) -> pa.Table:
    """Return a parquet file's table, its pages' checksums verified.

    Args:
        data: the file.
        where: its name in messages.
        rows: most rows; None: as many as memory holds.

    Raises:
        UserError: more rows, or more bytes than `LARGEST` once unpacked.
        ArrowException, OSError, ValueError: it is torn, or two columns have one name.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        if len({*names}) < len(names):
            raise ValueError("two columns have one name")
        return rows_of(file, where, rows=rows)


def rows_of(
    file: pq.ParquetFile,
    where: object,
    *,
    rows: int | None = ROWS,
    groups: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return a parquet file, or some of its row groups and columns; raises as `table` does.

    It is read in parts, which are measured: what a damaged file says of its columns cannot be asked for, since pyarrow
    aborts the process (no exception passes ``RowGroupMetaData.column``), and a page may stand for any number of equal
    values. Arrow's threads are not used: they let go of Python's bytes a moment after the table is there, and abort a
    process that ends just then.
    """
    import pyarrow as pa

    count = file.metadata.num_rows
    if rows is not None and count > rows:
        raise UserError(f"table must have at most {rows:,} rows, got {str(where)!r} with {count:,}")
    found, size = [], 0
    for batch in file.iter_batches(BATCH, row_groups=groups, columns=columns, use_threads=False):
        batch.validate(full=True)  # a page's checksum leaves out its header
        size += batch.nbytes
        check_size(f"{where}, unpacked", size, LARGEST)
        found.append(batch)
    schema = found[0].schema if found else file.schema_arrow
    return pa.Table.from_batches(found, schema).unify_dictionaries().combine_chunks()


def picture(data: bytes | memoryview, formats: tuple[str, ...] = PICTURES) -> Image:
    """Open a picture, whose pixels are decoded when they are asked for.

    Raises:
        OSError: no picture of these formats, or one of more than `PIXELS` pixels.
    """
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(data), formats=formats)
    except Image.DecompressionBombError as error:
        raise OSError(str(error)) from None
    if image.width * image.height > PIXELS:
        raise OSError(f"a picture of {image.width} × {image.height} pixels, more than {PIXELS:,}")
    return image


def decoded(data: bytes | memoryview, formats: tuple[str, ...] = PICTURES) -> Image:
    """Return a picture whose pixels are decoded.

    Raises:
        OSError: as `picture`, or it is damaged.
    """
    try:
        image = picture(data, formats)
        image.load()
    except Exception as error:  # every format of PIL's raises classes of its own
        raise OSError(" ".join(str(error).split()) or type(error).__name__) from None
    return image
