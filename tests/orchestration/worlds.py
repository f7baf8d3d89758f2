"""Small comparisons over any task, for tests that drive real actors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raychains.chain.chain import Chain
from raychains.core.sample import Sample, SampleMeta, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.planning import Arm, Comparison, events
from raychains.schedules import Cyclical
from raychains.store import ChainStore, Storage
from raychains.tasks import Task
from tests.chain.chain_cases import chain_spec


def arm_of(name: str, *chains: ChainSpec) -> Arm:
    first = chains[0]
    return Arm(
        name=name, label=name, sampler=first.sampler.kind, schedule=first.schedule.kind, chains=(chains,),
        length=first.steps, published={},
    )  # fmt: skip


def comparison(
    task: Task,
    *,
    chains: int,
    steps: int = 2000,
    block: int = 100,
    lanes: int = 2,
    arms: tuple[int, ...] = (),
    sampler: str = "sgld",
    cycles: int = 2,
    temperature: float = 1.0,
    **settings: Any,
) -> Comparison:
    """Arms of the first n chains each (one arm of all without ``arms``) on ``task`` under a cyclical step size."""
    schedule = Cyclical(lr=0.09, steps=steps, cycles=cycles, exploration=0.5, temperature=temperature)
    specs = [
        chain_spec(task, sampler, schedule, {"num_data": 1, **settings}, chain=c, lanes=lanes, block_draws=block)
        for c in range(chains)
    ]
    made = tuple(arm_of(f"first-{n}", *specs[:n]) for n in arms or (chains,))
    return Comparison(task="test", unit="steps", split="target", arms=made)


def meta(digest: str, index: int, **change: Any) -> SampleMeta:
    """Of a sample of θ, the chain's n-th at its n-th step."""
    fixed = {"variable": "theta", "cycle": 0, "epoch": index, "step": index + 1, "lr": 0.1, "temperature": 1.0}
    fixed |= {"stage": "sampling", "train_nll": None}
    return SampleMeta(digest=digest, index=index, **{**fixed, **change})


Hashes = dict[tuple[str, str, int], str]
"""sha256 of samples by (digest, variable, index)."""


def chains_of(plan: Comparison | Mapping[str, ChainSpec]) -> Mapping[str, ChainSpec]:
    return plan.chains() if isinstance(plan, Comparison) else plan


def stored_hashes(root: Storage | str | Path, plan: Comparison | Mapping[str, ChainSpec]) -> Hashes:
    stores = (ChainStore(root if isinstance(root, Storage) else Storage(root), digest) for digest in chains_of(plan))
    return {(s.digest, r.meta.variable, r.meta.index): r.sha256 for s in stores for r in s.records()}


def undisturbed_hashes(plan: Comparison | Mapping[str, ChainSpec], task: Task | None = None) -> Hashes:
    """The same from chains run in this process, without Ray or disks."""
    return {
        (digest, e.meta.variable, e.meta.index): tensors_sha256(e.tensors)
        for digest, spec in chains_of(plan).items()
        for e in Chain(spec, task)
        if isinstance(e, Sample)
    }


class Diary:
    """A listener that remembers everything but ticks, and the most chains that ran at once."""

    def __init__(self) -> None:
        self.happenings: list[events.RunEvent] = []
        self.most_running = 0
        self.slots_seen: set[int] = set()

    def on(self, event: events.RunEvent) -> None:
        if isinstance(event, events.Tick):
            self.most_running = max(self.most_running, len(event.running))
            self.slots_seen |= {c.slot for c in event.running}
        else:
            self.happenings.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [h for h in self.happenings if isinstance(h, kind)]


def root(folder: Path) -> Storage:
    return Storage(folder / "store")
