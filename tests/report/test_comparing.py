"""Runs side by side: their rows, what sets them apart, differences on the same examples, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from raychains import cli
from raychains.core.errors import UserError
from raychains.inference.run_data import RunData
from raychains.planning import Comparison
from raychains.report import comparing
from raychains.report import run_page as report_page
from raychains.report.figures import overlay
from raychains.store import RunStore, Storage
from tests.report import runs
from tests.report.figures import nothing_covered
from tests.report.test_page import EVIL, Page, figures_are_files, loads_nothing

SMALL = {"epochs": 2, "cycles": 1, "samples_per_cycle": 1, "repeats": 2}


@dataclass(frozen=True)
class Run:
    store: RunStore
    comparison: Comparison

    @property
    def material(self) -> RunData:
        return RunData(self.store, self.comparison)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two runs that differ in their step size, and have tables of entropies and maps."""
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for name, lr in (("first", 0.05), ("second", 0.2)):
        comparison = runs.altered(runs.single(**SMALL, lr=lr), _0={"label": f"{name} {EVIL}"})
        store = runs.store_run(folder, comparison, name=name, progress=False)
        arm = comparison.arms[0].name
        about = [{"arm": arm, "group": g} for g in range(2)]
        cdf = [
            {"companion": EVIL, "entropy": x, "cdf": (1 + a["group"]) * x / 4} | a
            for a in about
            for x in (0.0, 1.0, 2.0)
        ]
        store.write_table("entropy_cdf", cdf)
        at = [{"map": m, "x": x, "y": -x - m} | a for a in about for m in range(2) for x in (-3.0, 1.0, 2.0)]
        store.write_table("embedding", at)
        made.append(Run(store, comparison))
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not rendered, which takes most of the time and is no part of the test."""
    monkeypatch.setattr(report_page, "render", lambda drawing: (b"<svg/>", b"png"))


@pytest.fixture(scope="module")
def page(pair: list[Run]) -> Page:
    place = comparing.write(pair)
    assert place == pair[0].store.location("compare-second.html")
    found = Page(Path(place).read_text(encoding="utf-8"))
    return found


def test_every_arm_of_every_run_has_a_row_with_its_numbers_and_the_best_of_all_is_bold(
    pair: list[Run], page: Page
) -> None:
    head = [text for text, _ in page.rows[0]]
    rows = [row for row in page.rows[1:5] if len(row) == len(head)]
    assert [row[0][0] for row in rows] == ["first", "second"]
    assert [row[1][0] for row in rows] == [run.comparison.arms[0].label for run in pair]
    means = []
    for run, row in zip(pair, rows, strict=True):
        nll = run.material.results["nll"]
        assert row[head.index("NLL (nats) ↓")][0] == f"{nll.mean():.4f} ± {nll.std(ddof=1) / 2**0.5:.4f}"
        means.append(nll.mean())
    bold = [row[head.index("NLL (nats) ↓")][1] for row in rows]
    assert bold[int(np.argmin(means))]


def test_settings_that_differ_are_named_and_no_others(pair: list[Run]) -> None:
    assert comparing.settings([run.material for run in pair]) == [("schedule: lr", ["0.05", "0.2"])]
    other = Run(
        pair[1].store, runs.single(**{**SMALL, "repeats": 1}, lr=0.05, temperature=0.5, seed=3, sampler="csgld")
    )
    found = dict(comparing.settings([pair[0].material, other.material]))
    assert found["seed"] == ["0", "3"] and found["repeats"] == ["2", "1"] and found["sampler"] == ["sghmc", "sgld"]
    assert found["schedule: temperature"] == ["1", "0.5"] and "batch size" not in found and "task" not in found
    alike = [Run(pair[1].store, runs.single(**{**SMALL, "repeats": 1}, lr=lr)) for lr in (0.0512345675, 0.0512345676)]
    assert dict(comparing.settings([r.material for r in alike]))["schedule: lr"] == ["0.0512345675", "0.0512345676"]


def test_paired_differences_are_of_the_same_examples(pair: list[Run], page: Page) -> None:
    found, problems = comparing.paired([run.material for run in pair])
    assert not problems and {p.metric.name for p in found} >= {"error", "nll", "brier"}
    first, second = (run.material for run in pair)
    for p in found:
        exact = second.results[p.metric.name].mean() - first.results[p.metric.name].mean()
        assert p.interval.value == pytest.approx(exact, abs=1e-9)
        assert p.interval.low <= p.interval.value <= p.interval.high
    nll = next(p for p in found if p.metric.name == "nll")
    each = []
    for run in pair:
        table = run.store.table("rows")
        assert table is not None
        groups = [-table.filter(pc.equal(table["group"], g))["log_p_label"].to_numpy() for g in range(2)]
        each.append(np.mean(groups, axis=0))
    error = np.std(each[1] - each[0]) / len(each[0]) ** 0.5  # of the mean, by the textbook
    assert nll.interval.high - nll.interval.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    text = f"{nll.interval.value:+.4f}\n[{nll.interval.low:+.4f}, {nll.interval.high:+.4f}]"
    assert (text, nll.distinct) in [cell for row in page.rows for cell in row]


def test_a_run_against_itself_under_another_name_differs_by_nothing(
    pair: list[Run], quick: None, tmp_path: Path
) -> None:
    again = Run(runs.store_run(tmp_path, pair[0].comparison, name="first", progress=False), pair[0].comparison)
    found, _ = comparing.paired([pair[0].material, again.material])
    assert found and all(p.interval.low == p.interval.high == 0 and not p.distinct for p in found)
    html = Path(comparing.write([again, pair[0]])).read_text(encoding="utf-8")
    assert again.store.location() in html and pair[0].store.location() in html  # one name: told apart by their places
    assert "All runs share 4 chains" in html and "No setting" in html


def altered(run: Run, folder: Path, name: str, column: str, change: Callable[[np.ndarray], np.ndarray]) -> RunData:
    """The run with other values in a column of its rows."""
    store = RunStore(Storage(folder), name)
    for table_name in ("results", "rows"):
        table = run.store.table(table_name)
        assert table is not None
        if table_name == "rows":
            table = table.set_column(
                table.column_names.index(column), column, [change(table[column].to_numpy().copy())]
            )
        store.write_arrow(table_name, table)
    store.write_plan({"command": "run", "comparison": run.comparison.to_json()})
    return RunData(store, run.comparison)


def test_other_labels_are_not_paired_and_it_says_so(pair: list[Run], tmp_path: Path) -> None:
    moved = altered(pair[1], tmp_path, "moved", "label", lambda labels: np.roll(labels, 1))
    found, problems = comparing.paired([pair[0].material, moved])
    assert not found and problems == ["Run moved is not paired with first: its examples have other labels."]


def test_a_metric_that_is_not_finite_leaves_the_run_unpaired_and_it_says_so(pair: list[Run], tmp_path: Path) -> None:
    gaps = altered(
        pair[1], tmp_path, "gaps", "brier", lambda brier: np.where(np.arange(len(brier)) == 0, np.nan, brier)
    )
    found, (problem,) = comparing.paired([pair[0].material, gaps])
    assert not found and problem.startswith("Run gaps is not paired with first: metric must be finite")


def test_densities_have_no_examples_to_pair(quick: None, tmp_path: Path) -> None:
    made = []
    for name, lr in (("a", 0.03), ("b", 0.05)):
        options = {"task": "mixture25", "sampler": "csgld", "steps": 600, "chains": 1, "cycles": 2, "lr": lr}
        comparison = runs.single(**dict.fromkeys(("epochs", "exploration", "samples_per_cycle")), **options)
        made.append(Run(runs.store_run(tmp_path, comparison, name=name, progress=False), comparison))
    html = Path(comparing.write(made)).read_text(encoding="utf-8")
    assert "Run b is not paired with a: its rows are not of examples with labels." in html
    assert "schedule: lr" in html and "Modes covered" in html
    kept = made[0].material.draws(made[0].comparison.arms[0])
    assert kept > 100 and "<th>Draws" in re.sub(r"<th[^>]*>", "<th>", html) and f"{kept:,}" in html


def test_figures_of_both_runs_are_there_as_files_with_their_numbers(pair: list[Run], page: Page) -> None:
    assert page.figures() == {"spread", "entropies", "embeddings"} == set(overlay.FIGURES)
    first = pair[0].store
    figures_are_files(first, page, prefix="compare-second-")
    for name in overlay.FIGURES:
        table = first.table(f"figures/compare-second-{name}")
        assert table is not None and set(table["run"].to_pylist()) == {"first", "second"}
    spread = first.table("figures/compare-second-spread")
    assert spread is not None
    values = spread.to_pandas().query("run == 'second'")["nll"].tolist()
    assert values == pair[1].material.results["nll"].tolist()


def test_legends_cover_no_axes(pair: list[Run]) -> None:
    for name, make in overlay.FIGURES.items():
        drawing = make([run.material for run in pair], ["first", "second"])
        assert drawing is not None
        assert nothing_covered(drawing, legends=name != "embeddings")


def test_every_map_of_the_first_repeats_has_a_panel_on_one_scale(pair: list[Run]) -> None:
    drawing = overlay.embeddings([run.material for run in pair], ["first", "second"])
    assert drawing is not None
    axes = [axis for axis in drawing.draw().axes if axis.axison]
    assert [axis.get_title() for axis in axes] == ["first", "first", "second", "second"]
    assert [axis.lines[0].get_ydata().tolist() for axis in axes] == [[3, -1, -2], [2, -2, -3]] * 2
    assert len({(axis.get_xlim(), axis.get_ylim()) for axis in axes}) == 1


def test_entropies_are_means_over_the_repeats(pair: list[Run]) -> None:
    drawing = overlay.entropies([run.material for run in pair], ["first", "second"])
    assert drawing is not None
    lines = drawing.draw().axes[0].lines
    assert [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in lines] == [
        ([0, 1, 2], [0, 0.375, 0.75])
    ] * 2


def test_a_table_that_only_one_run_has_is_no_figure(pair: list[Run], tmp_path: Path) -> None:
    bare = Run(RunStore(Storage(tmp_path), "bare"), pair[1].comparison)
    materials = [pair[0].material, bare.material]
    assert overlay.entropies(materials, ["a", "b"]) is None and overlay.embeddings(materials, ["a", "b"]) is None


def test_what_people_wrote_is_escaped(page: Page) -> None:
    loads_nothing(page)
    assert page.text.count(EVIL) >= 4


def test_long_names_end_in_a_digest(pair: list[Run]) -> None:
    def name(*others: str) -> str:
        stores = [Run(RunStore(pair[0].store.root, other), pair[0].comparison) for other in ("x", *others)]
        return comparing.file_name(stores)

    assert name("b", "c") == "compare-b+c.html"
    long = [name("b" * 90, c * 90) for c in "cd"]
    assert long[0] != long[1] and all(len(n) <= comparing.LONGEST_NAME + len(".html") for n in long)


def test_what_cannot_be_laid_side_by_side_is_refused_in_one_line(pair: list[Run], tmp_path: Path) -> None:
    first, second = pair
    other = Run(RunStore(Storage(tmp_path), "other"), runs.mixture())
    train = Run(second.store, dataclasses.replace(second.comparison, split="train"))
    empty = Run(RunStore(Storage(tmp_path), "empty"), second.comparison)
    for given, words in (
        ([first], "compare must name other runs than the first, got 0 of them"),
        ([first, second, first], "compare must name every run once, got .*first twice"),
        ([first, other], r"runs of one task, got digits \(first\) and mixture25 \(other\)"),
        ([first, train], r"evaluated on one split, got test \(first\) and train \(second\)"),
        ([first, empty], "runs with results, got .*empty: continue it with `resume=True`, or evaluate it"),
    ):
        with pytest.raises(UserError, match=words) as told:
            comparing.write(given)
        assert "\n" not in str(told.value)


def test_the_command_draws_both_pages_and_refuses_before_it_draws(
    pair: list[Run], quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (run.store.location() for run in pair)
    report = Path(first) / "report.html"
    assert cli.main(["report", first, "--compare", first]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not report.exists()
    assert cli.main(["report", first, "--compare", f"{second}-"]) == 2
    assert "did you mean 'second'?" in capsys.readouterr().err
    assert cli.main(["report", first, "--compare", second]) == 0
    said = capsys.readouterr().out
    assert f"report: {report}" in said and f"side by side: {first}/compare-second.html" in said
    assert report.is_file()
