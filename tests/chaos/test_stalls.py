"""Workers that are stopped, not dead: they are named, their chains and predictions go to others,
and what they do later counts for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import json_of


@pytest.mark.long
def test_all_workers_stopped_are_named_and_replaced_and_change_nothing_when_they_go_on(tmp_path: Path) -> None:
    """The script compares every sample's bytes with those of undisturbed chains."""
    told = json_of("-m", "tests.chaos.stalled", str(tmp_path), RAY_BACKEND_LOG_LEVEL="fatal")
    assert told["stopped"] == 3 and told["went on"], "two chain workers and an evaluator"
    named = [reason for chain, seconds, reason in told["stalled"] if chain and seconds < 60]
    assert named.count("its worker does not answer") >= 2
    assert any(not chain for chain, _, _ in told["stalled"]), "the evaluator, which never went on"
    assert len(told["lost"]) >= 2 and all(
        reason.startswith("its worker does not answer for") for reason in told["lost"][:2]
    )
    assert len(told["entered"]) == 2, "raychains status says it"
    assert told["estimates"] and set(told["estimates"]) == {None}, "nothing is said to be left in so many seconds"
    assert all(attempts >= 2 for attempts in told["attempts"]) and max(told["from"]) > 0, "from checkpoints"
    assert len(told["afterwards"]) == 2 and all(steps > 0 for steps in told["afterwards"]), "the old workers stepped on"
