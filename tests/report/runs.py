"""Small runs made by hand: chains in this process, a store on the disk, results as the driver writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raychains import tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.sample import Sample
from raychains.evaluation.evaluation import gather
from raychains.inference import results
from raychains.inference.run_data import planned_metrics
from raychains.planning import Comparison
from raychains.store import ChainStore, RunStore, Storage, codec

DIGITS: dict[str, Any] = {"task": "digits", "epochs": 6, "chains": 2, "cycles": 2, "exploration": 0.5}
DIGITS |= {"samples_per_cycle": 2, "repeats": 2}
MIXTURE: dict[str, Any] = {"task": "mixture25", "steps": 2400, "chains": 2, "cycles": 3, "repeats": 3}


@dataclass
class View:
    """What `report.results.write` reads of the evaluation of one arm's group."""

    samples: int
    metrics: list[dict[str, float]]
    curves: list[dict[str, list[float]]]
    rows: Mapping[str, Any]
    chains: int


def digits(**change: Any) -> Comparison:
    """Table 2's arms under SGLD and SGHMC."""
    return plans.compare(Compare(**{**DIGITS, **change})).comparison


def mixture(**change: Any) -> Comparison:
    """Table 4's arms."""
    return plans.compare(Compare(**{**MIXTURE, **change})).comparison


def single(**change: Any) -> Comparison:
    """The one arm of `raychains run`, once."""
    return plans.run(Run(**{**DIGITS, "repeats": 1, **change})).comparison


def altered(comparison: Comparison, **by_arm: dict[str, Any]) -> Comparison:
    """``comparison`` with fields of its arms replaced, by the arm's number: ``_0={"label": …}``."""
    arms = list(comparison.arms)
    for number, change in by_arm.items():
        arms[int(number[1:])] = dataclasses.replace(arms[int(number[1:])], **change)
    return dataclasses.replace(comparison, arms=tuple(arms))


def store_run(
    folder: Path,
    comparison: Comparison,
    *,
    name: str = "small",
    notes: Collection[str] = (),
    without: Collection[str] = (),
    progress: bool = True,
) -> RunStore:
    """Run the chains of all arms but those named in ``without``, evaluate them, store it all."""
    root = Storage(folder)
    store = RunStore(root, name)
    plan = {"command": "compare", "comparison": comparison.to_json(), "notes": list(notes)}
    store.write_plan({**plan, "metrics": planned_metrics(comparison)})
    arms = [arm for arm in comparison.arms if arm.name not in without]
    specs = {spec.digest: spec for arm in arms for group in arm.chains for spec in group}
    for spec in specs.values():
        chain, chain_store = Chain(spec), ChainStore(root, spec.digest)
        environment = chain.environment().to_json()
        chain_store.begin(spec, 1, {"environment": environment, "host": "here"})
        told = []
        for event in chain:
            if isinstance(event, Sample):
                chain_store.publish_sample(event, 1, environment)
            else:
                told.append({**event.to_json(), "seconds": 0.001 * event.step})
        if progress:
            chain_store.publish_progress(told, spec.steps, 1)
        chain_store.finish()
    views = {
        (comparison.arms.index(a), g): view(root, comparison, group) for a in arms for g, group in enumerate(a.chains)
    }
    results.write(store, comparison, views, dict.fromkeys(specs, 1.5))  # type: ignore[arg-type]
    return store


def view(root: Storage, comparison: Comparison, group: Collection[Any]) -> View:
    """The evaluation of one group's chains, their samples taken in turn."""
    evaluation = tasks.build(comparison.task_spec).splits()[comparison.split]
    records = [
        (r.meta.index, c, ChainStore(root, spec.digest), r.file)
        for c, spec in enumerate(group)
        for r in ChainStore(root, spec.digest).records()
    ]
    samples = [codec.decode(chain.read_sample(file))[0] for _, _, chain, file in sorted(records, key=lambda r: r[:2])]
    parts = [
        evaluation.reduce([evaluation.predict(tensors, shard) for tensors in samples], shard)
        for shard in range(evaluation.shards)
    ]
    return View(len(samples), evaluation.summarise(parts), evaluation.curve(parts), gather(parts), len(group))
