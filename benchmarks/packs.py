"""Microseconds per step and chain, of the CPU or of a device: chains by themselves, in packs of several widths, and
jax.vmap of the same step.

SGHMC, or another --sampler, at temperature 1 with a Gaussian prior, on one thread: an MLP 64-100-100-10 on digits with
batches of 50, and an MLP 5-16-16-16-16-1 of 1,202 data with learned noise, every step on all of them. All chains are
resident members of one pack, each in a thread of its own as in a chain worker; what they tell (losses, kinetic
temperatures) is part of the time, samples are kept as the schedule says. `mile` is the second network with two outputs
under MILE's tuner, also with compiled steps, without a peer. Beside them two densities, whose chain has 10, 100 or
1,000 lanes: mixture25, and a banana as a user writes it, differentiated by autograd; SGHMC without a prior that keeps
every 10th step, also with compiled steps; times are by step and lane. Rounds of all variants take turns; medians, so
that a machine at work matters less.

With --device cuda, or another, times are seconds of wall clock, with all that was put on the device: what CPU and
device do at once is counted once.

--peer names a Python in whose environment JAX is installed: it runs `benchmarks/packs_jax.py`, a chain by chain
vectorised step with the same batches, noise from jax.random and many steps in one compiled loop, also on one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.chain import seconds  # noqa: E402
from benchmarks.machine import facts  # noqa: E402
from raychains import Task  # noqa: E402
from raychains.chain.chain import Chain  # noqa: E402
from raychains.chain.pack import Pack  # noqa: E402
from raychains.core.spec import MOST_ROWS, ChainSpec, Part  # noqa: E402
from raychains.orchestration.chains.chain_worker import keep_freed_memory  # noqa: E402
from raychains.samplers import KINDS, MCLMC  # noqa: E402
from raychains.schedules import Constant  # noqa: E402
from raychains.tasks.digits import Digits  # noqa: E402
from raychains.tasks.mixture import Mixture25  # noqa: E402

STEPS = 1_000_000
"""More than anybody waits for: chains are stopped."""


def digits() -> tuple[Task, int, float]:
    """Task, batch size and step size."""
    return Digits(), 50, 0.06


def regression(outputs: int = 1) -> tuple[Task, int, float]:
    """A table of airfoil's size; with two outputs σ is the second."""
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(1202, 5, generator=drawn)
    y = x[:, :1].sin() + 0.1 * torch.randn(1202, 1, generator=drawn)
    widths = [5, 16, 16, 16, 16, outputs]

    def model() -> nn.Module:
        linear = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        return nn.Sequential(*[m for layer in linear[:-1] for m in (layer, nn.ReLU())], linear[-1])

    loss: dict[str, str] = {"loss": "heteroscedastic"} if outputs == 2 else {"loss": "gaussian", "noise": "learned"}
    return Task.from_module(model, (x, y), (x[:4], y[:4]), name="table", **loss), 1202, 0.001


def mile() -> tuple[Task, int, float]:
    """The same with a σ of each datum; the step size is where the tuner begins."""
    return *regression(2)[:2], 0.01


LANES = (10, 100, 1000)


def mixture() -> tuple[Task, int, float]:
    """A density, of which no batch is drawn."""
    return Mixture25(), 1, 0.01


def banana() -> tuple[Task, int, float]:
    """A user's density."""
    return (
        Task.from_log_density(lambda x: -(x[0] ** 2) / 2 - (x[1] - x[0] ** 2) ** 2 / 0.5, dim=2, name="banana"),
        1,
        0.01,
    )


DENSITIES = {"mixture25": mixture, "banana": banana}
CASES = {
    "digits": digits,
    "regression": regression,
    "mile": mile,
    **{f"{name}-{lanes}": make for name, make in DENSITIES.items() for lanes in LANES},
}


def lanes_of(case: str) -> int:
    """Return the lanes of each chain of a case."""
    _, dash, lanes = case.partition("-")
    return int(lanes) if dash else 1


def spec(
    case: str, sampler: str, task: Task, batch: int, lr: float, chain: int, width: int, lanes: int, compiled: bool
) -> ChainSpec:
    density = task.low_dimensional
    kind = MCLMC if case == "mile" else KINDS[sampler]
    own = {"tune": STEPS} if case == "mile" else {"momentum": 0.9} if sampler == "sghmc" else {}
    settings = {"num_data": task.num_data, "weight_decay": 0.0 if density else 1e-3, **own}
    noise = {"temperature": 0.0} if kind.noisy_counterpart is not None else {"noise_from": 0.0}
    schedule = Constant(steps=STEPS, lr=lr, samples=STEPS // 10 if density else 1, **noise)
    return ChainSpec(
        task=task.spec(),
        sampler=Part(kind=kind.kind, revision=kind.revision, settings=settings),
        schedule=schedule.part(),
        steps=STEPS,
        steps_per_epoch=-(-task.num_data // batch),
        batch_size=batch,
        seed=1,
        repeat=0,
        chain=chain,
        pack=width,
        compile="default" if compiled else "none",
        exact=not compiled,
        lanes=lanes,
        block_draws=1000 if density else 0,
    )


class Chains:
    """``width`` chains in one pack, or one chain by itself, on a device; steps may be compiled."""

    def __init__(self, case: str, sampler: str, width: int, compiled: bool = False, device: str = "cpu") -> None:
        self._device = device
        task, batch, lr = CASES[case]()
        self._lanes = lanes_of(case)
        specs = [spec(case, sampler, task, batch, lr, i, width, self._lanes, compiled) for i in range(max(1, width))]
        self.chains = [Chain(one, task, device=device) for one in specs]
        if width:
            pack = Pack(self.chains[0])
            for chain in self.chains:
                chain.join(pack)
        self._threads = ThreadPoolExecutor(len(self.chains))

    def run(self, steps: int) -> float:
        """Make steps of every chain; return the seconds per step and lane: of the CPU, or of wall clock on another
        device."""

        def through(chain: Chain) -> None:
            until = chain.step + steps
            while chain.advance(lambda: chain.step >= until):
                pass

        def all_through() -> None:
            list(self._threads.map(through, self.chains))

        if self._device == "cpu":
            began = time.process_time()
            all_through()
            spent = time.process_time() - began
        else:
            spent = seconds(all_through, self._device)
        return spent / steps / len(self.chains) / self._lanes


def peer(python: str, case: str, width: int, steps: int) -> list[float]:
    """CPU seconds per step and chain of JAX, in as many rounds as it makes."""
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environment = {**os.environ, "XLA_FLAGS": one, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    command = [python, str(ROOT / "benchmarks" / "packs_jax.py"), case, str(width), str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def told(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e6:7.3f} µs (min {min(times) * 1e6:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = "chains of each pack; default 1 5 10 20, on another device than the CPU 10 and 64, the most"
    parser.add_argument("--widths", type=int, nargs="+", help=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plain", action="store_true", help="leave compiled steps out")
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--sampler", choices=tuple(KINDS), default="sghmc", help="of all cases but mile; default sghmc")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100, help="steps of each chain and round")
    parser.add_argument("--peer", metavar="PYTHON", help="a Python with JAX")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs")
    args = parser.parse_args()
    if args.peer and args.device != "cpu":
        parser.error("--peer measures CPU time: leave it out with --device")
    if args.peer and args.sampler != "sghmc":
        parser.error("--peer has SGHMC alone: leave it out with --sampler")
    args.widths = args.widths or ([1, 5, 10, 20] if args.device == "cpu" else [10, MOST_ROWS])
    if args.smoke:
        args.widths, args.rounds, args.steps = [2], 1, 3
        args.cases = [case for case in args.cases if not case.endswith("00")]
    keep_freed_memory()  # as chain workers do
    torch.set_num_threads(1)
    print(facts())
    if args.device != "cpu":
        print(f"device: {args.device}; seconds are of wall clock, with synchronisation")
    for case in args.cases:
        density = case.partition("-")[0] in DENSITIES
        # A user's density is in a pack if its steps are compiled: the gradients at two points may depend on each
        # other's bits.
        plain = [] if case.startswith("banana") else args.widths
        compiles = not args.plain and (density or (case == "mile" and not args.smoke))
        compiled: Sequence[int] = args.widths if compiles else []
        which = [(0, False), *((width, False) for width in plain), *((width, True) for width in compiled)]
        variants = {key: Chains(case, args.sampler, *key, device=args.device) for key in which}
        times: dict[tuple[int, bool], list[float]] = {key: [] for key in which}
        jax: dict[int, list[float]] = {width: [] for width in args.widths}
        for number in range(args.rounds + 1):
            for key, chains in variants.items():
                spent = chains.run(args.steps)
                times[key] += [spent] * (number > 0)  # a first round takes memory, and compiles
        for width in args.widths if args.peer and case != "mile" else ():
            jax[width] = peer(args.peer, case, width, args.steps)
        print(f"\n{case}\n  by itself               {told(times[0, False])}")
        for width, by_compiler in which[1:]:
            ratio = statistics.median(times[0, False]) / statistics.median(times[width, by_compiler])
            beside = f", JAX {told(jax[width])}" if jax[width] else ""
            how = "compiled" if by_compiler else ""
            print(
                f"  {width:3d} in a pack {how:8s} {told(times[width, by_compiler])}, {ratio:.2f} × as fast{beside}",
                flush=True,
            )


if __name__ == "__main__":
    main()
