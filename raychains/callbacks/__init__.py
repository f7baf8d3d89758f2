"""Callbacks: objects with a method ``on(event)``, which are called during a run or a sweep; the built-in ones have
names.

``raychains.callbacks.Tick`` and the other events are those of `raychains.planning.events`.
"""

from raychains.callbacks.callback_list import CallbackList
from raychains.planning.events import (
    Callback,
    ChainBegan,
    ChainDropped,
    ChainFailed,
    ChainFinished,
    ChainReported,
    ChainRestarted,
    ChainStatus,
    ChainStopped,
    Evaluating,
    Measuring,
    Message,
    NullCallback,
    Planned,
    PointChosen,
    Preempted,
    Ready,
    Resumed,
    RunEnded,
    RunEvent,
    Stalled,
    StallEnded,
    Stopping,
    SweepPlanned,
    Tick,
    TornCheckpoint,
    ViewDone,
    Waiting,
    WorkerLost,
)

NAMES: dict[str, str] = {
    "jsonl": "raychains.callbacks.jsonl:JsonLinesParts",
    "mlflow": "raychains.callbacks.trackers:MLflow",
    "ray-metrics": "raychains.orchestration.cluster.prometheus:RayMetrics",
    "tensorboard": "raychains.callbacks.tensorboard:TensorBoard",
    "wandb": "raychains.callbacks.trackers:WandB",
}
"""Built-in callbacks: their import paths by the names that the option ``callback`` takes."""

__all__ = ["NAMES", "Callback", "CallbackList", "ChainBegan", "ChainDropped", "ChainFailed", "ChainFinished"]
__all__ += ["ChainReported", "ChainRestarted", "ChainStatus", "ChainStopped", "Evaluating", "Measuring", "Message"]
__all__ += ["NullCallback", "Planned", "PointChosen", "Preempted", "Ready", "Resumed", "RunEnded", "RunEvent"]
__all__ += ["StallEnded", "Stalled", "Stopping", "SweepPlanned", "Tick", "TornCheckpoint", "ViewDone", "Waiting"]
__all__ += ["WorkerLost"]
