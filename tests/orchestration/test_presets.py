"""Presets under real evaluators: arms of another network and arms of one variable are what their samples give directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.options import Compare
from raychains.orchestration.placement import Placement
from raychains.orchestration.views import evaluate_views
from raychains.planning.listener import Silent
from raychains.predictive import Predictive, select
from raychains.store import Root
from tests.deploy.runs import finished

pytestmark = pytest.mark.usefixtures("ray_session")
SMALL: dict[str, Any] = {"epochs": 4, "cycles": 2, "chains": 1, "repeats": 1, "lr": 0.05}


@pytest.mark.parametrize("preset", ["emcmc-batchnorm", "emcmc-variables"])
def test_every_arm_is_what_its_own_samples_give(tmp_path: Path, preset: str) -> None:
    """FRN's samples need FRN's network although the run's task is BatchNorm's; θₐ's arm averages θₐ's draws alone."""
    result = finished(tmp_path, Compare(preset=preset, **SMALL))
    placement = Placement(evaluators=1, keep_predictions="all")
    outcome = evaluate_views(result.comparison, Root(tmp_path), placement, Silent(), "test", ("all", "samples"))
    views = {(v.key.arm, v.request.view.name): v for v in outcome.requested}
    for a, arm in enumerate(result.comparison.arms):
        selection = select(Root(tmp_path), result.comparison, arm.name)
        test: Any = selection.task.splits()["test"]
        p = Predictive(selection)(test.inputs)
        wanted = -np.log(p[np.arange(len(p)), test._labels]).mean()
        assert views[a, "all"].metrics[0]["nll"] == pytest.approx(wanted, rel=1e-5)
        variables = {meta.variable for _, record in selection.records for meta in (record.meta,)}
        assert variables == (set(arm.variables) or {"theta", "anchor"})
        assert (
            views[a, "all"].samples == len(selection.records) == sum(key == a for key, name in views if name != "all")
        )
