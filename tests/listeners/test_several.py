"""Several listeners as one: each hears everything, none hurts another, all are closed whatever happened."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import raychains as rc
from raychains import listeners as told
from raychains.errors import Interrupted, UserError
from raychains.listeners import Listeners
from tests.listeners.events import tick


class Notes:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.closed = 0

    def on(self, happening: told.Happening) -> None:
        self.heard.append(happening)

    def close(self) -> None:
        self.closed += 1


class Bad(Notes):
    """Breaks whatever it is asked."""

    def on(self, happening: told.Happening) -> None:
        super().on(happening)
        raise ZeroDivisionError("its own mistake")

    def close(self) -> None:
        super().close()
        raise OSError("nor this")


class OnlyOn:
    """All that is asked of a listener."""

    heard = 0

    def on(self, happening: told.Happening) -> None:
        self.heard += 1


def test_one_that_raises_is_logged_once_and_the_others_hear_everything(caplog: pytest.LogCaptureFixture) -> None:
    bad, notes, least = Bad(), Notes(), OnlyOn()
    with caplog.at_level(logging.WARNING), Listeners([bad, notes, least]) as several:
        for _ in range(3):
            several.on(tick())
    over = told.Over(outcome="finished")
    assert notes.heard == bad.heard == [tick()] * 3 + [over] and least.heard == 4
    assert [n.closed for n in (bad, notes)] == [1, 1]
    said = [r.getMessage() for r in caplog.records]
    assert said == ["listener Bad raised at Tick; the run goes on", "listener Bad could not be closed"]
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
    with pytest.raises(type(error)), Listeners([Bad(), notes]):
        raise error
    assert notes.heard == [told.Over(outcome=outcome, reason=reason)] and notes.closed == 1


def test_ctrl_c_in_a_listener_is_the_persons_and_not_swallowed() -> None:
    class Interrupting(Notes):
        def on(self, happening: told.Happening) -> None:
            if isinstance(happening, told.Tick):
                raise KeyboardInterrupt

    notes = Notes()
    with pytest.raises(KeyboardInterrupt), Listeners([notes, Interrupting()]) as several:
        several.on(tick())
    assert notes.heard[-1] == told.Over(outcome="stopped", reason="KeyboardInterrupt") and notes.closed == 1


def test_closing_twice_closes_once() -> None:
    notes = Notes()
    several = Listeners(notes)
    several.close()
    several.close()
    several.on(tick())
    assert notes.closed == 1 and not notes.heard


@pytest.mark.parametrize("wrong", [3, "jsonl", Notes, [Notes(), None]], ids=["number", "name", "class", "none"])
def test_what_cannot_listen_is_refused_in_one_line(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"listener must be an object with a method on\(happening\)") as error:
        rc.run(task="digits", listener=wrong)
    assert "\n" not in str(error.value)


def test_the_protocol_is_public() -> None:
    from raychains.planning.listener import Listener

    assert rc.Listener is Listener is told.Listener
