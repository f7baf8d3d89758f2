"""ATMC's and Entropy-MCMC's tables: published numbers, shared chains, settings, and figures from tables alone."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raychains import models, schedules
from raychains.core.errors import UserError
from raychains.data import standins
from raychains.papers import plan_status
from raychains.papers.atmc import atmc_calibration
from raychains.papers.atmc import atmc_chains as atmc
from raychains.papers.csgmcmc import table3
from raychains.papers.emcmc import emcmc_chains as emcmc
from raychains.papers.emcmc import emcmc_corrupted, imagenet
from tests.papers.planned import chains, crossed, digests, drawn, every, planned
from tests.spread import witnessed

ATMC = """\
SGD+BN .243/94.4 · ATMC single .303/92.4 · ATMC multi .194/93.9 · SGNHT single .343/91.7 · SGNHT multi .211/93.5
ATMC single 1.08/74.2 · ATMC multi .883/77.5 · SGNHT single 1.15/73.1 · SGNHT multi .941/76.4"""
IN_THE_TEXT = (94.4, 0.194, 77.5, 0.883)


def test_stand_ins_may_have_fewer_types_of_corruption(root: Path) -> None:
    assert {p.stem for p in (root / "CIFAR-10-C").iterdir()} == {"labels", "gaussian_noise", "shot_noise"}
    assert standins.make(root, corruptions=1) == standins.make(root, corruptions=2) == root
    for wanted, words in (({}, "other settings"), ({"corruptions": 0}, "corruptions must be an integer in")):
        with pytest.raises(UserError, match=words):
            standins.make(root, **wanted)


def test_atmcs_numbers_are_as_published() -> None:
    rows = {"SGD+BN": atmc.BATCHNORM, "ATMC multi": atmc.ATMC, "SGNHT multi": atmc.SGNHT}
    rows |= {"ATMC single": "atmc-single", "SGNHT single": "sgnht-single"}
    values = [v for name in ("atmc-table1", "atmc-table2") for v in every()[name].values]
    known = {(v.part, v.row, v.column): v.summary.mean for v in values}
    for dataset, line in zip((atmc.CIFAR, atmc.IMAGENET), ATMC.splitlines(), strict=True):
        found = re.findall(r"([A-Z][\w+ ]+?) ([\d.]+)/([\d.]+)", line)
        for row, nll, acc in found:
            assert known[dataset, rows[row], "accuracy"] == float(acc) and known[dataset, rows[row], "nll"] == float(
                nll
            )
    assert {v.summary.mean for v in values if v.provenance == "in the paper's text"} == set(IN_THE_TEXT)
    assert len(values) == 18


def test_published_numbers_that_no_text_of_the_paper_has_name_who_quotes_them() -> None:
    found = [v for one in every().values() for v in one.values if v.provenance == "quoted elsewhere"]
    assert {(v.part, v.row): v.text for v in found if v.source.startswith("Li")} == {
        ("cifar10", "emcmc"): "95.69", ("cifar100", "emcmc"): "79.16"
    }  # fmt: skip
    assert len(found) == 16 and all(" quoted by " in v.source for v in found)


@pytest.mark.parametrize("scale", witnessed(["smoke", "gpu", "paper"], "smoke"))
def test_tables_and_plots_are_of_the_same_chains(root: Path, scale: str) -> None:
    one, plots = digests(planned("atmc-table1", scale)["cifar10"]), planned("atmc-calibration", scale)
    assert digests(plots["cifar10"]).items() < one.items() and set(one) == set(atmc.NAMES)
    whole = planned("emcmc-table1", scale)["cifar10"]
    detected, spoilt = planned("emcmc-table2", scale), planned("emcmc-corrupted", scale)["cifar10-c"]
    assert digests(detected["cifar10"]) == digests(whole) and digests(spoilt).items() < digests(whole).items()
    assert plan_status.ledger([whole, detected["cifar10"], spoilt]).unique == plan_status.ledger([whole]).unique


def arms(name: str, part: str, scale: str) -> dict[str, Any]:
    """By variant, all that its chains follow from."""
    return {
        v.name: (s.preset.task, v.schedule or s.preset.schedule, v.sampler, dict(s.preset.options), dict(v.options))
        for p in every()[name].parts
        if p.name == part
        for s in p.sampled(scale)
        for v in s.preset.variants
    }


def test_two_cores_sample_the_same_chains_for_all(root: Path) -> None:
    one, whole = arms("atmc-table1", "cifar10", "cpu"), arms("emcmc-table1", "cifar10", "cpu")
    assert arms("atmc-calibration", "cifar10", "cpu").items() <= one.items() and len(one) == 4
    assert arms("emcmc-corrupted", "cifar10-c", "cpu").items() <= whole.items() and len(whole) == 7
    assert arms("emcmc-table2", "cifar10-alone", "cpu") == arms("emcmc-table2", "cifar10", "cpu") == whole
    for name in ("atmc-table2", "atmc-calibration", "emcmc-imagenet"):
        assert "needs GPUs" in planned(name, "cpu")["imagenet"].lacks


def test_the_network_with_batchnorm_is_as_deep_and_as_wide_as_resnet_plus() -> None:
    """By hand: a 3×3 convolution and a norm's scale and shift per layer, shortcuts without parameters, one linear
    layer."""
    for depth, w in ((56, 32), (8, 4)):
        n, layers = (depth - 2) // 6, [(3, w)]
        for before, c in ((w, w), (w, 2 * w), (2 * w, 4 * w)):
            layers += [(before, c)] + [(c, c)] * (2 * n - 1)
        parameters = sum(9 * a * b + 2 * b for a, b in layers) + 4 * w * 10 + 10
        model = models.build("resnet_thin", depth=depth, classes=10, width=w)
        assert sum(p.numel() for p in model.parameters()) == parameters


def test_what_chains_cost(root: Path) -> None:
    """By hand, in epochs of the 200 stand-ins: SAM and bSAM cost twice as many."""
    small, long = atmc.SIZES["paper"], emcmc.SIZES["paper"]
    ledger = plan_status.ledger([planned("atmc-table1", "paper")["cifar10"]])
    assert ledger.unique == 200 * 3 * (2 * small.epochs + 2 * small.own["sgd"]["epochs"]) and ledger.chains == 3 * 4
    ledger = plan_status.ledger([planned("emcmc-table1", "paper")["cifar10"]])
    assert ledger.unique == 200 * 3 * (5 + 2 * 2) * long.epochs and ledger.chains == 3 * 7


@pytest.mark.parametrize(("dataset", "eta_n"), [("cifar10", 4e-4 * 40_000), ("cifar100", 8e-3 * 40_000)])
def test_entropy_mcmc_is_sampled_as_published(root: Path, dataset: str, eta_n: float) -> None:
    found = chains(planned("emcmc-table1", "paper")[dataset])
    for name, specs in found.items():
        ((spec,), *_) = specs
        assert spec.batch_size == 128 and spec.steps == 200 * spec.steps_per_epoch and len(specs) == 3
        made: Any = schedules.build(spec.schedule)
        # A cosine that ends at 0: at the middle of a cycle half, at its last step next to nothing.
        cycle = spec.steps // made.cycles
        assert made.at(1 + cycle // 2).lr == pytest.approx(made.at(1).lr / 2)
        assert made.at(spec.steps).lr < 1e-3 * made.at(1).lr
        sampler = name in ("sgld", "entropy-sgld", "emcmc")
        assert (made.cycles, made.cycles * made.samples_per_cycle) == (
            (4, 8 if name == "emcmc" else 16) if sampler else (1, 1)
        )
        assert made.temperature == (1e-4 if sampler else 0.25 if name == "bsam" else 0.0)
        assert spec.sampler.settings["weight_decay"] == (40 / 200_000 if name == "bsam" else 5e-4)
    own = found["emcmc"][0][0]
    assert schedules.build(own.schedule).at(1).lr == 0.5
    assert own.sampler.settings["eta"] * own.sampler.settings["num_data"] == pytest.approx(eta_n)


def test_atmcs_cycles_are_as_long_as_published(root: Path) -> None:
    found = chains(planned("atmc-table1", "paper")["cifar10"])
    for row in (atmc.ATMC, atmc.SGNHT):
        spec = found[row][0][0]
        made: Any = schedules.build(spec.schedule)
        assert spec.steps == made.cycles * 50 * spec.steps_per_epoch
        assert (made.samples_per_cycle, made.exploration, made.temperature) == (1, 0.0, 1.0)
    assert found[atmc.ATMC][0][0].task.settings == {}  # depth 56, 32 channels
    assert found[atmc.BATCHNORM][0][0].task.settings == {"depth": 56, "width": 32}
    plus, _ = atmc.comparisons(atmc.IMAGENET, "paper", tuple(atmc.NAMES))
    assert plus.options["epochs"] == 20 * plus.options["cycles"] and plus.options["batch_size"] == 1024
    assert plus.task == "imagenet-resnetpp50"


@pytest.mark.parametrize("scale", witnessed(["smoke", "gpu", "paper"], "smoke"))
def test_sgd_on_imagenet_is_cyclical_sg_mcmcs(scale: str) -> None:
    third = table3.preset(scale)
    ours = [atmc.comparisons(atmc.IMAGENET, scale, (atmc.BATCHNORM,))[-1], imagenet.sampled(scale)[-1].preset]
    (sgdm,) = [v for v in third.variants if v.sampler == "sgdm"]
    for preset in ours:
        (variant,) = preset.variants
        assert (preset.task, preset.schedule, preset.options) == (third.task, third.schedule, third.options)
        assert (variant.sampler, variant.options, variant.schedule) == ("sgdm", sgdm.options, sgdm.schedule)


def bins_of(accuracies: dict[str, list[float]]) -> pd.DataFrame:
    bins = crossed(part="cifar10", row=list(accuracies), repeat=range(2), binning=["mass", "width"], bin=range(2))
    accuracy = [
        accuracies[row][b] + 0.03 * r for row, r, b in zip(bins["row"], bins["repeat"], bins["bin"], strict=True)
    ]
    return bins.assign(count=10 * (bins["repeat"] + 1), confidence=0.2 + 0.3 * bins["bin"], accuracy=accuracy)


def test_repeats_are_pooled_by_their_counts() -> None:
    found = atmc_calibration.pooled(bins_of({"sgd": [0.1, 0.3]}))
    assert found["count"].tolist() == [30] * 4
    assert found["accuracy"].tolist() == pytest.approx([0.12, 0.32] * 2)  # (10·a + 20·(a + .03))/30
    assert found["confidence"].tolist() == pytest.approx([0.2, 0.5] * 2)


def test_figures_are_drawn_from_their_tables_alone() -> None:
    figure = drawn("atmc-calibration", {"bins": bins_of({"sgd": [0.1, 0.3], "sgd-bn": [0.2, 0.4], "atmc": [0.2, 0.5]})})
    lines = [np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].lines]
    assert lines == [pytest.approx(v) for v in ([0.12, 0.32], [0.22, 0.42], [0.22, 0.52], [0, 1])]
    types = crossed(part="cifar10-c", row=["sgd", "sgld", "emcmc"], corruption=["fog", "snow"], severity=range(1, 6))
    types["accuracy"] = types["row"].map({"sgd": 50, "sgld": 60, "emcmc": 70}) - types["severity"]
    shown = [a for a in drawn("emcmc-corrupted", {"types": types}).axes if a.axison]
    assert [a.title.get_text() for a in shown] == ["fog", "snow"]
    assert [np.asarray(line.get_ydata())[-1] for line in shown[1].lines] == [45, 55, 65]
    assert every()["emcmc-corrupted"].figures("cpu", {}) == []


def test_severities_are_means_over_all_types() -> None:
    table = crossed(arm=list(emcmc_corrupted.ROWS), repeat=range(2), severity=range(6), corruption=["fog", "snow"])
    table["error"] = 0.1 * table["severity"] + 0.01 * table["repeat"] + 0.04 * (table["corruption"] == "snow")
    run: Any = SimpleNamespace(
        part="cifar10-c",
        table=lambda name: table,
        arm=lambda row: SimpleNamespace(name=row),
        origin=lambda row, repeat: {"digests": f"{row}{repeat}", "samples": 8},
    )
    found = emcmc_corrupted.tables(run)
    cells = {(c["row"], c["column"], c["repeat"]): c["value"] for c in found["cells"]}
    assert len(cells) == 3 * 5 * 2
    assert cells["sgld", "3", 1] == pytest.approx(100 * (1 - 0.3 - 0.01 - 0.02))
    types = {(t["row"], t["corruption"], t["severity"]): t["accuracy"] for t in found["types"]}
    assert types["emcmc", "snow", 2] == pytest.approx(100 * (1 - 0.2 - 0.005 - 0.04)) and len(types) == 3 * 2 * 5
