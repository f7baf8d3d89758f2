"""Packs: a chain's bytes are its own, whatever is beside it, wherever it is and whenever it comes or goes."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event as Flag
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from raychains import Task
from raychains.chain import isokinetic_pack
from raychains.chain.chain import Chain, Event
from raychains.chain.divergence import Diverged
from raychains.chain.divergence_replay import diagnose
from raychains.chain.pack import Pack, Packs
from raychains.chain.packable import check, key
from raychains.core.config import Run
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec, Part
from raychains.core.validation import fraction
from raychains.planning import methods
from raychains.samplers import SGD, Sampler, setting
from raychains.samplers.columns import Number, add_, scale_, scaled
from raychains.schedules import Constant, Cyclical
from raychains.tasks.digits import Digits
from raychains.tasks.gaussian import Gaussian
from raychains.tasks.likelihoods import Classes
from tests.chain.chain_cases import outcome, run, spec, state_hash, stopped, stored, temperature_of, whole
from tests.chain.test_divergence import wild
from tests.checks import refused
from tests.processes import SECONDS
from tests.spread import spread, witnessed

STEPS = 24
OF_DENSITIES = ("sgld", "sghmc", "psgld", "sgnht", "atmc")
TOGETHER = (*OF_DENSITIES, "emcmc", "adamw", "averaged")
TWO_GRADIENTS = ("sam", "bsam", "divided", "divided-bsam")
BY_THEMSELVES = ("swag", "entropy-sgd", "entropy-sgld", "laplace", "frozen", "gibbs", "scalar", "lion", *TWO_GRADIENTS)
"""Samplers, or settings of theirs, that move each row by itself."""
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "frozen": ("psgld", {"freeze_preconditioner_after": 15, "eps": 1.0}),
    "gibbs": ("emcmc", {"update": "gibbs"}),
    "scalar": ("sgnht", {"thermostat": "scalar"}),
    "lion": ("sgd", {}),
    "averaged": ("sgld", {"beta": 0.75}),
    "stepping": ("sgd", {}),
    "twice": ("sgd", {}),
    "bsam": ("bsam", {"m_sharpness": 1}),
    "divided": ("sam", {"m_sharpness": 3}),  # batches of 10 and 20, the last of them of 1, 2 or 10 examples
    "divided-bsam": ("bsam", {"m_sharpness": 4}),
}
"""By the names of `BY_THEMSELVES`: the sampler, and settings beside the usual ones."""
SAMPLERS = (*TOGETHER, *BY_THEMSELVES)


def ends(
    pack: Pack, chains: Sequence[Chain], through: Callable[[Chain], list[Event]] = run
) -> list[Future[list[Event]]]:
    """How chains end that join a pack, each in a thread of its own."""
    for chain in chains:
        chain.join(pack)
    with ThreadPoolExecutor(len(chains)) as threads:
        return [threads.submit(through, chain) for chain in chains]


def together(pack: Pack, chains: Sequence[Chain], until: int | None = None) -> list[list[Event]]:
    """What chains in a pack tell, as far as each is ``until`` or to its end; then they leave."""

    def through(chain: Chain) -> list[Event]:
        try:
            return run(chain, until)
        finally:
            chain.leave()

    return [end.result() for end in ends(pack, chains, through)]


def check_alone_and_beside(
    one: ChainSpec, others: Sequence[ChainSpec], places: Sequence[int], task: Task | None = None
) -> None:
    """A chain has its bytes of its run by itself in each of these places among others, and the last other has its
    own."""
    straight, last = whole(one, task), whole(others[-1], task)
    for place in places:
        chains = [Chain(made, task) for made in (*others[:place], one, *others[place:])]
        found = [outcome(*pair) for pair in zip(chains, together(Pack(chains[0]), chains), strict=True)]
        assert found.pop(place) == straight, place
        assert found[-1] == last, place


class Own(nn.Module):
    """A user's network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.sigmoid(self.first(x.flatten(1))))
        return out


class Lion(SGD):
    """A user's optimiser."""

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        for p, g in zip(params, grads, strict=True):
            mean = self.state_of(p, "mean")
            p.sub_(mean.lerp(g, 0.1).sign_(), alpha=0.01 * group["lr"])
            mean.lerp_(g, 0.01)


class Averaged(Sampler):
    """A user's sampler with one update for all rows of a pack: μ ← β·μ + (1−β)·g; θ ← θ − lr·(μ + λθ) +
    √(2·lr·T/N)·ξ."""

    beta: float = setting("β in [0, 1).", default=0.5, check=fraction, column=True)
    weight_decay: float = setting(default=0.0, column=True)
    revision = 2  # SGLD's, whose part `made` alters

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        lr, beta = group["lr"], group["beta"]
        std = math.sqrt(2 * lr * group["temperature"] / self.num_data)
        return std, beta, 1 - beta, -lr, -lr * group["weight_decay"]

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        std, keep, learn, step, decay = numbers
        means = [self.state_of(p, "mean") for p in params]
        scale_(means, keep)
        add_(means, grads, learn)
        changes = scaled(means, step)
        if group["weight_decay"] != 0:
            add_(changes, params, decay)
        self.add_noise(changes, std)
        torch._foreach_add_(params, changes)

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"mean": 0.0}


class Stepping(SGD):
    """A user's optimiser with a step of its own."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Twice(SGD):
    """A user's optimiser that says it takes two gradients a step."""

    gradients_per_step = 2


class Gated(Own):
    """A network that is no row of layers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * x[:, :1]


class Unused(Own):
    """Computes what it does not return."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        torch.sigmoid(out)
        return out


class Idle(Own):
    """Has a parameter that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))


class Detached(Own):
    """Learns its last layer alone."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = torch.sigmoid(self.first(x))
        out: Tensor = self.second(x)
        return out


class Skipping(Own):
    """Leaves out its activation at random."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        out: Tensor = self.second(x if torch.rand(()) < 0.5 else torch.sigmoid(x))
        return out


class SkippingInPython(Own):
    """The same by Python's generator."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        out: Tensor = self.second(x if random.random() < 0.5 else torch.sigmoid(x))
        return out


def frozen() -> nn.Module:
    network = Own()
    network.first.weight.requires_grad_(False)
    return network


def normed() -> nn.Module:
    network = Own()
    nn.utils.weight_norm(network.first)
    return network


def halved() -> nn.Module:
    """Gradients of a weight are halved."""
    network = Own()
    network.first.weight.register_hook(lambda g: g / 2)
    return network


def watched() -> nn.Module:
    network = Own()
    network.second.register_full_backward_pre_hook(lambda module, given: None)
    return network


def channels() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout1d(0.5), nn.Linear(4, 1))


NO_ROWS = [
    (channels, "its network has Dropout1d(p=0.5"),
    (Gated, "its network is no row of linear layers and activations"),
    (halved, "its network has hooks"),
    (watched, "its network has hooks"),
    (Unused, "its network is no row of linear layers and activations"),
    (frozen, "some of its parameters are frozen"),
    (normed, "its network has hooks"),
    (Detached, "its network is no row of linear layers and activations"),
    (Skipping, "its forward pass draws random numbers"),
    (SkippingInPython, "its forward pass draws random numbers"),
]


class Smoothed(Classes):
    """Another loss than that of its base, whose examples' losses it has."""

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


class Ordered(Digits):
    """Batches of the user's own."""

    def epoch(self, *, seed: int, batch_size: int) -> Any:
        return list(torch.arange(self.num_data).split(batch_size))


def regression(model: Callable[[], nn.Module], noise: Any) -> Task:
    """37 data of a curve."""
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(37, 3, generator=drawn)
    y = x[:, :1].sin() + 0.1 * torch.randn(37, 1, generator=drawn)
    return Task.from_module(model, (x, y), (x[:4], y[:4]), "gaussian", noise=noise, name="curve")


def scattered() -> Task:
    """The same data under a network that gives σ as well."""
    task = regression(Own, 0.5)
    data = (task.source.inputs, task.source.targets)
    return Task.from_module(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), data, data, "heteroscedastic"
    )


def smooth() -> nn.Module:
    """Activations also of the inputs, and one after another."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Tanh(),
        nn.Linear(3, 7),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.Linear(7, 7),
        nn.SiLU(),
        nn.Tanh(),
        nn.Linear(7, 9),
        nn.GELU(),
        nn.Linear(9, 1),
    )


def dropping() -> nn.Module:
    return nn.Sequential(
        nn.Dropout(0.1),
        nn.Linear(3, 6),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(6, 5),
        nn.Dropout(0.2),
        nn.SiLU(),
        nn.Linear(5, 1),
    )


OWN = {"lion": Lion, "averaged": Averaged, "stepping": Stepping, "twice": Twice}

TASKS: dict[str, tuple[Callable[[], Task], int]] = {
    "small": (lambda: Digits(train=90, hidden=[8]), 20),  # the last batch of an epoch is short
    "digits": (Digits, 50),
    "smooth": (lambda: regression(smooth, "learned"), 37),
    "own": (lambda: regression(Own, 0.5), 10),
    "scattered": (scattered, 10),
    "idle": (lambda: regression(Idle, 0.5), 10),
    "bare": (lambda: regression(lambda: nn.Linear(3, 1), "learned"), 10),
    "dropping": (lambda: regression(dropping, 0.5), 10),
}


def made(task: Task, batch_size: int, sampler: str = "sghmc", width: int = 5, **change: Any) -> ChainSpec:
    """A chain of `STEPS` steps of two cycles."""
    own = {"kind": OWN[sampler].kind} if sampler in OWN else {}
    sampler, more = SETTINGS.get(sampler, (sampler, {}))
    base = spec("digits", sampler)
    schedule = Cyclical(
        steps=STEPS, lr=0.05, cycles=2, exploration=0.25, samples_per_cycle=3, thinning=2,
        temperature=temperature_of(sampler),
    )  # fmt: skip
    settings = {k: v for k, v in base.sampler.settings.items() if not k.startswith(("thermostat", "freeze"))} | {
        "num_data": task.num_data,
        **more,
    }
    fields: dict[str, Any] = {
        "task": task.spec(),
        "sampler": dataclasses.replace(base.sampler, settings=settings, **own),
        "schedule": schedule.part(),
        "steps_per_epoch": -(-task.num_data // batch_size),
        "batch_size": batch_size,
        "pack": width,
    }
    return dataclasses.replace(base, **{**fields, **change})


def colder(one: ChainSpec) -> ChainSpec:
    """The same chain under another step size, momentum, prior and seed, which rests half as long."""
    sampler = dataclasses.replace(one.sampler, settings={**one.sampler.settings, "weight_decay": 0.01})
    schedule = Part(kind="cyclical", revision=1, settings={**one.schedule.settings, "lr": 0.01, "cycles": 3})
    return dataclasses.replace(one, sampler=sampler, schedule=schedule, seed=7)


QUICK = [("small", "sghmc"), ("smooth", "sghmc"), ("dropping", "sghmc"), ("small", "emcmc"), ("small", "sgnht")]
QUICK += [("small", "swag"), ("small", "sam")]
"""Of the chains below, those that `make test` looks at; by `test_a_pack_follows_the_path_…` it looks at all."""


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.long])
        for case in dict.fromkeys(
            [
                *((name, "sghmc") for name in TASKS),
                *(("small", sampler) for sampler in SAMPLERS),
                *(("dropping", sampler) for sampler in SAMPLERS),
            ]
        )
    ],
)
def test_a_chain_has_its_bytes_alone_beside_others_and_in_any_place(name: str, sampler: str) -> None:
    task, batch = TASKS[name][0](), TASKS[name][1]
    one = made(task, batch, sampler)
    others = [dataclasses.replace(colder(one) if i % 2 else one, chain=10 + i) for i in range(4)]
    check_alone_and_beside(one, others, range(5) if (name, sampler) == ("small", "sghmc") else (0, 4), task)


@pytest.mark.parametrize(
    ("name", "sampler"),
    dict.fromkeys([*((n, "sghmc") for n in TASKS), *(("small", s) for s in SAMPLERS), ("dropping", "divided")]),
)
def test_a_pack_follows_the_path_of_a_chain_by_itself_to_rounding(name: str, sampler: str) -> None:
    task, batch = TASKS[name][0](), TASKS[name][1]
    packed = made(task, batch, sampler)
    two = [Chain(packed, task), Chain(dataclasses.replace(packed, pack=0), task)]
    for until in (1, 9, STEPS):
        told = [run(chain, until) for chain in two]
        assert [type(e) for e in told[0]] == [type(e) for e in told[1]]
        # pSGLD divides by gradients' sizes, near 0 too, and SWAG's variances are small differences
        near = {"rtol": 1e-4, "atol": 1e-4 if sampler in ("psgld", "swag") else 1e-5}
        for a, b in zip(two[0].model.parameters(), two[1].model.parameters(), strict=True):
            torch.testing.assert_close(a, b, **near)
        for one, other in zip(*told, strict=True):
            if isinstance(one, Sample) and isinstance(other, Sample):
                torch.testing.assert_close(dict(one.tensors), dict(other.tensors), **near)


def density(sampler: str = "sghmc", **change: Any) -> ChainSpec:
    """A chain of the mixture with draws at half of its steps, whose blocks fill in the middle of a cycle."""
    one = spec("mixture", sampler)
    settings = {k: v for k, v in one.sampler.settings.items() if not k.startswith(("thermostat", "freeze"))}
    settings["weight_decay"] = 1e-3  # `colder` has another; chains with and without are of two kinds
    fields: dict[str, Any] = {
        "sampler": dataclasses.replace(one.sampler, settings=settings),
        "lanes": 7,
        "block_draws": 4,
        "pack": 5,
    }
    return dataclasses.replace(one, **{**fields, **change})


def test_a_chain_that_waits_for_one_that_has_stopped_stops_as_well() -> None:
    chains = [Chain(spec("digits", "sghmc", pack=2, chain=i)) for i in range(2)]
    pack = Pack(chains[0])
    for chain in chains:
        chain.join(pack)
    asked, waits = Flag(), Flag()

    def stop() -> bool:
        waits.set()
        return asked.is_set()

    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(chains[0].advance, stop)
        assert waits.wait(SECONDS)
        asked.set()
        assert chains[1].advance(lambda: True) == []
        assert told.result(SECONDS) == [] and chains[0].step == 0


@pytest.mark.parametrize("sampler", witnessed(OF_DENSITIES, "psgld", "sgnht"))
def test_a_chain_of_a_density_has_its_bytes_and_lanes_in_any_place_and_after_any_stop(sampler: str) -> None:
    one = density(sampler)
    others = [dataclasses.replace(colder(one) if i % 2 else one, chain=10 + i) for i in range(4)]
    check_alone_and_beside(one, others, (0, 2, 4))
    straight = whole(one)
    for every in (1, 7):
        assert stopped(one, every) == straight


@pytest.mark.parametrize("sampler", OF_DENSITIES)
def test_a_packed_density_follows_the_path_of_a_chain_by_itself_to_rounding(sampler: str) -> None:
    packed = density(sampler)
    told = [run(Chain(s)) for s in (packed, dataclasses.replace(packed, pack=0))]
    for a, b in zip(*told, strict=True):
        assert type(a) is type(b)
        if isinstance(a, Sample) and isinstance(b, Sample):
            assert dataclasses.replace(a.meta, digest="") == dataclasses.replace(b.meta, digest="")
            torch.testing.assert_close(a.tensors["theta"], b.tensors["theta"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", witnessed(TASKS, "small", "dropping"))
def test_any_checkpoint_cadence_gives_a_packed_chain_the_same_bytes(name: str) -> None:
    task, batch = TASKS[name][0](), TASKS[name][1]
    one = made(task, batch)
    straight = whole(one, task)
    for every in (1, 7):
        assert stopped(one, every, task) == straight


ISOKINETIC: dict[str, tuple[str, dict[str, Any]]] = {
    "mclmc": ("mclmc", {}),
    "mile": ("mclmc", {"tune": 16, "energy_error": 0.001, "preconditioner": "diagonal"}),
}


def isokinetic(name: str, task: Task, batch: int, **change: Any) -> ChainSpec:
    """A chain of `STEPS` steps under a constant step size; of ``mile``, whose batches are whole, two thirds tune."""
    kind, settings = ISOKINETIC[name]
    batch = task.num_data if name == "mile" else batch
    schedule = Constant(steps=STEPS, lr=0.05, samples=4, noise_from=0.0)
    base = spec("digits", kind).sampler
    part = dataclasses.replace(base, settings={"num_data": task.num_data, "weight_decay": 1e-3, **settings})
    return dataclasses.replace(made(task, batch, kind), sampler=part, schedule=schedule.part(), **change)


@pytest.mark.parametrize(("name", "case"), spread(list(ISOKINETIC), ["small", "own", "dropping"]))
def test_an_isokinetic_chain_has_its_bytes_alone_beside_others_and_in_any_place(name: str, case: str) -> None:
    task, batch = TASKS[case][0](), TASKS[case][1]
    one = isokinetic(name, task, batch)
    others = [dataclasses.replace(one, chain=10 + i, repeat=i) for i in range(4)]
    check_alone_and_beside(one, others, (0, 2, 4), task)


def assert_close(one: Chain, other: Chain) -> None:
    """In double precision: the energy's errors, which the step size follows, are small differences."""
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    adaptive = [chain.sampler.state_dict()["sampler"]["adaptive"] for chain in (one, other)]
    torch.testing.assert_close(adaptive[0], adaptive[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "case"), [("mclmc", "small"), ("mile", "small"), ("mclmc", "dropping")])
def test_an_isokinetic_pack_follows_the_path_of_a_chain_by_itself_to_rounding(name: str, case: str) -> None:
    """Both gradients of a step see one dropout, as those of a chain by itself."""
    task, batch = TASKS[case][0](), TASKS[case][1]
    one = isokinetic(name, task, batch, precision="fp64")
    plain, packed = Chain(dataclasses.replace(one, pack=0), task), Chain(one, task)
    for until in (1, 9, STEPS):
        told = [run(chain, until) for chain in (plain, packed)]
        for x, y in zip(*told, strict=True):
            assert type(x) is type(y)
            if isinstance(x, Progress) and isinstance(y, Progress):
                assert (x.loss, x.lr) == pytest.approx((y.loss, y.lr), rel=1e-6)
        assert_close(plain, packed)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run compiled functions as torch has traced them, without a compiler; note the tensors that each takes."""
    made: list[int] = []

    def compiled(function: Callable[..., Any], *tensors: Tensor) -> Callable[..., Any]:
        made.append(len(tensors))
        traced: Callable[..., Any] = make_fx(function)(*tensors)
        return traced

    monkeypatch.setattr(isokinetic_pack, "compiled", compiled)
    return made


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param("mclmc", "dropping", marks=pytest.mark.long),
        pytest.param("mile", "smooth", marks=pytest.mark.long),
        ("mile", "scattered"),
    ],
)
def test_a_compiled_isokinetic_pack_follows_the_path_of_others_through_a_checkpoint(
    name: str, case: str, functions: list[int]
) -> None:
    """Cycles begin without noise and go on under a temperature that grows; a chain is for a while ahead of the
    other."""
    task, batch = TASKS[case][0](), TASKS[case][1]
    schedule = Cyclical(steps=STEPS, lr=0.05, cycles=2, exploration=0.2, ramp=0.15, samples_per_cycle=3)
    ones = [isokinetic(name, task, batch, chain=i, precision="fp64") for i in range(2)]
    ones = [dataclasses.replace(one, schedule=schedule.part()) for one in ones]
    plain = [Chain(one, task) for one in ones]
    compiled = [Chain(dataclasses.replace(one, compile="default", exact=False), task) for one in ones]
    for until in (3, 11, STEPS):
        for chains in (plain, compiled):
            run(chains[0], until)
            chains[0].leave()
            together(Pack(chains[0]), chains, until)
            state = stored(chains[0].state_dict())
            chains[0] = Chain(chains[0].spec, task)
            chains[0].load_state_dict(state)
        for pair in zip(plain, compiled, strict=True):
            assert_close(*pair)
    assert functions


@pytest.mark.parametrize(("name", "functions"), [("mclmc", 1), pytest.param("mile", 2, marks=pytest.mark.long)])
def test_a_compiled_isokinetic_pack_is_made_by_the_compiler(
    name: str, functions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCLMC's step, and its tuner where it has one."""
    made, ours = [], torch.compile
    monkeypatch.setattr(torch, "compile", lambda *given, **options: made.append(ours(*given, **options)) or made[-1])
    task = regression(Own, 0.5)
    one = isokinetic(name, task, task.num_data, precision="fp64")
    plain, compiled = Chain(one, task), Chain(dataclasses.replace(one, compile="default", exact=False), task)
    for chain in (plain, compiled):
        run(chain)
    assert len(made) >= functions
    assert_close(plain, compiled)


@pytest.mark.parametrize("name", ISOKINETIC)
def test_an_isokinetic_chain_that_left_keeps_its_state_when_another_takes_its_row(name: str) -> None:
    task = Digits(train=90, hidden=[8])
    first, second = (Chain(isokinetic(name, task, 20, chain=i), task) for i in range(2))
    run(second, 3)
    second.leave()
    pack = Pack(first)
    first.join(pack)
    run(first, 5)
    first.leave()
    before = state_hash(first)
    second.join(pack)
    run(second, 9)
    assert state_hash(first) == before


class Falling(Digits):
    """Its loss is no number at four evaluations: in a step's middle, at its end, and at both."""

    evaluations = 0

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        loss = super().backward(model, batch, generator)
        self.evaluations += 1
        return loss * math.nan if self.evaluations in (16, 17, 18, 25) else loss


def test_a_step_that_is_undone_for_a_loss_that_is_no_number_leaves_the_chain_going(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record has the loss of where the step stayed; by itself and in a pack, where one row alone falls."""
    task = Falling(train=90, hidden=[8])
    one = isokinetic("mile", task, 90)
    alone = Chain(dataclasses.replace(one, pack=0), task)
    losses = [e.loss for e in run(alone) if isinstance(e, Progress)]
    assert alone.done and task.evaluations > 26 and losses and all(loss is not None and loss < 5 for loss in losses)
    chains = [Chain(dataclasses.replace(one, chain=i), Digits(train=90, hidden=[8])) for i in (0, 1)]
    pack, count = Pack(chains[0]), iter(range(1, 1000))
    gradients = pack._isokinetic._gradient  # type: ignore[union-attr]

    def falling(*given: Tensor) -> tuple[Tensor, Tensor]:
        losses, found = gradients(*given)
        if next(count) in (16, 17, 18, 25):
            losses = losses.clone()
            losses[0] = math.nan
        return losses, found

    monkeypatch.setattr(pack._isokinetic, "_gradient", falling)
    for told in together(pack, chains):
        assert all(e.loss is not None and e.loss < 5 for e in told if isinstance(e, Progress))
    assert all(chain.done for chain in chains)


def test_an_isokinetic_pack_has_one_schedule_and_any_starts() -> None:
    task = Digits(train=90, hidden=[8])
    one = isokinetic("mclmc", task, 20)
    assert key(dataclasses.replace(one, seed=3, start_chain="0" * 64)) == key(one)
    longer = Constant(steps=STEPS, lr=0.1, samples=4, noise_from=0.0).part()
    assert key(dataclasses.replace(one, schedule=longer)) != key(one)


@pytest.mark.parametrize(("sampler", "differ"), [("averaged", ("beta", 0.25)), ("sghmc", ("momentum", 0.5))])
def test_chains_of_one_pack_differ_in_what_is_declared_as_a_column_and_not_0(
    sampler: str, differ: tuple[str, float]
) -> None:
    one, name = made(Digits(train=90, hidden=[8]), 20, sampler), differ[0]

    def with_(value: float) -> ChainSpec:
        settings = {**one.sampler.settings, name: value}
        return dataclasses.replace(one, sampler=dataclasses.replace(one.sampler, settings=settings))

    assert key(with_(differ[1])) == key(one) != key(with_(0.0))


def elsewhere(chain: Chain, task: Task) -> Chain:
    """The chain that goes on from a checkpoint's bytes."""
    other = Chain(chain.spec, task)
    other.load_state_dict(stored(chain.state_dict()))
    return other


@pytest.mark.parametrize(
    ("name", "batch"), [pytest.param("sghmc", 20, id="sghmc"), *spread(list(ISOKINETIC), {"short": 20, "full": 18})]
)
def test_chains_come_and_go_at_any_step_and_go_on_elsewhere(name: str, batch: int) -> None:
    """Also where each batch of an epoch is full: an isokinetic pack writes weights of examples then but once."""
    task = Digits(train=90, hidden=[8])
    make = partial(isokinetic, name) if name in ISOKINETIC else made
    specs = [make(task, batch, chain=i) for i in range(5)]
    chains, told = [Chain(s, task) for s in specs], [list[Event]() for _ in specs]
    for i, until, moves in ((0, 3, True), (1, 11, False)):
        told[i] = run(chains[i], until)
        chains[i].leave()
        chains[i] = elsewhere(chains[i], task) if moves else chains[i]
    pack = Pack(chains[2])
    for order, until in (((0, 1, 2), 14), ((4, 1, 3, 0, 2), STEPS)):
        for i, more in zip(order, together(pack, [chains[i] for i in order], until), strict=True):
            told[i] += more
    assert [outcome(*pair) for pair in zip(chains, told, strict=True)] == [whole(s, task) for s in specs]


@pytest.mark.parametrize(("kind", "lr", "place"), [("network", 1e20, 0), ("network", 1e20, 1), ("density", 1e30, 1)])
def test_a_chain_that_diverges_leaves_and_the_others_have_their_bytes(kind: str, lr: float, place: int) -> None:
    """Rows of NaN beside a chain change nothing."""
    task = Digits(train=90, hidden=[8]) if kind == "network" else None
    one = density() if task is None else made(task, 20)
    hot = Part(kind="cyclical", revision=1, settings={**one.schedule.settings, "lr": lr})
    chains = [Chain(s, task) for s in (one, dataclasses.replace(one, schedule=hot))]
    right, wrong = chains
    pair = chains if place == 0 else chains[::-1]
    found = dict(zip(pair, ends(Pack(pair[0]), pair), strict=True))
    with pytest.raises(Diverged, match="at step"):
        found[wrong].result()
    assert outcome(right, found[right].result()) == whole(one, task)


def test_a_packed_chain_that_diverged_is_traced_to_its_step() -> None:
    one = wild("digits", "sghmc", 1e20)
    found = []
    for chain in (Chain(one), Chain(dataclasses.replace(one, pack=3))):
        with pytest.raises(Diverged) as caught:
            run(chain)
        found.append(diagnose(chain.spec, None, caught.value))
    assert found[1].kind is not None and found[1].step == found[0].step <= found[1].seen_at
    assert found[1].parameter_scale == pytest.approx(found[0].parameter_scale, rel=1e-3)


def test_what_cannot_be_packed_is_refused_in_one_line() -> None:
    task, x, y = Digits(train=90, hidden=[8]), torch.randn(40, 5, 3), torch.randn(40, 5, 1)
    one, data = made(task, 20), (task.source.inputs, task.source.targets)
    of_specs = [
        (made(task, 20, "stepping"), f"sampler {Stepping.kind} has a step of its own"),
        (made(task, 20, "twice"), f"sampler {Twice.kind} takes 2 gradients a step and is no ClosureSampler"),
        (
            spec("mixture", "psgld", pack=5),
            "sampler psgld with its settings moves each chain by itself, and its task is a density",
        ),
        (density("emcmc"), "sampler emcmc draws more than θ, and its task is a density"),
        (spec("noisy-mixture", "sgld", pack=5), "its gradient has noise of its own"),
        (
            spec("mixture", "sgld", pack=5, task=Gaussian().spec()),
            "its density's gradient is not elementwise over points",
        ),
        (dataclasses.replace(one, micro_batch=5), "it has micro_batch 5"),
    ]
    of_tasks = [
        (Digits(train=90, norm="batch"), "BatchNorm"),
        (Digits(train=90, hidden=[8], augment=True), "its training examples are augmented"),
        (Ordered(train=90, hidden=[8]), "its task has its own epoch()"),
        *((regression(network, 1.0), words) for network, words in NO_ROWS),
        *(
            (
                Task.from_module(lambda: nn.Linear(64, 10), data, data, loss),
                "its likelihood gives the loss of a batch alone",
            )
            for loss in (nn.CrossEntropyLoss(), Smoothed())
        ),
        (
            Task.from_module(lambda: nn.Linear(3, 1), (x, y), (x, y), "gaussian", noise=1.0),
            "its network takes inputs [5, 3] as several vectors",
        ),
    ]
    for unfit, words in of_specs:
        with refused("pack", "5", words):
            Chain(unfit)
    for own, words in of_tasks:
        with refused("pack", "5", words):
            Chain(made(own, 20), own)
    with refused("pack", "5", "it has compile cuda-graphs, and steps of packs are compiled by default alone"):
        check(dataclasses.replace(isokinetic("mclmc", task, 20), compile="cuda-graphs", exact=False), task)
    with refused("pack", "-1"):
        ChainSpec.from_json({**one.to_json(), "pack": -1})
    pack = Pack(Chain(one, task))
    with refused("chain", "be of the pack's kind"):
        Chain(dataclasses.replace(one, pack=4), task).join(pack)


def test_a_chain_whose_own_update_fails_leaves_and_the_others_have_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Digits(train=90, hidden=[8])
    chains = [Chain(made(task, 20, "swag", chain=i), task) for i in range(3)]
    step = chains[1].sampler.step

    def failing() -> None:
        if chains[1].step == 7:
            raise OSError("of its own")
        step()

    monkeypatch.setattr(chains[1].sampler, "step", failing)
    found = ends(Pack(chains[0]), chains)
    assert str(found[1].exception()) == "of its own" and found[0].exception() is None
    assert outcome(chains[2], found[2].result()) == whole(chains[2].spec, task)


@pytest.mark.parametrize("batch", [20, pytest.param(90, marks=pytest.mark.long)])
def test_members_of_a_deep_ensemble_stop_each_by_itself(batch: int) -> None:
    task = Digits(train=90, hidden=[8])
    options = Run(init_from="deep-ensemble:30,4", lr="deep-ensemble=.1", batch_size=batch, pack="4")
    one = methods.resolve(options, task=task, sampler="deep-ensemble").spec
    specs = [dataclasses.replace(one, chain=i) for i in range(4)]
    alone = [Chain(s, task) for s in specs]
    straight = [outcome(c, run(c)) for c in alone]
    assert len({c.step for c in alone}) > 1 and min(c.step for c in alone) < one.steps
    chains = [Chain(specs[i], task) for i in (2, 0, 3, 1)]
    told = together(Pack(chains[1]), chains)
    assert [outcome(*pair) for pair in zip(chains, told, strict=True)] == [straight[i] for i in (2, 0, 3, 1)]


def test_an_error_of_a_joint_step_ends_all_of_its_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Digits(train=90, hidden=[8])
    chains = [Chain(made(task, 20, chain=i), task) for i in range(3)]
    pack = Pack(chains[0])
    monkeypatch.setattr(pack, "_prepare", lambda rows: 1 / 0)
    assert {type(end.exception()) for end in ends(pack, chains, Chain.advance)} == {ZeroDivisionError}
    assert len(pack) == 0


def test_chains_of_a_kind_share_a_pack_while_it_has_room() -> None:
    task, packs = Digits(train=90, hidden=[8]), Packs()
    one = made(task, 20, width=2)
    specs = [one, *(dataclasses.replace(one, chain=i) for i in (5, 6)), made(task, 20, "sgld", width=2)]
    joined = [packs.join(Chain(s, task)) for s in specs]
    assert joined[0] is joined[1] and len({id(pack) for pack in joined}) == 3


def test_the_width_is_in_the_digest_and_its_default_is_not() -> None:
    one = made(Digits(train=90, hidden=[8]), 20)
    assert "pack" not in dataclasses.replace(one, pack=0).to_json()
    assert len({dataclasses.replace(one, pack=width).digest for width in (0, 1, 5)}) == 3
    assert ChainSpec.from_json(one.to_json()) == one
    same = dataclasses.replace(colder(one), chain=3, repeat=2)
    assert key(same) == key(one) != key(dataclasses.replace(one, pack=4))
