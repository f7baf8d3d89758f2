"""The plan and state of experiments at a scale: the data that parts need, the chains that they share, the hours
spent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raychains.core.config import Compare
from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec
from raychains.papers.contents import missing_data
from raychains.papers.study import Part, Sampled, Study
from raychains.planning import gradient_evaluations
from raychains.planning.presets.arms import Planned, arms_of


class Unfit(UserError):
    """A scale cannot run a part, whatever data there are: the part is not run, and nothing is wrong."""


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """One part at a scale."""

    experiment: Study
    part: Part
    lacks: str
    """The data that it lacks, or why it is not run at this scale; empty where it can be run."""
    refused: str
    """The error of data that are there, or of an option; empty where there is none."""
    comparisons: Sequence[tuple[Sampled, Planned]]

    def chains(self) -> dict[str, ChainSpec]:
        """Return its unique chains by digest."""
        return {d: spec for _, planned in self.comparisons for d, spec in planned.comparison.chains().items()}

    def run_name(self, scale: str, number: int) -> str:
        """Return the run's name of its ``number``-th comparison; another plan has another name."""
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
    """Without the chains that the store holds."""
    chains: int
    chains_to_run: int

    @property
    def saved(self) -> int:
        """By chains that experiments share."""
        return self.alone - self.unique


@dataclass(frozen=True, kw_only=True)
class PlannedReproduction:
    """The parts that `reproduce` would run."""

    scale: str
    parts: Sequence[PlannedPart]
    finished: frozenset[str]
    """Digests of the chains that the store holds."""
    measured: Mapping[str, float]
    """Hours that stored results took, by experiment."""

    @property
    def ledger(self) -> Ledger:
        """Gradient evaluations of all of them together."""
        return ledger(self.parts, self.finished)


def plan(experiment: Study, scale: str, options: Compare) -> list[PlannedPart]:
    """Return the parts that an experiment has at a scale; the options say where and how chains run, not which.

    Raises:
        UserError: an option out of range.
    """
    return [_plan(experiment, part, scale, options) for part in experiment.parts if scale in part.scales]


def _plan(experiment: Study, part: Part, scale: str, options: Compare) -> PlannedPart:
    lacks, refused = missing_data(part.data), ""
    made: list[tuple[Sampled, Planned]] = []
    if not lacks:
        try:
            made = [(one, arms_of(one.preset, options)) for one in part.sampled(scale)]
        except Unfit as error:
            lacks = str(error)
        except UserError as error:
            refused = str(error)
    return PlannedPart(experiment=experiment, part=part, lacks=lacks, refused=refused, comparisons=made)


def outdated(about: Mapping[str, Any], parts: Sequence[PlannedPart]) -> list[str]:
    """Return why stored results are not those of the parts that would be run now; nothing where they are."""
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
"""Chains that run side by side on the machine that `Study.hours` are of."""


def measured(about: Mapping[str, Any] | None, scale: str, parts: Sequence[PlannedPart]) -> float | None:
    """Return the hours that stored results took, on a machine as of `Study.hours`; None if they are not whole or
    outdated.

    Chains that another experiment ran count here, too. Parts are those that would be run at the scale, of any
    experiments.
    """
    if about is None or about["scale"] != scale:
        return None
    mine = [one for one in parts if one.experiment.name == about["experiment"]]
    stored = [about["parts"].get(one.part.name, {}) for one in mine if not one.lacks]
    if not stored or any(s.get("status") != "done" for s in stored) or outdated(about, mine):
        return None
    return float(sum(max(s["chain_seconds"] / SLOTS[scale], s["seconds"]) for s in stored) / 3600)


def spent(state: Mapping[str, Any], earlier: Mapping[str, Any]) -> float:
    """Return the seconds of all calls until a part was done, from its states of this call and the one before, if of
    this revision.

    A call that finds it done adds nothing.
    """
    now: float = state["seconds"]
    if earlier.get("chains") != state["chains"]:
        return now
    return float(max(now, earlier["seconds"]) if earlier["status"] == "done" else round(now + earlier["seconds"], 1))


def ledger(parts: Sequence[PlannedPart], finished: Collection[str] = ()) -> Ledger:
    """Return what parts cost together, of one experiment or many, where the chains of these digests are finished."""
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
