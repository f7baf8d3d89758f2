"""cSG-MCMC's tables and figures on CIFAR and ImageNet: published numbers, shared chains, settings, what cells are made
of."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains import schedules
from raychains.core.data_root import rooted
from raychains.papers import plan_status
from raychains.papers.csgmcmc import cifar, fig3a, fig3b, fig3c, table1, table2, table3
from raychains.planning.presets.named import named
from tests.papers.planned import chains, crossed, digests, drawn, every, planned

TABLE1 = """SGD 5.29±.15/23.61±.09 · SGDM 5.17±.09/22.98±.27 · Snapshot-SGD 4.46±.04/20.83±.01 ·
Snapshot-SGDM 4.39±.01/20.81±.10 · SGLD 5.20±.06/23.23±.01 · cSGLD 4.29±.06/20.55±.06 ·
SGHMC 4.93±.1/22.60±.17 · cSGHMC 4.27±.03/20.50±.11"""
TABLE2 = """4.09 / 19.37 | 3.95 / 19.19
4.15 / 20.29 | 4.09 / 19.72
5.11 / 21.16 | 4.52 / 20.82
4.29 / 20.55 | 4.27 / 20.50"""
TABLE3 = (
    "SGDM .9595/76.046/92.776 · Snapshot-SGDM .8941/77.142/93.344 · SGHMC .9308/76.274/92.994 · cSGHMC "
    ".8882/77.114/93.524"
)


def published(name: str) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Mean and standard error by part, row and column."""
    return {(v.part, v.row, v.column): (v.summary.mean, v.summary.se) for v in every()[name].values}


def test_table_1_is_as_published() -> None:
    found = re.findall(r"([\w-]+) (\S+?)±(\S+?)/(\S+?)±(\S+)", TABLE1)
    names = {label: name for name, label in table1.NAMES.items()}
    wanted = {}
    for label, m10, e10, m100, e100 in found:
        wanted["cifar10", names[label], "error"] = (float(m10), float(e10))
        wanted["cifar100", names[label], "error"] = (float(m100), float(e100))
    assert len(found) == 8 and published("table1") == wanted


def test_table_2_and_3_are_as_published() -> None:
    known = published("table2")
    for arm, line in zip(table2.ARMS, TABLE2.splitlines(), strict=True):
        for sampler, both in zip(table2.SAMPLERS, line.split("|"), strict=True):
            for dataset, mean in zip(cifar.LABELS, both.split("/"), strict=True):
                assert known[dataset, arm, sampler][0] == float(mean)
    known, names = published("table3"), {label: name for name, label in table3.NAMES.items()}
    for label, *values in re.findall(r"([\w-]+) (\S+?)/(\S+?)/(\S+)", TABLE3):
        assert [known["imagenet", names[label], m][0] for m in table3.METRICS] == list(map(float, values))


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_tables_and_figures_share_their_chains(root: Path, scale: str) -> None:
    dataset = "cifar10" if scale == "smoke" else "cifar100"
    size = cifar.SIZES[scale]
    one, two, a, c = (planned(name, scale)[dataset] for name in ("table1", "table2", "fig3a", "fig3c"))
    for sampler in ("sgld", "sghmc"):
        single = digests(one)[f"c{sampler}"]
        assert single == digests(two)[f"cyclical-single-{sampler}"]
        assert [g[:1] for g in digests(two)[f"cyclical-parallel-{sampler}"]] == single
        assert [g[:1] for g in digests(two)[f"decreasing-parallel-{sampler}"]] == digests(one)[sampler]
    assert digests(a)["csgld"] == digests(one)["csgld"] == digests(c)[f"csgld-{size.cycles}"]
    assert digests(a)["sgld"] == digests(one)["sgld"]
    assert digests(c)[f"snapshot-sgd-{size.cycles}"] == digests(one)["snapshot-sgd"]
    # By hand, in chains of all epochs: Table 1 has 8, Table 2 per sampler n + n + n/2, of which 4 are Table 1's.
    each = size.epochs * chains(one)["sgd"][0][0].sampler.settings["num_data"]
    ledger = plan_status.ledger([one, two])
    assert ledger.alone == size.repeats * each * (8 + 2 * 2.5 * size.chains)
    assert ledger.saved == size.repeats * each * 4
    more = plan_status.ledger([one, two, a, c])
    assert more.unique == ledger.unique + size.repeats * each * 2 * (len(fig3c.NUMBERS[scale]) - 1)


def test_lines_join_the_chains_of_table_2(root: Path) -> None:
    """SGLD's take the same path and keep other samples of it."""
    two, b = (planned(name, "smoke")["cifar10"] for name in ("table2", "fig3b"))
    assert digests(b)["csgld"] == digests(two)["cyclical-parallel-sgld"][:1]
    ours, theirs = chains(b)["sgld"][0][0], chains(two)["decreasing-parallel-sgld"][0][0]
    assert dataclasses.replace(ours, schedule=theirs.schedule) == theirs != ours
    made: list[Any] = [schedules.build(spec.schedule) for spec in (ours, theirs)]
    assert all(made[0].at(k).lr == made[1].at(k).lr for k in range(1, ours.steps + 1))


def test_samples_of_a_chain_are_spread_over_its_sampling_stage() -> None:
    epoch = -(-50_000 // 64)
    assert cifar.apart("paper") == {"schedule_settings": ("samples=4",), "thinning": 12 * epoch}
    made = schedules.Decreasing.between(
        lr=0.5,
        final_lr=0.005,
        gamma=1.0,
        steps=200 * epoch,
        noise_from=0.75,
        samples=4,
        thinning=12 * epoch,
        temperature=1.0,
    )
    kept = [k / epoch for k in range(1, made.steps + 1) if made.at(k).keep]
    assert kept == [164, 176, 188, 200]


@pytest.mark.parametrize(("dataset", "beta"), [("cifar10", 0.8), ("cifar100", 0.94)])
def test_scale_paper_is_the_papers(root: Path, dataset: str, beta: float) -> None:
    one, two = (planned(name, "paper")[dataset] for name in ("table1", "table2"))
    for method in table1.NAMES:
        groups = chains(one)[method]
        (spec,) = groups[0]
        assert len(groups) == 3
        assert spec.batch_size == 64 and spec.steps == 200 * spec.steps_per_epoch and spec.precision == "fp32"
        assert spec.sampler.settings["weight_decay"] == 5e-4
        made: Any = schedules.build(spec.schedule)
        assert made.at(1).lr == pytest.approx(0.05 if method.endswith("sgdm") else 0.5)
        point = method in cifar.POINTS
        if method.startswith(("c", "snapshot")):
            assert (made.cycles, made.exploration) == (4, beta)
            assert made.samples_per_cycle == (1 if method.startswith("snapshot") else 3)
        else:
            assert made.noise_from == 0.75 and made.kept == (1 if point else 20)
        assert made.thinning == spec.steps_per_epoch
        assert made.temperature == (0 if "sgd" in method else 1 / 50_000)
    assert chains(one)["sghmc"][0][0].sampler.settings["momentum"] == 0.1
    half = chains(two)["decreasing-half-sgld"]
    assert [len(g) for g in half] == [4, 4, 4] and half[0][0].steps == 100 * half[0][0].steps_per_epoch


def test_figures_of_a_map_are_those_of_points_on_a_line() -> None:
    at = np.array([0.0, 0.1, 0.2, 10.0, 10.1, 10.2])
    distance = np.abs(at[:, None] - at)
    found = fig3a.statistics(distance, np.repeat([0, 1], 3))
    inside = (0.1 + 0.2 + 0.1) / 3
    assert found["clusters"] == 2
    assert found["apart"] == pytest.approx(10 / inside)
    assert found["distance"] == pytest.approx((9 * 10 + 6 * inside) / 15)
    alike = np.ones((6, 6)) - np.eye(6)
    assert fig3a.statistics(alike, np.repeat([0, 1], 3)) == {"clusters": 1.0, "distance": 1.0, "apart": 1.0}


def test_a_hill_is_above_the_line_between_the_ends() -> None:
    assert fig3b.hill([5, 5, 5]) == 0 and fig3b.hill([4, 5, 6]) == 0 and fig3b.hill([6, 1, 6]) == 0
    assert fig3b.hill([4, 20, 90, 6, 6]) == pytest.approx(90 - 5)


def test_figures_are_drawn_from_their_tables_alone() -> None:
    value = {("csgld", 2): 30.0, ("csgld", 4): 28.0, ("snapshot-sgd", 2): 31.0, ("snapshot-sgd", 4): 30.0}
    cells = crossed(part="cifar10", key=list(value), repeat=range(3))
    cells = cells.assign(column=cells["key"].str[0], row=cells["key"].str[1].astype(str))
    cells["value"] = cells["key"].map(value) + cells["repeat"]
    axis = drawn("fig3c", {"cells": cells}).axes[0]
    means = [np.asarray(line.get_ydata()).tolist() for line in axis.lines if line.get_linestyle() != "None"]
    assert means == [[31.0, 29.0], [32.0, 31.0]]

    points = crossed(part="cifar10", row=["csgld", "sgld"], repeat=range(2), index=range(6), stress=0.1)
    points = points.assign(group=points["index"] // 3, x=points["index"] * 1.0, y=points["repeat"] * 1.0)
    axis = drawn("fig3a", {"cells": cells, "map": points}).axes[0]
    assert [len(np.asarray(line.get_xdata())) for line in axis.lines] == [6, 6]  # of the first repeat
    assert [text.get_text() for text in axis.texts] == ["1", "2"]

    line = crossed(part="cifar10", row=list(fig3b.ROWS), chain=range(2), t=[0.0, 0.5, 1.0])
    line = line.assign(pair=line["chain"], error=10.0 + line["chain"] + line["t"])
    axis = drawn("fig3b", {"cells": cells, "paths": line}).axes[0]
    assert len(axis.lines) == 3 * (2 + 1)
    assert np.asarray(axis.lines[2].get_ydata()).tolist() == [10.5, 11.0, 11.5]


def test_imagenet_is_run_where_there_are_gpus_and_pictures(root: Path, tmp_path: Path) -> None:
    with rooted(str(tmp_path)):
        assert "ImageNet is not in the data root" in planned("table3", "cpu")["imagenet"].lacks
    part = planned("table3", "cpu")["imagenet"]
    assert "scales gpu and paper" in part.lacks and not part.refused and not part.comparisons
    part = planned("table3", "smoke")["imagenet"]
    assert [len(g) for name in table3.NAMES for g in digests(part)[name]] == [1, 1] * 4
    given, paper = named("imagenet-table3"), table3.preset("paper")
    assert paper.options == {**given.options, "repeats": 1} and paper.options["epochs"] == 120
    assert [v.options for v in paper.variants] == [v.options for v in given.variants]
