"""Entropy-MCMC's figures and ablations as experiments: their numbers by hand, what chains they share, that figures
draw."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from raychains import papers as rp
from raychains.core.config import Compare
from raychains.core.spec import Part
from raychains.data import standins
from raychains.data.root import rooted
from raychains.papers.emcmc import ablations, emcmc_chains, emcmc_fig2, emcmc_fig3, emcmc_fig4, emcmc_fig5, last_samples
from raychains.papers.emcmc.emcmc_fig2 import LARGE, flat_share
from raychains.papers.study import Study
from raychains.planning.presets import arms as presets
from raychains.samplers.emcmc import EntropyMCMC
from raychains.schedules import Constant

MINE: Mapping[str, Study] = {
    module.STUDY.name: module.STUDY for module in (emcmc_fig2, emcmc_fig3, emcmc_fig4, emcmc_fig5, ablations)
}


def test_the_responsibility_is_that_of_two_equally_deep_gaussians() -> None:
    points = np.array([[-1.0, -1.0], [1.0, 1.0], [-0.8, -0.7], [0.1, 0.0]])

    def density(x: np.ndarray, centre: float, sd: float) -> float:
        return sd**2 * math.exp(-((x - centre) ** 2).sum() / (2 * sd**2)) / (2 * math.pi * sd**2)

    wanted = [density(x, 1, 0.5) / (density(x, 1, 0.5) + density(x, -1, 0.1)) for x in points]
    assert flat_share(LARGE, points) == pytest.approx(wanted, rel=1e-9)


def test_a_mean_of_both_variables_is_made_where_there_are_two() -> None:
    about = {"digest": "d", "part": "p"}
    rows = [
        {"row": row, "repeat": 0, "v": v, **about}
        for row, v in (("sgd", 7.0), ("emcmc-theta", 1.0), ("emcmc-anchor", 4.0), ("emcmc-anchor", 6.0))
    ]
    made = last_samples.cells("p", rows, {"c": lambda mine: sum(r["v"] for r in mine) / len(mine)})
    assert {c["row"]: (c["value"], c["samples"]) for c in made} == {
        "sgd": (7, 1), "emcmc-theta": (1, 1), "emcmc-anchor": (5, 1), "emcmc": (3, 2),
    }  # fmt: skip


def test_a_rise_is_above_the_line_between_the_ends() -> None:
    def rise(*errors: float) -> float:
        return emcmc_fig5.rise([{"t": i / (len(errors) - 1), "test_error": e} for i, e in enumerate(errors)][::-1])

    assert rise(4, 5, 6, 7, 8) == 0 and rise(8, 5, 4) == 0
    assert rise(4, 5, 9, 7, 8) == pytest.approx(3)


def test_flatness_is_looked_at_in_table_1s_chains() -> None:
    for scale in ("smoke", "cpu", "gpu"):
        (sampled,) = MINE["emcmc-fig4"].parts[1].sampled(scale)
        whole = emcmc_chains.preset("cifar10", scale)
        assert sampled.preset.options == whole.options and sampled.preset.task == whole.task
        known = {v.name: v for v in whole.variants}
        assert [v == known[v.name] for v in sampled.preset.variants] == [True] * 3


def test_ablations_share_the_chains_of_equal_settings() -> None:
    """The cyclical schedule, both and θ alone, and η .01's value of digits are one chain, in two repeats."""
    made = presets.arms_of(ablations.preset("smoke"), Compare()).comparison
    names = [v.name for v in ablations.preset("smoke").variants]
    assert set(names) == set(ablations.FEW.split())
    digests = {
        n: tuple(spec.digest for group in arm.chains for spec in group) for n, arm in zip(names, made.arms, strict=True)
    }
    one = {digests[n] for n in ("eta-0.01", "schedule-cyclical", "variables-theta", "variables-both")}
    assert len(one) == 1 and {len(d) for d in digests.values()} == {2}
    others = "eta-0.1 temperature-0.0001 schedule-constant batchnorm-shared batchnorm-reestimated burn-in-0.8"
    assert len({digests[n] for n in [*others.split(" "), "update-gibbs"]} | one) == 8
    named = ablations.labels("cpu")
    assert len(named) == 37 and named["schedule-step"] == "step size step"
    assert (
        named["augmentation-sgld-plain"] == "SGLD, not augmented" and named["burn-in-0.8"] == "burn-in 80% of a cycle"
    )


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_what_entropy_mcmc_is_compared_with_in_table_3_has_its_cost(scale: str, tmp_path: Path) -> None:
    """As many samples, batches of one size, noise throughout for SGLD; SGD predicts with its last iterate."""
    preset = ablations.preset(scale)
    task = {"digits": "digits", "cifar10-resnet18": "cifar10-lenet"}[
        preset.task
    ]  # the same settings, without its network
    with rooted(str(standins.make(tmp_path / "data"))):
        arms = presets.arms_of(dataclasses.replace(preset, task=task), Compare()).comparison.arms
    (sgd, sgld, emcmc) = (
        arm.chains[0][0]
        for variant, arm in zip(preset.variants, arms, strict=True)
        if variant.name.startswith("augmentation") and variant.name.endswith("plain")
    )
    assert sgd.batch_size == sgld.batch_size == emcmc.batch_size and sgd.steps == sgld.steps == emcmc.steps
    kept = {
        s.sampler.kind: (s.schedule.settings["cycles"] * s.schedule.settings["samples_per_cycle"])
        for s in (sgd, sgld, emcmc)
    }
    assert kept == {"sgd": 1, "sgld": 16, "emcmc": 8}  # Entropy-MCMC's are of θ and θₐ
    for spec in (sgld, emcmc):
        assert spec.schedule.settings["exploration"] == 0
    assert sgld.schedule.settings["temperature"] == emcmc.schedule.settings["temperature"]


def test_a_samples_cost_counts_the_steps_that_were_made() -> None:
    schedule = Constant(lr=0.1, steps=200, thinning=20)
    spec = _Chain(schedule=schedule, steps=200)
    # The third draw of θ, at step 60 of 200, of chains of 10 epochs; θₐ has indices of its own.
    assert emcmc_fig3.spent(spec, 2, "theta", 10) == pytest.approx(3)  # type: ignore[arg-type]


class _Chain:
    """What `emcmc_fig3.spent` looks at of a spec."""

    def __init__(self, schedule: Constant, steps: int) -> None:

        self.schedule, self.steps = schedule.part(), steps
        self.sampler = Part(kind=EntropyMCMC.kind, revision=EntropyMCMC.revision)


def drawn(name: str, tables: Mapping[str, pd.DataFrame], scale: str = "cpu") -> list[str]:
    """Names of the drawings of small tables, each drawn once: all axes have lines, and no line is empty."""
    made = MINE[name].figures(scale, tables)
    for drawing in made:
        axes = [axis for axis in drawing.draw().axes if axis.axison]
        lines = [[np.isfinite(line.get_xydata()).all(axis=1).sum() for line in axis.lines] for axis in axes]
        assert lines and all(lines) and all(map(all, lines)), (drawing.name, lines)
    return [d.name for d in made]


def test_a_spectrum_is_thinned_to_the_same_ranks_of_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"part": "cifar10", "row": "sgd", "repeat": r, "rank": k, "eigenvalue": 1 / k, "trace": 2.0}
        for r in range(3) for k in (1, 2, 3, 5, 8)
    ]  # fmt: skip
    monkeypatch.setattr(rp, "last_samples", lambda run, variants: [], raising=False)
    monkeypatch.setattr(rp, "of_each", lambda *given: rows, raising=False)
    monkeypatch.setattr(last_samples, "cells", lambda *given: [])
    found = emcmc_fig4.tables(SimpleNamespace(part="cifar10"))["spectrum"]  # type: ignore[arg-type]
    assert [(row["repeat"], row["rank"]) for row in found] == [(r, k) for r in range(3) for k in (1, 5)]


def test_figures_are_drawn_from_tables_alone() -> None:
    grid = [(row, repeat) for row in last_samples.STYLES for repeat in range(2)]
    spectrum = [
        {"part": "cifar10", "row": row, "repeat": r, "rank": k, "eigenvalue": (1 + r) / k}
        for row, r in grid
        for k in (1, 2, 9)
    ]
    assert drawn("emcmc-fig4", {"spectrum": pd.DataFrame(spectrum)}) == ["spectrum"]
    around = [
        {"part": "cifar10", "row": row, "repeat": r, "distance": d, "train_nll": 1 + d, "test_error": 20 + d + r}
        for row, r in grid for d in (0.0, 2.0)
    ]  # fmt: skip
    between = [
        {"part": "cifar10", "repeat": r, "t": t, "test_error": 20.0 + r} for r in range(2) for t in (0.0, 0.5, 1.0)
    ]
    assert drawn("emcmc-fig5", {"around": pd.DataFrame(around), "between": pd.DataFrame(between)}) == ["around"]
    curve = [
        {"part": "mnist", "row": row, "epochs": e, "nll": 1 / e, "error": 9 / e, "nll_sd": 0.1, "error_sd": math.nan}
        for row in emcmc_fig3.NAMES for e in (0.5, 1.0)
    ]  # fmt: skip
    assert drawn("emcmc-fig3", {"curve": pd.DataFrame(curve)}) == ["convergence-mnist"]
    cells = [
        {"row": row, "column": "error", "repeat": r, "value": 3.0 + r}
        for row in ablations.labels("smoke")
        for r in range(2)
    ]
    assert drawn("emcmc-ablations", {"cells": pd.DataFrame(cells)}, "smoke") == ["ablations"]
    points = [
        {"part": part, "row": m, "variable": v, "what": what, "at": 0, "x": 0.1, "y": 0.2}
        for part in ("large-step", *emcmc_fig2.STARTS)
        for m, v in (("sgd", "theta"), ("sgld", "theta"), ("emcmc", "theta"), ("emcmc", "anchor"))
        for what in ("end", "path")
    ]
    shares = [
        {"part": p, "row": m, "variable": "theta", "step": k, "share": 0.5}
        for p in ("large-step", "small-step")
        for m in emcmc_fig2.NAMES
        for k in (40, 80)
    ]
    bars = [{"variable": v, "centre": c, "density": 0.3} for v in ("theta", "anchor") for c in (-1.0, 1.0)]
    made = {"points": pd.DataFrame(points), "curve": pd.DataFrame(shares), "histogram": pd.DataFrame(bars)}
    assert drawn("emcmc-fig2", made) == ["landscape", "from-sharp", "from-flat", "shares"]
