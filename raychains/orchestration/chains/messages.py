"""Messages between the driver and its actors: plain data, which import neither torch nor ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from raychains.core.sample import ChainProgress

if TYPE_CHECKING:
    from raychains.orchestration.cluster.payload import Payload

# To a chain worker


@dataclass(frozen=True, kw_only=True)
class ChainWorkerConfig:
    """A chain worker's settings for all of its chains."""

    store: str
    """URI of the run store."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints."""
    every_cycle: bool = False
    """The store must have every cycle's end, for chains that may be restarted from there."""
    data_root: str | None = None
    """Folder of the data sets, set for the tasks that the worker builds; None leaves the environment's."""
    gpus: float = 0.0
    """The slot's share of GPUs; without one the chain runs on the CPU whatever the machine has."""
    name: str = "chain-worker"
    """Prefix of its log lines."""
    own_process: bool = True
    """It has a process to itself, whose environment it sets up; without one its chains run on the CPU."""


@dataclass(frozen=True, kw_only=True)
class ChainAssignment:
    """One attempt at a chain."""

    spec: Mapping[str, Any]
    """JSON of the `ChainSpec`."""
    attempt: int
    """Its number: file names carry it."""
    restart: int = 0
    """The noise streams asked for: above the newest checkpoint's they send the chain back to its cycle's start."""
    restart_from: int = 0
    """The step of that start: from an earlier checkpoint the chain runs on the noise that it was on."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Goes into the attempt's record."""
    ranks: int = 1
    """Workers that run the chain together."""


# From a chain worker, beside the events of `raychains.coordination.coordinator.AttemptEvent`


@dataclass(frozen=True, kw_only=True)
class AttemptStatus(ChainProgress):
    """The state of a running chain."""

    waiting: str | None = None
    """The reason why the chain waits; None when it does not."""
    made: int | None = None
    """Steps of the chain so far, those since the last progress record too; None before the chain is built."""
    held: str | None = None
    """The reason why it makes no steps though its process is well; None while it makes some."""

    def shown(self) -> dict[str, Any]:
        """Return the fields of `ChainProgress`, which `raychains.planning.events.ChainStatus` shows."""
        return {f.name: getattr(self, f.name) for f in fields(ChainProgress)}


# To and from an evaluator


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The comparison that evaluators work on."""

    task: Mapping[str, Any]
    """JSON of the `TaskSpec`."""
    split: str
    """The task's split that comes first; every call names its own."""
    bins: int
    """Bins of calibration errors."""
    payload: Payload | None = None
    keep: str = "none"
    """Policy of predictions that stay in the store: auto, all or none."""
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """JSON of the tasks of those chains, by digest, that have another network on the same data."""


@dataclass(frozen=True, kw_only=True)
class EvaluatorConfig:
    """An evaluator's settings for all comparisons."""

    store: str
    """URI of the run store."""
    data_root: str | None = None
    gpus: float = 0.0
    """Its share of GPUs; without one it predicts on the CPU whatever the machine has."""
    own_process: bool = True
    """False where it shares the process of its user, whose environment and priority stay as they are."""
    name: str = "evaluator"


@dataclass(frozen=True, kw_only=True)
class StoredSample:
    """A durable sample that is to be predicted."""

    digest: str
    file: str
    sha256: str
    start: str | None = None
    """Digest of what completes a sample that holds only some of the network's parameters."""


@dataclass(frozen=True, kw_only=True)
class ViewSummary:
    """A view's metrics and curves per repeat, and its rows where they are wanted."""

    metrics: list[dict[str, float]]
    curves: list[dict[str, list[float]]]
    rows: Mapping[str, Any]
