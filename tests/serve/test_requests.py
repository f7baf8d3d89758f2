"""Bodies become checked inputs or one line; answers are what the ensemble says, with intervals and quantiles from the
formulas."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from raychains.inference import PosteriorPredictive
from raychains.inference.requests import Accepted, InputForm, Question, Refused, answer, encode, parse
from tests.serve.client import JSON, NPY, npy, regression

DIGITS = Accepted(kind="classification", form=InputForm(shape=(3,), dtype="float32"), images=False, rows=4)
IMAGES = Accepted(kind="classification", form=InputForm(shape=(1, 2, 2), dtype="uint8"), images=True, rows=4)
TOKENS = Accepted(kind="classification", form=InputForm(shape=(2,), dtype="int64"), images=False, rows=4)
UNKNOWN = Accepted(kind="classification", form=None, images=False, rows=4)
LINE = Accepted(kind="regression", form=InputForm(shape=(3,), dtype="float32"), images=False, rows=4)
GOOD = [[1, 2.5, -3]]


def body(**fields: Any) -> bytes:
    return json.dumps({"inputs": GOOD, **fields}).encode()


def parsed(data: bytes, accepted: Accepted = DIGITS, kind: str = JSON, **options: str) -> Question:
    return parse(data, kind, options, accepted)


# What is taken


def test_inputs_are_tensors_of_the_dtype_that_the_task_stores() -> None:
    found = parsed(body())
    assert found.inputs.dtype == torch.float32 and found.inputs.tolist() == GOOD
    assert parsed(body(inputs=[[1, 2]]), TOKENS).inputs.dtype == torch.int64
    assert parsed(body(inputs=[[[[0, 255], [1, 2]]]], dtype="uint8"), IMAGES).inputs.dtype == torch.uint8
    assert parsed(body(inputs=[[[[0, 1], [1, 2]]]], dtype="float32"), IMAGES).inputs.dtype == torch.float32
    assert parsed(body(inputs=[[[[0.5, 1], [1, 2]]]]), IMAGES).inputs.dtype == torch.float32
    assert parsed(body(), kind="application/json; charset=utf-8").level is None
    assert parsed(body(), kind="").inputs.shape == (1, 3)
    assert parsed(body(inputs=[1, 2]), UNKNOWN).inputs.shape == (2,)


@pytest.mark.parametrize("dtype", ["float64", ">f4", "float16", "float32"])
def test_a_raw_array_is_the_same_inputs(dtype: str) -> None:
    for order in "CF":
        array = np.asarray(GOOD * 2, dtype, order=order)  # type: ignore[call-overload]
        assert parsed(npy(array), kind=NPY).inputs.tolist() == GOOD * 2
    assert parsed(npy(np.zeros((2, 1, 2, 2), np.uint8)), IMAGES, NPY).inputs.dtype == torch.uint8
    assert parsed(npy(np.zeros((2, 2), ">i4")), TOKENS, NPY).inputs.dtype == torch.int64
    assert parsed(npy(np.zeros((2, 2), np.uint16)), TOKENS, "application/x-npy").inputs.dtype == torch.int64


def test_intervals_and_quantiles_are_asked_for_in_the_body_or_beside_a_raw_array() -> None:
    assert parsed(body(intervals=0.9)).level == 0.9
    assert parsed(body(quantiles=[0.05, 0.5]), LINE).quantiles == (0.05, 0.5)
    raw = npy(np.asarray(GOOD))
    assert parsed(raw, kind=NPY, intervals="0.9").level == 0.9
    assert parsed(raw, LINE, NPY, quantiles="0.05,0.5").quantiles == (0.05, 0.5)


# What is refused


def lying(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """A .npy file whose header promises more than there is."""
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


NUMBERS = "inputs must be numbers of at most 64 bits"
NESTED = f"{NUMBERS}, in lists of equal lengths"
SINGLE = "inputs must be finite numbers that single precision holds"
WHOLE = "body must be a whole .npy file, got one of another length than its header says"
NOT_NPY = "body must be a .npy file, as numpy.save writes it"
QUANTILES = "quantiles must be 1 to 100 numbers in [1e-06, 1 − 1e-06]"
REFUSED: list[tuple[bytes, str, Accepted, int, str]] = [
    (b"", JSON, DIGITS, 400, "body must be JSON: Expecting value: line 1 column 1 (char 0)"),
    (b"\xff\xfe", JSON, DIGITS, 400,
     "body must be JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    (b"[" * 100_000, JSON, DIGITS, 400, "body must be JSON, got lists nested too deeply"),
    (b'{"inputs": [[1, 2, NaN]]}', JSON, DIGITS, 400, "body must be JSON: NaN is no number"),
    (b'{"inputs": [[1, 2, -Infinity]]}', JSON, DIGITS, 400, "body must be JSON: -Infinity is no number"),
    (b"[[1, 2, 3]]", JSON, DIGITS, 400, "body must be an object with the field 'inputs', got a list"),
    (b"null", JSON, DIGITS, 400, "body must be an object with the field 'inputs', got null"),
    (b"{}", JSON, DIGITS, 400, "body must have the field 'inputs', a list with one entry for each input"),
    (body(interval=0.9), JSON, DIGITS, 400, "unknown field 'interval': there are inputs, dtype, intervals, quantiles"),
    (body(inputs="x"), JSON, DIGITS, 400, "inputs must be a list with one entry for each input, got a text"),
    (body(inputs=[[1, 2, 3], [1]]), JSON, DIGITS, 400, "inputs must be lists of equal lengths"),
    (body(inputs=[[1, 2, "3"]]), JSON, DIGITS, 400, NESTED),
    (body(inputs=[[True, False, True]]), JSON, DIGITS, 400, NESTED),
    (body(inputs=[[10**30, 1, 1]]), JSON, DIGITS, 400, NESTED),
    (body(inputs=[]), JSON, DIGITS, 400, "inputs must hold at least one input, got the shape [0]"),
    (body(inputs=[[]]), JSON, DIGITS, 400, "inputs must hold at least one input, got the shape [1, 0]"),
    (body(inputs=GOOD * 5), JSON, DIGITS, 413, "inputs must be at most 4 in one request, got 5"),
    (body(inputs=[[1, 2]]), JSON, DIGITS, 400, "inputs must have the shape [n, 3], got [1, 2]"),
    (body(inputs=[[1, 2, 1e39]]), JSON, DIGITS, 400, SINGLE),
    (b'{"inputs": [[1, 2, 1e999]]}', JSON, DIGITS, 400, SINGLE),
    (body(dtype="int64"), JSON, DIGITS, 400,
     f"inputs must be whole numbers in [{-2**63}, {2**63 - 1}] for the dtype int64"),
    (body(dtype="float64"), JSON, DIGITS, 400, "dtype must be one of float32, uint8, int64, got 'float64'"),
    (body(inputs=[[[[0, 256], [1, 2]]]], dtype="uint8"), JSON, IMAGES, 400,
     "inputs must be whole numbers in [0, 255] for the dtype uint8"),
    (body(inputs=[[[[0, 25], [1, 2]]]]), JSON, IMAGES, 400,
     'dtype must be given for whole numbers: "uint8" for images as they are stored, or "float32" for prepared ones'),
    (body(inputs=[[0.5, 1]], dtype="float32"), JSON, TOKENS, 400, "inputs must be int64, got float64"),
    (body(intervals=1), JSON, DIGITS, 400, "intervals must be a probability between 0 and 1, as in 0.9, got 1"),
    (body(intervals=[0.9]), JSON, DIGITS, 400, "intervals must be a probability between 0 and 1, as in 0.9, got [0.9]"),
    (body(quantiles=[0.5]), JSON, DIGITS, 400, "quantiles must be left out for a classification: ask for intervals"),
    (body(intervals=0.9), JSON, LINE, 400, "intervals must be left out for a regression: ask for quantiles"),
    (body(quantiles=[0.5, 1]), JSON, LINE, 400, f"{QUANTILES}, got [0.5, 1]"),
    (body(quantiles=[]), JSON, LINE, 400, f"{QUANTILES}, got []"),
    (body(), "text/plain", DIGITS, 415,
     "Content-Type must be application/json, or application/octet-stream for a .npy file, got 'text/plain'"),
    (body(), NPY, DIGITS, 400, NOT_NPY),
    (b"PK\x03\x04", NPY, DIGITS, 400, NOT_NPY),
    (npy(np.asarray(GOOD))[:-1], NPY, DIGITS, 400, WHOLE),
    (npy(np.asarray(GOOD)) + b"x", NPY, DIGITS, 400, WHOLE),
    (lying((10**15, 3)), NPY, DIGITS, 400, WHOLE),
    (lying((-1, -3)), NPY, DIGITS, 400, WHOLE),
    (npy(np.array([{}], object), allow_pickle=True), NPY, DIGITS, 400, f"{NUMBERS}, got an array of 'object'"),
    (npy(np.zeros((1, 3), complex)), NPY, DIGITS, 400, f"{NUMBERS}, got an array of 'complex128'"),
    (npy(np.zeros((1, 3), "f4,f4")), NPY, DIGITS, 400,
     f"{NUMBERS}, got an array of \"[('f0', '<f4'), ('f1', '<f4')]\""),
    (npy(np.zeros((1, 3), bool)), NPY, DIGITS, 400, f"{NUMBERS}, got an array of 'bool'"),
    (npy(np.zeros((1, 3), int)), NPY, DIGITS, 400, "inputs must be float32, got int64"),
    (npy(np.full((1, 3), np.nan)), NPY, DIGITS, 400, SINGLE),
    (npy(np.float64(3)), NPY, UNKNOWN, 400, "inputs must hold at least one input, got the shape []"),
    (npy(np.full((1, 2), 2**63, np.uint64)), NPY, TOKENS, 400, "inputs must be below 2^63"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "kind", "accepted", "status", "line"), REFUSED, ids=[line[:50] for *_, line in REFUSED]
)
def test_each_wrong_body_has_its_line(data: bytes, kind: str, accepted: Accepted, status: int, line: str) -> None:
    with pytest.raises(Refused) as refused:
        parsed(data, accepted, kind)
    assert (refused.value.status, str(refused.value)) == (status, line)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_refused_or_are_arrays(seed: int) -> None:
    rng, whole = np.random.default_rng(seed), npy(np.asarray(GOOD))
    for _ in range(300):
        data = bytearray(whole)
        for place in rng.integers(0, len(data) - 24, rng.integers(1, 4)):
            data[place] = rng.integers(256)
        try:
            parsed(bytes(data), kind=NPY)
        except Refused as refused:
            assert refused.status == 400 and "\n" not in str(refused)


def test_an_address_with_other_options_or_no_numbers_is_refused() -> None:
    raw = npy(np.asarray(GOOD))
    for options, line in [
        ({"level": "0.9"}, "unknown field 'level'"),
        ({"intervals": "much"}, "intervals must be a number, got 'much'"),
        ({"dtype": "float32"}, "dtype must be left out beside a raw array"),
        ({"foo": "bar"}, "unknown field 'foo'"),
    ]:
        with pytest.raises(Refused, match=line):
            parsed(raw, kind=NPY, **options)
    with pytest.raises(Refused, match="intervals must be a field of the body"):
        parsed(body(), intervals="0.9")


# Answers


def classifier(samples: int = 5, weights: list[float] | None = None) -> PosteriorPredictive:
    states = []
    for s in range(samples):
        torch.manual_seed(s)
        states.append(nn.Linear(3, 4).state_dict())
    return PosteriorPredictive(nn.Linear(3, 4), states, weights=weights)


def question(n: int, seed: int = 0, size: int = 3, **asked: Any) -> Question:
    return Question(inputs=torch.randn(n, size, generator=torch.Generator().manual_seed(seed)), **asked)


def test_questions_that_are_answered_together_have_the_answers_that_each_has_alone() -> None:
    posterior = classifier()
    questions = [question(2), question(1, 1, level=0.5), question(3, 2)]
    for one, found in zip(questions, answer(posterior, questions), strict=True):
        alone = posterior(one.inputs)
        assert not isinstance(found, Refused)
        for name in ("probabilities", "entropy", "mutual_information"):
            np.testing.assert_allclose(found[name], getattr(alone, name), atol=1e-6)
        assert ("intervals" in found) is (one.level is not None)


def test_a_question_that_the_network_refuses_harms_no_other() -> None:
    posterior = classifier()
    good, wrong = answer(posterior, [question(2), question(1, size=5)])
    assert not isinstance(good, Refused) and good["probabilities"].shape == (2, 4)
    assert isinstance(wrong, Refused) and wrong.status == 400
    assert str(wrong).startswith(
        "inputs must be inputs that the network takes, [n, …], got float32 [1, 5]: RuntimeError"
    )


def test_predictions_that_are_not_finite_are_refused_for_their_request_alone() -> None:
    posterior = classifier()
    huge = Question(inputs=torch.full((1, 3), 3e38))
    good, wrong = answer(posterior, [question(1), huge])
    assert not isinstance(good, Refused) and isinstance(wrong, Refused) and wrong.status == 422


def test_intervals_are_quantiles_of_the_samples_probabilities_by_weight() -> None:
    weights = [1.0, 2.5, 3.0, 4.0, 5.3]
    posterior, asked = classifier(weights=weights), question(6, level=0.6)
    (found,) = answer(posterior, [asked])
    assert not isinstance(found, Refused)
    p = torch.stack([torch.softmax(classifier_of(s)(asked.inputs), -1) for s in range(5)]).numpy()
    w = np.broadcast_to(np.array(weights)[:, None, None], p.shape)
    ends = [np.quantile(p, q, axis=0, weights=w, method="inverted_cdf") for q in (0.2, 0.8)]
    np.testing.assert_allclose(found["intervals"], np.stack(ends, -1), atol=1e-6)
    assert found["intervals"].shape == (6, 4, 2)


def classifier_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 4).requires_grad_(False)


def test_a_regression_answers_mean_sd_and_quantiles_of_its_mixture() -> None:
    posterior, _, _ = regression()
    asked = question(4, quantiles=(0.05, 0.5, 0.95))
    (found,) = answer(posterior, [asked])
    assert not isinstance(found, Refused)
    with torch.inference_mode():
        alone = posterior(asked.inputs)
        means = posterior.outputs(asked.inputs)[1][..., 0].double().numpy()
    np.testing.assert_allclose(found["mean"], alone.mean[:, 0], atol=1e-6)
    np.testing.assert_allclose(found["sd"], alone.variance[:, 0].sqrt(), atol=1e-6)
    mixture = norm(means[:, :, None], np.exp(-1 - 0.2 * np.arange(7))[:, None, None])
    np.testing.assert_allclose(mixture.cdf(found["quantiles"]).mean(0), [[0.05, 0.5, 0.95]] * 4, atol=1e-6)


def test_an_answer_is_json_or_the_array_that_is_asked_for() -> None:
    (found,) = answer(classifier(), [question(2)])
    assert not isinstance(found, Refused)
    data, kind = encode(found, 5, "*/*")
    assert kind == JSON and json.loads(data) == {**{k: v.tolist() for k, v in found.items()}, "samples": 5}
    data, kind = encode(found, 5, "application/x-npy")
    assert kind == "application/x-npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(data)), found["probabilities"])
    (line,) = answer(regression()[0], [question(2)])
    assert not isinstance(line, Refused)
    np.testing.assert_array_equal(
        np.load(io.BytesIO(encode(line, 5, NPY)[0])), np.stack([line["mean"], line["sd"]], -1)
    )
