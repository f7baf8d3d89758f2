"""Chains: the same bytes however often one is checkpointed and begun anew, clean stops and sample counts."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest
import torch

from raychains.chain.chain import Chain
from raychains.chain.sample_index import expected_samples
from raychains.core.sample import Progress, Sample
from raychains.core.spec import Part
from raychains.samplers import BSAM
from tests.chain.chain_cases import CASES, HALF, run, sample_hash, spec, state_hash, stopped, whole
from tests.chain.chain_tasks import VariedDigits
from tests.checks import refused
from tests.spread import witnessed


@cache
def straight(case: str) -> dict[str, Any]:
    """The outcome of a case that nothing interrupts. (Resuming in another process: tests/gpu.)"""
    return whole(CASES[case])


QUICK = (*(case for case in CASES if case.endswith("-digits")), "sghmc-mixture", "sgnht-noisy-mixture")


@pytest.mark.parametrize("case", witnessed(CASES, *QUICK))
def test_any_checkpoint_cadence_gives_the_same_bytes(case: str) -> None:
    """Each step; across epochs, log intervals and blocks; at each cycle's end."""
    for every in (1, 7, HALF):
        assert stopped(CASES[case], every) == straight(case), every


def test_dropout_batchnorm_and_a_prior_keep_to_the_same_bytes_under_any_cadence() -> None:
    task = VariedDigits(batchnorm=True, dropout=0.3, std=1.0)
    sampler = Part(kind="bsam", revision=BSAM.revision, settings={"num_data": task.num_data, "m_sharpness": 3})
    varied = dataclasses.replace(CASES["bsam-digits"], task=task.spec(), sampler=sampler)
    undisturbed = whole(varied)
    for every in (1, 7):
        assert stopped(varied, every) == undisturbed, every


def test_stop_is_looked_at_before_the_first_step() -> None:
    chain = Chain(CASES["sghmc-digits"])
    assert chain.advance(lambda: True) == [] and chain.step == 0


def test_a_loaded_chain_shares_no_memory_with_the_one_that_gave_the_state() -> None:
    for case in ("sghmc-digits", "sghmc-noisy-mixture"):
        first, second = Chain(CASES[case]), Chain(CASES[case])
        run(first, until=HALF)
        second.load_state_dict(first.state_dict())
        before = state_hash(first)
        run(second)
        assert state_hash(first) == before


def test_a_resumed_full_batch_chain_sees_its_data_in_the_same_order() -> None:
    """The order inside the one batch decides the rounding of its gradient."""
    made = spec("digits", "sgld", batch_size=90, steps_per_epoch=1)
    assert stopped(made, HALF) == whole(made)


def test_another_chains_state_is_refused() -> None:
    with refused("checkpoint"):
        Chain(CASES["sgld-digits"]).load_state_dict(Chain(CASES["sghmc-digits"]).state_dict())


def test_a_checkpoint_of_a_gpu_is_refused_on_a_cpu_in_one_line() -> None:
    state = Chain(CASES["sgld-digits"]).state_dict()
    state["dropout"] = [*state["dropout"], torch.zeros(16, dtype=torch.uint8)]
    with refused("checkpoint", "of a GPU", "resume the chain on a GPU"):
        Chain(CASES["sgld-digits"]).load_state_dict(state)


@pytest.mark.parametrize("case", CASES)
def test_expected_samples_equals_what_is_emitted(case: str) -> None:
    samples = [event[0] for event in straight(case)["events"] if isinstance(event, list)]
    assert expected_samples(CASES[case]) == len(samples) > 0
    for variable in {m["variable"] for m in samples}:
        indices = [m["index"] for m in samples if m["variable"] == variable]
        assert indices == list(range(expected_samples(CASES[case], variable)))
    assert {m["digest"] for m in samples} == {CASES[case].digest}


def test_blocks_hold_every_kept_draw_in_order() -> None:
    case = CASES["sghmc-mixture"]
    single = [e.tensors["theta"] for e in run(Chain(dataclasses.replace(case, block_draws=1))) if isinstance(e, Sample)]
    blocks = [e for e in run(Chain(case)) if isinstance(e, Sample)]
    assert [e.meta.draws for e in blocks] == [5, 5, 5, 3] and [e.meta.step for e in blocks] == [8, 16, 21, 24]
    assert all(e.tensors["theta"].shape == (e.meta.draws, case.lanes, 2) for e in blocks)
    assert torch.equal(torch.cat([e.tensors["theta"] for e in blocks]), torch.cat(single))


def test_a_networks_sample_is_its_state_dict_at_the_schedules_steps() -> None:
    chain = Chain(CASES["sghmc-digits"])
    while events := chain.advance():
        for e in events:
            if isinstance(e, Sample):
                assert e.meta.step == chain.step
                state = chain.model.state_dict()
                assert e.tensors.keys() == state.keys()
                assert all(torch.equal(e.tensors[n], t) for n, t in state.items())
                assert all(e.tensors[n].data_ptr() != t.data_ptr() for n, t in state.items()), "a sample is a copy"
    kept = [e.meta for e in run(Chain(CASES["sghmc-digits"])) if isinstance(e, Sample)]
    assert [(m.step, m.cycle, m.epoch) for m in kept] == [
        (8, 0, 1), (10, 0, 1), (12, 0, 2), (20, 1, 3), (22, 1, 4), (24, 1, 4)
    ]  # fmt: skip


def test_progress_reports_each_epoch_with_its_mean_loss_and_the_end() -> None:
    records = [e for e in run(Chain(CASES["sghmc-digits"])) if isinstance(e, Progress)]
    assert [(r.step, r.epoch) for r in records] == [(5, 0), (10, 1), (15, 2), (20, 3), (24, 4)]
    assert all(r.loss is not None and 0 < r.loss < 10 for r in records)
    densities = [e for e in run(Chain(CASES["sghmc-mixture"])) if isinstance(e, Progress)]
    assert [r.step for r in densities] == list(range(1, 25)) and {r.loss for r in densities} == {None}


def test_chains_differ_by_chain_repeat_and_seed_and_ignore_the_global_generator() -> None:
    base = CASES["sgld-digits"]
    hashes = {
        name: sample_hash(run(Chain(dataclasses.replace(base, **{name: 7})))) for name in ("seed", "repeat", "chain")
    }
    torch.manual_seed(123)
    hashes["base"] = sample_hash(run(Chain(base)))
    assert len(set(hashes.values())) == 4
    torch.manual_seed(321)
    state = torch.get_rng_state()
    assert sample_hash(run(Chain(base))) == hashes["base"]
    assert torch.equal(torch.get_rng_state(), state)


def test_arms_share_initialisation_and_data_order() -> None:
    sgd, sghmc = Chain(CASES["sgd-digits"]), Chain(CASES["sghmc-digits"])
    assert all(torch.equal(a, b) for a, b in zip(sgd.model.parameters(), sghmc.model.parameters(), strict=True))
    assert all(torch.equal(sgd.order(1)[i], sghmc.order(1)[i]) for i in range(5))


@pytest.mark.parametrize("task", ["digits", "mixture"])
def test_double_precision_gives_double_samples(task: str) -> None:
    samples = [e for e in run(Chain(spec(task, "sghmc", precision="fp64"))) if isinstance(e, Sample)]
    assert samples and all(t.dtype == torch.float64 for s in samples for t in s.tensors.values())


def test_an_optimiser_under_a_schedule_with_noise_is_refused() -> None:
    with refused("temperature", "sgd"):
        Chain(spec("digits", "sgd", schedule=CASES["sgld-digits"].schedule))


def test_specs_that_do_not_fit_together_are_refused() -> None:
    with refused("steps", "24"):
        Chain(spec("digits", "sgld", steps=25))
    with refused("steps per epoch", "5", "6"):
        Chain(spec("digits", "sgld", steps_per_epoch=6))
    with refused("lanes"):
        Chain(spec("digits", "sgld", lanes=2))


def test_environment_names_what_decides_the_bytes() -> None:
    environment = Chain(spec("mixture", "sgld", threads=1)).environment()
    assert environment.torch == torch.__version__ and environment.device == "cpu" and environment.cuda is None
    assert environment.cpu_capability == torch.backends.cpu.get_cpu_capability() and environment.threads == 1
