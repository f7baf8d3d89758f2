"""A user's class is identified by its source: what counts, what does not, and who is refused."""

from __future__ import annotations

import importlib
import linecache
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import raychains as rc
from raychains import samplers
from raychains.api import plans
from raychains.core.spec import Part
from raychains.core.user_code import source_of
from tests.checks import refused

SAMPLER = '''
"""A module."""
import raychains as rc

SCALE = 1.0


class Base(rc.SGLD):
    """A base."""

    def scale(self):
        return 1.0


class Mine(Base):
    """A sampler."""

    def _update(self, group, params, grads):
        """Make a step."""
        super()._update(group, params, [g * self.scale() for g in grads])  # as SGLD
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)


def imported(folder: Path, text: str) -> Any:
    """The class of a module with this text, as a process finds it that starts now."""
    sys.modules.pop("mine", None)
    (folder / "mine.py").write_text(text)
    importlib.invalidate_caches()
    linecache.clearcache()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        return importlib.import_module("mine").Mine
    finally:
        sys.dont_write_bytecode = before


def test_what_the_code_does_counts_and_how_it_looks_does_not(folder: Path) -> None:
    source = source_of(imported(folder, SAMPLER))
    same = [
        SAMPLER.replace("  # as SGLD", ""),
        SAMPLER.replace("Make a step.", "Make one step of a group."),
        SAMPLER.replace('    """A sampler."""\n', ""),
        SAMPLER.replace(
            "[g * self.scale() for g in grads]", "[\n            g * self.scale() for g in grads\n        ]"
        ),
        SAMPLER.replace("SCALE = 1.0", "SCALE = 2.0"),  # nothing outside of the class and its bases
    ]
    assert [source_of(imported(folder, text)) for text in same] == [source] * len(same)
    others = [SAMPLER.replace("g * self", "-g * self"), SAMPLER.replace("return 1.0", "return 1.5")]
    assert len({source, *(source_of(imported(folder, text)) for text in others)}) == 3
    assert source_of(rc.SGLD) is None and source_of(rc.Cyclical) is None


def test_a_changed_sampler_is_another_chain_and_cannot_go_on_with_the_old_one(folder: Path) -> None:
    def spec() -> Any:
        planned = plans.run(rc.Run(task="gaussian", sampler="mine:Mine", lr=0.1, steps=100, chains=1, repeats=1))
        return planned.comparison.arms[0].chains[0][0]

    imported(folder, SAMPLER)
    first = spec()
    assert spec() == first and type(first).from_json(first.to_json()) == first
    imported(folder, SAMPLER.replace("return 1.0", "return 1.5"))
    second = spec()
    assert second.digest != first.digest and second.sampler.settings == first.sampler.settings

    with refused("sampler mine:Mine must have the source that the chain was planned with"):
        rc.Chain(first)
    older = Part(kind="mine:Mine", revision=first.sampler.revision, settings=first.sampler.settings)
    assert "source" not in str(older.to_json())  # an older version's spec, which any class of the name continues
    theta = torch.nn.Parameter(torch.zeros(2))
    assert samplers.build(older, [theta], lr=0.1, temperature=1.0, seed=0).kind == "mine:Mine"


def test_a_built_in_sampler_has_no_source_in_its_spec() -> None:
    planned = plans.run(rc.Run(task="gaussian", sampler="sgld", steps=100, chains=1, repeats=1))
    spec = planned.comparison.arms[0].chains[0][0]
    assert "source-sha256" not in str(spec.to_json()) and "facts" not in planned.comparison.to_json()


def test_a_damaged_source_is_refused() -> None:
    with refused("a part's source-sha256 must be a sha256"):
        Part.from_json({"kind": "a:B", "revision": 1, "source-sha256": 3})


def test_a_class_without_source_is_refused() -> None:
    module = types.ModuleType("typed")
    exec("import raychains as rc\nclass Typed(rc.SGLD):\n    def more(self): pass", module.__dict__)
    module.Typed.__module__ = "typed"
    with refused("Typed must be a class of a file or a notebook's cell"):
        source_of(module.Typed)


def test_a_notebooks_cell_is_a_source() -> None:
    """IPython enters each cell into `linecache` under a name of its own; the last definition of a class counts."""
    found = []
    for number, scale in enumerate((1.0, 1.0, 2.0)):
        text = f"class Cell(rc.SGLD):\n    def scale(self):\n        return {scale}\n"
        name = f"/tmp/ipykernel_1/{number}.py"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        space: dict[str, Any] = {"rc": rc, "__name__": "__main__"}
        exec(compile(text, name, "exec"), space)
        found.append((space["Cell"].kind, source_of(space["Cell"])))
    assert found[0] == found[1] and found[1][1] != found[2][1] and found[0][0] == "__main__:Cell"
    assert samplers.method("__main__:Cell").label == "Cell"
