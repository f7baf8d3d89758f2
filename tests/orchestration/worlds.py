"""Small comparisons over any task, for tests that drive real actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raychains.chain import Chain
from raychains.planning import Arm, Comparison
from raychains.planning import listener as told
from raychains.sample import Sample, tensors_sha256
from raychains.samplers import KINDS
from raychains.schedules import Cyclical
from raychains.spec import ChainSpec, Part
from raychains.store import ChainStore, Root
from raychains.tasks import Task


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
    part = Part(kind=sampler, revision=KINDS[sampler].revision, settings={"num_data": 1, **settings})
    schedule = Cyclical(lr=0.09, steps=steps, cycles=cycles, exploration=0.5, temperature=temperature)
    specs = tuple(
        ChainSpec(
            task=task.spec(), sampler=part, schedule=schedule.part(),
            steps=steps, steps_per_epoch=1, batch_size=1, seed=3, repeat=0, chain=c, lanes=lanes, block_draws=block,
        )
        for c in range(chains)
    )  # fmt: skip
    return Comparison(
        task="test",
        unit="steps",
        split="target",
        arms=tuple(
            Arm(
                name=f"first-{n}",
                label=f"first {n}",
                sampler=sampler,
                schedule="cyclical",
                chains=(specs[:n],),
                length=steps,
                published={},
            )
            for n in arms or (chains,)
        ),
    )


def stored_hashes(root: Root, plan: Comparison) -> dict[tuple[str, str, int], str]:
    """sha256 of every stored sample by (digest, variable, index)."""
    return {
        (digest, r.meta.variable, r.meta.index): r.sha256
        for digest in plan.chains()
        for r in ChainStore(root, digest).records()
    }


def undisturbed_hashes(plan: Comparison, task: Task) -> dict[tuple[str, str, int], str]:
    """The same from chains run in this process, without Ray or disks."""
    return {
        (digest, e.meta.variable, e.meta.index): tensors_sha256(e.tensors)
        for digest, spec in plan.chains().items()
        for e in Chain(spec, task)
        if isinstance(e, Sample)
    }


class Diary:
    """A listener that remembers everything but ticks, and the most chains that ran at once."""

    def __init__(self) -> None:
        self.happenings: list[told.Happening] = []
        self.most_running = 0
        self.slots_seen: set[int] = set()

    def on(self, happening: told.Happening) -> None:
        if isinstance(happening, told.Tick):
            self.most_running = max(self.most_running, len(happening.running))
            self.slots_seen |= {c.slot for c in happening.running}
        else:
            self.happenings.append(happening)

    def of(self, kind: type[Any]) -> list[Any]:
        """The happenings of one kind."""
        return [h for h in self.happenings if isinstance(h, kind)]


def root(folder: Path) -> Root:
    """A store in a test's folder."""
    return Root(folder / "store")
