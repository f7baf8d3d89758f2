"""What the page and the terminal say of chains that failed, diverged, were dropped or cured."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from raychains.chain.divergence import Diverged
from raychains.chain.divergence_replay import diagnose
from raychains.planning import Comparison, events
from raychains.report import run_page
from raychains.report.terminal import Terminal
from raychains.store import ChainStore, RunStore, Storage
from tests.report import runs
from tests.report.test_page import EVIL


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Comparison]:
    comparison = runs.single()
    return runs.store_run(tmp_path_factory.mktemp("single"), comparison), comparison


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not rendered, which takes most of the time and is no part of these tests."""
    monkeypatch.setattr(run_page, "render", lambda drawing: (b"<svg/>", b"png"))


def html(store: RunStore, comparison: Comparison) -> str:
    return Path(run_page.write(store, comparison)).read_text(encoding="utf-8")


def test_reasons_of_failed_chains_are_on_the_page_and_are_no_markup(
    single: tuple[RunStore, Comparison], tmp_path: Path
) -> None:
    _, comparison = single
    first, second = comparison.chains()
    store = RunStore(Storage(tmp_path), "failed")
    store.write_plan({"command": "run", "comparison": comparison.to_json(), "notes": []})
    store.write_table("results", [])
    reason = f"Traceback (most recent call last):\n  model.py {EVIL}\nZeroDivisionError: {EVIL}"
    store.write_table("failed", [{"digest": first, "reason": reason}, {"digest": second, "reason": "too large"}])
    text = html(store, comparison)
    assert 'id="failures"' in text and EVIL not in text and text.count("&lt;script&gt;") >= 2
    assert first[:12] in text and "too large" in text and "<summary>Traceback</summary>" in text


def test_the_page_counts_resumed_chains_and_those_that_left_a_node(
    single: tuple[RunStore, Comparison], tmp_path: Path
) -> None:
    _, comparison = single
    store = RunStore(Storage(tmp_path), "moved")
    store.write_plan({"command": "run", "comparison": comparison.to_json(), "notes": []})
    store.write_table("results", [])
    one, two, *_ = comparison.chains().values()
    ChainStore(store.root, one.digest).begin(one, 1_166_770, {})
    text = html(store, comparison)
    assert "continued from a checkpoint" not in text and "left a node" not in text
    for number, about in (
        (1, {"driver_id": "a", "preemptions": 2}),
        (2, {"driver_id": "b", "preemptions": 1}),
        (3, {}),
    ):
        ChainStore(store.root, two.digest).begin(two, number, about)
    text = html(store, comparison)
    assert "1 chain continued from a checkpoint" in text and "chains left a draining node 3 times" in text


def test_a_run_without_failures_or_whose_failed_chain_finished_since_has_no_such_section(
    single: tuple[RunStore, Comparison],
) -> None:
    store, comparison = single
    assert 'id="failures"' not in html(*single) and "formed from only" not in html(*single)
    store.write_table("failed", [{"digest": next(iter(comparison.chains())), "reason": "the node was too small"}])
    assert 'id="failures"' not in html(store, comparison)


def test_a_divergence_that_was_cured_is_told_with_its_diagnosis(single: tuple[RunStore, Comparison]) -> None:
    store, comparison = single
    digest, spec = next(iter(comparison.chains().items()))
    found = diagnose(spec, None, Diverged("the loss is nan", 3))
    ChainStore(store.root, digest).publish_diagnosis(found.to_json(), found.step, 1)
    text = html(store, comparison)
    assert "the loss is nan" in text and "restart 1 with fresh noise followed" in text


def test_a_view_of_fewer_chains_says_so(single: tuple[RunStore, Comparison]) -> None:
    store, comparison = single
    table = store.table("results")
    assert table is not None and table.column("chains").to_pylist() == [2]
    fewer = table.set_column(table.column_names.index("chains"), "chains", pa.array([1]))
    store.write_arrow("results", fewer)
    try:
        assert "the one repeat formed from only 1 of 2 chains" in html(store, comparison)
    finally:
        store.write_arrow("results", table)
    assert "formed from only" not in html(store, comparison)


HAPPENINGS = [
    (events.ChainDropped(digest="d" * 64, reason="lr too large"), ["dddddddddddd", "left out", "lr too large"]),
    (events.ChainRestarted(digest="d" * 64, attempt=2, reason="lr too large"), ["start of its cycle", "(restart 2)"]),
    (
        events.TornCheckpoint(digest="d" * 64, file="/store/c.safetensors", reason="cut"),
        ["/store/c.safetensors", "cut"],
    ),
    (events.Waiting(reason="disk is away"), ["waiting: disk is away"]),
    (events.Resumed(), ["the run resumes"]),
    (
        events.Stalled(digest="d" * 64, slot=0, seconds=31.0, reason="it makes no step"),
        ["dddddddddddd", "31 s", "it makes no step"],
    ),
    (events.Stalled(seconds=31.0, reason="a prediction is not answered"), ["evaluation stalls", "31 s"]),
    (events.StallEnded(digest="d" * 64), ["dddddddddddd", "goes on"]),
    (
        events.WorkerLost(slot=3, reason="Traceback\nOutOfMemoryError: full"),
        ["slot 3 is gone (OutOfMemoryError: full)"],
    ),
    (
        events.Preempted(slot=2, digest="d" * 64),
        ["slot 2 is given up", "node is draining", "dddddddddddd resumes in another"],
    ),
    (events.Stopping(reason="the store takes no more files"), ["stopping because the store takes no more files"]),
    (events.Stopping(), ["stopping: chains write checkpoints"]),
    (events.ChainFailed(digest="d" * 64, reason="Traceback\nValueError: no"), ["failed: ValueError: no"]),
]


@pytest.mark.parametrize(("event", "words"), HAPPENINGS, ids=[type(h).__name__ for h, _ in HAPPENINGS])
def test_the_terminal_says_each_trouble_in_one_line(event: events.RunEvent, words: list[str]) -> None:
    said = io.StringIO()
    with Terminal(Console(file=said, width=200)) as terminal:
        terminal.on(event)
    assert said.getvalue().count("\n") == 1
    assert all(word in said.getvalue() for word in words), said.getvalue()
