"""Chains of several ranks: the same bytes as one process gives, on resume too; what spoils or loses a rank is named."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from raychains.chain.chain import Chain
from raychains.chain.process_group import add_up, cover, interface, join, run_of
from raychains.core.sample import Progress, Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from tests.chain.chain_tasks import VariedDigits
from tests.chain.ranks_cases import BATCH, chain_spec, task
from tests.checks import refused
from tests.processes import SECONDS, free_ports

REPOSITORY = Path(__file__).resolve().parents[2]


PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "batchnorm": (2, {"spec": {"micro_batch": 12}}),
    "float64": (2, {"spec": {"micro_batch": 12, "norm": "group", "precision": "fp64"}, "task": {"norm": "group"}}),
    "batchnorm float64": (2, {"spec": {"micro_batch": 12, "precision": "fp64"}}),
    "groupnorm": (2, {"spec": {"micro_batch": 12, "norm": "group"}, "task": {"norm": "group"}}),
    "branch": (2, {"spec": {"micro_batch": 12, "norm": "branch"}, "task": {"norm": "branch"}}),
    "two gradients": (2, {"spec": {"micro_batch": 12, "sampler": "sam"}}),
    "first": (3, {"pauses": [3, 9], "end_at": 9}),
    "second": (3, {"resume": "first"}),
    "fewer": (2, {"resume": "first"}),
    "unnoticed": (3, {"pauses": [2, 13], "spoil": 1, "spoil_at": 14}),
    "spoilt": (3, {"pauses": [2, 13, 16], "spoil": 1, "spoil_at": 14}),
    "hung": (3, {"hang": 2, "at": 4, "pauses": [3], "timeout": 3}),
    "failing": (3, {"leave": 2, "at": 4, "pauses": [3], "lost": False}),
    "losing": (3, {"leave": 1, "at": 4, "pauses": [3], "lost": True}),
    "too many": (2, {"spec": {"micro_batch": BATCH}}),
    "absent": (3, {"absent": [1], "timeout": 3}),
}
"""By name: how many ranks, and what they do."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the ranks of every plan told; three processes run all of them, since torch takes seconds to load."""
    folder = tmp_path_factory.mktemp("ranks")
    scenarios = []
    for (name, (size, plan)), port in zip(PLANS.items(), free_ports(len(PLANS)), strict=True):
        out = folder / name.replace(" ", "-")
        out.mkdir()
        whole = {"spec": {"micro_batch": 6}, "task": {}, **plan}
        if "resume" in plan:
            whole["resume"] = str(folder / plan["resume"] / "state.pt")
        scenarios.append({"size": size, "port": port, "out": str(out), "plan": whole})
    (folder / "plans.json").write_text(json.dumps(scenarios))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.chain.ranks_process"]
    ranks = [
        subprocess.Popen([*command, str(r), str(folder / "plans.json")], cwd=REPOSITORY, env=environment)
        for r in range(3)
    ]
    try:
        for process in ranks:
            assert process.wait(timeout=SECONDS) == 0
    finally:
        for process in ranks:
            process.kill()
    return {
        name: [
            json.loads((folder / name.replace(" ", "-") / f"{r}.json").read_text())
            for r in range(size)
            if r not in plan.get("absent", ())
        ]
        for name, (size, plan) in PLANS.items()
    }


def alone(spec: ChainSpec, norm: str = "batch") -> list[str]:
    return [tensors_sha256(e.tensors) for e in Chain(spec, task(norm)) if isinstance(e, Sample)]


# The tree


@settings(max_examples=100, deadline=None)
@given(leaves=st.integers(1, 40), size=st.integers(1, 12), seed=st.integers(0, 99))
def test_a_sum_has_the_same_bits_for_any_number_of_ranks(leaves: int, size: int, seed: int) -> None:
    size = min(size, leaves)
    values = torch.randn(leaves, 50, generator=torch.Generator().manual_seed(seed)) * 10.0 ** torch.arange(leaves)[
        :, None
    ].remainder(7)
    whole = (0, leaves)
    parts = {
        node: add_up(lambda m: values[m].clone(), node)
        for r in range(size)
        for node in cover(run_of(r, size, leaves), whole)
    }
    runs = [run_of(r, size, leaves) for r in range(size)]
    assert [m for a, b in runs for m in range(a, b)] == list(range(leaves))
    assert sorted(m for a, b in parts for m in range(a, b)) == list(range(leaves))
    summed = add_up(lambda m: values[m].clone(), whole)
    assert torch.equal(join(parts, whole), summed)
    assert torch.allclose(summed.double(), values.double().sum(0), rtol=1e-4, atol=1e-4 * float(values.abs().max()))
    assert max(len(cover(run, whole)) for run in runs) <= 2 * math.ceil(math.log2(leaves + 1))


# One process


def test_micro_batches_give_the_batchs_gradient() -> None:
    """Without normalisation or dropout the sum over pieces is the whole up to rounding, short last batches included."""
    for precision, close in (("fp64", 1e-11), ("fp32", 2e-4)):
        found = []
        for micro_batch in (None, 7):
            chain = Chain(chain_spec(micro_batch, norm="plain", precision=precision), task("plain"))
            losses = [e.loss for e in chain if isinstance(e, Progress)]
            found.append((torch.cat([p.detach().flatten() for p in chain.model.parameters()]), losses))
        (a, a_losses), (b, b_losses) = found
        assert torch.allclose(a, b, rtol=close, atol=close)
        assert a_losses == pytest.approx(b_losses, rel=max(close, 1e-6))


class Frozen(VariedDigits):
    """A network whose first layer does not learn."""

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        model = super().build_model(seed=seed, lanes=lanes)
        next(model.children()).requires_grad_(False)
        return model


def test_frozen_parameters_stay_where_they_are() -> None:
    chain = Chain(chain_spec(7, norm="plain", task=Frozen().spec()), Frozen())
    before = {name: p.detach().clone() for name, p in chain.model.named_parameters()}
    for _ in chain:
        pass
    moved = {name for name, p in chain.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name, p in chain.model.named_parameters() if p.requires_grad} != set(before)


def test_micro_batches_are_part_of_the_digest_and_none_leaves_it_as_it_was() -> None:
    assert chain_spec(None).digest != chain_spec(6).digest != chain_spec(8).digest
    assert "micro_batch" not in chain_spec(None).to_json()
    assert ChainSpec.from_json(chain_spec(6).to_json()) == chain_spec(6)
    for wrong in (0, BATCH + 1, 2.5):
        with refused("micro batch", str(wrong), str(BATCH)):
            ChainSpec.from_json({**chain_spec(6).to_json(), "micro_batch": wrong})


def test_dropout_differs_between_micro_batches_and_a_cut_chain_goes_on(tmp_path: Path) -> None:
    spec = chain_spec(6)
    straight = alone(spec)
    first = Chain(spec, task())
    first.advance(lambda: first.step == 7)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    torch.rand(3)  # the world goes on
    second = Chain(spec, task())
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [tensors_sha256(e.tensors) for e in second if isinstance(e, Sample)] == straight
    assert len(set(straight)) == 4 and straight != alone(chain_spec(12))


def test_batchnorm_follows_the_first_micro_batch() -> None:
    """Its running mean after a step is .9·0 + .1·(mean of the first 6 inputs of the layer)."""
    spec = chain_spec(6)
    made = task()
    chain = Chain(spec, made)
    weights = {n: t.clone() for n, t in chain.model.state_dict().items()}
    batch = chain.order(0)[0]
    inputs = made.raw()[made.divide(batch, 4)[0]]
    chain.advance(lambda: chain.step == 1)
    expected = 0.1 * torch.nn.functional.linear(inputs, weights["0.weight"], weights["0.bias"]).mean(0)
    assert torch.allclose(chain.model.state_dict()["1.running_mean"], expected, atol=1e-6)


# Several

Outcomes = dict[str, list[dict[str, Any]]]


@pytest.mark.parametrize("name", ["batchnorm", "batchnorm float64", "branch", "groupnorm", "float64", "two gradients"])
def test_two_ranks_with_a_micro_batch_each_are_one_with_two(outcomes: Outcomes, name: str) -> None:
    ranks, spec = outcomes[name], PLANS[name][1]["spec"]
    assert [t["error"] for t in ranks] == ["", ""]
    expected = alone(chain_spec(**spec), spec.get("norm", "batch"))
    assert len(expected) == 4 and ranks[0]["samples"] == expected
    if spec.get("norm") == "group":  # no running statistics, which are rank 0's
        assert ranks[1]["samples"] == expected


def test_three_ranks_that_are_interrupted_give_the_bytes_of_one_that_is_not(outcomes: Outcomes) -> None:
    assert [t["error"] for t in outcomes["first"] + outcomes["second"]] == [""] * 6
    assert all(t["pauses"] == [4, 10] for t in outcomes["first"])  # after the step during which rank 0 was asked
    assert outcomes["first"][0]["samples"] + outcomes["second"][0]["samples"] == alone(chain_spec(6))
    assert outcomes["fewer"][0]["samples"] == outcomes["second"][0]["samples"]  # another number of ranks goes on alike


def test_a_rank_whose_noise_is_another_is_named_at_the_next_pause(outcomes: Outcomes) -> None:
    assert [t["pauses"] for t in outcomes["unnoticed"]] == [[3, 14]] * 3
    for t in outcomes["spoilt"]:
        assert t["pauses"] == [3, 14] and t["error"].startswith("RankDiffers")
        assert "rank 1 in its parameters; rank 1 in its sampler's states; rank 1 in its noise" in t["error"]


def test_a_rank_that_does_not_come_is_named(outcomes: Outcomes) -> None:
    assert [t["error"].partition(": ")[0] for t in outcomes["absent"]] == ["RankMissing"] * 2
    assert outcomes["absent"][0]["error"].startswith("RankMissing: rank 0 of 3 waited in vain for rank 1: ")
    for rank in (0, 1):  # whoever gives up first takes the connections along, which the others notice first
        assert outcomes["hung"][rank]["pauses"] == [4]
        assert outcomes["hung"][rank]["error"].startswith(f"RankMissing: rank {rank} of 3 waited in vain for rank 2: ")


def test_what_a_rank_tells_before_it_leaves_is_heard_by_all(outcomes: Outcomes) -> None:
    """Its own error ends the chain; that of its machine is a loss, after which another one is tried."""
    assert [t["error"] for t in outcomes["failing"][:2]] == ["RankFailed: rank 2: its own trouble"] * 2
    assert [outcomes["losing"][r]["error"] for r in (0, 2)] == ["RankMissing: rank 1: its own trouble"] * 2
    assert outcomes["failing"][2]["error"] == outcomes["losing"][1]["error"] == "ValueError: its own trouble"


def test_the_interface_of_an_address_is_found() -> None:
    assert interface(None) is None and interface("203.0.113.7") is None
    assert interface("127.0.0.1") == ("lo" if sys.platform.startswith("linux") else None)


def test_more_ranks_than_micro_batches_are_refused(outcomes: Outcomes) -> None:
    for t in outcomes["too many"]:
        assert "workers_per_chain must be at most the micro-batches of a batch (1), got 2" in t["error"]
