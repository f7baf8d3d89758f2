"""Networks that a file names, cannot name, or that nobody should import unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import raychains as rc
from raychains import models
from raychains.inference import file, networks
from raychains.models import MLP
from tests.checks import refused
from tests.inference.networks import agrees, draws, expected, states
from tests.inference.runs import digits
from tests.models.test_build import CASES


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    return digits(tmp_path_factory.mktemp("networks") / "store", chains=1)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return rc.make_task("digits").splits()["test"].inputs[:200]  # type: ignore[attr-defined]


def exported_as(run: rc.Result, folder: Path, monkeypatch: pytest.MonkeyPatch, network: Any) -> Path:
    digits = "raychains.tasks.digits.Digits"
    monkeypatch.setattr(f"{digits}.named_network", lambda self: network)
    monkeypatch.setattr(f"{digits}.build_model", lambda self, *, seed, lanes: MLP(64, (100, 100), 10))
    return run.export(str(folder / "p")).path


def test_a_network_without_a_name_is_given_by_hand(
    run: rc.Result, images: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported_as(run, tmp_path, monkeypatch, None)
    with refused("model", "must be given", str(path)):
        rc.PosteriorPredictive.load(path)
    found = rc.PosteriorPredictive.load(path, MLP(64, (100, 100), 10))
    np.testing.assert_allclose(found(images).probabilities, run.predict(images), rtol=0, atol=1e-6)
    with refused("samples", "network", "[100, 64]", "[90, 64]"):
        rc.PosteriorPredictive.load(path, MLP(64, (90, 100), 10))


SMALL = {name: (settings, shape[1:]) for name, settings, shape, _ in CASES if name != "resnet50"}


@pytest.mark.parametrize("name", SMALL)  # torchvision's takes seconds to import
def test_our_networks_are_rebuilt_without_parameters_and_say_the_same(name: str) -> None:
    settings, shape = SMALL[name]
    made = draws(lambda: models.build(name, **settings), 2)
    network = {"name": name, "revision": models.revision(name), "settings": json.loads(json.dumps(settings))}
    rebuilt = networks.rebuild(network, "p", trust=False)
    assert all(t.is_meta for t in rebuilt.parameters())
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(5))
    for chunk in (1, 2):
        agrees(rc.PosteriorPredictive(rebuilt, states(made), chunk=chunk)(x), expected(made, x), atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"shared": 3}, {"shared": [[]]}, {"shared": ["layers.0.bias"]}, {"weights": 3}, {"weights": ["a"]},
        {"weights": [1e308] * 2},
        {"kind": []}, {"kind": "regression"}, {"noise": "x"}, {"noise": 1.0}, {"preparation": 3},
        {"preparation": {"kind": "normalise", "mean": 1, "std": 1}}, {"network": 3}, {"network": []},
        {"network": {"name": []}}, {"network": {"name": "mlp", "revision": 1, "settings": {"hidden": None}}},
        {"network": {"name": "mlp", "revision": 1, "settings": {"inputs": 10**9, "hidden": [10**9], "outputs": 3}}},
        {"network": {"name": "mlp", "revision": 1, "settings": {"inputs": 10**18, "hidden": [10**18], "outputs": 3}}},
        {"network": {"name": "lenet", "revision": 1, "settings": {"size": 10**12}}},
        {"network": {"name": "resnet18", "revision": 1, "settings": {"classes": 3, "norm": {}}}},
    ],
)  # fmt: skip
def test_whatever_a_file_says_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    settings, _ = SMALL["mlp"]
    about = {"kind": "classification", "network": {"name": "mlp", "revision": 1, "settings": settings}}
    made = states(draws(lambda: models.build("mlp", **settings), 2))
    file.write(tmp_path / "good", made, 2, shared={}, dtype=None, about=about)
    assert len(rc.PosteriorPredictive.load(tmp_path / "good")) == 2
    file.write(tmp_path / "bad", made, 2, shared={}, dtype=None, about={**about, **change})
    with refused():
        rc.PosteriorPredictive.load(tmp_path / "bad")


def breaks() -> None:
    raise ZeroDivisionError("their own mistake")


MODULE = """
import pathlib
from raychains.models import MLP

pathlib.Path("imported").touch()

def make(hidden):
    return MLP(64, hidden, 10)

def wrong():
    return 3
"""


def test_a_path_is_imported_only_for_those_who_trust_it(
    run: rc.Result, images: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_networks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    network = {"path": "their_networks:make", "settings": {"hidden": [100, 100]}}
    path = exported_as(run, tmp_path, monkeypatch, network)
    with refused("trust", "their_networks:make", "imported"):
        rc.PosteriorPredictive.load(path)
    assert not Path("imported").exists()
    found = rc.PosteriorPredictive.load(path, trust=True)
    assert Path("imported").exists()
    np.testing.assert_allclose(found(images).probabilities, run.predict(images), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("network", "trust", "words"),
    [
        ({"name": "mlp", "revision": 2, "settings": {}}, False, ("revision", "1", "2")),
        ({"name": "os.system", "settings": {}}, True, ("model", "os.system")),
        ({"name": "lenet", "revision": 1, "settings": {"command": "ls"}}, False, ("lenet", "command")),
        ({"name": "mlp", "revision": 1, "settings": ["ls"]}, False, ("settings",)),
        ({"path": "os:system", "settings": {"command": "true"}}, False, ("trust", "os:system")),
        ({"path": "os:system", "settings": {"command": "true"}}, True, ("os:system", "Module")),
        ({"path": "nowhere_at_all:make"}, True, ("nowhere_at_all:make",)),
        ({"path": "tests.inference.test_networks:breaks"}, True, ("breaks", "their own mistake")),
        ({"path": "os"}, True, ("os",)),
        ({}, False, ("trust", "None")),
        ("mlp", True, ("network", "mlp")),
    ],
)
def test_networks_that_cannot_be_rebuilt_are_refused(network: Any, trust: bool, words: tuple[str, ...]) -> None:
    with refused("p.safetensors" if "name" not in network else words[0], *words):
        networks.rebuild(network, "p.safetensors", trust)
