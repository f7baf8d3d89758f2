"""The state of every registered kind survives memory, torch's file and a checkpoint's, and continues bit for bit."""

from __future__ import annotations

import copy
import io
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.samplers import Sampler
from raychains.store.codec import decode, encode, flatten, unflatten
from tests.checks import refused
from tests.samplers.every_kind import CASES, IDS, everything, same_bits, steps, two_groups
from tests.spread import spread


def by_torch_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def by_checkpoint(state: Any) -> Any:
    """As chains are stored: tensors and JSON in one safetensors file."""
    tensors, tree = flatten(state)
    loaded, description = decode(encode(tensors, {"state": tree}))
    return unflatten(loaded, description["state"])


ROUTES: dict[str, Callable[[Any], Any]] = {"copy": copy.deepcopy, "torch": by_torch_file, "checkpoint": by_checkpoint}
DTYPES = [torch.bfloat16, torch.float32, torch.float64]
WAYS = {f"{dtype}-{name}": (dtype, route) for dtype in DTYPES for name, route in ROUTES.items()}
NAMED = dict(zip(IDS, CASES, strict=True))
BEFORE, AFTER = 5, 17
"""The break lies within an inner loop and before pSGLD's freezing; the end is behind both."""


def parameters(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes: list[tuple[int, ...]] = [(4, 3), (), (5,)]
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def interrupted(kind: str, own: dict[str, Any], dtype: torch.dtype) -> tuple[Sampler, list[Tensor]]:
    sampler = two_groups(kind, parameters(dtype), seed=3, **own)
    steps(sampler, BEFORE)
    return sampler, [p.detach().clone() for p in sampler.parameters()]


def fresh(kind: str, own: dict[str, Any], values: list[Tensor]) -> Sampler:
    """Over the same values, with another seed, N and lr, which the state is to bring."""
    return two_groups(kind, [v.clone().requires_grad_() for v in values], seed=99, num_data=1, lr=0.5, **own)


@pytest.mark.parametrize(("case", "way"), spread(NAMED, WAYS))
def test_state_continues_bit_for_bit(
    case: tuple[str, dict[str, Any]], way: tuple[torch.dtype, Callable[[Any], Any]]
) -> None:
    (kind, own), (dtype, route) = case, way
    straight = two_groups(kind, parameters(dtype), seed=3, **own)
    steps(straight, BEFORE + AFTER)

    first, values = interrupted(kind, own, dtype)
    second = fresh(kind, own, values)
    second.load_state_dict(route(first.state_dict()))
    assert same_bits(everything(first), everything(second)), "draws and states as they were"
    steps(second, AFTER, start=BEFORE)
    assert same_bits(everything(straight), everything(second))
    assert all(bool(torch.isfinite(p).all()) for p in second.parameters())


@pytest.mark.parametrize(
    ("case", "route"), spread(NAMED, {"copy": copy.deepcopy, "pickle": lambda s: pickle.loads(pickle.dumps(s))})
)
def test_a_copy_continues_bit_for_bit(case: tuple[str, dict[str, Any]], route: Callable[[Any], Any]) -> None:
    kind, own = case
    first, _ = interrupted(kind, own, torch.float32)
    torch.optim.lr_scheduler.ConstantLR(first, factor=1.0)  # torch's schedulers wrap the step of their optimizer
    second = route(first)
    for sampler in (first, second):
        steps(sampler, AFTER, start=BEFORE)
    assert same_bits(everything(first), everything(second))
    assert not {p.data_ptr() for p in first.parameters()} & {p.data_ptr() for p in second.parameters()}


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_every_state_decides_the_draws(kind: str, own: dict[str, Any]) -> None:
    """So that the test above would notice one that is lost: each is altered in turn, and where the noise stands."""
    first, values = interrupted(kind, own, torch.float64)
    saved = first.state_dict()
    whole = continued(fresh(kind, own, values), saved)
    names = {n for s in saved["state"].values() for n in s}
    if kind == "psgld" and not own:
        names.remove("updates")  # counts towards freezing, which this one never does
    for name in names:
        altered = copy.deepcopy(saved)
        for s in altered["state"].values():
            if name in s:
                s[name] = torch.full_like(s[name], 0.5) if isinstance(s[name], Tensor) else s[name] + 1
        assert not same_bits(whole, continued(fresh(kind, own, values), altered)), f"{name} is not used"
    if saved["sampler"]["positions"]:
        altered = copy.deepcopy(saved)
        altered["sampler"]["positions"]["float64"] += 1
        assert not same_bits(whole, continued(fresh(kind, own, values), altered))


def continued(sampler: Sampler, state: Any) -> list[Tensor]:
    """Draws after the state is loaded and some steps are made."""
    sampler.load_state_dict(copy.deepcopy(state))
    steps(sampler, AFTER, start=BEFORE)
    return [p.detach() for _, ps in sampler.draws() for p in ps]


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_drawing_moves_nothing_and_can_be_repeated(kind: str, own: dict[str, Any]) -> None:
    quiet, busy = (interrupted(kind, own, torch.float64)[0] for _ in range(2))
    one, two = ([p.clone() for _, ps in busy.draws() for p in ps] for _ in range(2))
    assert same_bits(one, two)
    for sampler in (quiet, busy):
        steps(sampler, AFTER, start=BEFORE)
    assert same_bits(everything(quiet), everything(busy))


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_a_kept_step_yields_as_many_draws_of_each_variable_as_are_counted(kind: str, own: dict[str, Any]) -> None:
    sampler, _ = interrupted(kind, own, torch.float32)
    assert sampler.variables(own) == Counter(name for name, _ in sampler.draws())


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_states_of_bf16_parameters_are_in_single_precision(kind: str, own: dict[str, Any]) -> None:
    sampler, _ = interrupted(kind, own, torch.bfloat16)
    states = [t for s in sampler.state.values() for t in s.values() if isinstance(t, Tensor)]
    assert all(t.dtype == torch.float32 for t in states)
    assert all(p.dtype == torch.bfloat16 for p in sampler.parameters())
    assert all(p.dtype == torch.bfloat16 for _, ps in sampler.draws() for p in ps)


@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_a_state_before_the_first_step_continues_too(kind: str, own: dict[str, Any]) -> None:
    straight = two_groups(kind, parameters(torch.float32), seed=3, **own)
    other = two_groups(kind, parameters(torch.float32), seed=4, **own)
    other.load_state_dict(by_checkpoint(straight.state_dict()))
    steps(straight, 4)
    steps(other, 4)
    assert same_bits(everything(straight), everything(other))


def test_another_samplers_state_is_refused_and_one_without_a_name_taken() -> None:
    """States of versions that did not write it have no name; a user's class may have several."""
    velocity, plain = (interrupted(kind, {}, torch.float32)[0] for kind in ("sghmc", "sgld"))
    state = velocity.state_dict()
    with refused("SGLD", "another sampler", "sghmc"):
        plain.load_state_dict(state)
    del state["sampler"]["kind"]
    fresh("sghmc", {}, [p.detach() for p in velocity.parameters()]).load_state_dict(state)


@pytest.mark.parametrize(("before", "after"), [(torch.float64, torch.float32), (torch.float32, torch.float64)], ids=str)
@pytest.mark.parametrize(("kind", "own"), CASES, ids=IDS)
def test_a_state_goes_on_in_another_precision(
    kind: str, own: dict[str, Any], before: torch.dtype, after: torch.dtype
) -> None:
    first, values = interrupted(kind, own, before)
    second = fresh(kind, own, [v.to(after) for v in values])
    second.load_state_dict(first.state_dict())
    steps(second, AFTER, start=BEFORE)
    assert all(p.dtype == after and bool(torch.isfinite(p).all()) for p in second.parameters())
    assert all(d.dtype == after and bool(torch.isfinite(d).all()) for _, ds in second.draws() for d in ds)


def test_hooks_of_the_state_see_the_noise_and_may_put_it_elsewhere() -> None:
    """A file that holds the whole state under a name of its own, by hooks alone."""
    straight = two_groups("sghmc", parameters(torch.float32), seed=3)
    steps(straight, BEFORE + AFTER)
    first, values = interrupted("sghmc", {}, torch.float32)
    second, seen = fresh("sghmc", {}, values), []
    first.register_state_dict_post_hook(lambda sampler, state: {"optimizer": state, "keys": sorted(state)})
    second.register_load_state_dict_pre_hook(lambda sampler, state: state["optimizer"])
    second.register_load_state_dict_post_hook(lambda sampler: seen.append(sampler.state_dict()["sampler"]["positions"]))
    saved = first.state_dict()
    assert saved["keys"] == ["param_groups", "sampler", "state"]
    second.load_state_dict(copy.deepcopy(saved))
    steps(second, AFTER, start=BEFORE)
    assert same_bits(everything(straight), everything(second))
    assert seen == [saved["optimizer"]["sampler"]["positions"]] != [{}], "hooks behind loading see what was loaded"


def test_a_hook_that_fails_leaves_all_hooks_in_place() -> None:
    first, _ = interrupted("sghmc", {}, torch.float32)
    calls: list[int] = []
    first.register_load_state_dict_post_hook(lambda sampler: calls.append(1))
    state = first.state_dict()
    with refused("SGHMC", "sampler"):
        first.load_state_dict({n: v for n, v in state.items() if n != "sampler"})
    first.load_state_dict(state)
    assert calls == [1]
