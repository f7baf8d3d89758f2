"""Comparisons whose chains die, and what must be true of them afterwards."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raychains.chain import proof
from raychains.chain.chain import Chain
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.planning import Comparison
from raychains.schedules import Cyclical
from raychains.store import ChainStore, Storage, codec
from raychains.tasks import Task
from raychains.tasks.linear_regression import LinearRegression
from tests.chain.chain_cases import temperature_of
from tests.chaos import plans
from tests.chaos.tasks import MortalRegression
from tests.orchestration.worlds import Hashes, arm_of, chain_spec

SAMPLERS: dict[str, dict[str, Any]] = {
    "sghmc": {"momentum": 0.9, "noise_estimate": 0.1},
    "psgld": {"freeze_preconditioner_after": 50},
    "sgnht": {"momentum": 0.9, "thermostat": "scalar"},
    "atmc": {"momentum": 0.9, "speed_limit": 2.0},
    "emcmc": {"eta": 0.5, "momentum": 0.5},
    "entropy-sgd": {"inner_steps": 5},
    "bsam": {"prediction_samples": 2, "m_sharpness": 2},
    "sam": {"momentum": 0.9},
    "swag": {"collect_every": 5},
    "mclmc": {"length": 3.0, "tune": 150},
}
"""Every sampler that has a state."""
CHAINS = 3
"""Chains of each sampler."""
STEPS, BLOCK = 400, 20
"""Steps of a chain; kept draws of a block, of which there are ten."""
SHORT = 200
"""Steps of one that is killed where files are written, which also has ten blocks."""
TRIAL = (1, proof.STEPS)
"""First and last step of a worker's own trial of a task, which is no attempt at the chain."""
CADENCE, PAUSE = 0.05, 0.001
"""Seconds between checkpoints, and the least that a step takes: never more than 50 steps between checkpoints."""
OFTEN = CADENCE * SHORT / STEPS
"""Seconds between those of a short chain, which has as many."""


def comparison(
    task: Task, kinds: Mapping[str, Mapping[str, Any]] = SAMPLERS, chains: int = CHAINS, steps: int = STEPS
) -> Comparison:
    """One arm of ``chains`` chains per sampler on ``task``; no two chains share a random stream."""
    arms = []
    for a, (kind, settings) in enumerate(kinds.items()):
        specs = (_spec(task, kind, settings, a * chains + c, steps) for c in range(chains))
        arms.append(arm_of(f"{kind}-{chains}", *specs))
    split = "target" if task.low_dimensional else "test"
    return Comparison(task="chaos", unit="steps", split=split, arms=tuple(arms))


def _spec(task: Task, kind: str, settings: Mapping[str, Any], chain: int, steps: int) -> ChainSpec:
    shape: dict[str, Any] = {"steps": steps, "cycles": 2, "exploration": 0.5, "temperature": temperature_of(kind)}
    if task.low_dimensional:
        fields, schedule = {"lanes": 2, "block_draws": BLOCK * steps // STEPS}, Cyclical(lr=0.01, **shape)
    else:
        fields = {"steps_per_epoch": 5, "batch_size": 20}
        schedule = Cyclical(lr=0.1, samples_per_cycle=5, thinning=10, **shape)
    return chain_spec(task, kind, schedule, settings, seed=7, chain=chain, **fields)


def pair(folder: Path, pause: float) -> Comparison:
    """Two chains whose processes keep their lives in a folder, and do not die."""
    plan = comparison(MortalRegression(str(folder), pause), {"sghmc": SAMPLERS["sghmc"]}, chains=2)
    plans.write(folder, plans.spread([], plan.chains().values()))
    return plan


# Afterwards


_DRAWN: dict[str, list[Sample]] = {}
"""Samples of the chains that ran here, by what they depend on."""


def undisturbed(chains: Mapping[str, ChainSpec], task: Task) -> tuple[Hashes, dict[Any, Any]]:
    """sha256 and tensors of every sample by (digest, variable, index), from chains run here, without Ray or disks.

    Chains that differ in nothing but the folder of their mortal task's deaths are one, and run once.
    """
    hashes, tensors = {}, {}
    for digest, spec in chains.items():
        same = json.dumps(spec.to_json() | {"task": repr(task.spec())}, sort_keys=True)
        if same not in _DRAWN:
            _DRAWN[same] = [event for event in Chain(spec, task) if isinstance(event, Sample)]
        for sample in _DRAWN[same]:
            at = (digest, sample.meta.variable, sample.meta.index)
            hashes[at], tensors[at] = tensors_sha256(sample.tensors), sample.tensors
    return hashes, tensors


def check_samples(root: Storage, expected: Hashes) -> None:
    """No sample lost or there twice; every file that counts, and every whole one that does not, has the clean bytes."""
    found: Hashes = {}
    for digest in dict.fromkeys(d for d, _, _ in expected):
        store = ChainStore(root, digest)
        for record in store.records():
            at = (digest, record.meta.variable, record.meta.index)
            assert at not in found, f"{at} is there twice"
            _, description = codec.decode(store.read_sample(record.file))
            assert description["sha256"] == record.sha256
            found[at] = record.sha256
        for name in root.names(f"chains/{digest}/samples"):
            try:
                _, own = codec.decode(root.read(f"chains/{digest}/samples/{name}"))
            except codec.Corrupt:
                continue  # torn on purpose
            assert own["sha256"] == expected[digest, own["variable"], own["index"]], name
    assert sorted(found) == sorted(expected)
    assert found == expected


def check_pair(root: Storage, plan: Comparison) -> None:
    """The samples of a `pair` are those of undisturbed chains, each once."""
    hashes, _ = undisturbed(plan.chains(), LinearRegression(num_data=100))
    check_samples(root, hashes)


def check_work(folder: Path, chains: Mapping[str, ChainSpec]) -> dict[str, int]:
    """Every attempt begins at a checkpoint no older than the newest that was durable when the one before it died.

    Returns how many steps were made again, counted where they are made; how many depends on how soon the writer's
    thread gets its turn. When a checkpoint is due is tested by a simulated clock, in
    tests/orchestration/test_checkpoint_policy.py.
    """
    again = losses = busy = 0
    by_key: dict[str, list[dict[str, Any]]] = {plans.key(spec): [] for spec in chains.values()}
    for life in plans.lives(folder):
        if life["key"] in by_key:
            by_key[life["key"]].append(life)
    for spec in chains.values():
        own = [life for life in by_key[plans.key(spec)] if (life["from_step"], life["reached"]) != TRIAL]
        assert own[0]["from_step"] == 0
        for before, after in itertools.pairwise(own):
            assert before["durable"] <= after["from_step"] <= before["reached"], (before, after)
            again += max(0, before["from_step"] + before["steps"] - after["from_step"])
            busy += before["busy"]
            losses += 1
        assert own[-1]["reached"] == spec.steps
    return {"losses": losses, "steps again": again, "while writing": busy}


def expected_results(plan: Comparison, task: Task, tensors: Mapping[tuple[str, str, int], Any]) -> pd.DataFrame:
    """results.parquet of an undisturbed run, from its samples, but for the times."""
    evaluation = task.splits()[plan.split]
    rows = []
    for arm in plan.arms:
        position = {spec.digest: n for n, spec in enumerate(arm.chains[0])}
        mine = [at for at in tensors if at[0] in position and (task.low_dimensional <= (at[1] == "theta"))]
        mine.sort(key=lambda at: (at[2], position[at[0]], at[0]))
        parts = [
            evaluation.reduce([evaluation.predict(tensors[at], shard) for at in mine], shard)
            for shard in range(evaluation.shards)
        ]
        for repeat, metrics in enumerate(evaluation.summarise(parts)):
            about = {"arm": arm.name, "group": 0, "repeat": repeat}
            rows.append({**about, "samples": len(mine), "chains": len(position), **metrics})
    return pd.DataFrame(rows)


def check_results(table: Any, expected: pd.DataFrame) -> None:
    """results.parquet is that of an undisturbed run, bit for bit; seconds are what they are."""
    found = table.to_pandas().drop(columns="chain_seconds")
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert np.isfinite(found.select_dtypes("number").to_numpy()).all()
