"""A label per position, and class weights: log p by hand, a posterior by quadrature, the predictive end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, logsumexp
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import raychains as rc
from raychains.chain.packable import task_refusal
from raychains.core.config import Run
from raychains.evaluation import bootstrap, calibration_error, position_classification
from raychains.evaluation.evaluation import gather, joined
from raychains.evaluation.position_classification import Positions
from raychains.inference import file, requests
from raychains.inference.run_data import built_in_metrics
from raychains.measures import against, agreement, llc, measure, ood
from raychains.measures import calibration as calibration_measure
from raychains.measures.measure import Context
from raychains.planning import costs, methods
from raychains.tasks import likelihoods
from raychains.tasks.examples import varied
from raychains.tasks.likelihoods import Classes, PerPosition
from raychains.tasks.user_defaults import defaults_of
from tests.checks import refused
from tests.tasks.predictives import answered, assert_posterior, close, exported, settled

Array = np.ndarray[Any, Any]
N, LENGTH, CLASSES, IGNORED = 60, 7, 3, -100
RNG = np.random.default_rng(0)
WORDS = torch.from_numpy(RNG.integers(0, 5, (N, LENGTH)))
LABELS = torch.where(torch.from_numpy(RNG.random((N, LENGTH)) < 0.2), IGNORED, WORDS % CLASSES)
LABELS[1] = IGNORED  # an example without a label
TRAIN, TEST = slice(0, 40), slice(40, N)


class Words(nn.Module):
    """A word and its left neighbour give the logits, classes last or behind the examples."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        e = self.embedding(x)
        return self.head(torch.cat([e, e.roll(1, 1)], 2)).movedim(-1, self.axis)


def task(loss: Any = "tokens", *, labels: Tensor = LABELS, axis: int | None = None, **settings: Any) -> Any:
    place = axis if axis is not None else 1 if loss == "pixels" else -1
    sets = ((WORDS[part], labels[part]) for part in (TRAIN, TEST))
    return rc.Task.from_module(lambda: Words(place), *sets, loss=loss, **{"name": f"words-{place}", **settings})


def by_hand(logits: Array, labels: Array) -> Array:
    """log p of each example, [n], of logits [n, positions, classes]."""
    log_p = log_softmax(logits, axis=-1)
    return np.array(
        [
            sum(row[j, y] for j, y in enumerate(own) if y != IGNORED)
            for row, own in zip(log_p, labels.tolist(), strict=True)
        ]
    )


@pytest.mark.parametrize("shape", [(LENGTH,), (3, 2)], ids=str)
def test_log_p_of_an_example_is_the_sum_over_its_labels_in_both_orders(shape: tuple[int, ...]) -> None:
    logits = RNG.normal(size=(5, *shape, CLASSES))
    labels = RNG.integers(0, CLASSES, (5, *shape))
    labels[RNG.random(labels.shape) < 0.3] = IGNORED
    labels[2] = IGNORED
    expected = by_hand(logits.reshape(5, -1, CLASSES), labels.reshape(5, -1))
    assert expected[2] == 0
    f, y, none = torch.from_numpy(logits), torch.from_numpy(labels), nn.Identity()
    last, second = PerPosition(axis=-1), PerPosition(axis=1)
    assert float(last.loss(none, f, y)) == pytest.approx(-expected.mean(), abs=1e-9)
    assert float(second.loss(none, f.movedim(-1, 1), y)) == pytest.approx(-expected.mean(), abs=1e-9)
    for i in range(5):
        assert float(last.loss(none, f[i : i + 1], y[i : i + 1])) == pytest.approx(-expected[i], abs=1e-9)
    other = torch.where(y == IGNORED, 255, y).to(torch.uint8)  # another mark, in another dtype
    assert float(PerPosition(ignore_index=255).loss(none, f, other)) == pytest.approx(-expected.mean(), abs=1e-9)
    half = last.loss(none, f.bfloat16(), y)
    assert half.dtype == torch.float32 and float(half) == pytest.approx(-expected.mean(), rel=0.01)


def labels_per_position() -> tuple[Tensor, Tensor, Any, float, float]:
    """Inputs, targets and loss, and how often log p of the second and of the first class counts."""
    rng = np.random.default_rng(1)
    y = np.where(rng.random((40, 5)) < 0.3, IGNORED, rng.random((40, 5)) < 0.6)
    return torch.ones(40, 5, 1), torch.from_numpy(y.astype(np.int64)), "tokens", (y == 1).sum(), (y == 0).sum()


def weighted_classes() -> tuple[Tensor, Tensor, Any, float, float]:
    """log p of an example of class c counts w_c times, N is the number of examples."""
    return torch.ones(60, 1), (torch.arange(60) < 20).long(), Classes(weights=(0.5, 2.0)), 2.0 * 20, 0.5 * 40


@pytest.mark.parametrize(("data", "lr"), [(labels_per_position, 0.02), (weighted_classes, 0.05)])
def test_a_posterior_of_shared_logits_is_quadratures(data: Any, lr: float, tmp_path: Path) -> None:
    """Two logits, the same at all positions, with the prior N(0, 1): their difference is N(0, 2) a priori."""
    x, y, loss, right, wrong = data()
    made = rc.Task.from_module(lambda: nn.Linear(1, 2, bias=False), (x, y), loss=loss)
    result = settled(made, len(x), tmp_path, lr=lr, epochs=6000)
    logits = result.posterior().outputs(torch.ones_like(x[:1, :1]))[1].detach().double().numpy()
    grid = np.linspace(-6, 6, 6001)
    log_p = right * np.log(expit(grid)) + wrong * np.log(expit(-grid)) - grid**2 / 4
    assert_posterior((logits[..., 1] - logits[..., 0]).reshape(2, -1), grid, log_p)


def samples(axis: int, count: int = 3) -> list[dict[str, Tensor]]:
    torch.manual_seed(1)
    made = [Words(axis) for _ in range(count)]
    for one in made:
        one.head.weight.data *= 4
    return [one.state_dict() for one in made]


@pytest.mark.parametrize("weights", [None, [0.5, 0.2, 0.3]], ids=["equal", "weighted"])
@pytest.mark.parametrize("loss", ["tokens", "pixels"])
def test_a_predictive_is_the_mixture_by_hand(
    loss: str, weights: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = 4 * LENGTH * CLASSES
    monkeypatch.setattr(position_classification, "BLOCK", 6 * example)
    labels = LABELS.clone()
    labels[TEST][3] = IGNORED
    made = task(loss, labels=labels)
    split = made.splits()["test"]
    assert isinstance(split, Positions) and split.shards == 4 and split.per_shard == 6
    assert costs.predicted(made, "test") == 20 * example
    axis = 1 if loss == "pixels" else -1
    drawn = samples(axis)
    blocks = [[split.predict(s, shard) for shard in range(4)] for s in drawn]
    assert [b.shape for b in blocks[0]] == [(6, LENGTH, CLASSES)] * 3 + [(2, LENGTH, CLASSES)]
    parts = [split.reduce([b[shard] for b in blocks], shard, weights) for shard in range(4)]
    rows, w = gather(parts), np.array(weights or [1 / 3] * 3)

    network, logits = Words(axis), []
    for s in drawn:
        network.load_state_dict(s)
        logits.append(network(WORDS[TEST]).movedim(axis, -1).detach().double().numpy())
    y = labels[TEST].numpy()
    log_p = np.stack([by_hand(f, y) for f in logits])
    np.testing.assert_allclose(rows["log_p"], logsumexp(log_p, axis=0, b=w[:, None]), atol=1e-5)
    np.testing.assert_allclose(
        np.concatenate([split.log_likelihoods(blocks[0][k], k) for k in range(4)]), log_p[0], atol=1e-5
    )
    p = np.exp(np.stack([log_softmax(f, axis=-1) for f in logits]))
    mean = np.tensordot(w, p, 1)
    valid = y != IGNORED
    of_label = np.take_along_axis(mean, np.where(valid, y, 0)[..., None], 2)[..., 0]
    wrong = valid & (mean.argmax(-1) != y)
    squares = ((mean - np.eye(CLASSES)[np.where(valid, y, 0)]) ** 2).sum(-1) * valid
    number = valid.sum(1)
    entropy = (-(mean * np.log(mean)).sum(-1) * valid).sum(1) / np.maximum(number, 1)
    expected = (np.tensordot(w, -(p * np.log(p)).sum(-1), 1) * valid).sum(1) / np.maximum(number, 1)
    for name, values in {
        "labels": number, "wrong": wrong.sum(1), "brier_labels": squares.sum(1), "entropy": entropy,
        "expected_entropy": expected, "log_p_labels": (np.log(of_label) * valid).sum(1),
    }.items():  # fmt: skip
        np.testing.assert_allclose(rows[name], values, atol=1e-5, err_msg=name)
    assert rows["labels"][3] == rows["entropy"][3] == 0 and rows["log_p"][3] == pytest.approx(0, abs=1e-12)

    (found,) = split.summarise(parts)
    total = number.sum()
    right = {"confidence": mean.max(-1)[valid], "prediction": mean.argmax(-1)[valid], "label": y[valid]}
    assert found == pytest.approx(
        {
            "label_error": wrong.sum() / total,
            "nll": -rows["log_p"].mean(),
            "nll_label": -(np.log(of_label) * valid).sum() / total,
            "brier": squares.sum() / total,
            "ece": calibration_error.expected_error(calibration_error.equal_width(right, 15)),
            "mutual_information": (entropy - expected).mean(),
        },
        abs=1e-5,
    )
    assert set(found) == {metric.name for metric in split.metrics}
    (curve,) = split.curve(parts)
    assert curve["nll"][-1] == pytest.approx(found["nll"]) and curve["nll"][0] == pytest.approx(-log_p[0].mean())
    assert curve["label_error"][-1] == pytest.approx(found["label_error"])
    first = valid & (p[0].argmax(-1) != y)
    assert curve["label_error"][0] == pytest.approx(first.sum() / total)


def test_many_classes_are_kept_in_half_precision_and_networks_that_overflow_are_nan() -> None:
    y = torch.from_numpy(RNG.integers(0, 120, (8, 4)))
    made = rc.Task.from_module(lambda: nn.Linear(2, 120), (torch.randn(8, 4, 2), y), loss="tokens")
    split = made.splits()["train"]
    sample = {"weight": torch.randn(120, 2), "bias": torch.randn(120)}
    block = split.predict(sample, 0)
    assert block.dtype == np.float16 and costs.predicted(made, "train") == block.nbytes
    part = split.reduce([block, split.predict({**sample, "bias": sample["bias"] * np.inf}, 0)], 0)
    (found,) = split.summarise([part])
    assert all(np.isnan(value) for value in found.values())
    assert np.isfinite(split.curve([part])[0]["label_error"][0]) and np.isnan(split.curve([part])[0]["label_error"][1])


class Tagger(nn.Module):
    """A dict of words and their mask to logits of each word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        e = self.embedding(words) * mask[..., None]
        return self.head(torch.cat([e, F.pad(e, (0, 0, 1, 0))[:, :-1]], 2))


def padded(examples: list[tuple[Tensor, Tensor]]) -> tuple[dict[str, Tensor], Tensor]:
    """Sentences as a batch, which is as long as the longest of them."""
    words, labels = (list(parts) for parts in zip(*examples, strict=True))
    x = nn.utils.rnn.pad_sequence(words, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(w)) for w in words], batch_first=True)
    return {"words": x, "mask": mask}, nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORED)


LENGTHS = [2, 4, 7, 3, 1, 5]


def sentences(n: int) -> list[tuple[Tensor, Tensor]]:
    return [(WORDS[i, : LENGTHS[i % 6]], (WORDS[i] % CLASSES)[: LENGTHS[i % 6]]) for i in range(n)]


def test_sentences_are_padded_to_the_longest_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_classification, "BLOCK", 2 * 4 * 7 * CLASSES)
    made, streamed = (
        rc.Task.from_module(
            Tagger, sentences(36), sentences(6), loss="tokens", collate_fn=padded, name="tagger", resident=resident
        )
        for resident in (True, False)
    )
    assert made.labels_per_example == sum(LENGTHS) / 6
    split = made.splits()["test"]
    assert isinstance(split, Positions) and split.per_shard == 2
    torch.manual_seed(3)
    sample = Tagger().state_dict()
    blocks = [split.predict(sample, shard) for shard in range(split.shards)]
    assert [b.shape for b in blocks] == [(2, 4, 3), (2, 7, 3), (2, 5, 3)]
    whole = joined(blocks)
    assert whole.shape == (6, 7, 3)
    ours = gather([split.reduce([block], shard) for shard, block in enumerate(blocks)])
    cut = gather([split.reduce([whole[split.range_of(shard)]], shard) for shard in range(3)])
    for name, values in ours.items():
        np.testing.assert_array_equal(cut[name], values, err_msg=name)
    np.testing.assert_array_equal(llc.losses(split, whole), -ours["log_p"])
    assert ours["labels"].tolist() == LENGTHS
    settings: dict[str, Any] = {"sampler": "sghmc", "epochs": 8, "chains": 1, "backend": "process", "progress": False}
    result, other = (
        rc.run(task=one, **settings, store=str(tmp_path / where), name="a")
        for where, one in (("resident", made), ("streamed", streamed))
    )
    assert result.table(full=True)["nll"].tolist() == other.table(full=True)["nll"].tolist()
    x = padded(sentences(6))[0]
    p = result.predict(x)
    for i, sentence in enumerate(sentences(6)):  # padding is nothing to the others
        np.testing.assert_allclose(p[i, : LENGTHS[i]], result.predict(padded([sentence])[0])[0], atol=1e-6)
    exported(result, Tagger(), x, tmp_path / "e.safetensors")


def test_draws_of_labels_have_their_probabilities(results: dict[str, Any]) -> None:
    x = WORDS[:3]
    drawn = results["pixels"].predictive().draws(x, 4000)
    assert drawn.shape == (4000, 3, LENGTH)
    p = results["pixels"].predict(x)
    shares = np.stack([(drawn == c).mean(0) for c in range(CLASSES)], -1)
    assert (np.abs(shares - p) < 4.5 * np.sqrt(p * (1 - p) / 4000) + 1e-3).all()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("positions")


@pytest.fixture(scope="module")
def results(store: Path) -> dict[str, Any]:
    """Runs of the two orders, and of streamed examples, with equal settings."""
    made = {"tokens": task("tokens"), "pixels": task("pixels"), "streamed": task("tokens", resident=False)}
    return {
        name: rc.run(
            task=one, sampler="sghmc", schedule="constant", lr=0.01, epochs=12, thinning=8, chains=2, burn_in=4,
            batch_size=20, backend="process", progress=False, store=str(store / name), name=name,
        )
        for name, one in made.items()
    }  # fmt: skip


def test_both_orders_and_streamed_examples_give_the_same_numbers(results: dict[str, Any]) -> None:
    metrics = [metric.name for metric in Positions.metrics]
    tables = {name: result.table(full=True)[metrics].iloc[0] for name, result in results.items()}
    assert tables["tokens"].tolist() == tables["streamed"].tolist()
    np.testing.assert_allclose(tables["tokens"], tables["pixels"], rtol=1e-5)
    p = results["tokens"].predict(WORDS[TEST])
    assert p.shape == (20, LENGTH, CLASSES) and p.dtype == np.float64
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(results["pixels"].predict(WORDS[TEST]), p, atol=1e-5)
    rows = results["tokens"].store.table("rows").to_pandas()
    y = LABELS[TEST].numpy()
    wrong = (p.argmax(-1) != y) & (y != IGNORED)
    assert rows["wrong"].tolist() == wrong.sum(1).tolist() and rows["labels"].tolist() == (y != IGNORED).sum(1).tolist()
    digests = {name: set(result.comparison.chains()) for name, result in results.items()}
    assert digests["tokens"] == digests["streamed"] != digests["pixels"]


FRESH = """
import json, sys, torch
import raychains as rc
from tests.tasks.test_positions import WORDS, TEST, Words
posterior = rc.PosteriorPredictive.load(sys.argv[1], model=Words(int(sys.argv[2])))
print(json.dumps(posterior(WORDS[TEST]).probabilities.tolist()))
"""


@pytest.mark.parametrize(("loss", "axis"), [("tokens", -1), ("pixels", 1)])
def test_predictions_exports_and_answers_are_the_same_numbers(
    loss: str, axis: int, results: dict[str, Any], tmp_path: Path
) -> None:
    x, p = WORDS[TEST], results[loss].predict(WORDS[TEST])
    written, loaded = exported(results[loss], Words(axis), x, tmp_path / "whole.safetensors")
    number = file.describe(written.path)[file.KEY]
    assert number == (1 if axis == -1 else 2)  # one that knows of no axis must not read it
    paths = os.pathsep.join([str(Path(rc.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(written.path), str(axis)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    close(np.array(json.loads(done.stdout)), p)
    assert loaded.class_axis == axis and loaded.outputs(x)[1].shape[-1] == CLASSES
    answer = answered(loaded, x, level=0.9)
    assert answer["entropy"].shape == (20, LENGTH) and answer["intervals"].shape == (20, LENGTH, CLASSES, 2)
    body, _ = requests.encode(answer, len(loaded), "application/json")
    np.testing.assert_allclose(json.loads(body)["probabilities"], p, atol=1e-6)


def test_what_takes_too_much_memory_is_one_line(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_classification, "MOST_NUMBERS", 5 * LENGTH * CLASSES + 1)
    assert results["tokens"].predict(WORDS[:5]).shape == (5, LENGTH, CLASSES)
    with refused("x must have at most 5 inputs", "21 probabilities each", "got 6"):
        results["tokens"].predict(WORDS[:6])
    monkeypatch.setattr(requests, "NUMBERS", 1000)
    posterior = results["tokens"].posterior()
    few, many = requests.answer(posterior, [requests.Question(inputs=WORDS[:n]) for n in (5, 40)])
    assert not isinstance(few, requests.Refused)
    assert isinstance(many, requests.Refused) and many.status == 413
    assert str(many) == "inputs give 1,400 numbers, at most 1,000 in one answer: send 28 at once"
    monkeypatch.setattr(position_classification, "MOST_BYTES", 1000)
    with refused("a split must have at most", "20 examples of 7 positions and 3 classes", "evaluate on fewer examples"):
        task().splits()["test"]


def test_parts_of_a_call_give_the_whole(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    p = results["pixels"].predict(WORDS)
    monkeypatch.setattr(position_classification, "BLOCK", 4 * 7 * LENGTH * CLASSES)
    np.testing.assert_allclose(results["pixels"].predict(WORDS), p, atol=1e-7)


def test_measures_arviz_and_the_page_work_or_say_what_they_need(results: dict[str, Any]) -> None:
    result = results["tokens"]
    context = Context(
        store=result.store, comparison=result.comparison, split="test", task=task(), groups=[(0, 0)]
    )  # fmt: skip
    for one in (agreement.MEASURE, calibration_measure.MEASURE, ood.MEASURE):
        reason = one.why_not(context)
        assert reason is not None and "labels per position, and this needs one label per example" in reason
    assert "neither one label per example" in str(against.MEASURE.why_not(context))
    rows = result.store.table("rows").to_pandas()
    names = [metric.name for metric in Positions.metrics]
    found = bootstrap.intervals(
        {name: rows[name].to_numpy() for name in rows if rows[name].dtype != object}, names, bins=15
    )
    assert set(found) == {"nll", "mutual_information"}  # the others are ratios of sums
    assert found["nll"][0] < result.table(full=True)["nll"].iloc[0] < found["nll"][1]
    assert built_in_metrics(names) == Positions.metrics
    page = (Path(result.path) / "report.html").read_text(encoding="utf-8")
    assert "NLL of a label (nats)" in page
    pytest.importorskip("arviz_base")
    tree = result.to_arviz(parameters="head.bias", predict=True)
    log_p = tree["log_likelihood"]["log_p"].to_numpy().reshape(-1, 20)
    np.testing.assert_allclose(logsumexp(log_p, axis=0) - np.log(len(log_p)), rows["log_p"], atol=1e-5)
    assert "norm" in result.to_arviz()["posterior"]


@pytest.mark.long
def test_a_run_is_evaluated_further(ray_session: None, results: dict[str, Any]) -> None:
    result = rc.evaluate(
        results["tokens"].path, measures=["diagnostics", "diversity"], views=["chains"], task=task(), progress=False
    )
    assert result.store.table("diagnostics").num_rows > 0
    views = result.store.table("views").to_pandas()
    assert views["nll_low"][0] < views["nll"][0] and "label_error_low" not in set(views)
    with refused("labels per position", "one label per example"):
        rc.evaluate(results["tokens"].path, measures=["calibration"], task=task(), progress=False)


def test_the_learning_coefficient_of_labels_per_position(tmp_path: Path) -> None:
    model = Words(-1)
    result = rc.local(
        model, (WORDS[TRAIN], LABELS[TRAIN]), loss="tokens", gamma=1.0, epochs=40, chains=2, backend="process",
        progress=False, store=str(tmp_path),
    )  # fmt: skip
    start = float(PerPosition().loss(model, model(WORDS[TRAIN]).detach(), LABELS[TRAIN]))
    table = result.store.table("llc").to_pandas()
    assert table["start_loss"].iloc[0] == pytest.approx(start, rel=1e-5)


@pytest.mark.parametrize("loss", ["tokens", "pixels"])
def test_a_part_is_held_out_and_a_fit_chooses_by_it(loss: str, tmp_path: Path) -> None:
    made = task(loss)
    assert len(made.holding_out(0.25).splits()["val"].labels(0)) == 10
    result = rc.fit(
        task=made, budget=130, folds=1, reference=True, backend="process", progress=False, store=str(tmp_path)
    )
    p = result.predict(WORDS[TEST])
    y = LABELS[TEST].numpy()
    assert ((p.argmax(-1) != y) & (y != IGNORED)).sum() / (y != IGNORED).sum() < 0.3  # a word is its class
    assert "laplace" not in set(result.choice["candidate"])
    assert {"nll"} == set(result.store.table("reference").to_pandas()["metric"])


# Default steps


def test_default_steps_that_grow_with_the_gradient_are_divided_by_the_labels_of_an_example() -> None:
    made = task()
    labels = float((LABELS[TRAIN] != IGNORED).sum()) / 40
    assert made.labels_per_example == labels == task(val_split=0.25).labels_per_example
    found, plain = defaults_of(made).lr, defaults_of(classes()).lr
    for at, lr in plain.items():
        same = at[1] in ("psgld", "mclmc", "entropy-sgd", "entropy-sgld")
        assert found[at] == pytest.approx(lr if same else lr / labels), at
    assert found["cyclical", "sghmc"] == pytest.approx(0.05 / labels)
    spec = methods.resolve(Run(task="own"), task=made, sampler="adamw", schedule="linear").spec
    alone = methods.resolve(Run(task="own"), task=classes(), sampler="adamw", schedule="linear").spec
    assert spec.schedule == alone.schedule or spec.schedule.settings["lr"] == alone.schedule.settings["lr"]
    stated = defaults_of(task(defaults={"sampler": "sghmc", "lr": 0.01})).lr
    assert stated["cyclical", "sghmc"] == 0.01 and stated["cyclical", "sgld"] == pytest.approx(0.1)


def test_csghmc_by_its_defaults_does_not_diverge_on_256_labels_of_an_example(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(96, 1, 16, 16)
    y = (F.avg_pool2d(x, 3, 1, 1)[:, 0] > 0).long()

    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))

    made = rc.Task.from_module(network, (x[:64], y[:64]), (x[64:], y[64:]), loss="pixels")
    result = rc.run(task=made, sampler="csghmc", backend="process", progress=False, store=str(tmp_path), pack="auto")
    assert not result.failed
    assert result.table(full=True)["label_error"].iloc[0] < 0.45


# Class weights

WEIGHTS = [0.4, 1.0, 1.9]


def test_a_label_per_position_is_not_packed() -> None:
    assert task_refusal(task()) == "its likelihood gives the loss of a batch alone"


def classes(loss: Any = "cross_entropy", **settings: Any) -> Any:
    y = WORDS[:, 0] % CLASSES
    x = F.one_hot(WORDS, 5).flatten(1).float()
    sets = ((x[part], y[part]) for part in (TRAIN, TEST))
    return rc.Task.from_module(lambda: nn.Linear(35, CLASSES), *sets, loss=loss, **settings)


def test_class_weights_multiply_each_examples_log_p() -> None:
    f, y = torch.from_numpy(RNG.normal(size=(12, CLASSES))), torch.from_numpy(RNG.integers(0, CLASSES, 12))
    w, none = torch.tensor(WEIGHTS, dtype=torch.float64), nn.Identity()
    expected = F.cross_entropy(f, y, reduction="none") * w[y]
    weighted = Classes(weights=WEIGHTS)
    torch.testing.assert_close(weighted.loss(none, f, y), expected.mean())
    each = weighted.each({}, torch.stack([f, f.flip(0)]), torch.stack([y, y.flip(0)]))
    torch.testing.assert_close(each, torch.stack([expected, expected.flip(0)]))
    assert float(weighted.loss(none, f.float(), y)) == pytest.approx(float(expected.mean()), rel=1e-6)
    torch.testing.assert_close(Classes().loss(none, f, y), F.cross_entropy(f, y))
    assert Classes().name == "cross_entropy" and weighted.name == "cross_entropy, weights [0.4, 1.0, 1.9]"
    assert classes(Classes()).fingerprint == classes().fingerprint != classes(weighted).fingerprint


def test_class_weights_are_packed_and_not_measured(tmp_path: Path) -> None:
    weighted = classes(Classes(weights=np.array(WEIGHTS)))
    settings: dict[str, Any] = {"sampler": "sghmc", "epochs": 4, "chains": 2, "backend": "process", "progress": False}
    packed, alone = (
        rc.run(task=weighted, **settings, store=str(tmp_path / pack), pack=pack) for pack in ("auto", "none")
    )
    assert all(spec.pack for spec in packed.comparison.chains().values())
    np.testing.assert_allclose(
        packed.predict(weighted.splits()["test"].inputs[:]),
        alone.predict(weighted.splits()["test"].inputs[:]),
        atol=1e-4,
    )
    sample = {"weight": torch.randn(CLASSES, 35), "bias": torch.zeros(CLASSES)}
    plain, other = (t.splits()["test"] for t in (classes(), weighted))
    blocks = [split.predict(sample, 0) for split in (plain, other)]
    assert plain.summarise([plain.reduce([blocks[0]], 0)]) == other.summarise([other.reduce([blocks[1]], 0)])
    context = Context(
        store=packed.store, comparison=packed.comparison, split="train", task=weighted, groups=[(0, 0)]
    )  # fmt: skip
    for why in (llc.MEASURE.why_not(context), measure.class_weights(context)):
        assert why is not None and "class weights" in why
    with refused("laplace", "Fisher"):
        rc.run(task=weighted, **{**settings, "sampler": "laplace"}, store=str(tmp_path / "laplace"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: task(labels=LABELS.float()), ("integer labels", "float32")),
        (lambda: task(labels=LABELS[:, :5]), ("a loss of labels per position", "[4, 7, 3]", "[4, 5]")),
        (lambda: task("pixels", axis=-1), ("[n, classes, positions …]", "[4, 7, 3]")),
        (lambda: task(labels=LABELS.clamp(max=1) + 2), ("train_set must have labels in [0, 2] or -100", "got -98")),
        (lambda: task(labels=torch.where(LABELS == 2, 3, LABELS)), ("in [0, 2] or -100", "3 outputs", "got 3")),
        (lambda: task(labels=torch.full_like(LABELS, IGNORED)), ("train_set must have a label somewhere", "-100")),
        (lambda: PerPosition(axis=2), ("axis must be -1 or 1", "2")),
        (lambda: PerPosition(ignore_index=0.5), ("ignore_index must be an integer", "0.5")),
        (lambda: task("token"), ("loss must be", "did you mean 'tokens'?")),
        (lambda: task(noise=1.0), ("noise must be left out",)),
        (lambda: classes(Classes(weights=[1.0, 2.0])), ("weights must be one for each class, 3", "got 2")),
        (lambda: Classes(weights=[1.0, -1.0]), ("weights must be a list of a finite number of at least 0",)),
        (lambda: Classes(weights=[0.0, 0.0]), ("weights must be", "not all 0")),
        (lambda: Classes(weights=2.0), ("weights must be a list", "2.0")),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(make: Any, words: tuple[str, ...]) -> None:
    with refused(*words):
        make()


def test_the_names_of_losses_are_orders() -> None:
    for name, axis in likelihoods.AXES.items():
        made = likelihoods.likelihood(name, None)
        assert isinstance(made, PerPosition) and made.axis == axis and made.ignore_index == IGNORED
    assert task(PerPosition()).fingerprint == task("tokens").fingerprint


class Listed(Dataset[tuple[Tensor, Tensor]]):
    """A data set that states its identity and is therefore not read for a hash."""

    fingerprint = "words"

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return WORDS[i], LABELS[i]


def test_a_streamed_set_of_unread_labels_has_a_part_held_out_too() -> None:
    made = rc.Task.from_module(lambda: Words(-1), Listed(), loss="tokens", resident=False, val_split=0.25)
    assert (
        made.num_data == 30 and made.labels_per_example == (LABELS[varied(torch.zeros(40), 16)] != IGNORED).sum() / 16
    )
    split = made.splits()["val"]
    assert split.predict(samples(-1, 1)[0], 0).shape == (10, LENGTH, CLASSES) and split.labels(0).shape == (10, LENGTH)


@pytest.mark.long
def test_a_masked_language_model_with_tied_weights_is_sampled_as_it_is(tmp_path: Path) -> None:
    """Its decoder is its embedding: one parameter of two names, in samples, predictions and files."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, tie_word_embeddings=True,
    )  # fmt: skip
    streams = torch.Generator().manual_seed(0)
    words = torch.randint(3, 20, (200, 1), generator=streams) + torch.arange(8)  # each word follows from its neighbours
    words = 3 + (words - 3) % 17
    hidden = torch.rand(200, 8, generator=streams) < 0.25
    data = {"input_ids": words.masked_fill(hidden, 1), "labels": words.masked_fill(~hidden, -100)}
    data["attention_mask"] = torch.ones_like(words)
    train, test = ({name: t[at] for name, t in data.items()} for at in (slice(180), slice(180, 200)))
    task = rc.Task.from_module(lambda: BertForMaskedLM(config), train, test, loss="tokens", name="masked")
    model = task.build_model(seed=0, lanes=1)
    tied = model.get_parameter("cls.predictions.decoder.weight")
    assert tied is model.get_parameter("bert.embeddings.word_embeddings.weight")
    result = rc.run(
        task=task, epochs=200, chains=2, backend="process", progress=False, store=str(tmp_path), name="masked"
    )
    p = result.predict(test)
    assert p.shape == (20, 8, 20)
    path = result.export(str(tmp_path / "masked")).path
    loaded = rc.PosteriorPredictive.load(path, model=BertForMaskedLM(config))
    inputs = {name: t for name, t in test.items() if name != "labels"}
    np.testing.assert_allclose(loaded(inputs).probabilities.detach().numpy(), p, atol=1e-6)
    assert result.table(full=True)["nll_label"].iloc[0] < np.log(17)  # better than any word
