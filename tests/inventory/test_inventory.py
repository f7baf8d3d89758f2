"""Nothing that users have is lost unnoticed; and the comparison that says so notices every kind of loss."""

from __future__ import annotations

import json

from tests.inventory.collect import collect
from tests.inventory.lost import FILE, excused, lost

OLD = {
    "options": {"run": "", "run --bins": "--bins INT (default: 15)", "run --lr": "--lr NUMBER"},
    "help": {"run --bins": "Bins of calibration errors.", "run --lr": "Step size in (0, 1]."},
    "messages": {
        "epochs must be an integer of at least 1, got {epochs}": "UserError",
        "run {self.name}: {name}.parquet is damaged; evaluate the run to write it again": "UserError",
    },
    "docstrings": {"Chain.run": "1; Args until; Raises UserError; unit seconds", "build": "2; Raises UserError"},
}


def without(section: str, key: str, *other: tuple[str, str]) -> dict[str, dict[str, str]]:
    return OLD | {section: {k: v for k, v in OLD[section].items() if k != key} | dict(other)}


def test_nothing_is_lost() -> None:
    assert lost(json.loads(FILE.read_text(encoding="utf-8")), collect(), *excused()) == {}, (
        "see tests/inventory/__init__.py"
    )


def test_a_lost_name_and_a_changed_default_are_noticed_unless_the_changelog_names_them() -> None:
    assert lost(OLD, OLD) == {}
    gone, changed = (
        without("options", "run --lr"),
        without("options", "run --bins", ("run --bins", "--bins INT (default: 8)")),
    )
    assert list(lost(OLD, gone)["options"]) == ["run --lr"] and list(lost(OLD, changed)["options"]) == ["run --bins"]
    assert (
        lost(OLD, gone, ["--lr X"]) == {} and lost(OLD, gone, ["--lr-decay"]) and lost(OLD, changed, ["--bins"]) == {}
    )
    assert list(lost(OLD, OLD | {"options": {}})["options"]) == ["run"], "options of a command that is gone go with it"


def test_a_lost_text_is_noticed_and_a_reworded_one_is_not() -> None:
    damaged = list(OLD["messages"])[1]
    assert list(lost(OLD, without("messages", damaged))["messages"]) == [damaged]
    assert (
        lost(OLD, without("messages", damaged, ("the file {file} of the run {run} is damaged: evaluate it again", "")))
        == {}
    )
    assert lost(OLD, without("messages", damaged, ("lr must lie in (0, 1], got {lr}", "")))
    assert lost(OLD, without("messages", damaged), dropped=[damaged]) == {}
    assert lost(OLD, without("help", "run --lr", ("run --lr", "The step size.")))["help"]
    assert lost(OLD, without("docstrings", "Chain.run", ("Chain.run", "1; Raises UserError; unit seconds")))[
        "docstrings"
    ]
    assert lost(OLD, without("docstrings", "build", ("build", "1; unit bytes"))) == {}, (
        "the other one has another name now"
    )
