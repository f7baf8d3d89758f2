"""Twelve real faults: seven commands end, or end when called again, with undisturbed bytes. `make chaos` tries more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from raychains import cli
from raychains.orchestration.cluster.session import connect
from tests.chaos import ledger, prints
from tests.chaos.__main__ import COUNTED
from tests.chaos.commands import COMMANDS
from tests.chaos.real import Workshop, drawn, members, printed, spoken, written
from tests.processes import kill_session

FAULTS = {155: 3, 349: 2, 15: 2, 13698: 1, 441: 1, 114: 1, 51: 1, 176: 1}
"""How many, by seed. Their moments come early, or by files: one that is late in a slow template may never come."""


LOSES_RAY = 441
"""A seed whose raylet dies while its sweep's trials are at work."""
LIVED = {"worker": 4.0}
"""Seconds of a worker's life, from which the moment of a first fault follows: others live as long as their command."""
STARTS = 8.0
"""Seconds that a command takes for Ray and imports, at least."""


class Here(Workshop):
    """Its templates are made in this process, by the same words, on a Ray that they share."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._made: dict[str, dict[str, Any]] = {}

    def template(self, name: str) -> dict[str, Any]:
        """See `Workshop`."""
        name = name.removesuffix(" on S3")
        if name not in self._made:
            folder = self.scratch / name.replace(" ", "-")
            command = self._begin(name, folder)
            before, began = len(list(written(folder))), time.monotonic()
            with self.places(command, folder) as places:
                assert cli.main(spoken(command, folder, places)) == 0
                seconds = STARTS + time.monotonic() - began
                self._made[name] = {
                    "seconds": seconds, "lived": LIVED, "files": len(list(written(folder))) - before,
                    "prints": printed(places, folder),
                }  # fmt: skip
        return self._made[name]


def tried(shop: Workshop, seed: int) -> list[str]:
    """Do a seed's faults; what happened."""
    told: list[str] = []
    faults = drawn(seed, FAULTS[seed])
    for _ in range(6):  # a command may end before the moment of the later ones: they are tried in a new one
        records = shop.disturb(faults, told.append)
        assert not any("violations" in record for record in records), "\n".join(told)
        faults = faults[len(ledger.hits(records)) :]
        if not faults:
            return told
    raise AssertionError("their moments did not come:\n" + "\n".join(told))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Future[list[str]]]]:
    """Faults of two commands at a time, which mostly wait; others' templates are made meanwhile.

    As in the commands a matrix product has one thread: its last digits depend on that.
    """
    found = {}
    with Here(tmp_path_factory.mktemp("real")) as shop, ThreadPoolExecutor(2) as pool:
        with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder, threadpool_limits(1):
            session = connect("local", object_store_memory=100_000_000, temp_dir=folder, cpus=2)
            for seed in FAULTS:
                shop.template(drawn(seed)[0].command)
                found[seed] = pool.submit(tried, shop, seed)
            session.close()
        yield found


@pytest.mark.long
@pytest.mark.parametrize("seed", FAULTS, ids=lambda s: "{0.command}: {0.signal} to {0.victim} first".format(*drawn(s)))
def test_a_command_whose_processes_get_signals_leaves_the_bytes_of_an_undisturbed_one(
    trials: dict[int, Future[list[str]]], seed: int
) -> None:
    assert trials[seed].result()


@pytest.mark.long
def test_a_command_whose_ray_died_ends_with_a_status_of_its_own_and_says_how_to_go_on(
    trials: dict[int, Future[list[str]]],
) -> None:
    told = trials[LOSES_RAY].result()
    [at] = [n for n, line in enumerate(told) if "SIGKILL to raylet " in line]
    ended, said = told[at + 1 : at + 3]
    assert ended.endswith("the command ended with 4")
    assert "raylet on this machine died" in said and "with --resume, --name s" in said


def test_they_reach_every_victim_and_every_command_but_the_longest() -> None:
    faults = [fault for seed, number in FAULTS.items() for fault in drawn(seed, number)]
    assert set(COMMANDS) - {f.command for f in faults} == {"reproduce --scale smoke"} and len(faults) == 12
    assert {f.victim for f in faults} == set(ledger.VICTIMS) and {f.signal for f in faults} == set(ledger.SIGNALS)


FORKED = "import os, time; os.fork() and print(os.getpid(), flush=True); time.sleep(60)"


def test_a_process_that_has_its_parents_command_line_is_no_victim() -> None:
    """A raylet's child has that of the raylet until it becomes a worker."""
    python = re.compile(re.escape(sys.executable.encode()) + rb"\0-c\0")
    leader = subprocess.Popen([sys.executable, "-c", FORKED], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert leader.stdout is not None and leader.stdout.readline()
        assert len(members(leader.pid, python)) == 2 and members(leader.pid, python, os.getpid()) == [leader.pid]
    finally:
        kill_session(leader.pid)
        leader.wait()


RECORD = {"command": "run", "victim": "worker", "signal": "SIGKILL", "outcome": "went on", "seconds": 20.0}


def test_the_count_goes_on_with_the_first_seed_that_was_not_tried(tmp_path: Path) -> None:
    file = tmp_path / "count.json"
    assert ledger.next_seed(ledger.read(file)) == 0
    records = [RECORD | {"seed": 0, "recovery": 4.0}, RECORD | {"seed": 1, "outcome": "missed"}]
    ledger.write(file, records)
    assert ledger.read(file) == records and json.loads(file.read_text()) and ledger.next_seed(records) == 2
    assert [r["seed"] for r in ledger.hits(records)] == [0] and [f.name for f in tmp_path.iterdir()] == ["count.json"]


def test_a_seed_that_is_tried_again_replaces_its_record_which_keeps_what_was_wrong() -> None:
    records = [RECORD | {"seed": 0, "violations": ["x is missing"]}, RECORD | {"seed": 1}]
    again = ledger.taken(records, [RECORD | {"seed": 0}])
    assert again == [RECORD | {"seed": 0, "before": ["x is missing"]}, RECORD | {"seed": 1}]
    assert "1 of 2 faults broke the guarantee; 1 were repaired. Now 0 break it." in ledger.table(again)
    assert ledger.taken(again, [RECORD | {"seed": 0}]) == again
    two = [RECORD | {"seed": 0, "number": n} for n in (0, 1)]
    assert ledger.taken(again, two) == [two[0], two[1] | {"before": ["x is missing"]}, RECORD | {"seed": 1}]


def test_the_table_counts_faults_that_came_about_and_violations_whatever_they_were() -> None:
    records = [
        RECORD | {"seed": 0, "recovery": 4.0},
        RECORD | {"seed": 1, "recovery": 9.0},
        RECORD | {"seed": 2, "recovery": 5.0, "outcome": "resumed", "violations": ["x has other bytes"]},
        RECORD | {"seed": 3, "outcome": "missed"},
    ]
    said = ledger.table(records)
    assert (
        "1 of 3 faults broke the guarantee; 0 were repaired. Now 1 break it.\n1 further commands" in said
        and "| `run` | | 3/0/0 | | | | |" in said
    )
    assert "| worker | SIGKILL | 3 | 2 | 1 | 0 | 5.0 s | 9.0 s |" in said


def test_the_page_shows_what_was_counted() -> None:
    page = COUNTED.with_suffix(".md").read_text()
    assert ledger.filled(page, ledger.read(COUNTED)) == page


def test_a_byte_a_missing_file_and_one_too_many_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    file = tmp_path / "prepared" / "a.parquet"
    file.write_bytes(b"one")
    expected = prints.of_folder(tmp_path)
    assert prints.differences(prints.of_folder(tmp_path), expected) == []
    file.write_bytes(b"two")
    assert prints.differences(prints.of_folder(tmp_path), expected) == ["prepared/a.parquet has other bytes"]
    file.rename(file.with_name("b.parquet"))
    assert len(prints.differences(prints.of_folder(tmp_path), expected)) == 2


def test_a_seed_always_draws_the_same_faults_however_many_follow() -> None:
    assert drawn(7, 4) == drawn(7, 4) and len({fault for seed in range(100) for fault in drawn(seed, 3)}) == 300
    assert drawn(7, 4)[:1] == drawn(7) and {f.command for f in drawn(7, 4)} == {drawn(7)[0].command}
