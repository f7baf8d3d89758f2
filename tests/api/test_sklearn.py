"""The estimators: scikit-learn's own checks, the mixture's formulas, the same samples on both backends, and no Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import estimator_checks_generator

import raychains as rc
from raychains.store import Storage
from tests.checks import refused

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -2.0]
Y = 100 + 20 * X[:, 0] + 3 * RNG.normal(size=60)
LABELS = np.where(X[:, 0] + 0.3 * RNG.normal(size=60) > 0, "yes", "no")
QUICK: dict[str, Any] = {"method": "cpsgld", "backend": "process", "chains": 2, "epochs": 60, "hidden": (16,)}
AUTO: dict[str, Any] = {**QUICK, "method": "auto", "epochs": 150}


def regressor(**settings: Any) -> Any:
    return rc.sklearn.PosteriorRegressor(**{**QUICK, **settings})


def classifier(**settings: Any) -> Any:
    return rc.sklearn.PosteriorClassifier(**{**QUICK, **settings})


CHECKS = {
    (type(estimator).__name__, check.func.__name__): (estimator, check)
    for made in (regressor(), classifier())
    for estimator, check in estimator_checks_generator(made)
    if "array_api" not in check.func.__name__  # for estimators that take other libraries' arrays, which these do not
}


def checks() -> list[Any]:
    """Return the names of all checks; of a check that both estimators have, `make test` runs that of one, in turn."""
    names = ("PosteriorRegressor", "PosteriorClassifier")
    shared = [check for name, check in CHECKS if name == names[0] and (names[1], check) in CHECKS]
    found = []
    for name, check in CHECKS:
        later = check in shared and name != names[shared.index(check) % 2]
        found.append(pytest.param(name, check, id=f"{name}-{check}", marks=[pytest.mark.long] if later else []))
    return found


@pytest.mark.parametrize(("name", "check"), checks())
def test_scikit_learns_own_checks_pass(name: str, check: str) -> None:
    """One short chain is enough but for the checks of how well it learns."""
    estimator, run = CHECKS[name, check]
    small = {} if check.endswith("_train") else {"chains": 1, "epochs": 20}
    run(clone(estimator).set_params(**small))


@pytest.mark.long
@pytest.mark.parametrize(("name", "check"), list(CHECKS), ids=lambda value: str(value))
def test_scikit_learns_own_checks_pass_where_the_method_is_chosen(name: str, check: str) -> None:
    estimator, run = CHECKS[name, check]
    run(clone(estimator).set_params(**AUTO))


def test_the_method_is_chosen_by_held_out_data_and_predictions_are_of_the_mixture(tmp_path: Path) -> None:
    fitted = regressor(**AUTO, store=str(tmp_path)).fit(X, Y)
    choice = rc.load(fitted.run_).choice
    kept = choice[choice["kept"]].set_index("candidate")["share"]
    assert len(choice) == 4 and kept.sum() == pytest.approx(1) and kept.index[0].startswith("deep-ensemble")
    z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    weights, means, _ = (t.numpy() for t in fitted.posterior_.gaussians(z))
    assert (len(set(weights.round(9))) > 1) == (len(kept) > 1), "chains count by their candidate's share"
    mean = (weights[:, None] * means[..., 0]).sum(0) / weights.sum() * Y.std() + Y.mean()
    np.testing.assert_allclose(fitted.predict(X), mean, rtol=1e-10)
    assert rc.sklearn.PosteriorRegressor().method == rc.sklearn.PosteriorClassifier().method == "auto"
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "chains").rglob("*.safetensors")}
    again = regressor(**AUTO, store=str(tmp_path)).fit(X, Y)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "chains").rglob("*.safetensors")} == before
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    for settings, words in (
        ({"lr": 0.1}, ("lr must be left out with method 'auto'", "0.1")),
        ({"epochs": 20}, ("epochs*chains must be at least", "for 4 candidates", "40")),
        ({"epochs": 0}, ("epochs must be an integer of at least 1", "0")),
        ({"options": {"thinning": 3}}, ("thinning must be left out of a fit", "3")),
    ):
        with refused(*words):
            regressor(**AUTO | settings).fit(X, Y)


def test_with_few_examples_nothing_is_held_out() -> None:
    few, plain = (regressor(method=m).fit(X[:20], Y[:20]) for m in ("auto", "cpsgld"))
    np.testing.assert_array_equal(few.predict(X), plain.predict(X))


def test_a_regression_is_the_mixture_of_its_samples_in_the_targets_unit() -> None:
    fitted = regressor(epochs=200).fit(X, Y)
    mean, sd, quantiles = fitted.predict(X, return_std=True, quantiles=[0.1, 0.5, 0.9])
    z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    weights, outputs = fitted.posterior_.outputs(z)
    mu = outputs[..., 0].detach().numpy() * Y.std() + Y.mean()
    sigma = (np.log1p(np.exp(outputs[..., 1].detach().numpy())) + 1e-6) * Y.std()
    assert len(weights) > 2 and np.allclose(weights, 1 / len(weights))
    np.testing.assert_allclose(mean, mu.mean(0), rtol=1e-10)
    np.testing.assert_allclose(sd, np.sqrt((sigma**2 + mu**2).mean(0) - mu.mean(0) ** 2), rtol=1e-8)
    for i, q in enumerate((0.1, 0.5, 0.9)):
        np.testing.assert_allclose(norm.cdf(quantiles[:, i], mu, sigma).mean(0), q, rtol=1e-7)
    np.testing.assert_array_equal(fitted.predict(X), mean)
    assert fitted.score(X, Y) > 0.8


def test_a_classification_averages_probabilities() -> None:
    fitted = classifier(epochs=100).fit(X, LABELS)
    z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    _, outputs = fitted.posterior_.outputs(z)
    p = torch.softmax(outputs.detach(), -1).mean(0).numpy()
    np.testing.assert_allclose(fitted.predict_proba(X), p, rtol=1e-10)
    assert fitted.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(fitted.predict(X), np.array(["no", "yes"])[p.argmax(1)])
    assert fitted.score(X, LABELS) > 0.8


def test_random_states_and_the_global_generators() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    short = {"chains": 1, "epochs": 20}
    one, same, other = (regressor(random_state=seed, **short).fit(X, Y).predict(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other) and torch.equal(torch.get_rng_state(), before)
    drawn = regressor(random_state=np.random.RandomState(5), **short).fit(X, Y).predict(X)
    assert not np.allclose(drawn, one)


def test_targets_without_noise_do_not_blow_up() -> None:
    """σ(x) falls as the fit improves, and curvatures grow as 1/σ²."""
    fitted = rc.sklearn.PosteriorRegressor(backend="process", chains=1).fit(X, X[:, 0])
    assert fitted.score(X, X[:, 0]) > 0.95


def test_pipelines_and_searches_take_them() -> None:
    search = GridSearchCV(regressor(chains=1, epochs=20), {"hidden": [(4,), (8,)]}, cv=2).fit(X, Y)
    assert search.best_params_["hidden"] in [(4,), (8,)]
    assert make_pipeline(PolynomialFeatures(2), classifier(chains=1)).fit(X, LABELS).score(X, LABELS) > 0.7


def test_a_kept_store_is_not_sampled_again(tmp_path: Path) -> None:
    fitted = regressor(store=str(tmp_path / "store")).fit(X, Y)
    files = sorted(p for p in (tmp_path / "store" / "chains").rglob("*.safetensors") if "samples" in p.parts)
    times = [p.stat().st_mtime_ns for p in files]
    again = regressor(store=str(tmp_path / "store")).fit(X, Y)
    assert len(files) == len(fitted.posterior_) and [p.stat().st_mtime_ns for p in files] == times
    np.testing.assert_array_equal(fitted.predict(X), again.predict(X))
    assert Path(fitted.run_).parent == tmp_path / "store" / "runs"
    assert Storage(str(tmp_path / "store")).exists(f"runs/{Path(fitted.run_).name}/plan.json")


def test_chains_are_one_pack_unless_options_say_otherwise(tmp_path: Path) -> None:
    for width, options in ((3, {}), (0, {"pack": "none"})):
        store = tmp_path / str(width)
        regressor(chains=3, epochs=20, store=str(store), options=options).fit(X, Y)
        specs = [json.loads(p.read_text()) for p in (store / "chains").glob("*/spec.json")]
        assert [spec.get("pack", 0) for spec in specs] == [width] * 3


def test_one_hidden_layer_may_be_a_number() -> None:
    short = {"chains": 1, "epochs": 20}
    np.testing.assert_array_equal(*(regressor(hidden=h, **short).fit(X, Y).predict(X) for h in (7, (7,))))


def test_options_are_those_of_the_run() -> None:
    fitted = regressor(
        method="sghmc", options={"schedule": "constant", "thinning": 10, "batch_size": 60, "burn_in": 0}
    ).fit(X, Y)
    assert len(fitted.posterior_) == 2 * 60 // 10
    with refused("cycle_length"):
        regressor(options={"cycle_length": 3}).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": "dask"}, ("backend", "process", "dask")),
        ({"options": [1]}, ("options", "dict")),
        ({"method": "hmc"}, ("method", "hmc")),
        ({"random_state": -1}, ("random_state", "-1")),
        ({"options": {"store": "elsewhere"}}, ("options", "store")),
        ({"options": {"repeats": 2}}, ("options", "repeats")),
        ({"options": {"address": "1.2.3.4:1"}}, ("address", "backend=process")),
        ({"hidden": "wide"}, ("hidden", "wide")),
        ({"chains": 0}, ("chains", "0")),
        ({"lr": -1.0}, ("lr", "-1.0")),
        ({"hidden": (0,)}, ("hidden", "0")),
        ({"epochs": 1}, ("epochs must be at least", "got 1", "4 cycles")),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        regressor(**settings).fit(X, Y)


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(NotFittedError):
        regressor().predict(X)
    fitted = regressor(chains=1).fit(X, Y)
    for quantiles in ([1.0], [], 0.5):
        with refused("quantiles", str(quantiles)):
            fitted.predict(X, quantiles=quantiles)
    with refused("y", "class"):
        classifier().fit(X, np.zeros(60, dtype=int))


WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
import numpy as np
import raychains as rc
x = np.random.default_rng(0).normal(size=(30, 2))
fitted = rc.sklearn.PosteriorRegressor(backend="process", chains=2, epochs=100).fit(x, x[:, 0])
print(fitted.predict(x[:2], return_std=True))
"""


def test_a_fit_in_this_process_needs_no_ray() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_RAY], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("ray_session")
def test_both_backends_draw_the_same_samples() -> None:
    here, there = (regressor(backend=backend).fit(X, Y) for backend in ("process", "ray"))
    np.testing.assert_array_equal(here.predict(X), there.predict(X))


def test_chains_of_mile_start_at_members_that_are_trained_long_enough(tmp_path: Path) -> None:
    """Their step size is the estimator's, not the task's, and stays so where the chains have another."""
    x = np.linspace(-3, 3, 120)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=120)
    fitted = regressor(method="mile", hidden=(50, 50), lr=0.001, epochs=20, store=str(tmp_path)).fit(x, y)
    assert fitted.score(x, y) > 0.9  # 40 epochs at .001, the task's, leave it below .5
    chains = rc.load(fitted.run_).comparison.chains().values()
    lrs = {(spec.sampler.kind == "mclmc", spec.schedule.settings["lr"]) for spec in chains}
    assert lrs == {(True, 0.001), (False, 0.003)}
    other = regressor(method="mile", epochs=20, options={"init_from": "none"}).fit(x, y)
    assert other.score(x, y) < 0.5


def test_a_fit_that_fails_names_no_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(rc.ChainsFailed, match=r"^2 of 2 chains failed; the first, \w{12}: .* became non-finite"):
        regressor(method="csghmc", lr=100.0).fit(X, Y)
    with pytest.raises(rc.ChainsFailed, match=f"what was computed is in {tmp_path}"):
        regressor(method="csghmc", lr=100.0, store=str(tmp_path)).fit(X, Y)


def test_gradients_of_mile_are_of_all_data(tmp_path: Path) -> None:
    fitted = regressor(method="mile", epochs=None, store=str(tmp_path)).fit(X, Y)
    chains = rc.load(fitted.run_).comparison.chains().values()
    lengths = {(spec.batch_size, spec.steps) for spec in chains if spec.sampler.kind == "mclmc"}
    assert lengths == {(60, 100)}, "as many gradients as with batches of 32"
    assert fitted.score(X, Y) > 0.9
