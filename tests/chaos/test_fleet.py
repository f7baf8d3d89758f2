"""Nodes that go and come, a driver that is killed, and an ensemble that answers all the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos import fleet


@pytest.mark.long
def test_a_fleet_loses_no_request_and_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many chains as run at once, and nodes that go more often, so that it is over soon."""
    monkeypatch.setattr(fleet, "CHAINS", 3)
    monkeypatch.setattr(fleet, "FAULT_EVERY", (15.0, 20.0))
    result = tmp_path / "fleet.json"
    assert fleet.main(["--minutes", "1.5", "--epochs", "1000", "--to", str(result)]) == 0
    found = json.loads(result.read_text())
    assert found["samples_equal"] and found["nodes_told_to_go"] >= 2 and found["preemptions"] > 0
    assert found["driver_killed"] == 1
    assert found["serving"]["failed"] == 0 and found["serving"]["requests"] > 100
