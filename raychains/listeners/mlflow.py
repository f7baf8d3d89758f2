"""MLflow: one MLflow run per run, found again by its tag, so that a resumed run goes on in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raychains.errors import UserError, said
from raychains.listeners.behind import Behind
from raychains.listeners.extras import client
from raychains.listeners.record import plain
from raychains.listeners.scalars import Points, Repeats, short
from raychains.planning.listener import ChainDropped, ChainFailed, Happening, Over, ViewDone

EXPERIMENT = "raychains"
"""Unless MLFLOW_EXPERIMENT_NAME names another."""
TAG = "raychains.run"
"""Holds the run's name: MLflow chooses ids itself."""
SEND_EVERY = 5.0
"""Seconds between requests."""
MOST, LONGEST_PARAM, LONGEST_TAG = 500, 6000, 5000
"""What one request, a parameter and a tag may hold: MLflow's limits, or less."""
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MLflow:
    """Logs each chain's numbers with its gradient evaluations as step, and views' metrics with the repeat's number.

    Where it logs is MLflow's own business: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME. Requests are made by a thread.

    Args:
        run: the run's name.
        config: what was asked for; logged as parameters of a new MLflow run, for they cannot be changed.

    Raises:
        UserError: the package is missing, or the server refuses.
    """

    def __init__(self, run: str, config: Mapping[str, Any]) -> None:
        mlflow = client("mlflow")
        self._entities = mlflow.entities
        self._points, self._repeats = Points(), Repeats()
        self._outcome = "failed"
        try:
            self._client = mlflow.MlflowClient()
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
            self._id = self._of(run, experiment, config)
        except Exception as error:
            raise UserError(f"listen: mlflow cannot begin: {said(error)}") from None
        self._behind = Behind(self._send, SEND_EVERY, "MLflow's metrics")

    def _of(self, run: str, experiment: str, config: Mapping[str, Any]) -> str:
        """The id of the MLflow run of this name, begun or gone on with."""
        earlier = self._client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{run}'", max_results=1)
        if earlier:
            self._client.update_run(earlier[0].info.run_id, status="RUNNING")
            return str(earlier[0].info.run_id)
        number = str(self._client.create_run(experiment, run_name=run, tags={TAG: run}).info.run_id)
        params = [self._entities.Param(k, str(v)[:LONGEST_PARAM]) for k, v in plain(config).items()]
        for some in _in_batches(params, 100):
            self._client.log_batch(number, params=some)
        return number

    def on(self, happening: Happening) -> None:
        """Hand what can be drawn to the thread."""
        for point in self._points.of(happening):
            for name, value in point.values.items():
                self._metric(f"{name}/{point.chain}", value, point.gradients)
        if isinstance(happening, ViewDone):
            for number, metrics in self._repeats.of(happening):
                for name, value in metrics.items():
                    self._metric(f"{name}/{happening.arm}", value, number)
        elif isinstance(happening, ChainFailed | ChainDropped):
            tag = self._entities.RunTag(f"failed.{short(happening.digest)}", happening.reason[:LONGEST_TAG])
            self._behind.put(tag)
        elif isinstance(happening, Over):
            self._outcome = happening.outcome

    def _metric(self, key: str, value: float, step: int) -> None:
        self._behind.put(self._entities.Metric(key, value, int(time.time() * 1000), step))

    def _send(self, items: list[Any]) -> None:
        """A batch that breaks off in the middle is sent again: MLflow keeps equal points once."""
        tags = [one for one in items if isinstance(one, self._entities.RunTag)]
        metrics = [one for one in items if not isinstance(one, self._entities.RunTag)]
        for some in _in_batches(metrics, MOST):
            self._client.log_batch(self._id, metrics=some)
        for some in _in_batches(tags, 50):
            self._client.log_batch(self._id, tags=some)

    def close(self) -> None:
        """Send what is left and mark the MLflow run's end."""
        self._behind.close()
        self._client.set_terminated(self._id, STATUS[self._outcome])


def _in_batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
