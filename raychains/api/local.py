"""`local`: chains around trained networks, and their local learning coefficient."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from torch import nn

from raychains.api import plans, sampling
from raychains.api.drivers import backend_of
from raychains.api.keywords import reading
from raychains.api.result import Result
from raychains.core.config import Local
from raychains.core.errors import UserError, renamed, require
from raychains.tasks import Task

MEASURES = ("llc",)


def local(
    model: nn.Module | Local | None = None, data: Any = None, *, loss: Any = None, noise: Any = None, **settings: Any
) -> Result:
    """Sample the posterior near trained networks and estimate their local learning coefficient.

    The target is ∝ exp(−nβ·L(w) − (γ/2)‖w − w*‖²), L the mean loss over the n training examples; the estimate is
    λ̂ = nβ·(E[L(w)] − L(w*)), the table ``llc`` of the result. Chains, orchestration, store and resume are those of
    `rc.run`.

    Example: ``rc.local(model, (inputs, labels), gamma=1.0, epochs=200).store.table("llc")``

    Args:
        model: the trained network at w*; or a `raychains.Local` with all options. It may be left out beside ``task``.
        data: what it was trained on, as `raychains.Task.from_module` takes it: (inputs [n, …], targets [n, …]) or a
            dataset.
        loss: as for `raychains.Task.from_module`; default cross-entropy.
        noise: σ of the Gaussian likelihood, as there.
        settings: options of `raychains.Local` (gamma, nbeta, epsilon, parameters, groups, chains, epochs, batch_size,
            store, …), with ``init_from`` further checkpoints in place of the model's own weights; and callback,
            progress and worker_pool, as for `rc.run`.

    Raises:
        UserError: a setting out of range, a model without data, or a name that another living driver runs.
        Interrupted: the user stopped the run; what was computed is kept.
        ChainsFailed: some chains were given up; everything else is written.

    Source: Lau et al. 2023, https://arxiv.org/abs/2308.12108.
    """
    with reading(Local, *_given(model, data, loss, noise, settings)) as call:
        workers = backend_of(call.options, call.worker_pool)
        planned = plans.local(call.options, call.task)
        return sampling.execute("local", call.options, planned, call.callback, call.task, workers, measures=MEASURES)


def _given(model: Any, data: Any, loss: Any, noise: Any, settings: dict[str, Any]) -> tuple[Local | None, Any]:
    """Return the options where they are one object, and the settings, among them the task of the model and the data."""
    options = model if isinstance(model, Local) else None
    if options is None and model is not None:
        allowed = (
            "be a torch.nn.Module or a raychains.Local: give several checkpoints of it as `init_from=[…]`, beside it"
        )
        require(isinstance(model, nn.Module), "model", type(model).__name__, allowed)
        if data is None:
            raise UserError(
                "data must be given beside a model, as (inputs, targets) or a dataset: what it was trained on"
            )
        require("task" not in settings, "task", settings.get("task"), "be left out beside a model")
        likelihood = {} if loss is None else {"loss": loss}
        with renamed({"train_set": "data", "model_fn": "model", "model_fn:": "model:"}):
            made = Task.from_module(partial(copy.deepcopy, model), data, data, noise=noise, name="local", **likelihood)
        settings = {"init_from": model, **settings, "task": made}
    else:
        for field, value in (("data", data), ("loss", loss), ("noise", noise)):
            require(value is None, field, type(value).__name__, "be left out without a model: the task has its own")
    return options, settings
