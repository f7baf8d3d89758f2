"""The report page: complete, in both colour schemes, true to the store, safe whatever people write in it."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raychains.inference import results
from raychains.inference.run_data import RunData
from raychains.planning import Comparison
from raychains.plotting.style import DARK, HEAT, PAPER
from raychains.report import run_page
from raychains.report.figures import samples
from raychains.store import RunStore, Storage, SweepStore, codec
from tests.report import runs

EVIL = '<script>alert("x")</script>'
CLASSIFICATION = {"spread", "samples", "reliability", "calibration", "schedules", "learning"}
DENSITY = {"spread", "density", "samples", "schedules"}


class Page(HTMLParser):
    """What a browser would find: tags with attributes, and the text outside of styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html, self.tags, self.text = html, [], ""
        self.rows: list[list[tuple[str, bool]]] = []
        self._in: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "source", "br"):
            self._in.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append(("", "best" in (dict(attrs).get("class") or "").split()))

    def handle_endtag(self, tag: str) -> None:
        while self._in and self._in.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" in self._in:
            return
        self.text += data
        if ("td" in self._in or "th" in self._in) and self.rows:
            text, bold = self.rows[-1][-1]
            self.rows[-1][-1] = text + data, bold

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.tags if t == tag]

    def figures(self) -> set[str | None]:
        return {a["id"] for a in self.attributes("figure")}

    def row(self, label: str) -> dict[str, tuple[str, bool]]:
        """The comparison's row of an arm: text and boldness by column (the last of equal names)."""
        head = [" ".join(text.split()) for text, _ in self.rows[0]]
        row = next(r for r in self.rows[1:] if r[0][0] == label)
        return dict(zip(head, row, strict=True))


def follows_the_colour_scheme(svg: bytes, palette: bool = True) -> None:
    """Every colour of the palette has a rule for dark pages; where the palette is said to be all, no other is there."""
    tree = ElementTree.fromstring(svg)
    elements = [e for e in tree.iter() if e.get("style")]
    sheet = next(e.text or "" for e in tree.iter() if "prefers-color-scheme: dark" in (e.text or ""))
    rules = dict(re.findall(r'\[style\*="((?:fill|stroke): #\w+)"\]\{(\S+)!important\}', sheet))
    found = {m for e in elements for m in re.findall(r"(?:fill|stroke): #\w+", e.get("style") or "")}
    assert len(elements) > 40 and f"fill: {PAPER}" in found
    for light, dark in DARK.items():
        for name in ("fill", "stroke"):
            assert rules[f"{name}: {light}"] == f"{name}:{dark}"
    assert not palette or found <= {*rules, f"fill: {HEAT[-1]}"}, "no colour is outside of the palette"


def loads_nothing(page: Page) -> None:
    """The page needs no other address and runs no script; its policy says so."""
    assert not re.search(r"https?://", page.html) and "<script" not in page.html.lower()
    assert "@import" not in page.html and "url(" not in page.html
    for tag in ("script", "link", "iframe", "object"):
        assert not page.attributes(tag)
    for name in ("src", "srcset"):
        for _, attributes in page.tags:
            assert (attributes.get(name) or "data:image/svg+xml;base64,").startswith("data:image/svg+xml;base64,")
    policy = next(a["content"] for a in page.attributes("meta") if a.get("http-equiv"))
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def figures_are_files(store: RunStore | SweepStore, page: Page, prefix: str = "", palette: bool = True) -> None:
    """Each figure of a page is there in both colour schemes, and beside it as two files and its numbers."""
    images, names = page.attributes("img"), page.figures()
    assert len(images) == len(names) and "could not be drawn" not in page.text
    for image in images:
        follows_the_colour_scheme(base64.b64decode((image["src"] or "").partition(",")[2]), palette)
        assert image["alt"]
    for name in (f"figures/{prefix}{name}" for name in names):
        assert Path(store.location(f"{name}.svg")).read_bytes().startswith(b"<?xml")
        assert Path(store.location(f"{name}.png")).read_bytes().startswith(b"\x89PNG")
        assert store.table(name).num_rows > 0  # type: ignore[union-attr]


def draw(store: RunStore, comparison: object) -> Page:
    location = run_page.write(store, comparison)  # type: ignore[arg-type]
    assert location == store.location("report.html")
    html = Path(location).read_text(encoding="utf-8")
    found = Page(html)
    assert "could not be drawn" not in found.text
    return found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Page]:
    arms = runs.digits().arms
    fewer = dataclasses.replace(runs.digits(), arms=(*arms[:4], arms[4], arms[7]))
    comparison = runs.altered(fewer, _0={"label": EVIL}, _1={"published": {"error": EVIL}})
    missing = comparison.arms[2]
    store = runs.store_run(
        tmp_path_factory.mktemp("digits"),
        comparison,
        notes=[f"warning: {EVIL}", f"a note {EVIL}"],
        without=[missing.name],
    )
    return store, draw(store, comparison)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Page]:
    published = {f"_{i}": {"published": {"modes": v}} for i, v in enumerate(("1.8 ± 0.13", "6.7 ± 0.52"))}
    comparison = runs.altered(runs.mixture(), **published)
    store = runs.store_run(tmp_path_factory.mktemp("mixture"), comparison)
    return store, draw(store, comparison)


@pytest.fixture(params=["digits", "mixture"])
def drawn(request: pytest.FixtureRequest) -> tuple[RunStore, Page]:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_page_loads_nothing_from_anywhere(drawn: tuple[RunStore, Page]) -> None:
    loads_nothing(drawn[1])


def test_every_figure_is_there_in_both_colour_schemes_and_as_files(drawn: tuple[RunStore, Page]) -> None:
    store, found = drawn
    expected = DENSITY if "density" in found.figures() else CLASSIFICATION
    assert found.figures() == expected
    figures_are_files(store, found)
    (rule,) = re.findall(r"^img \{(.*?)\}", found.html, flags=re.M)
    assert "width: 100%" in rule and "min-width" not in rule, "whole on narrow pages"
    assert "prefers-color-scheme: dark" in found.html  # the page's own colours change too
    links = {a["href"] for a in found.attributes("a") if not (a["href"] or "").startswith("#")}
    assert links == {f"figures/{name}.{kind}" for name in expected for kind in ("svg", "png", "parquet")}


def test_what_people_wrote_is_escaped(digits: tuple[RunStore, Page]) -> None:
    _, found = digits
    assert found.text.count(EVIL) >= 5  # label in two tables and a heading, published value, two notes


def test_arm_without_result_shows_dashes_and_says_why(digits: tuple[RunStore, Page]) -> None:
    store, found = digits
    arm = store.plan()["comparison"]["arms"][2]
    row = found.row(arm["label"])
    assert row["Repeats"][0] == "0 of 2"
    assert row["Error (%) ↓"][0] == row["Brier score ↓"][0] == row["Samples"][0] == "–"
    assert f"{arm['label']}: no result yet; 0 of its 4 chains are finished." in found.text


def test_numbers_and_bold_follow_the_results(digits: tuple[RunStore, Page]) -> None:
    store, found = digits
    by_arm = store.table("results").to_pandas().groupby("arm")["nll"]  # type: ignore[union-attr]
    mean, error = by_arm.mean(), by_arm.std(ddof=1) / 2**0.5
    first = mean.idxmin()
    labels = {a["name"]: a["label"] for a in store.plan()["comparison"]["arms"] if a["name"] in mean}
    for name, label in labels.items():
        m, e = mean[name], error[name]
        within = m - mean[first] <= (e**2 + error[first] ** 2) ** 0.5
        assert found.row(label)["NLL (nats) ↓"] == (f"{m:.4f} ± {e:.4f}", within)
    assert found.row(labels[first])["NLL (nats) ↓"][1]


def test_an_arm_with_a_repeat_that_has_no_number_has_none_and_is_not_the_best(
    digits: tuple[RunStore, Page],
) -> None:
    comparison = runs.digits()
    table = digits[0].table("results").to_pandas()  # type: ignore[union-attr]
    best = table.groupby("arm")["nll"].mean().idxmin()
    first = table.index[table["arm"] == best][0]
    table.loc[first, "nll"] = math.nan
    summary = results.summary(comparison, table, RunData(digits[0], comparison).measured)
    assert math.isnan(summary.loc[best, "nll"]) and math.isnan(summary.loc[best, "nll_se"])
    mine = table.loc[table["arm"] == best, "error"]
    assert summary.loc[best, "error"] == pytest.approx(mine.mean())
    assert summary.loc[best, "error_se"] == pytest.approx(mine.std(ddof=1) / 2**0.5)
    curves = pd.DataFrame({"samples": [1, 1, 2, 2], "nll": [1.0, 3.0, 1.0, math.nan]})
    n, mean, error = samples.mean_and_error(curves, "nll")
    assert n.tolist() == [1, 2] and mean[0] == 2 and error[0] == 1 and np.isnan([mean[1], error[1]]).all()


def test_mixture_stands_beside_published_values_and_exact_theory(mixture: tuple[RunStore, Page]) -> None:
    _, found = mixture
    row = found.row("cSGLD, 1 chain")
    assert row["Published"][0] == "6.7 ± 0.52"
    assert row["Exact theory"][0] == f"{25 * (1 - 0.96**3):.2f}"
    assert found.row("cSGLD, 2 chains")["Published"][0] == "–"
    assert found.row("cSGLD, 2 chains")["Exact theory"][0] == f"{25 * (1 - 0.96**6):.2f}"
    assert row["Steps per chain / total"][0] == "2,400 / 2,400" and row["Draws"][0] == "1,800"
    for part in ("Zhang et al., ICLR 2020", "Table 4", "25·(1 − 0.96^k)", "not expected here"):
        assert part in found.text


def test_page_states_settings_environment_and_budget(digits: tuple[RunStore, Page]) -> None:
    store, found = digits
    chain = store.plan()["comparison"]["arms"][0]["chains"][0][0]
    parts = [
        "β = 0.5 of a cycle",
        "cyclical cosine from",
        chain[:12],
        "saved by sharing 4 chains",
        store.location(),
        "torch",
    ]
    assert [part for part in [*parts, json.dumps("sgld")] if part not in found.text] == []  # the whole specification


def test_single_repeat_shows_no_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not rendered: that takes most of the time."""
    monkeypatch.setattr(run_page, "render", lambda drawing: (b"<svg/>", b"png"))
    comparison = runs.single()
    found = draw(runs.store_run(tmp_path, comparison, progress=False), comparison)
    assert "nan" not in found.text.lower()
    text, bold = found.row(comparison.arms[0].label)["Error (%) ↓"]
    assert re.fullmatch(r"\d+\.\d\d", text) and not bold  # one arm is the best of nothing
    assert "A single repeat" in found.text
    assert found.figures() == {"samples", "reliability", "calibration", "schedules"}  # no losses, no spread


def test_run_without_any_result_is_drawn(tmp_path: Path) -> None:
    comparison = runs.mixture()
    store = runs.store_run(tmp_path, comparison, without=[arm.name for arm in comparison.arms])
    found = draw(store, comparison)
    assert found.figures() == {"schedules"}
    assert "no chain has begun" in found.text


def test_damaged_sample_costs_its_figure_only(
    tmp_path: Path, mixture: tuple[RunStore, Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures are drawn, but not rendered."""
    monkeypatch.setattr(run_page, "render", lambda drawing: (drawing.draw() and b"<svg/>", b"png"))
    whole, _ = mixture
    shutil.copytree(whole.root.uri, tmp_path, dirs_exist_ok=True)
    store = RunStore(Storage(tmp_path), whole.name)
    comparison = Comparison.from_json(store.plan()["comparison"])
    sample = next(tmp_path.glob("chains/*/samples/*"))
    data = bytearray(sample.read_bytes())
    data[-1] ^= 1
    sample.write_bytes(bytes(data))
    with pytest.raises(codec.Corrupt):
        codec.decode(bytes(data))
    found = Page(Path(run_page.write(store, comparison)).read_text(encoding="utf-8"))
    assert "The figure “density” could not be drawn" in found.text
    assert found.figures() == DENSITY - {"density"}


def test_drawing_again_gives_the_same_bytes(mixture: tuple[RunStore, Page]) -> None:
    store, found = mixture
    again = run_page.write(store, Comparison.from_json(store.plan()["comparison"]))
    assert Path(again).read_text(encoding="utf-8") == found.html
