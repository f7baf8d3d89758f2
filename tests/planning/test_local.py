"""Local chains as a plan: temperature, step and prior of the equivalence, arms, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from raychains import priors, schedules, tasks
from raychains.core.config import Local
from raychains.planning.presets.local_arms import local
from raychains.tasks import Task
from tests.checks import refused

N = 50


@pytest.fixture(scope="module")
def task() -> Task:
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
    return tasks.give(Task.from_module(lambda: nn.Linear(3, 2), (x, (x[:, 0] > 0).long()), (x, (x[:, 0] > 0).long())))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("w") / "w.pt"
    torch.save(nn.Linear(3, 2).state_dict(), path)
    return str(path)


def planned(task: Task, file: str, **settings: Any) -> Any:
    given = {"init_from": (file,), "epochs": 20, "batch_size": 10, "task": "own", **settings}
    return local(Local(**given), task)


def test_the_target_is_that_of_the_equivalence(task: Task, file: str) -> None:
    plan = planned(task, file, gamma=4.0, epsilon=1e-3, chains=3)
    (arm,) = plan.comparison.arms
    (chains,) = arm.chains
    spec, nbeta = chains[0], N / math.log(N)
    settings = spec.schedule.settings
    assert settings["temperature"] == pytest.approx(N / nbeta) and settings["lr"] == pytest.approx(1e-3 * nbeta / 2)
    assert spec.sampler.settings["weight_decay"] == 0 and len({s.digest for s in chains}) == 3
    assert spec.prior is not None
    prior = priors.from_json(spec.prior.to_json())
    assert isinstance(prior, priors.Centred) and N * 4 / nbeta * prior.std**2 == pytest.approx(1.0)
    assert settings["warm_up"] == pytest.approx(0.2) and settings["samples"] == 80 and settings["noise_from"] == 0
    plain = planned(task, file, gamma=0.0).comparison.arms[0].chains[0][0]
    assert plain.prior is None and "prior" not in plain.to_json(), "without γ it is that of a plain chain"
    frozen = planned(task, file, sampler="psgld", burn_in=5).comparison.arms[0].chains[0][0]
    assert frozen.sampler.settings["freeze_preconditioner_after"] == 25, "where the burn-in ends"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"init_from": ()}, ("init_from", "none")),
        ({"init_from": ("deep-ensemble",)}, ("init_from", "deep-ensemble", "file")),
        ({"init_from": ("none",)}, ("init_from", "none", "file")),
        ({"parameters": ("fc.*",)}, ("parameters", "fc", "weight")),
        ({"groups": ("weight", "weight")}, ("groups", "different")),
        ({"sample_only": ("weight",)}, ("sample_only", "parameters")),
        ({"temperature": 1.0}, ("temperature", "`nbeta` sets it")),
        ({"cycles": 2}, ("cycles", "constant")),
        ({"momentum": 0.5}, ("momentum", "sgld", "0.5")),
        ({"sampler_settings": ("bogus=3",)}, ("sampler_settings", "bogus")),
        ({"pack": "2"}, ("pack", "2")),
        ({"lr": 0.1, "epsilon": 0.1}, ("epsilon must be left out beside `lr`",)),
        ({"burn_in": 20}, ("burn_in", "20", "got 20: of 20 epochs at least one is kept")),
        ({"draws": 81}, ("draws", "81", "80")),
        ({"sampler": "sgd"}, ("sampler", "sgd", "psgld")),
    ],
)
def test_what_has_no_use_here_is_refused(
    task: Task, file: str, settings: dict[str, Any], words: tuple[str, ...]
) -> None:
    with refused(*words):
        planned(task, file, **settings)


def test_one_start_twice_is_refused_whatever_its_files_are_called(task: Task, file: str, tmp_path: Path) -> None:
    copy, other = str(tmp_path / "copy.safetensors"), str(tmp_path / "other.pt")
    save_file(torch.load(file), copy)
    torch.save(nn.Linear(3, 2).state_dict(), other)
    for files in ((file, file), (file, other, copy)):
        with refused("init_from", "once", f"those of {file}", f"got {files[-1]!r}"):
            planned(task, file, init_from=files)
    assert len(planned(task, file, init_from=(file, other), groups=("weight", "bias")).comparison.arms) == 6


def test_a_start_that_is_not_finite_and_a_density_are_refused(task: Task, file: str, tmp_path: Path) -> None:
    broken = torch.load(file)
    broken["bias"][0] = math.nan
    torch.save(broken, tmp_path / "nan.pt")
    with refused("init_from must hold finite numbers", "nan.pt", "1 of 2 in 'bias'"):
        planned(task, file, init_from=(file, str(tmp_path / "nan.pt")))
    with refused("task", "mixture25", "density"):
        local(Local(task="mixture25", init_from=(file,)), tasks.make("mixture25"))


def test_a_centred_prior_is_the_gaussian_around_its_centre(tmp_path: Path) -> None:
    centre, at = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.0], requires_grad=True)
    prior = priors.Centred(std=0.3)
    with refused("centre"):
        prior.log_density({"w": at})
    found = prior.around({"w": centre}).log_density({"w": at})
    expected = torch.distributions.Normal(centre, 0.3).log_prob(at).sum()
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
    assert priors.from_json(prior.around({"w": centre}).to_json()) == prior


@pytest.mark.parametrize(("settings", "kept"), [({"thinning": 5}, 24), ({"thinning": 2, "draws": 7}, 7), ({}, 120)])
def test_as_many_draws_as_thinning_leaves(settings: dict[str, Any], kept: int, task: Task, file: str) -> None:
    """Of 120 steps behind the burn-in of an epoch."""
    steps = -(-N // 10)
    made = planned(task, file, epochs=1 + 120 // steps, burn_in=1, **settings)
    (spec, *_) = made.comparison.chains().values()
    assert schedules.build(spec.schedule).kept == kept
