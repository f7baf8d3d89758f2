"""One fit by bde, with the data and budget that `benchmarks/airfoil.py` hands over.

Runs in an environment with bde; reads JSON on standard input, writes JSON on standard output.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from bde import BdeRegressor


def main() -> None:
    given = json.load(sys.stdin)
    data = {name: np.array(given[name], dtype=np.float32) for name in ("x_train", "y_train", "x_test", "y_test")}
    model = BdeRegressor(
        n_members=given["members"],
        hidden_layers=[16, 16, 16, 16],
        seed=given["seed"],
        epochs=1200,
        patience=20,
        validation_split=0.15,
        warmup_steps=given["warmup"],
        n_samples=given["steps"],
        n_thinning=given["apart"],
        desired_energy_var_start=0.5,
        desired_energy_var_end=0.1,
    )
    model.fit(data["x_train"], data["y_train"])
    mean, std = (np.asarray(a, dtype=np.float64).ravel() for a in model.predict(data["x_test"], mean_and_std=True))
    away = data["y_test"].astype(np.float64) - mean
    nll = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * (away / std) ** 2
    print(json.dumps({"rmse": float(np.sqrt(np.mean(away**2))), "nll": float(nll.mean())}))


if __name__ == "__main__":
    main()
