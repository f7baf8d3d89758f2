"""Digests, seeds, data orders, schedules, noise and sampled parameters are those that golden.json records."""

from __future__ import annotations

import copy
import os

import pytest

from raychains import samplers, schedules
from tests.golden import chains, values


@pytest.mark.parametrize("section", values.SECTIONS)
def test_numbers_are_the_recorded_ones(section: str) -> None:
    """After a change that is meant to alter samples: raise a revision and run `python -m tests.golden --write`."""
    expected = values.recorded()[section]
    found = values.differences(expected, values.SECTIONS[section](), section, values.RELATIVE.get(section, 1e-9))
    assert not found, "\n".join(found)


@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: published data are needed")
@pytest.mark.parametrize("name", values.PUBLISHED)
def test_fingerprints_of_published_data_are_the_recorded_ones(name: str) -> None:
    assert values.fingerprint(name) == values.recorded()["published"][name]


def test_every_sampler_and_schedule_is_recorded() -> None:
    kinds = {name: kind for name, (_, kind, _) in chains.SAMPLERS.items()}
    assert set(kinds.values()) == set(samplers.KINDS)
    assert {schedule.kind for schedule in values.SCHEDULES.values()} == set(schedules.KINDS)
    for task in ("digits", "mixture25", "noisy-mixture25"):
        named = [name for name in kinds if task == "digits" or name not in chains.WITH_LAYERS]
        assert {f"{name}-{task}" for name in named} <= values.recorded()["parameters"].keys()


def test_every_change_is_noticed() -> None:
    expected = values.recorded()
    assert values.differences(expected, copy.deepcopy(expected), "golden") == []
    changed = copy.deepcopy(expected)
    numbers = changed["parameters"]["sghmc-digits"]["theta"]["layers.0.bias"]
    numbers[0] *= 1 + 1e-8
    changed["digests"]["digits"]["csgld"] = "0" * values.DIGITS
    changed["orders"]["digits 0"][0][0] += 1
    del changed["seeds"]["seed 0 repeat 0 chain 0 noise"]
    found = values.differences(expected, changed, "golden")
    assert len(found) == 4
    assert any("parameters: sghmc-digits: theta: layers.0.bias[0]" in line for line in found)
    assert values.differences({"a": 1}, {"a": True}, "golden") and values.differences([1.0], [1.0, 2.0], "golden")
