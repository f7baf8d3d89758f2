"""The chains of a simulated run, and their samples' exact values: a function of the spec and of the noise that
diverged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from raychains import schedules
from raychains.core.sample import Sample, SampleMeta
from raychains.core.spec import ChainSpec, Part
from raychains.planning import Arm, Comparison
from raychains.schedules import Cyclical
from raychains.tasks.mixture import Mixture25

BLOCK, SAMPLES = 5, 4
STEPS = 2 * BLOCK * SAMPLES
CYCLES = 2
MULTIPLIER, MODULUS = 6364136223846793005, 2**61 - 1


def comparison(chains: int, *, exact: bool = True, started: bool = False) -> Comparison:
    """Return two arms on a density: all chains in groups of two, and the first of each group alone.

    With ``started`` each chain of the first arm starts at another one, which is the second arm's or no arm's.
    """
    schedule = Cyclical(lr=0.09, steps=STEPS, cycles=CYCLES, exploration=0.5).part()
    sampler = Part(kind="sgld", revision=1, settings={"num_data": 1})
    task = Mixture25().spec()
    groups = tuple(
        tuple(
            ChainSpec(
                task=task, sampler=sampler, schedule=schedule, steps=STEPS, steps_per_epoch=1, batch_size=1, seed=0,
                repeat=first // 2, chain=chain, block_draws=BLOCK, exact=exact,
            )
            for chain in range(min(2, chains - first))
        )
        for first in range(0, chains, 2)
    )  # fmt: skip
    both = {"all": groups, "first": tuple(group[:1] for group in groups)}
    starts: dict[str, ChainSpec] = {}
    if started:
        others = [(replace(group[0], seed=1), group[0]) for group in groups]
        starts = {spec.digest: spec for pair in others for spec in pair}
        both["all"] = tuple(
            tuple(replace(s, seed=2, start_chain=start.digest) for s, start in zip(group, pair, strict=False))
            for group, pair in zip(groups, others, strict=True)
        )
    about: dict[str, Any] = {"sampler": "sgld", "schedule": "cyclical", "length": STEPS, "published": {}}
    arms = tuple(Arm(name=name, label=name, chains=found, **about) for name, found in both.items())
    return Comparison(task="mixture25", unit="steps", split="target", arms=arms, starts=starts)


@cache
def kept() -> tuple[int, ...]:
    """Return the steps at which samples are complete."""
    schedule = schedules.build(Cyclical(lr=0.09, steps=STEPS, cycles=CYCLES, exploration=0.5).part())
    steps = [k for k in range(1, STEPS + 1) if schedule.at(k).keep]
    return tuple(steps[BLOCK - 1 :: BLOCK])


def cycle_of(step: int) -> int:
    """Return the cycle, from 0, that a step (from 1) belongs to."""
    return (step - 1) * CYCLES // STEPS


def at_cycle_end(step: int) -> bool:
    """Return whether a step is the last of its cycle, and not of the chain."""
    return 0 < step < STEPS and step % (STEPS // CYCLES) == 0


def cycle_start(step: int) -> int:
    """Return the steps that were made before the cycle of a step (from 1)."""
    return cycle_of(step) * (STEPS // CYCLES)


@dataclass(frozen=True)
class State:
    """A chain after some steps."""

    step: int
    index: int
    value: int
    noise: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        return {"step": self.step, "index": self.index, "value": torch.tensor(self.value), "noise_attempt": self.noise}

    @classmethod
    def of(cls, digest: str, stored: Mapping[str, Any] | None, start: float = 0.0) -> State:
        """Return the state of a checkpoint, or the chain's first one: a function of the sample that it starts at."""
        if stored is None:
            return cls(0, 0, (int(digest[:12], 16) + int(start)) % MODULUS, 0)
        return cls(stored["step"], stored["index"], int(stored["value"]), stored["noise_attempt"])

    def next(self) -> State:
        """Return it after one more step."""
        value = (self.value * MULTIPLIER + 97 * self.noise + 1) % MODULUS
        step = self.step + 1
        return State(step, self.index + (step in kept()), value, self.noise)


def sample(digest: str, state: State) -> Sample:
    """Return the sample that is complete at a state."""
    meta = SampleMeta(
        digest=digest, index=state.index - 1, cycle=cycle_of(state.step), epoch=state.step, step=state.step, lr=0.1,
        temperature=1.0, stage="sampling", train_nll=None, draws=BLOCK,
    )  # fmt: skip
    return Sample(meta=meta, tensors={"theta": torch.full((BLOCK, 1, 2), float(state.value % 2**40))})


def value_of(sample: Sample) -> float:
    """Return the number that a sample's tensors hold."""
    return float(sample.tensors["theta"][0, 0, 0])


@cache
def undisturbed(digest: str, diverges: int | None, at: float = 0.0) -> tuple[float, ...]:
    """Return the samples' values of a chain that nothing disturbs.

    With ``diverges`` it does so at that step on its first noise, and goes on from its cycle's start on another one.
    ``at`` is the value of the sample that it starts at.
    """
    state, start, found = State.of(digest, None, at), State.of(digest, None, at), []
    while state.step < STEPS:
        state = state.next()
        if state.step == diverges and state.noise == 0:
            state = State(start.step, start.index, start.value, 1)
            del found[state.index :]
            continue
        if state.step in kept():
            found.append(value_of(sample(digest, state)))
        if at_cycle_end(state.step):
            start = state
    return tuple(found)


def all_undisturbed(plan: Comparison, diverges: Mapping[str, int]) -> dict[str, tuple[float, ...]]:
    """Return `undisturbed` of every chain by digest; those that others start at come first."""
    found: dict[str, tuple[float, ...]] = {}
    for digest, spec in plan.chains().items():
        at = found[spec.start_chain][-1] if spec.start_chain is not None else 0.0
        found[digest] = undisturbed(digest, diverges.get(digest), at)
    return found
