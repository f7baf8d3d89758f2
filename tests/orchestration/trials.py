"""Trials of Tune for tests: chains of 24 steps on 200 digits, in this process or with Tune, and what they leave
behind."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from ray import tune

import raychains as rc
from tests.callbacks.test_tensorboard import written
from tests.processes import ROOT
from tests.sweeps.worlds import hashes

PAGE = (ROOT / "docs" / "how-to" / "tune.md").read_text(encoding="utf-8")
EXAMPLE, OPTUNA, RESTORE = re.findall(r"```python\n(.*?)```", PAGE, re.S)
GUARDED = "tests.sweeps.tasks:Guarded"
CONFIG = {"exploration": 0.5, "cycles": 3}
OPTIONS: dict[str, Any] = {"task": GUARDED, "epochs": 6, "sampler": "csgld"}
PAUSED = ("pause=0.03",)


def trial(store: Path, config: dict[str, Any], **options: Any) -> Any:
    """A trial in this process, without Tune's controller."""
    return rc.tune.trainable(**{**OPTIONS, "store": str(store), **options})(config=config)


def reports(of: Any) -> list[dict[str, Any]]:
    """All that are left."""
    found = [of.step()]
    while not found[-1]["done"]:
        found.append(of.step())
    return found


def fit(
    store: Path,
    space: dict[str, Any],
    run: dict[str, Any],
    /,
    options: Mapping[str, Any] = MappingProxyType({}),
    **tune_config: Any,
) -> Any:
    """Chains, by default with a pause in each step; ``run`` holds fields of `tune.RunConfig`, ``options`` some of the
    trainable."""
    return tune.Tuner(
        rc.tune.trainable(**{**OPTIONS, "task_settings": PAUSED, **options}, store=str(store)),
        param_space=space,
        tune_config=tune.TuneConfig(metric="nll", mode="min", **tune_config),
        run_config=tune.RunConfig(**{"name": "tuned", "verbose": 0, **run}),
    ).fit()


def check_undisturbed(found: Any, store: Path, clean: Path, *epochs: float, **options: Any) -> None:
    """Trials have the reports and the sample bytes of chains that nothing happened to."""
    assert not found.errors and [r.metrics["epoch"] for r in found] == list(epochs)
    for result in found:
        alone = reports(trial(clean, result.config, **{"task_settings": PAUSED, **options}))
        last = alone[result.metrics["cycle"]]
        assert {name: result.metrics[name] for name in last if name != "done"} == {
            name: value for name, value in last.items() if name != "done"
        }
        mine, theirs = hashes(str(clean), last["digest"]), hashes(str(store), last["digest"])
        assert theirs.items() <= mine.items() and len(theirs) >= last["samples"]


class Seen(tune.Callback):
    """Remembers the reports of every trial."""

    def __init__(self) -> None:
        self.reports: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        self.reports[trial.trial_id].append(result)


def check_reports(result: Any, seen: Seen) -> None:
    """A callback and Tune's loggers have every report of a trial once, with what the page names."""
    documented = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.M)))
    assert {"nll", "brier", "gradient_evaluations", "digest"} <= set(documented)
    told = seen.reports[result.metrics["trial_id"]]
    assert all(set(documented) <= report.keys() for report in told)
    assert [report["cycle"] for report in told] == [0, 1, 2][: len(told)]
    nll = [report["nll"] for report in told]
    folder = Path(result.path)
    assert [json.loads(line)["nll"] for line in (folder / "result.json").read_text().splitlines()] == nll
    with (folder / "progress.csv").open() as table:
        assert [float(row["nll"]) for row in csv.DictReader(table)] == nll
    assert [value for _, value in written(folder)["ray/tune/nll"]] == pytest.approx(nll)
