"""Moments of MCLMC beside cSGLD's and SGHMC's, on three targets, with gradient noise that differs by coordinate.

Every method has as many gradients. All lanes start near the target's mean, a tenth of its sds away, so that steps that
are too short show, and the first quarter of a run is left out. Both gradients of a step share one noise, as of one
minibatch. Errors are means over
coordinates: of |mean − exact mean| in exact standard deviations, and of |sd/exact sd − 1|. Each method has the step
size of its list with the smallest error of the sd's, which the table names: with it at best, that is.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from raychains.samplers import MCLMC, SGHMC, SGLD, Sampler  # noqa: E402
from raychains.schedules import Cyclical  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class Target:
    """A density with known moments: −log p of points [lanes, d], means and sds, and the sd of the gradient's noise."""

    potential: Callable[[Tensor], Tensor]
    mean: Tensor
    sd: Tensor
    noise: Tensor


def gaussian(d: int = 20) -> Target:
    """Independent coordinates whose variances are in a ratio of up to 100; the widest has the most noise."""
    sd = torch.logspace(-1, 0, d, dtype=torch.float64)
    return Target(
        potential=lambda x: 0.5 * (x / sd).square().sum(1),
        mean=torch.zeros(d, dtype=torch.float64),
        sd=sd,
        noise=torch.logspace(-1, 1, d, dtype=torch.float64),
    )


def banana(bend: float = 0.5) -> Target:
    """x ~ N(0, 1), y given x ~ N(bend·(x² − 1), ¼)."""

    return Target(
        potential=lambda x: 0.5 * x[:, 0] ** 2 + (x[:, 1] - bend * (x[:, 0] ** 2 - 1)) ** 2 / 0.5,
        mean=torch.zeros(2, dtype=torch.float64),
        sd=torch.tensor([1.0, math.sqrt(0.25 + 2 * bend**2)], dtype=torch.float64),
        noise=torch.tensor([0.5, 5.0], dtype=torch.float64),
    )


def funnel(width: float = 1.5, d: int = 4) -> Target:
    """v ~ N(0, 1.5²), and x given v ~ N(0, exp(v)), three of them."""

    def potential(x: Tensor) -> Tensor:
        v = x[:, 0]
        return 0.5 * (v / width) ** 2 + 0.5 * x[:, 1:].square().sum(1) * torch.exp(-v) + 0.5 * (d - 1) * v

    wide = math.exp(width**2 / 4)
    return Target(
        potential=potential,
        mean=torch.zeros(d, dtype=torch.float64),
        sd=torch.tensor([width] + [wide] * (d - 1), dtype=torch.float64),
        noise=torch.tensor([5.0] + [0.5] * (d - 1), dtype=torch.float64),
    )


TARGETS: dict[str, Callable[[], Target]] = {"Gaussian": gaussian, "banana": banana, "funnel": funnel}
LANGEVIN = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
LENGTHS = (0.03, 0.1, 0.3)
METHODS: dict[str, tuple[Callable[..., Sampler], dict[str, Any], tuple[float, ...]]] = {
    "cSGLD": (SGLD, {}, tuple(3 * lr for lr in LANGEVIN)),
    "SGHMC": (SGHMC, {"momentum": 0.9}, tuple(lr / 3 for lr in LANGEVIN)),
    "MCLMC": (MCLMC, {"length": 3.0}, LENGTHS),
}
"""Sampler, settings and step sizes."""


def errors(target: Target, method: str, lr: float, *, lanes: int, gradients: int, seed: int) -> tuple[float, float]:
    """Return the errors of means and of standard deviations, pooled over lanes and steps."""
    kind, settings, _ = METHODS[method]
    generator = torch.Generator().manual_seed(seed)
    d = len(target.sd)

    def normal() -> Tensor:
        return torch.empty(lanes, d, dtype=torch.float64).normal_(generator=generator)

    theta = (target.mean + 0.1 * target.sd * normal()).requires_grad_()
    sampler = kind([theta], lr=lr, num_data=1, lanes=lanes, seed=seed, **settings)
    steps = gradients // sampler.gradients_per_step
    schedule = Cyclical(steps=steps, lr=lr, cycles=4, exploration=0.5) if method == "cSGLD" else None
    total, squares, kept = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64), 0
    for k in range(1, steps + 1):
        tilt = normal() * target.noise

        def evaluate(tilt: Tensor = tilt) -> Tensor:
            x = theta.detach().requires_grad_()
            value = target.potential(x) + (tilt * x).sum(1)
            (theta.grad,) = torch.autograd.grad(value.sum(), x)
            return value.detach()

        keep = k > steps // 4
        if schedule is not None:
            setting = schedule.at(k)
            sampler.param_groups[0]["lr"], sampler.param_groups[0]["temperature"] = setting.lr, setting.temperature
            keep = keep and setting.keep
        sampler.step(evaluate)
        if keep:
            away = theta.detach() - target.mean
            total += away.mean(0)
            squares += away.square().mean(0)
            kept += 1
    mean = total / kept
    sd = (squares / kept - mean.square()).sqrt()
    return float((mean.abs() / target.sd).mean()), float((sd / target.sd - 1).abs().mean())


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=100, help="independent chains (default 100)")
    parser.add_argument("--gradients", type=int, default=2000, help="gradients of each chain (default 2000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.time()
    print(f"{facts()}; {options.lanes} chains of {options.gradients} gradients each\n")
    print("| sampler | " + " | ".join(f"{name}: means, sds (step)" for name in TARGETS) + " |")
    print("|---|" + "---|" * len(TARGETS))
    for method, (_, _, lrs) in METHODS.items():
        cells = []
        for make in TARGETS.values():
            size = {"lanes": options.lanes, "gradients": options.gradients, "seed": 1}
            found = [(errors(make(), method, lr, **size), lr) for lr in lrs]
            finite = [one for one in found if math.isfinite(one[0][1])]
            if not finite:
                cells.append("diverged")
                continue
            (mean, sd), lr = min(finite, key=lambda one: one[0][1])
            cells.append(f"{mean:.3f}, {sd:.3f} ({lr:.2g})")
        print(f"| {method} | {' | '.join(cells)} |", flush=True)
    print(f"\n{time.time() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
