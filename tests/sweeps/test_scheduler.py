"""ASHA over a sweep that is resumed: chains that ended report again, and others are compared with them."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains.core.config import Run
from raychains.core.errors import Interrupted
from raychains.evaluation.evaluation import Metric
from raychains.orchestration.tune.sweep_experiment import SweepTrial
from raychains.planning import events
from raychains.store import ChainStore, Storage, SweepStore
from tests.orchestration.trials import CONFIG, OPTIONS, reports
from tests.sweeps.worlds import TASK, Diary, attempts_of, hashes, undrawn
from tests.sweeps.worlds import reports as stored


def made(store: Path, better: str = "lower") -> Any:
    """A trial of sweep ``s`` in this process."""
    trainable = SweepTrial.of(
        Run(store=str(store), val_split=0.1, **OPTIONS), None, reports=10, allow_unequal_budget=True
    )
    trainable.sweep, trainable.metric = "s", Metric(name="nll", label="NLL", better=better, digits=4)
    return trainable(config=CONFIG)


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_a_chain_that_was_stopped_reports_again_what_the_store_has_and_ends_there(tmp_path: Path, better: str) -> None:
    trial = made(tmp_path, better)
    digest, folder = trial._chain.spec.digest, SweepStore(Storage(tmp_path), "s")
    for cycle, nll in enumerate((math.nan, 0.5)):
        metrics = {"nll": nll, "error": 0.25}
        folder.publish_report(
            digest, {"cycle": cycle, "epoch": 2.0 * cycle + 2, "gradients": 360, "samples": 2, "metrics": metrics}
        )
    folder.publish_stop(digest, {"epoch": 4.0, "cycle": 1})
    first, last = reports(trial)
    assert math.isnan(first["nll"]) and first["judged"] == 1e30 and last["nll"] == 0.5
    assert last["judged"] == (0.5 if better == "lower" else -0.5)
    assert (last["error"], last["cycle"], last["epoch"], last["digest"]) == (0.25, 1, 4.0, digest)
    assert ChainStore(Storage(tmp_path), digest).last_attempt() == 0, "it made no step"


def test_a_chain_whose_reports_are_gone_runs_although_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    trial = made(tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0", "the process is not the trial's own"
    SweepStore(Storage(tmp_path), "s").publish_stop(trial._chain.spec.digest, {"epoch": 4.0, "cycle": 1})
    assert [report["cycle"] for report in reports(trial)] == [0, 1, 2]


@pytest.mark.usefixtures("ray_session")
def test_a_chain_that_goes_on_is_compared_with_those_that_ended_under_an_earlier_driver(tmp_path: Path) -> None:
    """The first chain is through when the driver is interrupted; the second, whose lr is far too small, is stopped by
    it."""
    store, asked = str(tmp_path), {"epochs": 8, "val_split": 40, "exploration": 0.5, "thinning": 1, "cycles": 4}
    asked |= {"task": TASK, "grid": {"lr": [0.05, 1e-6]}, "asha": True, "asha_reduction": 2, "concurrent": 1}

    def stop(event: Any) -> None:
        if isinstance(event, events.ChainFinished):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        rc.sweep(store=store, name="s", callback=Diary(stop), **asked)
    diary = Diary()
    with undrawn():
        result = rc.sweep(store=store, name="s", resume=True, callback=diary, **asked)
    through, stopped = result.table(full=True).itertuples()
    assert (through.status, stopped.status) == ("finished", "stopped") and stopped.epoch == 2
    assert stopped.reason == "stopped by ASHA after 2 of 8 epochs"
    [event] = diary.of(events.ChainStopped)
    assert event.digest == stopped.digest and not diary.of(events.ChainFinished)
    [view] = diary.of(events.ViewDone)
    assert view.arm == "point-0" and view.metrics[0]["nll"] == through.nll
    assert len(attempts_of(store, through.digest)) == 1 and len(hashes(store, stopped.digest)) == stopped.samples
    assert [len(found) for found in stored(store, "s", [through.digest, stopped.digest]).values()] == [4, 1]
