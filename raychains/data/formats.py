"""Readers of the published files: md5 checks, MNIST's idx, CIFAR's python batches, SVHN's MATLAB files."""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from raychains.core import bounded
from raychains.core.errors import UserError

_RIGHT: set[tuple[str, int, int, int, str]] = set()
"""(path, inode, size, modification time in ns, md5) of what was found right."""


def read_checked(path: Path, md5: str | None, name: str, *, declared: bool = False) -> bytes:
    """Return the bytes of ``path``, whose md5 is ``md5``; None checks nothing.

    ``declared`` says that the md5 is a stand-in's, declared by its data root, instead of a published one.

    Raises:
        UserError: the file cannot be read, or its md5 differs.
    """
    try:
        status = path.stat()
        data = bounded.read(path)
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


_UINT8 = 8


def read_idx(data: bytes, what: str) -> np.ndarray:
    """Return the uint8 array of an idx file's bytes, which gzip may have packed; writable.

    Raises:
        UserError: the bytes are no idx file of uint8, or their number is not what the header says.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            data = bounded.unzipped(data, what)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{what} cannot be unpacked: {' '.join(str(error).split())}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _UINT8 or len(data) < 4 + 4 * data[3]:
        raise UserError(f"{what} must be an idx file of bytes, got one that starts with {data[:4].hex() or 'nothing'}")
    dimensions = data[3]
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    start = 4 + 4 * dimensions
    if len(data) - start != math.prod(shape):
        raise UserError(f"{what} must hold {math.prod(shape)} bytes after its header, got {len(data) - start}")
    return np.frombuffer(bytearray(data[start:]), dtype=np.uint8).reshape(shape)


_ALLOWED: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
_RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}


def _reconstruct(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """Return an empty array for the pickle's state to fill, as numpy's own function of that name makes it."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError("an array of another kind")
    return np.ndarray.__new__(np.ndarray, shape, code)


class _Restricted(pickle.Unpickler):
    """Builds arrays of numbers, dicts, lists, texts and bytes; refuses everything that names another object."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _RECONSTRUCT:
            return _reconstruct
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def unpickle(data: bytes, what: str) -> dict[str, Any]:
    """Return the dict in one of CIFAR's files.

    Raises:
        UserError: the pickle holds anything but a dict of arrays, lists, numbers and texts.
    """
    try:
        found = _Restricted(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises whatever it likes
        raise UserError(f"{what} is none of CIFAR's python batches: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise UserError(f"{what} is none of CIFAR's python batches: it holds a {type(found).__name__}")
    return found


def read_batch(data: bytes, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images [n, 3, 32, 32] uint8 and labels [n] int64 of one file; CIFAR-100's fine labels.

    Raises:
        UserError: the file is none of CIFAR's batches.
    """
    found = unpickle(data, what)
    images, labels = found.get("data"), found.get("labels", found.get("fine_labels"))
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        raise UserError(f"{what} must hold data of shape [n, 3072] in bytes, got {_described(images)}")
    if not isinstance(labels, list) or len(labels) != len(images) or not all(type(y) is int for y in labels):
        raise UserError(f"{what} must hold {len(images)} integer labels, got {_described(labels)}")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {list(value.shape)}"
    return "none" if value is None else f"a {type(value).__name__}"


def read_mat(data: bytes, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images [n, 3, 32, 32] uint8 and labels [n] int64 in 0 … 9; the file calls the digit 0 "10".

    Raises:
        UserError: the file is no MATLAB file with X [32, 32, 3, n] in bytes and y [n, 1] in 1 … 10.
    """
    from scipy.io import loadmat

    try:
        found = loadmat(io.BytesIO(data), variable_names=["X", "y"])
    except Exception as error:  # scipy raises many kinds on bytes that are no MATLAB file
        raise UserError(f"{what} is no MATLAB file: {' '.join(str(error).split())}") from error
    images, labels = found.get("X"), found.get("y")
    if (
        not isinstance(images, np.ndarray)
        or images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[:3] != (32, 32, 3)
    ):
        raise UserError(f"{what} must hold X of shape [32, 32, 3, n] in bytes")
    n = images.shape[3]
    numbers = isinstance(labels, np.ndarray) and labels.dtype.kind in "iuf"
    if not numbers or labels.size != n or not np.isin(labels, np.arange(1, 11)).all():
        raise UserError(f"{what} must hold {n} labels y in 1 … 10")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64).reshape(n) % 10
