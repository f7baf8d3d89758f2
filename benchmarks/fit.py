"""Test NLL of `rc.fit` without any setting, beside a deep ensemble of five AdamW networks at the same total epochs.

Thirteen small problems, three splits each: tables of the data root, sets that scikit-learn makes, curves and MNIST with
2,000 images, with MLPs and a convolutional network. The ensemble's members hold out 15 % of the training examples, stop
after 20 epochs without a lower loss there and keep the best weights; each may take a fifth of the budget. A fit's
pilots are part of its budget. Differences are paired over the test rows of all splits, their standard errors are over
rows, and p values are corrected by Holm for the number of problems. What is finished is kept in --store: the same
command goes on.

--budget E is the epochs of all chains together, --lr the step size of the ensemble beside which a fit is held, --only
names problems, --splits their number.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from scipy import stats  # noqa: E402
from sklearn import datasets  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import raychains as rc  # noqa: E402
from benchmarks.machine import facts  # noqa: E402
from raychains.evaluation import metrics  # noqa: E402

Array = np.ndarray[Any, Any]
Problem = tuple[Callable[[], nn.Module], tuple[Tensor, Tensor], tuple[Tensor, Tensor], str]
MEMBERS, BATCH = 5, 32
LEVEL = 0.05


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        linear = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        return nn.Sequential(*[m for layer in linear[:-1] for m in (layer, activation())], linear[-1])

    return make


def convolutional() -> nn.Module:
    pool, relu = nn.MaxPool2d(2), nn.ReLU()
    first, second = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5)
    return nn.Sequential(first, relu, pool, second, relu, pool, nn.Flatten(), nn.Linear(256, 10))


def table(
    x: Array, y: Array, split: int, net: Callable[[], nn.Module], *, most: int = 2_000, regression: bool
) -> Problem:
    """Return a problem of a table: a quarter of its rows is the test set, inputs and real targets are standardised."""
    order = np.random.default_rng(split).permutation(len(x))[:most]
    test, train = np.split(order, [len(order) // 4])

    def scaled(values: Array) -> tuple[Tensor, Tensor]:
        mean, sd = values[train].mean(0), values[train].std(0)
        parts = ((values[rows] - mean) / np.where(sd > 0, sd, 1) for rows in (train, test))
        first, second = (torch.from_numpy(part).float() for part in parts)
        return first, second

    inputs = scaled(x.astype(np.float64))
    if regression:
        targets = scaled(y.astype(np.float64))
    else:
        targets = (torch.from_numpy(y[train].astype(np.int64)), torch.from_numpy(y[test].astype(np.int64)))
    loss = "heteroscedastic" if regression else "cross_entropy"
    return net, (inputs[0], targets[0]), (inputs[1], targets[1]), loss


def data(name: str) -> Path:
    return Path(os.environ["RAYCHAINS_DATA"]) / name


def uci(
    file: str, net: Callable[[], nn.Module], *, most: int = 2_000, regression: bool = False
) -> Callable[[int], Problem]:
    def made(split: int) -> Problem:
        rows = np.loadtxt(data(f"uci/{file}"))
        y = rows[:, -1] if regression else np.unique(rows[:, -1], return_inverse=True)[1]
        return table(rows[:, :-1], y, split, net, most=most, regression=regression)

    return made


def curve(split: int) -> Problem:
    g = np.random.default_rng(100 + split)
    x = g.uniform(-3, 3, (330, 1))
    y = np.sin(2 * x[:, 0]) + (0.05 + 0.3 * (x[:, 0] > 0)) * g.normal(size=330)
    return table(x, y, split, mlp(1, 50, 50, 2, activation=nn.Tanh), regression=True)


def spirals(split: int) -> Problem:
    g = np.random.default_rng(200 + split)
    turn, arm = np.sqrt(g.random(660)) * 3 * np.pi, g.integers(0, 3, 660)
    angle = turn + 2.1 * arm
    x = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) + g.normal(0, 0.5, (660, 2))
    return table(x, arm, split, mlp(2, 50, 50, 50, 3), regression=False)


def classes(split: int) -> Problem:
    settings = {"n_samples": 900, "n_features": 20, "n_informative": 8, "n_classes": 5, "flip_y": 0.05}
    x, y = datasets.make_classification(**settings, random_state=split)
    return table(x, y, split, mlp(20, 100, 100, 5), regression=False)


def made(function: Callable[..., Any], net: Callable[[], nn.Module], **settings: Any) -> Callable[[int], Problem]:
    def problem(split: int) -> Problem:
        x, y = function(**settings, random_state=split)
        regression = len(np.unique(y)) > 10
        return table(x, y if regression else (y > 0).astype(int), split, net, regression=regression)

    return problem


def mnist(split: int) -> Problem:
    def read(name: str, offset: int) -> Array:
        return np.frombuffer(gzip.open(data(f"MNIST/raw/{name}.gz")).read(), np.uint8, offset=offset)

    images = read("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read("train-labels-idx1-ubyte", 8)
    rows = np.random.default_rng(split).permutation(len(labels))[:4_000]
    x, y = torch.from_numpy(images[rows] / 255.0).float(), torch.from_numpy(labels[rows].astype(np.int64))
    return convolutional, (x[:2_000], y[:2_000]), (x[2_000:], y[2_000:]), "cross_entropy"


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "airfoil": uci("airfoil.data", mlp(5, 50, 50, 2), regression=True),
    "protein": uci("protein.data", mlp(9, 50, 50, 2), most=1_600, regression=True),
    "bike sharing": uci("bikesharing.data", mlp(12, 32, 32, 2, activation=nn.Tanh), regression=True),
    "curve": curve,
    "friedman2": made(datasets.make_friedman2, mlp(4, 40, 40, 2), n_samples=530, noise=30.0),
    "friedman3": made(datasets.make_friedman3, mlp(4, 32, 32, 2), n_samples=400, noise=0.1),
    "german": uci("german.data-numeric", mlp(24, 50, 50, 2)),
    "heart": uci("heart.dat", mlp(13, 32, 32, 2)),
    "australian": uci("australian.dat", mlp(14, 30, 2, activation=nn.Tanh)),
    "hastie": made(datasets.make_hastie_10_2, mlp(10, 64, 64, 2), n_samples=800),
    "spirals": spirals,
    "classes": classes,
    "mnist, conv": mnist,
}


def nll(result: rc.Result) -> Array:
    """Return −log p of each test row."""
    rows = result.store.table("rows").to_pandas()
    return np.asarray(metrics.POINTS["nll"]({name: rows[name].to_numpy() for name in rows}), dtype=float)


def fitted(problem: Problem, name: str, split: int, budget: int, lr: float, store: str) -> dict[str, Any]:
    """Return what a fit and an ensemble of equal cost predict on one split, with one member alone."""
    task = rc.Task.from_module(*problem, name="problem")
    about = {"task": task, "store": store, "backend": "process", "progress": False, "resume": True}
    stem = f"{name.replace(', ', '-').replace(' ', '-')}-{split}-{budget}"
    began = time.monotonic()
    posterior = rc.fit(**about, budget=budget, name=stem)
    took = time.monotonic() - began
    ensemble = {**about, "sampler": "deep-ensemble", "lr": lr, "weight_decay": 0.01, "pack": "auto"}
    ensemble |= {"epochs": budget // MEMBERS, "batch_size": min(BATCH, task.num_data)}
    several = rc.run(**ensemble, chains=MEMBERS, name=f"{stem}-ensemble-{lr:g}")
    single = rc.run(**ensemble, chains=1, name=f"{stem}-single-{lr:g}")
    choice = posterior.choice
    shares = {row.candidate: round(row.share, 2) for row in choice[choice["kept"]].itertuples() if row.share}
    found: dict[str, Any] = {"seconds": took, "shares": shares, "failed": len(posterior.failed)}
    found["rows"] = {who: nll(r) for who, r in (("fit", posterior), ("ensemble", several), ("single", single))}
    return found


def judged(splits: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the paired differences of one problem over the rows of all splits."""
    rows = {who: np.concatenate([one["rows"][who] for one in splits]) for who in ("fit", "ensemble", "single")}
    difference = rows["fit"] - rows["ensemble"]
    se = difference.std(ddof=1) / len(difference) ** 0.5
    means = {who: float(values.mean()) for who, values in rows.items()}
    p = float(2 * stats.norm.sf(abs(difference.mean()) / se)) if se else 1.0
    return {**means, "difference": float(difference.mean()), "se": float(se), "p": p}


def holm(p: list[float]) -> list[float]:
    """Return p values corrected by Holm's step-down method (1979)."""
    order, found, largest = np.argsort(p), [0.0] * len(p), 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - place) * p[at]))
        found[at] = largest
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--store", default="fit-benchmark")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.budget, options.splits, options.only = 120, 1, ["curve", "spirals"]
    print(facts())
    torch.set_num_threads(1)
    results = {}
    for name in options.only:
        splits = []
        for split in range(options.splits):
            one = fitted(PROBLEMS[name](split), name, split, options.budget, options.lr, options.store)
            splits.append(one)
            means = ", ".join(f"{who} {values.mean():.3f}" for who, values in one["rows"].items())
            shares = ", ".join(f"{who} {part:.0%}" for who, part in one["shares"].items())
            print(f"{name}, split {split}: {means}; {shares}; {one['seconds']:.0f} s", flush=True)
        results[name] = {**judged(splits), "failed": sum(one["failed"] for one in splits)}
    for row, p in zip(results.values(), holm([row["p"] for row in results.values()]), strict=True):
        row["p"] = p
    print("\n| problem | one network | ensemble | fit | difference ± s.e. | p (Holm) |\n|---|---:|---:|---:|---:|---:|")
    for name, r in results.items():
        ends = f"{r['difference']:+.3f} ± {r['se']:.3f} | {r['p']:.2g}"
        print(f"| {name} | {r['single']:.3f} | {r['ensemble']:.3f} | {r['fit']:.3f} | {ends} |")
    differences = [r["difference"] for r in results.values()]
    gains = sum(r["ensemble"] - r["single"] for r in results.values())
    significant = [r["difference"] < 0 for r in results.values() if r["p"] < LEVEL]
    worse = len(significant) - sum(significant)
    print(
        f"\nfailed chains {sum(r['failed'] for r in results.values())}; significantly better on {sum(significant)}, "
        f"worse on {worse} of {len(results)}; not worse than .01 nats on {sum(d <= 0.01 for d in differences)}; sum of "
        f"differences over the ensemble's gains on one network {sum(differences) / gains:.2f}; median difference "
        f"{statistics.median(differences):+.3f}"
    )
    Path(options.store, f"results-{options.budget}-{options.lr:g}.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
