"""Threads of one process: what one draws is not another's, and runs wait for one another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.model_selection import cross_val_score
from torch import Tensor, nn

import raychains as rc
from raychains.api import plans, sampling
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.sample import tensors_sha256
from raychains.evaluation.regression import outputs
from raychains.models import stacked
from raychains.orchestration.cluster.thread_workers import ThreadWorkers
from raychains.planning.events import Planned, RunEvent
from raychains.tasks.base import seeded

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
BRIEF = 0.2
"""Seconds in which a thread that nothing holds up has drawn."""
SECONDS = 60.0


class Drawing:
    """A thread that wants the global generators, and keeps them for a while once it has them."""

    def __init__(self) -> None:
        self.has = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def _draw(self) -> None:
        with seeded(1):
            self.has.set()
            torch.rand(1)
            threading.Event().wait(BRIEF)

    def comes(self) -> bool:
        """Start it; return whether it has the generators soon."""
        self._thread.start()
        return self.has.wait(BRIEF)

    def ended(self) -> bool:
        self._thread.join(SECONDS)
        return self.has.is_set()


def task(**settings: Any) -> rc.Task:
    net = lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))  # noqa: E731
    return rc.Task.from_module(net, (X, Y), (X, Y), **{"name": "threads", **settings})


def test_a_thread_that_builds_a_model_has_the_generators_for_itself() -> None:
    with seeded(0):
        alone = torch.rand(4)
    other = Drawing()
    with seeded(0):
        first = torch.rand(2)
        assert not other.comes()
        assert torch.equal(torch.cat([first, torch.rand(2)]), alone)
    assert other.ended()


def test_dropout_of_a_chain_is_its_own_beside_a_thread_that_builds_models() -> None:
    options = Run(task="digits", sampler="sghmc", epochs=4, batch_size=20, lr=0.05, chains=1, schedule="constant")
    planned = plans.run(options, task=task())
    (spec,) = planned.comparison.chains().values()

    def run(other: Drawing | None) -> str:
        chain = Chain(spec, task())

        def stop() -> bool:
            if other is not None and chain.step == 1 and not other.has.is_set():
                assert not other.comes()
            return False

        while chain.advance(stop):
            pass
        return tensors_sha256(chain.model.state_dict())

    other = Drawing()
    assert run(other) == run(None)
    assert other.ended()


def test_predictions_in_threads_are_each_of_one_sample() -> None:
    """The second thread would load its sample while the network of the first runs."""
    first, second = threading.Event(), threading.Event()

    class Slow(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (second if first.is_set() else first).set()
            second.wait(BRIEF)
            return super().forward(x)

    model = Slow(3, 2, bias=False)
    samples = [{"weight": torch.full((2, 3), float(s))} for s in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda sample: outputs(model, sample, X), samples))
    for output, sample in zip(found, samples, strict=True):
        torch.testing.assert_close(output, X @ sample["weight"].T)


def test_runs_of_one_process_wait_for_one_another(tmp_path: Path) -> None:
    """Two tasks of one name: each run has its own all along."""
    settings = {"sampler": "sghmc", "chains": 1, "epochs": 10, "batch_size": 20, "lr": 0.01}
    found: dict[str, str] = {}

    def run(version: str, callback: Any = None) -> None:
        own = {"store": str(tmp_path), "callback": callback, **settings}
        found[version] = sampling.sample(task(version=version), ThreadWorkers(), **own).store.name

    other = threading.Thread(target=run, args=("2",))

    class Begins:
        def on(self, event: RunEvent) -> None:
            if isinstance(event, Planned):
                other.start()
                other.join(BRIEF)
                assert not found

    run("1", Begins())
    other.join(SECONDS)
    assert set(found) == {"1", "2"}


def test_a_cross_validation_in_threads_is_that_of_one_thread() -> None:
    x = X.double().numpy()
    estimator = rc.sklearn.PosteriorRegressor(method="cpsgld", backend="process", chains=1, epochs=20, hidden=(4,))
    alone = cross_val_score(estimator, x, x[:, 0], cv=4)
    with joblib.parallel_backend("threading", n_jobs=4):
        np.testing.assert_array_equal(cross_val_score(estimator, x, x[:, 0], cv=4, error_score="raise"), alone)


def test_a_network_predicts_while_another_is_traced() -> None:
    """Tracing, by which packs are planned, patches torch.nn for all threads."""
    predicting, found = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), []

    class Slow(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            other = threading.Thread(target=lambda: found.append(predicting(torch.ones(1, 3))))
            other.start()
            other.join()
            return super().forward(x)

    assert stacked.layers(Slow(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))[0] == "0"
    assert len(found) == 1 and torch.equal(found[0], predicting(torch.ones(1, 3)))
