"""Figures say what they show: axes have units, curves end at the results, densities integrate to one."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raychains import report, schedules
from raychains.evaluation.base import Metric
from raychains.planning import Comparison
from raychains.report import reference, table
from raychains.report.figures import MAKERS, density, samples, schedule, spread
from raychains.report.looks import Looks
from raychains.report.material import Material
from raychains.report.style import LIGHT, laid_out
from tests.report import runs

LABELS = {
    "spread": {"Error (%)   ← better", "NLL (nats)   ← better"},
    "samples": {"Error (%)", "NLL (nats)", "Samples of all chains"},
    "reliability": {"Accuracy", "Confidence", "Count"},
    "schedules": {"Epoch", "Step size lr"},
    "learning": {"Epoch", "Training NLL (nats)"},
}
MIXTURE_LABELS = {
    "spread": {"Modes covered   → better"},
    "density": {"θ₁", "θ₂", "Density"},
    "samples": {"Modes covered", "Draws of all chains"},
    "schedules": {"Step", "Step size lr"},
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Material:
    comparison = runs.digits(sampler=("sghmc",))
    return Material(runs.store_run(tmp_path_factory.mktemp("digits"), comparison), comparison)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Material:
    comparison = runs.mixture()
    return Material(runs.store_run(tmp_path_factory.mktemp("mixture"), comparison), comparison)


@pytest.mark.parametrize("kind", ["digits", "mixture"])
def test_axes_are_labelled_with_units(kind: str, request: pytest.FixtureRequest) -> None:
    material: Material = request.getfixturevalue(kind)
    for name, expected in (LABELS if kind == "digits" else MIXTURE_LABELS).items():
        drawing = MAKERS[name](material)
        assert drawing is not None
        figure = drawing.draw(LIGHT)
        found = {label for axis in figure.axes for label in (axis.get_xlabel(), axis.get_ylabel())}
        assert expected <= found, name
        assert any(axis.has_data() for axis in figure.axes)


def test_legends_cover_no_axes(digits: Material) -> None:
    for name in LABELS:
        drawing = MAKERS[name](digits)
        assert drawing is not None
        with laid_out(drawing, LIGHT) as figure:
            legends = [legend.get_window_extent() for legend in figure.legends]
            axes = [axis.get_tightbbox() for axis in figure.axes if axis.axison]
            whole = figure.bbox
            assert len(legends) == 1
            for box in axes:
                assert box is not None and not any(box.overlaps(legend) for legend in legends), name
                assert whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1, name
                assert whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1, name


def test_schedule_trace_shows_every_stage_and_kept_draw(digits: Material) -> None:
    for arm in digits.comparison.arms:
        part = arm.chains[0][0].schedule
        trace, built = schedule.trace(part), schedules.build(part)
        assert len(trace.kept_step) == built.kept
        for step, lr, sampling in zip(trace.step, trace.lr, trace.sampling, strict=True):
            assert built.at(int(step)).lr == lr and (built.at(int(step)).stage == schedules.SAMPLING) == sampling


def test_density_of_draws_and_target_integrate_to_one(mixture: Material) -> None:
    cell = (2 * density.LIMIT / density.BINS) ** 2
    assert density.exact_density().sum() * cell == pytest.approx(1, abs=1e-3)
    for arm in mixture.comparison.arms:
        found = density.histogram(mixture, arm)
        assert found is not None
        assert 0.5 < found.sum() * cell <= 1 + 1e-12  # what lies outside of the panel counts too


def test_density_is_that_of_the_first_lane(mixture: Material) -> None:
    from raychains.store import codec

    arm = mixture.comparison.arms[0]
    chain = mixture.chain(arm.chains[0][0].digest)
    draws = np.concatenate([codec.decode(chain.read_sample(r.file))[0]["theta"].numpy()[:, 0] for r in chain.records()])
    inside = np.all(np.abs(draws) <= density.LIMIT, axis=1)
    found = density.histogram(mixture, arm)
    assert found is not None
    cell = 2 * density.LIMIT / density.BINS
    assert found.sum() * cell**2 == pytest.approx(inside.mean())
    x = ((draws[inside][0] + density.LIMIT) / cell).astype(int)
    assert found[x[0], x[1]] > 0


def test_draws_behind_a_curve_are_counted_in_whole_and_last_blocks(mixture: Material) -> None:
    arm = mixture.comparison.arms[2]  # two decreasing chains of 2,400 draws, in blocks of 2,000
    assert samples.draws_of(arm, np.arange(1, 5)).tolist() == [2000, 4000, 4400, 4800]


def test_curves_end_at_the_results(digits: Material) -> None:
    for arm in digits.comparison.arms:
        n, mean, error = samples.mean_and_error(digits.of(digits.curves, arm), "error")
        assert n[-1] == digits.summary.loc[arm.name, "samples"]
        assert mean[-1] == pytest.approx(digits.summary.loc[arm.name, "error"])
        assert error[-1] == pytest.approx(digits.summary.loc[arm.name, "error_se"])


@pytest.mark.parametrize(
    "better, means, errors, expected",
    [
        ("lower", [1.0, 1.2, 1.3], [0.1, 0.2, 0.1], {"a", "b"}),  # √(.1² + .2²) = .22, √(.1² + .1²) = .14
        ("higher", [1.0, 1.2, 1.5], [0.1, 0.1, 0.1], {"c"}),
        ("lower", [1.0, 1.0, 2.0], [float("nan")] * 3, {"a", "b"}),  # one repeat: only equal values tie
        ("higher", [1.0, float("nan"), 0.5], [0.0, float("nan"), 0.0], {"a"}),
        ("lower", [1.0, float("nan"), float("nan")], [0.1] * 3, set()),
    ],
)
def test_best_takes_in_what_one_combined_error_cannot_tell_apart(
    better: str, means: list[float], errors: list[float], expected: set[str]
) -> None:
    summary = pd.DataFrame({"m": means, "m_se": errors}, index=["a", "b", "c"])
    assert table.best(summary, Metric(name="m", label="m", better=better)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("arm, expected", [(0, 1.0), (1, 17.65), (2, 3.77), (3, 24.81)])
def test_expected_modes_are_the_exact_theory(arm: int, expected: float) -> None:
    comparison = runs.mixture(steps=50_000, cycles=30, chains=4)
    assert reference.expected_modes(comparison.arms[arm]) == pytest.approx(expected, abs=5e-3)


def test_theory_is_silent_without_noise_or_enough_draws() -> None:
    assert reference.expected_modes(runs.mixture(sampler=("sgd",)).arms[1]) is None
    assert reference.expected_modes(runs.mixture(steps=300).arms[1]) is None


def rows_of(material: Material, name: str) -> pd.DataFrame:
    """A figure's numbers."""
    drawing = MAKERS[name](material)
    assert drawing is not None
    return pd.DataFrame(drawing.data)


def test_figures_data_are_the_plotted_numbers(digits: Material) -> None:
    arm = digits.comparison.arms[1]
    spread = rows_of(digits, "spread")
    assert spread[spread["arm"] == arm.name]["nll"].tolist() == digits.of(digits.results, arm)["nll"].tolist()
    curve = rows_of(digits, "samples").query("arm == @arm.name and metric == 'nll'")
    assert curve["samples"].tolist() == list(range(1, int(digits.summary.loc[arm.name, "samples"]) + 1))
    assert curve["mean"].iloc[-1] == pytest.approx(digits.summary.loc[arm.name, "nll"])
    assert curve["standard_error"].iloc[-1] == pytest.approx(digits.summary.loc[arm.name, "nll_se"])
    spec = arm.chains[0][0]
    steps, built = rows_of(digits, "schedules").query("arm == @arm.name"), schedules.build(spec.schedule)
    assert steps["kept"].sum() == built.kept and len(steps) == spec.steps
    for row in steps.to_dict("records"):
        assert row["lr"] == built.at(row["step"]).lr and row["epoch"] == row["step"] / spec.steps_per_epoch
    losses = rows_of(digits, "learning").query("chain == @spec.digest")
    assert losses["loss"].tolist() == [
        r["loss"] for r in digits.chain(spec.digest).progress() if r.get("loss") is not None
    ]


def test_density_data_are_the_cells_that_hold_draws(mixture: Material) -> None:
    arm = mixture.comparison.arms[1]
    found, cells = density.histogram(mixture, arm), rows_of(mixture, "density").query("arm == @arm.name")
    assert found is not None and len(cells) == np.count_nonzero(found)
    assert cells["density"].sum() == pytest.approx(found.sum())
    width = 2 * density.LIMIT / density.BINS
    i, j = (((cells[name] + density.LIMIT) / width).astype(int) for name in ("theta_1", "theta_2"))
    assert found[i, j] == pytest.approx(cells["density"].to_numpy())


def test_published_value_is_read_from_its_text() -> None:
    assert [spread.number(t) for t in ("6.7 ± 0.52", ".93", "-1", "", "n/a")] == [6.7, 0.93, -1.0, None, None]


def test_arms_alike_under_two_samplers_share_a_look_and_others_do_not() -> None:
    comparison = runs.digits()
    looks = Looks(comparison)
    first, second = (panel.arms for panel in looks.panels)
    assert [looks[a] for a in first] == [looks[a] for a in second]
    assert len({looks[a] for a in first}) == len(first)
    # Arms that differ in their temperature only are told apart by their labels.
    cold = runs.altered(runs.digits(temperature=0.5), _0={"name": "cold", "label": "cold"})
    twice = Comparison(
        task="digits", unit="epochs", split="test",
        arms=(comparison.arms[0], cold.arms[0]),
    )  # fmt: skip
    looks = Looks(twice)
    assert [looks[a].label for a in twice.arms] == [comparison.arms[0].label, "cold"]


def test_report_imports_neither_ray_nor_pyplot() -> None:
    folder = Path(report.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n == "ray" or n.startswith("ray.") or n.endswith("pyplot") for n in names), file
