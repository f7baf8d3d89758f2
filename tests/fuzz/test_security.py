"""What somebody else wrote cannot run here, reach outside the store, or become part of the page."""

from __future__ import annotations

import ast
import base64
import dataclasses
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raychains
import raychains as rc
from raychains.core.checksum import sealed
from raychains.core.errors import UserError
from raychains.planning import Comparison
from raychains.report import run_page
from raychains.store import ChainStore, RunStore, Storage
from raychains.store.chain_store import encode_index
from tests.fuzz import made
from tests.fuzz.rules import no_ray, say, tree
from tests.report import runs

PACKAGE = Path(raychains.__file__).parent
UNPICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
UNPICKLERS |= {"yaml"}
RUNS_TEXT = {"eval", "exec", "compile"}
RESTRICTED = "data/formats.py"
"""The one file that reads pickles, CIFAR's published ones, by an unpickler that knows nothing but arrays."""


WRITES = "data/standins.py"
"""The one file that writes some, of arrays and texts in CIFAR's own format."""


def dangers(source: str) -> list[str]:
    """Where code could come out of data: unpickling imports and calls, and text that is run."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in UNPICKLERS]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
            found += [
                n for n in names if n.partition(".")[0] in UNPICKLERS or n in ("torch.load", "numpy.load", "torch.hub")
            ]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            ends = called.rpartition(".")[2]
            tensors_alone = any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)
            if (
                called in RUNS_TEXT
                or ends in ("read_pickle", "unsafe_load")
                or called == "torch.jit.load"
                or (called == "torch.load" and not tensors_alone)
            ):
                found.append(called)
            pickles = [ast.unparse(k.value) for k in node.keywords if k.arg == "allow_pickle"]
            if (called in ("np.load", "numpy.load") and not pickles) or any(p != "False" for p in pickles):
                found.append(f"{called}(…)")
            if any(k.arg == "shell" for k in node.keywords) or called in ("os.system", "os.popen"):
                found.append(called)
    return found


def test_nothing_unpickles_or_runs_text() -> None:
    sources = sorted(PACKAGE.rglob("*.py"))
    assert len(sources) > 80
    wrong = {str(f.relative_to(PACKAGE)): d for f in sources if (d := dangers(f.read_text(encoding="utf-8")))}
    assert wrong == {RESTRICTED: ["pickle"], WRITES: ["pickle"]}
    assert used_of_pickle(RESTRICTED) == {"Unpickler", "UnpicklingError"} and used_of_pickle(WRITES) == {"dumps"}


def used_of_pickle(file: str) -> set[str]:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "pickle"}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from cloudpickle import loads", "torch.load(f)", "torch.load(f, weights_only=False)",
     "torch.load(f, weights_only=not True)", "from torch import load", "np.load(f)", "pd.read_pickle(f)",
     "g(f, allow_pickle=True)", "np.load(f, allow_pickle=x)", "eval(text)", "run(text, shell=True)"],
)  # fmt: skip
def test_that_would_be_found(source: str) -> None:
    assert dangers(source)


# Names


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("outer") / "store"
    made.make(folder)
    (folder.parent / "secret.safetensors").write_bytes(next(folder.glob("chains/*/samples/*")).read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        no_ray(patch)
        yield folder


OUTSIDE = [
    "..", "../x", "/etc/x", "a/../../x", "a/b", "a\\b", ".hidden", "", "a\nb", "a\x00b", "\u2025", "x" * 101, "~",
]  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_run_cannot_be_named_out_of_its_store(name: str, store: Path) -> None:
    before = tree(store.parent)
    if name:  # an empty one is none
        said = say(["run", "--store", str(store), "--name", name])
        assert said.status == 2 and "name must be 1 to 100" in said.err
    with pytest.raises(UserError):
        RunStore(Storage(store), name)
    assert tree(store.parent) == before


def test_an_index_cannot_name_a_file_outside_its_chain(store: Path) -> None:
    digest = made.comparison().arms[0].chains[0][0].digest
    chain, table = ChainStore(Storage(store), digest), store / "chains" / digest / "samples.parquet"
    before = table.read_bytes()
    row = {**chain.records()[0].meta.to_json(), "sha256": chain.records()[0].sha256}
    target = str(store.parent / "secret.safetensors")
    for file in ("../../../secret.safetensors", target, "samples/../../../../secret.safetensors", "samples/\x00"):
        table.write_bytes(encode_index([{**row, "file": file}] * 2, chain.last_attempt()))
        with pytest.raises(UserError, match="a name in the store must be relative"):
            chain.read_sample(file)
        with pytest.raises(UserError):
            rc.load(str(store / "runs" / "small")).predict(np.zeros((1, 64), np.float32))
    table.write_bytes(before)
    assert len(chain.records()) == 2


@pytest.mark.parametrize("digest", ["../../..", "..", "/etc", "a/../../..", "\x00"])
def test_a_plan_cannot_name_a_chain_outside_the_store(digest: str, store: Path) -> None:
    data = made.comparison().to_json()
    old = next(iter(data["chains"]))
    with pytest.raises(UserError, match="plan: chain"):
        Comparison.from_json(json.loads(json.dumps(data).replace(old, json.dumps(digest)[1:-1])))
    for read in (ChainStore(Storage(store), digest).records, ChainStore(Storage(store), digest).diagnoses):
        with pytest.raises(UserError):
            read()


# The page

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</pre></style></title><iframe src=//x></iframe>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;\u202egnp\u0000\u0007\ud800<!--",
    "javascript:alert(1)",
)
ELEMENTS = """
html head meta title style body main header p h1 h2 h3 dl div dt dd span section table thead tbody tr th td i strong
figure picture source img figcaption a ul li details summary code pre footer
"""
ATTRIBUTES = "aria-label lang charset name content http-equiv class id scope style media srcset alt src href"


class Elements(HTMLParser):
    """Every element with its attributes, all text, and how deep things are when the page ends."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.comments = "", 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments += 1


def drawn(folder: Path, texts: list[str]) -> Elements:
    """The page of a small run in which people wrote ``texts`` wherever they can."""
    plan = runs.single(
        epochs=4, chains=2, cycles=2, samples_per_cycle=1, repeats=2, task_settings=("hidden=[4]", "train=60")
    )
    everything = " ".join(texts)
    stored = everything.replace("\ud800", "?")  # plans with half of a surrogate pair are refused
    change: dict[str, Any] = {"label": stored, "name": stored, "sampler": stored, "schedule": stored}
    plan = runs.altered(plan, _0={**change, "published": {"error": stored}})
    plan = dataclasses.replace(plan, task=stored)
    store = runs.store_run(folder, plan, notes=[f"warning: {everything}", everything])
    told = json.loads((folder / "runs" / "small" / "plan.json").read_text())
    (folder / "runs" / "small" / "plan.json").write_text(json.dumps(sealed({**told, "command": everything})))
    digests = list(plan.chains())
    store.write_table("failed", [{"digest": d, "reason": f"{stored}\n{stored}"} for d in digests])
    chain = ChainStore(Storage(folder), digests[0])
    (folder / "chains" / digests[0] / "incarnations" / "1.json").write_text(
        json.dumps(
            {
                "environment": {**dict.fromkeys(("torch", "device", "cuda"), everything), "threads": 1},
                "host": everything,
            }
        )
    )
    chain.publish_diagnosis({"error": everything, "format": 1}, 3, 1)
    (folder / "chains" / digests[1] / "samples.parquet").unlink()  # a failed chain has not finished
    next((folder / "chains" / digests[1] / "samples").iterdir()).unlink()
    run_page.write(store, Comparison.from_json(store.plan()["comparison"]))
    for image in (folder / "runs" / "small" / "figures").glob("*.svg"):
        check_svg(image.read_bytes())
    return Elements((folder / "runs" / "small" / "report.html").read_text(encoding="utf-8"))


def check_svg(data: bytes) -> None:
    for element in ElementTree.fromstring(data).iter():
        assert element.tag.rpartition("}")[2] not in ("script", "foreignObject", "image", "a", "iframe"), element.tag
        assert not [a for a in element.attrib if a.lower().startswith("on")]


def test_nothing_that_people_wrote_becomes_an_element(tmp_path: Path) -> None:
    evil, harmless = drawn(tmp_path / "evil", list(EVIL)), drawn(tmp_path / "harmless", ["x"] * len(EVIL))
    # The same elements, in the same order, with the same attributes: text is all that differs.
    assert [(tag, sorted(a)) for tag, a in evil.found] == [(tag, sorted(a)) for tag, a in harmless.found]
    assert evil.comments == harmless.comments == 0
    assert len(evil.found) > 100 and {tag for tag, _ in evil.found} <= set(ELEMENTS.split())
    for tag, attributes in evil.found:
        assert attributes.keys() <= set(ATTRIBUTES.split()), (tag, attributes)
        for name in ("src", "srcset"):
            value = attributes.get(name)
            if value is not None:
                kind, _, data = value.partition(",")
                assert kind == "data:image/svg+xml;base64"
                check_svg(base64.b64decode(data, validate=True))
        assert (attributes.get("href") or "figures/").startswith("figures/")
        if "style" in attributes:
            assert set(attributes["style"] or "") <= set("abcdefghijklmnopqrstuvwxyz-:;#0123456789")
    for text in EVIL[:5]:
        assert evil.text.count(text) >= 8, text  # shown as it was written: names, labels, notes, reasons, environment
    assert "49" not in evil.text.partition("{{ 7")[0][-5:]
