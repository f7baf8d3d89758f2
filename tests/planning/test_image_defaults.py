"""Defaults of the image tasks and of a person's own: the papers' settings, and every method on every network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from raychains import samplers, tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.sample import Sample
from raychains.planning import methods
from raychains.samplers import METHODS
from raychains.schedules import Cyclical
from raychains.tasks import Task
from raychains.tasks.defaults import Defaults
from raychains.tasks.digits import Digits
from raychains.tasks.from_options import make_task
from raychains.tasks.mixture import Mixture25
from raychains.tasks.user_defaults import defaults_of
from tests.checks import refused
from tests.spread import spread
from tests.tasks import made_images
from tests.tasks.made_images import NETWORKS, TRAIN


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    made_images.use(monkeypatch)


def resolved(name: str, sampler: str, task: Task | None = None, **options: Any) -> methods.Method:
    found = task if task is not None else tasks.make(name)
    return methods.resolve(Run(**options), task=found, sampler=sampler)


LAPLACE_REFUSES = {
    "cifar100-resnet18": "the last layer must have at most 6,000 weights",
    "cifar100-lenet": "the last layer must have at most 6,000 weights",
    "cifar10-resnetpp56": "laplace needs the weight decay for its prior",
    "cifar10-resnet20-frn-silu": "laplace needs the weight decay for its prior",
}


@pytest.mark.parametrize(("sampler", "name"), spread(tuple(METHODS), tuple(NETWORKS)))
def test_every_method_has_settings_for_every_network(name: str, sampler: str) -> None:
    if sampler == "laplace" and name in LAPLACE_REFUSES:
        with refused(LAPLACE_REFUSES[name]):
            resolved(name, sampler)
        return
    method = resolved(name, sampler)
    stop = method.spec.early_stop
    learned = TRAIN - (stop.held_out(TRAIN) if stop is not None else 0)
    assert method.spec.sampler.settings["num_data"] == learned and method.schedule.kept > 0
    own_prior = name in ("cifar10-resnetpp56", "cifar10-resnet20-frn-silu")
    assert (method.spec.sampler.settings["weight_decay"] > 0) != own_prior  # the prior counts once
    cold = samplers.KINDS[METHODS[sampler].kind].noisy_counterpart is not None
    assert cold == (method.schedule.temperature == 0)


@pytest.mark.parametrize(
    ("sampler", "name"),
    [(s, "mnist-mlp") for s in ("csghmc", "psgld", "sgnht", "emcmc", "entropy-sgld", "sam", "bsam")]
    + [(s, "cifar10-resnetpp56") for s in ("csghmc", "sgdm", "atmc", "sam")],
)
def test_default_step_sizes_do_not_diverge(sampler: str, name: str) -> None:
    task = tasks.make(name, **({"hidden": [20]} if name == "mnist-mlp" else {"depth": 8, "width": 4}))
    method = resolved(name, sampler, task, epochs=4, batch_size=24)
    assert [e for e in Chain(method.spec, task) if isinstance(e, Sample)]  # a non-finite one would have raised


def test_a_subset_keeps_entropy_mcmcs_coupling_stable() -> None:
    """lr·2/(ηN) must stay below 2: η holds for (almost) all images, and is in proportion larger for fewer."""
    task = tasks.make("cifar10-resnet18")
    whole, part = task.defaults, defaults_of(task)
    assert isinstance(whole, Defaults)
    eta = part.sampler_settings["emcmc"]["eta"]
    assert eta * TRAIN == pytest.approx(whole.sampler_settings["emcmc"]["eta"] * 40_000)
    assert part.rate("cyclical", "emcmc") / (eta * TRAIN) < 1
    assert whole.on(45_000) == whole == whole.on(50_000)


@pytest.mark.parametrize(
    ("name", "exploration", "eta", "rho"),
    [("cifar10-resnet18", 0.8, 4e-4, 0.05), ("cifar100-resnet18", 0.94, 8e-3, 0.1)],
)
def test_cifar_settings_are_the_papers(name: str, exploration: float, eta: float, rho: float) -> None:
    """cSG-MCMC §5.2 and its authors' code; Entropy-MCMC's, SAM's and bSAM's own settings."""
    sghmc, sgld, emcmc, sam, bsam = (resolved(name, s) for s in ("csghmc", "csgld", "emcmc", "sam", "bsam"))
    for method, momentum in ((sghmc, 0.1), (sgld, None)):
        schedule = method.schedule
        assert isinstance(schedule, Cyclical) and method.length == 200 and method.spec.batch_size == 64
        assert (schedule.lr, schedule.cycles, schedule.exploration) == (0.5, 4, exploration)
        assert schedule.samples_per_cycle == 3 and schedule.temperature == 1 / 50_000
        assert method.spec.sampler.settings["weight_decay"] == 5e-4
        assert method.spec.sampler.settings.get("momentum") == momentum
    assert isinstance(emcmc.schedule, Cyclical) and (emcmc.schedule.lr, emcmc.schedule.temperature) == (0.5, 1e-4)
    assert emcmc.spec.batch_size == 128 and emcmc.spec.sampler.settings["eta"] == pytest.approx(eta * 40_000 / TRAIN)
    assert emcmc.schedule.samples_per_cycle == 2 and emcmc.schedule.exploration == 0
    assert sam.spec.sampler.settings["rho"] == rho and bsam.schedule.at(1).lr == 0.5
    own = bsam.spec.sampler.settings
    assert own["weight_decay"] == pytest.approx(40 / 200_000) and (own["rho"], own["m_sharpness"]) == (0.01, 8)
    # w̃ has variance T/(N·s): every picture counts four times.
    assert bsam.schedule.at(1).temperature / 50_000 == 1 / 200_000


def test_a_network_without_cycles_is_noisy_in_the_last_quarter_and_keeps_twenty_samples() -> None:
    schedule = resolved("cifar10-resnet18", "sghmc").schedule
    steps = schedule.steps
    noisy = [schedule.at(k).temperature > 0 for k in (1, steps * 3 // 4, steps * 3 // 4 + 1, steps)]
    assert noisy == [False, False, True, True] and schedule.kept == 20


def test_mnist_settings_are_those_that_were_tried() -> None:
    method = resolved("mnist-mlp", "csghmc")
    schedule = method.schedule
    assert isinstance(schedule, Cyclical) and method.length == 40 and method.spec.batch_size == 128
    assert (schedule.lr, schedule.cycles, schedule.exploration, schedule.temperature) == (0.05, 4, 0.8, 1)
    assert {n: method.spec.sampler.settings[n] for n in ("momentum", "weight_decay")} == {
        "momentum": 0.9, "weight_decay": 1e-4,
    }  # fmt: skip
    long = resolved("mnist-mlp", "csghmc", batch_size=2).schedule  # many steps an epoch, as 60,000 images have
    kept = [k / 120 for k in range(1, long.steps + 1) if long.at(k).keep]
    assert kept == [e + cycle for cycle in (0, 10, 20, 30) for e in (9, 9.5, 10)]


def test_raychains_run_takes_the_tasks_own_method() -> None:
    for name, expected in (("cifar10-resnetpp56", "atmc"), ("mnist-mlp", "sghmc"), ("digits", "sghmc")):
        (arm,) = plans.run(Run(task=name)).comparison.arms
        assert (arm.chains[0][0].sampler.kind, arm.schedule) == (expected, "cyclical")
    arms = plans.compare(Compare(task="cifar10-resnetpp56")).comparison.arms
    assert {a.sampler for a in arms} == {"sgnht", "atmc"}


# Training images


def test_options_choose_the_training_images() -> None:
    options = Run(task="mnist-mlp", train_subset=200, val_split=0.2, task_settings=("split_seed=3",))
    (arm,) = plans.run(options).comparison.arms
    spec = arm.chains[0][0]
    assert spec.task.settings == {"train_subset": 200, "val_split": 40, "split_seed": 3}
    assert spec.sampler.settings["num_data"] == 160 and spec.steps_per_epoch == 2
    (whole,) = plans.run(Run(task="mnist-mlp")).comparison.arms
    assert whole.chains[0][0].task.settings == {} and whole.chains[0][0].digest != spec.digest
    digits = make_task(Run(val_split=50.0), "digits")
    assert digits.num_data == 450 and "val" in digits.splits()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "digits", "train_subset": 100}, ("train_subset", "digits", "100")),
        ({"task": "gaussian", "train_subset": 100}, ("train_subset", "gaussian")),
        ({"task": "mixture25", "val_split": 0.1}, ("val_split", "mixture25", "0.1")),
        ({"task": "mnist-mlp", "val_split": 0.1, "task_settings": ("val_split=.2",)}, ("val_split", "once")),
        ({"task": "mnist-mlp", "train_subset": 10**6}, ("train_subset", str(TRAIN))),
        ({"task": "mnist-mlp", "val_split": -1.0}, ("val_split", "-1")),
    ],
)
def test_a_task_that_cannot_is_one_line(options: Mapping[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        plans.run(Run(**options))


# A person's own task


class Own(Digits):
    """Digits with defaults of its own."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 12,
        "lr": 0.02,
        "batch_size": 25,
        "sampler": "csgld",
        "cycles": 2,
        "temperature": 0.5,
    }


def test_a_tasks_own_defaults_are_used_where_there_is_no_entry() -> None:
    own = defaults_of(Own())
    assert (own.run, own.samplers, own.epochs, own.batch_size, own.cycles) == ("csgld", ("sgld",), 12, 25, 2)
    method = resolved("pkg.mod:make", "csgld", Own())
    assert isinstance(method.schedule, Cyclical) and method.schedule.lr == 0.02 and method.schedule.temperature == 0.5
    assert (method.length, method.spec.batch_size, method.schedule.cycles) == (12, 25, 2)
    # Momentum .9 moves ten times as far per step, so that a tenth of SGLD's step goes as far.
    assert resolved("pkg.mod:make", "csghmc", Own()).schedule.at(1).lr == pytest.approx(0.002)
    given = resolved("pkg.mod:make", "csgld", Own(), epochs=4, lr=0.1)
    assert (given.length, given.schedule.at(1).lr) == (4, 0.1)


def test_a_task_without_defaults_has_general_ones() -> None:
    class Mine(Digits): ...

    class Density(Mixture25): ...

    network, density = defaults_of(Mine(train=100)), defaults_of(Density())
    assert defaults_of(Digits()).epochs == 200  # a built-in task's own hold for that class alone
    assert network.run == "csghmc" and network.batch_size == 100 and network.epochs == 40 and network.steps is None
    assert density.steps == 20_000 and density.epochs is None
    for name in METHODS:
        assert resolved("mine", name, Mine(train=100), epochs=8, batch_size=10).schedule.kept > 0
        if METHODS[name].early_stop is None and not METHODS[name].last_epoch_measures:  # a density has no examples
            assert resolved("mine", name, Density(), steps=400).schedule.kept > 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epoch": 3}, ("defaults of task Own", "epoch", "epochs")),
        ({"lr": -1}, ("lr", "defaults of task Own", "-1")),
        ({"lr": "fast"}, ("lr", "fast")),
        ({"sampler": "nuts"}, ("sampler", "nuts")),
    ],
)
def test_wrong_defaults_of_a_task_are_one_line(
    monkeypatch: pytest.MonkeyPatch, wrong: Mapping[str, Any], words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Own, "defaults", wrong)
    with refused(*words):
        defaults_of(Own())
