"""The page of `raychains status --web`, as a browser gets it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from raychains.cli import main
from raychains.core.errors import StorageAway, UserError
from raychains.status import Reader
from raychains.status.live import Site, serve
from raychains.store import Storage
from tests.processes import RAYCHAINS, SECONDS, free_ports, outside
from tests.report import runs
from tests.status.worlds import Calls, begin, comparison, enter, planned


def shown(site: Site, place: str = "/") -> str:
    status, data = site.get(place)
    assert status == HTTPStatus.OK, data
    return data.decode()


def text(page: str) -> str:
    """What a reader sees, on one line."""
    body = page[page.index("<body>") :]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_a_run_in_the_middle_shows_its_budget_its_chains_and_its_curves(middle: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in middle.parents[1].rglob("*")}
    page = shown(Site(str(middle), 10.0, 30))
    assert "<h1>run small: running</h1>" in page and "all runs and sweeps" not in page
    assert '<progress value="6000" max="18000"' in page and "6,000 of 18,000" in page
    assert [page.count(f'<tr class="{state}">') for state in ("failed", "running", "stopped", "waiting", "finished")] == [
        1, 1, 1, 2, 1,
    ]  # fmt: skip
    assert "on node-2 (before: node-1), 1 restart" in page and "step 20" in page
    assert '<figure id="learning">' in page and "data:image/svg+xml;base64," in page
    assert {p: p.stat().st_mtime_ns for p in middle.parents[1].rglob("*")} == before, "it only reads"


def test_few_chains_of_many_are_shown(middle: Path) -> None:
    page = shown(Site(str(middle), 10.0, 2))
    assert page.count('<tr class="') == 2 and "… and 4 more" in page


def test_results_come_as_repeats_are_evaluated(tmp_path: Path) -> None:
    plan = runs.digits(repeats=1)
    folder = runs.store_run(tmp_path, plan, without=[arm.name for arm in plan.arms[1:]])
    page = text(shown(Site(folder.location(), 10.0, 30)))
    assert "Results so far" in page and "NLL (nats)" in page and plan.arms[0].label in page


def test_a_store_lists_its_runs_with_links(middle: Path) -> None:
    planned(Storage(middle.parents[1]), comparison(1), "other")
    site = Site(str(middle.parents[1]), 10.0, 30)
    home = shown(site)
    assert re.findall('href="(/runs/[a-z]*)"', home) == ["/runs/other", "/runs/small"]
    assert "run small: running" in shown(site, "/runs/small") and 'href="/"' in shown(site, "/runs/small/?x=1")
    for wrong in (
        "/runs/none",
        "/runs",
        "/chains/small",
        "/sweeps/small",
        "/runs/../runs/small",
        "/runs/..%2f..",
        "/favicon.ico",
    ):
        status, data = site.get(wrong)
        assert status == HTTPStatus.NOT_FOUND and data.count(b"\n") == 1, wrong


def test_texts_of_the_store_are_not_part_of_the_page(tmp_path: Path) -> None:
    root, plan = Storage(tmp_path), comparison(1)
    folder = planned(root, plan)
    enter(root)
    begin(root, *plan.chains().values(), 1, host="<script>alert(1)</script>\x1b[2J")
    page = shown(Site(folder.location(), 10.0, 30))
    assert "<script>" not in page and "&lt;script&gt;" in page and "\x1b" not in page
    assert "default-src 'none'" in page


def test_many_visitors_cost_the_storage_what_one_costs(middle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(str(middle), 1000.0, 30)
    page = shown(site)
    calls = Calls(monkeypatch)
    assert [shown(site) for _ in range(20)] == [page] * 20 and not calls.count


def test_curves_are_drawn_seldom_where_that_takes_long(middle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(str(middle), 0.0, 30)
    shown(site)
    reads: list[int] = []
    monkeypatch.setattr(Reader, "run_data", lambda self: reads.append(1))
    shown(site)
    assert reads == [], "ten times as long as it took have not passed"


def test_storage_that_is_away_is_a_line_and_the_page_comes_back(middle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(str(middle), 0.0, 30)
    with monkeypatch.context() as away:
        away.setattr(Reader, "read", lambda self: (_ for _ in ()).throw(StorageAway("the storage does not answer")))
        assert site.get("/") == (HTTPStatus.SERVICE_UNAVAILABLE, b"the storage does not answer\n")
    assert "run small" in shown(site)


# Over HTTP


@contextmanager
def listening(path: Path) -> Iterator[str]:
    """The site in a thread, on a free port."""
    [port], at = free_ports(1), threading.Event()
    site = Site(str(path), 2.5, 30)
    threading.Thread(
        target=serve, args=(site, "127.0.0.1", port), kwargs={"ready": lambda _: at.set()}, daemon=True
    ).start()
    assert at.wait(SECONDS)
    yield f"http://127.0.0.1:{port}"


def test_answers_say_when_to_ask_again_and_only_questions_are_answered(middle: Path) -> None:
    with listening(middle.parents[1]) as url:
        with urllib.request.urlopen(f"{url}/runs/small", timeout=SECONDS) as answer:
            assert answer.headers["Refresh"] == "2.5" and answer.headers["Cache-Control"] == "no-store"
            assert b"run small: running" in answer.read()
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"{url}/runs/none", timeout=SECONDS)
        assert missing.value.code == 404 and missing.value.headers["Content-Type"].startswith("text/plain")
        with pytest.raises(urllib.error.HTTPError) as posted:
            urllib.request.urlopen(f"{url}/", data=b"{}", timeout=SECONDS)
        assert posted.value.code == 501


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--port", "0"], "port must be an integer in [1, 65535], got 0"),
        (["--host", "203.0.113.7"], "host must be an address of this machine, got '203.0.113.7'"),
        (["--json"], "web must be left out beside --json"),
    ],
)
def test_wrong_options_are_one_line(
    middle: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert main(["status", str(middle), "--web", *wrong]) == 2
    assert words in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(middle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["status", str(middle), "--web", "--port", str(port)]) == 2
    assert f"port must be one that is free and may be used, got {port}" in capsys.readouterr().err
    with pytest.raises(UserError, match="nothing of them is there"):
        Site(str(middle.parents[1] / "nowhere"), 1.0, 30)


def test_the_command_answers_until_it_is_interrupted(middle: Path) -> None:
    [port] = free_ports(1)
    command = [*RAYCHAINS, "status", str(middle), "--web", "--port", str(port), "--watch", "3s"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=outside())
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"status: http://127.0.0.1:{port}/ (Ctrl-C ends)\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=SECONDS) as answer:
            assert answer.headers["Refresh"] == "3" and b"run small: running" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
