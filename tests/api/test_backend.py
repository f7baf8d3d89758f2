"""``backend="process"``: a run in this process has chains, evaluation, page and resume, and what Ray alone has is
refused."""

from __future__ import annotations

import json
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
from tests.pool import unpaged
from tests.processes import SECONDS
from tests.report import runs

SMALL: dict[str, Any] = {"task": "digits", "epochs": 4, "chains": 2, "cycles": 2, "exploration": 0.5, "repeats": 1}
SCRIPT = """
import json, sys
sys.modules["ray"] = None
import torch, raychains as rc
threads = torch.get_num_threads()
settings = {**json.loads(sys.argv[1]), "sampler": ["sghmc"], "backend": "process", "progress": False}
first = rc.compare(**settings)
from raychains.report import run_page
run_page.write = lambda *_: None
assert rc.compare(**settings, resume=True, name=first.store.name).table().equals(first.table())
assert torch.get_num_threads() == threads and "reliability" in first.figures
print(first.path)
"""


def test_results_and_page_are_those_of_its_samples_and_ray_is_not_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps({**SMALL, "store": str(tmp_path)})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    compared = rc.load(done.stdout.strip())
    results = compared.store.table("results").to_pandas().set_index("arm")
    for arm in compared.comparison.arms:
        expected = runs.view(Storage(tmp_path), compared.comparison, arm.chains[0]).metrics[0]
        assert {name: results.loc[arm.name][name] for name in expected} == pytest.approx(expected)
    assert len(results) == len(compared.comparison.arms) == 4
    assert Path(compared.report).stat().st_size > 10_000


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
        with unpaged():
            result = rc.run(task=task, store=str(tmp_path), **settings)
        assert result.comparison.split == split and next(iter(task.splits())) != "test"
        assert result.store.table("rows").num_rows == (20 if split == "val" else 60)
        found[split] = " ".join(result.store.plan()["notes"])
    assert "no test examples: results are on the split val" in found["val"]
    assert "no examples but the training set's" in found["train"]
