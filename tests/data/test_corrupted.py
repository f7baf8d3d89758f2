"""CIFAR-10-C from files of the published form, made small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("fog.npy", None, ("put there", "published")),
        ("labels.npy", None, ("put there", "published")),
        ("fog.npy", PICTURES.astype(np.float32), ("bytes", "float32")),
        ("fog.npy", PICTURES[:-1], ("[29, 32, 32, 3]",)),
        ("labels.npy", LABELS.astype(np.float64), ("integers", "float64")),
        ("labels.npy", LABELS + 9, ("labels", "[0, 9]")),
        ("labels.npy", LABELS[:-1], ("[29]",)),
        ("fog.npy", b"", ()),
        ("fog.npy", b"no array", ()),
        ("fog.npy", np.array([{"a": 1}], dtype=object), ()),
    ],
)
def test_a_file_that_is_missing_or_holds_something_else_is_refused(
    file: str, content: Any, words: tuple[str, ...], root: Path
) -> None:
    path = root / "CIFAR-10-C" / file
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    with refused("cifar10-c", str(path), *words):
        corrupted("fog", 5, root, images=N)


def test_unknown_names_are_refused(root: Path) -> None:
    with refused("corruption", "fogg", "did you mean 'fog'"):
        corrupted("fogg", 1, root)
    for severity in (0, 6, True, 1.0):
        with refused("severity", "[1, 5]", repr(severity)):
            corrupted("fog", severity, root)  # type: ignore[arg-type]
