"""Several callbacks as one: each gets every event, none hurts another, all are closed whatever happened."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains import callbacks
from raychains.callbacks import CallbackList
from raychains.core.errors import Interrupted, UserError
from tests.callbacks.events import tick


class Notes:
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.closed = 0

    def on(self, event: callbacks.RunEvent) -> None:
        self.heard.append(event)

    def close(self) -> None:
        self.closed += 1


class Bad(Notes):
    """Breaks whatever it is asked."""

    def on(self, event: callbacks.RunEvent) -> None:
        super().on(event)
        raise ZeroDivisionError("its own mistake")

    def close(self) -> None:
        super().close()
        raise OSError("nor this")


class OnlyOn:
    """All that is asked of a listener."""

    heard = 0

    def on(self, event: callbacks.RunEvent) -> None:
        self.heard += 1


def test_one_that_raises_is_logged_once_and_the_others_hear_everything(caplog: pytest.LogCaptureFixture) -> None:
    bad, notes, least = Bad(), Notes(), OnlyOn()
    with caplog.at_level(logging.WARNING), CallbackList([bad, notes, least]) as several:
        for _ in range(3):
            several.on(tick())
    over = callbacks.RunEnded(outcome="finished")
    assert notes.heard == bad.heard == [tick()] * 3 + [over] and least.heard == 4
    assert [n.closed for n in (bad, notes)] == [1, 1]
    said = [r.getMessage() for r in caplog.records]
    assert said == ["callback Bad raised at Tick; the run continues", "callback Bad could not be closed"]
    assert all(r.exc_info for r in caplog.records)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (KeyboardInterrupt(), "stopped", "KeyboardInterrupt"),
        (Interrupted("stopped with 1 of 2\nmore"), "stopped", "stopped with 1 of 2"),
        (ValueError("wrong"), "failed", "wrong"),
    ],
    ids=["ctrl-c", "stopped", "bug"],
)
def test_an_error_goes_on_after_everybody_heard_of_the_end_and_was_closed(
    error: BaseException, outcome: Any, reason: str
) -> None:
    notes = Notes()
    with pytest.raises(type(error)), CallbackList([Bad(), notes]):
        raise error
    assert notes.heard == [callbacks.RunEnded(outcome=outcome, reason=reason)] and notes.closed == 1


def test_ctrl_c_in_a_listener_is_the_persons_and_not_swallowed() -> None:
    class Interrupting(Notes):
        def on(self, event: callbacks.RunEvent) -> None:
            if isinstance(event, callbacks.Tick):
                raise KeyboardInterrupt

    notes = Notes()
    with pytest.raises(KeyboardInterrupt), CallbackList([notes, Interrupting()]) as several:
        several.on(tick())
    assert notes.heard[-1] == callbacks.RunEnded(outcome="stopped", reason="KeyboardInterrupt") and notes.closed == 1


def test_closing_twice_closes_once() -> None:
    notes = Notes()
    several = CallbackList(notes)
    several.close()
    several.close()
    several.on(tick())
    assert notes.closed == 1 and not notes.heard


@pytest.mark.parametrize("wrong", [3, Notes, [Notes(), None]], ids=["number", "class", "none"])
def test_an_object_without_a_method_on_is_refused_in_one_line(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"callback must be an object with a method on\(event\)") as error:
        rc.run(task="digits", store=str(tmp_path), callback=wrong)
    assert "\n" not in str(error.value)


def test_names_of_built_in_callbacks_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"callback must be one of .* did you mean 'jsonl'"):
        rc.run(task="digits", store=str(tmp_path), callback=[Notes(), "jsnl"])


def test_the_protocol_is_public() -> None:
    from raychains.planning.events import Callback

    assert rc.Callback is Callback is callbacks.Callback
