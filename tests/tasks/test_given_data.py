"""Tensors and arrays that a user gives a task: it keeps copies; other kinds of data are refused, with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import raychains as rc
from tests.checks import refused

X = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def task(x: Any, y: Any, form: Callable[..., Any] = lambda *pair: pair) -> Any:
    return rc.Task.from_module(lambda: nn.Linear(3, 2), form(x, y), form(x, y), name="given")


@pytest.mark.parametrize("form", [lambda *pair: pair, TensorDataset])
@pytest.mark.parametrize("array", [Tensor.clone, lambda t: t.numpy().copy()])
def test_a_task_has_the_values_that_its_fingerprint_names_whatever_becomes_of_the_users(form: Any, array: Any) -> None:
    x, y = array(X), array(Y)
    if form is TensorDataset:
        x, y = torch.as_tensor(x), torch.as_tensor(y)
    made = task(x, y, form)
    x += 1
    y[:] = 0
    inputs, targets = made.source.batch(torch.arange(12))
    assert torch.equal(inputs, X) and torch.equal(targets, Y)
    weight = torch.arange(6.0).view(2, 3)
    right = nn.functional.linear(X.float(), weight).log_softmax(1)
    found = made.splits()["test"].predict({"weight": weight, "bias": torch.zeros(2)}, 0)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
    assert made.fingerprint == task(X, Y).fingerprint != task(torch.as_tensor(x), torch.as_tensor(y)).fingerprint


def test_a_density_has_copies_of_its_data_and_its_reference() -> None:
    data, mean, covariance = X.clone(), torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)

    def logp(theta: Tensor, rows: Tensor) -> Tensor:
        return -(rows - theta).square().sum(1)

    made = rc.Task.from_log_density(logp, dim=3, data=data, reference=(mean, covariance))
    theta = torch.ones(1, 3, dtype=torch.float64)
    before = made.estimate(theta)  # type: ignore[attr-defined]
    for given in (data, mean, covariance):
        given += 1
    assert torch.equal(made.estimate(theta), before)  # type: ignore[attr-defined]
    known = made.reference()
    assert known is not None and not known.moments.mean.any() and (known.moments.covariance == np.eye(3)).all()


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ((pd.DataFrame(X.numpy()), pd.Series(Y.numpy())), ("a DataFrame as inputs", ".to_numpy()")),
        ((X, pd.Series(Y.numpy())), ("a Series as targets", ".to_numpy()")),
        (((X, "x"), Y), ("a tuple as inputs", "its leaves must be arrays", "got str")),
        (({"ids": X, "n": 3}, Y), ("a dict as inputs", "its leaves must be arrays", "got int")),
        ((list(X), list(Y)), ("a list as inputs", "stack", "collate_fn")),
        ((X.tolist(), Y), ("a list as inputs", "torch.as_tensor")),
        ((X, torch.tensor(1)), ("a Tensor as targets", "first axis")),
    ],
)
def test_a_pair_of_others_is_one_line_that_says_what_to_do(pair: Any, words: tuple[str, ...]) -> None:
    with refused("train_set must be a pair of tensors or arrays (inputs, targets), got", *words):
        rc.Task.from_module(lambda: nn.Linear(3, 2), pair, (X, Y))
    with refused("data must be a pair", *words):
        rc.local(nn.Linear(3, 2), pair)


def test_two_pairs_are_a_data_set_of_two_examples() -> None:
    assert task(*((x, y) for x, y in zip(X[:2], Y[:2], strict=True))).num_data == 2
