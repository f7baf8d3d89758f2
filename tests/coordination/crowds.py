"""Simulated clusters that several runs share, each with chains of so many workers, driven by one seed.

Every run has a real `Coordinator`. A run asks for groups as `Driver` and `Workers` do, and the cluster gives them as
Ray's placement groups are given: all of a group's workers at once, or nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from raychains.coordination import coordinator as c
from raychains.coordination.capacity import Node, fit
from raychains.coordination.coordinator import Coordinator
from tests.coordination.worlds import Claiming


@dataclass
class Asked:
    """A group that a run asked for: the nodes of its workers, none yet where it waits."""

    owner: Run
    slot: int
    on: list[int] = field(default_factory=list)

    @property
    def up(self) -> bool:
        return len(self.on) == self.owner.ranks


@dataclass
class Run:
    name: str
    ranks: int
    gpus: float
    lengths: dict[str, int]
    """Samples of each chain."""
    concurrent: int = 10**9
    coordinator: Coordinator = field(init=False)
    groups: dict[int, Asked] = field(default_factory=dict)
    jobs: dict[int, c.Start] = field(default_factory=dict)
    """What the slots that are up run."""
    drawn: Counter[str] = field(default_factory=Counter)
    """Durable samples of each chain, all of which are told."""
    began: set[tuple[str, int]] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)
    made: int = 0

    def __post_init__(self) -> None:
        self.coordinator = Claiming(dict.fromkeys(self.lengths, 0))


class Stuck(Exception):
    """Nothing runs, nothing can be placed, and chains wait."""


class Crowd:
    def __init__(self, seed: int, nodes: list[Node], runs: list[Run]) -> None:
        self.rng, self.nodes, self.runs = random.Random(seed), nodes, runs
        self.away: dict[int, int] = {}
        """Nodes that died, and the event at which they come back."""
        self.death_rate = self.rng.choice((0.0, 0.02, 0.1))
        self.events = 0
        self.order: list[tuple[str, str]] = []
        """(run, chain) as they started."""

    # The cluster

    def free(self) -> list[Node]:
        """What nobody holds, counted anew from all groups."""
        left = [[n.cpus, n.gpus] if i not in self.away else [0.0, 0.0] for i, n in enumerate(self.nodes)]
        for run in self.runs:
            for group in run.groups.values():
                for i in group.on:
                    left[i][0] -= 1
                    left[i][1] -= run.gpus
        assert all(x >= 0 for pair in left for x in pair), "something is held twice"
        return [Node(*pair) for pair in left]

    def place(self) -> bool:
        """Give waiting groups what is free, in random order; whether one came up."""
        waiting = [g for run in self.runs for g in run.groups.values() if not g.up]
        self.rng.shuffle(waiting)
        came = False
        for group in waiting:
            run, free = group.owner, self.free()
            rooms = [fit([node], 1, run.gpus).chains for node in free]
            fits = fit(free, 1, run.gpus).chains
            assert fits == sum(rooms)
            missing = run.ranks
            if fits < missing:
                continue
            for i in sorted(range(len(rooms)), key=lambda i: -rooms[i]):  # packed
                here = min(rooms[i], missing)
                group.on += [i] * here
                missing -= here
            came = True
            self.tell(run, c.SlotReady(group.slot))
        return came

    # The drivers

    def tell(self, run: Run, event: c.Event) -> None:
        for action in run.coordinator.handle(event):
            match action:
                case c.Start(slot, digest):
                    assert run.groups[slot].up and slot not in run.jobs, "a chain on half a group, or two on one"
                    run.jobs[slot] = action
                    self.order.append((run.name, digest))
                case c.Release(slot):
                    assert slot not in run.jobs
                    del run.groups[slot]
                case c.Fail(digest):
                    run.ended[digest] += 1
                case c.Accept() | c.Recover():
                    pass
                case _:
                    raise AssertionError(f"nobody asked for {action}")

    def grow(self, run: Run) -> None:
        """As `Driver._grow`: no more groups than chains wait, nor than all nodes could hold."""
        waiting = len(run.coordinator.queue)
        pending = [g.slot for g in run.groups.values() if not g.up]
        while len(pending) > waiting:
            del run.groups[pending.pop()]
        if not waiting:
            return
        alive = [n for i, n in enumerate(self.nodes) if i not in self.away]
        room = min(fit(alive, 1, run.gpus).chains // run.ranks, run.concurrent)
        for _ in range(min(len(run.jobs) + waiting, room) - len(run.groups)):
            run.groups[run.made] = Asked(run, run.made)
            run.made += 1

    def lose(self, run: Run, slot: int) -> None:
        """One worker of a group died: all of them are given up."""
        del run.groups[slot]
        run.jobs.pop(slot, None)
        self.tell(run, c.SlotLost(slot, "a worker died"))

    # What happens

    def step(self) -> None:
        self.events += 1
        for run in self.runs:
            self.grow(run)
        came = self.place()
        for i in [i for i, back in self.away.items() if back <= self.events]:
            del self.away[i]
        busy = [(run, slot) for run in self.runs for slot in run.jobs]
        if not busy:
            if not came and not self.away and not self.over and not self.can_move():
                raise Stuck
            return
        if self.rng.random() < self.death_rate:
            if self.rng.random() < 0.2 and len(self.away) < len(self.nodes) - 1:
                return self.lose_node(self.rng.randrange(len(self.nodes)))
            groups = [(run, slot) for run in self.runs for slot in run.groups if run.groups[slot].up]
            return self.lose(*self.rng.choice(groups))
        self.progress(*self.rng.choice(busy))

    def can_move(self) -> bool:
        """Whether anything that is free would do for a worker of a group that waits."""
        waiting = [g.owner for run in self.runs for g in run.groups.values() if not g.up]
        return any(fit(self.free(), 1, run.gpus).chains for run in waiting) or not waiting

    def lose_node(self, node: int) -> None:
        if node in self.away:
            return
        hit = [(run, slot) for run in self.runs for slot, g in run.groups.items() if node in g.on]
        self.away[node] = self.events + self.rng.randint(1, 60)
        for run, slot in hit:
            self.lose(run, slot)

    def progress(self, run: Run, slot: int) -> None:
        job = run.jobs[slot]
        at = (job.digest, job.attempt)
        drawn = run.drawn[job.digest]
        if (job.digest, job.attempt) not in run.began:
            run.began.add((job.digest, job.attempt))
            self.tell(run, c.Began(*at, drawn, 10 * drawn))
        elif drawn == run.lengths[job.digest]:
            del run.jobs[slot]
            run.ended[job.digest] += 1
            self.tell(run, c.Ended(*at, "finished"))
        else:
            run.drawn[job.digest] += 1
            self.tell(run, c.Sampled(*at, drawn))

    @property
    def over(self) -> bool:
        return all(run.coordinator.over for run in self.runs)


def crowd(seed: int) -> Crowd:
    """A random one: 2–6 nodes, 2–4 runs of chains of 1–8 workers, some with GPUs."""
    rng = random.Random(seed)
    nodes = [Node(rng.randint(2, 8), float(rng.choice((0, 2, 4)))) for _ in range(rng.randint(2, 6))]
    runs = []
    for n in range(rng.randint(2, 4)):
        gpus = rng.choice((0.0, 0.0, 1.0)) if any(node.gpus for node in nodes) else 0.0
        most = fit(nodes, 1, gpus).chains  # more are refused before anything is asked for
        ranks = min(rng.choice((1, 1, 2, 3, 4, 8)), most)
        runs.append(Run(f"run-{n}", ranks, gpus, {f"{n}-{i}": rng.randint(1, 4) for i in range(rng.randint(1, 5))}))
    return Crowd(seed, nodes, runs)
