"""What asks a run to stop: Ctrl-C twice interrupts, SIGTERM any number of times asks once, outside the driver it
unwinds."""

from __future__ import annotations

import contextlib
import importlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from raychains import cli
from raychains.core.errors import Interrupted
from raychains.orchestration.interrupt import Interrupt, sigterm_kept
from tests.processes import outside


def test_sigterms_ask_once_while_a_second_ctrl_c_interrupts() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupt() as interrupt:
        assert not interrupt.asked
        for _ in range(3):  # the job's supervisor sends one, a wrapper of the command passes its own on
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_sigterm_outside_the_driver_unwinds_and_exits_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unwound = []

    def planning(command: str, options: Any) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # withdrawing a lease is not disturbed
            unwound.append(command)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cli, "_do", planning)
    assert cli.main(["run", "--task", "digits"]) == 130
    assert unwound == ["run"] and capsys.readouterr().err == "raychains: interrupted\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_terminal_that_closes_asks_as_sigterm_does_unless_somebody_ignores_or_handles_that() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert interrupt.asked
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.asked
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("driving", [False, True], ids=["planning", "in the driver"])
def test_a_terminal_that_closes_ends_a_command_as_sigterm_does(
    driving: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def do(command: str, options: Any) -> None:
        with Interrupt() if driving else contextlib.nullcontext() as interrupt:
            signal.raise_signal(signal.SIGHUP)
        assert interrupt is not None and interrupt.asked
        raise Interrupted("stopped")

    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr(cli, "_do", do)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert cli.main(["run", "--task", "digits"]) == 130
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert capsys.readouterr().err == f"raychains: {'stopped' if driving else 'interrupted'}\n"


def test_a_third_ctrl_c_disturbs_no_cleanup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = []

    def do(command: str, options: Any) -> None:
        try:
            with Interrupt():
                for _ in range(2):
                    signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            ended.append(command)
            monkeypatch.setattr(cli, "CLEANUP_WITHIN", 0.0)  # one that hangs can be interrupted later
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cli, "_do", do)
    assert cli.main(["run", "--task", "digits"]) == 130
    assert ended == ["run"] and capsys.readouterr().err == "raychains: interrupted\n"


LATER = """
import atexit, signal, sys
from raychains import cli
from raychains.report.console import standard_output

def do(command, options):
    atexit.register(signal.raise_signal, signal.SIGINT)  # while Ray ends by itself
    standard_output().print("first")
    sys.stdin.read()
    standard_output().print("second")
    signal.raise_signal(signal.SIGINT)

cli._do = do
sys.argv[1:] = ["run", "--task", "digits"]
cli.entry_point()
"""


@pytest.mark.parametrize(("reads", "status"), [(True, 130), (False, 141)], ids=["Ctrl-C at the end", "head -1"])
def test_the_exit_status_is_kept_to_the_end_of_the_process(reads: bool, status: int) -> None:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", LATER], env=outside(), text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "first\n"
        if not reads:
            process.stdout.close()
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == status and said == "raychains: interrupted\n" * reads


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("within", [10.0, 0.1])
def test_a_signal_waits_for_the_end_of_an_import_but_not_for_ever(
    number: signal.Signals, within: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's import is aborted by an exception in code that its C++ calls."""
    (tmp_path / "slowly_imported.py").write_text(
        f"import signal, time\nsignal.raise_signal({number:d})\nfor _ in range(8):\n    time.sleep(0.05)\n"
    )
    ends = []

    def import_it(command: str, options: Any) -> None:
        try:
            importlib.import_module("slowly_imported")
        finally:
            ends.append("slowly_imported" in sys.modules)
            sys.modules.pop("slowly_imported", None)
        time.sleep(5)
        ends.append("slept")

    before = [signal.getsignal(taken) for taken in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(cli, "IMPORT_WITHIN", within)
    monkeypatch.setattr(cli, "_do", import_it)
    assert cli.main(["run", "--task", "digits"]) == 130
    assert ends == [within > 1]
    assert [signal.getsignal(taken) for taken in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_handler_of_sigterm_outlasts_what_takes_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(number: int, frame: Any) -> None:
        raise AssertionError

    def rays(number: int, frame: Any) -> None:
        raise SystemExit(number)

    before = signal.getsignal(signal.SIGTERM)
    try:
        for mine, after in ((ours, ours), (signal.SIG_DFL, rays)):
            signal.signal(signal.SIGTERM, mine)
            with sigterm_kept():
                signal.signal(signal.SIGTERM, rays)
            assert signal.getsignal(signal.SIGTERM) is after
        signal.signal(signal.SIGTERM, ours)
        with pytest.raises(KeyboardInterrupt), sigterm_kept():
            signal.signal(signal.SIGTERM, rays)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
