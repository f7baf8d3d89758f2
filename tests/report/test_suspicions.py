"""What is suspect is said in a sentence that names the arm and the cause, on the page and in a result's text; else
nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from raychains import schedules, tasks
from raychains.api.result import Result
from raychains.core.sample import Progress, Sample, SampleMeta
from raychains.inference.run_data import RunData
from raychains.planning import Comparison
from raychains.report import run_page, suspicions
from raychains.store import ChainStore, RunStore, Storage
from tests.report import runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, Comparison]:
    comparison = runs.single(epochs=40)
    return runs.store_run(tmp_path_factory.mktemp("whole"), comparison), comparison


def said(store: RunStore, comparison: Comparison) -> list[str]:
    return suspicions.of_run(RunData(store, comparison))


def copied(store: RunStore, comparison: Comparison, name: str, **tables: list[dict[str, Any]]) -> RunStore:
    """The same run under another name, with some tables replaced."""
    other = RunStore(store.root, name)
    other.write_plan(store.plan())
    for table in ("results", "curves", "diagnostics"):
        found = store.table(table)
        if table in tables or found is not None:
            other.write_table(table, tables[table] if table in tables else found.to_pylist())
    return other


def rows(store: RunStore, table: str) -> list[dict[str, Any]]:
    found = store.table(table)
    assert found is not None
    return list(found.to_pylist())


def test_a_good_run_has_none(whole: tuple[RunStore, Comparison]) -> None:
    assert said(*whole) == []


def test_the_first_sample_without_finite_predictions_is_named(
    whole: tuple[RunStore, Comparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, comparison = whole
    curves = [r | ({"nll": math.nan, "error": math.inf} if r["samples"] >= 3 else {}) for r in rows(store, "curves")]
    results = [r | {"nll": math.nan, "error": math.inf} for r in rows(store, "results")]
    broken = copied(store, comparison, "broken", curves=curves, results=results)
    label, n = comparison.arms[0].label, results[0]["samples"]
    line = (
        f"Error (%) and NLL (nats) of {label}: no finite number: sample 3 of {n} is the first whose predictions "
        "are not finite"
    )
    assert said(broken, comparison) == [line]
    result = Result(broken, comparison, {})
    assert line in repr(result).split("\n  ")
    assert line in (result._repr_html_() or "")
    monkeypatch.setattr(run_page, "render", lambda drawing: (b"<svg/>", b"png"))
    assert line in Path(run_page.write(broken, comparison)).read_text(encoding="utf-8")
    curves = [r | {"nll": math.nan} for r in rows(store, "curves")]
    broken = copied(store, comparison, "first", curves=curves, results=[r | {"nll": math.nan} for r in results])
    assert any("NLL (nats)" in s and f"sample 1 of {n}" in s for s in said(broken, comparison))


def test_a_metric_that_is_undefined_or_the_users_own_says_so(whole: tuple[RunStore, Comparison]) -> None:
    store, comparison = whole
    plan = store.plan()
    own = {"name": "auroc", "label": "AUROC", "better": "higher", "scale": 1.0, "digits": 4, "minor": False}
    other = copied(
        store,
        comparison,
        "undefined",
        results=[r | {"ece": math.nan, "auroc": math.nan} for r in rows(store, "results")],
    )
    other.write_plan({**plan, "metrics": [*plan["metrics"], own]})
    ece, auroc = sorted(said(other, comparison), key=lambda s: "AUROC" in s)
    assert ece.startswith("ECE (%) of ") and "not defined for these predictions on the split “test”" in ece
    assert auroc.startswith("AUROC of ") and "the metric's function raised an error" in auroc


def with_losses(folder: Path, comparison: Comparison, first: float, kept: list[float], kinetic: float) -> RunStore:
    """A run whose chains' samples and records have these losses and kinetic temperatures; no chain makes a step."""
    store = RunStore(Storage(folder), "made")
    store.write_plan({"command": "run", "comparison": comparison.to_json(), "notes": []})
    for spec in comparison.chains().values():
        stored, schedule = ChainStore(store.root, spec.digest), schedules.build(spec.schedule)
        told: list[dict[str, Any]] = []
        index = 0
        tensors = tasks.build(spec.task).build_model(seed=0, lanes=1).state_dict()
        stored.begin(spec, 1, {"environment": {}})
        for step in range(1, spec.steps + 1):
            at = schedule.at(step)
            where: dict[str, Any] = {name: getattr(at, name) for name in ("cycle", "stage", "lr", "temperature")}
            where |= {"step": step, "epoch": (step - 1) // spec.steps_per_epoch}
            if at.keep:
                meta = SampleMeta(digest=spec.digest, index=index, **where, train_nll=kept[index])
                index += 1
                stored.publish_sample(Sample(meta=meta, tensors=tensors), 1, {})
            if step % spec.steps_per_epoch == 0:
                told.append(Progress(**where, loss=first, kinetic_temperature=kinetic).to_json() | {"seconds": 0.0})
        stored.publish_progress(told, spec.steps, 1)
        stored.finish()
    return store


@pytest.mark.parametrize(
    ("first", "kept", "fires"),
    [
        (2.3, [1.5, 1.4, 1.0, 0.9], True),
        (2.3, [1.5, 1.4, 0.5, 0.47], False),  # of early samples alone
        (0.031, [0.031, 0.031, 0.030, 0.030], False),  # a trained start has nothing to lose
        (0.5, [0.5, 0.4, 1.5, 1.6], False),
    ],
)
def test_a_loss_that_still_falls_is_told(tmp_path: Path, first: float, kept: list[float], fires: bool) -> None:
    comparison = runs.single(chains=1, sampler="csgld")
    found = said(with_losses(tmp_path, comparison, first, kept, 1.0), comparison)
    assert [("still falls" in line, comparison.arms[0].label in line) for line in found] == [(True, True)] * fires


def test_a_kinetic_temperature_far_from_the_set_one_is_told(tmp_path: Path) -> None:
    """Records of a constant step size, so that nothing is taken out; the last ones of a cosine's cycle are."""
    settings = {"chains": 1, "sampler": "sghmc", "schedule": "constant", "cycles": None, "samples_per_cycle": None}
    settings |= {"exploration": None, "burn_in": 0, "epochs": 60}
    comparison = runs.single(**settings)
    kept = [0.1] * 60
    hot = said(with_losses(tmp_path / "hot", comparison, 0.1, kept, 2.0), comparison)
    assert len(hot) == 1 and "temperature 2 instead of 1" in hot[0]
    assert said(with_losses(tmp_path / "right", comparison, 0.1, kept, 1.1), comparison) == []


def test_chains_that_predict_differently_are_told_where_they_were_diagnosed(
    whole: tuple[RunStore, Comparison],
) -> None:
    store, comparison = whole
    about: dict[str, Any] = {"arm": comparison.arms[0].name, "unit": "chain", "quantity": "mean p(label)"}
    for r_hat, fires in ((1.6, False), (3.25, True), (math.nan, False)):
        diagnosed = [about | {"r_hat": r_hat}, about | {"quantity": "norm", "r_hat": 9.0}]
        found = said(copied(store, comparison, f"mixed-{r_hat}", diagnostics=diagnosed), comparison)
        assert [("R-hat is 3.25" in line) for line in found] == [True] * fires
