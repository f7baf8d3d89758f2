"""Trials of Tune for tests: chains of 24 steps on 200 digits, in this process or with Tune, and what they leave behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray import tune

import raychains as rc
from tests.sweeps.worlds import hashes

ROOT = Path(__file__).parents[2]
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
    """Chains, by default with a pause in each step; ``run`` holds fields of `tune.RunConfig`, ``options`` some of the trainable."""
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
