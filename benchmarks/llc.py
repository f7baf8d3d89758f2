"""Local learning coefficients of models with known ones: closed forms and quadrature, and devinterp beside them.

Nine normal crossings y = w₁^k₁·w₂^k₂·x + noise and a reduced-rank regression y = b·(aᵀx) + noise, both with the truth 0
and data on which w* = 0 is the minimum exactly: the loss is a function of two numbers, so that the value of the target
exp(−nβ·L − (γ/2)‖w‖²) itself is a quadrature, which at n = 1,000 is not the asymptotic coefficient. Chains are those of
`raychains local`, in this process.

    python benchmarks/llc.py --to docs/results/llc/table.md

--peer names a Python in whose environment devinterp is installed: `benchmarks/llc_devinterp.py` runs its SGMCMC.sgld on
the same data with the same budget.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from raychains.api import local as api  # noqa: E402
from raychains.api import plans, sampling  # noqa: E402
from raychains.api.keywords import reading  # noqa: E402
from raychains.api.result import Result  # noqa: E402
from raychains.core.config import Local  # noqa: E402
from raychains.inference.predictive import Selection, select  # noqa: E402
from raychains.measures import Context, named  # noqa: E402
from raychains.orchestration.cluster.thread_workers import ThreadWorkers  # noqa: E402
from raychains.store.caches import predictions  # noqa: E402
from raychains.tasks import Task  # noqa: E402

SCALE = 0.5**0.5
"""σ with which the Gaussian likelihood's mean loss is the mean squared error and a constant."""
POWERS = [(0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3), (3, 3)]
N, GAMMA, EPSILON, BURN_IN, DRAWS, CHAINS = 1000, 1.0, 1e-4, 5000, 20_000, 4
NBETA = N / math.log(N)
RANK = {"gamma": 10.0, "epsilon": 5e-4}
"""Of the reduced-rank regression, whose flat directions relax in 2/(εγ) steps."""
KEPT = 1000
"""Draws of each chain at which the loss is evaluated, evenly spread."""


class Crossing(nn.Module):
    """y = w₁^k₁·w₂^k₂·x."""

    def __init__(self, k1: int, k2: int) -> None:
        super().__init__()
        self.powers, self.w = (k1, k2), nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        k1, k2 = self.powers
        return self.w[0] ** k1 * self.w[1] ** k2 * x


class ReducedRank(nn.Module):
    """y = b·(aᵀx): rank 1 from M inputs to N outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(inputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.a)[:, None] * self.b


def crossing_data(n: int = N) -> tuple[Tensor, Tensor]:
    """x ~ N(0, 2²) and noise of σ = .25 as y, with mean(xy) = 0 and mean(x²) = 4 exactly."""
    g = torch.Generator().manual_seed(0)
    x, y = 2 * torch.randn(n, 1, generator=g, dtype=torch.float64), 0.25 * torch.randn(n, 1, generator=g).double()
    x *= 2 / x.square().mean().sqrt()
    y -= x * (x * y).mean() / 4
    return x.float(), y.float()


def reduced_rank_data(inputs: int, outputs: int, n: int = N) -> tuple[Tensor, Tensor]:
    """Inputs with the second moments I and noise of σ = .25 as y, with mean(y xᵀ) = 0 exactly."""
    g = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(n, inputs, generator=g, dtype=torch.float64))[0] * math.sqrt(n)
    y = 0.25 * torch.randn(n, outputs, generator=g).double()
    y -= x @ (x.T @ y) / n
    return x.float(), y.float()


def _quadrature(energy: Callable[[Any, Any], Any], weight: Callable[[Any, Any], Any], gamma: float) -> float:
    """E[energy] under weight·exp(−energy − (γ/2)(u² + v²)), by the midpoint rule in the cube roots of u, v > 0, fine
    near the axes."""
    edges = np.linspace(0.0, 2.0, 3001)
    t = (edges[1:] + edges[:-1]) / 2
    u, v = t[:, None] ** 3, t[None, :] ** 3
    value = energy(u, v)
    density = weight(u, v) * np.exp(-value - gamma / 2 * (u**2 + v**2)) * (t[:, None] * t[None, :]) ** 2
    return float((value * density).sum() / density.sum())


def crossing_quadrature(k1: int, k2: int, nbeta: float, gamma: float) -> float:
    """nβ·E[L(w) − L(0)] of a normal crossing, where L(w) − L(0) = 4·(w₁^k₁·w₂^k₂)²."""
    return _quadrature(lambda u, v: nbeta * 4 * (u**k1 * v**k2) ** 2, lambda u, v: np.ones_like(u * v), gamma)


def reduced_rank_quadrature(inputs: int, outputs: int, nbeta: float, gamma: float) -> float:
    """nβ·E[L(w) − L(0)] of the reduced-rank regression, where L(w) − L(0) = ‖a‖²·‖b‖²: an integral over the two
    norms."""
    return _quadrature(lambda u, v: nbeta * (u * v) ** 2, lambda u, v: u ** (inputs - 1) * v ** (outputs - 1), gamma)


# Local runs in this process


def run(folder: Path, model: nn.Module, data: Any, **settings: Any) -> tuple[Result, Task]:
    """Sample around a model without Ray, evaluation and page."""
    given = {"store": str(folder), "progress": False, **settings}
    loss, noise = given.pop("loss", "gaussian"), given.pop("noise", None)
    with reading(Local, *api._given(model, data, loss, noise, given)) as call:
        assert call.task is not None
        planned = plans.local(call.options, call.task)
        about = (call.options, planned, call.callback, call.task)
        return sampling.execute("local", *about, ThreadWorkers(), page=False, evaluate=False), call.task


def context(result: Result, task: Task, split: str = "train") -> Context:
    """What the measure is given of a run."""
    comparison, root = result.comparison, result.store.root

    def selected(arm: int, group: int) -> Selection:
        return select(root, comparison, comparison.arms[arm].name, group)

    return Context(
        store=result.store, comparison=comparison, split=split, task=task, select=selected,
        groups=[(a, 0) for a in range(len(comparison.arms))],
        predictions=lambda a, g: predictions(root, task.splits()[split], selected(a, g).records),
    )  # fmt: skip


def estimate(model: nn.Module, data: Any, **settings: Any) -> dict[str, Any]:
    """The row of the table ``llc`` of a run in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        (row,) = named("llc").tables(context(*run(Path(folder), model, data, **settings)))["llc"]
    return dict(row)


def peers(python: str, powers: Sequence[tuple[int, int]], budget: dict[str, Any]) -> list[dict[str, Any]]:
    """Devinterp's estimates of the crossings."""
    x, y = (t.tolist() for t in crossing_data())
    asked = {"budget": budget, "problems": [{"x": x, "y": y, "powers": p} for p in powers]}
    script = str(ROOT / "benchmarks" / "llc_devinterp.py")
    done = subprocess.run([python, script], input=json.dumps(asked), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python with devinterp")
    parser.add_argument("--to", help="file to write the table to, besides standard output")
    parser.add_argument("--chains", type=int, default=CHAINS)
    parser.add_argument("--smoke", action="store_true", help="a hundredth of the steps, of two problems")
    asked = parser.parse_args()
    share = 100 if asked.smoke else 1
    burn_in, draws, kept = BURN_IN // share, DRAWS // share, KEPT // share
    budget = {"gamma": GAMMA, "epsilon": EPSILON, "chains": asked.chains}
    settings: dict[str, Any] = {
        **budget, "noise": SCALE, "epochs": burn_in + draws, "burn_in": burn_in, "draws": kept, "batch_size": N
    }  # fmt: skip
    powers = POWERS[:1] if asked.smoke else POWERS
    problems: list[tuple[str, nn.Module, Any, float, str]] = [
        (
            f"crossing {p}",
            Crossing(*p),
            crossing_data(),
            crossing_quadrature(*p, NBETA, GAMMA),
            f"{1 / (2 * max(p)):.4f}",
        )
        for p in powers
    ]
    exact = reduced_rank_quadrature(4, 2, NBETA, RANK["gamma"])
    problems.append(
        ("reduced rank, 4 → 1 → 2 (γ = 10, ε = 5e-4)", ReducedRank(4, 2), reduced_rank_data(4, 2), exact, "1.0000")
    )
    other: list[dict[str, Any]] = []
    if asked.peer:
        other = peers(asked.peer, powers, {**budget, "nbeta": NBETA, "burn_in": burn_in, "draws": draws})
    lines = [
        "# Local learning coefficients against quadrature",
        "",
        f"`python benchmarks/llc.py --chains {asked.chains}{' --peer PYTHON' * bool(asked.peer)}`: n = {N:,}, nβ = "
        f"n/ln n = {NBETA:.2f}, γ = {GAMMA:g}, ε = {EPSILON:g}, {asked.chains} chain{'s' * (asked.chains > 1)} of "
        f"{draws:,} steps after {burn_in:,} of burn-in, full batches, w* = 0. λ̂ ± its Monte Carlo standard error; "
        "the limit is the one for n → ∞.",
        "",
        f"| model | limit | quadrature | raychains | standard errors apart |{' devinterp |' * bool(other)}",
        f"|---|---|---|---|---|{'---|' * bool(other)}",
    ]
    for k, (name, model, data, value, limit) in enumerate(problems):
        row = estimate(model, data, **settings | (RANK if isinstance(model, ReducedRank) else {}))
        apart = (row["llc"] - value) / row["error"]
        line = f"| {name} | {limit} | {value:.4f} | {row['llc']:.4f} ± {row['error']:.4f} | {apart:+.1f} |"
        if other:
            line += f" {np.mean(other[k]['values']):.4f} |" if k < len(other) else " |"
        lines.append(line)
        print(line, flush=True)
    version = "; devinterp has another stream of noise" * bool(other)
    lines += [
        "",
        f"All problems have the same seed, so that their deviations are not independent of one another{version}.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.to:
        Path(asked.to).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
