"""The numbers of golden.json: one function per section.

Each is a function of the code alone: digests are of tasks on the data that tests/golden/data.py writes, floats are of
double precision, so that machines differ in their last bits at most.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import raychains as rc
from raychains import samplers, tasks
from raychains.api import plans
from raychains.chain.random_streams import stream_seed
from raychains.core.sample import Sample, tensors_sha256
from raychains.samplers.normals import Normals
from tests.golden import chains, data

FILE = Path(__file__).with_name("golden.json")
RELATIVE = {"single precision noise": 1e-5, "initialisation": 1e-5}
"""By how much floats of a section may differ; 1e-9 in the others."""
DIGITS = 16
"""Of a digest."""

OPTIONS: list[dict[str, Any]] = [
    {"sampler": "sghmc", "schedule": "cyclical"},
    {"sampler": "sgld", "schedule": "constant"},
    {"sampler": "sgld", "schedule": "linear", "final_lr": 0.01},
    {"sampler": "sgld", "schedule": "exponential", "burn_in": 3},
    {"sampler": "sgld", "schedule": "step", "schedule_settings": ("milestones=[.5,.75]", "factor=.1")},
    {"epochs": 8, "cycles": 2, "exploration": 0.5, "samples_per_cycle": 2, "thinning": 5, "temperature_ramp": 0.1},
    {"lr": 0.01, "momentum": 0.5, "temperature": 0.1, "weight_decay": 1e-4, "batch_size": 20, "seed": 3},
    {"precision": "fp64", "micro_batch": 10, "batchnorm": "reestimate", "cpus_per_chain": 2},
    {"compile": "default"},
    {"fast": True},
    {"sampler_settings": ("num_data=400",), "task_settings": ("hidden=[7]", "train=300")},
    {"task": "mixture25", "repeats": 4, "lanes": 2, "steps": 600},
    {"task": "mnist-mlp", "train_subset": 500, "val_split": 0.1},
]
"""Options of `raychains run` that are part of a chain; the task is digits where none is named."""
PUBLISHED = ("mnist-mlp", "mnist-1v7", "cifar10-lenet", "blr-australian", "blr-german", "blr-heart")
"""Tasks on published files, whose fingerprints are in users' stores."""

SCHEDULES: dict[str, Any] = {
    "cyclical": rc.Cyclical(steps=23, lr=0.5, cycles=3, exploration=0.4, samples_per_cycle=2),
    "cyclical thinned": rc.Cyclical(steps=24, lr=0.5, cycles=2, exploration=0.1, thinning=3, ramp=0.2, drop_first=1),
    "cyclical below": rc.Cyclical(steps=24, lr=0.5, cycles=2, exploration=0.0, sample_below=0.2, temperature=0.5),
    "cyclical noisy": rc.Cyclical(steps=24, lr=0.5, cycles=2, exploration=0.5, noise_in_exploration=True),
    "decreasing": rc.Decreasing(a=0.3, b=2.0, gamma=0.55, steps=24, noise_from=0.3, samples=4, thinning=2),
    "decreasing between": rc.Decreasing.between(lr=0.1, final_lr=0.01, gamma=1.0, steps=24, ramp=0.25),
    "constant": rc.Constant(lr=0.1, steps=24, noise_from=0.5),
    "linear": rc.Linear(lr=0.1, final_lr=0.001, steps=24, thinning=5),
    "exponential": rc.Exponential(lr=0.1, final_lr=0.001, steps=24, ramp=0.1),
    "step": rc.Step(lr=0.1, milestones=(0.25, 0.6), factor=0.1, steps=24),
}


@contextmanager
def _small_data() -> Iterator[None]:
    """Tasks read the data root of `tests.golden.data` in the body."""
    before = os.environ.get("RAYCHAINS_DATA")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAYCHAINS_DATA"] = str(data.write(Path(folder)))
        try:
            yield
        finally:
            del os.environ["RAYCHAINS_DATA"]
            if before is not None:
                os.environ["RAYCHAINS_DATA"] = before


def _digest(options: rc.Run, task: rc.Task | None = None) -> str:
    """Of the first chain that `raychains run` plans."""
    return plans.run(options, task).comparison.arms[0].chains[0][0].digest[:DIGITS]


MEASURED = ("digits", "mnist-", "cifar10-resnet18")
"""Tasks with a last layer that a Laplace approximation measures: some, since others' is too large or their prior
another."""


def digests() -> dict[str, Any]:
    """Every task under every method with the defaults of `raychains run`; of folders' pictures, which are not there,
    the size."""
    with _small_data():
        return {
            name: {
                method: _digest(rc.Run(task=name, sampler=method), task)
                for method, preset in samplers.METHODS.items()
                if preset.early_stop is None or not task.low_dimensional
                if not preset.last_epoch_measures or name.startswith(MEASURED)
            }
            for name in tasks.NAMES
            for task in [rc.make_task(name, **({"size": 224} if name.startswith("imagefolder") else {}))]
        }


def option_digests() -> dict[str, Any]:
    """`OPTIONS`, each by its text."""
    with _small_data():
        return {" ".join(f"{k}={v}" for k, v in given.items()): _digest(rc.Run(**given)) for given in OPTIONS}


def schedule_values() -> dict[str, Any]:
    """The part's digest, and (step, lr, temperature, stage, cycle, keep) of every step."""
    return {
        name: {"part": schedule.part().to_json(), "steps": [[k, *schedule.at(k)] for k in range(1, schedule.steps + 1)]}
        for name, schedule in SCHEDULES.items()
    }


def orders() -> dict[str, Any]:
    """The first indices of an epoch's batches, by seed."""
    with _small_data():
        found = {}
        for name in ("digits", "mnist-mlp"):
            task = rc.make_task(name)
            for seed in (0, 1, 2**40):
                epoch = task.epoch(seed=seed, batch_size=100)
                found[f"{name} {seed}"] = [epoch[i][:6].tolist() for i in range(len(epoch))]
        return found


def seeds() -> dict[str, Any]:
    """Of every stream of several chains, as text: JSON readers round large integers."""
    found = {}
    for seed, repeat, chain in ((0, 0, 0), (1, 0, 2), (5, 3, 0)):
        spec = chains.spec(rc.make_task("mixture25"), "sgld", seed=seed, repeat=repeat, chain=chain)
        for purpose in ("init", "order", "augmentation", "noise", "dropout"):
            numbers = [str(stream_seed(spec, purpose, index)) for index in (0, 1, 7)]
            found[f"seed {seed} repeat {repeat} chain {chain} {purpose}"] = numbers
    return found


def noise() -> dict[str, Any]:
    """Numbers of the noise sequence in double precision: the first, and some across the border of two blocks."""
    return {
        f"seed {seed} from {position}": Normals(seed, torch.float64, position).draw(torch.empty(12)).tolist()
        for seed in (0, 2**40)
        for position in (0, 32_762)
    }


def single_noise() -> dict[str, Any]:
    """The first numbers in single precision."""
    return {f"seed {seed}": Normals(seed, torch.float32).draw(torch.empty(12)).tolist() for seed in (0, 2**40)}


def initialisation() -> dict[str, Any]:
    """Parameters that the seed gives, which are made in single precision and compared to that."""
    specs = chains.chains()
    return {name: _numbers(chains.make(specs[name]).model.state_dict()) for name in ("sgd-digits", "sghmc-module")}


def parameters() -> dict[str, Any]:
    """Per chain in double precision and sampled variable: the last draw's first numbers and norm.

    Networks start at `_exact`, because the last bits of what the seed gives differ between machines.
    """
    found: dict[str, Any] = {}
    for name, spec in chains.chains(precision="fp64").items():
        start = None
        if not spec.block_draws:
            start = _exact(chains.make(spec).model)
            spec = dataclasses.replace(spec, start=tensors_sha256(start))
        last = {e.meta.variable: e.tensors for e in chains.make(spec, start) if isinstance(e, Sample)}
        found[name] = {variable: _numbers(tensors) for variable, tensors in last.items()}
    return found


def _exact(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's state with parameters that every precision holds, in [-1/2, 1/2)."""
    state = {name: t.clone() for name, t in model.state_dict().items()}
    for name, p in model.named_parameters():
        drawn = np.frombuffer(hashlib.shake_256(name.encode()).digest(p.numel()), np.uint8)
        state[name] = torch.from_numpy(drawn / 256 - 0.5).to(p.dtype).reshape(p.shape)
    return state


def _numbers(tensors: Mapping[str, torch.Tensor]) -> dict[str, list[float]]:
    """Of each tensor its first three numbers and its norm."""
    return {name: [*t.double().flatten()[:3].tolist(), t.double().norm().item()] for name, t in tensors.items()}


SECTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "digests": digests,
    "options": option_digests,
    "schedules": schedule_values,
    "orders": orders,
    "seeds": seeds,
    "noise": noise,
    "single precision noise": single_noise,
    "initialisation": initialisation,
    "parameters": parameters,
}


def recorded() -> dict[str, Any]:
    """What golden.json says."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def fingerprint(name: str) -> str:
    """Of a task on published data."""
    return str(rc.make_task(name).spec().fingerprint)


def differences(expected: Any, got: Any, where: str, relative: float = 1e-9) -> list[str]:
    """One line for each place where two JSON values differ, floats by more than ``relative``."""
    if isinstance(expected, dict) and isinstance(got, dict):
        lines = [f"{where}: {key} is missing" for key in expected.keys() - got.keys()]
        lines += [f"{where}: {key} is new" for key in got.keys() - expected.keys()]
        both = [key for key in expected if key in got]
        return sorted(lines) + [x for k in both for x in differences(expected[k], got[k], f"{where}: {k}", relative)]
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        if len(expected) != len(got):
            return [f"{where}: {len(got)} entries instead of {len(expected)}"]
        pairs = enumerate(zip(expected, got, strict=True))
        return [x for i, (e, g) in pairs for x in differences(e, g, f"{where}[{i}]", relative)]
    if isinstance(expected, float) and isinstance(got, float):
        same = abs(expected - got) <= relative * max(abs(expected), 1e-3)
    else:
        same = type(expected) is type(got) and expected == got
    return [] if same else [f"{where}: {got!r} instead of {expected!r}"]
