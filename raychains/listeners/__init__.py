"""Listeners: what a run tells, and who takes it further. Write your own with an ``on`` method; the built-in ones have names.

``raychains.listeners.Tick`` and the other events are those of `raychains.planning.listener`, which says what each holds.
"""

from raychains.listeners.several import Listeners
from raychains.planning.listener import (
    ChainBegan,
    ChainDropped,
    ChainFailed,
    ChainFinished,
    ChainRestarted,
    ChainStatus,
    Evaluating,
    GoesOn,
    Happening,
    Listener,
    Measuring,
    Over,
    Planned,
    Ready,
    Said,
    Silent,
    SlotGone,
    Stopping,
    Tick,
    TornCheckpoint,
    ViewDone,
    Waiting,
)

NAMES = ("jsonl", "mlflow", "ray-metrics", "tensorboard", "wandb")
"""Of the built-in ones, for the option ``listen``."""

__all__ = [
    "NAMES", "ChainBegan", "ChainDropped", "ChainFailed", "ChainFinished", "ChainRestarted", "ChainStatus", "Evaluating",
    "GoesOn", "Happening", "Listener", "Listeners", "Measuring", "Over", "Planned", "Ready", "Said", "Silent", "SlotGone",
    "Stopping", "Tick", "TornCheckpoint", "ViewDone", "Waiting",
]  # fmt: skip
