"""The UCI tables: small made files of the same form, and the real ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from raychains.data import uci
from raychains.data.uci import TABLES, Table
from tests.checks import refused

ROWS = [[1.5, -2, 2], [0, 3e2, 1], [4, 5, 1], [-6, 0.25, 2], [7, 8, 1]]
MADE = Table(name="made", file="made.dat", counts={1: 3, 2: 2}, features=2, md5=uci.digest(np.array(ROWS)))


def written(root: Path, text: str) -> Path:
    (root / "uci").mkdir(exist_ok=True)
    (root / "uci" / MADE.file).write_bytes(text.encode())
    return root


def lines(rows: list[list[float]]) -> str:
    return "".join(" ".join(map(str, r)) + "\n" for r in rows)


def test_features_and_labels_are_read_and_the_larger_class_is_label_1(tmp_path: Path) -> None:
    data = uci.read(MADE, written(tmp_path, lines(ROWS)))
    np.testing.assert_array_equal(data.features, np.array(ROWS)[:, :2])
    np.testing.assert_array_equal(data.labels, [1, 0, 0, 1, 0])
    assert data.features.dtype == data.labels.dtype == np.float64 and data.fingerprint == MADE.md5


def test_blanks_line_ends_and_spelling_of_numbers_do_not_matter(tmp_path: Path) -> None:
    text = "\r\n   1.50  -2.0 2 \r\n-0 300 1\r\n4\t5 1\r\n-6 .25 2.0\r\n\r\n7 8 1"
    assert uci.read(MADE, written(tmp_path, text)).fingerprint == MADE.md5


def test_every_number_counts(tmp_path: Path) -> None:
    for i in range(5):
        for j in range(2):
            changed = [list(r) for r in ROWS]
            changed[i][j] += 1e-9
            with refused("made.dat", "md5", "another version"):
                uci.read(MADE, written(tmp_path, lines(changed)))
    with refused("md5"):
        uci.read(MADE, written(tmp_path, lines(ROWS[::-1])))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (lines(ROWS[:4]), ("5 lines of 3 numbers", "4 of 3")),
        (lines([*ROWS, ROWS[0]]), ("5 lines of 3 numbers", "6 of 3")),
        (lines([*ROWS[:4], [1, 1]]), ("5 of 2 or 3",)),
        ("", ("0 of no",)),
        (lines(ROWS).replace("5 1", "? 1"), ("numbers alone",)),
        (lines(ROWS).replace("5 1", "nan 1"), ("finite",)),
        (lines(ROWS).replace("5 1", "5 2"), ("classes",)),
        (lines(ROWS).replace("5 1", "5 3"), ("classes",)),
    ],
)
def test_a_wrong_file_is_refused_in_a_line_that_names_it(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with refused("made", str(tmp_path / "uci" / "made.dat"), *words):
        uci.read(dataclasses.replace(MADE, md5=None), written(tmp_path, text))


def test_a_missing_file_is_named_with_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    for name, table in TABLES.items():
        with refused(name, str(tmp_path / "uci" / table.file), "RAYCHAINS_DATA"):
            uci.load(name)
    with refused("data set", "iris"):
        uci.load("iris")


@pytest.mark.parametrize(
    ("name", "shape", "ones", "first"),
    [
        ("australian", (690, 14), 307, [1, 22.08, 11.46]),
        ("german", (1000, 24), 300, [1, 6, 4]),
        ("heart", (270, 13), 120, [70, 1, 4]),
    ],
)
def test_real_data_have_the_published_counts(
    real_root: Path, name: str, shape: tuple[int, int], ones: int, first: list[float]
) -> None:
    data = uci.load(name, real_root)
    assert data.features.shape == shape and data.labels.shape == shape[:1]
    assert data.labels.sum() == ones and set(data.labels) == {0.0, 1.0}
    assert data.features[0, :3].tolist() == first and (data.features.std(0) > 0).all()
    assert data.fingerprint == TABLES[name].md5
