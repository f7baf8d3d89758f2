"""A file's md5 against the published one, computed once per process and file version."""

from __future__ import annotations

import hashlib
from pathlib import Path

from raychains.errors import UserError

_RIGHT: set[tuple[str, int, int, int, str]] = set()
"""(path, inode, size, modification time in ns, md5) of what was found right."""


def read_checked(path: Path, md5: str | None, name: str, *, declared: bool = False) -> bytes:
    """The bytes of ``path``, whose md5 is ``md5``; None checks nothing.

    Args:
        name: of the data set, for the message.
        declared: whether the md5 is a stand-in's, declared by its data root, instead of a published one.

    Raises:
        UserError: the file cannot be read, or its md5 differs.
    """
    try:
        status = path.stat()
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"data set {name}: cannot read {path}: {error.strerror or error}") from error
    if md5 is None:
        return data
    key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns, md5)
    if key not in _RIGHT:
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found != md5:
            if declared:
                raise UserError(
                    f"data set {name}: {path} has md5 {found}, but {md5} is declared for this stand-in: "
                    "the file is damaged or another one; remove the folder and make the stand-ins anew"
                )
            raise UserError(
                f"data set {name}: {path} has md5 {found}, but {md5} is published: "
                "the file is damaged or another version; remove it, so that it can be fetched anew"
            )
        _RIGHT.add(key)
    return data
