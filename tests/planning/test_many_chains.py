"""A thousand chains on 64 slots that keep dying: every chain ends, nothing is lost, and no event asks for much work."""

from __future__ import annotations

import random
from collections import Counter

from raychains.planning import coordinator as c
from raychains.planning.coordinator import Coordinator

CHAINS, SLOTS, SAMPLES, MAX_FAILURES = 1000, 64, 5, 3
LOST, RAISED, DOOMED = 0.05, 0.002, 0.02
MOST_ACTIONS = 3
"""That one event may ask for: something about its chain, and the slot's next one."""


class Fleet:
    """Slots that run chains by chance, around a coordinator that is looked at after every event."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        digests = [f"chain-{n}" for n in range(CHAINS)]
        self.doomed = {d for d in digests if self.rng.random() < DOOMED}
        self.coordinator = Coordinator(dict.fromkeys(digests, 0), MAX_FAILURES)
        self.slots: dict[int, c.Start | None] = {}
        self.next: dict[int, int | None] = {}
        """Position of each slot's next sample; None before its chain began."""
        self.running: set[str] = set()
        self.checkpoint: Counter[str] = Counter()
        self.pool: dict[str, list[int]] = {d: [] for d in digests}
        self.ended: dict[str, str] = {}
        self.losses: Counter[str] = Counter()
        self.starts = self.events = self.actions = self.most = 0

    def tell(self, event: c.Event) -> None:
        actions = self.coordinator.handle(event)
        self.events += 1
        self.actions += len(actions)
        self.most = max(self.most, len(actions))
        for action in actions:
            match action:
                case c.Start(slot, digest):
                    assert self.slots[slot] is None, "a busy slot was given a chain"
                    assert digest not in self.running and digest not in self.ended, "a chain runs twice"
                    self.slots[slot], self.next[slot] = action, None
                    self.running.add(digest)
                    self.starts += 1
                case c.Accept(digest, position):
                    assert position == len(self.pool[digest]), "a sample twice, or out of order"
                    self.pool[digest].append(position)
                case c.Recover(digest, before):
                    assert before <= self.checkpoint[digest], "recovering what is not durable"
                    self.pool[digest] = list(range(before))
                case c.Fail(digest):
                    assert digest not in self.ended
                    self.ended[digest] = "failed"
                case c.Release(slot):
                    assert self.slots.pop(slot) is None, "a busy slot was released"
                case _:
                    raise AssertionError(f"nobody asked for {action}")

    def lose(self, slot: int) -> None:
        run = self.slots.pop(slot)
        assert run is not None
        self.running.discard(run.digest)
        self.losses[run.digest] += 1
        self.tell(c.SlotLost(slot, "the worker died"))

    def step(self) -> None:
        """Something happens to a slot, or one appears where one was lost."""
        if len(self.slots) < SLOTS and self.coordinator.queue:
            slot = self.starts + self.events  # a new number
            self.slots[slot] = None
            return self.tell(c.SlotReady(slot))
        slot, run = self.rng.choice([*self.slots.items()])
        assert run is not None
        if run.digest in self.doomed or self.rng.random() < LOST:
            return self.lose(slot)
        at, position = (slot, run.digest, run.incarnation), self.next[slot]
        if position is None:
            self.next[slot] = self.checkpoint[run.digest]
            self.tell(c.Began(*at, self.checkpoint[run.digest], 10 * self.checkpoint[run.digest]))
        elif position == SAMPLES or self.rng.random() < RAISED:
            self.slots[slot] = None
            self.running.discard(run.digest)
            if position == SAMPLES:
                self.ended[run.digest] = "finished"
            self.tell(c.Ended(*at, "finished" if position == SAMPLES else "failed"))
        else:
            self.next[slot] = position + 1
            if self.rng.random() < 0.5:
                self.checkpoint[run.digest] = position + 1
            if self.rng.random() < 0.98:
                self.tell(c.Sampled(*at, position))
            else:
                self.lose(
                    slot
                )  # with a sample that is durable, perhaps behind a checkpoint, and that nobody was told of


def test_a_thousand_chains_on_dying_slots_all_end_and_events_cost_a_constant() -> None:
    fleet = Fleet(7)
    while not fleet.coordinator.over:
        fleet.step()
    machine = fleet.coordinator
    assert not fleet.slots and not machine.slots and not fleet.running
    assert {d: s.status for d, s in machine.chains.items()} == fleet.ended and len(fleet.ended) == CHAINS
    finished = [d for d, end in fleet.ended.items() if end == "finished"]
    assert all(fleet.pool[d] == list(range(SAMPLES)) for d in finished)
    failed = fleet.ended.keys() - set(finished)
    assert fleet.doomed <= failed and all(fleet.losses[d] == MAX_FAILURES + 1 for d in fleet.doomed)
    assert len(failed) > len(fleet.doomed) and len(finished) > 0.9 * CHAINS
    assert fleet.losses.total() > CHAINS // 10, "hardly anything was lost"
    # One start, one beginning and one end of each incarnation, its samples, and a slot's coming and going.
    assert fleet.starts <= CHAINS + fleet.losses.total()
    assert fleet.most <= MOST_ACTIONS and fleet.actions <= 2 * fleet.events
    assert fleet.events <= (SAMPLES + 2) * CHAINS + (SAMPLES + 3) * fleet.losses.total() + SLOTS


def test_no_event_looks_at_all_chains() -> None:
    """What an event costs must not grow with the chains: the coordinator's dicts are counted, not its seconds."""
    looked = [_looks(chains) for chains in (100, 1000)]
    assert looked[0] == looked[1] > 0


class Counted(dict[str, c.ChainState]):
    """Chains that count how many of them were looked at."""

    looks = 0

    def __getitem__(self, digest: str) -> c.ChainState:
        self.looks += 1
        return super().__getitem__(digest)

    def get(self, digest: str, default: object = None) -> c.ChainState | None:  # type: ignore[override]
        self.looks += 1
        return super().get(digest)

    def values(self):  # type: ignore[no-untyped-def, override]
        self.looks += len(self)
        return super().values()

    def items(self):  # type: ignore[no-untyped-def, override]
        self.looks += len(self)
        return super().items()


def _looks(chains: int) -> int:
    """How many chains are looked at while the first one runs to its end, one is lost, and a third begins."""
    machine = Coordinator({f"chain-{n}": 0 for n in range(chains)})
    machine.chains = counted = Counted(machine.chains)
    for event in (
        c.SlotReady(0), c.Began(0, "chain-0", 1, 0), c.Sampled(0, "chain-0", 1, 0), c.SlotReady(1), c.SlotLost(1, "gone"),
        c.Ended(0, "chain-0", 1, "finished"), c.Began(0, "chain-1", 2, 0), c.SlotReady(2),
    ):  # fmt: skip
        machine.handle(event)
        assert not machine.over
    return counted.looks
