"""A name gives sampler, schedule and the paper's settings; what a person gives comes first."""

from __future__ import annotations

from typing import Any

import pytest

from raychains import samplers, tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.sample import Sample
from raychains.planning import gradient_evaluations, methods
from raychains.samplers import METHODS, SGD
from raychains.schedules import Cyclical, Decreasing, Exponential, Linear, Step
from tests.checks import refused
from tests.spread import spread
from tests.tasks.made_images import NETWORKS

NAMES = """sgd sgdm snapshot-sgd snapshot-sgdm sgld csgld sghmc csghmc psgld cpsgld sgnht atmc emcmc entropy-sgd
entropy-sgld sam bsam adamw deep-ensemble mclmc tuned-mclmc mile swag multiswag laplace"""
SHORT = {"digits": {"epochs": 8}}


def resolved(sampler: str, task: str = "digits", schedule: str | None = None, **options: Any) -> methods.Method:
    return methods.resolve(Run(**options), task=tasks.make(task), sampler=sampler, schedule=schedule)


def test_the_names_are_those_that_people_expect() -> None:
    assert set(METHODS) == set(NAMES.split())
    assert {m.kind for m in METHODS.values()} == set(samplers.KINDS)


# Tasks that read images or tables have tests of their own.
WITH_DATA = (*NETWORKS, "mnist-", "blr-", "uci-", "image")


@pytest.mark.parametrize(
    ("name", "task"), spread(NAMES.split(), [t for t in tasks.NAMES if not t.startswith(WITH_DATA)])
)
def test_every_method_samples_every_task(name: str, task: str) -> None:
    options = SHORT.get(task, {"steps": 120})
    held_out, measures = METHODS[name].early_stop is not None, METHODS[name].last_epoch_measures
    if "steps" in options and (held_out or measures):
        with refused(
            "sampler must be another one", "no examples to hold out" if held_out else "laplace needs a network"
        ):
            resolved(name, task, **options)
        return
    method = resolved(name, task, **options, init_from="none")
    assert method.spec.sampler.kind == METHODS[name].kind and method.spec.schedule.kind == METHODS[name].schedule
    drawn = [e for e in Chain(method.spec, method.task) if isinstance(e, Sample)]
    assert drawn  # a non-finite draw would have raised


def test_a_prefix_c_is_the_cyclical_schedule_and_snapshots_are_one_cold_sample_a_cycle() -> None:
    for name in ("sgld", "sghmc", "psgld"):
        assert isinstance(resolved(name).schedule, Decreasing) and isinstance(resolved(f"c{name}").schedule, Cyclical)
        assert resolved(f"c{name}").spec.sampler == resolved(name).spec.sampler
    snapshot = resolved("snapshot-sgdm")
    assert isinstance(snapshot.schedule, Cyclical) and snapshot.spec.sampler.settings["momentum"] == 0.9
    assert snapshot.schedule.samples_per_cycle == 1 and snapshot.schedule.temperature == 0
    last = [k for k in range(1, snapshot.schedule.steps + 1) if snapshot.schedule.at(k).keep]
    assert last == [500, 1000, 1500, 2000]


def test_the_papers_settings_come_with_the_name() -> None:
    emcmc, atmc, bsam = resolved("emcmc"), resolved("atmc"), resolved("bsam")
    assert isinstance(emcmc.schedule, Cyclical) and emcmc.schedule.samples_per_cycle == 2
    assert all(emcmc.schedule.at(k).temperature == 1 for k in (1, 100, 500))  # noise always on
    assert emcmc.spec.sampler.settings["momentum"] == 0 and emcmc.spec.sampler.settings["anchor_decay"] == 0
    assert isinstance(atmc.schedule, Cyclical) and atmc.schedule.samples_per_cycle == 1
    assert bsam.schedule.cycle_count == 1 and bsam.schedule.kept == 1
    assert resolved("entropy-sgd").spec.sampler.settings["gamma"] > 0


def test_what_is_given_comes_before_the_name_and_that_before_the_task() -> None:
    given = resolved(
        "emcmc",
        lr=0.1,
        cycles=2,
        exploration=0.5,
        samples_per_cycle=3,
        temperature=0.5,
        momentum=0.8,
        weight_decay=0.01,
        sampler_settings=("eta=.25", "update=gibbs", "anchor-decay=1"),
        schedule_settings=("drop_first=10",),
    )
    schedule, own = given.schedule, given.spec.sampler.settings
    assert isinstance(schedule, Cyclical)
    assert (schedule.lr, schedule.cycles, schedule.exploration, schedule.samples_per_cycle) == (0.1, 2, 0.5, 3)
    assert (schedule.temperature, schedule.drop_first) == (0.5, 10)
    assert {n: own[n] for n in ("momentum", "weight_decay", "eta", "update", "anchor_decay")} == {
        "momentum": 0.8, "weight_decay": 0.01, "eta": 0.25, "update": "gibbs", "anchor_decay": 1.0,
    }  # fmt: skip
    assert isinstance(resolved("emcmc", schedule="linear").schedule, Linear)


def test_whole_numbers_and_their_floats_are_one_digest() -> None:
    one = resolved("emcmc", sampler_settings=("eta=1",), temperature=1, lr=1)
    other = resolved("emcmc", sampler_settings=("eta=1.0",), temperature=1.0, lr=1.0)
    assert one.spec.digest == other.spec.digest


def test_mile_tunes_for_half_of_its_steps_on_full_batches_and_keeps_draws_of_the_rest() -> None:
    made = resolved("mile", epochs=2000)
    schedule, own = made.schedule, made.spec.sampler.settings
    assert made.spec.batch_size == 500 and made.spec.steps == 1000 and own["tune"] == 500
    assert all(schedule.at(k).temperature == 1 for k in (1, 500, 1000))
    kept = [k for k in range(1, 1001) if schedule.at(k).keep]
    assert min(kept) > 500 and len(kept) == schedule.kept == 100
    every = resolved("mile", epochs=2000, thinning=1).schedule
    assert [k for k in range(1, 1001) if every.at(k).keep] == list(range(501, 1001))
    short = resolved("mile", epochs=400).schedule  # as evenly, however few the epochs
    assert [k for k in range(1, 201) if short.at(k).keep] == list(range(101, 201))
    density = resolved("mile", "gaussian", steps=800).schedule
    assert [k for k in range(1, 401) if density.at(k).keep] == list(range(201, 401))
    given = resolved("mclmc", "gaussian", steps=800, burn_in=100, sampler_settings=("tune=20",)).schedule
    assert [given.at(k).keep for k in (50, 51, 70, 71)] == [False, False, False, True]
    assert resolved("mclmc").spec.sampler.settings["tune"] == 0
    with refused("schedule", "cycles", "cyclical"):
        resolved("mile", schedule="cyclical")
    with refused("tune", "400", "400 steps"):
        resolved("mclmc", "gaussian", steps=800, sampler_settings=("tune=400",))


class Halving(SGD):
    """A user's sampler that divides each batch."""

    parts = 2


@pytest.mark.parametrize("sampler", ["bsam", f"{__name__}:Halving"])
def test_micro_batches_are_refused_for_a_sampler_that_divides_a_batch_itself(sampler: str) -> None:
    with refused("micro_batch must be left out for samplers that divide a batch themselves", "5"):
        resolved(sampler, micro_batch=5, lr=0.1)


def test_mile_starts_networks_at_a_deep_ensemble_unless_the_user_says_otherwise() -> None:
    [made, named, other] = [
        resolved("mile", epochs=200, init_from=start) for start in (None, "deep-ensemble", "deep-ensemble:30,5")
    ]
    assert made.spec.start_chain is not None and made.spec.digest == named.spec.digest != other.spec.digest
    assert resolved("mile", epochs=200, init_from="none").spec.start_chain is None
    assert resolved("sghmc", epochs=200, init_from="none").spec.digest == resolved("sghmc", epochs=200).spec.digest
    assert resolved("mile", "gaussian", steps=800).spec.start_chain is None
    with refused("init_from", "another-file"):
        resolved("mile", epochs=200, init_from="another-file.safetensors")


def test_schedules_take_their_settings() -> None:
    linear = resolved("sgld", schedule="linear", lr=0.5, final_lr=0.1).schedule
    assert isinstance(linear, Linear) and (linear.at(1).lr, linear.at(2000).lr) == (0.5, 0.1)
    exponential = resolved("sgld", schedule="exponential", lr=0.5).schedule
    assert isinstance(exponential, Exponential) and exponential.final_lr == pytest.approx(0.005)
    step = resolved("sgld", schedule="step", schedule_settings=("milestones=[.25,0.5]", "factor=.5")).schedule
    assert isinstance(step, Step) and (step.milestones, step.factor) == ((0.25, 0.5), 0.5)
    decreasing = resolved("sgld", lr=0.5, final_lr=0.25).schedule
    assert decreasing.at(2000).lr == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ({"exploration": 0.25}, "exploration=.5"),
        ({"cycles": 2}, "cycles=4"),
        ({"thinning": 7}, "thinning=3"),
        ({"temperature_ramp": 0.1}, "ramp=.1"),
    ],
)
def test_what_a_schedule_is_told_is_told_once(option: dict[str, Any], setting: str) -> None:
    """Else a sweep over an option would run one chain under many names."""
    (name,) = option
    with refused(f"{name} must be given once", setting.partition("=")[0]):
        resolved("csghmc", schedule_settings=(setting,), **option)


def test_a_tasks_batch_is_no_larger_than_its_data() -> None:
    few = methods.resolve(Run(), task=tasks.make("digits", train=20), sampler="csghmc")
    assert few.spec.batch_size == 20 and few.spec.steps_per_epoch == 1
    with refused("batch_size", "21", "[1, 20]"):
        methods.resolve(Run(batch_size=21), task=tasks.make("digits", train=20), sampler="csghmc")


def test_a_decreasing_step_size_falls_to_the_last_one_or_as_a_and_b_say() -> None:
    schedule = resolved("sgld", task="gaussian", schedule="decreasing", steps=100, lr=0.1, final_lr=0.01).schedule
    assert (schedule.at(1).lr, schedule.at(100).lr) == (pytest.approx(0.1), pytest.approx(0.01))
    assert resolved("sgld", lr=0.5, schedule_settings=("b=3",)).schedule.at(1).lr == pytest.approx(0.5 / 4)
    with refused("final_lr", "be left out beside the schedule's b", "0.25"):
        resolved("sgld", lr=0.5, final_lr=0.25, schedule_settings=("b=3",))


@pytest.mark.parametrize("schedule", ["decreasing", "constant", "linear", "exponential", "step"])
def test_burn_in_is_an_exact_number_of_epochs_without_noise(schedule: str) -> None:
    made = resolved("sgld", schedule=schedule, burn_in=33, epochs=100).schedule
    assert [made.at(k).temperature > 0 for k in (1, 330, 331, 1000)] == [False, False, True, True]


def test_burn_in_of_a_cyclical_schedule_is_of_every_cycle() -> None:
    made = resolved("csgld", burn_in=40, epochs=200).schedule  # cycles of 50 epochs
    noisy = [k for k in (400, 401, 500, 501, 900, 901) if made.at(k).temperature > 0]
    assert noisy == [401, 500, 901]
    with refused("burn_in", "exploration"):
        resolved("csgld", burn_in=40, exploration=0.5)
    with refused("burn_in", "200"):
        resolved("sgld", burn_in=200)
    for epochs in (50, 60):
        with refused("burn_in", "shorter than a cycle, one of 4 in 200", str(epochs)):
            resolved("csgld", burn_in=epochs, epochs=200)


def test_a_temperature_ramp_reaches_the_schedule() -> None:
    made = resolved("sgld", schedule="constant", epochs=100, burn_in=20, temperature_ramp=0.5).schedule
    temperatures = [made.at(k).temperature for k in range(1, 1001)]
    assert temperatures[:200] == [0.0] * 200 and temperatures[-1] == 1
    assert 0 < temperatures[300] < temperatures[500] < 1


def test_two_gradients_a_step_are_half_the_steps_at_the_same_cost() -> None:
    plan = plans.compare(Compare(sampler=("sgdm", "sam"), epochs=40)).comparison
    by_name = {arm.name: arm for arm in plan.arms}
    sgdm, sam = by_name["sgdm-cyclical-4x40"], by_name["sam-cyclical-4x40"]
    a, b = sgdm.chains[0][0], sam.chains[0][0]
    assert (a.steps, b.steps) == (400, 200) and gradient_evaluations(a) == gradient_evaluations(b) == 40 * 500
    assert sgdm.cost == sam.cost == "40/160"
    with refused("steps", "even", "301"):
        resolved("sam", "gaussian", steps=301)


def test_a_name_that_is_its_own_schedule_has_only_that_ones_arms() -> None:
    plan = plans.compare(Compare(sampler=("csgld", "snapshot-sgd"), epochs=40)).comparison
    assert [arm.label for arm in plan.arms] == [
        "cSGLD, 4 chains", "cSGLD, 1 chain", "Snapshot-SGD, 4 chains", "Snapshot-SGD, 1 chain",
    ]  # fmt: skip
    ramped = plans.compare(Compare(sampler=("csgld",), exploration=0.0, temperature_ramp=0.5)).comparison
    assert {arm.schedule for arm in ramped.arms} == {"cyclical"}, "no arm decreases, where that ramp leaves no room"
    with refused("schedule", "cyclic"):
        plans.compare(Compare(sampler=("csgld",), schedule=("cyclic",)))


def test_compared_schedules_beside_the_tables_have_a_parallel_arm_each() -> None:
    kinds = ("cyclical", "constant", "linear", "exponential", "step")
    plan = plans.compare(Compare(sampler=("emcmc",), schedule=kinds, epochs=40)).comparison
    assert [(a.schedule, len(a.chains[0])) for a in plan.arms] == [("cyclical", 4), ("cyclical", 1)] + [
        (k, 4) for k in kinds[1:]
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler_settings": ("eta",)}, ("sampler_settings", "NAME=VALUE", "'eta'")),
        ({"sampler_settings": ("eta=1", "eta=2")}, ("sampler_settings", "once")),
        ({"sampler_settings": ("etta=1",)}, ("sampler_settings", "etta", "did you mean 'eta'")),
        ({"sampler_settings": ("update=both",)}, ("update", "'joint' or 'gibbs'", "both")),
        ({"schedule_settings": ("cicles=3",)}, ("schedule_settings", "cicles")),
        ({"task_settings": ("train=0",)}, ("train", "0")),
        ({"task_settings": ("trains=9",)}, ("task_settings", "trains")),
        ({"temperature_ramp": 1.5}, ("temperature_ramp", "1.5")),
        ({"temperature_ramp": 0.9, "exploration": 0.5}, ("temperature_ramp must leave", "0.9")),
        ({"schedule": "linear", "final_lr": -1.0}, ("final_lr", "-1")),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        plans.run(Run(sampler="emcmc", **options))


def test_settings_of_the_task_make_another_task() -> None:
    plan = plans.run(Run(task="gaussian", sampler="sgld", task_settings=("correlation=.5", "dim=3"))).comparison
    assert plan.task_spec.settings["covariance"] == [[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]


def test_members_of_an_ensemble_may_have_any_schedule_without_cycles() -> None:
    (arm,) = plans.run(Run(sampler="deep-ensemble", schedule="linear", lr=0.01)).comparison.arms
    assert arm.schedule == "linear" and arm.label.startswith("Deep ensemble linear")
    assert {spec.early_stop is not None for spec in arm.chains[0]} == {True}
    with refused("schedule must be", "deep-ensemble", "cyclical"):
        plans.run(Run(sampler="deep-ensemble", schedule="cyclical"))
