"""Figures say what they show: axes have units, curves end at the results, densities integrate to one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raychains import plotting, report, schedules
from raychains.core.config import Compare
from raychains.evaluation.evaluation import Metric
from raychains.inference.run_data import RunData
from raychains.planning import Comparison
from raychains.planning.presets import arms
from raychains.plotting.arm_styles import ArmStyles
from raychains.report import reference_values, run_tables
from raychains.report.figures import density_figure, gradients, samples, spread
from raychains.store import RunStore, Storage, codec
from tests.report import runs
from tests.report.figures import drawing_of, nothing_covered

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
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    comparison = runs.digits(sampler=("sghmc",))
    return RunData(runs.store_run(tmp_path_factory.mktemp("digits"), comparison), comparison)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    comparison = runs.mixture()
    return RunData(runs.store_run(tmp_path_factory.mktemp("mixture"), comparison), comparison)


@pytest.mark.parametrize("kind", ["digits", "mixture"])
def test_axes_are_labelled_with_units_and_legends_cover_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    run: RunData = request.getfixturevalue(kind)
    for name, expected in (LABELS if kind == "digits" else MIXTURE_LABELS).items():
        assert expected <= nothing_covered(drawing_of(run, name), legends=name != "density"), name


def test_losses_below_0_have_a_linear_axis(digits: RunData, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a regression whose σ gets small; others have a logarithmic one."""
    for shift, scale in ((0.0, "log"), (-10.0, "linear")):
        losses = [(k, v + shift) for k, v in ((8, 1.2), (16, 0.4), (24, 0.1))]
        monkeypatch.setattr(RunData, "losses", lambda run, spec, losses=losses: losses)
        axis = drawing_of(digits, "learning").draw().axes[0]
        assert axis.get_yscale() == scale
        np.testing.assert_array_equal(axis.lines[0].get_ydata(), [v for _, v in losses])
        values = np.array([v for _, v in losses])
        curve = gradients.Curve(digits.comparison.arms[0], "training nll", np.arange(3.0), values, np.full(3, 0.05))
        (axis,) = gradients._chart(digits, [curve])().axes
        assert axis.get_yscale() == scale
        (band,) = axis.collections
        low, high = values - 0.05, values + 0.05
        assert {*low, *high} <= {*band.get_paths()[0].vertices[:, 1].tolist()}


def test_schedules_that_differ_in_more_than_their_length_have_the_arms_names(digits: RunData, tmp_path: Path) -> None:
    comparison = arms.of_preset(Compare(preset="emcmc-burn-in")).comparison
    ablation = RunData(RunStore(Storage(tmp_path), "burn-in"), comparison)
    for run, names in (
        (ablation, [a.label for a in comparison.arms]),
        (digits, list(dict.fromkeys(f"{a.schedule}, {a.length} epochs" for a in digits.comparison.arms))),
    ):
        (legend,) = drawing_of(run, "schedules").draw().legends
        assert [text.get_text() for text in legend.get_texts()][: len(names)] == names


def test_captions_speak_of_repeats_where_there_are_some(digits: RunData, tmp_path: Path) -> None:
    comparison = runs.digits(sampler=("sghmc",), repeats=1)
    once = RunData(runs.store_run(tmp_path, comparison), comparison)
    for name in ("spread", "samples"):
        assert "repeat" in drawing_of(digits, name).caption and "repeat" not in drawing_of(once, name).caption


def test_density_of_draws_and_target_integrate_to_one_and_is_that_of_the_first_lane(mixture: RunData) -> None:
    width = 2 * density_figure.LIMIT / density_figure.BINS_PER_AXIS
    assert density_figure.exact_density().sum() * width**2 == pytest.approx(1, abs=1e-3)
    for arm in mixture.comparison.arms:
        found = density_figure.histogram(mixture, arm)
        assert found is not None
        draws = []
        for spec in arm.chains[0]:
            chain = mixture.chain(spec.digest)
            draws += [codec.decode(chain.read_sample(r.file))[0]["theta"].numpy()[:, 0] for r in chain.records()]
        points = np.concatenate(draws)
        inside = np.all(np.abs(points) <= density_figure.LIMIT, axis=1)
        assert found.sum() * width**2 == pytest.approx(inside.mean()) and inside.mean() > 0.5
        x, y = ((points[inside][0] + density_figure.LIMIT) / width).astype(int)
        assert found[x, y] > 0


def test_draws_of_a_dropped_chain_are_no_part_of_the_page(mixture: RunData, tmp_path: Path) -> None:
    shutil.copytree(mixture.store.root.location(""), tmp_path / "store")
    store = RunStore(Storage(tmp_path / "store"), mixture.store.name)
    arm = mixture.comparison.arms[2]  # two decreasing chains of 2,400 draws, in blocks of 2,000
    assert samples.draws_of(mixture.chains(arm), np.arange(1, 5)).tolist() == [2000, 4000, 4400, 4800]
    kept, dropped = arm.chains[0]
    store.write_table("failed", [{"digest": dropped.digest, "reason": "loss is nan"}])
    run = RunData(store, mixture.comparison)
    assert run.chains(arm) == [kept, dropped], "a later session finished it"
    shutil.rmtree(tmp_path / "store" / "chains" / dropped.digest / "samples")
    (tmp_path / "store" / "chains" / dropped.digest / "samples.parquet").unlink()
    run = RunData(store, mixture.comparison)
    assert run.chains(arm) == [kept] and run.draws(arm) * 2 == mixture.draws(arm)
    ours, whole = density_figure.points(run, arm), density_figure.points(mixture, arm)
    assert ours is not None and whole is not None and np.array_equal(ours, whole[: len(ours)]) and len(ours) == 2400
    assert samples.draws_of(run.chains(arm), np.arange(1, 3)).tolist() == [2000, 2400]


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
    assert run_tables.best(summary, Metric(name="m", label="m", better=better)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("arm, expected", [(0, 1.0), (1, 17.65), (2, 3.77), (3, 24.81)])
def test_expected_modes_are_the_exact_theory(arm: int, expected: float) -> None:
    comparison = runs.mixture(steps=50_000, cycles=30, chains=4)
    assert reference_values.expected_modes(comparison.arms[arm]) == pytest.approx(expected, abs=5e-3)


def test_theory_is_silent_without_noise_or_enough_draws() -> None:
    assert reference_values.expected_modes(runs.mixture(sampler=("sgd",)).arms[1]) is None
    assert reference_values.expected_modes(runs.mixture(steps=300).arms[1]) is None


def rows_of(run: RunData, name: str) -> pd.DataFrame:
    """A figure's numbers."""
    return pd.DataFrame(drawing_of(run, name).data)


def test_figures_data_are_the_plotted_numbers(digits: RunData) -> None:
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


def test_density_data_are_the_cells_that_hold_draws(mixture: RunData) -> None:
    arm = mixture.comparison.arms[1]
    found, cells = density_figure.histogram(mixture, arm), rows_of(mixture, "density").query("arm == @arm.name")
    assert found is not None and len(cells) == np.count_nonzero(found)
    assert cells["density"].sum() == pytest.approx(found.sum())
    width = 2 * density_figure.LIMIT / density_figure.BINS_PER_AXIS
    i, j = (((cells[name] + density_figure.LIMIT) / width).astype(int) for name in ("theta_1", "theta_2"))
    assert found[i, j] == pytest.approx(cells["density"].to_numpy())


def test_published_value_is_read_from_its_text() -> None:
    assert [spread.number(t) for t in ("6.7 ± 0.52", ".93", "-1", "", "n/a")] == [6.7, 0.93, -1.0, None, None]


def test_arms_alike_under_two_samplers_share_a_style_and_others_do_not() -> None:
    comparison = runs.digits()
    styles = ArmStyles(comparison)
    first, second = (panel.arms for panel in styles.panels)
    assert [styles[a] for a in first] == [styles[a] for a in second]
    assert len({styles[a] for a in first}) == len(first)
    # Arms that differ in their temperature only are told apart by their labels.
    cold = runs.altered(runs.digits(temperature=0.5), _0={"name": "cold", "label": "cold"})
    twice = Comparison(task="digits", unit="epochs", split="test", arms=(comparison.arms[0], cold.arms[0]))
    assert [style.label for style in ArmStyles(twice).among(twice.arms)] == [comparison.arms[0].label, "cold"]


def test_neither_report_nor_plotting_imports_pyplot() -> None:
    for file in (f for room in (report, plotting) for f in Path(room.__file__).parent.rglob("*.py")):
        text = " ".join(file.read_text(encoding="utf-8").split())
        assert "pyplot" not in text.replace("pyplot's global state", ""), file
