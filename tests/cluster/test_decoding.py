"""Decoders on a node of CPUs that leaves in the middle of an epoch: the chain goes on, and so do they on another node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.long
@pytest.mark.timeout(290)
def test_a_chain_whose_decoders_node_leaves_has_the_samples_of_one_alone(
    script: Callable[[str], dict[str, Any]],
) -> None:
    found = script("decoding")
    assert found["before"] == 2, "both were on the node of CPUs"
    assert found["after"], "Ray started both again on the node that joined"
    assert found["incarnations"] == 1 and not found["failed"], "the chain itself never stopped"
    assert found["same"] and found["samples"] == 2
