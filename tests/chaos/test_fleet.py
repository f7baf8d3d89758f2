"""Nodes that go and come, a driver that is killed, and an ensemble that answers all the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos import fleet


@pytest.mark.long
def test_a_fleet_loses_no_request_and_no_sample(tmp_path: Path) -> None:
    result = tmp_path / "fleet.json"
    assert fleet.main(["--minutes", "2", "--epochs", "1500", "--to", str(result)]) == 0
    found = json.loads(result.read_text())
    assert found["samples_equal"] and found["nodes_told_to_go"] >= 2 and found["preemptions"] > 0
    assert found["serving"]["failed"] == 0 and found["serving"]["requests"] > 100
