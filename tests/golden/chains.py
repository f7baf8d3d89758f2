"""Small chains of every sampler, and a script that runs them under whichever raychains PYTHONPATH names.

`python chains.py run FOLDER` writes the events of every chain to FOLDER/fresh.json and a checkpoint of each, taken in
the middle, to FOLDER/checkpoints, says so and goes on until it is killed. `python chains.py resume FOLDER OUT`
continues these checkpoints and writes the events to OUT. Image tasks need the data root that tests/golden/data.py
writes.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import raychains as rc

CODEC = ("raychains.store.codec",)
"""Where versions of raychains have the functions that turn a chain's state into a checkpoint's bytes, the newest
first."""
STEPS, CUT = 24, 12
"""A chain is cut in the middle of an epoch, of a log interval and of a block of draws."""
READY = "checkpoints are written"

SAMPLERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sgd": ("SGD", "sgd", {}),
    "adamw": ("AdamW", "adamw", {}),
    "sgdm": ("SGDM", "sgdm", {"momentum": 0.9}),
    "sgld": ("SGLD", "sgld", {}),
    "sghmc": ("SGHMC", "sghmc", {"momentum": 0.9}),
    "psgld": ("PSGLD", "psgld", {}),
    "psgld-frozen": ("PSGLD", "psgld", {"freeze_preconditioner_after": 15}),
    "sgnht": ("SGNHT", "sgnht", {"momentum": 0.9, "thermostat_rate": 0.05}),
    "sgnht-scalar": ("SGNHT", "sgnht", {"momentum": 0.9, "thermostat": "scalar"}),
    "sgnht-euler": ("SGNHT", "sgnht", {"momentum": 0.9, "integrator": "euler"}),
    "atmc": ("ATMC", "atmc", {"momentum": 0.9, "thermostat_rate": 0.05}),
    "atmc-limited": ("ATMC", "atmc", {"momentum": 0.9, "speed_limit": 2.0}),
    "emcmc": ("EntropyMCMC", "emcmc", {"eta": 0.5, "momentum": 0.5}),
    "emcmc-gibbs": ("EntropyMCMC", "emcmc", {"eta": 0.5, "update": "gibbs", "anchor_decay": 0.1}),
    "entropy-sgd": ("EntropySGD", "entropy-sgd", {"inner_steps": 5, "inner_noise": 0.1}),
    "entropy-sgld": ("EntropySGLD", "entropy-sgld", {"inner_steps": 5, "momentum": 0.5}),
    "sam": ("SAM", "sam", {"momentum": 0.9, "m_sharpness": 2}),
    "bsam": ("BSAM", "bsam", {"prediction_samples": 2, "m_sharpness": 3}),
    "bsam-other": ("BSAM", "bsam", {"beta2": 0.9, "s0": 0.5}),
    "mclmc": ("MCLMC", "mclmc", {"length": 3.0}),
    "laplace": ("LastLayerLaplace", "laplace", {"prediction_samples": 2}),
    "swag": ("SWAG", "swag", {"collect_every": 2, "rank": 3}),
    "mclmc-tuned": ("MCLMC", "mclmc", {"tune": 15}),
}
"""Name -> class, kind, settings: every kind, and the settings that bring states of their own."""
WITH_LAYERS = ("laplace",)
"""Those that densities do not have."""
OPTIMISERS = ("AdamW", "SGD", "SGDM", "SAM", "EntropySGD")
DENSITIES: dict[str, dict[str, Any]] = {"mixture25": {}, "noisy-mixture25": {"gradient_noise": 1.0}}
NETWORKS: dict[str, dict[str, Any]] = {
    "digits": {"train": 90, "hidden": [8]},
    "mnist-cnn": {"train_subset": 90, "augment": True},
    "cifar10-resnet20": {"train_subset": 90, "depth": 8, "width": 4},
}
SOME = ("sghmc", "emcmc", "bsam")
"""The samplers that are also run on larger networks."""


@cache
def module_task() -> Any:
    """A network with BatchNorm and dropout as a person gives it."""

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3))

    x = torch.sin(torch.arange(90 * 4).reshape(90, 4) * 1.7).mul(64).round() / 64  # equal on all machines
    y = torch.arange(90) % 3
    return rc.Task.from_module(network, (x, y), (x[:30], y[:30]), name="golden")


def chains(everything: bool = False, **change: Any) -> dict[str, rc.ChainSpec]:
    """The specs by name; ``change`` replaces fields of each.

    With ``everything`` those on image tasks, which need data, and some in double precision are among them.
    """
    tasks = {name: rc.make_task(name.removeprefix("noisy-"), **own) for name, own in DENSITIES.items()}
    tasks["digits"] = rc.make_task("digits", **NETWORKS["digits"])
    found = {
        f"{s}-{t}": spec(tasks[t], s, **change)
        for t in tasks
        for s in SAMPLERS
        if t == "digits" or s not in WITH_LAYERS
    }
    found |= {f"{s}-module": spec(module_task(), s, **change) for s in SOME}
    if everything:
        found |= {f"{s}-{t}-fp64": spec(tasks[t], s, precision="fp64") for t in tasks for s in SOME}
        images = {name: rc.make_task(name, **own) for name, own in NETWORKS.items() if name != "digits"}
        found |= {f"{s}-{t}": spec(images[t], s) for t in images for s in SOME}
    return found


def spec(task: Any, sampler: str, **change: Any) -> rc.ChainSpec:
    """The chain of one of `SAMPLERS` on a task, made of JSON as it is stored."""
    name, kind, settings = SAMPLERS[sampler]
    density = task.low_dimensional
    schedule = rc.Cyclical(
        steps=STEPS,
        lr=0.02 if density else 0.1,
        cycles=2,
        exploration=0.25,
        samples_per_cycle=None if density else 3,
        thinning=1 if density else 2,
        temperature=0.0 if name in OPTIMISERS else 1.0,
    )
    decay = {} if density else {"weight_decay": 1e-3}
    sampler_part = {"kind": kind, "revision": getattr(rc, name).revision, "num_data": task.num_data, **settings}
    fields: dict[str, Any] = {
        "format": 1,
        "task": task.spec().to_json(),
        "sampler": {**sampler_part, **decay},
        "schedule": schedule.part().to_json(),
        "steps": STEPS,
        "steps_per_epoch": 1 if density else 5,
        "batch_size": 1 if density else 20,
        "seed": 1,
        "repeat": 0,
        "chain": 2,
        "batchnorm": "keep" if kind in ("sgd", "sgdm", "sgld", "sghmc") else "reestimate",
    }
    fields |= {"lanes": 3, "block_draws": 5} if density else {}
    return rc.ChainSpec.from_json({**fields, **change})


def make(chain_spec: rc.ChainSpec, start: dict[str, torch.Tensor] | None = None) -> rc.Chain:
    """The chain of a spec, which starts at ``start``."""
    module = chain_spec.task == module_task().spec()
    return rc.Chain(chain_spec, module_task() if module else None, start=start)


def half_way(chain_spec: rc.ChainSpec) -> rc.Chain:
    """The chain of a spec after `CUT` steps."""
    chain = make(chain_spec)
    while chain.advance(lambda: chain.step >= CUT):
        pass
    return chain


def events(chain: rc.Chain) -> list[dict[str, Any]]:
    """What the chain tells from here to its end as JSON, samples with the sha256 of their bytes."""

    def plain(event: Any) -> dict[str, Any]:
        sample = hasattr(event, "tensors")
        return {**event.meta.to_json(), "sha256": sha256(event.tensors)} if sample else event.to_json()

    return [plain(event) for event in chain]


def sha256(tensors: Any) -> str:
    """One hash of names, dtypes, shapes and bytes."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name].detach().contiguous().numpy()
        found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


def codec() -> Any:
    """The first module of `CODEC` that there is."""
    for name in CODEC:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"chains.py: none of {', '.join(CODEC)} is there: name the new module in CODEC")


def run(folder: Path) -> Iterator[rc.Chain]:
    """Write what `resume` and the comparison need; the chains that were cut, each behind its checkpoint."""
    specs = chains(everything=True)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "fresh.json").write_text(json.dumps({name: events(make(s)) for name, s in specs.items()}))
    for name, chain_spec in specs.items():
        chain = half_way(chain_spec)
        tensors, tree = codec().flatten(chain.state_dict())
        (folder / "checkpoints" / name).write_bytes(codec().encode(tensors, {"state": tree}))
        yield chain


def resume(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rest of every chain from its checkpoint."""
    rest = {}
    for name, chain_spec in chains(everything=True).items():
        chain = make(chain_spec)
        tensors, description = codec().decode((folder / "checkpoints" / name).read_bytes())
        chain.load_state_dict(codec().unflatten(tensors, description["state"]))
        rest[name] = events(chain)
    return rest


def main(command: str, folder: str, out: str = "") -> None:
    """The script; it runs the raychains of the tree GOLDEN_TREE and no other."""
    tree = Path(os.environ["GOLDEN_TREE"]).resolve()
    if not Path(rc.__file__).resolve().is_relative_to(tree):
        raise SystemExit(f"chains.py: raychains must come from {tree}, got {rc.__file__}")
    if command == "resume":
        Path(out).write_text(json.dumps(resume(Path(folder))))
        return
    cut = list(run(Path(folder)))
    print(READY, flush=True)
    for chain in cut:
        events(chain)
    time.sleep(600)  # whoever started this kills it


if __name__ == "__main__":
    main(*sys.argv[1:])
