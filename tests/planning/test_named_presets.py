"""Presets: each arm differs in the setting that its name says and in nothing else; shared chains coincide; mistakes are
one line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from raychains import samplers, schedules
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.options import options_of
from raychains.core.sample import Sample
from raychains.planning import Arm, Comparison, compatible
from raychains.planning.presets import arms as presets
from raychains.planning.presets.named import PRESETS as ALL
from raychains.planning.presets.named import Preset, Variant
from raychains.tasks.digits import Digits
from tests.checks import refused

DIGITS = [name for name, preset in ALL.items() if preset.task == "digits"]
DIFFERS: Mapping[str, set[str]] = {
    "emcmc-eta": {"sampler.eta"},
    "emcmc-temperature": {"schedule.temperature"},
    "emcmc-variables": set(),
    "emcmc-batchnorm": {"task.norm", "batchnorm"},
    "emcmc-burn-in": {"schedule.exploration"},
    "emcmc-augmentation": {"task.augment"},
    "atmc-cycles": set(),
}
"""Fields of the chains' specs in which arms of one sampler differ."""
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "presets.md"


def planned(name: str, **options: Any) -> Comparison:
    return plans.compare(Compare(**{"chains": 2, "repeats": 1, "preset": name, **options})).comparison


def flat(arm: Arm) -> dict[str, str]:
    """Every field of an arm's first chain, settings of its parts by ``part.name``."""
    found: dict[str, str] = {}
    for name, value in arm.chains[0][0].to_json().items():
        inner = {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        found |= {k: json.dumps(v) for k, v in inner.items()}
    return found


def digests(arm: Arm) -> list[str]:
    return [spec.digest for group in arm.chains for spec in group]


@pytest.mark.parametrize("name", DIGITS)
def test_arms_of_one_sampler_differ_in_the_presets_setting_alone(name: str) -> None:
    arms = planned(name).arms
    assert len(arms) == len(ALL[name].variants) >= 2
    differing: set[str] = set()
    for sampler in {arm.sampler for arm in arms}:
        specs = [flat(arm) for arm in arms if arm.sampler == sampler]
        fields = {field for spec in specs for field in spec}
        differing |= {field for field in fields if len({spec.get(field) for spec in specs}) > 1}
    assert differing == DIFFERS[name]
    assert len({arm.label for arm in arms}) == len({arm.name for arm in arms}) == len(arms)


def test_the_arms_have_the_values_that_their_labels_say() -> None:
    etas = [arm.chains[0][0].sampler.settings["eta"] for arm in planned("emcmc-eta").arms]
    temperatures = [arm.chains[0][0].schedule.settings["temperature"] for arm in planned("emcmc-temperature").arms]
    explored = [arm.chains[0][0].schedule.settings["exploration"] for arm in planned("emcmc-burn-in").arms]
    assert (etas, temperatures, explored) == (
        [0.002, 0.005, 0.01, 0.02, 0.05, 0.1], [1, 0.1, 0.01, 1e-3, 1e-4, 1e-5], [0, 0.2, 0.4, 0.6, 0.8, 0.94],
    )  # fmt: skip
    assert [arm.label for arm in planned("emcmc-eta").arms][2] == "Entropy-MCMC, η = 0.01"
    ways = [(a.chains[0][0].task.settings["norm"], a.chains[0][0].batchnorm) for a in planned("emcmc-batchnorm").arms]
    assert ways == [("batch", "shared"), ("batch", "reestimate"), ("frn", "reestimate")]
    augmented = [(a.sampler, a.chains[0][0].task.settings.get("augment")) for a in planned("emcmc-augmentation").arms]
    assert augmented == [(s, a) for s in ("sgd", "sgld", "emcmc") for a in (True, None)]
    cycles = [(a.sampler, a.chains[0][0].schedule.settings["cycles"]) for a in planned("atmc-cycles").arms]
    assert cycles == [("atmc", 20), ("sgnht", 20)]


def test_chains_at_the_defaults_are_the_same_in_every_preset() -> None:
    """Those that a plain run has, and so a store that has run one preset has them for the others."""
    config = Run(sampler="emcmc", chains=2, repeats=1)
    plain = digests(plans.run(config).comparison.arms[0])
    for name, arm in {
        "emcmc-eta": 2, "emcmc-temperature": 0, "emcmc-variables": 0, "emcmc-burn-in": 0, "emcmc-augmentation": 5,
    }.items():  # fmt: skip
        assert digests(planned(name).arms[arm]) == plain, name


@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST is needed")
def test_uncertainty_compares_one_chain_of_each_method_under_its_own_schedule() -> None:
    arms = plans.compare(Compare(preset="mnist-uncertainty")).comparison.arms
    found = [(a.label, a.schedule, schedules.build(a.chains[0][0].schedule).kept) for a in arms]
    assert found == [
        ("SGD", "decreasing", 1),
        ("SGDM", "decreasing", 1),
        ("Snapshot-SGDM", "cyclical", 4),
        ("SGLD", "decreasing", 10),
        ("SGHMC", "decreasing", 10),
        ("cSGLD", "cyclical", 12),
        ("cSGHMC", "cyclical", 12),
    ]
    assert {len(arm.chains[0]) for arm in arms} == {1} and {arm.length for arm in arms} == {40}


def test_variables_are_views_of_the_same_chains() -> None:
    plan = planned("emcmc-variables")
    assert [arm.variables for arm in plan.arms] == [("theta",), ("anchor",), ()]
    assert len(plan.chains()) == 2 and len({tuple(digests(arm)) for arm in plan.arms}) == 1
    assert [[arm.takes(v) for v in ("theta", "anchor")] for arm in plan.arms] == [[1, 0], [0, 1], [1, 1]]
    data = json.loads(json.dumps(plan.to_json()))
    assert Comparison.from_json(data) == plan
    data["arms"][0]["variables"] = ["anchor"]
    assert Comparison.from_json(data).digest != plan.digest
    data["arms"][0]["variables"] = ["velocity"]
    with refused("plan", "variables", "velocity"):
        Comparison.from_json(data)
    assert not any("variables" in arm for arm in planned("emcmc-eta").to_json()["arms"])


def test_a_comparison_is_of_one_sets_of_data() -> None:
    plan = planned("emcmc-batchnorm")
    assert len({spec.task for spec in plan.chains().values()}) == 2
    assert Comparison.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    other = plans.run(Run(sampler="emcmc", task_settings=("train=300",), chains=1, repeats=1)).comparison
    mixed = Comparison(task="digits", unit="epochs", split="test", arms=(plan.arms[0], other.arms[0]))
    with refused("plan", "one task"):
        Comparison.from_json(json.loads(json.dumps(mixed.to_json())))


def test_a_persons_options_hold_for_all_arms() -> None:
    plan = planned(
        "emcmc-eta", epochs=40, chains=3, seed=7, repeats=2, lr=0.2, task_settings=("train=400",),
        sampler_settings=("update=gibbs",),
    )  # fmt: skip
    for arm in plan.arms:
        spec = arm.chains[1][2]
        assert (spec.steps, spec.seed, spec.repeat, spec.chain, arm.length) == (320, 7, 1, 2, 40)
        assert spec.sampler.settings["update"] == "gibbs" and spec.task.settings["train"] == 400
        assert spec.schedule.settings["lr"] == 0.2
    assert {a.chains[0][0].schedule.settings["cycles"] for a in planned("atmc-cycles", cycles=10).arms} == {10}


def test_the_plan_says_what_is_compared() -> None:
    notes = plans.compare(Compare(preset="emcmc-variables", chains=1, repeats=1)).notes
    assert notes[0].startswith("preset emcmc-variables: ") and sum("noise sd" in note for note in notes) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preset": "emcmc-etas"}, ("preset", "emcmc-etas", *ALL)),
        ({"task": "gaussian"}, ("preset", "emcmc-eta", "task", "gaussian")),
        ({"task": "digits:Task"}, ("preset", "emcmc-eta", "task", "digits:Task")),
        ({"sampler": ("sgld", "sghmc")}, ("preset", "emcmc-eta", "sampler", "sgld sghmc")),
        ({"schedule": ("constant",)}, ("preset", "emcmc-eta", "schedule", "constant")),
        ({"sampler_settings": ("eta=1",)}, ("preset", "emcmc-eta", "sampler_settings eta", "1")),
        ({"preset": "emcmc-temperature", "temperature": 0.5}, ("emcmc-temperature", "temperature", "0.5")),
        ({"preset": "emcmc-burn-in", "burn_in": 3}, ("emcmc-burn-in", "burn_in", "3")),
        ({"preset": "emcmc-batchnorm", "batchnorm": "keep"}, ("emcmc-batchnorm", "batchnorm", "keep")),
        ({"preset": "emcmc-batchnorm", "task_settings": ("hidden=[5]",)}, ("hidden", "5")),
        ({"chains": 9_999}, ("chains", "10000")),
        ({"final_lr": 0.01}, ("final_lr must be left out for schedule", "0.01")),
        ({"preset": "mnist-1v7", "task": "mnist-mlp"}, ("preset", "mnist-1v7", "task", "mnist-mlp")),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_mistakes_are_one_line(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        plans.compare(Compare(**{"preset": "emcmc-eta", **options}))


@pytest.mark.parametrize("name", ALL)
def test_every_arm_has_the_settings_that_its_preset_gives_it(name: str) -> None:
    preset = ALL[name]
    for variant in preset.variants:
        method = samplers.method(variant.sampler)
        schedule = presets.schedule_of(preset, variant, method)
        compatible.check_used(Compare(**variant.options), {variant.sampler: method}, [schedule])


def test_chains_of_all_arms_are_counted_each_with_its_own() -> None:
    def arms(*chains: int) -> Preset:
        variants = [Variant(f"arm-{n}", sampler="sgld", options={"chains": n}) for n in chains]
        return Preset(name="own", about="arms of several sizes", variants=variants)

    made = presets.arms_of(arms(1, 2, 3_000, 4), Compare(repeats=1)).comparison
    assert [len(arm.chains[0]) for arm in made.arms] == [1, 2, 3_000, 4]
    with refused("chains × repeats of all arms", "10001"):
        presets.arms_of(arms(1, 10_000), Compare(repeats=1))


def test_a_task_that_is_given_as_an_object_is_refused_beside_a_preset() -> None:
    with refused("preset", "task"):
        presets.of_preset(Compare(preset="emcmc-eta"), Digits())


def test_page_and_help_list_every_preset() -> None:
    rows = [line.split("|")[1].strip() for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    assert rows[: len(ALL)] == [f"`{name}`" for name in ALL]
    assert all(name in options_of(Compare)["preset"].help for name in ALL)


def test_shared_statistics_are_thetas_and_reestimated_ones_each_draws_own() -> None:
    """The ablation's first arm gives θₐ what the chain collected under θ; the second estimates both anew."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for arm in planned("emcmc-batchnorm", epochs=4, cycles=1, chains=1, lr=0.05).arms[:2]:
        (spec,) = arm.chains[0]
        last = {e.meta.variable: e.tensors["features.1.running_mean"] for e in Chain(spec) if isinstance(e, Sample)}
        found[spec.batchnorm] = last
    shared, own = found["shared"], found["reestimate"]
    assert torch.equal(shared["theta"], shared["anchor"])
    assert not torch.equal(own["theta"], own["anchor"]) and not torch.equal(own["theta"], shared["theta"])
