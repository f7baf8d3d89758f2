"""Every built-in task: its spec rebuilds it, its seed makes its start, and wrong settings are one line."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from raychains import tasks
from raychains.core.spec import TaskSpec
from tests.checks import refused
from tests.tasks import made_images, made_uci
from tests.tasks.made_images import LIGHT

COVARIANCE = [[2.0, -0.6, 0.1], [-0.6, 0.5, 0.0], [0.1, 0.0, 1.5]]
REGRESSION = {"num_data": 40, "dim": 3, "minibatch": 5, "noise": 0.8, "prior_precision": 2.0, "seed": 4}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("digits", {"train": 70, "split_seed": 2, "hidden": [4]}),
    ("digits", {"norm": "frn", "augment": True}),
    ("digits", {"train": 500, "val_split": 100}),
    ("gaussian", {}),
    ("gaussian", {"dim": 4, "correlation": 0.3, "scale": 0.7}),
    ("gaussian", {"covariance": COVARIANCE, "mean": [1.0, -2.0, 0.5]}),
    ("gaussian", {"mean": 2, "gradient_noise": 1}),
    ("linear-regression", {}),
    ("linear-regression", REGRESSION),
    ("linear-regression", {**REGRESSION, "minibatch": None}),
    ("mixture25", {}),
    ("mixture25", {"gradient_noise": 1.0}),
    ("two-modes", {"start": None}),
    ("two-modes", {"sharp": 0.3, "flat": 0.6, "start": None}),
    *((f"blr-{name}", own) for name in ("australian", "german", "heart") for own in ({}, {"prior_variance": 3.0})),
    ("blr-heart", {"minibatch": 7}),
    *((f"uci-{name}", {}) for name in ("airfoil", "bikesharing", "concrete", "energy", "protein", "yacht")),
    ("uci-yacht", {"protocol": "splits", "split": 7, "hidden": [4], "noise": "heteroscedastic"}),
    ("uci-protein", {"protocol": "splits", "val_split": 9, "split_seed": 3}),
    ("mnist-mlp", {"hidden": [5]}),
    ("mnist-mlp", {"train_subset": 120, "val_split": 24, "split_seed": 1}),
    ("cifar10-resnetpp56", {"depth": 14, "prior_std": 0.02}),
]
EACH = pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    made_uci.use(monkeypatch)
    made_images.use(monkeypatch)


@EACH
def test_a_spec_rebuilds_its_task_and_refuses_other_data(name: str, settings: dict[str, Any]) -> None:
    task = tasks.make(name, **settings)
    spec = TaskSpec.from_json(json.loads(json.dumps(task.spec().to_json())))
    again = tasks.build(spec)
    assert type(again) is type(task) and again.spec() == task.spec() == spec and tasks.name_of(task) == name
    assert {k: v for k, v in again.settings().items() if k in settings} == settings or name == "gaussian"
    if task.low_dimensional:
        model: Any = task.build_model(seed=0, lanes=3)
        theta = model.theta.detach().numpy()
        (energy, gradient), (same, slope) = task.potential(theta), again.potential(theta)  # type: ignore[misc]
        np.testing.assert_array_equal(energy, same)
        np.testing.assert_array_equal(gradient, slope)
    with refused("fingerprint"):
        tasks.build(TaskSpec.from_json({**spec.to_json(), "fingerprint": "other"}))
    with refused("revision", str(spec.revision + 1)):
        tasks.build(TaskSpec.from_json({**spec.to_json(), "revision": spec.revision + 1}))


@pytest.mark.parametrize(
    ("name", "settings"), [*SETTINGS, *((name, LIGHT.get(name, {})) for name in made_images.NETWORKS)], ids=str
)
def test_each_seed_has_its_start_and_the_global_generator_is_left_alone(name: str, settings: dict[str, Any]) -> None:
    task = tasks.make(name, **settings)
    before = torch.get_rng_state()
    lanes = 3 if task.supports_lanes else 1
    first, again, other = (task.build_model(seed=s, lanes=lanes).state_dict() for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(t, again[n]) for n, t in first.items())
    assert not all(torch.equal(t, other[n]) for n, t in first.items())


WRONG: dict[str, dict[str, list[Any]]] = {
    "digits": {
        "train": [0, 1797, -5, 10.0, True], "split_seed": [-1, 0.5, None], "hidden": [[0], [3, -1], "ab", 100],
        "norm": ["layer", 1], "augment": ["yes", 1],
    },
    "gaussian": {
        "dim": [0, 2.0], "correlation": [1.0, math.nan], "scale": [0.0, "1"], "mean": [[0.0], "ab", [0.0, math.inf]],
        "gradient_noise": [-1.0], "covariance": [
            [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.1], [0, 1]], [[1.0, 2.0]], "x", [[1.0], [2.0, 3.0]], [[math.nan]], [],
        ],
    },
    "linear-regression": {
        "num_data": [0, 1.5], "dim": [0], "minibatch": [0, 2.5], "noise": [0.0, math.nan],
        "prior_precision": [0.0, "1"], "seed": [-1, 1.0],
    },
    "mixture25": {"gradient_noise": [-1.0, math.nan, math.inf, "1", None], "colour": [1]},
    "two-modes": {"sharp": [0.0, "a", 0.5], "flat": [math.nan], "start": [[1.0], "ab", 1.0, [0.0, math.inf]]},
    "blr-heart": {"minibatch": [0, 2.5, 10**6], "prior_variance": [0.0, 1e-9, math.inf, "1"]},
    "uci-yacht": {"protocol": ["uci"], "split": [1], "noise": ["gaussian"], "hidden": [[0]], "val_split": [1000]},
    "mnist-mlp": {"train_subset": [made_images.TRAIN + 1], "val_split": [1.5], "hidden": [[0], [1_000_000, 1_000_000]]},
    "mnist-cnn": {"split_seed": [-1], "augment": ["yes"]},
    "mnist-1v7": {"train_subset": [made_images.TRAIN], "digits": [[3, 5]]},
    "cifar10-resnetpp56": {"depth": [50, 57], "width": [0], "prior_std": [0]},
    "cifar10-resnet18": {"hidden": [[5]]},
    "cifar10-resnet20-frn-silu": {"prior_variance": [0], "depth": [21]},
}  # fmt: skip
TOGETHER = [
    ("digits", "hidden", {"hidden": [5], "norm": "batch"}),
    ("gaussian", "correlation", {"correlation": -0.5, "dim": 3}),
    ("gaussian", "dim", {"dim": 3, "covariance": COVARIANCE}),
    ("gaussian", "scale", {"scale": 1.0, "covariance": COVARIANCE}),
    ("uci-yacht", "split", {"protocol": "splits", "split": 20}),
]


@pytest.mark.parametrize(
    ("name", "field", "settings"),
    [*((name, f, {f: v}) for name, fields in WRONG.items() for f, values in fields.items() for v in values), *TOGETHER],
    ids=str,
)
def test_a_wrong_setting_is_refused_in_one_line_naming_the_field(
    name: str, field: str, settings: dict[str, Any]
) -> None:
    with refused(field.removeprefix("prior_") if field == "prior_std" else field):
        tasks.make(name, **settings)


def test_unknown_tasks_are_refused_in_one_line() -> None:
    with refused("task", "mixture25"):
        tasks.make("mixture")
    for path in ("raychains.tasks.mixture:Nothing", "no.such.module:X", "raychains.tasks.mixture", ":X", "", "math:pi"):
        with refused("task"):
            tasks.build(TaskSpec(kind=path, revision=1, fingerprint="closed form"))
