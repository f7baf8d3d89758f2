"""The README's figure: the intervals of `rc.fit` for the table's test rows, and where their targets lie.

python examples/intervals.py  # twenty seconds; writes intervals.svg
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt

if __name__ == "__main__":
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    names = {}
    exec(re.findall(r"```python\n(.*?)```", readme, flags=re.S)[0], names)
    x, y = (names[name][400:] for name in ("x", "y"))
    low, middle, high = names["result"].predictive().quantiles(x, [0.05, 0.5, 0.95]).T
    inside = (low <= y) & (y <= high)
    figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
    axes.vlines(middle, low - middle, high - middle, color="tab:blue", alpha=0.4, linewidth=3, label="90 % interval")
    for chosen, color, label in ((inside, "black", "target inside"), (~inside, "tab:red", "target outside")):
        axes.plot(middle[chosen], (y - middle)[chosen], ".", color=color, markersize=4, label=label)
    axes.set(xlabel="predicted median", ylabel="difference from it", ylim=(-0.35, 0.35))
    axes.legend(loc="upper left", ncols=3, frameon=False)
    plt.rcParams["svg.hashsalt"] = "intervals"  # the same file at every run
    figure.savefig("intervals.svg", metadata={"Date": None})
    print(f"{inside.sum()} of {len(y)} targets lie in their interval")
    print(names["result"].choice.to_string())
