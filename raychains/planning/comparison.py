"""A comparison: arms × repeats, as data. Each arm is one row of the table, with its cost as the paper writes it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raychains import samplers, schedules
from raychains.core.errors import UserError, require
from raychains.core.spec import ChainSpec, Part, digest_of
from raychains.core.user_code import imported, is_path
from raychains.core.validation import integer, is_number, positive_int

FACTS = {"sampler": ("variables", "gradients_per_step"), "schedule": ("kept", "cycle_count")}
"""Facts of users' classes that a plan stores, since its readers do not import them."""


def run_name(task: str, digest: str) -> str:
    """Return a plan's default name: its task, as a folder may be called, and the first digits of its digest."""
    folder = re.sub(r"[^A-Za-z0-9._]+", "-", task).strip("-._")[:80]
    return f"{folder or 'task'}-{digest[:8]}"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """n chains per repeat under one sampler and one schedule."""

    name: str
    """Unique in the comparison: ``sghmc-cyclical-parallel-200``."""
    label: str
    """For people: ``cSGHMC, 4 chains``."""
    sampler: str
    schedule: str
    chains: tuple[tuple[ChainSpec, ...], ...]
    """Per group of repeats the arm's chains; a group holds as many repeats as its chains have lanes."""
    length: int
    """Epochs of each chain, or steps where the task has no epochs."""
    published: Mapping[str, str]
    """Published values by metric, as printed in the paper; empty when there are none."""
    variables: tuple[str, ...] = ()
    """Whose draws it predicts with, of a sampler that has several (``theta``, ``anchor``); empty is all of them."""
    shares: tuple[float, ...] = ()
    """Share of each chain of a group in the arm's predictive, sum 1, which its samples divide evenly; empty weighs all
    samples the same."""

    @property
    def repeats(self) -> int:
        return sum(group[0].lanes for group in self.chains)

    def takes(self, variable: str) -> bool:
        """Return whether draws of this variable belong to the arm."""
        return not self.variables or variable in self.variables

    def weights(self, digests: Sequence[str]) -> list[float] | None:
        """Return the weights of samples of the chains with these digests, sum 1; None where all weigh the same."""
        if not self.shares:
            return None
        of_chain = {spec.digest: share for group in self.chains for spec, share in zip(group, self.shares, strict=True)}
        counts = Counter(digests)
        found = [of_chain[digest] / counts[digest] for digest in digests]
        total = math.fsum(found)
        return [weight / total for weight in found]

    def per_repeat(self, group: int, by_digest: Mapping[str, float]) -> float:
        """Return the sum of whole chains' numbers over a group's chains and those that they start at, of one repeat:
        lanes are repeats."""
        specs = self.chains[group]
        digests = dict.fromkeys(d for s in specs for d in (s.start_chain, s.digest) if d is not None)
        return sum(by_digest.get(digest, 0.0) for digest in digests) / specs[0].lanes

    @property
    def cost(self) -> str:
        """Cost of one repeat as in the paper: length per chain / length of all chains."""
        return f"{self.length}/{self.length * len(self.chains[0])}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The plan that `raychains compare` (several arms) or `run` (one arm) computes."""

    task: str
    """Short name or import path, for people."""
    unit: str
    """``epochs`` or ``steps``: what an arm's length counts."""
    split: str
    """The split that arms are evaluated on."""
    arms: tuple[Arm, ...]
    starts: Mapping[str, ChainSpec] = field(default_factory=dict)
    """The chains by digest that chains of the arms start at; they may belong to arms themselves."""

    def __post_init__(self) -> None:
        names = [a.name for a in self.arms]
        if len(set(names)) != len(names):
            raise UserError(f"arms must differ, got {', '.join(names)}")
        for spec in self.of_arms().values():
            start = self.starts.get(spec.start_chain) if spec.start_chain is not None else None
            if spec.start_chain is not None and (start is None or start.start_chain is not None):
                raise UserError(
                    f"plan: chain {spec.digest[:12]} must start at a chain of the plan that starts at none itself, "
                    f"got {spec.start_chain[:12]}"
                )

    @property
    def task_spec(self) -> Any:
        """The `TaskSpec` of the first chain; others may differ in settings that leave data and splits alone."""
        return self.arms[0].chains[0][0].task

    def chains(self) -> dict[str, ChainSpec]:
        """The unique chains by digest, those that others start at first: repeat by repeat and arm by arm, so that the
        first repeats finish early."""
        found: dict[str, ChainSpec] = {}
        for group in range(max(len(a.chains) for a in self.arms)):
            for arm in self.arms:
                if group < len(arm.chains):
                    found |= {d: spec for d, spec in self.needed(arm.chains[group]).items() if d not in found}
        return found

    def of_arms(self) -> dict[str, ChainSpec]:
        """Return the unique chains by digest that arms are evaluated with, in no certain order."""
        return {spec.digest: spec for arm in self.arms for group in arm.chains for spec in group}

    def needed(self, specs: Iterable[ChainSpec]) -> dict[str, ChainSpec]:
        """Return chains by digest after those that they start at."""
        listed = list(specs)
        starts = [self.starts[spec.start_chain] for spec in listed if spec.start_chain is not None]
        return {spec.digest: spec for spec in (*starts, *listed)}

    @property
    def cost_is_length(self) -> bool:
        """True where the arms' lengths are their cost: no chain stops early, and none starts at another."""
        return not self.starts and all(spec.early_stop is None for spec in self.of_arms().values())

    @property
    def run_name(self) -> str:
        """One name for one plan."""
        return run_name(self.task, self.digest)

    @property
    def digest(self) -> str:
        """Identifies what is computed: chains, arms and split, not how they are called for people."""
        arms = [
            [
                a.name,
                [[spec.digest for spec in group] for group in a.chains],
                *([list(a.variables)] if a.variables else []),
                *([{"shares": list(a.shares)}] if a.shares else []),
            ]
            for a in self.arms
        ]
        return digest_of({"task": self.task, "split": self.split, "arms": arms})

    def to_json(self) -> dict[str, Any]:
        """Plain data; chains by digest, each spec once."""
        return {
            "task": self.task,
            "unit": self.unit,
            "split": self.split,
            "chains": {digest: spec.to_json() for digest, spec in self.chains().items()},
            **({"facts": facts} if (facts := self._facts()) else {}),
            "arms": [
                {
                    "name": a.name,
                    "label": a.label,
                    "sampler": a.sampler,
                    "schedule": a.schedule,
                    "length": a.length,
                    "published": dict(a.published),
                    "chains": [[spec.digest for spec in group] for group in a.chains],
                    **({"variables": list(a.variables)} if a.variables else {}),
                    **({"shares": list(a.shares)} if a.shares else {}),
                }
                for a in self.arms
            ],
        }

    def _facts(self) -> dict[str, Any]:
        """Return, by digest, what readers need to know of users' samplers and schedules, since they do not import
        them."""
        found = {}
        for digest, spec in self.chains().items():
            own = {name: room.facts(part) for name, room, part in _parts(spec) if is_path(part.kind)}
            if own:
                found[digest] = own
        return found

    @classmethod
    def from_json(cls, data: Any) -> Comparison:
        """The comparison that `to_json` wrote; users' classes that it names are not imported.

        Raises:
            UserError: a field is missing or of the wrong kind, or a chain's spec differs from its digest.
        """
        try:
            facts = data.get("facts", {})
            specs = {d: _with_facts(ChainSpec.from_json(spec), facts.get(d, {})) for d, spec in data["chains"].items()}
            arms = tuple(
                Arm(
                    **{
                        **a,
                        "chains": tuple(tuple(specs[d] for d in group) for group in a["chains"]),
                        "variables": tuple(a.get("variables", ())),
                        "shares": tuple(a.get("shares", ())),
                    }
                )
                for a in data["arms"]
            )
            used = {s.start_chain for arm in arms for group in arm.chains for s in group if s.start_chain is not None}
            starts = {digest: specs[digest] for digest in sorted(used)}
            made = cls(task=data["task"], unit=data["unit"], split=data["split"], arms=arms, starts=starts)
            for digest, spec in specs.items():
                if spec.digest != digest:
                    raise UserError(f"plan: chain {digest[:12]!r} holds the spec of {spec.digest[:12]}")
            _check(made)
        except UserError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            raise UserError(
                f"plan: not a comparison that this version reads ({type(error).__name__}: {error})"
            ) from None
        return made


def _parts(spec: ChainSpec) -> list[tuple[str, Any, Part]]:
    return [("sampler", samplers, spec.sampler), ("schedule", schedules, spec.schedule)]


def _with_facts(spec: ChainSpec, stored: Mapping[str, Any]) -> ChainSpec:
    """Return a spec whose users' parts have the facts that a plan stores of them.

    Raises:
        UserError: a number of the wrong kind.
    """
    for name, _, part in _parts(spec):
        if name in stored and is_path(part.kind):
            facts = {fact: stored[name][fact] for fact in FACTS[name]}
            for fact, value in (facts | facts.get("variables", {})).items():
                if fact != "variables":
                    integer(f"plan: {fact} of {part.kind}", value, 1)
            own: dict[str, Any] = {name: replace(part, facts=facts)}
            spec = replace(spec, **own)
    return spec


def _check(made: Comparison) -> None:
    """Refuse values of a stored plan that do not have the annotated types."""
    texts = {"task": made.task, "unit": made.unit, "split": made.split}
    for arm in made.arms:
        texts |= _check_arm(arm, made.starts)
    for name, text in texts.items():
        if not isinstance(text, str) or any(
            "\ud800" <= c <= "\udfff" for c in text
        ):  # no file or figure holds half a pair
            raise UserError(f"plan: {name} must be a text, got {text!r}")
    specs = [spec.task for spec in made.chains().values()] if made.arms else []
    if len({(task.kind, task.revision, task.fingerprint) for task in specs}) != 1:
        raise UserError("plan: it must have at least one arm, and all its chains one task")


def _check_arm(arm: Arm, starts: Mapping[str, ChainSpec]) -> dict[str, Any]:
    """Refuse values of a stored arm that do not have the annotated types; return what must be texts."""
    texts = {f"{f} of an arm": getattr(arm, f) for f in ("name", "label", "sampler", "schedule")}
    if not isinstance(arm.published, dict):
        raise UserError(f"plan: published of an arm must be an object, got {arm.published!r}")
    texts |= {f"published {metric}": text for metric, text in arm.published.items()}
    if not isinstance(arm.length, int) or isinstance(arm.length, bool) or arm.length < 1:
        raise UserError(f"plan: length of an arm must be an integer of at least 1, got {arm.length!r}")
    if len({(len(group), spec.lanes) for group in arm.chains for spec in group}) != 1 or not all(arm.chains):
        raise UserError("plan: the groups of an arm must hold equally many chains, at least one, of equal lanes")
    ok = len(arm.shares) in (0, len(arm.chains[0])) and all(is_number(s) and 0 < s <= 1 for s in arm.shares)
    require(ok, "plan: shares of an arm", arm.shares, "be a number in (0, 1] for each of its chains")
    for spec in {id(s): s for s in (*starts.values(), *(s for group in arm.chains for s in group))}.values():
        _check_parts(spec)
        known = samplers.variables(spec.sampler) if arm.variables else {}
        if not all(isinstance(v, str) and v in known for v in arm.variables):
            raise UserError(f"plan: variables of an arm must be among {', '.join(known)}, got {arm.variables!r}")
    return texts


def _check_parts(spec: ChainSpec) -> None:
    if any(is_path(p.kind) and p.facts is None and imported(p.kind) is None for _, _, p in _parts(spec)):
        return  # an older version's plan, whose tables are read without these classes
    if schedules.build(spec.schedule).steps != spec.steps:
        raise UserError(f"plan: the schedule must have the chain's {spec.steps} steps")
    samplers.variables(spec.sampler)
    settings = spec.sampler.settings
    if "num_data" in settings:
        positive_int("num_data", settings["num_data"])
    for name in ("momentum", "weight_decay"):
        require(is_number(settings.get(name, 0.0)), name, settings.get(name), "be a finite number")
