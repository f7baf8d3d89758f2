"""A cell or point of every experiment, drawn by a seed: its stored value, and the value made of predictions or
draws."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats
from scipy.io import loadmat

from tests.papers.recompute import lenet, reading

Both = tuple[float, float]
Check = Callable[[Path, Path, int], Both]
"""Of the experiment's folder, the store and the seed."""


# Of predictions


def ensemble(folder: Path, store: Path, seed: int, column: str = "", clean: bool = False) -> Both:
    """All samples of a cell's chains, or the last one alone; ``clean`` where CIFAR-10's corruptions are kept as
    well."""
    cell = reading.drawn_cell(folder, seed, column)
    y = reading.labels(store, cell, folder.name)
    split = reading.clean(store) if clean else len(y)
    if cell["row"].endswith("-single"):
        p = reading.probabilities(store, reading.samples(store, cell["digests"])[-1]["sha256"], split)
    else:
        p = reading.mean(store, cell["digests"], split)
    return cell["value"], reading.worth(p, y)[cell["column"]]


def with_nll(folder: Path, store: Path, seed: int, table: str = "nll") -> Both:
    """An error or accuracy plus the NLL of the same chains: predictions that change no class change the second."""
    column = "" if table == "nll" else ("top1", "top5")[int(np.random.default_rng(seed).integers(2))]
    cell = reading.drawn_cell(folder, seed, column)
    where = ("part", "row", "repeat")
    (likelihood,) = [
        r["nll"] if table == "nll" else r["value"]
        for r in reading.rows(folder / f"{table}.parquet")
        if all(r[k] == cell[k] for k in where) and r["column"] == (cell["column"] if table == "nll" else "nll")
    ]
    y = reading.labels(store, cell, folder.name)
    found = reading.worth(reading.mean(store, cell["digests"], len(y)), y)
    return cell["value"] + likelihood, found[cell["column"] if table == "cells" else "error"] + found["nll"]


def calibration(folder: Path, store: Path, seed: int) -> Both:
    """A calibration error over 8 bins, or the mean confidence less the accuracy."""
    cell = reading.drawn_cell(folder, seed)
    y = reading.labels(store, cell, folder.name)
    p = reading.mean(store, cell["digests"], len(y))
    if cell["column"] == "overconfidence":
        return cell["value"], 100 * float(p.max(1).mean() - (p.argmax(1) == y).mean())
    return cell["value"], reading.calibration_error(p, y, 8, width=cell["column"] == "ece-width")


def detection(folder: Path, store: Path, seed: int) -> Both:
    """The share of pairs of a digit of SVHN and an own image whose entropies are in that order, or a calibration
    error."""
    cell = reading.drawn_cell(folder, seed)
    inside = reading.mean(store, cell["digests"], reading.clean(store))
    if cell["column"] == "ece":
        return cell["value"], reading.calibration_error(
            inside, reading.labels(store, cell, folder.name), 10, width=False
        )
    digits = int(loadmat(store / "stand-ins/test_32x32.mat")["y"].size)
    outside = reading.entropy(reading.mean(store, cell["digests"], digits))[:, None]
    own = reading.entropy(inside)
    return cell["value"], 100 * float((outside > own).mean() + (outside == own).mean() / 2)


def corrupted(folder: Path, store: Path, seed: int) -> Both:
    """Accuracy at one severity: the mean over all types of corruption."""
    cell = reading.drawn_cell(folder, seed)
    files, at = store / "stand-ins/CIFAR-10-C", int(cell["column"]) - 1
    y = np.load(files / "labels.npy").reshape(5, -1)[at]
    accuracies = []
    for path in sorted(set(files.glob("*.npy")) - {files / "labels.npy"}):
        images = np.load(path).reshape(5, len(y), 32, 32, 3)[at]
        p = reading.mean(store, cell["digests"], reading.folder_of(images.transpose(0, 3, 1, 2), y))
        accuracies.append(reading.worth(p, y)["accuracy"])
    return cell["value"], float(np.mean(accuracies))


def ablation(folder: Path, store: Path, seed: int) -> Both:
    """The NLL of one setting and repeat: of all draws, but for the two rows that say which variable."""
    cell = reading.drawn_cell(folder, seed, "nll")
    only = cell["row"].removeprefix("variables-")
    y = reading.labels(store, cell, folder.name)
    draws = reading.samples(store, cell["digests"])
    mine = [s["sha256"] for s in draws if only not in ("theta", "anchor") or s["variable"] == only]
    p = np.mean([reading.probabilities(store, sha, len(y)) for sha in mine], axis=0)
    return cell["value"], reading.worth(p, y)["nll"]


def early(folder: Path, store: Path, seed: int) -> Both:
    """The mean NLL of the samples of θ that a chain drew in the first epoch."""
    cell = reading.drawn_cell(folder, seed, "early")
    own = [p for p in reading.rows(folder / "points.parquet") if p["digest"] == cell["digests"]]
    until = max(1, min(p["epochs"] for p in own)) + 1e-6
    wanted = {p["index"] for p in own if p["epochs"] <= until}
    y = reading.labels(store, cell, folder.name)
    found = [
        reading.worth(reading.probabilities(store, s["sha256"], len(y)), y)["nll"]
        for s in reading.samples(store, cell["digests"])
        if s["index"] in wanted and s["variable"] != "anchor"
    ]
    return cell["value"], float(np.mean(found))


def ends(folder: Path, store: Path, seed: int) -> Both:
    """The mean over a chain's lines of both ends' errors, plus that of their NLL: a network without BatchNorm is the
    same alone and at the end of a line."""
    cell = reading.drawn_cell(folder, seed, "ends")
    y = reading.labels(store, cell, folder.name)
    sha = {s["index"]: s["sha256"] for s in reading.samples(store, cell["digests"])}
    stored, again = [], []
    for p in reading.rows(folder / "paths.parquet"):
        end = {0.0: "from", 1.0: "to"}.get(p["t"])
        if end and (p["part"], p["row"], p["chain"]) == (cell["part"], cell["row"], cell["repeat"]):
            stored.append(p["nll"])
            found = reading.worth(reading.probabilities(store, sha[p[end]], len(y)), y)
            again.append(found["error"] + found["nll"])
    return cell["value"] + float(np.mean(stored)), float(np.mean(again))


def letters(folder: Path, store: Path, seed: int) -> Both:
    """The share of letters, 102 in the stand-in for notMNIST, with a predictive entropy below half a nat."""
    cell = reading.drawn_cell(folder, seed, "sure")
    return cell["value"], float(100 * (reading.entropy(reading.mean(store, cell["digests"], 102)) < 0.5).mean())


# Of draws


def schedules(folder: Path, store: Path, seed: int) -> Both:
    """Of both schedules: a drawn step size, their mean, and restarts per step, so that no number is lost beside
    another.

    Eq. 1 with cycles of 500 of 2,000 steps; and a(b + k)^−.55, where (b + K)/(b + 1) is 10^(1/.55), so that the last
    is a tenth of the first, the only number that is taken from the curve.
    """
    curve = reading.rows(folder / "curve.parquet", raw=True)
    cells = {(c["row"], c["column"]): c["value"] for c in reading.rows(folder / "cells.parquet")}
    rng, k, ratio = np.random.default_rng(seed), np.arange(2000), 10 ** (1 / 0.55)
    b = (2000 - ratio) / (ratio - 1)
    shapes = {"cyclical": (np.cos(np.pi * (k % 500 / 500)) + 1) / 2, "decreasing": ((b + k + 1) / (b + 1)) ** -0.55}
    stored, again = 0.0, 0.0
    for name, shape in shapes.items():
        points = [p for p in curve if p["schedule"] == name]
        sizes = points[0]["lr"] * shape
        point = points[int(rng.integers(1, len(points)))]
        stored += point["lr"] + cells[name, "mean"] + cells[name, "restarts"] / 2000
        again += float(sizes[point["step"] - 1] + sizes.mean() + (np.diff(sizes) > 0).sum() / 2000)
    return stored, again


def distances(folder: Path, store: Path, seed: int) -> Both:
    """The mean distance of all pairs of samples of a map, or that of pairs of two cycles over that of pairs of one."""
    column = ("distance", "apart")[int(np.random.default_rng(seed).integers(2))]
    cell = reading.drawn_cell(folder, seed, column)
    shown = [p for p in reading.rows(folder / "map.parquet") if all(p[k] == cell[k] for k in ("part", "row", "repeat"))]
    files = {s["index"]: s["file"] for s in reading.samples(store, cell["digests"])}
    at = []
    for point in shown:
        tensors = reading.tensors(store, cell["digests"], files[point["index"]])
        at.append(np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64))
    found: dict[bool, list[float]] = {True: [], False: []}
    for i, j in itertools.combinations(range(len(at)), 2):
        found[shown[i]["group"] == shown[j]["group"]].append(float(np.linalg.norm(at[i] - at[j])))
    if column == "distance":
        return cell["value"], float(np.mean(found[True] + found[False]))
    return cell["value"], float(np.mean(found[False]) / np.mean(found[True]))


def modes(folder: Path, store: Path, seed: int) -> Both:
    """Of SGLD and a repeat, modes with more than 100 draws within .25, over all of its chains: each chain stays in
    one."""
    cell = reading.drawn_cell(folder, seed, "modes", "sgld")
    counts, centres = np.zeros(25), np.array([*itertools.product((-4, -2, 0, 2, 4), repeat=2)])
    for digest in cell["digests"].split():
        for sample in reading.samples(store, digest):
            (block,) = reading.tensors(store, digest, sample["file"]).values()
            counts += (np.linalg.norm(block[:, cell["repeat"], None] - centres, axis=-1) < 0.25).sum(0)
    return cell["value"], float((counts > 100).sum())


def sample_size(folder: Path, store: Path, seed: int) -> Both:
    """Bulk effective sample size of one lane: the mean over coefficients, each at most the number of draws."""
    cell = reading.drawn_cell(folder, seed, "-ess")
    name = f"{cell['part']}-{cell['row']}-{cell['column'].removesuffix('-ess')}.parquet"
    lanes = reading.columns(store / "reproduce/smoke/table5/draws" / name, raw=True)
    draws = np.stack(lanes[f"lane{cell['repeat']}"]).astype(np.float64)
    each = [array_stats.ess(d[None], chain_axis=0, draw_axis=1, method="bulk") for d in draws.T]
    return cell["value"], float(np.minimum(each, len(draws)).mean())


def flat_share(folder: Path, store: Path, seed: int) -> Both:
    """How many chains end in the flat mode: its responsibilities, where both modes are equally deep and exponents
    count.

    SGD's chains end in the middle of a mode and those that begin in the flat one stay there: all are 0 or all are 1,
    whatever is altered.
    """
    cells = reading.rows(folder / "cells.parquet")
    key = ("part", "row", "column")
    groups = sorted(
        {tuple(c[k] for k in key) for c in cells if c["part"] not in ("law", "from-flat") and c["row"] != "sgd"}
    )
    part, row, column = groups[int(np.random.default_rng(seed).integers(len(groups)))]
    stored = [c["value"] for c in cells if tuple(c[k] for k in key) == (part, row, column)]
    file = store / f"reproduce/smoke/emcmc-fig2/pieces/{part}-{row}-r1.parquet"
    again = []
    for end in reading.rows(file, raw=True):
        if (end["what"], end["variable"]) == ("end", column):
            sharp, flat = (
                ((end["x"] - c) ** 2 + (end["y"] - c) ** 2) / (2 * s**2) for s, c in ((0.1, -1.0), (0.5, 1.0))
            )
            again.append(1 / (1 + np.exp(flat - sharp)))
    return float(np.mean(stored)), float(np.mean(again))


def pseudo_value(statistic: Callable[[np.ndarray], float], groups: np.ndarray, left_out: int) -> float:
    """The jackknife's: G·f(all) − (G−1)·f(all but one)."""
    return len(groups) * statistic(groups) - (len(groups) - 1) * statistic(np.delete(groups, left_out, axis=0))


def slope(folder: Path, store: Path, seed: int) -> Both:
    """A pseudo-value of a slope over K, of one sweep, average and quantity, from every lane; E θ² = 1 + 1.5²."""
    cell = reading.drawn_cell(folder, seed)
    sweep, average = cell["row"].split("-")
    points = sorted({r["steps"] for r in reading.rows(folder / "errors.parquet") if r["sweep"] == sweep})
    used = points[len(points) // 2 :] if sweep == "fixed" else points
    count = len({c["repeat"] for c in reading.rows(folder / "cells.parquet")})
    raw = store / "reproduce/smoke/theorem1/draws"
    away = np.stack([reading.columns(raw / f"{sweep}-{k}.parquet", raw=True)[average] for k in used], 1) - (1 + 1.5**2)
    groups = (away if cell["column"] == "bias" else away**2).reshape(count, -1, len(used)).mean(1)
    return cell["value"], pseudo_value(
        lambda some: float(np.polyfit(np.log(used), np.log(np.abs(some.mean(0))), 1)[0]), groups, cell["repeat"]
    )


def w2(lanes: np.ndarray) -> float:
    """Between the Gaussian with these lanes' mean and covariance and N(0, Λ⁻¹)."""
    eigenvalues = np.array([2.0, 2.5, 3.0])
    mean, covariance, root = lanes.mean(0), np.cov(lanes.T), np.diag(eigenvalues**-0.5)
    values = np.linalg.eigvalsh(root @ covariance @ root)
    squared = mean @ mean + np.trace(covariance) + (1 / eigenvalues).sum() - 2 * np.sqrt(np.maximum(values, 0)).sum()
    return float(np.sqrt(max(squared, 0)))


def tightest_bound(folder: Path, store: Path, seed: int) -> Both:
    """A pseudo-value of the smallest log₁₀(bound / W₂) of a step size that falls or restarts, from lanes' last
    states."""
    rows = reading.rows(folder / "distances.parquet")
    own = {r["schedule"] for r in rows}
    cells = [c for c in reading.rows(folder / "cells.parquet") if c["row"] in own and c["column"] != "agreement"]
    cell = cells[int(np.random.default_rng(seed).integers(len(cells)))]
    files = {r["steps"]: store / f"reproduce/smoke/theorem2/draws/{cell['row']}-{r['steps']}.parquet" for r in rows}
    bounds = {
        r["steps"]: r[cell["column"]] for r in rows if r["schedule"] == cell["row"] and files[r["steps"]].exists()
    }
    count = 1 + max(c["repeat"] for c in cells)

    def lanes(k: int, raw: bool) -> np.ndarray:
        columns = reading.columns(files[k], raw=raw)
        return np.stack([columns[f"theta{i}"] for i in range(3)], 1).reshape(count, -1, 3)

    def logs(some: np.ndarray, k: int) -> float:
        return float(np.log10(bounds[k] / w2(some.reshape(-1, 3))))

    # Groups of lanes are so large that leaving one out does not change where the bound is tightest.
    k = min(bounds, key=lambda k: logs(lanes(k, False), k))
    return cell["value"], pseudo_value(partial(logs, k=k), lanes(k, True), cell["repeat"])


def regression(folder: Path, store: Path, seed: int) -> Both:
    """RMSE, and the moments' NLL of standardised targets or the mixture's log density in the target's unit; of one
    cell."""
    cell = reading.drawn_cell(folder, seed)
    y, scale = reading.targets(store, cell, folder.name)
    shas = [sample["sha256"] for digest in cell["digests"].split() for sample in reading.samples(store, digest)]
    blocks = np.stack([reading.block(store, sha) for sha in shas])
    means, sds = blocks[..., 0], blocks[..., 1]
    if cell["column"] == "rmse":
        unit = scale if folder.name == "uci-table" else 1.0
        return cell["value"], unit * float(np.sqrt(((means.mean(0) - y) ** 2).mean()))
    if cell["column"] == "nll":
        sd = np.sqrt((sds**2).mean(0) + means.var(0))
        return cell["value"], float((0.5 * ((y - means.mean(0)) / sd) ** 2 + np.log(sd * np.sqrt(2 * np.pi))).mean())
    density = (np.exp(-0.5 * ((y - means) / sds) ** 2) / (sds * scale * np.sqrt(2 * np.pi))).mean(0)
    return cell["value"], float(np.log(density).mean())


def distance_to_hmc(folder: Path, store: Path, seed: int) -> Both:
    """Total variation between all samples of a cell's chains and the reference among the stand-ins."""
    cell = reading.drawn_cell(folder, seed, "total_variation")
    reference = np.load(store / "stand-ins/hmc-cifar10/probabilities.npy")
    p = reading.mean(store, cell["digests"], len(reference))
    return cell["value"], float((0.5 * np.abs(p - reference).sum(1)).mean())


def distance_to_draws(folder: Path, store: Path, seed: int) -> Both:
    """W₂ between Gaussians of the moments of a cell's samples and of HMC's draws, whose linear network is computed
    here."""
    cell = reading.drawn_cell(folder, seed, "w2")
    inputs = reading.inputs(store, cell, folder.name)
    theta = np.concatenate(reading.references(store), axis=1).astype(np.float32)
    theta = theta.reshape(-1, theta.shape[-1])
    log_noise, weight, bias = np.split(theta, [1, theta.shape[1] - 1], axis=1)
    exact = _gaussian(weight @ inputs.T + bias, np.exp(log_noise.astype(np.float64)))
    shas = [sample["sha256"] for digest in cell["digests"].split() for sample in reading.samples(store, digest)]
    blocks = np.stack([reading.block(store, sha) for sha in shas])
    own = _gaussian(blocks[..., 0], blocks[..., 1])
    return cell["value"], float((np.hypot(own[0] - exact[0], own[1] - exact[1]) / exact[1]).mean())


def _gaussian(means: np.ndarray, sds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a mixture of Gaussians [samples, examples], each [examples]."""
    m = means.astype(np.float64)
    return m.mean(0), np.sqrt((sds.astype(np.float64) ** 2 + np.zeros_like(m)).mean(0) + m.var(0))


CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("table1", "table2", "fig3c"), with_nll),
    **dict.fromkeys(("table4", "fig2", "fig5"), modes),
    "table3": partial(with_nll, table="cells"),
    "table5": sample_size,
    "fig1": schedules,
    "fig3a": distances,
    "fig3b": ends,
    "fig4": letters,
    "theorem1": slope,
    "theorem2": tightest_bound,
    "atmc-table1": partial(ensemble, clean=True),
    "atmc-calibration": calibration,
    "emcmc-table1": partial(ensemble, column="nll", clean=True),
    "emcmc-table2": detection,
    "emcmc-imagenet": partial(ensemble, column="nll"),
    "emcmc-corrupted": corrupted,
    "emcmc-ablations": ablation,
    "emcmc-fig2": flat_share,
    "emcmc-fig3": early,
    "emcmc-fig4": lenet.fisher,
    "emcmc-fig5": lenet.lines,
    **dict.fromkeys(("bde-table", "uci-table"), regression),
    "hmc-cifar10": distance_to_hmc,
    **dict.fromkeys(("true-posterior", "posterior-budgets"), distance_to_draws),
}
"""Of experiments whose cells are not all made of all samples, which `ensemble` checks."""
