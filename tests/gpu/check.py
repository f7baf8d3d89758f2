"""Check samplers and chains on one torch device and write the results as JSON.

    python -m tests.gpu.check --device cuda --out gpu.json

Seven groups of rows: ``law/…`` compares every sampler's draws with its exact law (or, for SAM and bSAM, its path with a
plain transcription), ``cpu/…`` steps of networks in double precision with the same steps on the CPU, ``recorded/…`` on
a GPU chains whose gradients are recorded with others, ``pack/…`` packed chains with themselves in other rows and by
themselves, ``resume/…`` continues chains in a new process and compares every byte, ``run/…`` does so with `raychains
run`, whose two chains share the device or are killed, ``benchmark/…`` measures what benchmarks/chain.py does, on
stand-ins of the data sets. Neither Ray, pytest nor any data set is needed; where Ray is not installed, ``run/…`` is
left out.

The file is rewritten after every check, and beside it a page of the same name, ``gpu.md``. The same command goes on
where an interrupted one or one with ``--minutes`` has stopped, and repeats checks that failed.

The exit status is 1 if a check failed, 3 if some are left. Figures of the benchmark decide nothing, only a benchmark
that breaks down does.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import chain as benchmark
from raychains import tasks
from raychains.chain.chain import Chain
from raychains.core import gpus
from raychains.core.data_root import rooted
from raychains.core.spec import ChainSpec
from raychains.data import standins
from raychains.samplers import BSAM, MCLMC, SAM, SWAG, AdamW, EntropySGD, EntropySGLD, LastLayerLaplace
from tests.chain.chain_cases import CASES, SAMPLERS, TASKS, outcome, resumed_elsewhere, run, spec
from tests.gpu import packed, runs
from tests.gpu.packed import Checks
from tests.gpu.page import page
from tests.gpu.runs import Measured, Runs
from tests.samplers import cases
from tests.samplers.laws import Law
from tests.samplers.simulate import Method, agreement, draws, excess, halved, start, stationary_draws
from tests.samplers.simulate import run as simulate
from tests.samplers.transcriptions import bsam_groups, bsam_path, closure, loss_at, sam_groups, sam_path, tensors

LR, TEMPERATURE = 0.3, 0.7
ERRORS = 5.0
"""Standard errors that a measured moment may be away from the exact one."""
ROUNDING = 1e-9
"""Largest difference, in double precision, between a sampler's path and its transcription."""

BY_THEIR_PATH = (AdamW, MCLMC, SWAG)
"""Samplers whose path on the device is compared with that on the CPU, where all parameters are one; AdamW's with
torch's own."""

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "digits": ("digits", {"train": 90, "hidden": [32]}),
    "mnist-cnn": ("mnist-cnn", {"train_subset": 90}),
    "resnet": ("cifar10-resnet20", {"train_subset": 90, "augment": False}),
}
"""An MLP, convolutions with pooling, and convolutions with BatchNorm; none draws random numbers of the device."""
STEPS = 10
SHARE = 1e-8
"""Largest difference between a device and the CPU in double precision, as a share of the way that parameters move.
Rounding is 1e-16 of a term, which sums of up to 1e5 terms and BatchNorm enlarge: an H200 differed by 2e-9. Single
precision anywhere gives 1e-7 or more."""


def law_checks(device: str, lanes: int, dtypes: tuple[torch.dtype, ...]) -> Checks:
    """The checks of tests/samplers on ``device``, with so many independent lanes."""
    checks: Checks = {}

    def linear(name: str, dtype: torch.dtype) -> Measured:
        problem, temperature = cases.gaussian(), TEMPERATURE
        if name in cases.OPTIMISERS:
            problem, temperature = cases.gaussian(noise=cases.NOISE), 0.0
        method, where = (cases.LINEAR | cases.OPTIMISERS)[name], {"dtype": dtype, "device": device}
        return agrees(*stationary_draws(method, problem, lr=LR, temperature=temperature, lanes=lanes, **where))

    def thermostat(name: str, noise: tuple[float, ...]) -> Measured:
        problem, method = cases.gaussian(noise=noise), cases.RUNNING[name]
        where: dict[str, Any] = {"lanes": lanes // 2, "device": device}
        coarse, fine = (halved(method, problem, temperature=TEMPERATURE, halvings=k, **where) for k in (0, 1))
        order = 1 if "relativistic" in name else 2
        mean, covariance = excess(coarse, fine, problem.target(TEMPERATURE), order=order)
        yield "mean, standard errors", mean, 0.0, ERRORS
        yield "covariance, standard errors beyond the step's own error", max(covariance, 0.0), 0.0, ERRORS

    def local_entropy(kind: Any) -> Measured:
        problem, momentum, growth = cases.gaussian(2, noise=(0.3, 0.6)), 0.6, 0.05
        steps = [(0.5, 0.0 if kind is EntropySGD else TEMPERATURE)] * (12 * cases.INNER)
        own = {"inner_steps": cases.INNER, "gamma_growth": growth, "momentum": momentum} | cases.OWN
        method, theta = Method(kind=kind, settings=own), start(5 * lanes, cases.BEGIN, seed=51, device=device)
        sampler = method.make(theta, problem, lr=steps[0][0], temperature=steps[0][1], seed=52)
        *_, law = cases.local_entropy_path(problem, steps, growth=growth, momentum=momentum)
        *_, last = simulate(sampler, problem, steps, seed=53)
        return agrees([last], law.of(2, start=2))

    def path(kind: str) -> Measured:
        params = [p.requires_grad_() for p in tensors(device=device)]
        if kind == "sam":
            pairs = sam_path(SAM(sam_groups(params), lr=0.1, momentum=0.9, m_sharpness=3), momentum=0.9)
        else:
            sampler = BSAM(bsam_groups(params), lr=0.1, num_data=30, weight_decay=0.01, m_sharpness=3, seed=5)
            pairs = bsam_path(sampler, temperature=1.0, seed=5)
        away = [max(float((a - b).abs().max()) for a, b in zip(*pair, strict=True)) for pair in pairs]
        yield "largest difference from the transcription", float(np.max(away)), 0, ROUNDING

    def steps_of(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], on: str) -> list[torch.Tensor]:
        params = [p.requires_grad_() for p in tensors(device=on)]
        optimizer, found = make(params), []
        for step in range(12):
            optimizer.step(closure(params, step))
            found += [p.detach().cpu().clone() for p in params]
        return found

    def steps_of_one(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]) -> list[torch.Tensor]:
        parts = tensors()
        whole = torch.cat([p.reshape(-1) for p in parts]).requires_grad_()
        optimizer, found = make([whole]), []

        def split() -> list[torch.Tensor]:
            return [t.view_as(p) for t, p in zip(whole.split([p.numel() for p in parts]), parts, strict=True)]

        for step in range(12):

            def evaluate(step: int = step) -> torch.Tensor:
                whole.grad = None
                loss = loss_at(split(), step)
                loss.backward()
                return loss

            optimizer.step(evaluate)
            found += [p.detach().clone() for p in split()]
        return found

    def alike(kind: Any) -> Measured:
        def ours(params: list[torch.Tensor]) -> torch.optim.Optimizer:
            sampler, noise = kind(params, lr=0.05, num_data=30, weight_decay=0.01), torch.Generator().manual_seed(7)
            like = partial(torch.randn, generator=noise, dtype=torch.float64)
            sampler.noise_like = lambda p: like(p.shape).to(p.device)  # the CPU's on every device
            return sampler

        def torchs(params: list[torch.Tensor]) -> torch.optim.Optimizer:
            return torch.optim.AdamW(params, lr=0.05, weight_decay=0.01, foreach=False)

        reference = steps_of(torchs, device) if kind is AdamW else steps_of_one(ours)
        away = max(float((a - b).abs().max()) for a, b in zip(steps_of(ours, device), reference, strict=True))
        yield f"largest difference from {'torch' if kind is AdamW else 'the CPU'}", away, 0, ROUNDING

    def bsam_draws() -> Measured:
        theta = torch.ones(lanes, 3, dtype=torch.float64, device=device, requires_grad=True)
        n, s0, count = 8, 0.25, 2
        sampler = BSAM([theta], lr=0.1, num_data=n, temperature=TEMPERATURE, s0=s0, prediction_samples=count, seed=1)
        return agrees([draws(sampler)], Law(np.ones(3 * count), TEMPERATURE / (n * s0) * np.eye(3 * count)))

    def last_layer() -> Measured:
        noise = torch.Generator().manual_seed(4)
        phi, f = (torch.randn(20, n, generator=noise, dtype=torch.float64) for n in (3, 2))
        slopes = f.softmax(1)
        fisher = torch.diag_embed(slopes) - slopes[:, :, None] * slopes[:, None, :]
        layer = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64, device=device)
        own: dict[str, Any] = {"temperature": TEMPERATURE, "prediction_samples": lanes, "seed": 2}
        sampler = LastLayerLaplace(layer.parameters(), lr=0.1, num_data=20, weight_decay=0.05, **own)
        sampler.measure(layer, phi.to(device), fisher.to(device))
        precision = np.einsum("nab,nf,ng->afbg", fisher.numpy(), phi.numpy(), phi.numpy()).reshape(6, 6)
        law = Law(layer.weight.detach().cpu().numpy().ravel(), TEMPERATURE * np.linalg.inv(precision + np.eye(6)))
        return agrees([torch.stack([t.reshape(-1) for _, (t,) in sampler.draws()]).cpu().numpy()], law)

    for name, method in (cases.LINEAR | cases.OPTIMISERS).items():
        linear_kind: Any = method.kind
        checks |= {f"law/{name}/{dtype}": (linear_kind.kind, partial(linear, name, dtype)) for dtype in dtypes}
    for name, (running, noise) in cases.THERMOSTATS.items():
        checks[f"law/{name}"] = running.partition("-")[0], partial(thermostat, running, noise)
    for kind in (EntropySGD, EntropySGLD):
        checks[f"law/{kind.kind}"] = kind.kind, partial(local_entropy, kind)
    checks |= {f"law/{kind}": (kind, partial(path, kind)) for kind in ("sam", "bsam")}
    checks |= {f"law/{kind.kind}": (kind.kind, partial(alike, kind)) for kind in BY_THEIR_PATH}
    return checks | {"law/bsam-draws": ("bsam", bsam_draws), "law/laplace": ("laplace", last_layer)}


def agrees(samples: list[np.ndarray], law: Law) -> Measured:
    """Draws against their exact law."""
    found = agreement(samples, law)
    yield "worst moment, standard errors", found.worst, 0.0, ERRORS
    yield "whitened mean square", found.square, 1.0, ERRORS * found.square_error


def cpu_checks(device: str) -> Checks:
    """Networks without noise after the same steps on ``device`` and on the CPU; they need the stand-ins."""

    def moved(network: str, on: str) -> tuple[dict[str, torch.Tensor], float]:
        name, settings = NETWORKS[network]
        chain = Chain(spec((name, settings), "sgdm", precision="fp64"), device=on)
        begin = [p.detach().clone() for p in chain.sampled.values()]
        run(chain, until=STEPS)
        way = max(float((p.detach() - b).abs().max()) for p, b in zip(chain.sampled.values(), begin, strict=True))
        return {n: t.cpu() for n, t in chain.model.state_dict().items() if t.is_floating_point()}, way

    def compare(network: str) -> Measured:
        (here, way), (there, _) = moved(network, "cpu"), moved(network, device)
        away = max(float((here[name] - there[name]).abs().max()) for name in here.keys() | there.keys())
        yield f"largest difference after {STEPS} steps, as a share of the largest move", away / way, 0, SHARE

    return {f"cpu/{network}": ("sgdm", partial(compare, network)) for network in NETWORKS}


def recorded_checks(specs: dict[str, Callable[[], ChainSpec]], device: str) -> Checks:
    """Chains whose gradients are recorded against the same ones whose gradients are not, event by event; only GPUs
    record."""
    if not gpus.is_gpu(torch.device(device)):
        return {}

    def compare(make: Callable[[], ChainSpec]) -> Measured:
        usual, plain = (Chain(make(), device=device) for _ in range(2))
        plain._backward._graphs = None
        ours, theirs = outcome(usual, run(usual)), outcome(plain, run(plain))
        if not usual._backward._recorded:
            raise RuntimeError("nothing was recorded")
        events = sum(a != b for a, b in zip_longest(ours["events"], theirs["events"]))
        yield "events and states that differ", events + (ours["state"] != theirs["state"]), 0, 0

    named = {name.replace("resume/", "recorded/"): make for name, make in specs.items() if "mixture" not in name}
    return {
        name: (name.removeprefix("recorded/").removesuffix("-digits").partition("-resnet")[0], partial(compare, make))
        for name, make in named.items()
    }


def resume_specs(short: bool) -> dict[str, Callable[[], ChainSpec]]:
    """Chains of every sampler; in the long form networks with convolutions too, in single and in half precision."""
    specs: dict[str, Callable[[], ChainSpec]]
    pairs = [(task, s) for task in TASKS for s in SAMPLERS if f"{s}-{task}" in CASES]
    specs = {f"resume/{s}-{task}": partial(spec, task, s) for task, s in pairs}
    for kind, precision in () if short else product(("sghmc", "bsam"), ("fp32", "bf16")):
        specs[f"resume/{kind}-resnet-{precision}"] = partial(spec, "resnet", kind, precision=precision)
    return specs


def resumed(chosen: dict[str, Callable[[], ChainSpec]], device: str, folder: Path) -> Checks:
    """Checks of chains that are continued in a new process against the same ones uninterrupted, event by event."""
    specs = {name: make() for name, make in chosen.items()}
    try:
        halves = resumed_elsewhere(specs, folder / "states.pt", device) if specs else {}  # by one process for all
    except Exception:
        traceback.print_exc()
        halves = {}  # each is tried by itself, so that one that breaks down hides no other

    def compare(name: str) -> Measured:
        alone = {name: specs[name]}
        before, after = (halves or resumed_elsewhere(alone, folder / "states.pt", device))[name]
        chain = Chain(specs[name], device=device)
        straight = outcome(chain, run(chain))
        for half in (before, after["events"]):
            if not any(isinstance(event, list) for event in half):
                raise RuntimeError("one side of the interruption has no samples")
        events = sum(a != b for a, b in zip_longest(before + after["events"], straight["events"]))
        yield "events and states that differ", events + (after["state"] != straight["state"]), 0, 0

    return {name: (s.sampler.kind, partial(compare, name)) for name, s in specs.items()}


def benchmarks(device: str, images: int, rounds: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """Seconds per epoch of chains and of the plain loop, of single steps, and the least that a step can take."""
    common: dict[str, Any] = {"device": device, "images": images, "rounds": rounds, "step_rounds": rounds**2}
    args, plain = argparse.Namespace(**common, workers=0), defaultdict[tuple[str, int], list[float]](list)

    def epochs(name: str, batch: int, execution: dict[str, Any]) -> dict[str, Any]:
        task: Any = tasks.make(name, train_subset=images)
        found: dict[str, Any] = {"images": images}
        found["epoch_seconds"] = benchmark.epochs(task, args, batch, plain[name, batch], **execution)
        return found | {"plain_loop_epoch_seconds": plain[name, batch]}

    def steps(name: str, batch: int) -> dict[str, Any]:
        task: Any = tasks.make(name, train_subset=images)
        least, consists_of = benchmark.floor(task, batch, device)
        times = benchmark.steps(task, args, batch)
        return {"step_seconds": times, "floor_seconds": least, "floor": consists_of}

    named: dict[str, Callable[[], dict[str, Any]]] = {}
    networks = [(name, batch) for name, _, batch in benchmark.CPU]
    executions: Sequence[dict[str, Any]] = [{"threads": 1}]
    if device != "cpu":
        networks = [("cifar10-resnet18", batch) for batch in benchmark.CUDA_BATCHES]
        cuda = torch.device(device).type == "cuda"  # others have neither TF32 nor CUDA graphs
        executions = [e for e in benchmark.CUDA_EXECUTIONS if cuda or not {"tf32", "cuda-graphs"} & set(e.values())]
    for name, batch in networks:
        for execution in executions:
            how = ",".join(f"{key}={value}" for key, value in execution.items())
            named[f"benchmark/{name}/{batch}/epoch/{how}"] = partial(epochs, name, batch, execution)
        named[f"benchmark/{name}/{batch}/step"] = partial(steps, name, batch)
    return named


def rows(name: str, sampler: str, check: Callable[[], Measured]) -> Iterator[dict[str, Any]]:
    """The rows of one check."""
    for what, measured, expected, tolerance in check():
        finite = measured if math.isfinite(measured) else None
        numbers = {"measured": finite, "expected": expected, "tolerance": tolerance}
        ok = finite is not None and abs(finite - expected) <= tolerance
        yield {"name": f"{name}: {what}", "sampler": sampler, **numbers, "ok": ok}


def figures(name: str, measure: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The row of one benchmark."""
    yield {"name": name, "ok": True, **measure()}


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for and not yet done; return the exit status, 2 where there is no check of that name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="any torch device with double precision, such as cuda")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file, or a folder for it")
    parser.add_argument("--short", action="store_true", help="fewer lanes, chains and images: seconds, not minutes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further check after so many minutes")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="by name, such as 'law/sghmc*'")
    args = parser.parse_args(argv)
    out: Path = args.out / "gpu.json" if args.out.is_dir() else args.out
    until = time.monotonic() + 60 * args.minutes
    where = Chain(CASES["sgld-mixture"], device=args.device).environment().to_json()
    lanes, images, rounds = (4_000, 256, 1) if args.short else (20_000, 10_000, 3)
    dtypes = (torch.float64,) if args.short else (torch.float64, torch.float32)

    def chosen(named: dict[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in named.items() if any(fnmatchcase(name, only) for only in args.only)}

    laws = chosen(law_checks(args.device, lanes, dtypes) | packed.checks(args.device))
    resumes, measures = chosen(resume_specs(args.short)), chosen(benchmarks(args.device, images, rounds))
    steps = chosen(cpu_checks(args.device) | recorded_checks(resume_specs(args.short), args.device))
    with_ray = chosen(dict.fromkeys(runs.NAMES))
    if with_ray and (reason := runs.missing(args.device)):
        print(f"run/… is left out: {reason}")
        with_ray = {}
    if not (laws or steps or resumes or with_ray or measures):
        print(f"--only: no check is named {' or '.join(args.only)}", file=sys.stderr)
        return 2
    result: dict[str, Any] = {"ok": True, "short": args.short, "environment": where, "checks": [], "benchmarks": []}
    if out.exists():
        before = json.loads(out.read_text())
        if any(before[each] != result[each] for each in ("short", "environment")):
            print(f"--out: {out} is of another device, version or length: give another file", file=sys.stderr)
            return 2
        failed = {row["check"] for group in ("checks", "benchmarks") for row in before[group] if not row["ok"]}
        for group in ("checks", "benchmarks"):
            result[group] = [row for row in before[group] if row["check"] not in failed]
    done = {row["check"] for group in ("checks", "benchmarks") for row in result[group]}
    laws, steps, resumes, with_ray, measures = (
        {n: c for n, c in each.items() if n not in done} for each in (laws, steps, resumes, with_ray, measures)
    )
    left: list[str] = []

    def attempt(group: str, name: str, found: Callable[[], Iterable[dict[str, Any]]], **named: str) -> None:
        if time.monotonic() > until:
            left.append(name)
            return
        told: list[dict[str, Any]] = []
        try:
            told += found()
        except Exception as error:  # a failed row; the others go on
            traceback.print_exc()
            told.append({"name": name, **named, "ok": False, "error": f"{type(error).__name__}: {error}"})
        for row in told:
            print("ok" if row["ok"] else "FAILED", row["name"], row.get("measured", ""), sep="\t", flush=True)
            result[group].append({"check": name, **row})
            result["ok"] = result["ok"] and row["ok"]
        write(out, json.dumps(result, indent=1) + "\n")
        write(out.with_suffix(".md"), page(result))

    for name, (kind, check) in laws.items():
        attempt("checks", name, partial(rows, name, kind, check), sampler=kind)
    if with_ray:
        with (
            tempfile.TemporaryDirectory() as made,
            closing(Runs(args.device, where["device"], Path(made), args.short, with_ray)) as real,
        ):
            for name, check in real.checks().items():
                attempt("checks", name, partial(rows, name, runs.SAMPLER, check), sampler=runs.SAMPLER)
    if (steps or resumes or measures) and time.monotonic() > until:
        left += [*steps, *resumes, *measures]
    elif steps or resumes or measures:
        with (
            tempfile.TemporaryDirectory() as made,
            rooted(str(standins.make(Path(made, "data"), train=images, corruptions=1))),
        ):
            for name, (kind, check) in (steps | resumed(resumes, args.device, Path(made))).items():
                attempt("checks", name, partial(rows, name, kind, check), sampler=kind)
            for name, measure in measures.items():
                attempt("benchmarks", name, partial(figures, name, measure))
    if left:
        print(f"{len(left)} checks are left: the same command goes on")
    return 3 if left and result["ok"] else 0 if result["ok"] else 1


def write(file: Path, text: str) -> None:
    """Replace a file by a whole one, whenever the command is killed."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.replace(file)


if __name__ == "__main__":
    sys.exit(main())
