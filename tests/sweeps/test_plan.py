"""Points of a sweep: the same cost, the same chains as `raychains run` has, refused before anything starts."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains import samplers, schedules
from raychains.api import plans
from raychains.core.config import Run, Sweep
from raychains.core.errors import Interrupted, UserError
from raychains.core.spec import ChainSpec
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.tune.sweep_experiment import SweepOutcome
from raychains.planning import methods, sweep_points
from raychains.planning.budget import gradient_evaluations
from raychains.planning.reports import cycle_count, report_steps
from raychains.tasks.digits import Digits
from raychains.tasks.from_options import with_validation
from raychains.tasks.user_defaults import defaults_of


def plan(**settings: object) -> sweep_points.Planned:
    return plans.sweep(Sweep(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("pack", ["none", "auto"])
def test_every_point_and_every_trial_is_the_chain_that_run_makes_of_its_options(pack: str) -> None:
    planned = plan(epochs=40, lr=0.1, pack=pack, grid=("exploration=0,.5", "cycles=2,4"), repeats=3)
    assert planned.plan.count == 4 and planned.plan.repeats == 3
    for point in planned.plan.points:
        options = Run(**planned.best_options(point.values), chains=1, repeats=3)
        [arm] = plans.run(options).comparison.arms
        assert [spec for [spec] in arm.chains] == list(point.specs)
        trials = [planned.points.make(0, point.values, repeat + 1).specs[repeat] for repeat in range(3)]
        assert [spec.digest for spec in trials] == [spec.digest for spec in point.specs]


def test_chains_have_the_schedule_of_the_options_else_the_tasks() -> None:
    task = dataclasses.replace(defaults_of(Digits()).of("emcmc"), schedule="constant")
    assert methods.schedule_kind(Run(), samplers.method("emcmc"), task) == "constant"
    assert methods.schedule_kind(Run(schedule="linear"), samplers.method("emcmc"), task) == "linear"


def test_values_that_are_lists_are_told_apart() -> None:
    lists = [[0.5, 0.75], [0.25, 0.5], [0.5, 0.75]]
    base = Run(epochs=40, sampler="sgdm", schedule="step")
    task, options, _ = with_validation(base, None)
    points = sweep_points.Points(options, task)
    made = [points.make(n, {"milestones": one}) for n, one in enumerate(lists)]
    assert sweep_points._tried(made, ["milestones"]) == {"milestones": lists[:2]}


def test_points_with_other_batches_and_with_two_gradients_per_step_cost_the_same() -> None:
    batches = plan(epochs=40, cycles=2, grid=("batch_size=7,45,50,449",)).plan
    samplers = plan(epochs=40, grid=("sampler=csghmc,sam,snapshot-sgdm", "cycles=2,4")).plan
    for planned in (batches, samplers):
        assert {gradient_evaluations(p.specs[0]) for p in planned.points} == {planned.gradients} == {40 * 450}
    steps = {p.sampler: p.specs[0].steps for p in samplers.points}
    assert steps["csghmc"] == steps["snapshot-sgdm"] == 2 * steps["sam"]


def test_the_default_grid_is_beta_and_m_as_far_as_they_fit() -> None:
    planned = plan(epochs=40).plan
    assert {p.specs[0].schedule.settings["cycles"] for p in planned.points} == {2, 4, 8} and planned.count == 12
    short = plan(epochs=2, batch_size=150).plan  # six steps
    assert short.count < 12 and any("is left out" in note for note in short.notes)
    assert list(plan(epochs=40, cycles=4).plan.swept) == ["exploration"]


def test_validation_data_are_held_out_and_whole_numbers_are_those_of_the_command_line() -> None:
    assert plan(epochs=40).plan.options["val_split"] == 0.1
    one, other = (
        plan(epochs=40, lr=lr, val_split=held, grid=("cycles=2,4",)).plan for lr, held in ((1, 100), (1.0, 100.0))
    )
    assert one.digest == other.digest and one.options == other.options
    assert one.options["val_split"] == 100 and one.gradients == 40 * 400


def test_further_settings_are_swept_by_their_names() -> None:
    planned = plan(epochs=40, sampler="emcmc", sampler_settings=("anchor_decay=0.01",), grid=("eta=4e-4,1e-3",))
    etas = [p.specs[0].sampler.settings["eta"] for p in planned.plan.points]
    assert etas == [4e-4, 1e-3]
    assert {p.specs[0].sampler.settings["anchor_decay"] for p in planned.plan.points} == {0.01}
    best = planned.best_options(planned.plan.points[1].values)
    assert best["sampler_settings"] == ["anchor_decay=0.01", "eta=0.001"]


def test_settings_are_stored_as_they_were_typed() -> None:
    """They are part of the digest of a sweep, which older ones have, too."""
    typed = plan(epochs=40, sampler_settings=("weight-decay=1e-3",)).plan
    assert typed.options["sampler_settings"] == ["weight-decay=1e-3"]
    assert typed.points[0].specs[0].sampler.settings["weight_decay"] == 0.001


def test_random_points_are_drawn_again_until_they_fit_and_the_same_every_time() -> None:
    space = ("cycles=int:2:60", "lr=log:1e-3:1")
    first, second = (plan(epochs=40, space=space, random=8).plan for _ in range(2))
    assert first.digest == second.digest and len(first.points) == 8
    assert [p.values for p in first.points] != [
        p.values for p in plan(epochs=40, space=space, random=8, seed=1).plan.points
    ]
    assert any("drawn again" in note for note in first.notes)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"grid": ("cycles=3,5000",)},
            r"^grid: point cycles=5000: cycles must be at most the number of steps \(1800\)",
        ),
        ({"grid": ("exploration=0,1",)}, r"^grid: point exploration=1.0: exploration must lie in \[0, 1\)"),
        ({"grid": ("cycles=2.5",)}, "cycles must be an integer, got 2.5"),
        ({"grid": ("lr=fast",)}, "lr must be a number, got 'fast'"),
        ({"grid": ("cyles=2",)}, "did you mean 'cycles'"),
        ({"grid": ("beta=0,.5", "M=2")}, r"must be one of \d+ names, got 'beta'; did you mean 'exploration'\?"),
        ({"grid": ("M=2",)}, r"must be one of \d+ names, got 'M'; did you mean 'cycles'\?"),
        ({"grid": ("epochs=10,20",)}, "epochs must be the same at every point"),
        ({"lr": 0.1, "grid": ("lr=.1,.5",)}, "lr must be given once"),
        ({"sampler": "emcmc", "sampler_settings": ("eta=1",), "grid": ("eta=1,2",)}, "eta must be given once"),
        ({"grid": ("eta=1,2",)}, "sampler_settings must be"),
        ({"chains": 4}, "chains must be 1, got 4"),
        ({"task": "mixture25"}, "task must have a split val, .* a density has no data"),
        ({"task": "tests.sweeps.tasks:Undivided"}, "task must have a split val, which a sweep decides on"),
        ({"val_split": 0.0}, "give `val_split=.1`"),
        ({"metric": "nil"}, "metric must be one of .* did you mean 'nll'"),
        ({"metric": "entropy"}, "metric must be one of which less or more is better, got 'entropy'"),
        ({"space": ("lr=log:1e-3:1",)}, "space must be left out without `random=N` or `optuna=N`"),
        ({"random": 4}, "space must name what random draws"),
        ({"random": 0, "space": ("lr=log:1e-3:1",)}, "random must be an integer of at least 1, got 0"),
        ({"random": 4, "optuna": 4, "space": ("lr=log:1e-3:1",)}, "optuna must be left out beside `random`"),
        ({"random": 4, "space": ("lr=log:1e-3:1",), "grid": ("cycles=2",)}, "grid must be left out beside `random`"),
        ({"random": 4, "space": ("cycles=int:5000:6000",)}, "space must hold points that fit, got none in"),
        ({"sampler": "sghmc"}, "grid must be given: .* cycles must be left out for schedule decreasing, got 2"),
        ({"sampler": "csgld", "schedule": "constant"}, "grid must be given: .* schedule must be cyclical for csgld"),
        ({"cycles": 2, "exploration": 0.5}, "grid must name what is varied"),
        ({"asha": True, "asha_grace": 1.0}, r"asha_grace must lie in \(0, 1\), got 1.0"),
        ({"asha": True, "asha_reduction": 1.0}, "asha_reduction must be a number above 1, got 1.0"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_is_one_line(settings: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line) as error:
        plan(**settings)
    assert "\n" not in str(error.value)


def test_a_sweep_that_is_resumed_judges_by_the_bins_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stopped(planned: object, folder: object, resources: ResourceConfig, *_: object, **__: object) -> SweepOutcome:
        seen.append(resources.bins)
        return SweepOutcome((), {}, interrupted=True)

    monkeypatch.setattr("raychains.orchestration.tune.sweep_experiment.run", stopped)
    monkeypatch.setattr("raychains.api.run_context.on_ray", lambda *_: contextlib.nullcontext())
    about: dict[str, Any] = {"epochs": 8, "grid": {"cycles": [2]}, "store": str(tmp_path), "name": "it"}
    for more in ({"bins": 8}, {"resume": True}, {"resume": True, "bins": 8}):
        with pytest.raises(Interrupted):
            rc.sweep(**about, **more, progress=False)
    assert seen == [8, 8, 8]
    with pytest.raises(UserError, match=r"sweep 'it' was planned with other settings, by .*--bins 8"):
        rc.sweep(**about, resume=True, bins=15, progress=False)


# When chains report


def specs(**settings: object) -> ChainSpec:
    return plans.run(Run(**settings)).comparison.arms[0].chains[0][0]  # type: ignore[arg-type]


def test_a_cyclical_chain_reports_at_the_end_of_each_cycle_when_every_variable_is_drawn() -> None:
    for sampler, cycles, samples in (("csghmc", 4, 2), ("snapshot-sgdm", 1, 1), ("emcmc", 4, 4)):
        spec = specs(epochs=40, sampler=sampler, cycles=cycles, **({"samples_per_cycle": 2} if cycles > 1 else {}))
        found = [(s.cycle, s.step, s.samples) for s in report_steps(spec)]
        assert found == [(c, (c + 1) * spec.steps // cycles, samples * (c + 1)) for c in range(cycles)]


def test_a_short_last_cycle_without_samples_is_reported_at_its_end() -> None:
    schedule = schedules.Cyclical(steps=22, lr=0.1, cycles=2, exploration=0.5)
    short = schedules.Cyclical(steps=25, lr=0.1, cycles=3, exploration=0.8)  # 9, 9 and 7 steps
    spec = specs(epochs=40)
    made = dataclasses.replace(spec, schedule=schedule.part(), steps=22)
    assert [(s.cycle, s.step) for s in report_steps(made)] == [(0, 11), (1, 22)]
    last = report_steps(dataclasses.replace(spec, schedule=short.part(), steps=25))
    assert [(s.cycle, s.step) for s in last] == [(0, 9), (1, 18), (2, 25)]
    assert last[-1].samples == last[-2].samples == short.kept


def test_a_chain_without_cycles_reports_ten_times_over_its_samples() -> None:
    spec = specs(epochs=40, sampler="sghmc", schedule_settings=("samples=30",), thinning=1)
    stops = report_steps(spec)
    assert [s.samples for s in stops] == [3 * i for i in range(1, 11)] and stops[-1].step == spec.steps
    few = dataclasses.replace(
        spec, schedule=dataclasses.replace(spec.schedule, settings={**spec.schedule.settings, "samples": 4})
    )
    assert [s.samples for s in report_steps(few)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "settings",
    [
        {"cycles": 4, "samples_per_cycle": 2},
        {"sampler": "snapshot-sgdm", "cycles": 1},
        {"sampler": "sghmc", "schedule_settings": ("samples=30",), "thinning": 1},
        {"sampler": "sghmc", "schedule_settings": ("samples=4",), "thinning": 1},
        {"sampler": "sgdm", "schedule": "step"},
        {"sampler": "emcmc", "cycles": 5},
    ],
    ids=str,
)
def test_the_number_of_cycles_is_that_of_the_reports(settings: dict[str, object]) -> None:
    spec = specs(epochs=40, **settings)
    for reports in (3, 10):
        assert cycle_count(spec, reports) == report_steps(spec, reports)[-1].cycle + 1
