"""A chain sent on another path: fresh noise streams, recorded in the state, all else as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raychains.chain.chain import Chain
from raychains.core.spec import ChainSpec
from tests.chain.chain_cases import CASES, HALF, SAMPLERS, outcome, run, sample_hash, stored
from tests.checks import refused

NOISELESS = {"adamw", "sgd", "sgdm", "sam"}
NOISY = sorted(SAMPLERS.keys() - NOISELESS)
"""Entropy-SGD's inner loop has noise at temperature 0 too."""


def at_half(spec: ChainSpec) -> dict[str, Any]:
    """The state in the middle, as a checkpoint gives it."""
    chain = Chain(spec)
    run(chain, until=HALF)
    return stored(chain.state_dict())


def from_state(spec: ChainSpec, state: dict[str, Any], attempt: int | None = None) -> Chain:
    chain = Chain(spec)
    chain.load_state_dict(state)
    if attempt is not None:
        chain.restart_noise(attempt)
    return chain


@pytest.mark.parametrize("task", ["digits", "mixture"])
@pytest.mark.parametrize("sampler", NOISY)
def test_fresh_noise_is_another_path_and_the_same_one_each_time(sampler: str, task: str) -> None:
    spec = CASES.get(f"{sampler}-{task}", CASES[f"{sampler}-digits"])
    state = at_half(spec)
    hashes = [sample_hash(run(from_state(spec, state, attempt))) for attempt in (None, 1, 2, 1)]
    assert hashes[1] == hashes[3] and len(set(hashes)) == 3


@pytest.mark.parametrize("case", [*(f"{s}-digits" for s in SAMPLERS), "sghmc-mixture"])
def test_a_restarted_chain_resumes_bit_for_bit_at_once_and_midway(case: str) -> None:
    spec = CASES[case]
    straight, cut = (from_state(spec, at_half(spec), 3) for _ in range(2))
    cut = from_state(spec, stored(cut.state_dict()))  # no noise of the new streams is drawn yet
    events = run(cut, until=HALF + 5)
    resumed = from_state(spec, stored(cut.state_dict()))
    assert resumed.noise_attempt == 3
    assert outcome(resumed, events + run(resumed)) == outcome(straight, run(straight))


@pytest.mark.parametrize("sampler", sorted(NOISELESS))
def test_a_sampler_without_noise_repeats_its_path(sampler: str) -> None:
    spec = CASES[f"{sampler}-digits"]
    state = at_half(spec)
    assert sample_hash(run(from_state(spec, state, 1))) == sample_hash(run(from_state(spec, state)))


def test_bsams_own_stream_of_draws_follows() -> None:
    chain = from_state(CASES["bsam-digits"], at_half(CASES["bsam-digits"]))
    before, again = ([t[0].clone() for _, t in chain.sampler.draws()] for _ in range(2))
    chain.restart_noise(1)
    after = [t[0] for _, t in chain.sampler.draws()]
    assert all(torch.equal(a, b) for a, b in zip(before, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("sampler", ["sghmc", "bsam"])
def test_attempt_0_from_the_start_is_the_chain_itself(sampler: str) -> None:
    spec = CASES[f"{sampler}-digits"]
    plain, restarted = Chain(spec), Chain(spec)
    restarted.restart_noise(0)
    assert outcome(restarted, run(restarted)) == outcome(plain, run(plain))


@pytest.mark.parametrize("attempt", [-1, True, 1.5])
def test_an_attempt_is_a_count(attempt: Any) -> None:
    with refused("attempt"):
        Chain(CASES["sghmc-digits"]).restart_noise(attempt)
