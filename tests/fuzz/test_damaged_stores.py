"""Torn, flipped and replaced files of a real run: every command says so in one line, and leaves the store as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import raychains as rc
from raychains.core.checksum import sealed
from raychains.store import ChainStore, Storage, codec
from tests.fuzz import made
from tests.fuzz.rules import Started, comes_to_one_line, examples, no_ray, no_rendering, say, tree

JUNK = [
    *(b"", b"\x00" * 64, b"\xff\xfe", b"[" * 100_000),
    *b'{} [] null 1e999 PAR1 {"format":1} <html>'.split(),
]


@dataclass(frozen=True)
class Stored:
    """The run and what its files held."""

    root: Path
    run: Path
    files: dict[str, bytes]

    def restore(self, name: str) -> None:
        (self.root / name).write_bytes(self.files[name])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("store")
    run = made.make(folder)
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        no_ray(patch)
        yield Stored(folder, run, files)


@dataclass(frozen=True)
class Damage:
    """One file is cut, flipped or replaced; places are shares of its length, so that they fit every file."""

    file: int
    kind: str
    places: tuple[float, ...]
    junk: bytes

    def name(self, stored: Stored, only: str = "") -> str:
        names = [n for n in stored.files if only in n]
        return names[self.file % len(names)]

    def apply(self, data: bytes) -> bytes:
        if self.kind == "cut":
            return data[: int(self.places[0] * len(data))]
        if self.kind == "flip" and data:
            changed = bytearray(data)
            for place in self.places:
                bit = min(int(place * len(data) * 8), len(data) * 8 - 1)
                changed[bit // 8] ^= 1 << bit % 8
            return bytes(changed)
        return self.junk + (data if self.kind == "before" else b"")


damages = st.builds(
    Damage,
    file=st.integers(0, 10_000),
    kind=st.sampled_from(["cut", "flip", "flip", "replace", "before"]),
    # The ends of a file hold what says how to read the rest.
    places=st.lists(
        st.floats(0, 1, exclude_max=True) | st.floats(0, 0.02) | st.floats(0.98, 1, exclude_max=True),
        min_size=1,
        max_size=4,
    ).map(tuple),
    junk=st.sampled_from(JUNK) | st.binary(max_size=40),
)


def damaged(stored: Stored, name: str, data: bytes) -> dict[str, str]:
    (stored.root / name).write_bytes(data)
    return tree(stored.root)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    no_rendering(monkeypatch)


@examples(70, "store")
@given(damage=damages)
def test_reading_and_predicting(stored: Stored, damage: Damage) -> None:
    name = damage.name(stored)
    before = damaged(stored, name, damage.apply(stored.files[name]))
    try:
        result = comes_to_one_line(lambda: rc.load(str(stored.run)))
        if result is not None:
            comes_to_one_line(result.results)
            comes_to_one_line(result.table)
            assert repr(result).startswith("Result ")
            p = comes_to_one_line(lambda: result.predict(np.zeros((2, 64), np.float32)))
            assert p is None or np.allclose(p.sum(1), 1)
        for spec in made.comparison().chains().values():
            chain = ChainStore(Storage(stored.root), spec.digest)
            for read in (chain.records, chain.newest_checkpoint, chain.progress, chain.spec, chain.seconds):
                comes_to_one_line(read)
            comes_to_one_line(lambda c=chain: c.attempt(c.last_attempt()))
            comes_to_one_line(lambda c=chain, s=spec: c.finished(2) or s)
        assert tree(stored.root) == before
    finally:
        stored.restore(name)


@examples(40, "store")
@given(
    damage=damages, only=st.sampled_from(["", "runs/small/"]), command=st.sampled_from(["report", "report", "evaluate"])
)
def test_report_and_evaluate(stored: Stored, quick: None, damage: Damage, only: str, command: str) -> None:
    """Of any file; half of them the run's own."""
    name = damage.name(stored, only)
    before = damaged(stored, name, damage.apply(stored.files[name]))
    try:
        said = say([command, str(stored.run)])
        assert said.status is not None or command == "evaluate"
        assert tree(stored.root) == before
    finally:
        stored.restore(name)


@examples(40, "store")
@given(damage=damages)
def test_a_damaged_checkpoint_is_never_taken_for_a_whole_one(stored: Stored, damage: Damage) -> None:
    name = damage.name(stored, "checkpoints/")
    spec = made.comparison().arms[0].chains[0][1]
    chain = ChainStore(Storage(stored.root), spec.digest)
    whole, _ = codec.flatten(chain.newest_checkpoint())
    damaged(stored, name, damage.apply(stored.files[name]))
    try:
        state = comes_to_one_line(chain.newest_checkpoint)
        if state is not None:
            found, _ = codec.flatten(state)
            assert found.keys() == whole.keys() and whole
            assert all(torch.equal(t, whole[n]) for n, t in found.items())  # both hold the same step's state
    finally:
        stored.restore(name)


# Plans that are whole JSON and say something else

REPLACEMENTS: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "../../x", "raychains.tasks.digits:Digits", "os:system", [], {}, [[]],
    [None], {"kind": "x"}, [1, 2], "\ud800", "nan", "cyclical", float("nan"), float("inf"),
]  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested JSON."""
    yield at
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*at, key))


def changed(value: Any, place: tuple[Any, ...], how: str, new: Any) -> Any:
    """JSON with one place replaced, removed or given an extra entry."""
    out = json.loads(json.dumps(value))
    if not place:
        return new
    inner = out
    for key in place[:-1]:
        inner = inner[key]
    if how == "remove":
        del inner[place[-1]]
    elif how == "extra" and isinstance(inner[place[-1]], dict):
        inner[place[-1]]["more"] = new
    elif how == "extra" and isinstance(inner[place[-1]], list):
        inner[place[-1]].append(new)
    else:
        inner[place[-1]] = new
    return out


@examples(50, "store")
@given(
    number=st.integers(0, 100_000),
    how=st.sampled_from(["replace", "replace", "remove", "extra"]),
    new=st.sampled_from(REPLACEMENTS),
    command=st.sampled_from(["report", "report", "evaluate"]),
)
@example(number=142, how="replace", new=True, command="report")
def test_a_plan_that_says_something_else(
    stored: Stored, quick: None, number: int, how: str, new: Any, command: str
) -> None:
    name = "runs/small/plan.json"
    plan = json.loads(stored.files[name])
    places = list(paths(plan))
    written = changed(plan, places[number % len(places)], how, new)
    before = damaged(stored, name, json.dumps(sealed(written) if isinstance(written, dict) else written).encode())
    try:
        say([command, str(stored.run)])
        assert tree(stored.root) == before
    finally:
        stored.restore(name)


def test_the_run_itself_is_whole(stored: Stored) -> None:
    """What the properties above are compared with: undamaged, everything works, and evaluation would start Ray."""
    assert say(["report", str(stored.run)]).status == 0
    assert say(["evaluate", str(stored.run)]).status is None
    with pytest.raises(Started):
        rc.evaluate(str(stored.run))
    result = rc.load(str(stored.run))
    assert np.allclose(result.predict(np.zeros((2, 64), np.float32)).sum(1), 1)
    for spec in made.comparison().chains().values():
        assert len(ChainStore(Storage(stored.root), spec.digest).records()) == 2
