"""Samplers under torch's data parallelism: whole copies are sampled, parts of parameters refused in one line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from raychains.samplers import KINDS, SGD, SGHMC, SGLD, AdamW
from tests.checks import refused
from tests.samplers.every_kind import build


@pytest.fixture(autouse=True, scope="module")
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    rendezvous: Path = tmp_path_factory.mktemp("group") / "rendezvous"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's deprecations
        dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{rendezvous}")
        yield
        dist.destroy_process_group()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def flattened(original: bool) -> nn.Module:
    return FullyShardedDataParallel(network(), use_orig_params=original, device_id=torch.device("cpu"))


def sharded() -> nn.Module:
    return fully_shard(network(), mesh=init_device_mesh("cpu", (1,)))


PARTS: list[Callable[[], nn.Module]] = [lambda: flattened(False), lambda: flattened(True), sharded]


@pytest.mark.parametrize("parts", PARTS, ids=["fsdp1", "fsdp1-original", "fsdp2"])
def test_parts_of_parameters_are_refused_by_all_that_draw_noise(parts: Callable[[], nn.Module]) -> None:
    model = parts()
    for kind in KINDS.keys() - {"sgd", "sgdm", "adamw"}:
        with refused("params", "whole on every rank", "DistributedDataParallel"):
            build(kind, model.parameters())


@pytest.mark.parametrize("parts", PARTS, ids=["fsdp1", "fsdp1-original", "fsdp2"])
@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_optimisers_that_move_each_number_by_itself_train_parts(kind: Any, parts: Callable[[], nn.Module]) -> None:
    found = []
    for model in (network(), parts()):
        optimizer = kind(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(5, 3)).square().mean().backward()
            optimizer.step()
        found.append(model(torch.ones(1, 3)).detach())
    assert torch.allclose(*found, atol=1e-6)


def test_whole_copies_are_sampled_as_without_ranks() -> None:
    found = []
    for model in (network(), DistributedDataParallel(network())):
        sampler = SGLD(model.parameters(), lr=0.1, num_data=10, seed=0)
        model(torch.ones(5, 3)).square().mean().backward()
        sampler.step()
        found.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    assert torch.equal(*found)


def test_an_optimizer_for_each_ranks_parameters_is_refused_but_for_those_without_noise() -> None:
    with refused("optimizer_class", "ZeroRedundancyOptimizer", "SGLD"):
        ZeroRedundancyOptimizer(network().parameters(), SGLD, lr=0.1, num_data=10, seed=0)
    ZeroRedundancyOptimizer(network().parameters(), AdamW, lr=0.1)


def test_torchs_distributed_checkpoint_is_refused_since_it_loses_the_noise(tmp_path: Path) -> None:
    model = network()
    sampler = SGHMC(model.parameters(), lr=0.1, momentum=0.9, num_data=10)
    with refused("SGHMC", "'sampler'", "torch.save"):
        get_optimizer_state_dict(model, sampler)
    with refused("SGHMC", "'sampler'", "torch.save"):
        checkpoint.save({"sampler": sampler}, checkpoint_id=tmp_path)
    other = get_optimizer_state_dict(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    with refused("SGHMC", "'sampler'"):
        set_optimizer_state_dict(model, sampler, other)
