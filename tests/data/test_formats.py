"""Bytes that are not what a format says are refused in one line; nothing in a pickle is executed."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.data.formats import read_batch, read_idx, read_mat, unpickle
from tests.checks import refused
from tests.data import small

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 5, 3), (0,), (2, 3, 4, 5)])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_gives_back_the_array(shape: tuple[int, ...], packed: bool) -> None:
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    data = small.idx_bytes(array)
    found = read_idx(gzip.compress(data) if packed else data, "file")
    assert np.array_equal(found, array) and found.dtype == np.uint8 and found.flags.writeable


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_malicious_pickle_is_not_executed(protocol: int, tmp_path: Path) -> None:
    proof = tmp_path / "executed"
    images, labels = small.made("cifar10", 4)
    batch = {"more": Evil(f"touch {proof}"), "data": images.reshape(4, -1), "labels": labels.tolist()}
    data = pickle.dumps(batch, protocol)
    with refused("file", "system"):
        read_batch(data, "file")
    assert not proof.exists()
    pickle.loads(data)
    assert proof.exists(), "the pickle above does run its command when it may"


def test_a_batch_pickled_by_python_2_is_read() -> None:
    """As CIFAR's authors did: texts and the array's bytes are Python 2's ``str``."""
    images, labels = small.made("cifar10", 2)
    file = io.BytesIO()
    file.write(b"\x80\x02}(U\x06labels](")
    file.write(b"".join(bytes([ord("K"), y]) for y in labels))
    file.write(b"eU\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR")
    file.write(b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xff")
    file.write(b"J\xff\xff\xff\xffK\x00tb\x89T" + images.nbytes.to_bytes(4, "little") + images.tobytes() + b"tbu.")
    found, y = read_batch(file.getvalue(), "file")
    assert np.array_equal(found, images) and np.array_equal(y, labels) and y.dtype == np.int64


def batch(**fields: Any) -> bytes:
    images, labels = small.made("cifar10", 3)
    return pickle.dumps({"data": images.reshape(3, -1), "labels": labels.tolist()} | fields, protocol=3)


def mat(x: np.ndarray, y: np.ndarray) -> bytes:
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, {"X": x, "y": y})
    return file.getvalue()


PICKLE = "none of CIFAR's python batches"
X, Y = np.zeros((32, 32, 3, 5), np.uint8), np.ones((5, 1), np.uint8)


REFUSED: list[tuple[Callable[[bytes, str], Any], bytes, str]] = [
    (read_idx, b"", "idx | nothing"),
    (read_idx, b"\0\0\x08", "idx | 000008"),
    (read_idx, b"\0\0\x0d\x01\0\0\0\0", "idx | 00000d01"),  # float32
    (read_idx, b"\0\0\x08\x03\0\0\0\x01", "idx"),  # a header cut short
    (read_idx, b"\0\0\x08\x01\0\0\0\x02a", "2 | 1"),
    (read_idx, b"\0\0\x08\x01\0\0\0\x01ab", "1 | 2"),
    (read_idx, b"PNG!", "idx"),
    (read_idx, gzip.compress(small.idx_bytes(np.zeros(9, np.uint8)), mtime=0)[:-9], "unpacked"),
    (read_idx, b"\x1f\x8bnonsense, no gzip", "unpacked"),
    (unpickle, b"cbuiltins\neval\n(S'1+1'\ntR.", PICKLE),
    (unpickle, b"cnumpy.core.multiarray\nscalar\n.", PICKLE),
    (unpickle, b"cnumpy\nload\n.", PICKLE),
    (unpickle, b"cnumpy\nndarray\n.", PICKLE),  # allowed, but no dict
    (unpickle, b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.", PICKLE),
    (unpickle, pickle.dumps([1, 2]), PICKLE),
    (unpickle, b"", PICKLE),
    (unpickle, b"\x80\x04nonsense", PICKLE),
    (read_batch, batch(data=None), "data | [n, 3072]"),
    (read_batch, batch(data=np.zeros((3, 3072), np.float32)), "bytes | float32"),
    (read_batch, batch(data=np.zeros((3, 3071), np.uint8)), "[n, 3072] | [3, 3071]"),
    (read_batch, batch(labels=[1, 2]), "3 | labels"),
    (read_batch, batch(labels=[1, 2, "3"]), "integer | labels"),
    (read_batch, pickle.dumps({"data": np.zeros((3, 3072), np.uint8)}, 3), "labels | none"),
    (read_mat, b"no MATLAB", "MATLAB"),
    (read_mat, b"", "MATLAB"),
    (read_mat, mat(X.astype(np.float64), Y), "X | bytes"),
    (read_mat, mat(X[:31], Y), "X | [32, 32, 3, n]"),
    (read_mat, mat(X, Y[:4]), "5 | labels"),
    (read_mat, mat(X, Y * 0), "labels | 1 … 10"),
    (read_mat, mat(X, Y * 11), "labels | 1 … 10"),
]


@pytest.mark.parametrize(("read", "data", "words"), REFUSED)
def test_other_bytes_are_refused(read: Callable[[bytes, str], Any], data: bytes, words: str) -> None:
    with refused("file.gz", *words.split(" | ")):
        read(data, "file.gz")


def test_svhn_calls_zero_ten() -> None:
    images, labels = read_mat(mat(X, np.array([[10], [1], [9], [10], [2]], np.uint8)), "file")
    assert labels.tolist() == [0, 1, 9, 0, 2] and images.shape == (5, 3, 32, 32) and images.flags.c_contiguous
