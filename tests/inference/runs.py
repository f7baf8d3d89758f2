"""Small finished runs in a store, made in this process without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import raychains as rc
from raychains import tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core.config import Compare, Run
from raychains.core.sample import Sample
from raychains.store import ChainStore, RunStore, Storage, initial_states
from raychains.tasks import Task

DIGITS: dict[str, Any] = {
    "task": "digits", "epochs": 6, "cycles": 2, "exploration": 0.5, "samples_per_cycle": 2, "chains": 2, "repeats": 1,
}  # fmt: skip


def finished(folder: Path, options: Run | Compare, *, name: str = "small", task: Task | None = None) -> rc.Result:
    """The run that ``options`` describe, its chains run one after another."""
    plan: Any = plans.compare if isinstance(options, Compare) else plans.run
    planned, root = plan(options, task), Storage(folder)
    store = RunStore(root, name)
    if task is not None:
        tasks.give(task)
    store.write_plan({"command": "run", "comparison": planned.comparison.to_json(), "notes": []})
    if planned.start is not None:
        initial_states.publish(root, planned.start)
    for spec in planned.comparison.chains().values():
        key = initial_states.key_of(spec)
        start = initial_states.read(root, key) if key is not None else None
        chain, chain_store = Chain(spec, start=start), ChainStore(root, spec.digest)
        chain_store.begin(spec, 1, {"host": "here"})
        for event in chain:
            if isinstance(event, Sample):
                chain_store.publish_sample(event, 1, chain.environment().to_json())
        chain_store.finish()
    return rc.load(store.location(), task=task)


def digits(folder: Path, **change: Any) -> rc.Result:
    """Two chains on the digits, four samples each."""
    return finished(folder, Run(**{**DIGITS, "sampler": "csghmc", **change}))
