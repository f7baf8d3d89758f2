"""Values that nobody should pass, made anew for each use by expressions, so that a failing example can be read."""

# ruff: noqa: F401  (the expressions below use what is imported)
from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import torch
from torch import nn

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


EXPRESSIONS = r"""
None | True | False | 0 | -1 | 1 | 3 | .5 | 1.5 | -.5 | nan | inf | -inf | 1e308 | 1e-320 | 1j | Decimal('NaN')
10**12 | 10**30 | 10**400 | -10**400 | 10**5000 | Fraction(1, 3) | ... | NotImplemented | '' | 'x' | ' ' | 'a\0b'
'\ud800' | '\x1b[31mred\nx' | '../x' | 's3://' | 'os:system' | 'nowhere:x' | 'a=1' | 'x' * 200_000
b'x' | bytearray(b'x') | memoryview(b'xy') | [] | {} | () | {1, 2} | [None] | ['x'] | [1, 2] | [nan] | [[1], [2, 3]]
{1: 2} | {'x': object()} | {'': nan} | {None: None} | range(3) | range(10**12) | (i for i in range(3))
(t for t in 'xy') | itertools.count() | itertools.repeat('x') | yielding() | within() | deep() | SimpleNamespace()
np.array(3.5) | np.array(2) | np.array([]) | np.full((2, 3), nan) | np.array([None, 'x'], dtype=object)
np.array(['a', 'b']) | np.array(['2020-01-01'], dtype='datetime64[D]') | np.ones((2, 3)) | np.ones(3) * 1j
np.zeros(2, dtype=[('a', int), ('b', float)]) | np.ma.array([1.0, 2.0], mask=[0, 1]) | np.ones(3, np.float16)
np.array([2**64 - 1], np.uint64) | np.float64('nan') | np.int64(5) | np.bool_(True) | np.str_('x')
np.datetime64('NaT') | np.longdouble('1e4000') | torch.tensor(1.5) | torch.tensor([nan]) | torch.ones(2, 3)
torch.tensor([1j]) | torch.zeros(0) | torch.ones(2, dtype=torch.int8) | torch.tensor([True])
torch.ones(2, device='meta') | torch.eye(2).to_sparse() | torch.ones(2, requires_grad=True) * 2
nn.Parameter(torch.ones(2)) | [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, 2, dtype=torch.float64))]
(torch.ones(4, 2), torch.zeros(4, dtype=torch.long)) | (torch.ones(4, 2), torch.zeros(3))
pd.DataFrame({'a': [1, 2]}) | pd.Series([1, 2]) | pd.NA | pd.Timestamp('2020') | Path('/nowhere/x') | Path('/')
io.BytesIO() | int | object() | torch | ValueError('x\ny') | (lambda: None) | (lambda x: x) | fails | MagicMock()
nn.Linear(2, 2) | nn.Linear | rc.Sampler | rc.SGLD | rc.Cyclical | rc.Constant(steps=3, lr=0.1) | rc.Task
rc.SGLD([nn.Parameter(torch.ones(2))], lr=0.1, num_data=1) | rc.make_task('mixture25') | rc.UserError | rc.Run()
raising('repr', 'str') | raising('len', __getitem__=lambda self, i: i) | raising('iter', 'len')
raising(__len__=lambda self: -1, __getitem__=lambda self, i: i) | raising('hash', 'eq') | raising('bool')
raising('float', 'int', 'index') | raising('fspath') | raising(__fspath__=lambda self: b'x')
raising(*OPERATORS.split()) | raising(__repr__=lambda self: 'x\n' * 100_000) | raising(__repr__=lambda self: 3)
raising('item', ndim=0) | NoAttribute()
"""
OPERATORS = "repr str len iter hash eq bool float int index fspath getitem call lt"
ODD: dict[str, Callable[[], Any]] = {
    text: functools.partial(eval, text, globals()) for text in EXPRESSIONS.strip().replace("\n", " | ").split(" | ")
}
