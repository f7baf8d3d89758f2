"""CIFAR-10-C from files of the published form, made small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raychains.data.cifar10_c import CORRUPTIONS, corrupted
from tests.checks import refused

N = 6
"""Images of each severity."""
RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (5 * N, 32, 32, 3), dtype=np.uint8)
LABELS = np.tile(RNG.integers(0, 10, N), 5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "CIFAR-10-C").mkdir()
    np.save(tmp_path / "CIFAR-10-C/fog.npy", PICTURES)
    np.save(tmp_path / "CIFAR-10-C/labels.npy", LABELS)
    return tmp_path


def test_each_severity_is_its_part_of_the_file(root: Path) -> None:
    prints = set()
    for severity in range(1, 6):
        found = corrupted("fog", severity, root, images=N)
        for i in range(N):
            row = (severity - 1) * N + i
            for channel in range(3):
                assert np.array_equal(found.images[i, channel].numpy(), PICTURES[row, :, :, channel])
            assert int(found.labels[i]) == LABELS[row]
        assert len(found) == N and found.classes == 10 and found.name == f"cifar10-c:fog:{severity}"
        prints.add(found.fingerprint)
    assert len(prints) == 5
    assert corrupted("fog", 5, root, images=N).fingerprint in prints


def test_there_are_the_benchmarks_fifteen_and_four_more() -> None:
    assert len(set(CORRUPTIONS)) == 19 and CORRUPTIONS[14] == "jpeg_compression"


def test_a_published_file_has_ten_thousand_of_each(root: Path) -> None:
    with refused("cifar10-c", str(root / "CIFAR-10-C/fog.npy"), "[50000, 32, 32, 3]", "[30, 32, 32, 3]"):
        corrupted("fog", 1, root)


@pytest.mark.parametrize("missing", ["snow.npy", "labels.npy"])
def test_a_missing_file_says_what_to_put_where(missing: str, root: Path) -> None:
    (root / "CIFAR-10-C" / missing).unlink(missing_ok=True)
    with refused("cifar10-c", str(root / "CIFAR-10-C" / missing), "put there", "published"):
        corrupted("snow" if missing == "snow.npy" else "fog", 1, root, images=N)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("fog.npy", PICTURES.astype(np.float32), ("bytes", "float32")),
        ("fog.npy", PICTURES[:-1], ("[29, 32, 32, 3]",)),
        ("labels.npy", LABELS.astype(np.float64), ("integers", "float64")),
        ("labels.npy", LABELS + 9, ("labels", "[0, 9]")),
        ("labels.npy", LABELS[:-1], ("[29]",)),
    ],
)
def test_arrays_of_another_form_are_refused(file: str, content: np.ndarray, words: tuple[str, ...], root: Path) -> None:
    np.save(root / "CIFAR-10-C" / file, content)
    with refused("cifar10-c", *words):
        corrupted("fog", 5, root, images=N)


@pytest.mark.parametrize("content", [b"", b"no array", np.array([{"a": 1}], dtype=object)])
def test_other_bytes_and_pickled_objects_are_refused(content: bytes | np.ndarray, root: Path) -> None:
    path = root / "CIFAR-10-C/fog.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    with refused("cifar10-c", str(path)):
        corrupted("fog", 1, root, images=N)


def test_unknown_names_are_refused(root: Path) -> None:
    with refused("corruption", "fogg", "did you mean 'fog'"):
        corrupted("fogg", 1, root)
    for severity in (0, 6, True, 1.0):
        with refused("severity", "[1, 5]", repr(severity)):
            corrupted("fog", severity, root)  # type: ignore[arg-type]
