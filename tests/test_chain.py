"""Chains: exact resume in another process, clean stops, divergence, sample counts and frozen bytes."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raychains
from raychains.chain import Chain, Diverged
from raychains.positions import expected_samples
from raychains.sample import Progress, Sample
from raychains.schedules import Cyclical
from tests import chain_cases
from tests.chain_cases import CASES, HALF, SAMPLERS, outcome, run, sample_hash, spec, state_hash, told
from tests.checks import refused


def fresh_interpreter(*arguments: str) -> str:
    """Output of a new Python that finds the same raychains."""
    root = str(Path(raychains.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


Halves = dict[str, tuple[list[Any], dict[str, Any]]]


@pytest.fixture(scope="module")
def resumed_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Halves:
    """Per case what was told up to `HALF` steps here, and the outcome of the rest in a new process."""
    path = tmp_path_factory.mktemp("states") / "states.pt"
    states, before = {}, {}
    for case, case_spec in CASES.items():
        chain = Chain(case_spec)
        before[case] = told(run(chain, until=HALF))
        assert chain.step == HALF
        states[case] = chain.state_dict()
    torch.save(states, path)
    after = json.loads(fresh_interpreter(chain_cases.__file__, str(path)))
    return {case: (before[case], after[case]) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_a_chain_resumed_in_another_process_equals_the_uninterrupted_one_bit_for_bit(
    case: str, resumed_elsewhere: Halves
) -> None:
    chain = Chain(CASES[case])
    straight = outcome(chain, run(chain))
    before, after = resumed_elsewhere[case]
    assert any(isinstance(e, list) for e in before) and any(isinstance(e, list) for e in after["events"])
    assert before + after["events"] == straight["events"]
    assert after["state"] == straight["state"]


@pytest.mark.parametrize("case", CASES)
def test_a_chain_stopped_after_every_step_equals_the_uninterrupted_one(case: str) -> None:
    straight, stopped = Chain(CASES[case]), Chain(CASES[case])
    events = []
    for k in range(1, CASES[case].steps + 1):
        events += run(stopped, until=k)
        assert stopped.step == k
        torch.rand(1)  # what the process does meanwhile with torch's global generator is nobody's business
    assert outcome(stopped, events) == outcome(straight, run(straight))


def test_stop_is_looked_at_before_the_first_step() -> None:
    chain = Chain(CASES["sghmc-digits"])
    assert chain.advance(lambda: True) == [] and chain.step == 0


def test_the_state_taken_after_advance_continues_behind_the_events_it_returned() -> None:
    for case in ("sghmc-digits", "sghmc-noisy-mixture"):
        straight, cut = Chain(CASES[case]), Chain(CASES[case])
        first = cut.advance()
        rest = Chain(CASES[case])
        rest.load_state_dict(cut.state_dict())
        assert outcome(rest, first + run(rest)) == outcome(straight, run(straight))


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
    whole = spec("digits", "sgld", batch_size=90, steps_per_epoch=1)
    straight, cut, rest = Chain(whole), Chain(whole), Chain(whole)
    first = run(cut, until=HALF)
    rest.load_state_dict(cut.state_dict())
    assert outcome(rest, first + run(rest)) == outcome(straight, run(straight))


def test_another_chains_state_is_refused() -> None:
    with refused("checkpoint"):
        Chain(CASES["sgld-digits"]).load_state_dict(Chain(CASES["sghmc-digits"]).state_dict())


@pytest.mark.parametrize("case", CASES)
def test_expected_samples_equals_what_is_emitted(case: str) -> None:
    samples = [e.meta for e in run(Chain(CASES[case])) if isinstance(e, Sample)]
    assert expected_samples(CASES[case]) == len(samples)
    for variable in {m.variable for m in samples}:
        indices = [m.index for m in samples if m.variable == variable]
        assert indices == list(range(expected_samples(CASES[case], variable)))
    assert {m.digest for m in samples} == {CASES[case].digest}


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
    assert all(torch.equal(sgd._batches(1)[i], sghmc._batches(1)[i]) for i in range(5))


@pytest.mark.parametrize("task", ["digits", "mixture"])
def test_double_precision_gives_double_samples(task: str) -> None:
    samples = [e for e in run(Chain(spec(task, "sghmc", precision="fp64"))) if isinstance(e, Sample)]
    assert samples and all(t.dtype == torch.float64 for s in samples for t in s.tensors.values())


def diverging(task: str, **change: Any) -> Chain:
    schedule = Cyclical(steps=2 * HALF, lr=1e6, cycles=1, exploration=0.0)
    return Chain(spec(task, "sghmc", schedule=schedule.part(), **change))


@pytest.mark.parametrize(
    "change",
    [{"task": "digits"}, *({"task": "mixture", "block_draws": n} for n in (1, 24))],
    ids=str,
)
def test_a_diverging_chain_raises_and_never_hands_out_a_non_finite_sample(change: dict[str, Any]) -> None:
    chain = diverging(**change)
    samples = []
    with pytest.raises(Diverged, match="smaller lr") as caught:
        while events := chain.advance():
            samples += [e for e in events if isinstance(e, Sample)]
    assert "\n" not in str(caught.value) and str(chain.step) in str(caught.value)
    assert len(samples) < expected_samples(chain.spec)
    assert all(bool(torch.isfinite(t).all()) for s in samples for t in s.tensors.values())


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


def cpu_model() -> str:
    """Which CPU this is: matrix products choose their kernels by it, beyond torch's own capability."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    entries = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(entries.get(name, "?") for name in ("vendor_id", "cpu family", "model"))


FROZEN: dict[tuple[str, str, str, str], dict[str, str]] = {
    # (torch, numpy, CPU capability, CPU) -> hash of all samples
    ("2.15.0+cu132", "2.4.6", "AVX512", "AuthenticAMD 26 2"): {
        "sghmc-mixture": "9abae7210d9a4b7e863841bc5f7f8008d669d66b8f40555d18756b6f12905578",
        "sghmc-noisy-mixture": "3299f225fb536261352d40bca48b5029dcf2ff6bbf45f67b2a56030899f04ad7",
        "sgd-digits": "c0e980f598c5b8de96ccf4e31193429905acd5a8622ec9207e0a9ed656a83289",
        "sgdm-digits": "5d88fdbc60f64e09d4c36264e0848b3097cbe7ba9967ff50c0f757e34ef8899d",
        "sgld-digits": "cfcda2c00f5ccdd47d544e1409915def11ef67807946e9f4721296deb477fad6",
        "sghmc-digits": "057ee20a86ee0152edec3c8a148daf390caff97540281d288c72ce1a8d46ce2e",
        "psgld-digits": "9209dded73a80f001147b36c4420c576e017999cb1599632adbf4f676ff9a55c",
        "sgnht-digits": "e7494c28da4c649c76f732bc3a9bfb4fe6b6de05bc306adae53c8defedf1096a",
        "atmc-digits": "d5fa1beb65d7da61faba16a813002f1f40b743f3bcf6b7a20aa288ef8ebc2584",
        "emcmc-digits": "d1ac746065ea46de516d349aed5598da4de3fcc05a542bbe6e4c195fe2d3b60d",
        "entropy-sgd-digits": "63be46135d74f0b2a761238b1ae070c5e5047979630801bebe786902db7030f9",
        "entropy-sgld-digits": "b4b97d9aa063bb7dd7eada03387bc87deb71a1a81d471c7b6001ab8ac430718f",
        "sam-digits": "c4d17336eef5df3d5ea1bd9a1bf57e4d951d3990ec8ca3db29e61ee2fa2ef6d0",
        "bsam-digits": "2bc0ce5b3431dc4a98c0acca13a484bfecc30b5cef350d6501bf83f06e8f0a87",
    },
}


@pytest.mark.parametrize("case", ["sghmc-mixture", "sghmc-noisy-mixture", *(f"{s}-digits" for s in SAMPLERS)])
def test_samples_are_frozen_where_recorded_and_reproducible_everywhere(case: str) -> None:
    """A change where recorded alters people's samples: raise the revision of what changed, record anew."""
    here = (torch.__version__, np.__version__, torch.backends.cpu.get_cpu_capability(), cpu_model())
    got = sample_hash(run(Chain(CASES[case])))
    expected = FROZEN[here][case] if here in FROZEN else sample_hash(run(Chain(CASES[case])))
    assert got == expected, here


LIGHT = """
import sys
from raychains import tasks
from raychains.chain import Chain
from raychains.samplers import SGLD
from raychains.schedules import Cyclical
from raychains.spec import ChainSpec, Part
task = tasks.make("digits", train=40, hidden=[4])
schedule = Cyclical(steps=4, lr=.1, cycles=1, exploration=.5)
spec = ChainSpec(task=task.spec(), sampler=Part(kind="sgld", revision=SGLD.revision, settings={"num_data": 40}),
                 schedule=schedule.part(), steps=4, steps_per_epoch=2, batch_size=20,
                 seed=0, repeat=0, chain=0)
events = list(Chain(spec))
assert len(events) == 4, events
heavy = {"sklearn", "torchmetrics", "torchvision", "ray", "scipy", "pandas", "matplotlib"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_a_digits_chain_loads_no_heavy_library() -> None:
    assert fresh_interpreter("-c", LIGHT).strip() == "[]"
