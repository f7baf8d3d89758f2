"""Whether another process still runs: at once, and never by mistake for one of the same number."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from raychains.orchestration import process_identity


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def start_of(pid: int) -> str:
    return process_identity._state_and_start(pid)[1]


def test_this_process_runs_and_says_so_in_words_that_an_entry_may_hold() -> None:
    here = process_identity.here()
    assert here["pid"] == os.getpid() and not process_identity.gone(here["place"], here["pid"], here["process"])
    assert all(t and t.isascii() and " " not in t for t in (here["host"], here["place"], here["process"]))


def test_a_killed_process_is_gone_even_before_its_parent_took_note(sleeper: subprocess.Popen[bytes]) -> None:
    start = start_of(sleeper.pid)
    assert not process_identity.gone(process_identity.place(), sleeper.pid, start)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert process_identity.gone(process_identity.place(), sleeper.pid, start)
    sleeper.wait()
    assert process_identity.gone(process_identity.place(), sleeper.pid, start)


def test_a_later_process_of_the_same_number_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    assert process_identity.gone(process_identity.place(), sleeper.pid, "1")


def test_nothing_is_known_of_another_machines_or_containers_processes(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert not process_identity.gone("another:place", sleeper.pid, "1")


@pytest.mark.parametrize("pid", [0, -1])
def test_numbers_that_name_no_process_are_not_asked_about(pid: int) -> None:
    assert not process_identity.gone(process_identity.place(), pid, "1")
