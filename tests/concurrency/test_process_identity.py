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


def test_this_process_runs_and_says_so_in_words_that_an_entry_may_hold() -> None:
    here = process_identity.here()
    assert here["pid"] == os.getpid() and not process_identity.gone(here["place"], here["pid"], here["process"])
    assert all(t and t.isascii() and " " not in t for t in (here["host"], here["place"], here["process"]))


def test_a_killed_process_is_gone_even_before_its_parent_took_note(sleeper: subprocess.Popen[bytes]) -> None:
    start, here = process_identity._state_and_start(sleeper.pid)[1], process_identity.place()
    assert not process_identity.gone(here, sleeper.pid, start)
    assert process_identity.gone(here, sleeper.pid, "1"), "another process of the same number"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert process_identity.gone(here, sleeper.pid, start)
    sleeper.wait()
    assert process_identity.gone(here, sleeper.pid, start)
    assert not process_identity.gone("another:place", sleeper.pid, start), "nothing is known of other machines"


def test_numbers_that_name_no_process_are_not_asked_about() -> None:
    assert not any(process_identity.gone(process_identity.place(), pid, "1") for pid in (0, -1))
