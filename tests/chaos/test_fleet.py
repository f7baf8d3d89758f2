"""Nodes that go and come, a driver that is killed, and an ensemble that answers all the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos import fleet


@pytest.mark.long
def test_a_fleet_loses_no_request_and_no_sample(tmp_path: Path) -> None:
    """Chains are slow as long as nodes go, so that the run outlasts this on every machine."""
    result = tmp_path / "fleet.json"
    given = "--minutes .2 --every 3 5 --chains 6 --epochs 400 --pause .2"
    assert fleet.main([*given.split(), "--to", str(result)]) == 0
    found = json.loads(result.read_text())
    assert found["samples_equal"] and found["nodes_told_to_go"] >= 2 and found["preemptions"] > 0
    assert found["driver_killed"] == 1 and found["run_went_on_throughout"]
    assert found["serving"]["failed"] == 0 and found["serving"]["requests"] > 100
