"""Several labels at once, and counts: `rc.fit` with the likelihoods `bernoulli` and `negative-binomial`.

    python examples/labels_and_counts.py labels|counts DATA [BUDGET]

DATA is a CSV file (also .gz) with a header. `labels`: the last 14 columns are labels of 0 and 1, as in Mulan's yeast,
genes with 14 functions. `counts`: the first column is a count, as in R's randhie, visits to a doctor. A quarter of the
rows, 4,000 at most in all, is the test set. BUDGET is the epochs of everything (500): about 15 seconds on one core.
"""

import sys

import numpy as np
import pandas as pd
import torch
from torch import nn

import raychains as rc

LABELS, MOST = 14, 4000


def load(kind: str, file: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(inputs, targets) to learn from and to test on; inputs are standardised by the former."""
    rows = pd.read_csv(file).to_numpy(dtype=np.float32)
    rows = rows[np.random.default_rng(0).permutation(len(rows))][:MOST]
    x, y = (rows[:, :-LABELS], rows[:, -LABELS:]) if kind == "labels" else (rows[:, 1:], rows[:, 0])
    learned = len(rows) - len(rows) // 4
    sd = x[:learned].std(0)
    x = (x - x[:learned].mean(0)) / np.where(sd > 0, sd, 1)
    return (x[:learned], y[:learned]), (x[learned:], y[learned:])


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, outputs))


def main(kind: str, file: str, budget: str = "500", store: str = "runs") -> rc.Result:
    train, test = load(kind, file)
    # A count has two outputs, the logarithm of its mean and what gives its variance.
    loss, outputs = ("bernoulli", LABELS) if kind == "labels" else ("negative-binomial", 2)
    task = rc.Task.from_module(lambda: network(train[0].shape[1], outputs), train, test, loss=loss, name=kind)
    result = rc.fit(
        task=task, budget=int(budget), reference=True, backend="process", store=store, name=kind, resume=True
    )
    print(result)
    mean, sd = result.predictive().mean_and_std(torch.from_numpy(test[0][:3]))
    print("predicted", mean.round(2), "±", sd.round(2), "true", test[1][:3], sep="\n")
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
