"""How far an experiment is at a scale: its parts' states, its plan, what it shares with others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raychains.errors import UserError
from raychains.experiments import presets
from raychains.options import Compare
from raychains.planning import gradient_evaluations
from raychains.published import presence
from raychains.published.experiment import Experiment, Part, Sampled
from raychains.spec import ChainSpec

if TYPE_CHECKING:
    from raychains.experiments.comparisons import Planned


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """One part at a scale."""

    experiment: Experiment
    part: Part
    lacks: str
    """Which data it lacks, or why its scale is none for it; empty where it can be run."""
    refused: str
    """What is wrong with data that are there, or with an option; empty where nothing is."""
    comparisons: Sequence[tuple[Sampled, Planned]]

    def chains(self) -> dict[str, ChainSpec]:
        """Its unique chains by digest."""
        return {d: spec for _, planned in self.comparisons for d, spec in planned.comparison.chains().items()}

    def run_name(self, scale: str, number: int) -> str:
        """Of its ``number``-th comparison, one for each plan: another plan does not meet this one's run."""
        digest = self.comparisons[number][1].comparison.digest[:8]
        return f"{scale}-{self.experiment.name}-{self.part.name}-{digest}"


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Gradient evaluations of several experiments."""

    alone: int
    """If each ran its own chains."""
    unique: int
    """With every chain once."""
    to_run: int
    """Without those that the store holds."""
    chains: int
    chains_to_run: int

    @property
    def saved(self) -> int:
        """By chains that experiments share."""
        return self.alone - self.unique


def plan(experiment: Experiment, scale: str, options: Compare) -> list[PlannedPart]:
    """The parts that an experiment has at a scale.

    Args:
        experiment: which.
        scale: at which.
        options: where and how chains run; what they are is the experiment's to say.

    Raises:
        UserError: an option out of range.
    """
    return [_plan(experiment, part, scale, options) for part in experiment.parts if scale in part.scales]


def _plan(experiment: Experiment, part: Part, scale: str, options: Compare) -> PlannedPart:
    lacks, refused = presence.lacks(part.data(scale)), ""
    made: list[tuple[Sampled, Planned]] = []
    if not lacks:
        try:
            made = [(one, presets.arms_of(one.preset, options)) for one in part.sampled(scale)]
        except presence.Unfit as error:
            lacks = str(error)
        except UserError as error:
            refused = str(error)
    return PlannedPart(experiment=experiment, part=part, lacks=lacks, refused=refused, comparisons=made)


def outdated(about: Mapping[str, Any], parts: Sequence[PlannedPart]) -> list[str]:
    """Why results that were stored are not those that would be run now; nothing where they are.

    Args:
        about: of the experiment's folder.
        parts: what would be run at its scale.
    """
    found = []
    for one in parts:
        stored = about["parts"].get(one.part.name)
        if stored is None or stored["status"] != "done" or one.lacks:
            continue
        if one.refused or sorted(one.chains()) != stored["chains"]:
            found.append(f"{one.part.name}: its chains' specs have changed since")
        if about["revision"] != one.experiment.revision:
            found.append(f"{one.part.name}: measured by revision {about['revision']}, now {one.experiment.revision}")
    return found


SLOTS = {"smoke": 2, "cpu": 2, "gpu": 1, "paper": 1}
"""Chains that run side by side on the machine that `Experiment.hours` are of."""


def measured(about: Mapping[str, Any] | None, scale: str, parts: Sequence[PlannedPart]) -> float | None:
    """Hours that stored results took, on a machine as that of `Experiment.hours`; None of what is not whole or outdated.

    Chains that another experiment ran count here, too.

    Args:
        about: of the experiment's folder, if there is one.
        scale: of the plan.
        parts: what would be run at it, of any experiments.
    """
    if about is None or about["scale"] != scale:
        return None
    mine = [one for one in parts if one.experiment.name == about["experiment"]]
    stored = [about["parts"].get(one.part.name, {}) for one in mine if not one.lacks]
    if not stored or any(s.get("status") != "done" for s in stored) or outdated(about, mine):
        return None
    return float(sum(max(s["chain_seconds"] / SLOTS[scale], s["seconds"]) for s in stored) / 3600)


def spent(state: Mapping[str, Any], earlier: Mapping[str, Any]) -> float:
    """Seconds of all calls until a part was done: one that finds it done adds nothing.

    Args:
        state: the part's, of this call.
        earlier: of the call before on the same folder, of the same revision; empty if there was none.
    """
    now: float = state["seconds"]
    if earlier.get("chains") != state["chains"]:
        return now
    return float(max(now, earlier["seconds"]) if earlier["status"] == "done" else round(now + earlier["seconds"], 1))


def ledger(parts: Sequence[PlannedPart], finished: Collection[str] = ()) -> Ledger:
    """What parts cost together.

    Args:
        parts: of one experiment or many.
        finished: digests of chains that the store holds.
    """
    by_experiment: dict[str, dict[str, ChainSpec]] = {}
    for one in parts:
        by_experiment.setdefault(one.experiment.name, {}).update(one.chains())
    unique = {d: spec for chains in by_experiment.values() for d, spec in chains.items()}
    return Ledger(
        alone=sum(_cost(chains) for chains in by_experiment.values()),
        unique=_cost(unique),
        to_run=_cost({d: spec for d, spec in unique.items() if d not in finished}),
        chains=len(unique),
        chains_to_run=len(unique.keys() - set(finished)),
    )


def _cost(chains: Mapping[str, ChainSpec]) -> int:
    return sum(gradient_evaluations(spec) for spec in chains.values())
