"""Seconds per epoch of a chain against a plain loop, what its sampler adds to a step, where its time goes, and its
floor.

The plain loop is published cSG-MCMC code in kind: torchvision's transforms image by image, a DataLoader, and an update
in Python, parameter by parameter, with torch.randn. Both run the same network on the same data at the same batch size,
in rounds that take turns. Steps are compared on a batch that lies ready, with torch.optim.SGD (momentum, weight decay).
The floor is the step's floating-point operations at this device's measured rate of matrix products, and the bytes that
a momentum update must move (gradient, parameter and velocity read, two of them written) at its measured rate of
copying. On the CPU: MLP 784-400-400-10 and LeNet on MNIST. With --device cuda: ResNet-18 on CIFAR-10 at three batch
sizes, in fp32, tf32 and bf16, also compiled and once without recorded gradients. Data come from the data root
(RAYCHAINS_DATA).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from benchmarks.loops import chain, plain_epochs, training_steps  # noqa: E402
from benchmarks.machine import facts  # noqa: E402
from raychains import tasks  # noqa: E402
from raychains.chain.chain import Chain  # noqa: E402
from raychains.tasks.images import ImageTask  # noqa: E402

NOISE = "the sampler's noise"
RECORDED = 3
"""Epochs on a GPU before the measured ones: in the third the gradient of its last batch, which is smaller, is
recorded."""
GOAL_EPOCH, GOAL_NOISE, GOAL_SILENT = 1.5, 1.5, 1.1
CPU = (("mnist-mlp", "MLP 784-400-400-10, MNIST", 128), ("mnist-cnn", "LeNet, MNIST", 128))
CUDA_BATCHES = (64, 128, 256)
CUDA_EXECUTIONS: tuple[dict[str, Any], ...] = (
    *({"precision": precision, "compile": "none", "exact": True} for precision in ("fp32", "tf32", "bf16")),
    {"precision": "bf16", "compile": "none", "exact": True, "recorded": False},
    *({"precision": precision, "compile": "none", "exact": False} for precision in ("tf32", "bf16")),
    *({"precision": precision, "compile": "cuda-graphs", "exact": False} for precision in ("bf16", "tf32", "fp32")),
)
"""Fields of specs, and whether gradients are recorded, as they are unless it is said."""


def seconds(run: Callable[[], object], device: str) -> float:
    """Of one call, with all that it put on the device."""
    wait(device)
    began = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - began


def wait(device: str) -> None:
    if device != "cpu":
        torch.get_device_module(device).synchronize()


def told(times: list[float], unit: float = 1.0, digits: int = 3) -> str:
    """Median, minimum and quartiles."""
    quartiles = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    low, middle, high, best = (f"{x * unit:.{digits}f}" for x in (*quartiles, min(times)))
    return f"{middle} (min {best}, quartiles {low}–{high})"


def rate(times: list[float], others: list[float]) -> str:
    """How many times as long the first take, by medians, by minima, and the spread over rounds."""
    each = sorted(a / b for a, b in zip(times, others, strict=True))
    return (
        f"{statistics.median(each):.2f} × (by minima {min(times) / min(others):.2f}, rounds "
        f"{each[0]:.2f}–{each[-1]:.2f})"
    )


def epochs(
    task: ImageTask,
    args: argparse.Namespace,
    batch: int,
    plain: list[float],
    *,
    recorded: bool = True,
    **execution: Any,
) -> list[float]:
    """Seconds of one epoch of the chain in each round; ``plain`` gets those of the plain loop unless it has them."""
    before = 1 if args.device == "cpu" else RECORDED
    ours = chain(task, batch=batch, epochs=args.rounds + before, temperature=1.0, device=args.device, **execution)
    if not recorded:
        ours._backward._graphs = None
    theirs, missing = None, not plain
    if missing:
        theirs = plain_epochs(task, batch=batch, device=args.device, workers=args.workers, images=args.images)
        next(theirs)  # a first epoch for both, in which memory is taken and networks are compiled
    for _ in range(before):
        ours.advance()
    times = []
    for _ in range(args.rounds):
        times.append(seconds(ours.advance, args.device))
        if theirs is not None:
            plain.append(seconds(lambda: next(theirs), args.device))
    return times


def steps(task: ImageTask, args: argparse.Namespace, batch: int) -> dict[str, list[float]]:
    """Seconds of single training steps by what makes the update, in rounds of all of them."""
    loops = training_steps(task, batch, args.device)
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(args.step_rounds):
        for name, loop in loops.items():
            loop()  # brings its own memory into the caches
            times[name].append(seconds(lambda loop=loop: [loop() for _ in range(3)], args.device) / 3)
    return times


def floor(task: ImageTask, batch: int, device: str) -> tuple[float, str]:
    """The least seconds of a step on this device, and what it consists of."""
    loop = training_steps(task, batch, device)["none"]
    with FlopCounterMode(display=False) as counter:
        loop()
    flops = counter.get_total_flops()
    size = 2048 if device == "cpu" else 8192
    a, b, c = (torch.randn(size, size, device=device) for _ in range(3))
    product = 2 * size**3 / min(seconds(lambda: torch.mm(a, b, out=c), device) for _ in range(5))
    source, target = (torch.zeros(1 << 26, device=device) for _ in range(2))
    copied = 2 * 4 * (1 << 26) / min(seconds(lambda: target.copy_(source), device) for _ in range(5))
    moved = 5 * 4 * sum(p.numel() for p in task.build_model(seed=0, lanes=1).parameters())
    least = flops / product + moved / copied
    return least, (
        f"{flops / 1e6:.0f} MFLOP at {product / 1e9:.0f} GFLOP/s (fp32 products) and {moved / 1e6:.1f} MB "
        f"at {copied / 1e9:.1f} GB/s: {least * 1e3:.2f} ms"
    )


def top_lines(run: Chain, device: str, count: int, stop_after: int) -> list[str]:
    """The operations that the chain's own time goes into, and what the sampler's noise takes as one of them."""
    add_noise: Any = run.sampler.add_noise

    def noise(*args: Any) -> None:
        with record_function(NOISE):
            add_noise(*args)

    run.sampler.add_noise = noise  # type: ignore[method-assign]
    goal = run.step + stop_after
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities) as measured:
        run.advance(lambda: run.step >= goal)
        wait(device)
    key = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    rows = sorted(measured.key_averages(), key=lambda row: getattr(row, key), reverse=True)
    total = sum(getattr(row, key) for row in rows)
    shown = rows[:count] + [row for row in rows[count:] if row.key == NOISE]
    return [f"{row.key[:60]:60s} {getattr(row, key) / total:6.1%}" for row in shown]


def on_cpu(args: argparse.Namespace) -> None:
    """Both networks: epochs, steps, profile, floor."""
    for name, label, batch in CPU:
        subset = {} if args.images is None else {"train_subset": args.images}
        task: Any = tasks.make(name, **subset)
        print(f"\n{label}, batch {batch}, {task.num_data:,} images an epoch, {torch.get_num_threads()} thread(s)")
        plain: list[float] = []
        ours = epochs(task, args, batch, plain, threads=args.threads)
        print(f"  seconds per epoch: chain {told(ours)}, plain loop {told(plain)}")
        print(f"  the plain loop takes {rate(plain, ours)} as long (goal ≥ {GOAL_EPOCH})", flush=True)
        times = steps(task, args, batch)
        for kind, goal in (("SGHMC with noise", GOAL_NOISE), ("SGHMC without noise", GOAL_SILENT)):
            print(f"  step, {kind}: {rate(times[kind], times['torch.optim.SGD'])} one of SGD (goal ≤ {goal})")
        for kind, spent in times.items():
            print(f"    {kind:30s} {told(spent, 1e3)} ms", flush=True)
        least, what = floor(task, batch, args.device)
        per_epoch = -(-task.num_data // batch)
        print(f"  floor of a step: {what}; the chain's step is {min(ours) / per_epoch / least:.2f} × that")
        print("  profile of the chain:")
        long = chain(task, batch=batch, epochs=3, temperature=1.0, device=args.device, threads=args.threads)
        long.advance(lambda long=long: long.step >= 5)
        for line in top_lines(long, args.device, 5, args.profiled):
            print(f"    {line}", flush=True)


def on_cuda(args: argparse.Namespace) -> None:
    """ResNet-18 on CIFAR-10 at every batch size, precision and way of compiling, beside the plain loop in fp32."""
    subset = {} if args.images is None else {"train_subset": args.images}
    task: Any = tasks.make("cifar10-resnet18", **subset)
    print(f"\n{torch.cuda.get_device_name()}, ResNet-18, CIFAR-10, {task.num_data:,} images an epoch")
    print("| batch | precision | execution | seconds per epoch | plain loop / chain | sampler's share | step / floor |")
    print("|---" * 7 + "|")
    for batch in CUDA_BATCHES:
        plain: list[float] = []
        least, what = floor(task, batch, "cuda")
        for execution in CUDA_EXECUTIONS:
            ours = epochs(task, args, batch, plain, **execution)
            step = min(ours) / -(-task.num_data // batch)
            update = min(sampler_step(task, batch) for _ in range(3))
            print(
                f"| {batch} | {execution['precision']} | {how(execution)} | {told(ours)} | "
                f"{rate(plain, ours)} | {update / step:.1%} | {step / least:.2f} |",
                flush=True,
            )
        print(f"plain loop at batch {batch}, fp32: {told(plain)} s; floor of a step: {what}", flush=True)
    profiled = chain(task, batch=128, epochs=3, temperature=1.0, device="cuda", precision="bf16", exact=False)
    profiled.advance(lambda: profiled.step >= 5)
    print("profile of the chain at batch 128, bf16, fast:")
    for line in top_lines(profiled, "cuda", 5, args.profiled):
        print(f"  {line}")


def how(execution: dict[str, Any]) -> str:
    """An execution's name in the table."""
    kernels = execution["compile"] if execution["compile"] != "none" else "exact" if execution["exact"] else "fast"
    return kernels + (", not recorded" if not execution.get("recorded", True) else "")


def sampler_step(task: ImageTask, batch: int) -> float:
    """Seconds of the sampler's update alone, on the GPU."""
    run = chain(task, batch=batch, epochs=1, temperature=1.0, device="cuda", exact=False)
    for p in run.model.parameters():
        p.grad = torch.zeros_like(p)
    run.sampler.step()
    return seconds(lambda: [run.sampler.step() for _ in range(50)], "cuda") / 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each loop, after a first that is not counted")
    parser.add_argument("--step-rounds", type=int, default=60, help="rounds of three steps of each update")
    parser.add_argument("--images", type=int, help="an epoch of so many images; default all")
    parser.add_argument("--threads", type=int, default=1, help="of torch, on the CPU")
    parser.add_argument("--workers", type=int, default=0, help="processes of the plain loop's DataLoader")
    parser.add_argument("--profiled", type=int, default=50, help="steps under the profiler")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs: 300 images, one round")
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.step_rounds, args.images, args.profiled = 1, 1, 300, 2
    torch.set_num_threads(args.threads)
    print(facts())
    if args.device == "cuda":
        on_cuda(args)
    else:
        on_cpu(args)


if __name__ == "__main__":
    main()
