"""MNIST's idx format: a big-endian header with the shape, then the bytes; packed by gzip or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib

import numpy as np

from raychains.errors import UserError

_UINT8 = 8


def read_idx(data: bytes, what: str) -> np.ndarray:
    """The uint8 array of an idx file's bytes, which gzip may have packed; writable.

    Args:
        what: names the file in messages.

    Raises:
        UserError: the bytes are no idx file of uint8, or their number is not what the header says.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{what} cannot be unpacked: {' '.join(str(error).split())}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _UINT8 or len(data) < 4 + 4 * data[3]:
        raise UserError(f"{what} must be an idx file of bytes, got one that starts with {data[:4].hex() or 'nothing'}")
    dimensions = data[3]
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    start = 4 + 4 * dimensions
    if len(data) - start != math.prod(shape):
        raise UserError(f"{what} must hold {math.prod(shape)} bytes behind its header, got {len(data) - start}")
    return np.frombuffer(bytearray(data[start:]), dtype=np.uint8).reshape(shape)
