"""Requests for predictions: a body of JSON or a raw array becomes checked inputs, and predictions become an answer.

Nothing here knows of a server. Everything about a request that can be wrong is refused before a network sees its
inputs, by a `Refused` with a status of HTTP and one line.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains.core import tree
from raychains.core.errors import UserError, format_error, printable, shown
from raychains.core.tree import Tree
from raychains.core.validation import is_number
from raychains.inference.ensemble import Classified, PosteriorPredictive, Regressed, classify, regress
from raychains.inference.intervals import interval, mixture_quantiles

JSON = "application/json"
NPY = ("application/octet-stream", "application/x-npy")
"""Types of a body, or of an answer, that is a .npy file."""
FIELDS = ("inputs", "dtype", "intervals", "quantiles")
DTYPES = {"float32": torch.float32, "uint8": torch.uint8, "int64": torch.int64}
"""Those of inputs, by the names that a JSON body has for them."""
BOOL = "bool"
"""Of a mask, say: sent as true and false, or as 1 and 0."""
LEVELS = 100
"""Most quantiles of one request."""
NUMBERS = 4_000_000
"""Most probabilities, or other numbers, of one answer: about 80 MB of JSON."""
LOWEST = 1e-6
"""Least quantile; the greatest is 1 minus that."""
HEADER = 10_000
"""Most characters of a .npy file's header."""
MAGIC = b"\x93NUMPY"


class Refused(Exception):
    """A request that is not answered: its status of HTTP and one line."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(printable(message, lines=False))
        self.status = status


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """The form of one input as the task stores it."""

    shape: tuple[int | None, ...]
    """A size of None may be any, the same for all inputs of a request."""
    dtype: str

    @classmethod
    def of(cls, described: Any) -> Tree | None:
        """Return the form in an exported file's description, or a dict or a tuple of forms; None where it is none."""
        if isinstance(described, list):
            parts = cls.of(dict(enumerate(described)))
            return tuple(parts.values()) if isinstance(parts, dict) else None
        if not isinstance(described, Mapping):
            return None
        if "dtype" not in described:
            parts = {name: cls.of(part) for name, part in described.items()}
            return parts if parts and None not in parts.values() else None
        shape, dtype = described.get("shape"), described["dtype"]
        ok = isinstance(shape, list) and all(size is None or (type(size) is int and size > 0) for size in shape)
        return cls(shape=tuple(shape), dtype=dtype) if ok and isinstance(dtype, str) else None  # type: ignore[arg-type]

    def dtypes(self, images: bool) -> tuple[str, ...]:
        """Return the kinds of numbers that are taken: of stored images, which the ensemble normalises, prepared ones
        as well."""
        if self.dtype == "uint8" and images:
            return ("uint8", "float32")
        return ("float32",) if "float" in self.dtype else ("int64",) if self.dtype != "uint8" else ("uint8", "float32")

    def __str__(self) -> str:
        return f"[{', '.join(['n', *('any' if size is None else str(size) for size in self.shape)])}]"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether inputs of a shape [n, …] are of this form."""
        return len(shape) == len(self.shape) + 1 and all(
            size is None or size == got for size, got in zip(self.shape, shape[1:], strict=True)
        )


ANY = InputForm(shape=(), dtype="any")
"""That of one of several arrays, where nothing is known of them."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The requests that one ensemble answers."""

    kind: str
    """classification or regression."""
    form: Tree | None
    """Its `InputForm`, or a dict or a tuple of them; None where it is not known: then the network decides."""
    images: bool
    """Its uint8 inputs are stored images, which the ensemble normalises."""
    rows: int
    """Most inputs of one request."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One request's inputs, and what is asked about them beside the averages."""

    inputs: Tree
    """[n, …], float32, uint8 or int64."""
    level: float | None = None
    """Probability that a credible interval holds; None: no intervals."""
    quantiles: tuple[float, ...] = ()


def parse(body: bytes, kind: str, options: Mapping[str, str], accepted: Accepted) -> Question:
    """Return a request's question.

    Args:
        body: JSON, or a .npy file.
        kind: the body's type, from its header; without one it is JSON.
        options: ``dtype``, ``intervals`` and ``quantiles`` (separated by commas) from the address of a request, for raw
            arrays.
        accepted: what the ensemble takes.

    Raises:
        Refused: a body that is neither (400, or 415 for another type), too many inputs (413), or wrong ones (400).
    """
    kind = kind.partition(";")[0].strip().lower()
    if kind in NPY:
        _known(options)
        if "dtype" in options:
            raise Refused(400, "dtype must be left out beside a raw array, which has its own")
        fields: dict[str, Any] = {name: _from_address(name, text) for name, text in options.items()}
        if accepted.form is not None and not isinstance(accepted.form, InputForm):
            raise Refused(400, f"inputs must be {JSON}: they are several arrays, {', '.join(_places(accepted.form))}")
        inputs = _checked(read_npy(body), accepted.form, accepted, "inputs")
    elif kind in (JSON, ""):
        if options:
            raise Refused(400, f"{next(iter(options))} must be a field of the body")
        fields = _object(body)
        inputs = _inputs(fields["inputs"], accepted.form, fields.get("dtype"), accepted, "inputs")
    else:
        raise Refused(415, f"Content-Type must be {JSON}, or {NPY[0]} for a .npy file, got {shown(kind)}")
    try:
        tree.check_sizes(inputs, "inputs")
    except UserError as error:
        raise Refused(400, str(error)) from None
    return Question(inputs=inputs, **_asked(fields, accepted))


def _from_address(name: str, text: str) -> Any:
    try:
        return [float(each) for each in text.split(",")] if name == "quantiles" else float(text)
    except ValueError:
        raise Refused(400, f"{name} must be a number, got {shown(text)}") from None


def _object(body: bytes) -> dict[str, Any]:
    def constant(name: str) -> float:
        raise ValueError(f"{name} is no number")

    try:
        found = json.loads(body.decode(), parse_constant=constant)
    except RecursionError:
        raise Refused(400, "body must be JSON, got lists nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise Refused(400, f"body must be JSON: {format_error(error)}") from None
    if not isinstance(found, dict):
        raise Refused(400, f"body must be an object with the field 'inputs', got {_kind(found)}")
    _known(found)
    if "inputs" not in found:
        raise Refused(400, "body must have the field 'inputs', a list with one entry for each input")
    return found


def _known(fields: Mapping[str, Any]) -> None:
    for name in fields:
        if name not in FIELDS:
            raise Refused(400, f"unknown field {shown(name)}: there are {', '.join(FIELDS)}")


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _places(form: Tree) -> list[str]:
    return [place for place, _ in tree.named(form, "inputs")]


def _inputs(given: Any, form: Tree | None, dtype: Any, accepted: Accepted, place: str) -> Tree:
    """Return the inputs of a JSON body as tensors: an object for a dict of several, a list for a tuple."""
    if isinstance(form, tuple):
        if not isinstance(given, list) or len(given) != len(form):
            raise Refused(400, f"{place} must be a list of the {len(form)} arrays {', '.join(_places(form))}")
        return tuple(
            _inputs(each, part, dtype, accepted, f"{place}[{i}]")
            for i, (each, part) in enumerate(zip(given, form, strict=True))
        )
    if form is None and isinstance(given, dict) and given:
        form = dict.fromkeys(given, ANY)
    if isinstance(form, Mapping):
        names = list(form)
        if not isinstance(given, dict) or set(given) != set(names):
            raise Refused(
                400,
                f"{place} must be an object with {' and '.join(map(repr, names))}, each a list with one entry for "
                "each input",
            )
        return {name: _inputs(given[name], form[name], dtype, accepted, f"{place}[{name!r}]") for name in names}
    array = _array(given, form, place)
    if dtype is None:
        dtype = _usual(array, form, accepted)
    return _checked(_as(array, dtype, place), form, accepted, place)


def _array(given: Any, form: InputForm | None, place: str) -> np.ndarray[Any, Any]:
    """Return the numbers of a JSON body as an array."""
    if not isinstance(given, list):
        raise Refused(400, f"{place} must be a list with one entry for each input, got {_kind(given)}")
    try:
        array = np.array(given)
    except (ValueError, OverflowError):  # ragged, or nested more deeply than arrays can be
        raise Refused(400, f"{place} must be lists of equal lengths") from None
    if array.dtype.kind == "b" and form is not None and form.dtype == BOOL:
        return array.astype(np.int64)
    if array.dtype.kind not in "fiu":
        raise Refused(400, f"{place} must be numbers of at most 64 bits, in lists of equal lengths")
    return array


def _usual(array: np.ndarray[Any, Any], form: InputForm | None, accepted: Accepted) -> str:
    """Return the dtype of numbers whose body names none."""
    whole = array.dtype.kind in "iu"
    if accepted.images and whole:
        raise Refused(
            400,
            'dtype must be given for whole numbers: "uint8" for images as they are stored, or "float32" for prepared '
            "ones",
        )
    if form is ANY:
        return "int64" if whole else "float32"
    taken = _taken(form, accepted)
    return taken[0] if len(taken) == 1 else "float32"


def _taken(form: InputForm | None, accepted: Accepted) -> tuple[str, ...]:
    """Return the kinds of numbers that are taken."""
    return tuple(DTYPES) if form in (None, ANY) else form.dtypes(accepted.images)


def _as(array: np.ndarray[Any, Any], dtype: Any, place: str) -> np.ndarray[Any, Any]:
    """Return an array of a dtype that a JSON body names."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise Refused(400, f"dtype must be one of {', '.join(DTYPES)}, got {shown(dtype)}")
    if dtype == "float32":
        return array.astype(np.float64)
    low, high = (0, 255) if dtype == "uint8" else (-(2**63), 2**63 - 1)
    whole = array.dtype.kind in "iu"
    if array.size and (not whole or int(array.min()) < low or int(array.max()) > high):
        raise Refused(400, f"{place} must be whole numbers in [{low}, {high}] for the dtype {dtype}")
    return array.astype(dtype)


def read_npy(body: bytes) -> np.ndarray[Any, Any]:
    """Return the array in a .npy file, which nothing is unpickled of; memory is taken only for what is there.

    Raises:
        Refused: no .npy file of numbers, or one that is shorter or longer than its header says.
    """
    if not body.startswith(MAGIC):
        raise Refused(400, "body must be a .npy file, as numpy.save writes it")
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError("a version that holds no plain numbers")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file, max_header_size=HEADER)
    except Exception as error:  # of NumPy and of Python's parser, of many classes
        raise Refused(400, f"body must be a .npy file: {format_error(error)}") from None
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise Refused(400, f"inputs must be numbers of at most 64 bits, got an array of {shown(str(dtype))}")
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(body) - file.tell():
        raise Refused(400, "body must be a whole .npy file, got one of another length than its header says")
    flat = np.frombuffer(body, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _checked(array: np.ndarray[Any, Any], form: InputForm | None, accepted: Accepted, place: str) -> Tensor:
    """Return inputs as a tensor; refuse a wrong number, shape or dtype, and numbers that are none."""
    got = list(array.shape)
    if array.ndim == 0 or array.size == 0:
        raise Refused(400, f"{place} must hold at least one input, got the shape {got}")
    if len(array) > accepted.rows:
        raise Refused(413, f"{place} must be at most {accepted.rows} in one request, got {len(array)}")
    if form not in (None, ANY) and not form.fits(array.shape):
        raise Refused(400, f"{place} must have the shape {form}, got {got}")
    kind = {"f": "float32", "u": "uint8" if array.dtype.itemsize == 1 else "int64"}.get(array.dtype.kind, "int64")
    taken = _taken(form, accepted)
    if kind not in taken:
        raise Refused(400, f"{place} must be {' or '.join(taken)}, got {array.dtype.name}")
    if kind == "int64" and array.dtype.kind == "u" and int(array.max()) >= 2**63:
        raise Refused(400, f"{place} must be below 2^63")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array.astype(kind))
    if kind == "float32" and not np.isfinite(array).all():
        raise Refused(400, f"{place} must be finite numbers that single precision holds")
    found = torch.from_numpy(array)
    return found.bool() if form is not None and form.dtype == BOOL else found


def _asked(fields: Mapping[str, Any], accepted: Accepted) -> dict[str, Any]:
    """Return the level and the quantiles of a request."""
    level, quantiles = fields.get("intervals"), fields.get("quantiles")
    if level is not None:
        if accepted.kind != "classification":
            other = "ask for quantiles" if accepted.kind == "regression" else "the answer holds mean and sd"
            raise Refused(400, f"intervals must be left out for a {accepted.kind}: {other}")
        if not is_number(level) or not 0 < level < 1:
            raise Refused(400, f"intervals must be a probability between 0 and 1, as in 0.9, got {shown(level)}")
    if quantiles is None:
        return {"level": level}
    if accepted.kind != "regression":
        other = "ask for intervals" if accepted.kind == "classification" else "the answer holds mean and sd"
        raise Refused(400, f"quantiles must be left out for a {accepted.kind}: {other}")
    ok = isinstance(quantiles, list) and 0 < len(quantiles) <= LEVELS
    if not ok or not all(is_number(q) and LOWEST <= q <= 1 - LOWEST for q in quantiles):
        raise Refused(
            400, f"quantiles must be 1 to {LEVELS} numbers in [{LOWEST:g}, 1 − {LOWEST:g}], got {shown(quantiles)}"
        )
    return {"quantiles": tuple(map(float, quantiles))}


# Answers

Answer = Mapping[str, np.ndarray[Any, Any]]
"""Arrays of one request by name, each with an entry for each input."""


def answer(posterior: PosteriorPredictive, questions: Sequence[Question]) -> list[Answer | Refused]:
    """Return the answer to each question; inputs of the same shapes and dtypes go through the network together."""
    groups: dict[Any, list[int]] = {}
    for place, question in enumerate(questions):
        kinds = tuple((where, t.shape[1:], t.dtype) for where, t in tree.named(question.inputs))
        groups.setdefault(kinds, []).append(place)
    found: dict[int, Answer | Refused] = {}
    for places in groups.values():
        asked = [questions[place] for place in places]
        try:
            found |= dict(zip(places, _answered(posterior, asked), strict=True))
        except Refused as refused:
            found |= dict.fromkeys(places, refused)
    return [found[place] for place in range(len(questions))]


@dataclass(frozen=True)
class _EachSample:
    """The predictions of each sample."""

    weights: Tensor
    """[S], which add up to 1."""
    values: Tensor
    """Probabilities, or a regression's means, [S, n, …]."""
    noises: Tensor | None = None
    """σ of a regression, [S, n, 1]."""


def _answered(posterior: PosteriorPredictive, questions: Sequence[Question]) -> list[Answer | Refused]:
    """Return the answers to questions whose inputs have the same shapes and dtypes."""
    inputs = tree.mapped(lambda *parts: torch.cat(parts), *(question.inputs for question in questions))
    inputs, n = tree.sent(inputs, posterior.weights.device), tree.size(inputs)
    each = any(question.level is not None or question.quantiles for question in questions)
    try:
        found, samples = _predicted(posterior, inputs, each)
    except UserError as error:  # the network does not take them
        raise Refused(400, str(error).replace("x must", "inputs must", 1)) from None
    except torch.OutOfMemoryError:
        raise Refused(503, f"inputs need more memory than there is: send fewer than {n} at once") from None
    if len(found[0]) != n:
        raise Refused(400, f"inputs must be single examples along the first axis, got {tree.described(inputs)}")
    ends = np.cumsum([tree.size(question.inputs) for question in questions])
    parts = map(slice, [0, *ends], ends)
    return [_answer(posterior, *one, found, samples) for one in zip(questions, parts, strict=True)]


def _answer(
    posterior: PosteriorPredictive, question: Question, part: slice, found: Any, samples: Any
) -> Answer | Refused:
    """Return the answer to one question, whose inputs are a part of those that were predicted."""
    arrays = _averages(type(found)(*(t[part].cpu() for t in found)))
    if samples is not None:
        arrays |= _spread(posterior, question, samples, part)
    if posterior.kind != "classification" and found[0].shape[1] == 1:
        arrays = {name: array[:, 0] for name, array in arrays.items()}
    numbers = sum(array.size for array in arrays.values())
    if numbers > NUMBERS:
        few = max(1, tree.size(question.inputs) * NUMBERS // numbers)
        return Refused(413, f"inputs give {numbers:,} numbers, at most {NUMBERS:,} in one answer: send {few} at once")
    finite = all(np.isfinite(array).all() for array in arrays.values())
    return arrays if finite else Refused(422, "inputs give predictions that are not finite numbers")


def _predicted(
    posterior: PosteriorPredictive, inputs: Tree, each: bool
) -> tuple[Classified | Regressed, _EachSample | None]:
    """Return the predictive of inputs, and with ``each`` the samples' own predictions."""
    with torch.inference_mode():
        if not each:
            return posterior(inputs), None
        if posterior.kind == "regression":
            weights, means, noises = posterior.gaussians(inputs)
            return regress([(weights, means, noises)]), _EachSample(
                weights, means, noises.expand(-1, means.shape[1], 1)
            )
        weights, outputs = posterior.outputs(inputs)
        wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        return classify([(weights, outputs)]), _EachSample(weights, torch.softmax(wide, dim=-1))


def _averages(found: Classified | Regressed) -> dict[str, np.ndarray[Any, Any]]:
    """Return the averages of one answer."""
    if isinstance(found, Regressed):
        return {"mean": found.mean.numpy(), "sd": found.variance.sqrt().numpy()}
    return {name: getattr(found, name).numpy() for name in ("probabilities", "entropy", "mutual_information")}


def _spread(
    posterior: PosteriorPredictive, question: Question, samples: _EachSample, part: slice
) -> dict[str, np.ndarray[Any, Any]]:
    """Return what is asked about the samples: intervals [n, …, classes, 2], or quantiles [n, outputs, levels]."""
    weights, values = samples.weights.cpu().numpy(), samples.values[:, part].cpu().numpy()
    found = {}
    if question.level is not None:
        found["intervals"] = interval(values, weights, question.level)
    if question.quantiles:
        assert samples.noises is not None
        means, noises = values.astype(np.float64), samples.noises[:, part].cpu().double().numpy()
        found["quantiles"] = mixture_quantiles(means, noises, weights, question.quantiles)
    return found


def encode(arrays: Answer, samples: int, accept: str) -> tuple[bytes, str]:
    """Return an answer's bytes and type.

    Args:
        arrays: of the answer.
        samples: of the ensemble that answered.
        accept: the types that the client wants: a .npy file is sent only where it is asked for. It holds the
            probabilities of a classification, and of a regression mean and sd along the last axis.
    """
    if any(kind in accept.lower() for kind in NPY):
        out = io.BytesIO()
        array = arrays["probabilities"] if "probabilities" in arrays else np.stack([arrays["mean"], arrays["sd"]], -1)
        np.save(out, array, allow_pickle=False)
        return out.getvalue(), NPY[1]
    values = {name: array.tolist() for name, array in arrays.items()}
    return json.dumps({**values, "samples": samples}, allow_nan=False).encode(), JSON
