"""Packs on a GPU, without one: what a step asks of the device, and whose numbers each row draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from raychains.chain import packed_density
from raychains.chain.chain import Chain
from raychains.chain.pack import Pack
from raychains.chain.packed_density import COMPILED
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec
from raychains.samplers.noise import Noise
from raychains.tasks import Task
from raychains.tasks.digits import Digits
from tests.chain import test_pack as on_cpu
from tests.chain.chain_cases import run, stored
from tests.chain.test_pack import STEPS, density, isokinetic, made
from tests.gpu import packed
from tests.gpu.contract import Contract, as_gpu, on_meta
from tests.spread import witnessed


def digits(sampler: str) -> tuple[ChainSpec, Task | None]:
    task = Digits(train=90, hidden=[8])
    return made(task, 20, sampler), task


def network(name: str) -> tuple[ChainSpec, Task | None]:
    task = on_cpu.TASKS[name][0]()
    return made(task, on_cpu.TASKS[name][1]), task


def microcanonical(name: str) -> tuple[ChainSpec, Task | None]:
    task = Digits(train=90, hidden=[8])
    return isokinetic(name, task, 90 if name == "mile" else 20, precision="fp64"), task


CASES: dict[str, Callable[[], tuple[ChainSpec, Task | None]]] = {
    **{sampler: partial(digits, sampler) for sampler in ("sghmc", "sgld", "psgld", "sgnht", "emcmc", "adamw", "swag")},
    **{name: partial(network, name) for name in ("dropping", "smooth")},
    **{name: partial(microcanonical, name) for name in on_cpu.ISOKINETIC},
    **{f"mixture-{sampler}": lambda s=sampler: (density(s), None) for sampler in ("sghmc", "psgld", "sgnht")},
}


@pytest.mark.parametrize("name", witnessed(CASES, "sghmc", "dropping", "mclmc", "mixture-sghmc"))
def test_a_pack_waits_once_for_a_record_of_a_chain_and_for_a_sample_and_never_between(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches, numbers, dropout, gradients, noise and updates of all steps, and the copies to the device, of three
    chains."""
    waits = on_meta(monkeypatch)
    one, task = CASES[name]()
    chains = [Chain(dataclasses.replace(one, chain=i), task, device="meta") for i in range(3)]
    pack, told = Pack(chains[0]), {Progress: 0, Sample: 0}
    for chain in chains:
        chain.join(pack)
    on_the_cpu = {"mile", "swag"}  # whose tuner draws coordinates there, or whose samples have numbers of it
    with Contract(ahead=name not in on_the_cpu) as contract:
        while not chains[0].done:
            for row in (rows := list(pack._rows.values())):
                row.stop, row.result = lambda: False, None
            pack._run()
            for row in rows:
                assert isinstance(row.result, list), row.result
                for event in row.result:
                    told[type(event)] += 1
            assert waits["value"] + waits["wait"] <= len(chains) + told[Progress] + 3 * told[Sample]
            assert waits["array"] <= (name == "mile")
    assert told[Sample] > 0 < contract.launches and all(chain.done for chain in chains)


def test_a_step_takes_as_many_operators_as_a_chains_own_and_a_draw_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products, activations, loss and update are those of all rows at once."""
    on_meta(monkeypatch)
    launches = []
    for members in (1, 3, 10):
        one, task = network("small")
        chains = [Chain(dataclasses.replace(one, chain=i, pack=10), task, device="meta") for i in range(members)]
        pack = Pack(chains[0])
        for chain in chains:
            chain.join(pack)
        rows = list(pack._rows.values())
        pack._prepare(rows)
        with torch.no_grad(), Contract(ahead=True) as contract:
            pack._step(0, 2, rows)
        launches.append(contract.launches)
        assert contract.operators["normal_"] <= members
    assert launches[1] - launches[0] == contract.operators["normal_"] * 2 // 10
    assert launches[2] - launches[0] == contract.operators["normal_"] * 9 // 10


@pytest.mark.parametrize("name", witnessed(CASES, "sgnht", "emcmc", "dropping", "mile", "mixture-psgld"))
def test_a_packed_chain_follows_the_path_of_the_chain_by_itself_to_rounding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row draws the numbers that the chain draws by itself, in the same order."""
    as_gpu(monkeypatch)
    packed, task = CASES[name]()
    chains = [Chain(s, task) for s in (packed, dataclasses.replace(packed, pack=0))]
    for until in (1, 9, STEPS):
        told = [run(chain, until) for chain in chains]
        assert [type(e) for e in told[0]] == [type(e) for e in told[1]]
        for a, b in zip(*(chain.model.parameters() for chain in chains), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 if "psgld" in name else 1e-5)
        states = [chain.state_dict()["sampler"]["sampler"] for chain in chains]
        assert states[0]["positions"] == states[1]["positions"] == {}
        torch.testing.assert_close(states[0]["generators"], states[1]["generators"], rtol=0, atol=0)


CLAIMS: dict[str, Callable[[], None]] = {
    **{
        f"in any place, {name}": partial(
            on_cpu.test_a_chain_has_its_bytes_alone_beside_others_and_in_any_place, name, sampler
        )
        for name, sampler in (("small", "sghmc"), ("small", "emcmc"), ("small", "swag"), ("dropping", "sghmc"))
    },
    "after any stop, small": partial(on_cpu.test_any_checkpoint_cadence_gives_a_packed_chain_the_same_bytes, "small"),
    "after any stop, dropping": partial(
        on_cpu.test_any_checkpoint_cadence_gives_a_packed_chain_the_same_bytes, "dropping"
    ),
    "coming and going": partial(on_cpu.test_chains_come_and_go_at_any_step_and_go_on_elsewhere, "sghmc", 20),
    "a density": partial(
        on_cpu.test_a_chain_of_a_density_has_its_bytes_and_lanes_in_any_place_and_after_any_stop, "sghmc"
    ),
    "mclmc in any place": partial(
        on_cpu.test_an_isokinetic_chain_has_its_bytes_alone_beside_others_and_in_any_place, "mclmc", "dropping"
    ),
    "mclmc catches up": partial(on_cpu.test_chains_come_and_go_at_any_step_and_go_on_elsewhere, "mclmc", 20),
}


@pytest.mark.parametrize("claim", witnessed(CLAIMS, "in any place, dropping", "coming and going", "mclmc catches up"))
def test_a_packed_chain_has_the_same_bytes(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is beside it, wherever it is and whenever it comes or goes, as on a CPU."""
    as_gpu(monkeypatch)
    CLAIMS[claim]()


def test_compiled_steps_of_a_density_draw_what_single_steps_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    as_gpu(monkeypatch)
    calls = []

    def traced(function: Callable[..., Any], *tensors: torch.Tensor) -> Callable[..., Any]:
        found: Callable[..., Any] = make_fx(function)(*tensors)
        return lambda *given: calls.append(None) or found(*given)

    monkeypatch.setattr(packed_density, "compiled", traced)
    monkeypatch.setattr("raychains.chain.chain.LOG_POINTS", 1)  # else a record ends each step
    one = density(steps=STEPS, block_draws=30)
    chains = [Chain(dataclasses.replace(one, compile="default", exact=False)), Chain(dataclasses.replace(one, pack=0))]
    for until in (3, 14, STEPS):  # a stop is between two compiled functions, or single steps
        for chain in chains:
            run(chain, until)
        state = stored(chains[0].state_dict())
        chains[0] = Chain(chains[0].spec)
        chains[0].load_state_dict(state)
        while chains[1].step < chains[0].step:  # the pack goes on to the end of its compiled steps
            run(chains[1], chains[0].step)
        torch.testing.assert_close(chains[0].model.state_dict(), chains[1].model.state_dict(), rtol=1e-4, atol=1e-5)
    assert 0 < len(calls) < STEPS // COMPILED + 1


def test_the_thread_that_makes_the_steps_sets_the_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other: one that restored them would do so in the middle of a step."""
    as_gpu(monkeypatch)
    one, task = network("small")
    chains = [Chain(dataclasses.replace(one, chain=i), task) for i in range(3)]
    pack, inside = Pack(chains[0]), []
    step = pack._step
    monkeypatch.setattr(
        pack, "_step", lambda *given: inside.append(torch.are_deterministic_algorithms_enabled()) or step(*given)
    )
    on_cpu.together(pack, chains)
    assert inside and all(inside) and not torch.are_deterministic_algorithms_enabled()


WITHOUT_MILE = [name for name in packed.CASES if name != "mile"]
"""Those whose powers a CPU does not round by place."""


@pytest.mark.parametrize("name", witnessed(WITHOUT_MILE, "sgld", "sghmc-dropout"))
def test_the_checks_of_a_device_pass_where_noise_comes_from_generators(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_gpu(monkeypatch)
    assert all(abs(measured - expected) <= far for _, measured, expected, far in packed.compare(name, "cpu"))


@pytest.mark.parametrize("name", witnessed(["sghmc", "mclmc", "sghmc-mixture"], "sghmc-mixture"))
def test_a_row_of_other_numbers_fails_the_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_gpu(monkeypatch)
    monkeypatch.setattr(
        Noise, "fill", lambda noise, draws: draws.normal_(generator=noise.generator(draws.device)).neg_()
    )
    *_, (_, away, _, far) = packed.compare(name, "cpu")
    assert away > 10 * far
