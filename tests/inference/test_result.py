"""What Python and notebooks show of a run and of a sweep: text, HTML, tables, figures, what is printed."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

import IPython.display
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from rich.console import Console

import raychains as rc
from raychains.api.result import Result
from raychains.plotting.layout import panels
from raychains.plotting.style import Drawing, as_svg
from raychains.report import notebook, run_page
from raychains.report.sweep import sweep_page
from raychains.store import RunStore, Storage, SweepStore
from tests.checks import refused
from tests.report import runs, swept
from tests.report.test_page import EVIL, Page


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Two arms, two repeats; the page is drawn."""
    comparison = runs.digits(sampler=("sghmc",))
    store = runs.store_run(tmp_path_factory.mktemp("digits"), comparison)
    run_page.write(store, comparison)
    return rc.load(store.location())


@pytest.fixture
def swept_digits(tmp_path: Path) -> rc.SweepResult:
    folder = SweepStore(Storage(tmp_path), "found")
    folder.write_plan(swept.PLAN)
    results, reports = swept.tables()
    folder.write_table("results", results)
    folder.write_table("reports", reports)
    folder.write_best(swept.BEST)
    return rc.SweepResult(folder, {})


def test_the_text_is_short_and_has_the_tables_values(digits: Result) -> None:
    lines = repr(digits).splitlines()
    arms = digits.comparison.arms
    suspicions = digits.suspicions()
    assert len(lines) <= 6 + len(suspicions) and 0 < len(suspicions) <= 3
    assert lines[0] == f"Result 'small': task digits, {len(arms)} arms"
    assert lines[-1].strip() == digits.path
    table = digits.table()
    for line, arm in zip(lines[1:4], arms, strict=False):
        assert line.strip().startswith(f"{arm.label}: Error (%) {table.loc[arm.name, 'Error (%)']}, NLL (nats) ")
    assert lines[4].strip() == f"and {len(arms) - 3} more arm{'s' * (len(arms) > 4)}"
    failed = Result(digits.store, digits.comparison, {"0" * 40: "ValueError: no"})
    assert repr(failed).splitlines()[0].endswith("arms, 1 chain failed")


def test_the_text_of_a_run_without_results_says_so_and_its_table_has_dashes(tmp_path: Path) -> None:
    store = RunStore(Storage(tmp_path), "begun")
    store.write_plan({"command": "run", "comparison": runs.single().to_json(), "notes": []})
    result = rc.load(store.location())
    assert repr(result).splitlines()[1:] == ["  not evaluated yet", f"  {result.path}"]
    assert "not evaluated yet" in repr([result]), "within another object, too"
    assert set(result.table().iloc[0]) == {"–"} and result.table(full=True)["error"].isna().all()
    (Path(result.path) / "results.parquet").write_bytes(b"no parquet")
    assert "damaged" in repr(result) and len(repr(result).splitlines()) == 1
    assert result._repr_html_() is None, "a notebook falls back to the text"


def test_a_compact_table_and_one_of_numbers(digits: Result) -> None:
    short, full = digits.table(), digits.table(full=True)
    assert list(short.index) == list(full.index) == [arm.name for arm in digits.comparison.arms]
    assert list(short.columns) == ["Error (%)", "NLL (nats)", "ECE (%)", "Brier score"]
    name = short.index[0]
    expected = f"{100 * full.loc[name, 'error']:.2f} ± {100 * full.loc[name, 'error_se']:.2f}"
    assert short.loc[name, "Error (%)"] == expected
    assert full["error"].dtype.kind == full["error_se"].dtype.kind == "f"
    mine = digits.results().query("arm == @name")["nll"]
    assert full.loc[name, "nll"] == pytest.approx(mine.mean())


def test_figures_are_those_of_the_page(digits: Result) -> None:
    figures = digits.figures
    assert isinstance(figures, Mapping)
    files = {path.stem for path in Path(digits.path, "figures").glob("*.svg")}
    assert set(figures) == files and len(figures) == len(files) and {"reliability", "schedules"} <= files
    for name in ("reliability", "spread"):
        assert isinstance(figures[name], Figure)
        assert as_svg(figures[name]) == Path(digits.path, f"figures/{name}.svg").read_bytes()
    assert repr(figures).startswith("Figures(spread, samples, ")


def test_a_name_that_is_no_figure_is_refused_with_the_nearest(digits: Result) -> None:
    with refused("figure", "reliabilty", "reliability"):
        digits.figures["reliabilty"]
    with pytest.raises(KeyError):
        digits.figures["reliabilty"]
    with refused("figure", "density"):  # which is one of densities
        digits.figures["density"]
    assert "reliabilty" not in digits.figures and digits.figures.get("density") is None


def test_a_figure_that_cannot_be_made_costs_no_other(digits: Result, caplog: pytest.LogCaptureFixture) -> None:
    def fails(run: object) -> Drawing:
        raise ValueError("no column x")

    def own(run: object) -> Drawing:
        return Drawing(name="mine", title=EVIL, caption="", alt=EVIL, draw=lambda: panels(1, 1, 1)[0])

    result = Result(digits.store, digits.comparison, {}, own_figures={"mine": own, "broken": fails})
    assert list(result.figures)[-1] == "mine" and set(digits.figures) < set(result.figures)
    assert "figure broken could not be drawn: no column x" in caplog.text
    with pytest.raises(ValueError, match="no column x"):
        result.figures["broken"]
    table = result._page_table()
    text = notebook.html(EVIL, table, result.figures, ["broken", "mine"], f"/a/{EVIL}", width="9rem")
    assert EVIL not in text and text.count("<img") == 1


def test_a_notebook_shows_the_table_two_figures_and_a_link(digits: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(digits.path).parents[1])
    text = digits._repr_html_()
    assert text is not None
    shown = Page(text)
    assert not {"script", "html", "body", "link"} & {tag for tag, _ in shown.tags}
    table = digits.table()
    cells = {cell for row in shown.rows for cell, _ in row}
    assert set(table["Error (%)"]) <= cells and {arm.label for arm in digits.comparison.arms} <= cells
    assert [a["href"] for a in shown.attributes("a")] == ["runs/small/report.html"]
    images = [str(a["src"]) for a in shown.attributes("img")]
    assert [image.partition(",")[0] for image in images] == ["data:image/svg+xml;base64"] * 2
    stored = Path(digits.path, "figures/reliability.svg").read_bytes()
    assert base64.b64decode(images[0].partition(",")[2]) == stored
    assert not re.search(r"(?:src|href)=\"?(?:https?:)?//", text), "nothing is loaded from elsewhere"
    rules = re.findall(r"([^{}@]+)\{[^{}]*\}", text.partition("<style>")[2].partition("</style>")[0])
    assert all(part.strip().startswith(".raychains") for rule in rules for part in rule.rpartition("{")[2].split(","))


def test_addresses_of_reports_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert notebook.link("s3://bucket/runs/x/report.html") == "s3://bucket/runs/x/report.html"
    assert notebook.link("/else where/report.html") == "file:///else%20where/report.html"
    assert notebook.link(str(tmp_path / "my runs" / "report.html")) == "my%20runs/report.html"


def test_show_prints_the_table_and_the_reports_path(digits: Result, capsys: pytest.CaptureFixture[str]) -> None:
    digits.show()
    out = capsys.readouterr().out
    assert digits.report in out and "Result 'small'" in out
    assert all(text in out for text in digits.table()["Error (%)"])


def test_a_notebook_displays_figures_and_show_all_of_them(digits: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cell hands to IPython; in a kernel: tests/examples/test_quickstart.py."""
    displayed: list[str] = []
    monkeypatch.setattr(notebook, "standard_output", lambda: Console(force_jupyter=True))
    monkeypatch.setattr(IPython.display, "display", lambda html: displayed.append(html.data))
    digits.show()
    (shown,) = displayed
    assert shown.count("data:image/svg+xml;base64,") == len(digits.figures) and "<table" in shown
    formats, _ = DisplayFormatter().format(digits.figures["reliability"])
    assert "prefers-color-scheme: dark" in formats["image/svg+xml"]


def test_a_density_shows_its_draws(tmp_path: Path) -> None:
    comparison = runs.altered(runs.mixture(repeats=1), _0={"published": {"modes": "24.4 ± 0.22"}})
    result = rc.load(runs.store_run(tmp_path, comparison).location())
    key = [name for name in result._KEY_FIGURES if name in result.figures]
    assert key[0] == "density" and "Modes covered" in repr(result)
    titles = {axis.get_title(loc="left") for axis in result.figures["density"].axes}
    assert any(title.startswith("Exact target") for title in titles)
    published = result.table()["Modes covered, published"]
    assert published.tolist() == ["24.4 ± 0.22", *["–"] * (len(published) - 1)]


def test_a_sweep_shows_its_best_point(swept_digits: rc.SweepResult, capsys: pytest.CaptureFixture[str]) -> None:
    first, best, path = repr(swept_digits).splitlines()
    assert first == f"SweepResult 'found': task {EVIL}, 9 points" and path.strip() == swept_digits.path
    assert best.strip().startswith("best: β = 0.25, M = 4: ") and best.endswith(" on val")
    short, full = swept_digits.table(), swept_digits.table(full=True)
    assert len(short) == 9 and len(full) == 18 and short.index.name == "point"
    assert short.iloc[0][["exploration", "cycles", "status"]].tolist() == [0.25, 4, "finished"]
    mine = full[full["point"] == short.index[0]]["nll"]
    (column,) = [c for c in short.columns if c.startswith(("NLL", "nll"))]
    assert float(short.iloc[0][column].partition(" ±")[0]) == pytest.approx(mine.mean(), abs=1e-4)
    assert set(swept_digits.figures) <= set(sweep_page.FIGURES) and "map" in swept_digits.figures
    text = swept_digits._repr_html_()
    assert text is not None and EVIL not in text and text.count("<img") == 2
    swept_digits.show()
    assert swept_digits.report in capsys.readouterr().out


def test_a_sweep_that_has_only_begun(tmp_path: Path) -> None:
    folder = SweepStore(Storage(tmp_path), "begun")
    folder.write_plan(swept.PLAN)
    result = rc.SweepResult(folder, {})
    assert "no point has a result yet" in repr(result) and isinstance(result.table(), pd.DataFrame)
    assert result._repr_html_() is not None
