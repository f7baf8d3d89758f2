"""Files of a local or network filesystem: written whole under a temporary name, forced to the disk, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path


def write(target: Path, data: bytes) -> None:
    """Make ``data`` durable under ``target``, whole or not at all; what was there stays until the new is complete."""
    make_folders(target.parent)
    temporary = _temporary(target, data)
    try:
        os.replace(temporary, target)
    except BaseException:
        _discard(temporary)
        raise
    _sync_folder(target.parent)


def create(target: Path, data: bytes) -> bool:
    """`write` unless the name is taken; whether it was free. Of several callers at once one alone gets it."""
    make_folders(target.parent)
    temporary = _temporary(target, data)
    try:
        if not _link(temporary, target, data):
            return False
    finally:
        _discard(temporary)
    with contextlib.suppress(OSError):  # the name is ours: failing now would have the caller take another
        _sync_folder(target.parent)
    return True


def _link(temporary: Path, target: Path, data: bytes) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        try:
            with open(target, "xb") as f:  # no hard links here
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
        except FileExistsError:
            return False
    return True


def _temporary(target: Path, data: bytes) -> Path:
    """A durable file with ``data`` beside ``target``; hidden, so that listings leave it out."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
    except BaseException:
        _discard(temporary)
        raise
    return temporary


def _discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, durably: a file is no safer than the folder's own name."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    try:
        number = os.open(folder, os.O_RDONLY)
    except PermissionError:  # may be entered but not listed: nothing to be done
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # filesystems that know no such thing
            raise
    finally:
        os.close(number)
