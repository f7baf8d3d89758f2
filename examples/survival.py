"""Survival with censoring: `rc.fit` with the likelihood `DiscreteHazard`, beside a deep ensemble.

    python examples/survival.py DATA [BUDGET]

DATA is flchain.arff (the R package survival; OpenML has it): 7,874 people of Olmsted County, Minnesota, the free light
chains in their blood, and the days until their death or the end of the observation, which most of them outlived. 3,000
rows are learned from, 1,000 are the test set. BUDGET is the epochs of everything (500): about half a minute on one
core.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import raychains as rc
from raychains.tasks.likelihoods import DiscreteHazard

YEARS = list(range(1, 13))  # the ends of the bins
MOST, AT = 4000, 5


def load(file: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(inputs, [time in years, death]) to learn from and to test on; inputs are standardised by the former."""
    lines = [line.split(",") for line in Path(file).read_text().split("@data\n")[1].splitlines() if line]
    age, sex, _, kappa, lamb, group, creatinine, mgus, days, death, _ = map(np.array, zip(*lines, strict=True))
    missing = creatinine == "?"
    columns = [age, sex == "M", kappa, lamb, group, np.where(missing, "nan", creatinine), missing, mgus == "yes"]
    x = np.stack([column.astype(np.float32) for column in columns], 1)
    x[:, 2:6] = np.log(x[:, 2:6])  # all are positive and skewed
    y = np.stack([days.astype(np.float32) / 365.25, (death == "dead").astype(np.float32)], 1)
    some = np.random.default_rng(0).permutation(len(x))[:MOST]
    x, y, learned = x[some], y[some], len(some) - len(some) // 4
    x[:, 5] = np.nan_to_num(x[:, 5], nan=np.nanmean(x[:learned, 5]))
    x = (x - x[:learned].mean(0)) / x[:learned].std(0)
    return (x[:learned], y[:learned]), (x[learned:], y[learned:])


def network(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, len(YEARS)))


def concordance(risk: np.ndarray, y: np.ndarray) -> float:
    """Harrell's C: of the pairs in which one is known to have died first, the share in which its risk is higher."""
    time, died = y.T
    first = (died[:, None] == 1) & (time[:, None] < time[None])
    higher = (risk[:, None] > risk[None]) + 0.5 * (risk[:, None] == risk[None])
    return float(higher[first].mean())


def main(file: str, budget: str = "500", store: str = "runs") -> rc.Result:
    train, test = load(file)
    task = rc.Task.from_module(
        lambda: network(train[0].shape[1]), train, test, loss=DiscreteHazard(YEARS), name="survival"
    )
    result = rc.fit(
        task=task, budget=int(budget), reference=True, backend="process", store=store, name="survival", resume=True
    )
    print(result)
    alive = result.predict(torch.from_numpy(test[0]))  # [people, years]: the probability to outlive each
    print("years", *(f"{year:5d}" for year in YEARS))
    for person in np.argsort(alive[:, -1])[[0, len(alive) // 2, -1]]:
        time, died = test[1][person]
        print("alive", *(f"{p:5.2f}" for p in alive[person]), f"; {'died' if died else 'last seen'} after {time:.1f}")
    known = (test[1][:, 0] > AT) | (test[1][:, 1] == 1)
    at = alive[:, YEARS.index(AT)]
    brier = np.mean((at - (test[1][:, 0] > AT))[known] ** 2)
    print(f"C-index {concordance(1 - at, test[1]):.3f}; Brier score at {AT} years {brier:.3f}, of {known.sum()} known")
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
