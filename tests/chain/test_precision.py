"""How a chain executes: half precision around the network alone, compiled like eager, no waiting inside an epoch."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from raychains import samplers, tasks
from raychains.api import plans
from raychains.chain import precision
from raychains.chain.chain import Chain
from raychains.chain.divergence import Diverged
from raychains.chain.divergence_replay import diagnose
from raychains.chain.random_streams import stream_seed
from raychains.core.config import Run
from raychains.core.sample import Progress, Sample
from raychains.data.source import EpochOrder
from raychains.planning import methods
from raychains.schedules import Cyclical
from raychains.store.codec import decode, encode
from raychains.tasks.base import seeded
from tests.chain.chain_cases import HALF, SAMPLERS, resumed, run, samples, spec, temperature_of
from tests.chain.chain_tasks import VariedDigits
from tests.checks import refused
from tests.spread import witnessed


def largest_difference(one: list[Sample], other: list[Sample]) -> float:
    assert len(one) == len(other) > 0 and one[0].tensors.keys() == other[0].tensors.keys()
    return max(
        float((a.tensors[n].double() - b.tensors[n].double()).abs().max())
        for a, b in zip(one, other, strict=True)
        for n in a.tensors
    )


# Half precision


class Spied(VariedDigits):
    """Notes what arithmetic the network and the loss see."""

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        self.inside: list[torch.dtype] = []
        hook = model[0].register_forward_hook(lambda module, x, out: self.inside.append(out.dtype))
        logits = model(self.inputs(batch))
        hook.remove()
        self.logits, self.autocast = logits.dtype, torch.is_autocast_enabled("cpu")
        loss = F.cross_entropy(logits, self.source.targets[batch])
        loss.backward()
        return loss.detach()


def test_bf16_is_the_arithmetic_of_the_network_alone() -> None:
    task = Spied()
    chain = Chain(spec("digits", "sghmc", task=VariedDigits().spec(), precision="bf16"), task)
    run(chain, until=3)
    assert task.inside == [torch.bfloat16] and task.logits is torch.float32 and not task.autocast
    assert (
        {p.dtype for p in chain.model.parameters()}
        == {p.grad.dtype for p in chain.model.parameters()}
        == {torch.float32}
    )  # type: ignore[union-attr]
    states = chain.sampler.state_dict()["state"].values()
    assert {t.dtype for state in states for t in state.values()} == {torch.float32}


def test_a_bf16_chain_equals_a_plain_loop_under_autocast_bit_for_bit() -> None:
    schedule = Cyclical(steps=2 * HALF, lr=0.3, cycles=2, exploration=0.25, temperature=0.0)
    chain = Chain(spec("digits", "sgd", precision="bf16", schedule=schedule.part()))
    model = chain.task.build_model(seed=0, lanes=1)
    model.load_state_dict(chain.model.state_dict())
    optimizer = samplers.build(chain.spec.sampler, model.parameters(), lr=0.3, temperature=0.0, seed=0)
    task: Any = chain.task
    for k in range(2 * HALF):
        batch = chain.task.epoch(seed=stream_seed(chain.spec, "order", k // 5), batch_size=20)[k % 5]
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(task.inputs(batch))
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), task.source.targets[batch]).backward()
        optimizer.param_groups[0]["lr"] = schedule.at(k + 1).lr
        optimizer.step()
    run(chain)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), chain.model.parameters(), strict=True))


@pytest.mark.parametrize("sampler", ["sghmc", "sam"])
def test_bf16_is_near_fp32_and_exact_on_resume(sampler: str) -> None:
    made = spec("digits", sampler, precision="bf16", task=VariedDigits(batchnorm=True, dropout=0.2).spec())
    whole = resumed(Chain(made) for _ in range(3))
    half = [e for e in whole if isinstance(e, Sample)]
    assert all(t.dtype is not torch.bfloat16 for s in half for t in s.tensors.values())
    smooth = spec("digits", sampler, precision="bf16")  # dropout's masks differ between the two
    half, full = samples(Chain(smooth)), samples(Chain(dataclasses.replace(smooth, precision="fp32")))
    assert 0 < largest_difference(half, full) < 0.1  # 24 steps of a relative error of 2⁻⁹ each


def test_single_precision_of_what_networks_return() -> None:
    half = torch.ones(2, dtype=torch.bfloat16)
    out = precision._single({"a": [half, (half, 3)], "b": torch.ones(1, dtype=torch.int64), "c": None})
    assert out["a"][0].dtype is out["a"][1][0].dtype is torch.float32 and out["a"][1][1] == 3
    assert out["b"].dtype is torch.int64 and out["c"] is None


# What cannot be


@pytest.mark.parametrize("change", [{"precision": "tf32"}, {"compile": "cuda-graphs", "exact": False}], ids=str)
def test_a_cpu_refuses_what_only_gpus_have_in_one_line(change: dict[str, Any]) -> None:
    with refused(*list(change)[:1], "GPU"):
        Chain(spec("digits", "sgld", **change))


def test_a_density_has_no_network_to_run_otherwise() -> None:
    with refused("precision", "density"):
        Chain(spec("mixture", "sgld", precision="bf16"))
    with refused("precision", "density", "mixture25"):
        methods.resolve(Run(precision="bf16"), task=tasks.make("mixture25"), sampler="sgld")
    with refused("compile", "density", "pack"):
        Chain(spec("mixture", "sgld", compile="default", exact=False))


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with refused("compile", "g++", "compiler"):
        Chain(spec("digits", "sgld", compile="default", exact=False))


# A GPU's switches, which a machine without one has as well


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kind", ["fp32", "tf32", "bf16", "fp64"])
def test_switches_are_the_specs_while_stepping_and_the_processes_own_behind(kind: Any, exact: bool) -> None:
    made = spec("digits", "sgld", precision=kind, exact=exact)

    def now() -> list[Any]:
        cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return [cuda.allow_tf32, cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled(), cudnn.deterministic,
                cudnn.benchmark]  # fmt: skip

    before = now()
    with pytest.raises(KeyboardInterrupt), precision._switches(made):
        assert now() == [kind == "tf32", kind == "tf32", exact, exact, not exact]
        raise KeyboardInterrupt
    assert now() == before


def test_a_chain_on_a_cpu_leaves_every_switch_alone() -> None:
    class Looking(VariedDigits):
        def backward(self, *arguments: Any) -> Tensor | None:
            self.seen = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
            return super().backward(*arguments)

    task = Looking()
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    run(Chain(spec("digits", "sgld", task=VariedDigits().spec(), exact=False), task), until=2)
    assert task.seen == before


# Compiled


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.compile as always, but with kernels that need no compiler: a second each instead of ten."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


COMPILED: dict[str, Any] = {"compile": "default", "exact": False}


def test_a_compiled_chain_equals_the_eager_one_to_rounding() -> None:
    fields: dict[str, Any] = {"batch_size": 30, "steps_per_epoch": 3}  # one shape, compiled once
    eager, compiled = Chain(spec("digits", "sghmc", **fields)), Chain(spec("digits", "sghmc", **fields, **COMPILED))
    names, graphs = list(eager.model.state_dict()), _graphs()
    assert largest_difference(samples(compiled), samples(eager)) < 1e-4
    assert _graphs() > graphs, "nothing was compiled"
    assert list(compiled.model.state_dict()) == names == list(dict(compiled.state_dict()["model"]))


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("sampler", witnessed(["sghmc", "sam", "bsam", "emcmc"], "sghmc", "sam"))
def test_closures_dropout_batchnorm_and_resume_work_compiled(sampler: str, traced: None) -> None:
    task = VariedDigits(batchnorm=True, dropout=0.2)
    change: dict[str, Any] = {"task": task.spec(), "batch_size": 30, "steps_per_epoch": 3}
    made = spec("digits", sampler, **change, **COMPILED)
    whole = resumed(Chain(made) for _ in range(3))
    assert _graphs() > 0
    eager = samples(Chain(spec("digits", sampler, **change)))
    assert largest_difference([e for e in whole if isinstance(e, Sample)], eager) < 1e-4


def test_a_divergence_of_a_compiled_chain_is_replayed_to_its_step(traced: None) -> None:
    schedule = Cyclical(steps=2 * HALF, lr=1e6, cycles=1, exploration=0.0)
    found = []
    for change in ({}, COMPILED):
        made = spec("digits", "sghmc", schedule=schedule.part(), batch_size=30, steps_per_epoch=3, **change)
        with pytest.raises(Diverged) as caught:
            run(Chain(made))
        found.append(diagnose(made, None, caught.value))
    assert found[1].kind is not None and (found[0].step, found[0].kind) == (found[1].step, found[1].kind)


def test_what_torch_cannot_compile_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such kernel\nand much more")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    torch.compiler.reset()
    with refused("compile", "none"):
        run(Chain(spec("digits", "sghmc", **COMPILED)))


# The plan and the options


def test_options_become_fields_of_the_spec_and_the_plan_says_what_is_not_exact() -> None:
    from raychains.report import run_summary

    planned = {
        name: plans.run(Run(epochs=40, chains=1, **change))  # type: ignore[arg-type]
        for name, change in {
            "plain": {},
            "fast": {"fast": True},
            "bf16": {"precision": "bf16"},
            "compiled": {"compile": "default"},
        }.items()
    }
    specs = {name: next(iter(p.comparison.chains().values())) for name, p in planned.items()}
    assert {n: (s.exact, s.compile, s.precision) for n, s in specs.items()} == {
        "plain": (True, "none", "fp32"), "fast": (False, "none", "fp32"), "bf16": (True, "none", "bf16"),
        "compiled": (False, "default", "fp32"),
    }  # fmt: skip
    assert len({s.digest for s in specs.values()}) == 4
    said = {name: [n for n in p.notes if "not exact" in n] for name, p in planned.items()}
    assert [name for name, notes in said.items() if notes] == ["fast", "compiled"]
    assert "compiled" in said["compiled"][0] and "same law" in said["fast"][0]
    shown = {name: run_summary.execution(p.comparison) for name, p in planned.items()}
    assert shown == {"plain": [], "bf16": ["precision bf16"], **{n: said[n] for n in ("fast", "compiled")}}
    with refused("precision", "fp16"):
        plans.run(Run(epochs=40, precision="fp16"))


# No waiting inside an epoch


WAITING = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "is_nonzero", "_unique2", "unique_dim", "item"}
"""Operators that give Python or a shape a number that a GPU must compute first."""


class Watch(TorchDispatchMode):
    """Counts what a GPU would be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        masked = name.startswith("index") and any(
            isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8)
            for a in args if isinstance(a, list | tuple) for i in a
        )  # fmt: skip
        if name in WAITING or masked:
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_chain_waits_for_its_device_once_per_epoch_for_the_loss(sampler: str) -> None:
    schedule = Cyclical(
        steps=20, lr=0.1, cycles=1, exploration=0.25, samples_per_cycle=1,
        temperature=temperature_of(sampler),
    )  # fmt: skip
    made = spec("digits", sampler, schedule=schedule.part(), steps=20, task=VariedDigits(dropout=0.2).spec())
    chain = Chain(made)
    run(chain, until=2)  # states are made
    with Watch() as watch:
        told = run(chain, until=15)
    assert [e.step for e in told if isinstance(e, Progress)] == [5, 10, 15] and len(told) == 3
    assert sum(watch.calls.values()) == 3, watch.calls


def test_each_epochs_order_goes_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    to = EpochOrder.to
    monkeypatch.setattr(EpochOrder, "to", lambda self, device: moved.append(device) or to(self, device))
    chain = Chain(spec("digits", "sghmc"))
    run(chain)
    assert moved == [torch.device("cpu")] * 5  # 24 steps of five an epoch


# Memory format


class Convolved(VariedDigits):
    """Digits as images under a small convolutional network, in a memory format of choice."""

    def __init__(self, last: bool = True) -> None:
        super().__init__()
        self._own = {"last": last}
        self.memory_format = torch.channels_last if last else torch.contiguous_format

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            return nn.Sequential(
                nn.Conv2d(3, 8, 3),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3, stride=2),
                nn.Flatten(),
                nn.Linear(32, 10),
            )

    def augmented(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs.view(-1, 1, 8, 8).expand(-1, 3, -1, -1).contiguous()

    def inputs(self, batch: Any) -> Tensor:
        return self.augmented(super().inputs(batch), torch.Generator())


@pytest.mark.parametrize("sampler", ["sghmc", "sgnht", "emcmc"])
def test_channels_last_lives_in_the_chain_alone_and_is_exact_on_resume(sampler: str) -> None:
    made = spec("digits", sampler, task=Convolved().spec())
    chains = straight, *_ = [Chain(made) for _ in range(3)]
    seen = []
    straight.model[0].register_forward_pre_hook(lambda module, x: seen.append(x[0].stride()))
    whole = resumed(chains)
    for chain in chains:
        for p in chain.model.parameters():
            if p.dim() == 4:
                assert p.is_contiguous(memory_format=torch.channels_last)
                same = [t for t in chain.sampler.state[p].values() if isinstance(t, Tensor) and t.shape == p.shape]
                assert same and all(t.stride() == p.stride() for t in same)
    assert set(seen) == {(192, 1, 24, 3)}
    kept = [e for e in whole if isinstance(e, Sample)]
    tensors, _ = decode(encode(kept[-1].tensors, {}))
    assert all(t.is_contiguous() for t in tensors.values())
    Convolved(last=False).build_model(seed=0, lanes=1).load_state_dict(tensors)
    plain = samples(Chain(spec("digits", sampler, task=Convolved(last=False).spec())))
    assert largest_difference(kept, plain) < 1e-2  # of the same noise, with sums in another order


def test_the_process_wide_environment_is_left_alone_without_a_gpu() -> None:
    before = dict(os.environ)
    run(Chain(spec("digits", "sgld")), until=1)
    assert dict(os.environ) == before
