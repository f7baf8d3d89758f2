"""Plans of chains that start at the members of a deep ensemble: one plan, both arms, shared members."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from raychains import tasks
from raychains.api import plans
from raychains.core.config import Compare, Run
from raychains.core.spec import ChainSpec
from raychains.planning import Comparison, budget, gradient_evaluations, sweep_points
from raychains.planning.budget import Spent
from raychains.planning.ensemble_start import EnsembleStart, ensemble_start
from tests.checks import refused


def both(**change: Any) -> Comparison:
    options: dict[str, Any] = {"sampler": ("deep-ensemble", "sghmc"), "init_from": "deep-ensemble:50,10", "epochs": 40}
    return plans.compare(Compare(**{**options, "schedule": ("cyclical",), "repeats": 2, **change})).comparison


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("net.pt", None),
        ("deep-ensembles/net.pt", None),
        ("./deep-ensemble", None),
        ("deep-ensemble", EnsembleStart()),
        ("deep-ensemble:1200,20", EnsembleStart(epochs=1200, patience=20)),
    ],
)
def test_the_option_names_a_file_or_an_ensemble(text: str | None, found: EnsembleStart | None) -> None:
    assert ensemble_start(text) == found


@pytest.mark.parametrize("rest", [":x", ":", ":50", ":50,", ":0,5", ":5,0", ":50,10,3", ":1.5,2", ",50", " "])
def test_an_ensemble_that_is_named_otherwise_is_refused_in_one_line(rest: str) -> None:
    text = f"deep-ensemble{rest}"
    with refused("init_from must be a file", "deep-ensemble[:epochs,patience]", f"got {text!r}"):
        Run(init_from=text)


def test_both_arms_come_out_of_one_plan_and_share_the_members() -> None:
    plan = both()
    alone, parallel, single = plan.arms
    assert [a.name for a in plan.arms] == ["deep-ensemble-constant-4x50", "sghmc-cyclical-4x40", "sghmc-cyclical-1x40"]
    for group in (0, 1):
        members = [spec.digest for spec in alone.chains[group]]
        assert [spec.start_chain for spec in parallel.chains[group]] == members
        assert single.chains[group] == parallel.chains[group][:1]
    order = list(plan.chains())
    assert len(order) == 16 and all(
        order.index(spec.start_chain) < order.index(spec.digest) for spec in plan.chains().values() if spec.start_chain
    )
    [member, *_] = alone.chains[0]
    assert member.steps == 50 * 9 and member.early_stop is not None and member.early_stop.patience == 10
    assert member.sampler.settings["num_data"] == 425 and parallel.chains[0][0].sampler.settings["num_data"] == 500


def test_chains_without_the_ensembles_arm_have_the_same_members_and_digests() -> None:
    with_arm, without = both(), both(sampler=("sghmc",))
    assert without.arms == with_arm.arms[1:] and without.chains() == with_arm.chains()
    alone = plans.run(Run(sampler="deep-ensemble", init_from="deep-ensemble:50,10", epochs=3, repeats=2))
    assert alone.comparison.arms[0].chains == with_arm.arms[0].chains
    plain = plans.run(Run(sampler="deep-ensemble", epochs=50, repeats=2)).comparison.arms[0].chains[0][0]
    member = with_arm.arms[0].chains[0][0]
    assert plain.early_stop is not None and plain.early_stop.patience == 20
    assert dataclasses.replace(plain, early_stop=member.early_stop) == member


def test_options_of_the_chains_leave_their_members_alone_but_for_what_is_named() -> None:
    member = both().arms[0].chains[0][0]
    others = {"lr": 0.1, "temperature": "sghmc=.5", "cycles": 2, "thinning": 7, "samples_per_cycle": 1}
    changed = both(
        **others, weight_decay=0.01, schedule_settings=("ramp=.2",), sampler_settings=("noise_estimate=.01",)
    )
    assert changed.arms[0].chains[0][0] == member and changed.arms[1].chains != both().arms[1].chains
    arms = both(lr="deep-ensemble=.01,sghmc=.1").arms
    named = arms[0].chains[0][0]
    assert named.schedule.settings["lr"] == 0.01 and named.digest != member.digest
    assert arms[1].chains[0][0].start_chain == named.digest
    with refused("sampler of lr"):
        both(init_from=None, sampler=("sghmc",), lr="deep-ensemble=.01")


def test_a_plan_is_stored_with_its_members_and_read_back() -> None:
    plan = both(sampler=("sghmc",))
    stored = json.loads(json.dumps(plan.to_json()))
    read = Comparison.from_json(stored)
    assert read == plan and read.digest == plan.digest and read.starts == plan.starts
    lost = next(iter(plan.starts))
    del stored["chains"][lost]
    with refused("plan"):
        Comparison.from_json(stored)
    with refused("must start at a chain of the plan"):
        dataclasses.replace(plan, starts={})


def test_specs_of_earlier_versions_keep_their_digests() -> None:
    spec = both(init_from=None, sampler=("sghmc",)).arms[0].chains[0][0]
    assert not {"start_chain", "early_stop"} & spec.to_json().keys()
    started = both().arms[1].chains[0][0]
    assert ChainSpec.from_json(started.to_json()) == started
    member = both().arms[0].chains[0][0]
    assert ChainSpec.from_json(member.to_json()) == member and member.to_json()["early_stop"]["patience"] == 10
    for wrong in ({"share": 0.1}, {"share": 2, "patience": 1}, {"share": 0.1, "patience": 0}, 3, [1, 2]):
        with refused("early_stop"):
            ChainSpec.from_json({**member.to_json(), "early_stop": wrong})
    with refused("start_chain"):
        ChainSpec.from_json({**started.to_json(), "start": "0" * 64})


def test_the_ledger_counts_members_once_and_what_they_did_not_need_not_at_all() -> None:
    plan = both(repeats=1)
    ledger = budget(plan)
    member, chain = (gradient_evaluations(plan.arms[n].chains[0][0]) for n in (0, 1))
    assert (member, chain) == (50 * 425, 40 * 500)
    assert ledger.unique == 4 * member + 4 * chain
    assert ledger.arms == 4 * member + 4 * (member + chain) + (member + chain)
    assert ledger.unique_length == 4 * 50 + 4 * 40
    alone, parallel = plan.arms[:2]
    spent = Spent(plan.chains(), {spec.digest: 90 for spec in alone.chains[0]})
    assert spent.total == 4 * 10 * 425 and spent.planned == 4 * 10 * 425 + 4 * chain
    for spec in parallel.chains[0]:
        spent.at(spec.digest, spec.steps // 2)
        spent.finish(spec.digest, spec.steps)
    assert spent.total == spent.planned
    assert parallel.per_repeat(0, spent.made) == 4 * (10 * 425 + chain)
    assert alone.per_repeat(0, spent.made) == 4 * 10 * 425


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "gaussian", "epochs": None}, ("init_from must be a file for task gaussian",)),
        ({"workers_per_chain": 2}, ("workers_per_chain", "deep ensemble")),
        ({"micro_batch": 10}, ("micro_batch", "deep ensemble")),
        ({"sample_only": ("nothing.*",)}, ("sample_only", "nothing.*")),
    ],
)
def test_what_an_ensemble_cannot_start_is_refused(change: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        both(**{"sampler": ("sghmc",), **change})


def test_a_trial_is_one_chain_and_has_no_members() -> None:
    each = "init_from must be a file or none where each trial is one chain"
    with refused(each, "deep-ensemble:5,1"):
        sweep_points.Points(Run(init_from="deep-ensemble:5,1"), tasks.make("digits")).make(0, {})
    with refused(each, "None", "at which mile starts by default"):
        sweep_points.Points(Run(sampler="mile", epochs=40), tasks.make("digits")).make(0, {})
    options = Run(task="digits", sampler="mile", epochs=40, init_from="none", chains=1, repeats=1)
    (spec,) = sweep_points.Points(options, tasks.make("digits")).make(0, {}).specs
    alone = plans.run(options)
    assert spec.digest == alone.comparison.arms[0].chains[0][0].digest
