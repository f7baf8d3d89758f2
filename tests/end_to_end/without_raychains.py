"""The digits table again from a run's folder, by safetensors, pyarrow, torch and scikit-learn only; a script."""

# ruff: noqa: E402
import json
import sys
from itertools import pairwise
from pathlib import Path

sys.modules["raychains"] = None  # type: ignore[assignment]  # any import of it fails
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
order = np.random.default_rng(settings["split_seed"]).permutation(len(data.target))[settings["train"] :]
x = torch.tensor(data.data[order] / 16, dtype=torch.float32)
y = data.target[order]

layers: list[torch.nn.Module] = []
for a, b in pairwise([64, *settings["hidden"], 10]):
    layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
model = torch.nn.ModuleDict({"layers": torch.nn.Sequential(*layers[:-1])})
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
