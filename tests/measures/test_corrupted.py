"""Metrics on corrupted inputs by type and severity, from files of CIFAR-10-C's published form made small."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from raychains.data.cifar10_c import corrupted as read
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import Evaluation
from raychains.inference.run_data import RunData
from raychains.measures import corrupted
from tests.checks import refused
from tests.measures import predicted
from tests.measures.predicted import Predicted
from tests.report.figures import drawing_of, nothing_covered

IMAGES = 40
KINDS = ("fog", "snow", "contrast")
OFFERED = (*KINDS, "frost")


class Blocks(nn.Module):
    """The linear network of `predicted`, of five of an image's mean colours."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(4, 5)), nn.Parameter(torch.zeros(4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(images.float().mean((2, 3)).repeat(1, 2)[:, :5] / 40 - 3, self.weight, self.bias)


def published(root: Path) -> None:
    """Files as they are published: severity 1's images, then 2's, …; the colours fade with the severity."""
    rng = np.random.default_rng(0)
    (root / "CIFAR-10-C").mkdir(parents=True)
    colours = rng.integers(40, 215, (IMAGES, 1, 1, 3))
    for k, kind in enumerate(KINDS):
        parts = [
            np.clip(colours + 9 * s * (k + 1) * rng.standard_normal((IMAGES, 1, 1, 3)), 0, 255)
            * np.ones((1, 32, 32, 1))
            for s in range(1, 6)
        ]
        np.save(root / f"CIFAR-10-C/{kind}.npy", np.concatenate(parts).astype(np.uint8))
    means = colours[:, 0, 0, :].argmax(1)
    np.save(root / "CIFAR-10-C/labels.npy", np.tile(means, 5))


def splits(root: Path) -> dict[str, object]:
    def one(kind: str, severity: int) -> Evaluation:
        data = read(kind, severity, root, images=IMAGES)
        return Classification(model=Blocks(), inputs=data.images, labels=data.labels.numpy(), classes=4)

    found = {f"corrupted:{k}:{s}": partial(one, k, s) for k, s in itertools.product(OFFERED, range(1, 6))}
    return {"test": partial(one, "fog", 1), **found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    folder = tmp_path_factory.mktemp("corrupted")
    published(folder)
    return Predicted(folder, splits(folder)).measured("corrupted")  # type: ignore[arg-type]


def test_rows_are_the_metrics_of_each_file_by_arm(run: Predicted) -> None:
    rows = {(r["arm"], r["group"], r["corruption"], r["severity"]): r for r in run.tables["corrupted"]}
    assert len(rows) == len(run.tables["corrupted"]) == 4 * (1 + 3 * 5)
    assert {r["corruption"] for r in run.tables["corrupted"]} == {"none", *KINDS}, "frost has no file"
    assert len(run.asked) == len(set(run.asked)) == 1 + 3 * 5, "every split once"
    for (arm, group), kind, severity in itertools.product(run.groups, KINDS, (1, 4)):
        row = rows[run.comparison.arms[arm].name, group, kind, severity]
        p = run.probabilities(f"corrupted:{kind}:{severity}", arm, group).mean(0)
        labels = read(kind, severity, run.store.root.location(), images=IMAGES).labels.numpy()
        assert row["error"] == pytest.approx(np.mean(p.argmax(1) != labels))
        assert row["nll"] == pytest.approx(-np.log(p[np.arange(IMAGES), labels]).mean(), rel=1e-6)
        assert row["ece"] != row["error"] and row["repeat"] == group
    clean = rows[run.comparison.arms[0].name, 1, "none", 0]
    assert clean["nll"] == rows[run.comparison.arms[0].name, 1, "fog", 1]["nll"]


def test_means_by_type_are_those_over_the_severities(run: Predicted) -> None:
    by_type = {(r["arm"], r["group"], r["corruption"]): r for r in run.tables["corrupted_types"]}
    assert len(by_type) == len(run.tables["corrupted_types"]) == 4 * (3 + 1)
    name = run.comparison.arms[1].name
    for metric in ("error", "nll", "ece_mass"):
        each = {
            k: np.mean([
                r[metric] for r in run.tables["corrupted"] if (r["arm"], r["group"], r["corruption"]) == (name, 1, k)
            ])
            for k in KINDS
        }  # fmt: skip
        for kind in KINDS:
            assert by_type[name, 1, kind][metric] == pytest.approx(each[kind])
        assert by_type[name, 1, "mean"][metric] == pytest.approx(np.mean(list(each.values())))


def test_without_the_published_files_the_reason_is_one_line(tmp_path: Path) -> None:
    run = Predicted(tmp_path, splits(tmp_path))  # type: ignore[arg-type]
    run.task.splits()._makers["test"] = lambda: predicted.labelled(0, 9)  # type: ignore[attr-defined]
    assert corrupted.why_not(run.context()) is None
    with refused("corruption", "small", "published", "fog.npy"):
        corrupted.tables(run.context())


def test_tasks_without_corruptions_are_told(tmp_path: Path) -> None:
    run = Predicted(tmp_path, {"test": lambda: predicted.labelled(0, 9)})
    assert "no corrupted inputs" in str(corrupted.why_not(run.context()))


def test_the_figure_shows_means_and_the_middle_half_of_the_types(run: Predicted) -> None:
    drawing = drawing_of(RunData(run.store, run.comparison), "corrupted")
    assert "3 types" in drawing.caption
    assert {"Error (%)", "ECE (%)", "Severity of the corruption"} <= nothing_covered(drawing)
    name = run.comparison.arms[0].name
    row = next(r for r in drawing.data if (r["arm"], r["severity"], r["metric"]) == (name, 3, "error"))
    each = [
        np.mean([
            r["error"] for r in run.tables["corrupted"] if (r["arm"], r["corruption"], r["severity"]) == (name, k, 3)
        ])
        for k in KINDS
    ]  # fmt: skip
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((np.mean(each), *np.quantile(each, [0.25, 0.75])))
    assert row["types"] == 3
