"""Callbacks: objects with a method ``on(event)``, which are called during a run; the built-in ones have names.

``raychains.callbacks.Tick`` and the other events are those of `raychains.planning.events`.
"""

from raychains.callbacks.callback_list import CallbackList
from raychains.planning.events import (
    Callback,
    ChainBegan,
    ChainDropped,
    ChainFailed,
    ChainFinished,
    ChainRestarted,
    ChainStatus,
    Evaluating,
    Measuring,
    Message,
    NullCallback,
    Planned,
    Ready,
    Resumed,
    RunEnded,
    RunEvent,
    Stopping,
    Tick,
    TornCheckpoint,
    ViewDone,
    Waiting,
    WorkerLost,
)

NAMES = ("jsonl", "mlflow", "ray-metrics", "tensorboard", "wandb")
"""Names of the built-in callbacks, for the option ``callback``."""

__all__ = ["NAMES", "Callback", "CallbackList", "ChainBegan", "ChainDropped", "ChainFailed", "ChainFinished"]
__all__ += ["ChainRestarted", "ChainStatus", "Evaluating", "Measuring", "Message", "NullCallback", "Planned", "Ready"]
__all__ += ["Resumed", "RunEnded", "RunEvent", "Stopping", "Tick", "TornCheckpoint", "ViewDone", "Waiting"]
__all__ += ["WorkerLost"]
