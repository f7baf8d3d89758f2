"""Options from a file: as if they stood on the command line before the person's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raychains.cli import parse
from raychains.core.errors import UserError
from raychains.store import Storage, SweepStore


def written(folder: Path, options: Any) -> str:
    file = folder / "best.json"
    file.write_text(options if isinstance(options, str) else json.dumps(options))
    return str(file)


def test_the_file_says_what_the_command_line_does_not(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {
            "task": "digits", "cycles": 4, "lr": 1e-05, "fast": True, "init_from": None, "val_split": 0.1,
            "sampler_settings": ["eta=0.001", "update=gibbs"], "sample_only": [],
        },
    )  # fmt: skip
    found = parse("run", ["--options", file, "--cycles", "8", "--no-fast", "--sampler-settings", "eta=1"])
    assert (found.task, found.cycles, found.lr, found.fast, found.val_split) == ("digits", 8, 1e-5, False, 0.1)
    assert found.sampler_settings == ("eta=1",) and found.sample_only == () and found.init_from is None
    assert parse("run", [f"--options={file}"]).sampler_settings == ("eta=0.001", "update=gibbs")
    assert parse("run", ["--options", f"file://{file}"]) == parse("run", ["--options", file])


def test_a_best_point_that_was_edited_is_used_and_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = SweepStore(Storage(tmp_path), "s")
    file = folder.write_best({"task": "digits", "cycles": 4})
    assert parse("run", ["--options", file]).cycles == 4 and folder.best() == {"task": "digits", "cycles": 4}
    assert capsys.readouterr().err == "" and caplog.text == ""
    Path(file).write_text(Path(file).read_text().replace("4,", "2,"))
    assert parse("run", ["--options", file]).cycles == 2 and folder.best() == {"task": "digits", "cycles": 2}
    line = f"raychains: {file} was changed since a sweep wrote it; it is used as it is now\n"
    assert capsys.readouterr().err == line and "changed since the sweep wrote it" in caplog.text


def test_mappings_are_those_that_python_takes(tmp_path: Path) -> None:
    given = {"sampler": ["sgld", "sghmc"], "lr": {"sgld": 0.1}, "sampler_settings": {"momentum": 0.5}}
    found = parse("compare", ["--options", written(tmp_path, given)])
    assert (found.lr, found.sampler_settings) == ("sgld=0.1", ("momentum=0.5",))


def test_compare_takes_the_same_file(tmp_path: Path) -> None:
    found = parse("compare", ["--options", written(tmp_path, {"sampler": "csghmc", "cycles": 4})])
    assert found.sampler == ("csghmc",) and found.cycles == 4


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"cyles": 4}, "best.json must be one of .*, got 'cyles'; did you mean 'cycles'"),
        ({"epochs": "two"}, "epochs must be an integer, got 'two'"),
        ({"lr": [0.1, 0.2]}, "lr must be a number"),
        ({"fast": "true"}, "fast must be true or false, got 'true'"),
        ([1, 2], "options must be a JSON file with an object of names and values"),
        ("{", "options must be a JSON file, got"),
    ],
    ids=str,
)
def test_a_file_that_is_wrong_is_one_line(options: Any, line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=line) as error:
        parse("run", ["--options", written(tmp_path, options)])
    assert "\n" not in str(error.value)
