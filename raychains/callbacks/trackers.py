"""Weights & Biases and MLflow: each run is one run of theirs, found again by its name: a resumed run continues in
it."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raychains.callbacks.batched_sender import BatchedSender
from raychains.callbacks.event_data import Points, Repeats, plain, short
from raychains.core.errors import UserError, format_error
from raychains.planning.events import ChainDropped, ChainFailed, Planned, RunEnded, RunEvent, SweepPlanned, ViewDone

PROJECT = "raychains"
"""W&B's project and MLflow's experiment, unless WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME name others."""
LONGEST_ID = 64
"""Characters of a W&B run's id."""
TAG = "raychains.run"
"""Tag of an MLflow run that holds the run's name, since MLflow chooses ids itself."""
SEND_EVERY = 5.0
"""Seconds between requests to MLflow."""
MOST, LONGEST_PARAM, LONGEST_TAG = 500, 6000, 5000
"""Limits of a request to MLflow, a parameter and a tag: MLflow's own, or less."""
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


def client(name: str) -> Any:
    """Return the module ``name``, which the extra of the same name brings.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"callback: {name} needs the package of that name ({error}): pip install 'raychains[{name}]'"
        ) from None


class WandB:
    """Logs each chain's numbers over its gradient evaluations; views' metrics and chains' failures go into the summary.

    Project and account are W&B's own settings: ``wandb login``, WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline.

    Raises:
        UserError: the package is missing, or W&B refuses to begin.
    """

    def __init__(self, run: str, config: Mapping[str, Any]) -> None:
        wandb = client("wandb")
        about = {"project": os.environ.get("WANDB_PROJECT", PROJECT), "id": wandb_id(run), "name": run}
        try:
            settings = wandb.Settings(console="off")
            self._run = wandb.init(**about, resume="allow", config=plain(config), settings=settings)
        except Exception as error:
            raise UserError(f"callback: wandb cannot begin: {format_error(error, kind=True)}") from None
        self._points, self._repeats = Points(), Repeats()
        self._curves: set[str] = set()
        self._exit = 1
        """The exit code that W&B is given: 1, crashed, until the run has ended."""

    def on(self, event: RunEvent) -> None:
        """Log the event's numbers."""
        for point in self._points.of(event):
            values = {f"{name}/{point.chain}": value for name, value in point.values.items()}
            axis = f"gradients/{point.chain}"
            if axis not in self._curves:
                self._run.define_metric(axis, hidden=True)
            for name in values.keys() - self._curves:  # W&B's own x axis counts calls of all chains together
                self._run.define_metric(name, step_metric=axis)
            self._curves |= {axis, *values}
            self._run.log({**values, axis: point.gradients})
        if isinstance(event, Planned):
            self._run.summary["gradients planned"] = event.budget.unique
        elif isinstance(event, SweepPlanned):
            plan = event.plan
            self._run.summary["gradients planned"] = plan.gradients * plan.count * plan.repeats
        elif isinstance(event, ViewDone):
            for number, metrics in self._repeats.of(event):
                for name, value in metrics.items():
                    self._run.summary[f"{name}/{event.arm}/{number}"] = value
        elif isinstance(event, ChainFailed | ChainDropped):
            self._run.summary[f"failed/{short(event.digest)}"] = event.reason
        elif isinstance(event, RunEnded):
            self._run.summary["outcome"] = event.outcome
            self._exit = 0 if event.outcome == "finished" else 1

    def close(self) -> None:
        """Send the rest."""
        self._run.finish(exit_code=self._exit)


def wandb_id(run: str) -> str:
    """Return the run's name, or, where W&B takes it for too long, its beginning with a hash of all of it."""
    if len(run) <= LONGEST_ID:
        return run
    return f"{run[: LONGEST_ID - 17]}-{hashlib.sha256(run.encode()).hexdigest()[:16]}"


class MLflow:
    """Logs each chain's numbers with its gradient evaluations as step, and views' metrics with the repeat's number.

    Server and experiment are MLflow's own settings: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME. A thread makes
    requests.

    Args:
        config: the run's options; logged as parameters of a new MLflow run, for they cannot be changed.

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
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
            self._id = self._begin(run, experiment, config)
        except Exception as error:
            raise UserError(f"callback: mlflow cannot begin: {format_error(error, kind=True)}") from None
        self._sender = BatchedSender(self._send, SEND_EVERY, "MLflow's metrics")

    def _begin(self, run: str, experiment: str, config: Mapping[str, Any]) -> str:
        """The id of the MLflow run of this name, begun or resumed."""
        earlier = self._client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{run}'", max_results=1)
        if earlier:
            self._client.update_run(earlier[0].info.run_id, status="RUNNING")
            return str(earlier[0].info.run_id)
        number = str(self._client.create_run(experiment, run_name=run, tags={TAG: run}).info.run_id)
        params = [self._entities.Param(k, str(v)[:LONGEST_PARAM]) for k, v in plain(config).items()]
        for some in _in_batches(params, 100):
            self._client.log_batch(number, params=some)
        return number

    def on(self, event: RunEvent) -> None:
        """Hand the event's numbers to the thread."""
        for point in self._points.of(event):
            for name, value in point.values.items():
                self._metric(f"{name}/{point.chain}", value, point.gradients)
        if isinstance(event, ViewDone):
            for number, metrics in self._repeats.of(event):
                for name, value in metrics.items():
                    self._metric(f"{name}/{event.arm}", value, number)
        elif isinstance(event, ChainFailed | ChainDropped):
            self._sender.put(self._entities.RunTag(f"failed.{short(event.digest)}", event.reason[:LONGEST_TAG]))
        elif isinstance(event, RunEnded):
            self._outcome = event.outcome

    def _metric(self, key: str, value: float, step: int) -> None:
        key = re.sub(r"[^/\w.\- ]", "_", key)  # other signs are refused
        self._sender.put(self._entities.Metric(key, value, int(time.time() * 1000), step))

    def _send(self, items: list[Any]) -> None:
        """Send a batch; one that breaks off in the middle is sent again: MLflow keeps equal points once."""
        tags = [one for one in items if isinstance(one, self._entities.RunTag)]
        metrics = [one for one in items if not isinstance(one, self._entities.RunTag)]
        for some in _in_batches(metrics, MOST):
            self._client.log_batch(self._id, metrics=some)
        for some in _in_batches(tags, 50):
            self._client.log_batch(self._id, tags=some)

    def close(self) -> None:
        """Send the rest and mark the MLflow run's end."""
        self._sender.close()
        self._client.set_terminated(self._id, STATUS[self._outcome])


def _in_batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
