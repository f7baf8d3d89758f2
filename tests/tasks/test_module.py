"""Anybody's network and data as a task: the right likelihood, one identity however data are kept, one line for a
mistake."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import raychains as rc
from raychains import schedules, tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec, TaskSpec
from raychains.evaluation.evaluation import Evaluation
from raychains.tasks import fingerprint
from raychains.tasks.digits import Digits
from raychains.tasks.likelihoods import Heteroscedastic, Likelihood, LossFunction
from tests.checks import refused

G = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=G)
LABELS = (X[:, 0] > X[:, 1]).long()
Y = X @ torch.tensor([1.0, -1.0, 0.5]) + 0.1 * torch.randn(60, generator=G)
TRAIN, TEST = slice(0, 40), slice(40, 60)


class Listed(Dataset[tuple[Any, Any]]):
    """Examples one by one, as arrays and Python numbers; counts how often it is asked."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.asked = x.numpy(), y.tolist(), 0

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        self.asked += 1
        return self.x[i], self.y[i]


def classify(**settings: Any) -> Any:
    given: dict[str, Any] = {
        "model_fn": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        "train_set": (X[TRAIN], LABELS[TRAIN]),
        "test_set": (X[TEST], LABELS[TEST]),
    }
    return rc.Task.from_module(**{**given, **settings})


def regress(**settings: Any) -> Any:
    given = {"model_fn": lambda: nn.Linear(3, 1), "train_set": (X[TRAIN], Y[TRAIN]), "test_set": (X[TEST], Y[TEST])}
    return rc.Task.from_module(**{**given, "loss": "gaussian", **settings})


def spec_of(task: Any, **options: Any) -> ChainSpec:
    """The only chain of a run."""
    (spec,) = plans.run(Run(task=task.name, chains=1, **options), task).comparison.chains().values()
    return spec


def drawn(task: Any, **settings: Any) -> list[Any]:
    """The samples of a short chain."""
    spec = spec_of(task, **{"epochs": 4, "cycles": 2, "batch_size": 7, "lr": 0.01, **settings})
    return [e.tensors for e in Chain(spec, task) if isinstance(e, Sample)]


def samples_of(task: Any, **settings: Any) -> list[str]:
    """Their hashes."""
    return [tensors_sha256(tensors) for tensors in drawn(task, **settings)]


# The likelihood


@pytest.mark.parametrize("noise", [0.3, "learned"])
@pytest.mark.parametrize("shape", ["[n]", "[n, 1]", "[n, 3]"])
def test_the_gaussian_loss_is_scipys_mean_negative_log_density(shape: str, noise: float | str) -> None:
    k = 3 if shape == "[n, 3]" else 1
    y = Y if shape == "[n]" else Y[:, None].repeat(1, k) * torch.arange(1, k + 1)
    model_fn = (
        (lambda: nn.Linear(3, k))
        if k > 1 or shape == "[n, 1]"
        else (lambda: nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)))
    )
    task = regress(model_fn=model_fn, train_set=(X[TRAIN], y[TRAIN]), test_set=(X[TEST], y[TEST]), noise=noise)
    model = task.build_model(seed=5, lanes=1).double()
    sigma = 0.3
    if noise == "learned":
        sigma = 1.7
        with torch.no_grad():
            model.get_parameter("log_noise").fill_(math.log(sigma))
    batch = torch.tensor([3, 17, 8, 30, 2])
    loss = task.loss(model, batch, torch.Generator())
    with torch.no_grad():
        given = model(X[batch].double()).reshape(5, -1).numpy()
    targets = y[batch].reshape(5, -1).double().numpy()
    assert loss.item() == pytest.approx(-stats.norm.logpdf(targets, given, sigma).sum(1).mean(), rel=1e-6)
    if noise == "learned":  # d/d log σ of the mean NLL is k − ‖y − f‖²/σ²
        (gradient,) = torch.autograd.grad(loss, [model.get_parameter("log_noise")])
        expected = targets.shape[1] - ((targets - given) ** 2).sum(1).mean() / sigma**2
        assert gradient.item() == pytest.approx(expected, rel=1e-6)


def test_the_heteroscedastic_loss_is_scipys_mean_negative_log_density() -> None:
    task = regress(model_fn=lambda: nn.Linear(3, 2), loss="heteroscedastic")
    model = task.build_model(seed=5, lanes=1).double()
    batch = torch.tensor([3, 17, 8, 30, 2])
    loss = task.loss(model, batch, torch.Generator())
    with torch.no_grad():
        mean, raw = model(X[batch].double()).numpy().T
    sigma = np.log1p(np.exp(raw)) + 1e-6
    assert loss.item() == pytest.approx(-stats.norm.logpdf(Y[batch].double().numpy(), mean, sigma).mean(), rel=1e-6)
    split = task.splits()["test"]
    (found,) = split.summarise([split.reduce([split.predict(model.float().state_dict(), 0)], 0)])
    with torch.no_grad():
        mean, raw = model.double()(X[TEST].double()).numpy().T
    nll = -stats.norm.logpdf(Y[TEST].double().numpy(), mean, np.log1p(np.exp(raw)) + 1e-6).mean()
    assert found["nll"] == pytest.approx(nll, rel=1e-5)


def test_the_heteroscedastic_gradients_of_packs_are_autograds() -> None:
    drawn = torch.Generator().manual_seed(2)
    outputs = 3 * torch.randn(3, 2, 7, generator=drawn, dtype=torch.float64).mT  # as a pack has them
    targets, weights = torch.randn(3, 7, generator=drawn).double(), torch.rand(3, 7, generator=drawn).double()
    ours, given = Heteroscedastic(), ({}, outputs, targets, weights)
    found, expected = ours.gradients(*given), Likelihood.gradients(ours, *given)
    for a, b in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    (single, gradient, _) = ours.gradients({}, outputs.half(), targets, weights)
    assert gradient.dtype == torch.float16 and single.dtype == torch.float64


def test_a_heteroscedastic_network_has_two_outputs_and_no_other_noise() -> None:
    with refused("heteroscedastic", "[n, 2]"):
        regress(loss="heteroscedastic")
    with refused("noise", "heteroscedastic", "0.3"):
        regress(model_fn=lambda: nn.Linear(3, 2), loss="heteroscedastic", noise=0.3)
    with refused("floor", "-1"):
        Heteroscedastic(floor=-1)
    targets = torch.full((40,), float("nan"))
    with refused("train_set", "finite"):
        regress(model_fn=lambda: nn.Linear(3, 2), loss="heteroscedastic", train_set=(X[TRAIN], targets))


def test_learned_noise_is_one_parameter_beside_the_models_own_names() -> None:
    task = regress(noise="learned")
    state = task.build_model(seed=0, lanes=1).state_dict()
    assert list(state) == ["weight", "bias", "log_noise"] and state["log_noise"].tolist() == [0.0]
    nn.Linear(3, 1).load_state_dict(state, strict=False)  # the model's own state beside it
    assert regress().build_model(seed=0, lanes=1).state_dict().keys() == {"weight", "bias"}


def test_the_learned_noise_finds_that_of_the_data() -> None:
    """At temperature 0 the optimum has σ² = the mean squared residual, from least squares."""
    task = regress(noise="learned")
    last = drawn(
        task, epochs=300, cycles=None, batch_size=40, lr=0.05, temperature=0.0, weight_decay=0.0, sampler="sghmc"
    )[-1]
    a = np.hstack([X[TRAIN].double().numpy(), np.ones((40, 1))])
    target = Y[TRAIN].double().numpy()
    residual = target - a @ np.linalg.lstsq(a, target, rcond=None)[0]
    assert math.exp(float(last["log_noise"])) == pytest.approx(math.sqrt((residual**2).mean()), rel=0.02)


def test_cross_entropy_and_given_losses_are_those_of_torch() -> None:
    task = classify()
    model, batch = task.build_model(seed=1, lanes=1), torch.arange(9)
    expected = nn.functional.cross_entropy(model(X[:9]), LABELS[:9])
    assert torch.equal(task.loss(model, batch, torch.Generator()), expected)
    own = classify(loss=lambda f, y: nn.functional.cross_entropy(f, y))
    assert torch.equal(own.loss(model, batch, torch.Generator()), expected)
    metrics = [[m.name for m in t.splits()["test"].metrics if not m.minor] for t in (task, own, regress())]
    assert metrics == [["error", "nll", "ece", "brier"], ["nll"], ["rmse", "nll", "crps", "coverage_error"]]


class Poisson(Likelihood):
    """Counts [n] with log rates [n, 1], written as a user does."""

    name, predicts = "poisson", "outputs"

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        if outputs.shape[1:] != (1,):
            raise rc.UserError("loss poisson needs outputs [n, 1]")

    def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.poisson_nll_loss(outputs[:, 0], targets)

    def evaluation(self, model: nn.Module, data: Any, classes: int) -> Evaluation:
        return LossFunction(lambda f, y: self.loss(model, f, y)).evaluation(model, data, classes)


def test_a_users_likelihood_is_sampled_and_evaluated() -> None:
    counts = LABELS.float() * 3
    sets = {"train_set": (X[TRAIN], counts[TRAIN]), "test_set": (X[TEST], counts[TEST])}
    task = classify(**sets, model_fn=lambda: nn.Linear(3, 1), loss=Poisson())
    assert task.settings()["loss"] == "poisson" and task.predicts == "outputs"
    model, batch = task.build_model(seed=1, lanes=1), torch.arange(5)
    expected = nn.functional.poisson_nll_loss(model(X[:5])[:, 0], counts[:5])
    assert torch.equal(task.loss(model, batch, torch.Generator()), expected)
    assert [m.name for m in task.splits()["test"].metrics if not m.minor] == ["nll"] and len(samples_of(task)) == 2
    with refused("loss poisson needs outputs [n, 1]"):
        classify(**sets, model_fn=lambda: nn.Linear(3, 2), loss=Poisson())


# One identity and one path, however the data are kept


def test_tensors_arrays_and_datasets_in_memory_or_streamed_give_equal_specs_and_samples() -> None:
    pair, test = (X[TRAIN], LABELS[TRAIN]), (X[TEST], LABELS[TEST])
    listed = Listed(*pair)
    kept = {
        "tensors": classify(),
        "arrays": classify(train_set=(pair[0].numpy(), pair[1].numpy())),
        "tensor dataset": classify(train_set=TensorDataset(*pair), test_set=TensorDataset(*test)),
        "dataset": classify(train_set=Listed(*pair), test_set=Listed(*test)),
        "streamed": classify(train_set=listed, test_set=Listed(*test), resident=False),
    }
    assert {name: t.streamed for name, t in kept.items()} == {**dict.fromkeys(kept, False), "streamed": True}
    assert len({t.spec() for t in kept.values()}) == 1
    before = listed.asked
    hashes = {name: samples_of(t) for name, t in kept.items()}
    assert len(hashes["tensors"]) == 2 and len(set(hashes["tensors"])) == 2
    assert all(h == hashes["tensors"] for h in hashes.values())
    assert listed.asked - before >= 4 * 40  # every epoch was read again
    rows = {}
    sample = classify().build_model(seed=3, lanes=1).state_dict()
    for name, task in kept.items():
        for split in ("test", "train"):
            made = task.splits()[split]
            rows[name, split] = made.reduce([made.predict(sample, 0)], 0).rows["log_p_label"]
    for (_, split), found in rows.items():
        assert np.array_equal(found, rows["tensors", split])
    assert len(rows["tensors", "train"]) == 40 and len(rows["tensors", "test"]) == 20


def test_a_set_that_states_its_fingerprint_is_not_read_for_one() -> None:
    listed = Listed(X[TRAIN], LABELS[TRAIN])
    listed.fingerprint = "flowers-3"  # type: ignore[attr-defined]
    task = classify(train_set=listed, resident=False)
    assert listed.asked < 40 and "stated/flowers-3" in task.fingerprint
    assert samples_of(task) == samples_of(classify())


def test_a_pickled_task_is_the_same_task() -> None:
    task = regress(noise="learned")
    task.to(torch.device("cpu"))
    samples = samples_of(task)
    again = cloudpickle.loads(cloudpickle.dumps(task))
    assert again.spec() == task.spec() and samples_of(again) == samples
    buffers: list[Any] = []
    small = cloudpickle.dumps(task, protocol=5, buffer_callback=buffers.append)
    assert sum(b.raw().nbytes for b in buffers) == 60 * (3 + 1) * 4 and len(small) < 20_000


def test_each_seed_has_its_start_and_the_outside_stream_is_left_alone() -> None:
    task = classify()
    before = torch.get_rng_state()
    a, b, c = (task.build_model(seed=s, lanes=1).state_dict() for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert tensors_sha256(a) == tensors_sha256(b) != tensors_sha256(c)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "version ('2' here, '1' in the run)"),
        ({"train_set": (X[TRAIN] + 1, LABELS[TRAIN])}, "training data"),
        ({"train_set": (X[TRAIN], 1 - LABELS[TRAIN])}, "training data"),
        ({"train_set": (X[TRAIN].double(), LABELS[TRAIN])}, "training data"),
        ({"test_set": (X[TRAIN], LABELS[TRAIN])}, "test data"),
        ({"model_fn": lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))}, "layout of the model"),
        ({"model_fn": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), Halved(4, 2))}, "initial parameters"),
        ({"loss": lambda f, y: nn.functional.cross_entropy(f, y)}, "likelihood ('callable <lambda>' here, "
         "'cross_entropy' in the run)"),
        ({"version": "b", "test_set": (X[:5], LABELS[:5])}, "version ('b' here, '1' in the run) and test data"),
    ],
    ids=["version", "inputs", "labels", "dtype", "test", "layout", "parameters", "likelihood", "two"],
)  # fmt: skip
def test_what_differs_is_named_and_nothing_else(change: dict[str, Any], named: str) -> None:
    here, there = classify(**change).spec(), classify().spec()
    assert here.kind == there.kind and here.fingerprint != there.fingerprint
    assert fingerprint.differences(here, there) == named


class Halved(nn.Linear):
    """The same layout, another initialisation."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            self.weight.mul_(0.5)


def test_an_object_is_found_by_its_spec_alone() -> None:
    task = tasks.give(classify(name="once"))
    spec = TaskSpec.from_json(task.spec().to_json())
    assert tasks.build(spec) is task
    tasks.give(classify(name="once", version="new"))
    with refused("task 'once' differs from the run's: version ('new' here, '1' in the run)"):
        tasks.build(spec)
    missing = TaskSpec(kind=spec.kind, revision=1, settings={**spec.settings, "name": "never"}, fingerprint="x")
    with refused("task 'never' was made by Task.from_module and is not in the store", "raychains.load(path, task=…)"):
        tasks.build(missing)


# Mistakes


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([])


class Noisy(Listed):
    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.x[i] + torch.randn(3).numpy(), self.y[i]


class Failing(Listed):
    def __getitem__(self, i: int) -> tuple[Any, Any]:
        if i == 31:
            raise OSError("no file 31.png")
        return super().__getitem__(i)


class Fails(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        raise KeyError("cls")


def unseeded() -> nn.Module:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(2, 3))))
    return model


class Sized(Listed):
    """Says of its length what it is given, or raises it."""

    def __init__(self, length: Any) -> None:
        super().__init__(X, LABELS)
        self.length = length

    def __len__(self) -> int:
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


def distributed() -> nn.Module:
    """A network under DistributedDataParallel, which needs a process group."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            return nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
        finally:
            torch.distributed.destroy_process_group()


def on_meta() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, device="meta"))


def masked() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_buffer("mask", torch.full((2, 2), -math.inf).triu(1))
    return model


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs[:, 0] - targets) ** 2).mean()


GAPS = X.clone()
GAPS[41, 1] = math.nan
INFINITE = X.clone()
INFINITE[3] = math.inf
Y_GAPS = Y.clone()
Y_GAPS[45] = math.nan
MASKED = np.ma.masked_array(X.numpy(), mask=X.numpy() > 1)  # type: ignore[no-untyped-call]
MASKED_LABELS = np.ma.masked_array(LABELS.numpy(), mask=LABELS.numpy() == 1)  # type: ignore[no-untyped-call]
ONE = nn.Linear(3, 2)
WRONG: dict[str, list[tuple[Any, ...]]] = {
    "model_fn": [
        (nn.Linear(3, 2), "model_fn must be a function that builds a new model", "Linear"),
        (lambda: ONE, "model_fn must build a new model at each call"),
        (lambda: 3, "model_fn must build a torch.nn.Module, got a int"),
        (unseeded, "from torch, random or numpy.random", "'weight'"),
        (lambda: nn.Linear(3, -1), "model_fn raised RuntimeError"),
        (lambda: nn.Linear(4, 2), "model_fn: the model fails on the first inputs of train_set", "RuntimeError"),
        (lambda: Fails(3, 2), "KeyError: 'cls'"),
        (lambda: nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)), "tensor [n, …] for inputs [n, …]", "[8]"),
        (nn.Tanh, "parameters that require gradients"),
        (lambda: torch.jit.script(nn.Linear(3, 2)), "model_fn must build modules of Python, got one of TorchScript"),
        (lambda: nn.Sequential(torch.jit.trace(nn.Linear(3, 2), torch.zeros(1, 3))), "one of TorchScript as '0'"),
        (lambda: nn.DataParallel(nn.Linear(3, 2)), "a network for one device, got a DataParallel"),
        (distributed, "a network for one device, got a DistributedDataParallel"),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(2)), "known shapes, got '1.weight' uninitialised"),
        (masked, "model_fn must build finite buffers, got '0.mask'", "persistent=False"),
        (on_meta, "model_fn must build tensors with values, got one on the device meta as '1.weight'"),
        (lambda: nn.Linear(3, 1), "needs logits [n, classes]", "[4, 1]"),
    ],
    "train_set": [
        ((X, LABELS.float()), "integer labels [n]", "float32 targets [4]"),
        ((X, LABELS - 1), "train_set must have labels in [0, 1]", "got -1"),
        ((X, LABELS[:5]), "train_set must have as many inputs as targets", "60 inputs and 5 targets"),
        (X, "train_set must be a pair of tensors (inputs, targets), a dict of tensors with 'labels', or a map-style"),
        ("cifar", "train_set must be a pair of tensors"),
        (Stream(), "train_set must be a map-style dataset, got an iterable one"),
        (Listed(X[:0], LABELS[:0]), "train_set must hold at least one example"),
        (Noisy(X, LABELS), "train_set must give the same example for the same index"),
        (Failing(X, LABELS), "train_set failed at index 31", "OSError: no file 31.png"),
        (Sized(61), "train_set failed at index 60", "IndexError"),
        (Sized(RuntimeError("closed")), "train_set must have a length, got RuntimeError: closed"),
        (Sized(10**30), "train_set must have a length, got OverflowError"),
        ((X.to_sparse(), LABELS), "train_set must hold dense tensors, got a sparse one as inputs"),
        ([(x.to_sparse(), 0) for x in X], "got a sparse one as input at index 0"),
        ((X.to("meta"), LABELS), "train_set must hold tensors with values, got one on the device meta"),
        ((MASKED, LABELS.numpy()), "train_set must hold whole arrays, got a masked one as inputs", "filled"),
        ([(x, 0) for x in MASKED], "got a masked one as input at index"),
        ((INFINITE, LABELS), "train_set must hold examples with a finite loss", "at index 3"),
    ],
    "test_set": [
        ((X, LABELS + 1), "test_set must have labels in [0, 1]", "got 2"),
        (Sized(-3), "test_set must have a length, got ValueError"),
        ((X, LABELS.to_sparse()), "test_set must hold dense tensors, got a sparse one as targets"),
        ((X.numpy(), MASKED_LABELS), "test_set must hold whole arrays, got a masked one as targets"),
        ((GAPS, LABELS), "test_set must hold examples with a finite loss, got nan at index 41"),
    ],
    "val": [
        (Sized(60.0), "val must have a length, got TypeError"),
        ((X[:5], LABELS[:4]), "val must have as many inputs as targets"),
        ((X[:5], LABELS[:5] + 1), "val must have labels in [0, 1]", "got 2"),
        ((X[:5, :2], LABELS[:5]), "fails on the first inputs of val", "RuntimeError"),
        (iter([]), "val must be a pair of tensors (inputs, targets), a dict of tensors with 'labels', or a map-style"),
    ],
    "loss": [
        ("hinge", "loss must be 'cross_entropy', 'gaussian', 'heteroscedastic', 'bernoulli'", "'hinge'"),
        (lambda f, y: nn.functional.cross_entropy(f, y, reduction="sum"), "loss must be the mean over a batch"),
        (lambda f, y: nn.functional.cross_entropy(f, y, reduction="none"), "loss must return a tensor of one number"),
        (lambda f, y: f.nowhere, "loss failed on the first training examples: AttributeError"),
    ],
    "noise": [(0.1, "noise must be left out", "gaussian")],
    "name": [("a/b", "name must be 1 to 60 letters"), ("digits", "name must not be that of a built-in task")],
    "version": [(1.5, "version must be a text or an integer")],
}
"""Arguments of a classifier's task, and words of what is said of them."""
OTHERS: list[tuple[Callable[..., Any], dict[str, Any], list[str]]] = [
    (classify, {"test_set": Sized(61), "resident": False}, ["test_set failed at index 60", "IndexError"]),
    (classify, {"test_set": Listed(GAPS, LABELS), "resident": False}, ["a finite loss, got nan at index 41"]),
    (classify, {"train_set": Listed(X, LABELS), "resident": 1}, ["resident must be True, False"]),
    (
        regress,
        {"val": (X, Y_GAPS), "loss": squares},
        ["val must hold examples with a finite loss, got nan at index"],
    ),
    (regress, {"noise": 0.0}, ["noise must be a finite number above 0, σ, or 'learned'"]),
    (regress, {"noise": "known"}, ["or 'learned'", "'known'"]),
    (regress, {"model_fn": lambda: nn.Linear(3, 2)}, ["loss gaussian needs outputs and targets", "[4, 2]", "[4]"]),
    (regress, {"test_set": (X, torch.full((60,), math.nan))}, ["test_set must have finite targets"]),
]
MISTAKES = [*((classify, {name: row[0]}, row[1:]) for name, rows in WRONG.items() for row in rows), *OTHERS]


@pytest.mark.parametrize(("make", "change", "words"), MISTAKES, ids=[words[0] for *_, words in MISTAKES])
def test_a_mistake_is_one_line(make: Callable[..., Any], change: dict[str, Any], words: Any) -> None:
    with refused(*words):
        make(**change)


class Imputes(nn.Linear):
    """Takes NaN for 0."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(torch.nan_to_num(input))


def without_gaps(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.where(targets.isnan(), 0.0, (outputs[:, 0] - targets) ** 2).mean()


def test_missing_values_are_data_of_models_and_losses_that_take_them() -> None:
    classify(model_fn=lambda: Imputes(3, 2), test_set=(GAPS, LABELS), train_set=(GAPS, LABELS))
    regress(test_set=(X, Y_GAPS), loss=without_gaps)
    whole = np.ma.masked_array(X.numpy(), mask=False)  # type: ignore[no-untyped-call]  # nothing of it is masked
    assert classify(train_set=(whole, LABELS)).fingerprint == classify(train_set=(X, LABELS)).fingerprint


def test_options_that_belong_to_a_tasks_making_are_refused_beside_an_object() -> None:
    for field, value in (("task_settings", ("a=1",)), ("train_subset", 10)):
        with refused(f"{field} must be left out beside a task that is given as an object"):
            plans.run(Run(task="own", **{field: value}), classify())
    with refused("task must be a name, an import path 'module:name' or a raychains.Task, got a Linear"):
        rc.run(task=nn.Linear(1, 1))


def test_a_tasks_own_defaults_are_those_of_its_runs() -> None:
    task = classify(defaults={"epochs": 6, "batch_size": 10, "lr": 0.02, "cycles": 3, "sampler": "csgld"})
    spec = spec_of(task)
    assert (spec.sampler.kind, spec.steps, spec.batch_size) == ("sgld", 24, 10)
    assert (spec.schedule.settings["lr"], spec.schedule.settings["cycles"]) == (0.02, 3)


@pytest.mark.parametrize(
    ("defaults", "options", "found"),
    [
        ({}, {}, ("psgld", 0.003, 32, 1.0)),
        ({"batch_size": 10, "epochs": 6, "weight_decay": 0.5}, {}, ("psgld", 0.003, 10, None)),
        ({}, {"batch_size": 7, "prior": ("gaussian:2",)}, ("psgld", 0.003, 7, 2.0)),
        ({"lr": 0.02}, {}, ("sghmc", 0.02, 40, None)),
        ({}, {"lr": 0.02}, ("sghmc", 0.02, 40, None)),
        ({}, {"momentum": 0.5}, ("sghmc", 0.05, 40, None)),
        ({"sampler": "csgld"}, {}, ("sgld", 0.5, 40, None)),
    ],
)
def test_a_run_that_states_nothing_of_its_steps_has_a_method_that_needs_nothing(
    defaults: dict[str, Any], options: dict[str, Any], found: tuple[Any, ...]
) -> None:
    """pSGLD under the prior N(0, 1); whoever speaks of step sizes speaks of csghmc's."""
    task = classify(defaults=defaults)
    spec, (kind, lr, batch, sd) = spec_of(task, **options), found
    assert (spec.sampler.kind, spec.schedule.settings["lr"], spec.batch_size) == (kind, lr, batch)
    decay = defaults.get("weight_decay", 1e-4) if sd is None else 1 / (task.num_data * sd**2)
    assert spec.sampler.settings["weight_decay"] == pytest.approx(decay)


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ({"momentum": 1.0}, "momentum among the defaults of task"),
        ({"samples_per_cycle": "3"}, "samples_per_cycle among the defaults of task"),
        ({"steps": 7}, "steps among the defaults of task"),
    ],
)
def test_a_default_is_checked_as_the_option_is(defaults: dict[str, Any], said: str) -> None:
    with refused(said):
        spec_of(classify(defaults=defaults))


def test_defaults_are_also_numpys_numbers_and_may_be_none() -> None:
    task = classify(defaults={"epochs": np.int64(20), "lr": np.float32(0.5), "momentum": None})
    spec = spec_of(task)
    assert spec.steps // spec.steps_per_epoch == 20 and spec.schedule.settings["lr"] == 0.5


def test_arrays_that_run_backwards_and_labels_of_any_integers_are_data() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 2
    plain = rc.Task.from_module(lambda: nn.Linear(3, 2), (x[:, ::-1].copy(), y), (x, y))
    backwards = rc.Task.from_module(
        lambda: nn.Linear(3, 2), (x[:, ::-1], y.astype(np.uint16)), (x, y.astype(np.uint16))
    )
    (a,), (b,) = (list(task.epoch(seed=0, batch_size=30)) for task in (plain, backwards))
    assert torch.equal(
        plain.loss(plain.build_model(seed=0, lanes=1), a, torch.Generator()),
        backwards.loss(backwards.build_model(seed=0, lanes=1), b, torch.Generator()),
    )


class Elsewhere(Digits):
    """Has no split on which a run could be evaluated."""

    def splits(self) -> Any:
        return {"other": super().splits()["test"]}


def test_a_task_without_a_split_to_evaluate_on_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with refused("task must have the split 'test', on which runs are evaluated"):
        rc.run(task=Elsewhere(), epochs=8, cycles=2, store=str(tmp_path), progress=False)
    assert not list(tmp_path.rglob("plan.json"))


def test_numpys_numbers_in_lists_are_those_of_settings() -> None:
    made = Run(schedule_settings={"milestones": list(np.array([0.25, 0.5]))})
    assert made.schedule_settings == ("milestones=[0.25, 0.5]",)


def test_targets_of_several_axes_have_the_outputs_shape() -> None:
    with refused("loss gaussian needs outputs and targets", "[4, 2, 6]", "[4, 6, 2]"):
        rc.Task.from_module(
            lambda: nn.Sequential(nn.Linear(12, 12), nn.Unflatten(1, (2, 6))),
            (np.zeros((30, 12), np.float32), np.zeros((30, 6, 2))),
            (np.zeros((30, 12), np.float32), np.zeros((30, 6, 2))),
            "gaussian",
        )


@pytest.mark.parametrize("sampler", ["adamw", "tests.chain.test_pack:Lion"])
def test_a_step_size_of_a_sampler_that_tasks_have_none_for(sampler: str) -> None:
    task = classify(defaults={"lr": 0.02, "sampler": sampler, "epochs": 20})
    spec = spec_of(task)
    assert schedules.build(spec.schedule).at(1).lr == pytest.approx(0.02)


class Embedded(nn.Module):
    """A network of words, with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.out = nn.Embedding(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.norm(self.words(x).mean(1)))
        return out


def test_integers_reach_a_network_unchanged_also_where_statistics_are_estimated() -> None:
    words, labels = torch.arange(60).reshape(20, 3) % 9, torch.arange(20) % 2
    task = rc.Task.from_module(Embedded, (words, labels), (words, labels), name="words")
    (state,) = drawn(task, batchnorm="reestimate")[-1:]
    network = Embedded()
    network.load_state_dict(state)
    batches = [words[batch] for batch in task.epoch(seed=0, batch_size=7)]
    mean = torch.stack([network.words(x).mean(1).mean(0) for x in batches]).mean(0)
    torch.testing.assert_close(state["norm.running_mean"], mean.detach())


class Scaled(Digits):
    """Digits whose network takes inputs of another scale."""

    def prepare(self, inputs: Tensor) -> Tensor:
        return 100 * inputs


def test_training_prepares_inputs_as_evaluation_does() -> None:
    task = Scaled(train=90, hidden=[8])
    model = task.build_model(seed=0, lanes=1)
    batch = torch.arange(10)
    inputs, targets = task.source.batch(batch)
    torch.testing.assert_close(
        task.loss(model, batch, torch.Generator()), nn.functional.cross_entropy(model(100 * inputs), targets)
    )
