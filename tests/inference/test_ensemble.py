"""PosteriorPredictive against its formulas, however many samples run at a time and wherever it is moved."""

from __future__ import annotations

import copy
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raychains import PosteriorPredictive
from raychains.core.errors import UserError
from raychains.inference import ensemble as room
from tests.checks import refused
from tests.inference.networks import KINDS, NO_VMAP, agrees, draws, expected, states

SIZE = 5


def built(kind: str, **settings: Any) -> tuple[PosteriorPredictive, list[nn.Module]]:
    networks = draws(KINDS[kind][0], SIZE)
    return PosteriorPredictive(KINDS[kind][0](), states(networks), **settings), networks


# The formulas


@pytest.mark.parametrize("chunk", [1, 2, SIZE, "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_the_formulas_say(kind: str, chunk: Any) -> None:
    found, networks = built(kind, chunk=chunk)
    for n in (7, 1):
        x = KINDS[kind][1](n)
        with torch.inference_mode():
            agrees(found(x), expected(networks, x))
    assert len(found) == SIZE


def test_samples_that_agree_have_no_mutual_information_and_others_have() -> None:
    networks = draws(KINDS["mlp"][0], SIZE)
    x = 3 * KINDS["mlp"][1](50)
    same = PosteriorPredictive(networks[0], states([networks[0]] * SIZE))(x)
    assert (same.mutual_information >= 0).all() and same.mutual_information.max() < 1e-6
    apart = PosteriorPredictive(networks[0], states(networks))(x)
    assert (apart.mutual_information > 1e-4).all()
    assert (apart.entropy <= np.log(4) + 1e-6).all()


def test_weights_are_divided_by_their_sum() -> None:
    weights = [1, 0, 2, 0.5, 4]
    found, networks = built("mlp", weights=weights)
    x = KINDS["mlp"][1](9)
    agrees(found(x), expected(networks, x, weights))
    agrees(found.half().float()(x), expected(networks, x, weights), atol=2e-3)


@pytest.mark.parametrize("weights", [[1e-50, 0, 2e-50, 0.5e-50, 4e-50], [1e300, 0, 2e300, 0.5e300, 4e300]])
def test_weights_may_be_tiny_or_huge(weights: list[float]) -> None:
    x = KINDS["mlp"][1](9)
    agrees(built("mlp", weights=weights)[0](x), expected(built("mlp")[1], x, [1, 0, 2, 0.5, 4]))


def test_no_inputs_have_no_predictions() -> None:
    found, _ = built("mlp", chunk="auto")
    x = KINDS["mlp"][1](9)
    assert found(x[:0]).probabilities.shape == (0, 4)


def test_a_regression_may_give_one_number_per_input_without_an_axis() -> None:
    networks = [nn.Linear(3, 1) for _ in range(3)]
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    flat = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    samples = [{f"0.{name}": t for name, t in n.state_dict().items()} for n in networks]
    found = PosteriorPredictive(flat, samples, kind="regression", noise=0.3)(x)
    plain = PosteriorPredictive(networks[0], states(networks), kind="regression", noise=0.3)(x)
    assert found.mean.shape == plain.mean.shape and torch.equal(found.mean, plain.mean)
    assert torch.equal(found.variance, plain.variance)
    for network, states_of in ((flat, samples), (networks[0], states(networks))):
        none = PosteriorPredictive(network, states_of, kind="regression", noise=0.3)(x[:0])
        assert none.mean.shape == (0, 1)


def test_samples_may_be_given_stacked() -> None:
    networks = draws(KINDS["mlp"][0], SIZE)
    stacked = {name: torch.stack([s[name] for s in states(networks)]) for name in networks[0].state_dict()}
    x = KINDS["mlp"][1](9)
    agrees(PosteriorPredictive(networks[0], stacked)(x), expected(networks, x))


def test_gradients_reach_the_input() -> None:
    found, networks = built("mlp", chunk=SIZE)
    x = KINDS["mlp"][1](3).requires_grad_()
    found(x).entropy.sum().backward()
    y = x.detach().clone().requires_grad_()
    mean = torch.stack([network(y).softmax(-1) for network in networks]).mean(0)
    torch.special.entr(mean).sum().backward()
    assert x.grad is not None and y.grad is not None and y.grad.abs().max() > 1e-3
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-6)


# How many samples at a time


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each call of the network ran."""
    seen: list[int] = []
    one, vmapped = room._Runner.one, room._Runner.vmapped

    def single(self: Any, s: int, x: Tensor) -> Tensor:
        seen.append(1)
        return one(self, s, x)

    def several(self: Any, start: int, k: int, x: Tensor) -> Tensor:
        seen.append(k)
        return vmapped(self, start, k, x)

    monkeypatch.setattr(room._Runner, "one", single)
    monkeypatch.setattr(room._Runner, "vmapped", several)
    return seen


@pytest.mark.parametrize(("chunk", "calls"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (99, [5])])
def test_chunk_says_how_many_run_at_a_time(monkeypatch: pytest.MonkeyPatch, chunk: int, calls: list[int]) -> None:
    found, _ = built("mlp", chunk=chunk)
    seen = watched(monkeypatch)
    found(KINDS["mlp"][1](4))
    assert seen == calls


@pytest.mark.parametrize("chunk", ["auto", 2])
def test_torch_export_takes_batches_of_any_size(chunk: Any) -> None:
    found, networks = built("mlp", chunk=chunk)
    batch = {"x": {0: torch.export.Dim("n")}}
    program = torch.export.export(found, (KINDS["mlp"][1](6),), dynamic_shapes=batch)
    x = KINDS["mlp"][1](9)
    agrees(program.module()(x), expected(networks, x))


def test_auto_takes_as_many_as_their_activations_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    found, networks = built("mlp")
    x, seen = KINDS["mlp"][1](10), watched(monkeypatch)
    per_sample = 10 * 4 * (8 + 8 + 8 + 8 + 4)  # two hidden layers before and after ReLU, and the logits
    monkeypatch.setattr(room, "budget", lambda device: 2.5 * per_sample)
    agrees(found(x), expected(networks, x))
    assert seen == [1, 2, 2]  # the first tells what one needs
    seen.clear()
    found(x)
    assert seen == [2, 2, 1]
    seen.clear()
    found(x[:2])  # a fifth of the inputs: all samples fit
    assert seen == [5]
    seen.clear()
    monkeypatch.setattr(room, "budget", lambda device: 0)
    found(x)
    assert seen == [1] * 5


def test_what_does_not_fit_the_memory_is_tried_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found, networks = built("mlp", chunk=SIZE)
    whole, fits = room._Runner.vmapped, 2 * 6

    def narrow(self: Any, start: int, k: int, x: Tensor) -> Tensor:
        if k * len(x) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, start, k, x)

    monkeypatch.setattr(room._Runner, "vmapped", narrow)
    seen = watched(monkeypatch)
    x = KINDS["mlp"][1](6)
    agrees(found(x), expected(networks, x))
    assert seen == [5, 2, 2, 1]
    seen.clear()
    found(x)
    assert seen == [2, 2, 1]  # it remembers
    seen.clear()
    found(x[:2])
    assert seen == [5]

    def none(self: Any, s: int, x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(room._Runner, "one", none)
    with pytest.raises(torch.OutOfMemoryError):
        found(x)


@pytest.mark.parametrize("kind", NO_VMAP)
def test_what_vmap_cannot_run_runs_one_by_one_after_one_warning(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    make, shape = NO_VMAP[kind]
    networks = draws(make, SIZE)
    found = PosteriorPredictive(make(), states(networks), chunk=2)
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(1))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            agrees(found(x), expected(networks, x))
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["samples run one after another"]
    assert "\n" not in caplog.records[0].getMessage()


def test_wrong_inputs_fail_as_the_network_does_and_blame_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    found, networks = built("mlp", chunk=SIZE)
    x = KINDS["mlp"][1](3)
    with caplog.at_level(logging.WARNING):
        with pytest.raises(UserError, match="shapes cannot be multiplied"):
            found(torch.randn(3, 5))
        agrees(found(x), expected(networks, x))
    assert not caplog.records and found._vmaps


def test_threads_do_not_mix_their_samples() -> None:
    found, networks = built("mlp", chunk=1)
    inputs = [KINDS["mlp"][1](n) for n in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        for x, prediction in zip(inputs * 20, pool.map(found, inputs * 20), strict=True):
            agrees(prediction, expected(networks, x))


class Seen(torch.autograd.Function):
    """The identity; notes for how many samples at once it was asked, 1 for what is the same in all of them."""

    calls: ClassVar[list[int]] = []

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
        Seen.calls.append(info.batch_size)
        return x.clone(), in_dims[0]


class Watched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return Seen.apply(self.head(Seen.apply(self.features(x))))


def test_layers_that_all_samples_share_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = draws(Watched, SIZE)
    shared = {n: t for n, t in states(networks)[0].items() if n.startswith("features")}
    own = [{n: t for n, t in s.items() if n.startswith("head")} for s in states(networks)]
    whole = PosteriorPredictive(Watched(), [{**shared, **s} for s in own], chunk=SIZE)
    parts = PosteriorPredictive(Watched(), own, shared=shared, chunk=SIZE)
    x = KINDS["mlp"][1](9)
    agrees(parts(x), {name: t.double().numpy() for name, t in whole(x)._asdict().items()})
    for module, batched in ((whole, [SIZE, SIZE]), (parts, [SIZE])):
        monkeypatch.setattr(Seen, "calls", [])
        module(x)
        assert Seen.calls == batched
    parts.chunk = 1
    agrees(parts(x), {name: t.double().numpy() for name, t in whole(x)._asdict().items()})


# Where it is and in which precision


@pytest.mark.parametrize("kind", ["mlp", "batchnorm"])
def test_double_precision_is_double_all_through(kind: str) -> None:
    found, networks = built(kind, chunk=2)
    x = KINDS[kind][1](7)
    out = found.double()(x)
    assert out.probabilities.dtype == torch.float64
    agrees(out, expected([n.double() for n in networks], x.double()), atol=1e-14)


@pytest.mark.parametrize("kind", ["mlp", "lenet", "batchnorm"])
@pytest.mark.parametrize("chunk", [1, SIZE])
def test_half_precision_is_the_networks_alone(kind: str, chunk: int) -> None:
    found, networks = built(kind, chunk=chunk)
    x = KINDS[kind][1](7)
    wanted = expected(networks, x)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        out = found(x)
    assert all(t.dtype == torch.float32 for t in out)
    agrees(out, wanted, atol=0.05)
    np.testing.assert_allclose(out.probabilities.sum(-1), 1, atol=1e-6)
    out = found.half()(x)
    assert all(t.dtype == torch.float32 for t in out)
    agrees(out, wanted, atol=0.01)


@pytest.mark.parametrize("chunk", [1, SIZE, "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_the_network_needs_moves_with_it(kind: str, chunk: Any) -> None:
    found, _ = built(kind, chunk=chunk)
    # A tensor left behind would not mix with those of another device.
    out = found.to("meta")(KINDS[kind][1](7).to("meta"))
    assert all(t.is_meta and len(t) == 7 for t in out)


def test_a_state_dict_carries_the_samples_over() -> None:
    found, networks = built("batchnorm")
    other = PosteriorPredictive(KINDS["batchnorm"][0](), states(draws(KINDS["batchnorm"][0], SIZE + 1)[1:]))
    x = KINDS["batchnorm"][1](7)
    assert (other(x).probabilities - found(x).probabilities).abs().max() > 1e-3
    state = found.state_dict()
    assert state.keys() == {"weights"} | {f"samples.{n}" for n in networks[0].state_dict()}
    assert state["samples.conv.weight"].shape == (SIZE, 4, 3, 3, 3)
    other.load_state_dict(state)
    agrees(other(x), expected(networks, x))
    agrees(copy.deepcopy(found)(x), expected(networks, x))
    assert not list(found.parameters())


def test_dropout_is_off_whatever_mode_is_set() -> None:
    networks = draws(KINDS["batchnorm"][0], SIZE)
    network = KINDS["batchnorm"][0]()
    found = PosteriorPredictive(network, states(networks)).train()
    network.train()
    x = KINDS["batchnorm"][1](7)
    agrees(found(x), expected(networks, x))


def test_the_networks_own_parameters_do_not_matter_and_stay() -> None:
    networks = draws(KINDS["batchnorm"][0], SIZE)
    network = KINDS["batchnorm"][0]()
    before = states([network])[0]
    found = PosteriorPredictive(network, states(networks), chunk=2)
    found(KINDS["batchnorm"][1](7))
    assert all(torch.equal(t, before[n]) for n, t in network.state_dict().items())


# Preparation

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
PREPARATION = {"kind": "normalise", "mean": MEAN, "std": STD}


def test_bytes_are_scaled_and_normalised_and_floats_taken_as_prepared() -> None:
    found, networks = built("batchnorm", prepare=PREPARATION)
    x = torch.randint(0, 256, (7, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    by_channel = [np.asarray(v).reshape(1, 3, 1, 1) for v in (MEAN, STD)]
    prepared = torch.from_numpy((x.numpy() / 255 - by_channel[0]) / by_channel[1]).float()
    agrees(found(x), expected(networks, prepared))
    agrees(found(prepared), expected(networks, prepared))
    agrees(found.half()(x), expected(networks, prepared), atol=0.01)
    with refused("uint8", "3 channels", "[7, 1, 8, 8]"):
        found(x[:, :1])


# Wrong input


def test_samples_that_do_not_fit_are_refused() -> None:
    networks = draws(KINDS["mlp"][0], 2)
    model, (a, b) = networks[0], states(networks)
    name, nine = "layers.0.bias", {"layers.0.bias": torch.zeros(9)}
    stacked = {n: torch.stack([a[n], b[n]]) for n in a}
    scalar = draws(KINDS["batchnorm"][0], 2)
    counted = {n: torch.stack([s[n] for s in states(scalar)]) for n in scalar[0].state_dict()}
    wrong: list[tuple[nn.Module, Any, tuple[str, ...]]] = [
        (model, [a, {n: t for n, t in b.items() if n != name}], (name,)),
        (model, [a, {**b, **nine}], (name, "[9]", "[8]")),
        (model, [{**a, **nine}, {**b, **nine}], (name, "[9]", "[8]")),
        (model, [], ("at least one",)),
        (model, {n: t for n, t in stacked.items() if n != name}, (name,)),
        (model, {**stacked, "other": torch.zeros(2)}, ("other",)),
        (scalar[0], {**counted, "norm.num_batches_tracked": torch.tensor(1)}, ("0, 2",)),
        (model, {**stacked, name: stacked[name][:1]}, ("1, 2",)),
    ]
    for network, samples, words in wrong:
        with refused("samples", *words):
            PosteriorPredictive(network, samples)


def test_settings_out_of_range_are_refused() -> None:
    networks = draws(KINDS["mlp"][0], 2)
    for settings, words in (
        ({"chunk": 0}, ("chunk", "0")),
        ({"chunk": "all"}, ("chunk", "all")),
        ({"chunk": True}, ("chunk", "True")),
        ({"kind": "clustering"}, ("kind", "clustering")),
        ({"weights": [1]}, ("weights", "2")),
        ({"weights": [1, -1]}, ("weights", "-1")),
        ({"weights": [0, 0]}, ("weights",)),
        ({"weights": [1, float("nan")]}, ("weights", "nan")),
        ({"prepare": {"kind": "whiten"}}, ("prepare", "whiten")),
        ({"prepare": {**PREPARATION, "std": [0, 1, 1]}}, ("prepare",)),
        ({"prepare": {**PREPARATION, "mean": [1]}}, ("prepare",)),
        ({"prepare": []}, ("prepare",)),
    ):
        with refused(*words):
            PosteriorPredictive(networks[0], states(networks), **settings)


def test_a_network_that_gives_no_single_tensor_is_refused() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Any:
            return self.fc(x), x

    with refused("model", "tuple"):
        PosteriorPredictive(Pair(), states(draws(Pair, 2)))(torch.randn(2, 6))
