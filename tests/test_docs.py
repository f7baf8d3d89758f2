"""docs/samplers.md says what the code says: its generated parts are those of the present docstrings and signatures."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from raychains import samplers
from raychains.methods import METHODS

DOCS = Path(__file__).parents[1] / "docs"


def build() -> Any:
    spec = importlib.util.spec_from_file_location("build", DOCS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_parts_are_up_to_date() -> None:
    page = (DOCS / "samplers.md").read_text()
    assert page == build().filled(page), "run: python docs/build.py"


def test_every_method_and_sampler_is_on_the_page() -> None:
    page = (DOCS / "samplers.md").read_text()
    for name in METHODS:
        assert f"| `{name}` |" in page
    for kind in samplers.KINDS.values():
        assert f"**{kind.__name__}**" in page and f"### {kind.__name__}\n" in page


def test_a_change_of_a_docstring_is_noticed() -> None:
    made = build()
    page = (DOCS / "samplers.md").read_text()
    equation = made.paragraphs(samplers.SGLD)[0]
    assert page.count(equation) == 1
    assert made.filled(page.replace(equation, "θ ← θ")) == page


@pytest.mark.parametrize("kind", samplers.KINDS.values(), ids=list(samplers.KINDS))
def test_a_docstring_explains_every_setting_and_no_other(kind: type[samplers.Sampler]) -> None:
    names = {name for name in inspect.signature(kind).parameters}
    doc = inspect.getdoc(kind) or ""
    arguments = doc.partition("Args:\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^    (\w+): ", arguments, flags=re.M)) == names
    assert doc.index("Target: ") < doc.index("Args:\n") < doc.index("Raises:\n") < doc.index("Source: ")


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (DOCS / "samplers.md").read_text())
    assert pictures and all((DOCS / p).is_file() for p in pictures)
