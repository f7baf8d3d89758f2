"""A run that dropped a chain predicts with the others, as its results say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import raychains as rc
from raychains.errors import ChainsFailed
from raychains.evaluation.classification import log_probabilities
from raychains.store import ChainStore, codec
from raychains.tasks.digits import Digits
from tests.checks import refused


class Doomed(Digits):
    """Digits whose loss is undefined in chains that begin with a positive first weight."""

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        loss = super().backward(model, batch, generator)
        assert loss is not None
        self._steps += 1
        return loss * torch.nan if self._bad and self._steps > 15 else loss

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        model = super().build_model(seed=seed, lanes=lanes)
        self._steps, self._bad = 0, bool(next(model.parameters())[0, 0] > 0)
        return model


@pytest.mark.parametrize("policy", ["drop-chain", "stop"])
def test_what_is_left_of_an_arm_predicts_only_if_the_chain_was_dropped(
    policy: str, ray_session: None, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"epochs": 4, "cycles": 1, "samples_per_cycle": 2, "exploration": 0.25, "chains": 4}
    with pytest.raises(ChainsFailed):
        rc.run(task=f"{__name__}:Doomed", store=str(tmp_path), name="run", lr=0.01, on_divergence=policy, **settings)
    result = rc.load(str(tmp_path / "runs" / "run"))
    stores = {d: ChainStore(result.store.root, d) for d in result.comparison.chains()}
    whole = [
        codec.decode(s.read_sample(r.file))[0] for s in stores.values() if len(s.records()) == 2 for r in s.records()
    ]
    assert 0 < len(whole) < 8
    task = Digits()
    images = task.splits()["test"].inputs[:50]  # type: ignore[attr-defined]
    if policy == "stop":
        with refused("unfinished", "--resume"):
            result.predict(images)
        return
    model = task.build_model(seed=0, lanes=1).eval()
    expected = np.mean([np.exp(log_probabilities(model, t, images).astype(np.float64)) for t in whole], axis=0)
    np.testing.assert_allclose(result.predict(images), expected, atol=1e-12)
    assert len(result.predictive()) == len(whole)
    np.testing.assert_allclose(result.posterior()(images).probabilities, expected, atol=1e-6)
