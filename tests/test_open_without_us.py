"""Samples outlive the tool: the digits table again from the store, with safetensors, pyarrow, torch and scikit-learn only.

The script runs in a process where raychains cannot be imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import raychains as rc

SCRIPT = r"""
import json, sys
from pathlib import Path

sys.modules["raychains"] = None  # any import of it fails
import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

run = Path(sys.argv[1])
chains = run.parent.parent / "chains"
plan = json.loads((run / "plan.json").read_text())["comparison"]
settings = next(iter(plan["chains"].values()))["task"]

data = load_digits()
order = np.random.default_rng(settings["split_seed"]).permutation(len(data.target))[settings["train"]:]
x = torch.tensor(data.data[order] / 16, dtype=torch.float32)
y = data.target[order]

def network():
    widths = [64, *settings["hidden"], 10]
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.ModuleDict({"layers": torch.nn.Sequential(*layers[:-1])})

model = network()
table = {}
for arm in plan["arms"]:
    for group, digests in enumerate(arm["chains"]):
        probabilities = []
        for digest in digests:
            for row in pq.read_table(chains / digest / "samples.parquet").to_pylist():
                model.load_state_dict(load_file(chains / digest / row["file"]))
                with torch.no_grad():
                    probabilities.append(model["layers"](x).double().softmax(-1).numpy())
        p = np.mean(probabilities, axis=0)
        p_label = p[np.arange(len(y)), y]
        confidence, right = p.max(1), p.argmax(1) == y
        bins = np.minimum((confidence * 15).astype(int), 14)
        ece = sum(abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in set(bins))
        table[f"{arm['name']}/{group}"] = {
            "error": float(1 - right.mean()),
            "nll": float(-np.log(p_label).mean()),
            "ece": float(ece),
            "brier": float(((p - np.eye(10)[y]) ** 2).sum(1).mean()),
        }
print(json.dumps(table))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    """A small comparison, run through Ray and ended before anything is read."""
    store = tmp_path_factory.mktemp("foreign") / "store"
    return rc.compare(
        task="digits", sampler=("sghmc",), epochs=8, cycles=2, chains=2, repeats=2, store=str(store), name="run"
    )


def test_the_digits_table_is_rebuilt_without_raychains(run: rc.Result) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, run.path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rebuilt = json.loads(done.stdout)
    results = run.results()
    assert len(rebuilt) == len(results) == 8
    for row in results.to_dict("records"):
        theirs = rebuilt[f"{row['arm']}/{row['group']}"]
        for metric in ("error", "nll", "ece", "brier"):
            assert row[metric] == pytest.approx(theirs[metric], abs=1e-6), (row["arm"], metric)


def test_a_sample_is_a_plain_safetensors_file_of_the_models_state_dict(run: rc.Result) -> None:
    chain = next((Path(run.path).parent.parent / "chains").iterdir())
    from safetensors import safe_open

    from raychains import tasks

    with safe_open(sorted((chain / "samples").iterdir())[0], framework="pt") as f:
        description = json.loads(f.metadata()["raychains"])
        assert set(f.keys()) == set(tasks.make("digits").build_model(seed=0, lanes=1).state_dict())
    assert description["digest"] == chain.name and description["environment"]["device"] == "cpu"
