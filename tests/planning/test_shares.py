"""Chains of an arm with shares of its predictive: weights of their samples, the plan's JSON, its digest, what is
refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

from raychains.api import plans
from raychains.core.config import Run
from raychains.planning import Comparison
from tests.checks import refused


def shared(*shares: float) -> Comparison:
    made = plans.run(Run(task="digits", chains=2, repeats=1)).comparison
    return dataclasses.replace(made, arms=(dataclasses.replace(made.arms[0], shares=shares),))


def test_samples_of_a_chain_divide_its_share_and_those_that_are_left_make_up_one() -> None:
    arm = shared(0.75, 0.25).arms[0]
    first, second = (spec.digest for spec in arm.chains[0])
    assert arm.weights([first, second, second]) == pytest.approx([0.75, 0.125, 0.125])
    assert arm.weights([second, second]) == pytest.approx([0.5, 0.5]), "the first chain was dropped"
    assert shared().arms[0].weights([first, second]) is None


def test_shares_are_part_of_the_plan_and_of_its_identity() -> None:
    plain, one, other = shared(), shared(0.75, 0.25), shared(0.5, 0.5)
    assert len({c.digest for c in (plain, one, other)}) == 3
    assert Comparison.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert "shares" not in json.dumps(plain.to_json())
    for shares in ((1.0,), (0.5, -0.5), (0.5, float("nan"))):
        with refused("plan: shares of an arm must be a number in (0, 1] for each of its chains"):
            Comparison.from_json(json.loads(json.dumps(shared(*shares).to_json())))
