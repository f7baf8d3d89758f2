"""The UCI tables: small made files of the same form, and the real ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from raychains.data import tabular
from raychains.data.tabular import REGRESSION_TABLES, TABLES, Table
from tests.checks import refused

ROWS = [[1.5, -2, 2], [0, 3e2, 1], [4, 5, 1], [-6, 0.25, 2], [7, 8, 1]]
MADE = Table(
    name="made", file="made.dat", examples=5, features=2, origin="set", counts={1: 3, 2: 2},
    md5=tabular.digest(np.array(ROWS)),
)  # fmt: skip
UNCHECKED = dataclasses.replace(MADE, md5=None)
NUMBERS = np.array([[1.5, -2, 7.25], [0, 300, 1], [4, 5, -1]])
"""Of real targets, without names and by the names of their columns."""
REAL = Table(name="made", file="made.data", examples=3, features=2, origin="set", md5=tabular.digest(NUMBERS))
NAMED = dataclasses.replace(REAL, name="named", file="named.csv", columns=("a", "b", "y"))
CSV = "n,y,a,day,b\n1,7.25,1.5,2011-01-01,-2\n2,1,0,2011-01-01,3e2\n3,-1,4,2011-01-02,5\n"


def written(root: Path, text: str, table: Table = MADE) -> Path:
    (root / "uci").mkdir(exist_ok=True)
    (root / "uci" / table.file).write_bytes(text.encode())
    return root


def lines(rows: list[list[float]]) -> str:
    return "".join(" ".join(map(str, r)) + "\n" for r in rows)


def test_features_and_labels_are_read_and_the_larger_class_is_label_1(tmp_path: Path) -> None:
    data = tabular.read(MADE, written(tmp_path, lines(ROWS)))
    np.testing.assert_array_equal(data.features, np.array(ROWS)[:, :2])
    np.testing.assert_array_equal(data.targets, [1, 0, 0, 1, 0])
    assert data.features.dtype == data.targets.dtype == np.float64 and data.fingerprint == MADE.md5


@pytest.mark.parametrize(("table", "text"), [(REAL, "1.50 -2 7.25\n\n0 300 1\r\n4 5.0 -1\n"), (NAMED, CSV)])
def test_features_and_targets_are_read_from_both_kinds_of_files(tmp_path: Path, table: Table, text: str) -> None:
    data = tabular.read(table, written(tmp_path, text, table))
    np.testing.assert_array_equal(data.features, NUMBERS[:, :2])
    np.testing.assert_array_equal(data.targets, NUMBERS[:, 2])
    assert data.fingerprint == table.md5 and data.features.dtype == data.targets.dtype == np.float64


def test_blanks_line_ends_and_spelling_of_numbers_do_not_matter(tmp_path: Path) -> None:
    text = "\r\n   1.50  -2.0 2 \r\n-0 300 1\r\n4\t5 1\r\n-6 .25 2.0\r\n\r\n7 8 1"
    assert tabular.read(MADE, written(tmp_path, text)).fingerprint == MADE.md5


def test_every_number_counts(tmp_path: Path) -> None:
    for i in range(5):
        for j in range(2):
            changed = [list(r) for r in ROWS]
            changed[i][j] += 1e-9
            with refused("made.dat", "md5", "another version"):
                tabular.read(MADE, written(tmp_path, lines(changed)))
    with refused("md5"):
        tabular.read(MADE, written(tmp_path, lines(ROWS[::-1])))


@pytest.mark.parametrize(
    ("table", "text", "words"),
    [
        (UNCHECKED, lines(ROWS[:4]), ("5 lines of 3 numbers", "4 of 3")),
        (UNCHECKED, lines([*ROWS, ROWS[0]]), ("5 lines of 3 numbers", "6 of 3")),
        (UNCHECKED, lines([*ROWS[:4], [1, 1]]), ("5 of 2 or 3",)),
        (UNCHECKED, "", ("0 of no",)),
        (UNCHECKED, lines(ROWS).replace("5 1", "? 1"), ("numbers alone",)),
        (UNCHECKED, lines(ROWS).replace("5 1", "nan 1"), ("finite",)),
        (UNCHECKED, lines(ROWS).replace("5 1", "5 2"), ("classes",)),
        (UNCHECKED, lines(ROWS).replace("5 1", "5 3"), ("classes",)),
        (NAMED, "", ("column a", "none")),
        (NAMED, CSV.replace("day,b", "day,c"), ("column b", "n, y, a, day, c")),
        (NAMED, CSV.replace("-2\n", "-2,9\n", 1), ("3 lines of 3 numbers", "3 of 3 or 6")),
        (NAMED, CSV.replace("3e2", "?"), ("numbers alone",)),
        (NAMED, CSV.replace("3e2", "inf"), ("finite",)),
        (NAMED, CSV.replace("3e2", "301"), ("md5", "another version")),
        (NAMED, CSV + CSV.splitlines()[-1], ("3 lines of 3 numbers", "4 of 3")),
    ],
)
def test_a_wrong_file_is_refused_in_a_line_that_names_it(
    tmp_path: Path, table: Table, text: str, words: tuple[str, ...]
) -> None:
    with refused(table.name, str(tmp_path / "uci" / table.file), *words):
        tabular.read(table, written(tmp_path, text, table))


def test_a_missing_file_is_named_with_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    for name, table in {**TABLES, **REGRESSION_TABLES}.items():
        with refused(name, str(tmp_path / "uci" / table.file), table.origin, "RAYCHAINS_DATA"):
            tabular.load(name)
    with refused("data set", "iris"):
        tabular.load("iris")


@pytest.mark.parametrize(
    ("name", "shape", "first", "known"),  # of the targets: how many are 1, or the first
    [
        ("australian", (690, 14), [1, 22.08, 11.46], 307),
        ("german", (1000, 24), [1, 6, 4], 300),
        ("heart", (270, 13), [70, 1, 4], 120),
        ("airfoil", (1503, 5), [800, 0, 0.3048], 126.201),
        ("bikesharing", (17_379, 12), [1, 0, 1], 16),
        ("concrete", (1030, 8), [540, 0, 0], 79.98611076),
        ("energy", (768, 8), [0.98, 514.5, 294], 15.55),
        ("yacht", (308, 6), [-2.3, 0.568, 4.78], 0.11),
        ("protein", (45_730, 9), [13558.3, 4305.35, 0.31754], 17.284),
    ],
)
def test_real_data_have_the_published_counts(
    real_root: Path, name: str, shape: tuple[int, int], first: list[float], known: float
) -> None:
    data = tabular.load(name, real_root)
    assert data.features.shape == shape and data.targets.shape == shape[:1]
    assert data.features[0, :3].tolist() == first and (data.features.std(0) > 0).all()
    if name in TABLES:
        assert data.targets.sum() == known and set(data.targets) == {0.0, 1.0}
    else:
        assert data.targets[0] == known
    assert data.fingerprint == {**TABLES, **REGRESSION_TABLES}[name].md5
