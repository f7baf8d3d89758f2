"""What noise of the gradient does to the variance that SGHMC, SGNHT and ATMC sample, by its strength B.

U = θ²/2 at T = 1, so that the variance of θ should be 1; time step h = .05, friction D = 1, thermostat mass 10,
gradient noise of sd s with B = h·s²/2. Each figure is a time average over independent coordinates, with its standard
error; every chain starts from θ = p = ζ = 0.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from raychains.samplers import SGHMC, Sampler  # noqa: E402
from raychains.samplers.atmc import ATMC  # noqa: E402
from raychains.samplers.sgnht import SGNHT  # noqa: E402

H, D, MASS = 0.05, 1.0, 10.0
STRENGTHS = (0.0, 0.225, 0.9, 2.5)

Make = Callable[[list[Tensor], int], Sampler]


def thermostat(kind: type[SGNHT] | type[ATMC], integrator: str) -> Make:
    """h, D and m_ζ as settings: lr = h² and 1 − momentum = h·D for N = 1, κ = h²/m_ζ for T = 1."""
    return lambda params, seed: kind(
        params, lr=H**2, momentum=1 - H * D, thermostat_rate=H**2 / MASS, integrator=integrator, num_data=1, seed=seed
    )


ROWS: dict[str, Make] = {
    "SGHMC": lambda params, seed: SGHMC(params, lr=H**2, momentum=1 - H * D, num_data=1, seed=seed),
    "SGNHT, Strang": thermostat(SGNHT, "strang"),
    "ATMC, Strang": thermostat(ATMC, "strang"),
    "SGNHT, Euler": thermostat(SGNHT, "euler"),
    "ATMC, Euler": thermostat(ATMC, "euler"),
}


def variances(make: Make, *, coordinates: int, burn_in: int, steps: int, seed: int) -> list[tuple[float, float]]:
    """Var θ and its standard error for each noise strength, one row of coordinates each."""
    generator = torch.Generator().manual_seed(seed)
    sd = torch.tensor([math.sqrt(2 * b / H) for b in STRENGTHS])[:, None]
    theta = torch.zeros(len(STRENGTHS), coordinates, requires_grad=True)
    sampler, total, noise = make([theta], seed + 1), torch.zeros_like(theta), torch.empty_like(theta)
    for k in range(burn_in + steps):
        theta.grad = theta.detach() + sd * noise.normal_(generator=generator)
        sampler.step()
        if k >= burn_in:
            total += theta.detach().square() / steps
    errors = total.std(dim=1) / math.sqrt(coordinates)
    return list(zip(total.mean(dim=1).tolist(), errors.tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinates", type=int, default=20_000, help="independent chains of each figure")
    parser.add_argument("--burn-in", type=int, default=5_000, help="steps left out")
    parser.add_argument("--steps", type=int, default=5_000, help="steps averaged over")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="only show that it runs: 100 coordinates, 20 steps")
    args = parser.parse_args()
    sizes = {"coordinates": args.coordinates, "burn_in": args.burn_in, "steps": args.steps}
    if args.smoke:
        sizes = {"coordinates": 100, "burn_in": 10, "steps": 10}
    print(facts())
    print("Var θ ± s.e., target 1 (SGHMC: 1 + B/D)\n")
    print("| sampler | " + " | ".join(f"B = {b:g}" for b in STRENGTHS) + " | seconds |")
    print("|---" * (len(STRENGTHS) + 2) + "|")
    for name, make in ROWS.items():
        began = time.perf_counter()
        cells = [f"{v:.4f} ± {e:.4f}" for v, e in variances(make, seed=args.seed, **sizes)]
        print(f"| {name} | " + " | ".join(cells) + f" | {time.perf_counter() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
