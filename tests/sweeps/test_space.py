"""Lists and ranges of a sweep: read, refused in one line, drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raychains.api import plans
from raychains.core import ranges as space
from raychains.core.config import Sweep
from raychains.core.errors import UserError
from raychains.core.options import make


def test_a_grid_is_every_combination_and_the_last_name_changes_fastest() -> None:
    grid = ("exploration=0,.25", "sampler=csgld,csghmc")
    assert space.read_grid([*grid, "update=gibbs"]) == {
        "exploration": (0, 0.25), "sampler": ("csgld", "csghmc"), "update": ("gibbs",),
    }  # fmt: skip
    points = plans.sweep(Sweep(epochs=40, grid=grid)).plan.points
    assert [(p.values["exploration"], p.sampler) for p in points] == [
        (0, "csgld"), (0, "csghmc"), (0.25, "csgld"), (0.25, "csghmc"),
    ]  # fmt: skip


def test_python_gives_lists_and_arrays() -> None:
    given = {"lr": [0.1, 1e-5], "momentum": np.linspace(0, 1, 3), "sampler": ("csgld", "csghmc"), "cycles": "int:2:8"}
    entries = ("lr=0.1,1e-05", "momentum=0.0,0.5,1.0", "sampler=csgld,csghmc", "cycles=int:2:8")
    assert make(Sweep, {"grid": given}).grid == make(Sweep, {"space": given, "random": 1}).space == entries
    with pytest.raises(UserError, match=r"grid must give each name a list of values or a text, got 0\.1"):
        make(Sweep, {"grid": {"lr": 0.1}})


MANY = ",".join(map(str, range(200)))


@pytest.mark.parametrize(
    ("read", "entry", "line"),
    [
        (space.read_grid, "cycles=", "grid must give cycles a list of different values"),
        (space.read_grid, "cycles=2,,4", "a list of different values, as in cycles=A,B,C, got '2,,4'"),
        (space.read_grid, "cycles=2,2", "different values"),
        (space.read_grid, "lr=1,1.0", "different values"),
        (space.read_grid, f"a={MANY} b={MANY}", "grid must have at most 10000 points, got 40000"),
        (space.read_space, "lr=log:0:1", "as log:A:B with two numbers 0 < A < B, got 'log:0:1'"),
        (space.read_space, "lr=uniform:1:1", "two numbers A < B"),
        (space.read_space, "lr=uniform:0:inf", "two numbers A < B"),
        (space.read_space, "cycles=int:2:8.5", "two integers A < B"),
        (space.read_space, "lr=normal:0:1", "lr as log:A:B, uniform:A:B, int:A:B or a list, got 'normal:0:1'"),
        (space.read_space, "lr=log:1", "two numbers"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else value.__name__,
)
def test_what_is_no_grid_and_no_space_is_refused(read: Callable[..., Any], entry: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        read(entry.split())


def test_draws_follow_their_ranges() -> None:
    ranges = space.read_space(["lr=log:1e-3:10", "x=uniform:-1:3", "cycles=int:2:5", "sampler=csgld,csghmc"])
    generator = np.random.default_rng(0)
    points = [{name: one.draw(generator) for name, one in ranges.items()} for _ in range(4000)]
    logs = np.log10([p["lr"] for p in points])
    assert logs.min() >= -3 and logs.max() <= 1
    # A uniform variable of width w has mean ± w/√(12 n): 4.5 of these.
    assert abs(logs.mean() + 1) < 4.5 * 4 / math.sqrt(12 * 4000)
    assert abs(np.mean([p["x"] for p in points]) - 1) < 4.5 * 4 / math.sqrt(12 * 4000)
    counts = np.bincount([p["cycles"] for p in points], minlength=6)
    assert not counts[:2].any() and (abs(counts[2:] - 1000) < 4.5 * math.sqrt(750)).all()
    assert abs(sum(p["sampler"] == "csgld" for p in points) - 2000) < 4.5 * math.sqrt(1000)


def test_ranges_are_told_as_they_were_given() -> None:
    ranges = space.read_space(["lr=log:1e-3:1", "cycles=int:2:16", "t=uniform:0.1:0.123456789", "sampler=csgld,csghmc"])
    assert {name: r.to_json() for name, r in ranges.items()} == {
        "lr": "log:0.001:1", "cycles": "int:2:16", "t": "uniform:0.1:0.123456789", "sampler": ["csgld", "csghmc"],
    }  # fmt: skip


@pytest.mark.parametrize("text", ["csgld,mymodule:Mine", "mymodule:Mine", "mymodule:Mine,other:Own"])
def test_samplers_and_schedules_may_be_import_paths(text: str) -> None:
    for name in ("sampler", "schedule"):
        found = space.read_space([f"{name}={text}"])[name]
        assert found.kind == "choice" and list(found.values) == text.split(",")
