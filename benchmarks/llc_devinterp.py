"""Local learning coefficients by devinterp's optimizer, on the problems and with the budget that `benchmarks/llc.py`
hands over.

Runs in an environment with devinterp; reads JSON on standard input, writes JSON on standard output.
"""

from __future__ import annotations

import json
import sys

import torch
from devinterp.optim.sgmcmc import SGMCMC


def estimates(problem: dict, budget: dict) -> list[float]:
    """λ̂ = nβ·(mean loss after the burn-in − loss at w*) of each chain on full batches."""
    x, y = torch.tensor(problem["x"]), torch.tensor(problem["y"])
    k1, k2 = problem["powers"]
    found = []
    for seed in range(budget["chains"]):
        torch.manual_seed(seed)
        w = torch.nn.Parameter(torch.zeros(2))
        optimizer = SGMCMC.sgld(
            [w], lr=budget["epsilon"], nbeta=budget["nbeta"], localization=budget["gamma"], weight_decay=0.0
        )
        total = torch.zeros((), dtype=torch.float64)
        start = None
        for step in range(budget["burn_in"] + budget["draws"]):
            optimizer.zero_grad()
            loss = (y - w[0] ** k1 * w[1] ** k2 * x).square().mean()
            loss.backward()
            start = float(loss.detach()) if start is None else start
            if step >= budget["burn_in"]:
                total += loss.detach().double()
            optimizer.step()
        found.append(budget["nbeta"] * (float(total) / budget["draws"] - start))
    return found


if __name__ == "__main__":
    given = json.load(sys.stdin)
    out = []
    for problem in given["problems"]:
        out.append({"values": estimates(problem, given["budget"])})
    json.dump(out, sys.stdout)
