"""CIFAR's python batches: pickled dicts of an array and lists, read by an unpickler that knows nothing else."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from raychains.errors import UserError

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
_RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}


def _reconstruct(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """An empty array for the pickle's state to fill, as numpy's own function of that name makes it."""
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
    """The dict in one of CIFAR's files.

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
    """Images [n, 3, 32, 32] uint8 and labels [n] int64 of one file; CIFAR-100's fine labels.

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
