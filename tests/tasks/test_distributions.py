"""Likelihoods that are torch distributions: log p as SciPy has it, posteriors by quadrature, the predictive end to
end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor, distributions, nn

import raychains as rc
from raychains.evaluation.distributed import Distributed as Split
from raychains.inference.ensemble_source import source_of
from raychains.inference.predictive import Predictive, select
from raychains.measures import calibration
from raychains.report.terminal import export_lines
from raychains.tasks import likelihoods
from raychains.tasks.likelihoods import NAMED, Distributed
from tests.checks import refused
from tests.pool import pooled
from tests.tasks.predictives import answered, assert_posterior, exported, settled

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
N = 200
X = torch.from_numpy(RNG.normal(size=(N, 3))).float()
SIGNAL = X[:, 0].double().numpy()


def spread(outputs: Array) -> Array:
    """The softplus of the last two outputs, and what is the least."""
    return np.asarray(np.logaddexp(0, outputs[:, 2:])) + 1e-6


def binomial(outputs: Array, y: Array) -> Array:
    mean, r = np.exp(outputs[:, :2]), spread(outputs)
    return np.asarray(stats.nbinom.logpmf(y, r, r / (r + mean)))


ORACLES: dict[str, tuple[int, Array, Callable[[Array, Array], Array]]] = {
    "bernoulli": (2, RNG.integers(0, 2, (N, 2)), lambda f, y: stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-f)))),
    "poisson": (2, RNG.poisson(2.0, (N, 2)), lambda f, y: stats.poisson.logpmf(y, np.exp(f))),
    "negative-binomial": (4, RNG.negative_binomial(2, 0.4, (N, 2)), binomial),
    "normal": (4, RNG.normal(size=(N, 2)), lambda f, y: stats.norm.logpdf(y, f[:, :2], spread(f))),
    "student-t": (4, RNG.standard_t(3, (N, 2)), lambda f, y: stats.t.logpdf(y, 4.0, f[:, :2], spread(f))),
}
"""By the loss's name: the width of the outputs of two targets, targets, and log p of each under outputs [n, width]."""
GONE = RNG.random((N, 2)) < 0.3
GONE[:3] = [[True, True], [True, False], [False, False]]
"""Targets that are missing."""


def task(loss: Any, y: Array, width: int, *, train: int = 150, **settings: Any) -> Any:
    targets = torch.from_numpy(np.asarray(y, dtype=np.float32))
    parts = (X[:train], targets[:train]), (X[train:], targets[train:])
    return rc.Task.from_module(lambda: nn.Linear(3, width), *parts, loss=loss, **settings)


def ran(made: Any, folder: Path, **settings: Any) -> rc.Result:
    usual = {"epochs": 8, "chains": 2, "backend": "process", "progress": False, "store": str(folder)}
    return rc.run(task=made, **{**usual, **settings})


@pytest.mark.parametrize("name", NAMED)
def test_log_p_is_scipys_for_one_network_and_for_a_pack(name: str) -> None:
    width, y, log_p = ORACLES[name]
    outputs = torch.from_numpy(RNG.normal(size=(N, width)))
    targets, likelihood = torch.from_numpy(np.asarray(y, dtype=np.float64)), NAMED[name]()
    expected = log_p(outputs.numpy(), y).sum(1)
    loss = likelihood.loss(nn.Identity(), outputs, targets)
    assert float(loss) == pytest.approx(-expected.mean(), abs=1e-6)
    each = likelihood.each({}, torch.stack([outputs, outputs.flip(0)]), torch.stack([targets, targets.flip(0)]))
    np.testing.assert_allclose(each[0].numpy(), -expected, atol=1e-6)
    np.testing.assert_allclose(each[1].numpy(), -expected[::-1], atol=1e-6)
    alone = likelihood.loss(nn.Identity(), outputs[:, : width // 2], targets[:, 0]) if width == 4 else None
    if alone is not None:  # one target is [n] as well as [n, 1]
        assert alone == likelihood.loss(nn.Identity(), outputs[:, : width // 2], targets[:, :1])


@pytest.mark.parametrize("name", NAMED)
def test_missing_targets_count_nothing_and_leave_gradients_finite(name: str) -> None:
    width, y, log_p = ORACLES[name]
    outputs = torch.from_numpy(RNG.normal(size=(N, width))).requires_grad_()
    kind: Any = NAMED[name]
    likelihood = kind(missing=True)
    assert likelihood.name == f"{kind().name}, missing"
    targets = torch.from_numpy(np.where(GONE, np.nan, y))
    each = np.where(GONE, 0.0, log_p(outputs.detach().numpy(), y)).sum(1)
    assert each[0] == 0  # of an example that still counts as one of N
    loss = likelihood.loss(nn.Identity(), outputs, targets)
    assert loss.item() == pytest.approx(-each.mean(), abs=1e-6)
    found = torch.autograd.grad(loss, outputs)[0]
    part = kind().distribution(outputs).base_dist.log_prob(torch.from_numpy(np.asarray(y, dtype=np.float64)))
    expected = torch.autograd.grad(-part[torch.from_numpy(~GONE)].sum() / N, outputs)[0]
    torch.testing.assert_close(found, expected)
    packed = likelihood.each({}, torch.stack([outputs, outputs]), torch.stack([targets, targets]))
    np.testing.assert_allclose(packed[1].detach().numpy(), -each, atol=1e-6)
    far = torch.full((1, width), 1e4 if name in ("normal", "student-t") else 30.0).requires_grad_()
    likelihood.loss(nn.Identity(), far, torch.full((1, 2), torch.nan)).backward()
    assert far.grad is not None and (far.grad == 0).all(), "NaN must not come back through what is not taken"


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", NAMED)
def test_a_predictive_is_the_mixture_by_hand(name: str, missing: bool) -> None:
    width, y, log_p = ORACLES[name]
    y = np.where(GONE & missing, np.nan, y)
    kind: Any = NAMED[name]
    split = task(kind(missing=missing), y, width).splits()["test"]
    assert isinstance(split, Split)
    torch.manual_seed(0)
    samples = [{"weight": torch.randn(width, 3), "bias": torch.randn(width)} for _ in range(3)]
    blocks, weights = [split.predict(s, 0) for s in samples], [0.5, 0.2, 0.3]
    found = split.reduce(blocks, 0, weights)
    x, test = X[150:], y[150:]
    outputs = [(x @ s["weight"].T + s["bias"]).double() for s in samples]
    each = np.stack([np.where(np.isnan(test), 0.0, log_p(f.numpy(), test)).sum(1) for f in outputs])
    np.testing.assert_allclose(found.rows["log_p"], special.logsumexp(each.T, 1, weights), rtol=1e-5)
    laws = [NAMED[name]().distribution(f) for f in outputs]
    means, squares = (
        np.stack([m.numpy() for m in t]) for t in zip(*((d.mean, d.variance + d.mean**2) for d in laws), strict=True)
    )
    mean = np.tensordot(weights, means, 1)
    np.testing.assert_allclose(found.rows["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found.rows["std"] ** 2, np.tensordot(weights, squares, 1) - mean**2, rtol=1e-4)
    (metrics,) = split.summarise([found])
    assert metrics["nll"] == pytest.approx(-found.rows["log_p"].mean())
    if name == "bernoulli":
        there = ~np.isnan(test)
        assert metrics["label_error"] == pytest.approx(((mean > 0.5) != test)[there].mean())
        assert metrics["brier"] == pytest.approx(np.nanmean((mean - test) ** 2))
    else:
        assert metrics["rmse"] == pytest.approx(np.nanmean((mean - test) ** 2) ** 0.5)
    (curves,) = split.curve([found])
    assert set(curves) == {"nll", "label_error" if name == "bernoulli" else "rmse"}
    alone = split.summarise([split.reduce(blocks[:1], 0)])[0]
    for metric, curve in curves.items():
        assert len(curve) == 3 and [curve[0], curve[-1]] == pytest.approx([alone[metric], metrics[metric]])


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "student-t"])
def test_a_posterior_of_one_number_is_quadratures(name: str, tmp_path: Path) -> None:
    """The network is a single number; of Student's t its scale is known by a likelihood of one's own."""
    y = {"bernoulli": RNG.random(40) < 0.7, "poisson": RNG.poisson(1.5, 40), "student-t": 1 + RNG.standard_t(4, 40)}[
        name
    ]
    targets = torch.from_numpy(np.asarray(y, dtype=np.float32))
    likelihood = Located() if name == "student-t" else NAMED[name]()
    ones = torch.ones(40, 1)
    made = rc.Task.from_module(lambda: nn.Linear(1, 1, bias=False), (ones, targets), (ones, targets), likelihood)
    result = settled(made, 40, tmp_path, lr=0.02, epochs=4000)
    grid = np.linspace(-4, 4, 4001)
    with torch.no_grad():
        log_p = [
            -40 * float(likelihood.loss(nn.Identity(), torch.full((40, 1), g).double(), targets)) - g**2 / 2
            for g in grid
        ]
    draws = result.posterior().outputs(torch.ones(1, 1))[1].detach().double().numpy().reshape(2, -1)
    assert draws.shape[1] == 180
    assert_posterior(draws, grid, np.array(log_p))


class Located(Distributed):
    """Student's t of four degrees of freedom around the output: a likelihood of one's own, in full."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.name = f"located, scale {scale!r}"

    def distribution(self, outputs: Tensor) -> distributions.Distribution:
        each = distributions.StudentT(4.0, outputs, torch.full_like(outputs, self.scale), validate_args=False)
        return self.independent(each)

    def settings(self) -> dict[str, Any]:
        return {"scale": self.scale}


class Forgetful(Located):
    """One whose settings do not make it again."""

    def settings(self) -> dict[str, Any]:
        return {}


def test_results_predictions_exports_and_answers_are_the_same_numbers(tmp_path: Path) -> None:
    width, y, _ = ORACLES["bernoulli"]
    result = ran(task("bernoulli", y, width), tmp_path, name="labels", pack="auto")
    assert {"label_error", "nll", "brier"} <= set(result.table(full=True).columns)
    x = X[150:]
    p = result.predict(x)
    assert p.shape == (50, 2) and ((p > 0) & (p < 1)).all()
    _, sd = result.predictive().mean_and_std(x)
    np.testing.assert_allclose(sd**2, p * (1 - p), rtol=1e-6)  # a mixture of Bernoullis is one
    _, loaded = exported(result, nn.Linear(3, width), x, tmp_path / "whole.safetensors")
    with refused("quantiles needs a regression with Gaussian noise", "np.quantile(draws(x, n), levels, axis=0)"):
        result.predictive().quantiles(x, [0.5])
    with refused("kind must be regression"):
        loaded.gaussians(x)


def test_a_likelihood_of_ones_own_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran(task(Located(2.0), SIGNAL, 1), tmp_path, chains=1)
    assert result.table(full=True)["rmse"].iloc[0] > 0
    x = X[150:]
    written = result.export(str(tmp_path / "own.safetensors"))
    assert written.likelihood == {"path": f"{__name__}:Located", "settings": {"scale": 2.0}}
    assert "model=net, trust=True)" in export_lines(written)[1]
    net, load = nn.Linear(3, 1), rc.PosteriorPredictive.load
    mean, sd = result.predictive().mean_and_std(x)
    assert (sd > 8**0.5).all()  # that of 2·t₄ alone
    for posterior in (
        result.posterior(),
        load(written.path, net, trust=True),
        load(written.path, net, likelihood=Located(2.0)),
    ):
        np.testing.assert_allclose(posterior(x).mean.detach().numpy()[:, 0], mean, atol=1e-6)
        answer = answered(posterior, x)
        np.testing.assert_allclose(answer["mean"], mean, atol=1e-6)
        np.testing.assert_allclose(answer["sd"], sd, rtol=1e-5)
    with refused("trust must be True to load", f"the likelihood '{__name__}:Located'", "load(file, likelihood=…)"):
        load(written.path, net)
    with refused("trust must be True to load"):
        source_of(str(written.path), model=net)
    loaded, _ = source_of(str(written.path), model=net, trust=True).load("cpu")
    np.testing.assert_allclose(loaded(x).mean.detach().numpy()[:, 0], mean, atol=1e-6)
    monkeypatch.delattr(sys.modules[__name__], "Located")
    with refused("the likelihood", "cannot be built here"):
        load(written.path, net, trust=True)
    with refused("task must have a likelihood of raychains, or of a class that can be imported", "Located"):
        result.export(str(tmp_path / "again.safetensors"))


def test_a_file_is_refused_where_settings_do_not_make_the_likelihood() -> None:
    class Local(Located):
        pass

    with refused("to be written to a file", "Local"):
        likelihoods.distributed_to_json(Local())
    with refused("settings() of Forgetful must be JSON of the arguments"):
        likelihoods.distributed_to_json(Forgetful(3.0))
    for stated in ({"path": "nowhere:Law", "settings": {}}, {"path": f"{__name__}:Located", "settings": {"df": 1}}):
        with refused("some.file: the likelihood", "cannot be built here"):
            likelihoods.distributed_from_json(stated, "some.file", trust=True)
    with refused("likelihood must make a Distributed", f"got '{__name__}:Path': some.file names it"):
        likelihoods.distributed_from_json({"path": f"{__name__}:Path", "settings": {}}, "some.file", trust=True)


@pytest.mark.parametrize("loss", ["cross_entropy", "heteroscedastic", "normal"])
def test_draws_have_the_predictives_moments_and_come_again(loss: str, tmp_path: Path) -> None:
    labels = loss == "cross_entropy"
    y = torch.from_numpy(ORACLES["normal"][1]).float() if loss == "normal" else (X[:, 0] > 0).long()
    y = y if labels or loss == "normal" else y.float()
    parts = (X[:150], y[:150]), (X[150:], y[150:])
    made = rc.Task.from_module(lambda: nn.Linear(3, 4 if loss == "normal" else 2), *parts, loss=loss)
    result = ran(made, tmp_path)
    predictive, x, n = result.predictive(), X[150:155], 4000
    draws = predictive.draws(x, n)
    assert draws.shape == (n, 5, 2 if loss == "normal" else 1)
    np.testing.assert_array_equal(draws, predictive.draws(x, n, seed=0))
    assert (predictive.draws(x, n, seed=1) != draws).any()

    def moments(predictive: Any, x: Tensor) -> tuple[Array, Array]:
        if not labels:
            mean, sd = (t.reshape(len(x), -1) for t in predictive.mean_and_std(x))
            return mean, sd
        p = predictive(x)[:, 1:]
        return p, (p * (1 - p)) ** 0.5

    mean, sd = moments(predictive, x)
    assert (abs(draws.mean(0) - mean) < 4 * sd / n**0.5).all()
    fourth = ((draws - mean) ** 4).mean(0)
    assert (abs(((draws - mean) ** 2).mean(0) - sd**2) < 4 * ((fourth - sd**4) / n) ** 0.5 + 1e-3 * sd**2).all()
    with refused("n must be an integer of at least 1", "0"):
        predictive.draws(x, 0)
    selection = select(result.store.root, result.comparison)
    weights = [0.0] * len(selection.records)
    weights[1] = 1.0
    alone = Predictive(replace(selection, weights=weights))
    mean, sd = moments(alone, x)
    assert (abs(alone.draws(x, n).mean(0) - mean) < 4 * sd / n**0.5).all(), "a sample is drawn by its weight"


def test_calibration_takes_each_label_that_is_known_for_an_example() -> None:
    rows = {
        "label_error": np.zeros(2),
        "target": np.array([[1, np.nan], [0, 1]]),
        "mean": np.array([[0.9, 0.2], [0.6, 0.3]]),
    }
    found = calibration.of_labels(rows)
    np.testing.assert_allclose(found["confidence"], [0.9, 0.6, 0.7])
    assert found["prediction"].tolist() == [1, 1, 0] and found["label"].tolist() == [1, 0, 1]
    assert calibration.of_labels({"label": np.zeros(2)}).keys() == {"label"}, (
        "a classifier's rows are taken as they are"
    )


@pytest.mark.long
def test_measures_of_labels_work_or_say_that_they_need_classes(ray_session: None, tmp_path: Path) -> None:
    width, y, _ = ORACLES["bernoulli"]
    made = task(likelihoods.Bernoulli(missing=True), np.where(GONE, np.nan, y), width)
    result = ran(made, tmp_path)
    path, measures = result.store.location(), ["calibration", "diversity", "interpolation", "diagnostics", "flatness"]
    with pooled():
        rc.evaluate(path, measures=measures, views=["chains"], task=made, progress=False)
        for measure in ("ood", "agreement", "fidelity", "against"):
            with refused("is no classification" if measure != "against" else "has neither one label per example nor"):
                against = {"against": np.zeros((50, 2))} if measure == "against" else {}
                rc.evaluate(path, measures=[measure], task=made, progress=False, **against)
    found = rc.load(path, task=made)
    bins, there = found.store.table("reliability").to_pandas(), ~GONE[150:]
    assert bins[bins["binning"] == "width"]["count"].sum() == there.sum()
    p, known = result.predict(X[150:])[there], y[150:][there]
    right = np.where(known == (p > 0.5), np.maximum(p, 1 - p), 1 - np.maximum(p, 1 - p))
    numbers = found.store.table("calibration").to_pandas().iloc[0]
    assert numbers["brier_top"] == pytest.approx(((1 - right) ** 2).mean(), abs=1e-6)
    assert (Path(path) / "figures" / "calibration.svg").is_file()


def test_laplace_is_refused_where_targets_are_missing(tmp_path: Path) -> None:
    made = task(likelihoods.Normal(missing=True), np.where(GONE, np.nan, 1), 4)
    with refused("sampler must be another one", "which targets that are missing change"):
        ran(made, tmp_path, sampler="laplace", epochs=2)


@pytest.mark.parametrize(
    ("loss", "y", "width", "words"),
    [
        (
            "bernoulli",
            RNG.integers(0, 2, (N, 3)),
            2,
            "must give 3 outputs for each example under loss bernoulli | got 2",
        ),
        ("bernoulli", np.empty((N, 0)), 2, "loss bernoulli needs real targets | [4, 0]"),
        ("bernoulli", np.full((N, 2), 0.5), 2, "targets of train_set must be 0 or 1 | bernoulli | [0.5, 0.5]"),
        ("poisson", -RNG.poisson(2.0, N) - 1, 1, "targets of train_set must be whole numbers | at index 0"),
        (
            "poisson",
            np.where(np.arange(N) == 7, np.nan, 1),
            1,
            "train_set | nan | index 7: Poisson(missing=True) counts NaN as a target that is missing",
        ),
        (likelihoods.Poisson(missing=True), np.full(N, -1.0), 1, "whole numbers of at least 0 | poisson, missing"),
        (likelihoods.StudentT(missing=True), np.full(N, np.inf), 2, "be finite | [inf] at index 0"),
        ("heteroscedastic", RNG.normal(size=(N, 2)), 4, "loss normal has a σ for each of several targets"),
        (likelihoods.Normal, SIGNAL, 2, "loss must be a likelihood, Normal(…), got its class"),
        ("normal", RNG.normal(size=(N, 2)), 2, "model_fn must give 4 outputs | 2 for each target | got 2"),
        ("student-t", SIGNAL, 3, "model_fn must give 2 outputs | loss student-t, df 4.0 | got 3"),
        ("negative-binomial", RNG.poisson(2.0, N), 1, "model_fn must give 2 outputs | negative-binomial | got 1"),
        ("bernouli", SIGNAL, 1, "loss must be | 'student-t' | bernouli | did you mean 'bernoulli'?"),
    ],
)
def test_targets_and_outputs_that_do_not_fit_are_one_line(loss: Any, y: Array, width: int, words: str) -> None:
    with refused(*words.split(" | ")):
        task(loss, y, width)


@pytest.mark.parametrize("kind", [likelihoods.Bernoulli, likelihoods.Poisson])
def test_the_fisher_information_is_the_hessian(kind: Any) -> None:
    """Of both it is the same for all targets, so that it needs no average."""
    outputs, y = torch.from_numpy(RNG.normal(size=(4, 3))), torch.ones(4, 3).double()
    found = kind().fisher(nn.Identity(), outputs)
    for i in range(4):
        hessian = torch.func.hessian(lambda f, i=i: kind().loss(nn.Identity(), f[None], y[i : i + 1]))(outputs[i])
        torch.testing.assert_close(found[i], hessian)


def test_the_fisher_information_of_a_normal_is_the_hessians_mean() -> None:
    """Over y, by Gauss-Hermite quadrature, which is exact for the squares that the Hessian has."""
    outputs = torch.from_numpy(RNG.normal(size=(2, 2)))
    found = likelihoods.Normal().fisher(nn.Identity(), outputs)
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    for i in range(2):
        law: Any = likelihoods.Normal().distribution(outputs[i : i + 1])
        y = law.mean + torch.from_numpy(nodes)[:, None] * law.stddev
        each = [
            torch.func.hessian(lambda f, y=t: likelihoods.Normal().loss(nn.Identity(), f[None], y[None]))(outputs[i])
            for t in y
        ]
        expected = sum(w * h for w, h in zip(weights / weights.sum(), each, strict=True))
        torch.testing.assert_close(found[i], expected)


def test_a_distribution_of_another_shape_is_one_line() -> None:
    class Wrong(Located):
        def distribution(self, outputs: Tensor) -> distributions.Distribution:
            return distributions.Normal(outputs, 1.0)

    with refused("must return a distribution with the batch [n] and the event [1]", "the batch [4, 1]"):
        task(Wrong(), SIGNAL, 1)

    class Other(Located):
        def observed(self, targets: Tensor) -> Tensor:
            return torch.cat([targets, targets], 1)

    with refused("must have the distribution's mean and variance for what observed() returns", "[4, 1] and [4, 2]"):
        task(Other(), SIGNAL, 1)

    class Unknown(Located):
        def distribution(self, outputs: Tensor) -> distributions.Distribution:
            return distributions.Distribution(outputs.shape[:-1], outputs.shape[-1:], validate_args=False)

    with refused("failed on 1 outputs: NotImplementedError"):
        task(Unknown(), SIGNAL, 1)


def test_a_file_states_a_likelihood_and_nothing_else() -> None:
    for name, kind in NAMED.items():
        stated = likelihoods.distributed_to_json(kind())
        assert stated["name"] == name and type(likelihoods.distributed_from_json(stated)) is kind
    assert likelihoods.distributed_from_json({"name": "student-t", "df": 7}).name == "student-t, df 7.0"
    assert likelihoods.distributed_to_json(likelihoods.StudentT(7, missing=True)) == {
        "name": "student-t", "df": 7.0, "missing": True
    }  # fmt: skip
    assert likelihoods.distributed_to_json(likelihoods.Bernoulli()) == {"name": "bernoulli"}
    assert likelihoods.distributed_from_json({"name": "normal", "missing": True}).name == "normal, missing"
    for wrong in (None, {"name": "cauchy"}, {"name": "poisson", "df": 3}):
        with refused("likelihood must"):
            likelihoods.distributed_from_json(wrong)
    with refused("df must be a finite number above 0", "0"):
        likelihoods.StudentT(0)
    with refused("missing must be true or false", "1"):
        likelihoods.Bernoulli(1)  # type: ignore[arg-type]


class Open(Located):
    """A distribution whose log p is infinite at a target that its support holds."""

    name = "open"

    def distribution(self, outputs: Tensor) -> distributions.Distribution:
        return self.independent(distributions.Beta(outputs.exp() + 1, outputs.exp() + 1, validate_args=False))


def test_an_example_without_a_finite_loss_is_named() -> None:
    y = np.clip(np.abs(SIGNAL), 0.01, 0.99)
    y[17] = 1.0
    with refused("train_set must hold examples with a finite loss", "inf at index 17", "whose target is 1.0"):
        task(Open(), y, 1)


def test_a_likelihood_has_a_name_and_is_that_of_its_file(tmp_path: Path) -> None:
    class Nameless(Distributed):
        def distribution(self, outputs: Tensor) -> distributions.Distribution:
            return self.independent(distributions.Normal(outputs, 1.0, validate_args=False))

    with refused("loss must have a `name`", "Nameless"):
        task(Nameless(), SIGNAL, 1)
    with refused("likelihood must be that of", "'student-t, df 4.0'", "got 'located, scale 1.0'"):
        rc.PosteriorPredictive.load(student_t(tmp_path), nn.Linear(3, 2), likelihood=Located())
    assert len(rc.PosteriorPredictive.load(student_t(tmp_path), nn.Linear(3, 2), likelihood=likelihoods.StudentT(4)))


def student_t(folder: Path) -> str:
    to = folder / "t.safetensors"
    if not to.exists():
        ran(task("student-t", SIGNAL, 2), folder, epochs=10, chains=1).export(str(to))
    return str(to)
