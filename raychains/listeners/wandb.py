"""Weights & Biases: one W&B run per run, of the same name and id, so that a resumed run goes on in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from raychains.errors import UserError, said
from raychains.listeners.extras import client
from raychains.listeners.record import plain
from raychains.listeners.scalars import FIELDS, Points, Repeats, short
from raychains.planning.listener import ChainDropped, ChainFailed, Happening, Over, Planned, ViewDone

PROJECT = "raychains"
"""Unless WANDB_PROJECT names another."""
LONGEST = 64
"""Characters of a W&B run's id."""


class WandB:
    """Logs each chain's numbers over its gradient evaluations; views' metrics, and why chains failed, go into the summary.

    Where and as whom it logs is W&B's own business: ``wandb login``, WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline.

    Args:
        run: the run's name.
        config: what was asked for.

    Raises:
        UserError: the package is missing, or W&B refuses to begin.
    """

    def __init__(self, run: str, config: Mapping[str, Any]) -> None:
        wandb = client("wandb")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT), id=identifier(run), name=run, resume="allow",
                config=plain(config), settings=wandb.Settings(console="off"),
            )  # fmt: skip
        except Exception as error:
            raise UserError(f"listen: wandb cannot begin: {said(error)}") from None
        self._points, self._repeats = Points(), Repeats()
        self._exit = 1
        """W&B marks a run whose process just ends as crashed; so is one whose end nobody tells."""

    def on(self, happening: Happening) -> None:
        """Log what can be drawn."""
        for point in self._points.of(happening):
            values = {f"{name}/{point.chain}": value for name, value in point.values.items()}
            self._run.log({**values, f"gradients/{point.chain}": point.gradients})
        if isinstance(happening, Planned):
            for digest in happening.comparison.chains():
                self._axis(short(digest))
            self._run.summary["gradients planned"] = happening.budget.unique
        elif isinstance(happening, ViewDone):
            for number, metrics in self._repeats.of(happening):
                for name, value in metrics.items():
                    self._run.summary[f"{name}/{happening.arm}/{number}"] = value
        elif isinstance(happening, ChainFailed | ChainDropped):
            self._run.summary[f"failed/{short(happening.digest)}"] = happening.reason
        elif isinstance(happening, Over):
            self._run.summary["outcome"] = happening.outcome
            self._exit = 0 if happening.outcome == "finished" else 1

    def _axis(self, chain: str) -> None:
        """W&B's own x axis counts calls of all chains together."""
        self._run.define_metric(f"gradients/{chain}", hidden=True)
        for name in FIELDS:
            self._run.define_metric(f"{name}/{chain}", step_metric=f"gradients/{chain}")

    def close(self) -> None:
        """Send what is left."""
        self._run.finish(exit_code=self._exit)


def identifier(run: str) -> str:
    """The run's name, or, where W&B takes it for too long, its beginning with a hash of all of it."""
    return run if len(run) <= LONGEST else f"{run[: LONGEST - 17]}-{hashlib.sha256(run.encode()).hexdigest()[:16]}"
