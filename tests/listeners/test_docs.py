"""docs/observability.md holds: its listener runs as written, its commands parse, its names are those of the code."""

from __future__ import annotations

import re
import shlex
import typing
from pathlib import Path

import pytest

from raychains import listeners
from raychains.cli import parse
from raychains.listeners import NAMES
from raychains.orchestration.metrics import CHAIN, METRIC, RUN, STAGE
from raychains.planning.listener import Happening

PAGE = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()


def test_its_listener_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ray_session: None
) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    exec(compile(code, "observability.md", "exec"), {})
    out = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[\w-]+: NLL \d\.\d{3}", out[0]) and out[-1].startswith("finished; last losses [")


@pytest.mark.parametrize("line", re.findall(r"^\$ raychains (.+)$", PAGE, flags=re.M))
def test_its_commands_parse(line: str) -> None:
    command, *arguments = shlex.split(line)
    assert parse(command, arguments) is not None


def test_every_listener_event_and_metric_is_on_the_page_and_no_other() -> None:
    named = PAGE.partition("| name | writes | where |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", named, flags=re.M)) == set(NAMES)
    kinds = {kind.__name__ for kind in typing.get_args(Happening)}
    table = PAGE.partition("| event | when |")[2]
    assert set(re.findall(r"`([A-Z]\w+)`", table)) == kinds | {"ChainStatus"}
    assert all(getattr(listeners, kind) for kind in kinds)
    metrics = set(re.findall(r"`(raychains_\w+)`", PAGE))
    assert metrics == {*CHAIN, *RUN, STAGE[0], METRIC[0]}
