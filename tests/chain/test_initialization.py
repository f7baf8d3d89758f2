"""Warm starts and sampling of some parameters: formats, refusals, exact resume, and the last layer's exact
posterior."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from raychains import tasks
from raychains.chain import initialization
from raychains.chain.chain import Chain
from raychains.chain.divergence import Diverged
from raychains.chain.divergence_replay import diagnose
from raychains.chain.sample_index import expected_samples
from raychains.core.config import Run
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.planning import methods
from raychains.schedules import Cyclical
from raychains.store import Corrupt, Storage, initial_states
from tests.chain.chain_cases import HALF, SAMPLERS, WITH_LAYERS, resumed, run, samples, spec, stored, temperature_of
from tests.chain.chain_tasks import VariedDigits
from tests.checks import refused
from tests.spread import spread

TASK = VariedDigits(batchnorm=True, dropout=0.2)
HEAD = ("4.weight", "4.bias")


def start(seed: int = 5, task: VariedDigits = TASK) -> dict[str, Tensor]:
    """A network of the task with statistics of its own."""
    tensors = task.build_model(seed=seed, lanes=1).state_dict()
    return {n: t + 0.5 if "running" in n else t for n, t in tensors.items()}


def warm(sampler: str = "sghmc", tensors: Mapping[str, Tensor] | None = None, **change: Any) -> ChainSpec:
    tensors = start() if tensors is None else tensors
    return spec("digits", sampler, **{"task": TASK.spec(), "start": tensors_sha256(tensors), **change})


# Files


def written(folder: Path) -> dict[str, Path]:
    """The same network in every form that people have it in."""
    tensors = start()
    state = dict(tensors)
    forms: dict[str, Any] = {
        "plain.pt": state,
        "lightning.ckpt": {"epoch": 3, "state_dict": state, "optimizer": {"lr": 0.1}},
        "model.pth": {"model": state, "step": torch.tensor(7)},
        "ddp.pt": {f"module.{n}": t for n, t in state.items()},
        "compiled.pt": {"model_state_dict": {f"module._orig_mod.{n}": t for n, t in state.items()}},
        "reversed.bin": dict(reversed(state.items())),
    }
    for name, form in forms.items():
        torch.save(form, folder / name)
    torch.save(state, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    save_file(state, folder / "plain.safetensors")
    save_file({f"module.{n}": t for n, t in state.items()}, folder / "ddp.safetensors")
    return {p.name: p for p in folder.iterdir()}


def resolved(path: Path | str, *patterns: str) -> methods.Method:
    options = Run(epochs=40, init_from=str(path), sample_only=patterns)
    return methods.resolve(options, task=TASK, sampler="sghmc")


def test_the_start_is_the_content_whatever_file_it_comes_in(tmp_path: Path) -> None:
    found = {name: resolved(path) for name, path in written(tmp_path).items()}
    assert len(found) == 9
    assert {m.spec.start for m in found.values()} == {tensors_sha256(start())}
    assert len({m.spec.digest for m in found.values()}) == 1
    prefixed = {name for name, m in found.items() if "without" in m.start.notes[0]}
    assert prefixed == {"ddp.pt", "compiled.pt", "ddp.safetensors"}
    assert "'module._orig_mod.'" in found["compiled.pt"].start.notes[0]


def test_other_content_is_another_chain(tmp_path: Path) -> None:
    torch.save(start(seed=6), tmp_path / "other.pt")
    torch.save(start(), tmp_path / "one.pt")
    assert resolved(tmp_path / "other.pt").spec.digest != resolved(tmp_path / "one.pt").spec.digest
    torch.save(start(seed=6), tmp_path / "one.pt")  # read anew when the file changed
    assert resolved(tmp_path / "one.pt").spec.digest == resolved(tmp_path / "other.pt").spec.digest


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"4.weight": torch.zeros(7, 8)}, ("'4.weight'", "[7, 8]", "[10, 8]")),
        ({"0.bias": torch.zeros(3), "4.bias": torch.zeros(3)}, ("'0.bias'", "[3]", "[8]")),
        ({"0.bias": None}, ("lacks", "'0.bias'", "[8]")),
        ({"5.extra": torch.zeros(2)}, ("'5.extra'", "[2]")),
    ],
    ids=["shape", "first of two", "missing", "extra"],
)
def test_what_does_not_fit_is_one_line_with_the_first_difference(
    edit: dict[str, Tensor | None], words: tuple[str, ...], tmp_path: Path
) -> None:
    changed = {n: t for n, t in {**start(), **edit}.items() if t is not None}
    torch.save(changed, tmp_path / "changed.pt")
    with refused("init_from", *words):
        resolved(tmp_path / "changed.pt")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_start_that_is_not_finite_is_refused_with_its_tensor_and_how_many(value: float, tmp_path: Path) -> None:
    broken = {n: t.clone() for n, t in start().items()}
    broken["4.weight"][:2, :3] = value
    torch.save(broken, tmp_path / "broken.pt")
    for strict in (True, False):
        with refused("init_from must hold finite numbers", "broken.pt", "6 of 80 in '4.weight'"):
            options = Run(epochs=40, init_from=str(tmp_path / "broken.pt"), init_strict=strict)
            methods.resolve(options, task=TASK, sampler="sghmc")


def test_tied_tensors_start_at_the_one_that_the_file_has() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    given = {"0.weight": torch.full((5, 3), 7.0)}
    whole, left_out, kept = initialization.overlapping(given, model, "")
    model.load_state_dict(whole)
    assert torch.equal(model[1].weight.detach(), given["0.weight"]) and left_out == kept == []


class Evil:
    """Makes the file ``mark`` in the current folder when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("mark"),))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("whole",)),
        (b"no tensors at all", ("whole",)),
        ({"weight": 3}, ("dense tensors", "'weight'")),
        ([1, 2], ("state dict", "list")),
        ({}, ("state dict",)),
        ({"weight": Evil()}, ("tensors alone", "unpickled")),
        ({"weight": torch.eye(2).to_sparse()}, ("dense tensors", "'weight'")),
    ],
    ids=["empty", "text", "number", "list", "nothing", "evil", "sparse"],
)
def test_a_file_of_something_else_is_one_line_and_nothing_is_unpickled(
    content: Any, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with refused("init_from", *words):
        initialization.read(str(path))
    assert not Path("mark").exists()


def test_torn_and_missing_files_are_one_line(tmp_path: Path) -> None:
    for name, path in written(tmp_path).items():
        path.write_bytes(path.read_bytes()[:-100])
        with refused("init_from", "whole"):
            initialization.read(str(path))
        assert name
    for missing in (tmp_path / "none.pt", tmp_path):
        with refused("init_from", "file"):
            initialization.read(str(missing))


# Chains from a start


def test_chains_start_there_and_differ_by_their_noise() -> None:
    tensors = start()
    chains = [Chain(warm(chain=c), start=tensors) for c in (0, 1)]
    for chain in chains:
        assert all(torch.equal(t, tensors[n]) for n, t in chain.model.state_dict().items())
    first, second = (samples(chain)[-1].tensors for chain in chains)
    assert any(not torch.equal(first[n], second[n]) for n in first)
    assert all(torch.equal(t, tensors[n]) for n, t in start().items()), "the start itself is not stepped"


def test_a_start_that_is_missing_or_another_is_one_line() -> None:
    with refused("start", "given"):
        Chain(warm())
    with refused("start", "sha256"):
        Chain(warm(), start=start(seed=6))
    with refused("start", "left out"):
        Chain(spec("digits", "sghmc"), start=start())
    wrong = {"theta": torch.zeros(2)}
    with refused("init_from", "'0.weight'"):
        Chain(warm(tensors=wrong), start=wrong)


@pytest.mark.parametrize(
    ("sampler", "patterns"),
    spread([s for s in SAMPLERS if s not in WITH_LAYERS], [(), ("4.*",), ("1.*", "4.bias")]),
)  # part of the last layer is left out
def test_warm_and_partial_chains_are_exact_on_resume(sampler: str, patterns: tuple[str, ...]) -> None:
    schedule = Cyclical(steps=2 * HALF, lr=0.02, cycles=2, exploration=0.25, temperature=temperature_of(sampler))
    made = warm(sampler, sample_only=patterns, schedule=schedule.part())
    whole = resumed(Chain(made, start=start()) for _ in range(3))
    assert sum(isinstance(e, Sample) for e in whole) == expected_samples(made)


# Some parameters only


def test_only_what_is_sampled_moves_and_is_stored() -> None:
    made, tensors = warm(sample_only=("4.*",)), start()
    chain = Chain(made, start=tensors)
    before = {n: t.clone() for n, t in chain.model.state_dict().items()}
    taken = samples(chain)
    after = chain.model.state_dict()
    assert {n for n in after if not torch.equal(before[n], after[n])} == set(HEAD)
    assert all(tuple(s.tensors) == HEAD and all(torch.equal(s.tensors[n], after[n]) for n in HEAD) for s in taken[-1:])
    assert all(p.grad is None and not p.requires_grad for n, p in chain.model.named_parameters() if n not in HEAD)
    assert tuple(chain.state_dict()["model"]) == HEAD and len(chain.sampler.state) == 2


def test_buffers_of_sampled_layers_are_theirs() -> None:
    """A sampled BatchNorm layer goes on learning its statistics; a frozen one does not."""
    chain = Chain(warm(sample_only=("1.weight",)), start=start())
    taken = samples(chain)
    assert set(taken[-1].tensors) == {"1.weight", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert not torch.equal(taken[-1].tensors["1.running_mean"], start()["1.running_mean"])
    assert torch.equal(chain.model.state_dict()["1.bias"], start()["1.bias"])
    modes = {name: module.training for name, module in chain.model.named_modules() if name}
    assert modes == {"0": False, "1": True, "2": False, "3": False, "4": False}


def test_statistics_of_an_anchor_are_estimated_for_sampled_batchnorm_alone() -> None:
    with refused("batchnorm", "reestimate"):
        Chain(warm("emcmc", sample_only=("1.*",), batchnorm="keep"), start=start())
    head = samples(Chain(warm("emcmc", sample_only=("4.*",), batchnorm="keep"), start=start()))
    assert {s.meta.variable for s in head} == {"theta", "anchor"} and all(tuple(s.tensors) == HEAD for s in head)
    anchors = [
        s for s in samples(Chain(warm("emcmc", sample_only=("1.*",)), start=start())) if s.meta.variable == "anchor"
    ]
    model = TASK.build_model(seed=0, lanes=1)
    model.load_state_dict(
        {**start(), **anchors[-1].tensors, "1.running_mean": torch.zeros(8), "1.running_var": torch.ones(8)}
    )
    x = torch.nn.functional.linear(TASK.raw(), model.state_dict()["0.weight"], model.state_dict()["0.bias"])
    order = TASK.epoch(seed=0, batch_size=20)
    means = torch.stack([x[order[i]].mean(dim=0) for i in range(len(order))]).mean(dim=0)
    torch.testing.assert_close(anchors[-1].tensors["1.running_mean"], means, atol=1e-5, rtol=1e-5)


def test_a_pattern_must_match_and_needs_a_start(tmp_path: Path) -> None:
    torch.save(start(), tmp_path / "start.pt")
    with refused("sample_only", "'fc.*'", "0.weight", "4.bias"):
        resolved(tmp_path / "start.pt", "4.*", "fc.*")
    with refused("sample_only", "init_from"):
        methods.resolve(Run(epochs=40, sample_only=("4.*",)), task=TASK, sampler="sghmc")
    theta = tmp_path / "theta.pt"
    torch.save({"theta": torch.zeros(1, 2)}, theta)
    with refused("sample_only", "density"):
        options = Run(init_from=str(theta), sample_only=("theta",), lanes=1)
        methods.resolve(options, task=tasks.make("mixture25"), sampler="sgld")
    one, other = resolved(tmp_path / "start.pt", "4.*", "1.*"), resolved(tmp_path / "start.pt", "1.*", "4.*", "1.*")
    assert one.spec.digest == other.spec.digest != resolved(tmp_path / "start.pt").spec.digest
    assert "106 of 626 parameters" in one.start.notes[1]


def test_a_density_starts_where_it_is_told(tmp_path: Path) -> None:
    theta = {"theta": torch.tensor([[3.0, -1.0], [0.0, 2.0], [4.0, 4.0]])}
    torch.save(theta, tmp_path / "theta.pt")
    options = Run(init_from=str(tmp_path / "theta.pt"), lanes=3, repeats=3, steps=300)
    made = methods.resolve(options, task=tasks.make("mixture25"), sampler="sgld")
    chain = Chain(made.spec, start=made.start.tensors)
    assert torch.equal(chain.model.state_dict()["theta"], theta["theta"])


def test_a_divergence_of_a_partial_chain_is_traced_to_its_step() -> None:
    schedule = Cyclical(steps=2 * HALF, lr=1e12, cycles=1, exploration=0.0)
    made = warm(sample_only=("4.*",), schedule=schedule.part())
    chain = Chain(made, start=start())
    run(chain, until=1)
    state = stored(chain.state_dict())
    with pytest.raises(Diverged) as caught:
        run(chain)
    whole = diagnose(made, None, caught.value, start=start())
    later = diagnose(made, state, caught.value, start=start())
    assert whole.kind is not None and (whole.kind, whole.step, whole.tensor) == (later.kind, later.step, later.tensor)
    scale = torch.cat([start()[n].flatten() for n in HEAD]).square().mean().sqrt()
    assert whole.start_scale == pytest.approx(float(scale), rel=1e-5)
    with refused("start", "given"):
        diagnose(made, None, caught.value)


# In the store


def test_a_start_is_published_once_and_read_by_its_content(tmp_path: Path) -> None:
    root, tensors = Storage(str(tmp_path)), start()
    digest = initial_states.publish(root, tensors)
    assert digest == tensors_sha256(tensors)
    file = tmp_path / initial_states.file_of(digest)
    assert file.name == f"{digest}.safetensors"
    found = initial_states.read(root, digest)
    assert found.keys() == tensors.keys() and all(torch.equal(found[n], t) for n, t in tensors.items())
    before = file.stat().st_mtime_ns
    assert initial_states.publish(root, {n: t.clone() for n, t in tensors.items()}) == digest
    assert file.stat().st_mtime_ns == before and len(list(file.parent.iterdir())) == 1
    assert resolved(file).spec.start == digest, "the store's copy is a file to start from"


def test_a_start_that_is_gone_torn_or_another_is_refused_and_written_anew(tmp_path: Path) -> None:
    root = Storage(str(tmp_path))
    digest = initial_states.publish(root, start())
    file = tmp_path / initial_states.file_of(digest)
    data = file.read_bytes()
    for damaged in (data[:-5], data[:-1] + bytes([data[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(Corrupt, match=digest[:12]):
            initial_states.read(root, digest)
        initial_states.publish(root, start())
        assert file.read_bytes() == data
    other = initial_states.publish(root, start(seed=6))
    (tmp_path / initial_states.file_of(other)).write_bytes(data)
    with pytest.raises(Corrupt, match="other tensors"):
        initial_states.read(root, other)
    file.unlink()
    with refused("start", digest[:12]):
        initial_states.read(root, digest)


def test_partial_samples_are_completed_from_the_start(tmp_path: Path) -> None:
    root, tensors = Storage(str(tmp_path)), start()
    made = warm(sample_only=("4.*",))
    initial_states.publish(root, tensors)
    sample = samples(Chain(made, start=tensors))[-1].tensors
    complete = initial_states.Completion(root)
    whole = complete(sample, initial_states.needed(made))
    TASK.build_model(seed=0, lanes=1).load_state_dict(whole)
    assert all(torch.equal(whole[n], sample.get(n, tensors[n])) for n in tensors)
    (tmp_path / initial_states.file_of(str(made.start))).unlink()
    assert complete(sample, initial_states.needed(made)).keys() == whole.keys(), "read once"
    assert initial_states.needed(dataclasses.replace(made, sample_only=())) is None
    assert complete(sample, None) == dict(sample)


# The command line


@pytest.mark.parametrize("given", [["4.*"], ["4.weight", "1.*"]], ids=str)
def test_the_command_line_takes_several_patterns(given: Sequence[str]) -> None:
    from raychains.cli import parse

    options = parse("run", ["--init-from", "f.pt", "--sample-only", *given, "--precision", "bf16", "--fast"])
    assert options.sample_only == tuple(given) and options.init_from == "f.pt"
    assert options.precision == "bf16" and options.fast and options.compile == "none"
