"""Inputs of several tensors: dicts and tuples end to end, Hugging Face's outputs, sequences of unequal length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import raychains as rc
from raychains.chain import packable, precision
from raychains.core import tree
from raychains.inference import file, model_card, requests
from raychains.inference.requests import Accepted, InputForm, Refused
from raychains.models.batchnorm import reestimate
from tests.checks import refused
from tests.tasks.predictives import exported
from tests.tasks.test_module import LABELS, TEST, TRAIN, Listed, X, classify, samples_of

CLASSES, WORDS = 2, 12


class Sums(nn.Module):
    """Scores of the sum of two halves, which are arguments of two names."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, CLASSES))

    def forward(self, a: Any, b: Any = 0, c: Any = None) -> Any:
        return self.layers(a + b + (0 if c is None else c[0]["d"]))


class Named(Sums):
    """What it returns is no tensor."""

    def forward(self, a: Any, b: Any = 0, c: Any = None) -> Any:
        return SimpleNamespace(hidden=a, logits=super().forward(a, b, c))


class Keyed(Sums):
    def forward(self, a: Any, b: Any = 0, c: Any = None) -> Any:
        return {"loss": None, "scores": super().forward(a, b, c)}


class Second(Sums):
    def forward(self, a: Any, b: Any = 0, c: Any = None) -> Any:
        return a, super().forward(a, b, c)


HALF = X / 2  # exactly half, so that sums have the bits of the whole
NESTED = {"a": HALF, "b": X * 0, "c": ({"d": HALF},)}


def both(inputs: Any, **settings: Any) -> Any:
    sets = {name: (tree.at(inputs, at), LABELS[at]) for name, at in (("train_set", TRAIN), ("test_set", TEST))}
    return classify(**{"model_fn": Sums, **sets, **settings})


def stack(items: list[Any]) -> tuple[Any, Tensor]:
    return {"a": torch.stack([torch.from_numpy(x) for x, _ in items])}, torch.tensor([y for _, y in items])


def as_labels(task: Any = None, **settings: Any) -> Any:
    """Dicts with ``labels``, as a whole and one by one."""
    whole = {"a": HALF[TRAIN].numpy(), "b": HALF[TRAIN], "labels": LABELS[TRAIN]}
    each = [{"a": HALF[i], "b": HALF[i].tolist(), "labels": int(LABELS[i])} for i in range(40, 60)]
    return classify(model_fn=Sums, train_set=whole, test_set=each, **settings)


def collated(**settings: Any) -> Any:
    lists = {name: Listed(X[at], LABELS[at]) for name, at in (("train_set", TRAIN), ("test_set", TEST))}
    return classify(model_fn=Sums, **lists, collate_fn=stack, **settings)


KEPT: dict[str, Callable[..., Any]] = {
    "dict": lambda **s: both({"a": HALF, "b": HALF}, **s),
    "tuple": lambda **s: both((HALF, HALF), **s),
    "nest": lambda **s: both(NESTED, **s),
    "dicts with labels": as_labels,
    "collated": collated,
    "collated and streamed": lambda **s: collated(resident=False, **s),
    "logits": lambda **s: both(X, model_fn=Named, **s),
    "key": lambda **s: both({"a": X}, model_fn=Keyed, output="scores", **s),
    "position": lambda **s: both((X,), model_fn=Second, output=1, **s),
}


@pytest.mark.parametrize("kind", KEPT)
def test_a_chain_has_the_bytes_of_one_of_a_single_tensor(kind: str) -> None:
    """With and without micro-batches; so do predictions of both splits."""
    single, task = both(X), KEPT[kind]()
    assert samples_of(task) == samples_of(single) and samples_of(task, micro_batch=3) == samples_of(
        single, micro_batch=3
    )
    assert task.streamed is (kind == "collated and streamed")
    sample = single.build_model(seed=3, lanes=1).state_dict()
    for split in ("test", "train"):
        found, expected = (t.splits()[split].predict(sample, 0) for t in (task, single))
        assert np.array_equal(found, expected)
    why = packable.task_refusal(task)
    assert why is not None and ("several tensors" in why or "hooks" in why or "streamed" in why)


def test_identities_see_names_values_and_outputs() -> None:
    tasks = [
        both(X),
        both({"a": X}),
        both({"b": X, "a": X * 0}),
        both((X,)),
        both({"a": X}, model_fn=Second, output=1),
        both({"a": X}, model_fn=Second, output=-1),
        padded(),
        padded(side="left"),
    ]
    assert len({t.fingerprint for t in tasks}) == len(tasks)
    assert collated().fingerprint == both({"a": X}).fingerprint  # the same batches
    assert (
        both((X,)).fingerprint == both((X.clone(),)).fingerprint
        and padded().fingerprint == padded(resident=False).fingerprint
    )


# Sequences of unequal length


class Attention(nn.Module):
    """A head of attention over words, whose padding is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        h = self.words(ids)
        h, _ = self.attention(h, h, h, key_padding_mask=~mask, need_weights=False)
        weights = mask[..., None].to(h.dtype)
        return SimpleNamespace(logits=self.out((h * weights).sum(1) / weights.sum(1)))


FORM = {"ids": InputForm(shape=(None,), dtype="int64"), "mask": InputForm(shape=(None,), dtype="bool")}


def sentences() -> list[tuple[Tensor, int]]:
    streams = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 9, (60,), generator=streams).tolist()
    return [(torch.randint(5 * (i % 2), WORDS, (n,), generator=streams), i % 2) for i, n in enumerate(lengths)]


def batch_of(items: list[Any], length: int = 0, side: str = "right") -> dict[str, Tensor]:
    """A collate_fn: as long as the longest, or longer."""
    length = max(length, *(len(words) for words, _ in items))
    ids, mask = torch.zeros(len(items), length, dtype=torch.int64), torch.zeros(len(items), length, dtype=torch.bool)
    for row, (words, _) in enumerate(items):
        at = slice(len(words)) if side == "right" else slice(length - len(words), length)
        ids[row, at], mask[row, at] = words, True
    return {"ids": ids, "mask": mask, "labels": torch.tensor([y for _, y in items])}


def padded(side: str = "right", length: int = 0, **settings: Any) -> Any:
    data = sentences()
    sets = {"train_set": data[TRAIN], "test_set": data[TEST]}
    return classify(
        **{"model_fn": Attention, **sets, "collate_fn": lambda items: batch_of(items, length, side), **settings}
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp64", 1e-12)])
def test_padding_changes_nothing_but_rounding(precision: str, tolerance: float) -> None:
    """To the longest of a batch, further, and on the left: losses, gradients and predictions."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    found = []
    for task in (padded(), padded(length=30), padded(side="left")):
        model = task.build_model(seed=0, lanes=1).to(dtype)
        loss = task.loss(model, torch.arange(15), torch.Generator())
        loss.backward()
        block = task.splits()["test"].predict(task.build_model(seed=0, lanes=1).state_dict(), 0)
        found.append(
            (loss.detach(), torch.cat([p.grad.flatten() for p in model.parameters()]), torch.from_numpy(block))
        )
    for loss, gradient, block in found[1:]:
        assert (loss - found[0][0]).abs() <= tolerance
        assert (gradient - found[0][1]).abs().max() <= tolerance
        assert (block - found[0][2]).abs().max() <= 1e-5


def test_results_predictions_exports_and_answers_of_sequences_are_the_same_numbers(tmp_path: Path) -> None:
    task = padded()
    settings: dict[str, Any] = {"epochs": 10, "backend": "process", "progress": False, "store": str(tmp_path)}
    result = rc.run(task=task, chains=2, name="words", **settings)
    streamed = rc.run(task=padded(resident=False), chains=2, name="streamed", **settings)
    assert streamed.comparison.chains().keys() == result.comparison.chains().keys()
    batch = batch_of(sentences()[TEST])
    x = {name: t for name, t in batch.items() if name != "labels"}
    p = result.predict(batch)  # labels are left out
    np.testing.assert_array_equal(p, result.predict({name: t.numpy() for name, t in x.items()}))
    shares = (result.predictive().draws(batch, 2000) == 1).mean(0)[:, 0]
    assert (np.abs(shares - p[:, 1]) < 4.5 * np.sqrt(p[:, 1] * (1 - p[:, 1]) / 2000) + 1e-3).all()
    nll = -np.log(p[np.arange(20), batch["labels"]]).mean()
    assert nll == pytest.approx(result.table(full=True)["nll"].iloc[0], abs=1e-6)
    written, loaded = exported(result, Attention(), x, tmp_path / "words.safetensors")
    assert InputForm.of(json.loads(json.dumps(file.describe(written.path)))["input"]) == FORM
    accepted = Accepted(kind="classification", form=FORM, images=False, rows=20)
    body = {"inputs": {"ids": x["ids"].tolist(), "mask": x["mask"].int().tolist()}}
    question = requests.parse(json.dumps(body).encode(), requests.JSON, {}, accepted)
    short = {"inputs": {name: [rows[0][:3]] for name, rows in body["inputs"].items()}}
    other = requests.parse(json.dumps(short).encode(), requests.JSON, {}, accepted)
    answer, second = requests.answer(loaded, [question, other])
    assert not isinstance(answer, Refused) and not isinstance(second, Refused)
    np.testing.assert_allclose(answer["probabilities"], p, atol=1e-6)
    assert second["probabilities"].shape == (1, CLASSES)
    card = model_card.card({"task": "words", "kind": "classification"}, accepted, "http://h/")
    assert card["input"]["ids"] == {"shape": ["n", "any"], "dtypes": ["int64"]}
    asked = card["example"].split("-d '")[1].rstrip("'")
    assert not isinstance(
        requests.answer(loaded, [requests.parse(asked.encode(), requests.JSON, {}, accepted)])[0], Refused
    )
    assert "ids [n, any], int64; mask" in model_card.page(card)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ({"ids": torch.ones(4, 3).long(), "mask": torch.ones(1, 3).bool()}, "as many examples in each of its arrays, "
                                                                            "got 4 in x['ids'], 1 in x['mask']"),
        ({"ids": torch.ones(4, 3).long()}, "(the task's are ['ids'] int64 [1, "),
        ([torch.ones(3), torch.ones(2)], "or a dict or a tuple of them, got a list of Tensors"),
    ],
)  # fmt: skip
def test_inputs_of_another_tree_are_refused(x: Any, words: str, predicting: rc.Result) -> None:
    with pytest.raises(rc.UserError) as caught:
        predicting.predict(x)
    assert words in str(caught.value)
    if isinstance(x, dict):
        with pytest.raises(rc.UserError, match="x must"):
            predicting.posterior()(x)


@pytest.fixture(scope="module")
def predicting(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    store = str(tmp_path_factory.mktemp("words"))
    return rc.run(task=padded(), epochs=10, chains=1, backend="process", progress=False, store=store)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": [[1, 2]]}, "inputs must be an object with 'ids' and 'mask'"),
        ({"inputs": {"ids": [[1, 2]]}}, "inputs must be an object with 'ids' and 'mask'"),
        ({"inputs": {"ids": [[1, 2]], "mask": [[1, 1], [1, 1]]}}, "got 1 in inputs['ids'], 2 in inputs['mask']"),
        ({"inputs": {"ids": [[1.5, 2]], "mask": [[1, 1]]}}, "inputs['ids'] must be whole numbers in"),
        ({"inputs": {"ids": [1, 2], "mask": [[1, 1], [1, 0]]}}, "inputs['ids'] must have the shape [n, any], got [2]"),
    ],
)
def test_a_body_of_another_tree_is_refused(body: Any, words: str) -> None:
    accepted = Accepted(kind="classification", form=FORM, images=False, rows=4)
    with pytest.raises(Refused) as caught:
        requests.parse(json.dumps(body).encode(), requests.JSON, {}, accepted)
    assert words in str(caught.value) and caught.value.status == 400
    with pytest.raises(Refused, match="they are several arrays"):
        requests.parse(b"\x93NUMPY", requests.NPY[0], {}, accepted)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        out: Tensor = self.out(self.norm(a + b))
        return out


@pytest.mark.parametrize("inputs", [{"a": HALF, "b": HALF}, (HALF, HALF)])
def test_batchnorm_is_estimated_from_inputs_of_several_tensors(inputs: Any) -> None:
    model = both(inputs, model_fn=Normed).build_model(seed=0, lanes=1)
    reestimate(model, [inputs])
    torch.testing.assert_close(model.norm.running_mean, X.mean(0))


class Reading(Attention):
    """It reads the padding."""

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        return self.out(self.words(ids).mean(1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train_set": ({"a": X, "b": X[:5]}, LABELS)}, ("as many inputs as targets", "5 inputs")),
        ({"train_set": ({"a": X, "e": X}, LABELS)}, ("model_fn: the model fails", "unexpected keyword argument 'e'")),
        ({"model_fn": Keyed}, ("a dict, has no 'logits'", "output=")),
        ({"model_fn": Second, "output": 7}, ("a tuple, has no 7", "output=")),
        ({"output": 1.5}, ("output must be a name or a position", "1.5")),
        ({"train_set": (X, (LABELS, LABELS))}, ("a tuple as targets", "torch.stack([a, b], 1)")),
        ({"train_set": [(X[0], X[1], 0)] * 9}, ("a tuple of 3", "((a, b), target)")),
        ({"train_set": [{"a": X[0], "label": 0}] * 9}, ("dicts with 'labels'", "a dict of 'a', 'label'")),
        (
            {"train_set": sentences(), "collate_fn": batch_of, "model_fn": Reading},
            ("outputs for an example do not depend on its padding", "mask what collate_fn pads"),
        ),
        ({"collate_fn": stack}, ("collate_fn must be left out", "train_set holds its examples as tensors")),
        ({"train_set": sentences(), "collate_fn": 3}, ("collate_fn must be a function", "3")),
        ({"train_set": sentences()}, ("train_set must give inputs of one shape", "collate_fn")),
        ({"train_set": sentences(), "collate_fn": lambda items: items[7]}, ("collate_fn failed on", "IndexError")),
        (
            {
                "train_set": sentences(),
                "collate_fn": lambda items: {"ids": items[0][0][None], "labels": torch.zeros(1)},
            },
            ("collate_fn must give tensors [n, …] for n examples", "inputs['ids']"),
        ),
    ],
)
def test_a_mistake_is_one_line(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        classify(**{"model_fn": Sums, "test_set": None, **settings})


def test_a_recorded_gradient_needs_one_shape() -> None:
    spec: Any = SimpleNamespace(precision="fp32", compile="cuda-graphs", pack=0, sample_only=())
    with refused("compile must be none or default", "collate_fn makes batches of several shapes"):
        precision.check_task(spec, padded())
