"""Tiny chains of every sampler and task, what identifies their outcome, and a script that resumes them.

`python chain_cases.py STATES [DEVICE]` loads {case: {"spec": …, "state": …}} from the file STATES, runs each chain to
its end and prints {case: outcome} as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import raychains
from raychains import samplers, tasks
from raychains.chain.chain import Chain, Event
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec, Part
from raychains.schedules import Cyclical, Schedule
from raychains.tasks import Task
from tests.processes import SECONDS

Tasks = dict[str, tuple[str, dict[str, Any]]]
TASKS: Tasks = {
    "mixture": ("mixture25", {}),
    "noisy-mixture": ("mixture25", {"gradient_noise": 1.0}),
    "digits": ("digits", {"train": 90, "hidden": [8]}),
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sgd": {},
    "sgdm": {"momentum": 0.9},
    "sgld": {},
    "sghmc": {"momentum": 0.9},
    "psgld": {"freeze_preconditioner_after": 15},
    "sgnht": {"momentum": 0.9, "thermostat": "scalar"},
    "atmc": {"momentum": 0.9, "speed_limit": 2.0},
    "emcmc": {"eta": 0.5, "momentum": 0.5},
    "entropy-sgd": {"inner_steps": 5},
    "entropy-sgld": {"inner_steps": 5},
    "sam": {"momentum": 0.9},
    "bsam": {"prediction_samples": 2, "m_sharpness": 3},
    "swag": {"collect_every": 2, "rank": 3},
    "laplace": {"prediction_samples": 2},
    "mclmc": {"tune": 15, "preconditioner": "diagonal"},
}
WITH_LAYERS = {"laplace"}
"""Samplers that densities do not have: they need a network, its likelihood and all of its last layer."""
IMAGES: Tasks = {"resnet": ("cifar10-resnet20", {"train_subset": 90})}
"""Networks with convolutions, BatchNorm and augmentation; they need image sets, and belong to no case of `CASES`."""
HALF = 12
"""Steps after which a chain is cut: in the middle of an epoch, a log interval and a block."""


def chain_spec(
    task: Task, sampler: str, schedule: Schedule, settings: Mapping[str, Any], /, **fields: Any
) -> ChainSpec:
    """A chain of its schedule's length, one step an epoch."""
    part = Part(
        kind=sampler, revision=samplers.KINDS[sampler].revision, settings={"num_data": task.num_data, **settings}
    )
    fixed = {"steps_per_epoch": 1, "batch_size": 1, "seed": 3, "repeat": 0, "chain": 0, "steps": schedule.steps}
    return ChainSpec(**{"task": task.spec(), "sampler": part, "schedule": schedule.part(), **fixed, **fields})


def temperature_of(sampler: str) -> float:
    """The temperature of a sampler's chains: 0 for optimisers, 1 for all others."""
    return 0.0 if samplers.KINDS[sampler].noisy_counterpart is not None else 1.0


def spec(task_name: str | tuple[str, dict[str, Any]], sampler: str, **change: Any) -> ChainSpec:
    """The chain of one sampler on one task, a known one or a name with settings; ``change`` replaces fields of the
    spec."""
    name, settings = (TASKS | IMAGES)[task_name] if isinstance(task_name, str) else task_name
    task = tasks.make(name, **settings)
    network = not task.low_dimensional
    schedule = Cyclical(
        steps=2 * HALF,
        lr=0.3 if network else 0.02,
        cycles=2,
        exploration=0.25,
        samples_per_cycle=3 if network else None,
        thinning=2 if network else 1,
        temperature=temperature_of(sampler),
    )
    settings = {**SAMPLERS[sampler], **({"weight_decay": 1e-3} if network else {})}
    batches = {"steps_per_epoch": 5, "batch_size": 20} if network else {"lanes": 3, "block_draws": 5}
    statistics = {} if samplers.KINDS[sampler].statistics_fit else {"batchnorm": "reestimate"}
    fields = {"seed": 1, "chain": 2, **batches, **statistics, **change}
    return chain_spec(task, sampler, schedule, settings, **fields)


def sgld_on(task: Task, schedule: Schedule, **change: Any) -> ChainSpec:
    """SGLD on a density under a schedule."""
    return chain_spec(task, "sgld", schedule, {"num_data": 1}, **{"seed": 0, "block_draws": 1, **change})


CASES: dict[str, ChainSpec] = {
    f"{sampler}-{task}": spec(task, sampler)
    for task in TASKS
    for sampler in SAMPLERS
    if task == "digits" or sampler not in WITH_LAYERS
}


def run(chain: Chain, until: int | None = None) -> list[Event]:
    """What the chain tells until its end, or until ``until`` steps are made."""
    told: list[Event] = []
    while events := chain.advance(lambda: until is not None and chain.step >= until):
        told += events
    return told


def json_of(events: Iterable[Event]) -> list[Any]:
    """Events as JSON, samples with the hash of their tensors."""
    return [[e.meta.to_json(), tensors_sha256(e.tensors)] if isinstance(e, Sample) else e.to_json() for e in events]


def samples(chain: Chain) -> list[Sample]:
    """What the chain draws until its end."""
    return [e for e in run(chain) if isinstance(e, Sample)]


def stopped(made: ChainSpec, every: int, task: Task | None = None) -> dict[str, Any]:
    """Outcome of a chain that is begun anew from a checkpoint's bytes after every so many steps."""
    chain = Chain(made, task)
    task, events = chain.task, list[Event]()
    while not chain.done:
        step = min(made.steps, chain.step + every)
        events += run(chain, until=step)
        assert chain.step == step
        torch.rand(1)  # what the process does meanwhile with torch's global generator is nobody's business
        state = stored(chain.state_dict())
        chain = Chain(made, task)
        chain.load_state_dict(state)
    return outcome(chain, events)


def whole(made: ChainSpec, task: Task | None = None) -> dict[str, Any]:
    """Outcome of a chain that nothing interrupts."""
    chain = Chain(made, task)
    return outcome(chain, run(chain))


def resumed(chains: Iterable[Chain]) -> list[Event]:
    """What the first of three equal chains tells, as does the third that goes on from the second's checkpoint in the
    middle."""
    straight, cut, rest = chains
    first = run(cut, until=HALF)
    rest.load_state_dict(stored(cut.state_dict()))
    whole = run(straight)
    assert outcome(rest, first + run(rest)) == outcome(straight, whole)
    return whole


def sample_hash(events: Iterable[Event]) -> str:
    """One hash over all samples' tensors, in order."""
    hashes = [tensors_sha256(e.tensors) for e in events if isinstance(e, Sample)]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """A chain's state as a checkpoint's bytes hold it, read back."""
    from raychains.store.codec import decode, encode, flatten, unflatten  # the rest of this file needs no pyarrow

    tensors, tree = flatten(state)
    read, description = decode(encode(tensors, {"state": tree}))
    back: dict[str, Any] = unflatten(read, description["state"])
    return back


def state_hash(chain: Chain) -> str:
    """One hash over the whole of `Chain.state_dict`, tensors and plain values."""
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{path}/{key}", inner)
        elif isinstance(value, list | tuple):
            for i, inner in enumerate(value):
                walk(f"{path}/{i}", inner)
        elif isinstance(value, Tensor):
            tensors[path] = value
        else:
            plain[path] = value

    walk("", chain.state_dict())
    text = json.dumps(plain, sort_keys=True) + tensors_sha256(tensors)
    return hashlib.sha256(text.encode()).hexdigest()


def outcome(chain: Chain, events: Iterable[Event]) -> dict[str, Any]:
    return {"events": json_of(events), "state": state_hash(chain)}


Halves = dict[str, tuple[list[Any], dict[str, Any]]]


def resumed_elsewhere(cases: Mapping[str, ChainSpec], path: Path, device: str = "cpu") -> Halves:
    """Per case what was told up to `HALF` steps here, and the outcome of the rest in a new process; states go by
    ``path``."""
    states, before = {}, {}
    for case, case_spec in cases.items():
        chain = Chain(case_spec, device=device)
        before[case] = json_of(run(chain, until=HALF))
        assert chain.step == HALF
        states[case] = {"spec": case_spec.to_json(), "state": chain.state_dict()}
    torch.save(states, path)
    root = str(Path(raychains.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, str(path), device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    return {case: (before[case], after[case]) for case in cases}


def main(path: str, device: str = "cpu") -> None:
    outcomes = {}
    for case, stored_case in torch.load(path, weights_only=True).items():
        chain = Chain(ChainSpec.from_json(stored_case["spec"]), device=device)
        chain.load_state_dict(stored_case["state"])
        outcomes[case] = outcome(chain, run(chain))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
