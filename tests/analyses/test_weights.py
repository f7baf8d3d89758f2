"""Weights of a finished run: formed from other splits' results, checked against formulas written here."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from raychains.analyses import blocks, weights
from raychains.errors import UserError
from raychains.planning.views import Request
from raychains.sample import SampleMeta
from raychains.tasks.two_modes import FLAT_CENTRE, SHARP_CENTRE, TwoModes

N = 500


def meta(chain: int, index: int, temperature: float = 1.0) -> SampleMeta:
    return SampleMeta(
        digest=f"chain{chain}", index=index, cycle=index // 2, epoch=0, step=index + 1, lr=0.1,
        temperature=temperature, stage="sampling", train_nll=0.5,
    )  # fmt: skip


class Run:
    """Two chains of four samples in two cycles each; results of other splits are made up."""

    def __init__(self, temperature: float = 1.0, splits: tuple[str, ...] = ("test", "train", "val")) -> None:
        self.metas = [meta(chain, index, temperature) for index in range(4) for chain in range(2)]
        specs = [SimpleNamespace(digest=f"chain{c}") for c in range(2)]
        self.arm = SimpleNamespace(name="arm", label="Arm", chains=((*specs,),))
        records = [(specs[i % 2], SimpleNamespace(meta=m)) for i, m in enumerate(self.metas)]
        rng = np.random.default_rng(0)
        self.nll = {weights.key_of(m): float(x) for m, x in zip(self.metas, rng.normal(0.7, 0.002, 8), strict=True)}
        self.log_p = {weights.key_of(m): np.log(rng.uniform(0.1, 0.9, 40)) for m in self.metas}
        self.asked: list[tuple[str, Request]] = []
        self.context: Any = SimpleNamespace(
            task=SimpleNamespace(low_dimensional=False, num_data=N, splits=lambda: dict.fromkeys(splits)),
            comparison=SimpleNamespace(task="digits", arms=[self.arm]),
            groups=[(0, 0)],
            select=lambda arm, group: SimpleNamespace(records=tuple(records)),
            evaluate=self.evaluate,
            progress=lambda *_: None,
        )

    def evaluate(self, split: str, requests: list[Request]) -> list[Any]:
        self.asked += [(split, r) for r in requests]
        keys = [r.view.sample for r in requests]
        return [SimpleNamespace(metrics=[{"nll": self.nll[k]}], rows={"log_p_label": self.log_p[k]}) for k in keys if k]


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_harmonic_weights_are_those_of_appendix_f_over_the_training_set(temperature: float) -> None:
    run = Run(temperature)
    found = weights.weigh(run.context, "harmonic")
    assert {split for split, _ in run.asked} == {"train"} and len(run.asked) == 8
    logs = {}
    for chain in range(2):
        for cycle in range(2):
            values = [-N * run.nll[weights.key_of(m)] / temperature for m in run.metas
                      if m.digest == f"chain{chain}" and m.cycle == cycle]  # fmt: skip
            logs[chain, cycle] = math.log(len(values)) - logsumexp(-np.array(values))
    total = logsumexp(list(logs.values()))
    assert [(r["chain"], r["cycle"], r["samples"]) for r in found.rows] == [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)]
    for row in found.rows:
        assert row["weight"] == pytest.approx(math.exp(logs[row["chain"], row["cycle"]] - total), rel=1e-9)
        assert row["log_evidence"] == pytest.approx(logs[row["chain"], row["cycle"]], rel=1e-12)
    (request,) = found.requests
    assert request.weighting == "harmonic" and request.weights is not None
    for m in run.metas:
        expected = math.exp(logs[int(m.digest[-1]), m.cycle] - total) / 2
        assert request.weights[weights.key_of(m)] == pytest.approx(expected, rel=1e-9)
    assert "equal weights are safer" in found.warnings[0], "of two samples one always carries more than a tenth"


def test_stacking_weights_beat_equal_ones_on_the_validation_split() -> None:
    run = Run()
    found = weights.weigh(run.context, "stacking")
    assert {split for split, _ in run.asked} == {"val"}
    (request,) = found.requests
    assert request.weights is not None
    p = np.exp(np.stack([run.log_p[weights.key_of(m)] for m in run.metas]))
    w = np.array([request.weights[weights.key_of(m)] for m in run.metas])
    score = np.log(w @ p).mean()
    assert w.min() >= 0 and w.sum() == pytest.approx(1)
    assert score > np.log(p.mean(0)).mean()
    rng = np.random.default_rng(1)
    assert all(np.log(rng.dirichlet(np.ones(8)) @ p).mean() <= score + 1e-9 for _ in range(300)), "no others do better"
    assert [r["index"] for r in found.rows] == [m.index for m in run.metas]


def test_what_a_weighting_needs_is_said() -> None:
    with pytest.raises(UserError, match=r"need the split 'val'.*--val-split"):
        weights.weigh(Run(splits=("test", "train")).context, "stacking")
    with pytest.raises(UserError, match="got temperature 0"):
        weights.weigh(Run(temperature=0.0).context, "harmonic")
    with pytest.raises(UserError, match=r"weights must be equal, harmonic or stacking for task digits.*'truncated'"):
        weights.weigh(Run().context, "truncated")
    with pytest.raises(UserError, match="harmonic"):
        weights.weigh(Run().context, "harmonics")


def test_truncated_weights_recover_the_masses_of_modes_that_chains_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    """One chain stays in the sharp mode, one in the flat one: equal weights say a half each, the truth is σ_s² : σ_f²."""
    task = TwoModes(sharp=0.3, flat=0.6)
    rng, n = np.random.default_rng(3), 200
    values = {
        "sharp": rng.normal(SHARP_CENTRE, 0.3, (n, 1, 2)),
        "flat": rng.normal(FLAT_CENTRE, 0.6, (n, 1, 2)),
    }
    specs = [SimpleNamespace(digest=d, lanes=1, schedule=SimpleNamespace(settings={})) for d in values]
    draws = {d: blocks.Draws(values=v, step=np.arange(n), cycle=np.zeros(n, int)) for d, v in values.items()}
    monkeypatch.setattr(blocks, "read", lambda root, spec: draws[spec.digest])
    context: Any = SimpleNamespace(
        task=task, groups=[(0, 0)], progress=lambda *_: None, store=SimpleNamespace(root=None),
        comparison=SimpleNamespace(task="two-modes", arms=[SimpleNamespace(name="a", label="A", chains=((*specs,),))]),
    )  # fmt: skip
    found = weights.weigh(context, "truncated")
    assert [row["chain"] for row in found.rows] == [0, 1]
    # Relative standard deviation of each mass √(.55/n): of the share, that times √2 times (1 − share).
    tolerance = 4 * math.sqrt(2 * 0.55 / n) * task.flat_share * (1 - task.flat_share)
    assert found.rows[1]["weight"] == pytest.approx(task.flat_share, abs=tolerance) and tolerance < 0.05
    assert found.requests == () and found.warnings == []
