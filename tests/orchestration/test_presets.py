"""Presets under evaluators: arms of another network and arms of one variable are what their samples give directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.core.config import Compare
from raychains.inference.predictive import Predictive, select
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.lease import Lease
from raychains.orchestration.run.evaluator_pool import Evaluators
from raychains.orchestration.run.launch import evaluate_views
from raychains.planning.events import NullCallback
from raychains.store import Storage
from tests.inference.runs import finished
from tests.orchestration.threads import ThreadWorkers

SMALL: dict[str, Any] = {"epochs": 4, "cycles": 2, "chains": 1, "repeats": 1, "lr": 0.05}


@pytest.mark.parametrize("preset", ["emcmc-batchnorm", "emcmc-variables"])
def test_every_arm_is_what_its_own_samples_give(tmp_path: Path, preset: str, threads: ThreadWorkers) -> None:
    """FRN's samples need FRN's network although the run's task is BatchNorm's; θₐ's arm averages θₐ's draws alone."""
    result = finished(tmp_path, Compare(preset=preset, **SMALL))
    placement = ResourceConfig(evaluators=1, keep_predictions="all")
    root, kinds = Storage(tmp_path), ("all", "samples")
    with Evaluators.of(result.comparison, root, placement, workers=threads) as evaluators:
        outcome = evaluate_views(
            result.comparison, root, placement, NullCallback(), "test", kinds, lease=Lease(root), evaluators=evaluators
        )
    views = {(v.key.arm, v.request.view.name): v for v in outcome.requested}
    for a, arm in enumerate(result.comparison.arms):
        selection = select(Storage(tmp_path), result.comparison, arm.name)
        test: Any = selection.task.splits()["test"]
        p = Predictive(selection)(test.inputs)
        wanted = -np.log(p[np.arange(len(p)), test._labels]).mean()
        assert views[a, "all"].metrics[0]["nll"] == pytest.approx(wanted, rel=1e-5)
        variables = {meta.variable for _, record in selection.records for meta in (record.meta,)}
        assert variables == (set(arm.variables) or {"theta", "anchor"})
        assert (
            views[a, "all"].samples == len(selection.records) == sum(key == a for key, name in views if name != "all")
        )
