"""However often a chain is checkpointed and begun anew from the bytes, it yields the same bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from raychains.chain import Chain
from raychains.samplers import BSAM
from raychains.spec import ChainSpec, Part
from tests.chain_cases import CASES, HALF, outcome, run, stored
from tests.chain_tasks import VariedDigits

TOLD = [case for case in CASES if "noisy" not in case]


def stopped(spec: ChainSpec, every: int) -> dict[str, Any]:
    """Outcome of a chain that is begun anew from a checkpoint's bytes after every so many steps."""
    chain, events = Chain(spec), []
    task = chain.task
    while not chain.done:
        events += run(chain, until=chain.step + every)
        state = stored(chain.state_dict())
        chain = Chain(spec, task)
        chain.load_state_dict(state)
    return outcome(chain, events)


@pytest.mark.parametrize("case", TOLD)
def test_any_checkpoint_cadence_gives_the_same_bytes(case: str) -> None:
    """Each step; across epochs, log intervals and blocks; at each cycle's end."""
    chain = Chain(CASES[case])
    straight = outcome(chain, run(chain))
    for every in (1, 7, HALF):
        assert stopped(CASES[case], every) == straight, every


def test_dropout_batchnorm_and_a_prior_keep_to_the_same_bytes_under_any_cadence() -> None:
    task = VariedDigits(batchnorm=True, dropout=0.3, std=1.0)
    sampler = Part(kind="bsam", revision=BSAM.revision, settings={"num_data": task.num_data, "m_sharpness": 3})
    varied = dataclasses.replace(CASES["bsam-digits"], task=task.spec(), sampler=sampler)
    chain = Chain(varied)
    straight = outcome(chain, run(chain))
    for every in (1, 7):
        assert stopped(varied, every) == straight, every
