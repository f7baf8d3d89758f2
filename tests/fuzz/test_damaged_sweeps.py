"""A sweep's files that are whole JSON and say something else, with a right checksum or none: one line, or left out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raychains.core.checksum import sealed, unsealed
from raychains.core.errors import UserError
from raychains.inference import sweep_results
from raychains.inference.sweep_data import Sweep
from raychains.store import Storage, SweepStore
from tests.fuzz.rules import examples, no_ray, no_rendering, say
from tests.fuzz.test_damaged_stores import REPLACEMENTS, changed, paths
from tests.store import flips


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flips.Store]:
    with pytest.MonkeyPatch.context() as patch:
        no_ray(patch)
        no_rendering(patch)
        yield flips.make(tmp_path_factory.mktemp("store"))


@examples(12, "store")
@given(
    number=st.integers(0, 100_000),
    how=st.sampled_from(["replace", "replace", "remove", "extra"]),
    new=st.sampled_from([*REPLACEMENTS, ["x"], 3]),
    command=st.sampled_from(["report", "report", "status"]),
    deep=st.booleans(),
)
@example(number=19, how="replace", new=["x"], command="report", deep=False)
def test_a_sweeps_plan_that_says_something_else(
    store: flips.Store, number: int, how: str, new: Any, command: str, deep: bool
) -> None:
    file = store.root / "sweeps" / flips.SWEEP / "plan.json"
    plan = json.loads(store.files[f"sweeps/{flips.SWEEP}/plan.json"])
    places = [place for place in paths(plan) if deep or len(place) == 1]
    written = changed(plan, places[number % len(places)], how, new)
    file.write_text(json.dumps(sealed(written) if isinstance(written, dict) else written))
    try:
        say([command, str(file.parent)])
    finally:
        store.restore()


def test_each_entry_of_a_sweeps_plan_is_of_its_kind(store: flips.Store) -> None:
    """Lists where there are texts, and nothing where there is something."""
    file = store.root / "sweeps" / flips.SWEEP / "plan.json"
    plan = unsealed(json.loads(store.files[f"sweeps/{flips.SWEEP}/plan.json"]))[0]
    refused = []
    for name in plan:
        for change in ({name: ["x"]}, {}):
            file.write_text(
                json.dumps({key: value for key, value in {**plan, **change}.items() if change or key != name})
            )
            try:
                Sweep.of(SweepStore(Storage(store.root), flips.SWEEP))
            except UserError as error:
                assert str(error).startswith(f"sweep {flips.SWEEP}: ")
                refused.append(name)
    store.restore()
    assert {"task", "unit", "split", "metric", "swept", "length", "better", "task_spec", "asha"} <= set(refused)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": None, "ePoch": 4.0},
        {"epoch": "4"},
        {"cycle": 7},
        {"metrics": {"nlm": 0.5}},
        {"metrics": {"nll": "0.5"}},
        {"metrics": [1.0]},
        {"gradients": None},
    ],
    ids=json.dumps,
)
def test_a_report_that_says_something_else_is_passed_over(
    store: flips.Store, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    folder, plan = SweepStore(Storage(store.root), flips.SWEEP), store.planned.plan
    [spec] = plan.points[0].specs
    file = max((store.root / "sweeps" / flips.SWEEP / "reports" / spec.digest).iterdir())
    report = unsealed(json.loads(file.read_text()))[0]
    file.write_text(json.dumps({key: value for key, value in {**report, **change}.items() if value is not None}))
    try:
        with caplog.at_level(logging.WARNING):
            found = folder.reports(spec.digest, plan.metric.name)
            assert report not in found and all(one["epoch"] < report["epoch"] for one in found)
            assert f"passed over, since it is torn or altered: {file}" in caplog.text
            if "nlm" not in change.get("metrics", {}):
                rows = sweep_results.write(folder, store.planned, plan.points, {})
                assert rows[0]["status"] == "waiting"
    finally:
        store.restore()


def test_the_sweep_itself_is_whole(store: flips.Store) -> None:
    """What the others are compared with: undamaged, the page is drawn."""
    assert say(["report", str(Path(store.root, "sweeps", flips.SWEEP))]).status == 0
    store.restore()
