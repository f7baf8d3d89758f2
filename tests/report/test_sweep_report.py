"""A sweep's page and its table: complete, escaped, the ranking of the tables, the command that runs the best point."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from raychains.report.sweep import sweep_page
from raychains.report.sweep.rows import shortened
from raychains.store import Storage, SweepStore
from tests.checks import refused
from tests.report.swept import BEST, FAILED, GRADIENTS, PLAN, STOPPED, WAITING, tables
from tests.report.test_page import EVIL, Page, figures_are_files, loads_nothing


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepStore, Page]:
    store = SweepStore(Storage(tmp_path_factory.mktemp("a store")), "small")
    store.write_plan(PLAN)
    for name, rows in zip(("results", "reports"), tables(), strict=True):
        store.write_table(name, rows)
    store.write_best(BEST)
    location = sweep_page.write(store)
    assert location == store.location("report.html")
    return store, Page(Path(location).read_text(encoding="utf-8"))


def test_the_page_needs_nothing_else_and_escapes_what_people_wrote(page: tuple[SweepStore, Page]) -> None:
    _, found = page
    loads_nothing(found)
    assert found.text.count(EVIL) == 5  # the task, a setting, a warning, a note, a reason


def test_its_figures_are_there_in_both_colour_schemes_and_as_files(page: tuple[SweepStore, Page]) -> None:
    store, found = page
    assert found.figures() == {"map", "cycles", "progress", "options"}
    figures_are_files(store, found, palette=False)  # the map has colours of its own


def test_its_table_is_the_ranking_and_says_how_points_ended(page: tuple[SweepStore, Page]) -> None:
    _, found = page
    rows = [[text for text, _ in r] for r in found.rows]
    assert rows[0] == ["Rank", "β", "M", "NLL (nats) ↓", "Error (%) ↓", "Status", "Gradients", "Chain seconds"]
    assert rows[1][:6] == ["1", "0.25", "4", "0.2000 ± 0.0020", "4.00 ± 0.04", "finished"]
    assert found.rows[1][3][1] and not found.rows[2][3][1]  # the best alone is bold
    finished = [float(r[3].split()[0]) for r in rows[1:] if r[5] == "finished"]
    assert finished == sorted(finished) and len(finished) == 6
    last = {(float(r[1]), int(r[2])): r for r in rows[1:] if r[5] != "finished"}
    assert last[STOPPED][5] == "stopped after 10 of 40 epochs" and last[STOPPED][0] == "–"
    assert last[FAILED][5] == "failed" and last[FAILED][3] == "–"
    assert last[WAITING][5] == "waiting (1 of 2 repeats)" and last[WAITING][0] == "7"
    assert last[STOPPED][6] == f"{2 * GRADIENTS // 4:,}"
    text = " ".join(found.text.split())
    assert "Best of 9 points: β = 0.25, M = 4, with NLL (nats) 0.2000 ± 0.0020 on val." in text
    spent = 2 * GRADIENTS * 6 + GRADIENTS + GRADIENTS // 2 + 2 * GRADIENTS // 4
    assert (
        f"{spent:,} of {18 * GRADIENTS:,} gradient evaluations, {100 * (1 - spent / (18 * GRADIENTS)):.0f} % not spent"
        in text
    )
    assert "6 finished, 1 stopped, 1 failed, 1 waiting" in text
    assert "not among the best third at 10 epochs" in text and "the loss is nan at step 7" in text
    assert "Traceback" not in text


def test_the_command_runs_the_best_point(page: tuple[SweepStore, Page]) -> None:
    store, found = page
    line = re.search(r"<pre>(.*?)</pre>", found.html).group(1).replace("&#39;", "'")  # type: ignore[union-attr]
    words = shlex.split(line)
    assert words[:3] == ["raychains", "run", "--options"] and store.best() == BEST
    assert words[3] == store.location("best.json") and " " in words[3]


def test_a_sweep_without_any_result_has_a_page_that_says_so(tmp_path: Path) -> None:
    store = SweepStore(Storage(tmp_path), "empty")
    store.write_plan(PLAN)
    found = Page(Path(sweep_page.write(store)).read_text())
    assert "No point has a result yet" in found.text and not found.figures() and "raychains run" not in found.text
    store.write_file("results.parquet", b"PAR1 torn")
    with refused("sweep empty: results.parquet is damaged"):
        sweep_page.write(store)
    store.write_table("results", [{"point": 0, "nll": 1.0}])
    with refused("sweep empty: results.parquet is damaged"):
        sweep_page.write(store)


def test_the_terminal_s_table_is_the_page_s(page: tuple[SweepStore, Page]) -> None:
    store, found = page

    def printed(width: int, **how: int) -> str:
        console = Console(file=io.StringIO(), width=width)
        console.print(shortened(console, store, **how))
        return console.file.getvalue()  # type: ignore[attr-defined]

    ended = re.compile("finished|stopped|failed|waiting")
    lines = [re.split(r"\s{2,}", line.strip()) for line in printed(160).splitlines() if ended.search(line)]
    assert lines[0][:6] == [text for text, _ in found.rows[1]][:6] and len(lines) == 9
    two, said = printed(160, most=2), printed(64)
    assert "and 7 more" in two and two.count("±") == 4
    assert "NLL" in said and "Chain" not in said and "Error" not in said and "0.2000 ± 0.0020" in said
