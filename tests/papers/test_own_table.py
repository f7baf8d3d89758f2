"""A table of a user's own: the page's example runs, resumes and is shown, and wrong files are one line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import raychains as rc
from raychains import papers as rp
from raychains.cli import main
from tests.papers.one_pool import one_pool

ROOT = Path(rc.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_table.py"
TABLE = (
    "from raychains import papers as rp\n{name} = rp.Study(name={study!r}, columns=[], task='digits', "
    "sizes={{'cpu': rp.Size(repeats=1)}})\n"
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of several folders have one name, and a process imports it once."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield
    for name in {"own_table", "table"} - before:
        sys.modules.pop(name, None)


def test_the_page_shows_the_example_and_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/how-to/own-table.md").read_text(encoding="utf-8")
    assert page.partition("```python\n")[2].partition("```")[0] == EXAMPLE.read_text().partition('"""\n\n')[2]
    assert main(["reproduce", str(EXAMPLE), "--list"]) == 0
    said = capsys.readouterr().out
    assert "digits-cycles" in said and "cyclical and decreasing step sizes on digits" in said and "fig3a" not in said


@pytest.mark.usefixtures("ray_session")
def test_the_example_runs_and_the_same_command_runs_nothing_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", str(EXAMPLE), "--scale", "smoke", "--store", str(tmp_path)]
    with one_pool():
        assert main(command) == 0 and main([*command, "--max-hours", "1e-9"]) == 0
    assert "the result of before is left as it is" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--dry-run"]) == 0
    assert "To run: 0 chains, 0 gradient evaluations" in " ".join(capsys.readouterr().out.split())
    folder = tmp_path / "reproduce" / "smoke"
    about = json.loads((folder / "digits-cycles" / "about.json").read_text())
    assert about["parts"]["digits-cycles"]["status"] == "done" and len(about["parts"]["digits-cycles"]["chains"]) == 6
    table = (folder / "digits-cycles" / "table.md").read_text()
    assert table.startswith("**cyclical and decreasing step sizes on digits — SMOKE**") and "| cSGHMC | " in table
    assert (
        "[cyclical and decreasing step sizes on digits](digits-cycles/table.md)" in (folder / "README.md").read_text()
    )
    assert 'href="digits-cycles/index.html"' in (folder / "index.html").read_text()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, "", r"NAMES must be a file that exists, got '\S*table.py'"),
        ("x = 1\n", "", r"NAMES must be files that declare one Study each, got '\S*table.py', which has none"),
        (
            TABLE.format(name="A", study="one") + TABLE.format(name="B", study="two"),
            "",
            r"NAMES must be files that declare one Study each, got '\S*table.py', which has one and two",
        ),
        (
            TABLE.format(name="A", study="table2"),
            "",
            r"NAMES must be files of studies with names of their own, got '\S*table.py', which has table2",
        ),
        (
            TABLE.format(name="A", study="My table"),
            "--list",
            r"NAMES must be a file that can be imported, got '\S*table.py': UserError: name must be lower-case words "
            r"joined by hyphens, as table-1, got 'My table'",
        ),
        (TABLE.format(name="A", study="one"), "--scale gpu", "--scale must be one of cpu for one, got 'gpu'"),
        (
            TABLE.format(name="A", study="one"),
            "--scale huge",
            "--scale must be one of cpu, gpu, paper, smoke, got 'huge'",
        ),
        (
            TABLE.format(name="A", study="one").replace("'cpu'", "'huge'"),
            "",
            r"NAMES must be a file that can be imported, got '\S*table.py': UserError: one: sizes must be of smoke, "
            r"cpu, gpu, paper, got \['huge'\]",
        ),
        ("1 / 0\n", "", r"NAMES must be a file that can be imported, got '\S*table.py': ZeroDivisionError: .*"),
    ],
)
def test_a_wrong_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, options: str, message: str
) -> None:
    if text is not None:
        (tmp_path / "table.py").write_text(text)
    assert main(["reproduce", str(tmp_path / "table.py"), "--store", str(tmp_path / "store"), *options.split()]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(f"raychains: {message}\n", error), error
    assert not (tmp_path / "store").exists()


def test_a_file_with_another_modules_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "json.py").write_text("")
    assert main(["reproduce", str(tmp_path / "json.py"), "--list"]) == 2
    assert capsys.readouterr().err.endswith("json.py': another module is called json\n")


def test_every_public_name_is_there() -> None:
    assert dir(rp) == sorted(rp.__all__) and all(getattr(rp, name) is not None for name in rp.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        rp.nothing  # noqa: B018
