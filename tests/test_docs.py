"""The pages hold: generated parts are up to date, links lead somewhere, commands parse, every page is in the index."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import operator
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from raychains import measures, samplers
from raychains.cli import COMMANDS, parse
from raychains.core.errors import UserError
from raychains.core.user_code import is_path
from raychains.measures import weights
from raychains.planning import views
from raychains.samplers import METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.rglob("*.md"))]
    if DOCS / "results" not in page.parents
}
SAMPLERS = PAGES["docs/reference/samplers.md"]
COMMAND_LINES = sorted({line for page in PAGES.values() for line in re.findall(r"^\$ raychains (.+)$", page, re.M)})
LINK = re.compile(r"\]\(([^)\s]+)\)")


def build() -> Any:
    spec = importlib.util.spec_from_file_location("build", DOCS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["samplers.md", "options.md"])
def test_the_generated_parts_are_up_to_date(name: str) -> None:
    page = PAGES[f"docs/reference/{name}"]
    assert page == build().filled(name, page), "run: python docs/build.py"


def test_a_change_of_a_docstring_is_noticed() -> None:
    made = build()
    equation = made.paragraphs(samplers.SGLD)[0]
    assert SAMPLERS.count(equation) == 1
    assert made.filled("samplers.md", SAMPLERS.replace(equation, "θ ← θ")) == SAMPLERS


def test_every_method_and_sampler_is_on_the_page() -> None:
    for name in METHODS:
        assert f"| `{name}` |" in SAMPLERS
    for kind in samplers.KINDS.values():
        assert f"| **{kind.__name__}**: " in SAMPLERS


def test_every_option_is_on_the_page() -> None:
    page = PAGES["docs/reference/options.md"]
    for command in COMMANDS:
        assert f"## `raychains {command}`" in page
    options = {
        f"--{name.replace('_', '-')}" for name in inspect.signature(build().config.Compare).parameters if name != "run"
    }
    assert options <= set(re.findall(r"^\| `(--[\w-]+)`", page, re.M))


@pytest.mark.parametrize("kind", samplers.KINDS.values(), ids=list(samplers.KINDS))
def test_a_docstring_explains_every_setting_and_no_other(kind: type[samplers.Sampler]) -> None:
    names = {name for name in inspect.signature(kind).parameters}
    doc = inspect.getdoc(kind) or ""
    arguments = doc.partition("Args:\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^    (\w+): ", arguments, flags=re.M)) == names
    assert doc.index("Target: ") < doc.index("Args:\n") < doc.index("Raises:\n") < doc.index("Source: ")


# Links


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_and_pictures_lead_somewhere() -> None:
    links = [(name, link) for name, page in PAGES.items() for link in LINK.findall(page)]
    assert links and [(name, link) for name, link in links if not leads_somewhere(name, link)] == []


def leads_somewhere(name: str, link: str) -> bool:
    """Return whether a page's link leads to a file that is there, and to one of its headings where it names one."""
    path, _, anchor = link.partition("#")
    if path.startswith("https://"):
        return True
    target = ((ROOT / name).parent / path).resolve() if path else ROOT / name
    return target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))


def test_the_index_lists_every_page() -> None:
    index = DOCS / "README.md"
    listed = {(DOCS / link).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
    pages = {ROOT / name for name in PAGES if name.startswith("docs/")} - {index}
    assert pages | {DOCS / "results" / "README.md"} <= listed


def test_code_that_the_pages_name_exists() -> None:
    named = re.findall(r"`(raychains/[\w/]+)\.py`: ((?:`[\w.]+`(?: and )?)+)", PAGES["docs/concepts/code.md"])
    assert len(named) > 30
    for file, names in named:
        module = importlib.import_module(file.replace("/", "."))
        for name in re.findall(r"[\w.]+(?=`)", names):
            assert operator.attrgetter(name)(module)


def test_pages_that_the_code_names_exist() -> None:
    files = [f for folder in ("raychains", "jobs", "benchmarks", "deploy") for f in (ROOT / folder).rglob("*")]
    texts = [
        f.read_text(encoding="utf-8") for f in [*files, ROOT / "cluster.yaml"] if f.suffix in (".py", ".yaml", ".md")
    ]
    named = {page for text in texts for page in re.findall(r"\bdocs/[\w/-]+\.md", text)}
    assert named and {page for page in named if not (ROOT / page).is_file()} == set()


# Commands and code


def test_commands_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sweep in ("NAME", "first"):
        best = tmp_path / "runs" / "sweeps" / sweep / "best.json"
        best.parent.mkdir(parents=True)
        best.write_text(json.dumps({"task": "digits", "exploration": 0.25, "cycles": 4}))
    chosen = tmp_path / "runs" / "runs" / "first" / "options.json"
    chosen.parent.mkdir(parents=True)
    chosen.write_text(json.dumps({"task": "digits", "exploration": 0.25, "cycles": 4}))
    monkeypatch.chdir(tmp_path)
    wrong = {}
    for line in COMMAND_LINES:
        try:
            check_command(line)
        except (UserError, AssertionError) as error:
            wrong[line] = repr(error)
    assert COMMAND_LINES and wrong == {}


def check_command(line: str) -> None:
    command, *words = shlex.split(line.partition(" #")[0])
    if command.startswith("--"):
        return
    assert command in COMMANDS
    options = parse(command, words)
    assert (options is None) is ("--help" in words)
    if "--options" in words:
        assert (options.exploration, options.cycles) == (0.25, 4)
    if command == "evaluate":
        views.check(options.views)
        weights.check(options.weights)
        assert all(measures.named(name) for name in options.measures if not is_path(name))


def test_a_command_that_is_wrong_is_noticed() -> None:
    with pytest.raises(UserError, match="gpus-per-chains"):
        parse("run", ["--gpus-per-chains", "1"])


def test_python_compiles() -> None:
    for name, page in PAGES.items():
        for code in re.findall(r"```python\n(.*?)```", page, flags=re.S):
            compile(code, name, "exec")


def test_lines_of_prose_end_at_120_characters() -> None:
    found = []
    for name in sorted(PAGES):
        prose = re.sub(r"^```.*?^```", "", PAGES[name], flags=re.M | re.S)
        lines = [line for line in prose.splitlines() if not line.startswith(("|", "![", "    "))]  # prose, not tables
        found += [f"{name}: {line}" for line in lines if len(line) > 120]
    assert found == []


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) < 120
