"""Values that nobody should pass, made anew for each use: by name, so that a failing example can be read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import torch

import raychains as rc


class Broken(RuntimeError):
    """What an object of the user's raises, in two lines."""

    def __init__(self, *_: object) -> None:
        super().__init__("raised by\nthe user's object")


def raising(*methods: str, **values: Any) -> Any:
    """Return an object of a class of its own some of whose methods raise `Broken`."""

    def fail(*_: Any, **__: Any) -> Any:
        raise Broken

    return type("Foreign", (), dict.fromkeys((f"__{m}__" for m in methods), fail) | values)()


class NoAttribute:
    """Any attribute that is asked for raises."""

    def __getattr__(self, name: str) -> Any:
        raise Broken


def within() -> list[Any]:
    """Return a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


def deep() -> list[Any]:
    """Return a list in a list in …"""
    found: list[Any] = []
    for _ in range(5000):
        found = [found]
    return found


def yielding() -> Iterator[int]:
    """Yield and then raise."""
    yield 1
    raise Broken


def fails(*_: Any, **__: Any) -> Any:
    """Raise whatever it is given."""
    raise Broken


ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "-1": lambda: -1,
    "1": lambda: 1,
    "3": lambda: 3,
    ".5": lambda: 0.5,
    "1.5": lambda: 1.5,
    "-.5": lambda: -0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: -float("inf"),
    "1e308": lambda: 1e308,
    "1e-320": lambda: 1e-320,
    "10**12": lambda: 10**12,
    "10**30": lambda: 10**30,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "10**5000": lambda: 10**5000,
    "1j": lambda: 1j,
    "Decimal": lambda: Decimal("NaN"),
    "Fraction": lambda: Fraction(1, 3),
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "''": lambda: "",
    "'x'": lambda: "x",
    "' '": lambda: " ",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "escape": lambda: "\x1b[31mred\nx",
    "path": lambda: "../x",
    "uri": lambda: "s3://",
    "import path": lambda: "os:system",
    "no module": lambda: "nowhere:x",
    "a=1": lambda: "a=1",
    "long text": lambda: "x" * 200_000,
    "b'x'": lambda: b"x",
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"xy"),
    "[]": list,
    "{}": dict,
    "()": tuple,
    "set": lambda: {1, 2},
    "[None]": lambda: [None],
    "['x']": lambda: ["x"],
    "[1, 2]": lambda: [1, 2],
    "[nan]": lambda: [float("nan")],
    "[[1], [2, 3]]": lambda: [[1], [2, 3]],
    "{1: 2}": lambda: {1: 2},
    "{'x': object}": lambda: {"x": object()},
    "{'': nan}": lambda: {"": float("nan")},
    "{None: None}": lambda: {None: None},
    "range": lambda: range(3),
    "huge range": lambda: range(10**12),
    "generator": lambda: (i for i in range(3)),
    "text generator": lambda: (t for t in "xy"),
    "endless": itertools.count,
    "endless texts": lambda: itertools.repeat("x"),
    "yields and raises": yielding,
    "within": within,
    "deep": deep,
    "namespace": SimpleNamespace,
    "array 0-d": lambda: np.array(3.5),
    "array 0-d int": lambda: np.array(2),
    "array empty": lambda: np.array([]),
    "array nan": lambda: np.full((2, 3), np.nan),
    "array of objects": lambda: np.array([None, "x"], dtype=object),
    "array of texts": lambda: np.array(["a", "b"]),
    "array of times": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "array 2-d": lambda: np.ones((2, 3)),
    "array complex": lambda: np.ones(3) * 1j,
    "array structured": lambda: np.zeros(2, dtype=[("a", int), ("b", float)]),
    "array masked": lambda: np.ma.array([1.0, 2.0], mask=[0, 1]),
    "array float16": lambda: np.ones(3, np.float16),
    "array uint64": lambda: np.array([2**64 - 1], np.uint64),
    "np.float64": lambda: np.float64("nan"),
    "np.int64": lambda: np.int64(5),
    "np.bool_": lambda: np.bool_(True),
    "np.str_": lambda: np.str_("x"),
    "np.datetime64": lambda: np.datetime64("NaT"),
    "np.longdouble": lambda: np.longdouble("1e4000"),
    "tensor 0-d": lambda: torch.tensor(1.5),
    "tensor nan": lambda: torch.tensor([float("nan")]),
    "tensor 2-d": lambda: torch.ones(2, 3),
    "tensor complex": lambda: torch.tensor([1j]),
    "tensor empty": lambda: torch.zeros(0),
    "tensor int8": lambda: torch.ones(2, dtype=torch.int8),
    "tensor bool": lambda: torch.tensor([True]),
    "tensor meta": lambda: torch.ones(2, device="meta"),
    "tensor sparse": lambda: torch.eye(2).to_sparse(),
    "tensor with gradient": lambda: torch.ones(2, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "parameters": lambda: [
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64)),
    ],
    "tensor pair": lambda: (torch.ones(4, 2), torch.zeros(4, dtype=torch.long)),
    "ragged pair": lambda: (torch.ones(4, 2), torch.zeros(3)),
    "frame": lambda: pd.DataFrame({"a": [1, 2]}),
    "series": lambda: pd.Series([1, 2]),
    "pd.NA": lambda: pd.NA,
    "pd.Timestamp": lambda: pd.Timestamp("2020"),
    "Path": lambda: Path("/nowhere/x"),
    "folder": lambda: Path("/"),
    "open file": io.BytesIO,
    "type": lambda: int,
    "object": object,
    "module": lambda: torch,
    "Exception": lambda: ValueError("x\ny"),
    "lambda": lambda: lambda: None,
    "identity": lambda: lambda x: x,
    "function that raises": lambda: fails,
    "MagicMock": MagicMock,
    "nn.Linear": lambda: torch.nn.Linear(2, 2),
    "nn.Linear type": lambda: torch.nn.Linear,
    "Sampler": lambda: rc.Sampler,
    "SGLD": lambda: rc.SGLD,
    "Cyclical": lambda: rc.Cyclical,
    "sampler": lambda: rc.SGLD([torch.nn.Parameter(torch.ones(2))], lr=0.1, num_data=1),
    "schedule": lambda: rc.Constant(steps=3, lr=0.1),
    "task": lambda: rc.make_task("mixture25"),
    "Task": lambda: rc.Task,
    "UserError": lambda: rc.UserError,
    "options": rc.Run,
    "repr raises": lambda: raising("repr", "str"),
    "len raises": lambda: raising("len", __getitem__=lambda self, i: i),
    "iter raises": lambda: raising("iter", "len"),
    "negative len": lambda: raising(__len__=lambda self: -1, __getitem__=lambda self, i: i),
    "hash raises": lambda: raising("hash", "eq"),
    "bool raises": lambda: raising("bool"),
    "float raises": lambda: raising("float", "int", "index"),
    "fspath raises": lambda: raising("fspath"),
    "fspath bytes": lambda: raising(__fspath__=lambda self: b"x"),
    "all raise": lambda: raising(
        "repr", "str", "len", "iter", "hash", "eq", "bool", "float", "int", "index", "fspath", "getitem", "call", "lt"
    ),
    "getattr raises": NoAttribute,
    "long repr": lambda: raising(__repr__=lambda self: "x\n" * 100_000),
    "repr of no text": lambda: raising(__repr__=lambda self: 3),
    "item raises": lambda: raising("item", ndim=0),
}
