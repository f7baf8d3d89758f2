"""Weights of a finished run: formed from other splits' results, checked against formulas written here."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from raychains.api import plans
from raychains.core.config import Run
from raychains.core.errors import UserError
from raychains.measures import draws as draw_blocks
from raychains.measures import weights
from raychains.planning.views import Request
from raychains.tasks.two_modes import FLAT_CENTRE, SHARP_CENTRE, TwoModes
from tests.orchestration.worlds import meta

N = 500


class Finished:
    """Two chains of four samples in two cycles each; results of other splits are made up."""

    def __init__(self, temperature: float = 1.0, splits: tuple[str, ...] = ("test", "train", "val")) -> None:
        pairs = [(f"chain{chain}", index) for index in range(4) for chain in range(2)]
        self.metas = [meta(digest, index, cycle=index // 2, temperature=temperature) for digest, index in pairs]
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
            counted=lambda what, items: items,
            arm_name=lambda arm: self.arm.name,
            key=lambda arm, group: {"arm": self.arm.name, "group": group, "repeat": group},
        )

    def evaluate(self, split: str, requests: list[Request]) -> list[Any]:
        self.asked += [(split, r) for r in requests]
        keys = [r.view.sample for r in requests]
        return [SimpleNamespace(metrics=[{"nll": self.nll[k]}], rows={"log_p_label": self.log_p[k]}) for k in keys if k]


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_harmonic_weights_are_those_of_appendix_f_over_the_training_set(temperature: float) -> None:
    run = Finished(temperature)
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
    run = Finished()
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
    with pytest.raises(UserError, match=r"need the split 'val'.*`val_split="):
        weights.weigh(Finished(splits=("test", "train")).context, "stacking")
    with pytest.raises(UserError, match="got temperature 0"):
        weights.weigh(Finished(temperature=0.0).context, "harmonic")
    with pytest.raises(UserError, match=r"weights must be equal, harmonic or stacking for task digits.*'truncated'"):
        weights.weigh(Finished().context, "truncated")
    with pytest.raises(UserError, match="harmonic"):
        weights.weigh(Finished().context, "harmonics")
    anchored = Finished()
    anchored.metas[1] = dataclasses.replace(anchored.metas[1], variable="anchor")
    anchored.context.select(0, 0).records[1][1].meta = anchored.metas[1]
    with pytest.raises(
        UserError, match="need draws of a posterior, got anchor in arm 'arm': they average 1/likelihood"
    ):
        weights.weigh(anchored.context, "harmonic")


@pytest.mark.parametrize("decay", [0.0, 4.0])
def test_truncated_weights_recover_the_masses_of_modes_that_chains_explored(
    decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chain stays in the sharp mode, one in the flat one: equal weights say a half each, the masses are known.

    Weight decay λ (N = 1) makes of σ²·N(μ, σ²I) a Gaussian at μ/s of variance σ²/s, s = 1 + λσ², with the mass
    σ²/s·exp(−λ‖μ‖²/2s).
    """
    task = TwoModes(sharp=0.3, flat=0.6)
    options = Run(task="two-modes", sampler="sgld", chains=2, repeats=1, steps=1000, weight_decay=decay)
    arm = plans.run(options).comparison.arms[0]
    rng, n = np.random.default_rng(3), 200
    values, masses = [], []
    for sigma, centre in ((0.3, SHARP_CENTRE), (0.6, FLAT_CENTRE)):
        shrunk = 1 + decay * sigma**2
        values.append(rng.normal(np.array(centre) / shrunk, sigma / math.sqrt(shrunk), (n, 1, 2)))
        masses.append(sigma**2 / shrunk * math.exp(-decay * 2 / (2 * shrunk)))
    draws = {
        spec.digest: draw_blocks.Draws(values=v, step=np.arange(n), cycle=np.zeros(n, int))
        for spec, v in zip(arm.chains[0], values, strict=True)
    }
    monkeypatch.setattr(draw_blocks, "read", lambda root, spec: draws[spec.digest])
    monkeypatch.setattr(draw_blocks, "finished", lambda root, specs: list(enumerate(specs)))
    context: Any = SimpleNamespace(
        task=task, groups=[(0, 0)], counted=lambda what, items: items, store=SimpleNamespace(root=None),
        comparison=SimpleNamespace(task="two-modes", arms=[arm]),
    )  # fmt: skip
    found = weights.weigh(context, "truncated")
    assert [row["chain"] for row in found.rows] == [0, 1]
    flat = masses[1] / sum(masses)
    # Relative standard deviation of each mass √(.55/n): of the share, that times √2 times (1 − share).
    tolerance = 4 * math.sqrt(2 * 0.55 / n) * flat * (1 - flat)
    assert found.rows[1]["weight"] == pytest.approx(flat, abs=tolerance) and tolerance < 0.06
    assert found.requests == [] and found.warnings == []
    # Without a chain that was dropped, the others' cycles share all of it, under their own positions.
    monkeypatch.setattr(draw_blocks, "finished", lambda root, specs: [(1, specs[1])])
    (only,) = weights.weigh(context, "truncated").rows
    assert only["chain"] == 1 and only["weight"] == 1
