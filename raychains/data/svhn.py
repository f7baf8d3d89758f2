"""SVHN's cropped digits: a MATLAB file, read by scipy, which only a process that wants them loads."""

from __future__ import annotations

import io

import numpy as np

from raychains.errors import UserError


def read_mat(data: bytes, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] uint8 and labels [n] int64 in 0 … 9; the file calls the digit 0 "10".

    Raises:
        UserError: the file is no MATLAB file with X [32, 32, 3, n] in bytes and y [n, 1] in 1 … 10.
    """
    from scipy.io import loadmat

    try:
        found = loadmat(io.BytesIO(data), variable_names=["X", "y"])
    except Exception as error:  # scipy raises many kinds on bytes that are no MATLAB file
        raise UserError(f"{what} is no MATLAB file: {' '.join(str(error).split())}") from error
    images, labels = found.get("X"), found.get("y")
    if images is None or images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise UserError(f"{what} must hold X of shape [32, 32, 3, n] in bytes")
    n = images.shape[3]
    if labels is None or labels.size != n or not np.isin(labels, np.arange(1, 11)).all():
        raise UserError(f"{what} must hold {n} labels y in 1 … 10")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64).reshape(n) % 10
