"""Posteriors held against quadrature, and predictions that are the same numbers wherever they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from torch import Tensor, nn

import raychains as rc
from raychains.inference import requests

Array = np.ndarray[Any, Any]


def settled(task: Any, n: int, folder: Path, **settings: Any) -> rc.Result:
    """Return a long run of two chains on all ``n`` examples under the prior N(0, 1)."""
    return rc.run(
        task=task, sampler="sghmc", schedule="constant", weight_decay=1 / n, burn_in=0, batch_size=n, chains=2,
        thinning=20, schedule_settings={"warm_up": 0.1}, backend="process", progress=False, store=str(folder),
        pack="auto", **settings,
    )  # fmt: skip


def assert_posterior(draws: Array, grid: Array, log_p: Array) -> None:
    """Draws [2, n] have the moments of exp(log p) on the grid, within two standard errors and the step's own bias."""
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = (p * grid).sum()
    variance = (p * (grid - mean) ** 2).sum()
    ess = float(array_stats.ess(draws, chain_axis=0, draw_axis=1))
    assert ess > 100
    assert abs(draws.mean() - mean) < 2 * (variance / ess) ** 0.5
    assert abs(draws.var() - variance) < 2 * variance * (2 / ess) ** 0.5 + 0.05 * variance


def answered(posterior: rc.PosteriorPredictive, x: Any, **asked: Any) -> Any:
    """Return what a server of the posterior answers."""
    [answer] = requests.answer(posterior, [requests.Question(inputs=x, **asked)])
    assert not isinstance(answer, requests.Refused)
    return answer


def close(found: Any, expected: Array) -> None:
    np.testing.assert_allclose(found.detach().numpy() if isinstance(found, Tensor) else found, expected, atol=1e-6)


def exported(result: rc.Result, network: nn.Module, x: Any, to: Path) -> tuple[Any, rc.PosteriorPredictive]:
    """Export a result and load it again; posteriors and a server's answer predict at ``x`` what the result does."""
    written, p = result.export(str(to)), result.predict(x)
    loaded = rc.PosteriorPredictive.load(written.path, model=network)
    answer = answered(loaded, x)
    if "probabilities" in answer:
        for found in (loaded(x).probabilities, result.posterior()(x).probabilities, answer["probabilities"]):
            close(found, p)
        return written, loaded
    mean, sd = result.predictive().mean_and_std(x)
    for found in (loaded(x).mean, result.posterior()(x).mean, answer["mean"], p):
        close(found, mean)
    for found in (loaded(x).variance, result.posterior()(x).variance, answer["sd"] ** 2):
        close(found, sd**2)
    return written, loaded
