"""Regression on the UCI tables: scikit-learn's split and scaling, the classic splits, the loss, and stand-ins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from raychains import tasks
from raychains.core.config import Run
from raychains.planning import methods
from raychains.tasks.uci import STOPPING, UciRegression, bde_split, classic_split
from tests.tasks import made_uci

NAMES = [name for name in tasks.NAMES if name.startswith("uci-")]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    made_uci.use(monkeypatch)


def make(name: str = "uci-yacht", **settings: Any) -> UciRegression:
    task = tasks.make(name, **settings)
    assert isinstance(task, UciRegression)
    return task


@pytest.mark.parametrize("n", [5, 77, 1030, 1503, 17_379])
def test_the_default_split_is_scikit_learns(n: int) -> None:
    train, test = train_test_split(np.arange(n), test_size=0.2, random_state=0)
    found = bde_split(n)
    np.testing.assert_array_equal(found[0], train)
    np.testing.assert_array_equal(found[1], test)


@pytest.mark.parametrize("n", [308, 1503])
def test_the_classic_splits_are_those_of_numpys_old_generator(n: int) -> None:
    np.random.seed(1)
    for split in range(20):
        order = np.random.choice(range(n), n, replace=False)
        found = classic_split(n, split)
        np.testing.assert_array_equal(np.concatenate(found), order)
        assert len(found[1]) == n - round(0.9 * n)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", NAMES)
def test_both_sides_are_scaled_as_scikit_learns_scaler_does(name: str) -> None:
    data, task = made_uci.made_regression(name.removeprefix("uci-")), make(name)
    x, x_test, y, y_test = train_test_split(data.features, data.targets, test_size=0.2, random_state=0)
    inputs, targets = StandardScaler().fit(x), StandardScaler().fit(y[:, None])
    splits: Any = task.splits()
    for split, features, values in (("train", x, y), ("test", x_test, y_test)):
        np.testing.assert_allclose(splits[split].inputs.numpy(), inputs.transform(features), rtol=1e-5, atol=1e-6)
        scaled = targets.transform(values[:, None])
        np.testing.assert_allclose(splits[split].targets, scaled, rtol=1e-5, atol=1e-6)
    assert task.num_data == len(x) and task.scale == pytest.approx(targets.scale_[0])
    batch = task.source.batch(torch.arange(5))
    np.testing.assert_allclose(batch[0].numpy(), inputs.transform(x[:5]), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("made")
def test_the_stopping_split_is_part_of_the_training_data_and_val_is_not() -> None:
    for settings in ({}, {"val_split": 10}, {"protocol": "splits", "split": 4, "val_split": 0.2}):
        splits: Any = make(**settings).splits()
        rows = {name: {tuple(row) for row in splits[name].inputs.tolist()} for name in splits}
        assert rows[STOPPING] < rows["train"] and len(rows[STOPPING]) == round(0.15 * len(rows["train"]))
        apart = [rows[name] for name in ("train", "test", "val") if name in rows]
        assert sum(map(len, apart)) == len(set().union(*apart)) == made_uci.EXAMPLES
        assert ("val" in rows) == ("val_split" in settings)


@pytest.mark.usefixtures("made")
def test_the_prior_is_standard_normal() -> None:
    """λ = 1/N: log p(θ) = −Nλ‖θ‖²/2."""
    for settings in ({}, {"val_split": 10}):
        task = make(**settings)
        chosen = methods.resolve(Run(task="uci-yacht", batch_size=32), task=task, sampler="csghmc")
        sampler = chosen.spec.sampler.settings
        assert (
            sampler["weight_decay"] * sampler["num_data"] == pytest.approx(1) and task.num_data == sampler["num_data"]
        )
        assert chosen.schedule.temperature == 1


@pytest.mark.usefixtures("made")
def test_weights_begin_as_the_protocols() -> None:
    """bde: N(0, 1/inputs) and biases 0. Standard errors of a variance of n normal numbers are √(2/n) of itself."""
    networks = [make(hidden=[64, 64]).build_model(seed=seed, lanes=1) for seed in (3, 3, 4)]
    assert all(torch.equal(a, b) for a, b in zip(networks[0].parameters(), networks[1].parameters(), strict=True))
    weights = [w for name, w in networks[0].named_parameters() if name.endswith("weight")]
    for w, other in zip(weights, (p for p in networks[2].parameters() if p.ndim == 2), strict=True):
        variance = float(w.detach().square().mean()) * w.shape[1]
        assert abs(variance - 1) < 4 * (2 / w.numel()) ** 0.5 and not torch.equal(w, other)
    assert not any(p.any() for name, p in networks[0].named_parameters() if name.endswith("bias"))
    (layer, *_) = [
        m for m in make(protocol="splits").build_model(seed=3, lanes=1).modules() if hasattr(m, "in_features")
    ]
    assert layer.bias.any() and float(layer.weight.detach().abs().max()) <= layer.in_features**-0.5


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(("protocol", "widths", "outputs"), [("bde", [16] * 4, 2), ("splits", [50], 1)])
def test_the_network_and_its_loss_are_the_protocols(protocol: str, widths: list[int], outputs: int) -> None:
    task = make(protocol=protocol)
    model = task.build_model(seed=3, lanes=1).double()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.out_features for m in linear] == [*widths, outputs]
    assert ("log_noise" in model.state_dict()) == (protocol == "splits")
    batch = torch.tensor([4, 0, 9])
    inputs, targets = task.source.batch(batch)
    with torch.no_grad():
        out = model(inputs.double()).numpy()
    sigma = np.log1p(np.exp(out[:, 1])) + 1e-6 if protocol == "bde" else 1.0
    nll = -stats.norm.logpdf(targets.double().numpy(), out[:, 0], sigma).mean()
    assert task.loss(model, batch, torch.Generator()).item() == pytest.approx(nll, rel=1e-6)
    assert make("uci-protein", protocol="splits").hidden == (100,)


@pytest.mark.usefixtures("made")
def test_every_setting_that_changes_the_data_changes_the_fingerprint() -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"protocol": "splits"},
        {"protocol": "splits", "split": 1},
        {"noise": "learned"},
        {"val_split": 10},
        {"val_split": 10, "split_seed": 1},
    ]
    assert len({make(**own).fingerprint for own in settings}) == len(settings)
