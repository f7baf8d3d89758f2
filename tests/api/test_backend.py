"""``backend="process"``: a run in this process has chains, evaluation, page and resume, and what Ray alone has is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import raychains as rc
from raychains.store import Storage
from tests.checks import refused
from tests.processes import SECONDS
from tests.report import runs

SMALL: dict[str, Any] = {"task": "digits", "epochs": 4, "chains": 2, "cycles": 2, "exploration": 0.5, "repeats": 1}
SCRIPT = """
import sys
sys.modules["ray"] = None
import raychains as rc
result = rc.run(task="digits", backend="process", epochs=2, chains=1, cycles=1, store=sys.argv[1], progress=False)
print(result.table(), list(result.figures))
"""


def test_results_and_page_are_those_of_its_samples(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    compared = rc.compare(**SMALL, sampler=("sghmc",), backend="process", store=str(tmp_path), progress=False)
    assert torch.get_num_threads() == threads
    for arm in compared.comparison.arms:
        expected = runs.view(Storage(tmp_path), compared.comparison, arm.chains[0]).metrics[0]
        row = compared.store.table("results").to_pandas().set_index("arm").loc[arm.name]
        assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert (tmp_path / "runs" / compared.store.name / "report.html").stat().st_size > 10_000
    again = rc.compare(**SMALL, sampler=("sghmc",), backend="process", store=str(tmp_path), progress=False, resume=True)
    assert again.table().equals(compared.table())


def test_ray_is_not_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0 and "reliability" in done.stdout, done.stderr


def test_what_ray_alone_has_is_refused(tmp_path: Path) -> None:
    for option, value, words in (
        ("address", "host:1", ("address must be left out with", "backend=process")),
        ("accelerator_type", "A100", ("accelerator_type must be left out with",)),
        ("worker_pool", object(), ("worker_pool must be left out with",)),
        ("gpus_per_chain", 1, ("gpus_per_chain must be 0 with",)),
        ("backend", "dask", ("backend", "process", "dask")),
    ):
        with refused(*words):
            rc.run(**{**SMALL, "backend": "process", "store": str(tmp_path), "progress": False, option: value})
    assert not list(tmp_path.iterdir())


def test_a_task_without_test_examples_is_evaluated_on_what_it_has(tmp_path: Path) -> None:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] > 0).long())
    settings = {"epochs": 4, "chains": 1, "cycles": 1, "exploration": 0.5, "progress": False, "backend": "process"}
    found = {}
    for split, held in (("val", {"val_split": 20}), ("train", {})):
        task = rc.Task.from_module(lambda: nn.Linear(3, 2), data, name=f"no-test-{split}", **held)
        result = rc.run(task=task, store=str(tmp_path), **settings)
        assert result.comparison.split == split and next(iter(task.splits())) != "test"
        assert result.store.table("rows").num_rows == (20 if split == "val" else 60)
        found[split] = " ".join(result.store.plan()["notes"])
    assert "no test examples: results are on the split val" in found["val"]
    assert "no examples but the training set's" in found["train"]
