"""The README's figure: the intervals of `rc.fit` on a noisy wave with a gap in its data.

python examples/waves.py  # fifteen seconds; writes waves.svg
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import torch

if __name__ == "__main__":
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    names = {}
    exec(re.findall(r"```python\n(.*?)```", readme, flags=re.S)[0], names)
    x, y, result = names["x"], names["y"], names["result"]
    grid = torch.linspace(-4, 4, 400)[:, None]
    low, middle, high = result.predictive().quantiles(grid, [0.05, 0.5, 0.95]).T
    figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
    axes.fill_between(grid[:, 0], low, high, color="tab:blue", alpha=0.25, linewidth=0, label="90 % of the predictive")
    axes.plot(grid, middle, color="tab:blue", label="its median")
    axes.plot(x[:250], y[:250], ".", color="black", markersize=3, label="data")
    axes.set(xlabel="x", ylabel="y", ylim=(-3, 3))
    axes.legend(loc="upper left", ncols=3, frameon=False)
    plt.rcParams["svg.hashsalt"] = "waves"  # the same file at every run
    figure.savefig("waves.svg", metadata={"Date": None})
    print(result.choice.to_string())
