"""Options by sampler: who gets which value, the same from the command line, Python and a task's defaults."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest

import raychains as rc
from raychains.api import own_parts, plans
from raychains.cli import parse
from raychains.core.config import Sweep
from raychains.core.options import make
from raychains.planning import Comparison, sweep_points
from tests.checks import refused


class Doubled(rc.SGLD):
    """SGLD with twice the gradient."""

    def _update(self, group: dict[str, Any], params: Any, grads: Any) -> None:
        super()._update(group, params, [2 * g for g in grads])


class Named(Doubled):
    """The same with a name of its own, as the built-in samplers' files state theirs."""

    kind = "sgld"


class Mine(rc.LogDensity):
    """A Gaussian whose defaults are by sampler."""

    dim = 2
    defaults = {"steps": 200, "lr": {Doubled: 0.02, "sghmc": 0.03}, "temperature": {"sgld": 0.5}}  # noqa: RUF012

    def log_prob(self, theta: Any) -> Any:
        return -theta.square().sum(-1) / 2


SHORT: dict[str, Any] = {"task": "digits", "epochs": 8, "chains": 2, "repeats": 1, "schedule": ("cyclical",)}


def planned(**options: Any) -> Comparison:
    return plans.compare(own_parts.named(rc.Compare(**{**SHORT, **options}))).comparison


def settings(comparison: Comparison, name: str) -> dict[str, Any]:
    """A setting of each sampler's first chain, by the sampler's kind."""
    parts = {arm.sampler: arm.chains[0][0] for arm in comparison.arms}
    return {kind: {**spec.schedule.settings, **spec.sampler.settings}.get(name) for kind, spec in parts.items()}


def test_each_sampler_has_its_value_and_the_others_their_defaults() -> None:
    default = settings(planned(sampler=("sgld", "sghmc")), "lr")
    found = planned(
        sampler=("sgld", "sghmc"), lr={"sgld": 0.125}, cycles={"sghmc": 2}, weight_decay={"sgld": np.float64(0.5)}
    )
    assert settings(found, "lr") == {"sgld": 0.125, "sghmc": default["sghmc"]}
    assert settings(found, "cycles") == {"sgld": 4, "sghmc": 2}
    assert settings(found, "weight_decay") == {"sgld": 0.5, "sghmc": 0.001}


def test_the_command_line_says_it_in_one_word() -> None:
    words = "--sampler sgld sghmc --lr sgld=.1,sghmc=.01 --burn-in 2 --temperature .5"
    options = parse("compare", shlex.split(words))
    assert (options.lr, options.burn_in, options.temperature) == ("sgld=.1,sghmc=.01", 2, 0.5)
    by_text = planned(sampler=("sgld", "sghmc"), lr="sgld=.1,sghmc=.01")
    by_mapping = planned(sampler=("sgld", "sghmc"), lr={"sghmc": 0.01, "sgld": 0.1})
    assert by_text.digest == by_mapping.digest and settings(by_text, "lr") == {"sgld": 0.1, "sghmc": 0.01}


def test_one_number_is_for_all_of_them_and_gives_the_same_chains() -> None:
    one, by_name = planned(sampler=("sgld",), lr=0.1), planned(sampler=("sgld",), lr={"sgld": 0.1})
    assert one.digest == by_name.digest


def test_a_class_is_a_name() -> None:
    found = planned(sampler=("sgld", Doubled), lr={"sgld": 0.1, Doubled: 0.05}, temperature={Doubled: 0})
    kind = f"{__name__}:Doubled"
    assert settings(found, "lr") == {"sgld": 0.1, kind: 0.05} and settings(found, "temperature")[kind] == 0
    assert found.digest == planned(sampler=("sgld", kind), lr=f"sgld=.1,{kind}=.05", temperature=f"{kind}=0").digest
    assert settings(planned(sampler=rc.SGLD, lr=0.1), "lr") == {"sgld": 0.1}
    assert make(Sweep, {"grid": {"sampler": [rc.SGHMC, Doubled]}}).grid == (f"sampler=sghmc,{kind}",)
    assert sweep_points.typed("sampler", Doubled) == kind and sweep_points.typed("schedule", rc.Constant) == "constant"


def test_a_class_that_states_a_kind_goes_by_its_import_path() -> None:
    path = f"{__name__}:Named"
    assert Named.kind == path
    for mine in (Named, path):
        found = planned(sampler=("sgld", mine), lr={"sgld": 0.1, path: 0.2})
        assert settings(found, "lr") == {"sgld": 0.1, path: 0.2}


def test_values_of_a_trial_have_the_types_of_their_options() -> None:
    free = ("steps",)
    for name, value in (("seed", 3), ("epochs", 4), ("lr", 1), ("fast", True)):
        assert sweep_points.typed(name, value, free) == value
    assert isinstance(sweep_points.typed("lr", 1), float)
    for name, wrong, words in (("seed", "3", "an integer"), ("seed", True, "an integer"), ("fast", 1, "true or false")):
        with refused(name, words):
            sweep_points.typed(name, wrong, free)


def test_a_tasks_defaults_may_be_by_sampler() -> None:
    task = Mine()
    options = own_parts.named(
        rc.Compare(sampler=("sgld", "sghmc", Doubled), chains=2, repeats=1, schedule=("cyclical",))
    )
    found = plans.compare(options, task).comparison
    kind = f"{__name__}:Doubled"
    assert settings(found, "lr") == {"sgld": 0.01, "sghmc": 0.03, kind: 0.02}
    assert settings(found, "temperature") == {"sgld": 0.5, "sghmc": 1.0, kind: 1.0}
    for wrong, words in (
        ({"lr": {"sgdl": 0.1}}, ("sampler must be one of", "got 'sgdl'")),
        ({"lr": {"sgld": -1}}, ("lr of sgld among the defaults of task Mine must be a finite number above 0",)),
        ({"steps": {"sgld": 3}}, ("steps among the defaults of task Mine must be one value",)),
    ):
        task.defaults = wrong  # type: ignore[assignment]
        with refused(*words):
            plans.compare(options, task)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": {"sghmc": 0.1}}, ("sampler of lr must be one of sgld, got 'sghmc'",)),
        ({"lr": "fast"}, ("lr must be a number, or SAMPLER=VALUE",)),
        ({"cycles": "few"}, ("cycles must be an integer, or SAMPLER=VALUE",)),
        ({"lr": "sgld=.1,sgld=.2"}, ("lr must give each sampler a number",)),
        ({"lr": "sgld=fast"}, ("lr must give each sampler a number",)),
        ({"lr": {"sgld": "fast"}}, ("lr must give each sampler one number",)),
        ({"lr": {3: 0.1}}, ("lr must give each sampler one number",)),
        ({"lr": {}}, ("lr must name a sampler",)),
        ({"lr": {rc.Cyclical: 0.1}}, ("sampler must name a subclass of raychains.Sampler",)),
        ({"lr": {"sgld": -0.1}}, ("lr must be a finite number above 0, got -0.1",)),
        ({"cycles": "sgld=2.5"}, ("cycles must be an integer",)),
        ({"sampler": (rc.Cyclical,)}, ("sampler must name a subclass of raychains.Sampler, got 'the class Cyclical'",)),
        ({"schedule": (rc.SGLD,)}, ("schedule must name a subclass of raychains.Schedule, got 'the class SGLD'",)),
        ({"schedule": rc.Constant(steps=10, lr=0.1)}, ("schedule must be a name or a class", "schedule_settings")),
        (
            {"schedule": ("decreasing", "constant"), "cycles": 2},
            ("cycles must be left out for schedules decreasing, constant, got 2: it is an option of cyclical",),
        ),
        (
            {"schedule": ("constant",), "final_lr": 0.01},
            ("final_lr must be left out for schedule constant, got 0.01: it is an option of decreasing, linear, "
             "exponential",),
        ),
        (
            {"sampler": ("sghmc",), "momentum": 0.5, "sampler_settings": {"momentum": 0.9}},
            ("momentum must be given once, got 0.5: sampler_settings has momentum=0.9",),
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        planned(**{"sampler": ("sgld",), **options})
