"""Chains that were given up, and divergences that fresh noise cured: what the page says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raychains.divergence import Diagnosis
from raychains.errors import RaychainsError
from raychains.report.material import Material


@dataclass(frozen=True)
class Trouble:
    """One chain's, in a line."""

    digest: str
    arms: list[str]
    """Labels of the arms that have the chain."""
    line: str
    details: str = ""
    """A traceback, where there is one."""


def of(material: Material) -> list[Trouble]:
    """Of the run's chains in their order: failures first, then what was cured. A chain that finished since is none."""
    table = material.store.table("failed")
    reasons = {row["digest"]: str(row["reason"]) for row in table.to_pylist()} if table is not None else {}
    given_up = {d: r for d, r in reasons.items() if d not in material.finished}
    chains = material.comparison.chains()
    found = [_failed(material, digest, given_up[digest]) for digest in chains if digest in given_up]
    for digest in chains:
        sentences = [_sentence(d) for d in material.chain(digest).diagnoses()] if digest not in given_up else []
        for n, sentence in enumerate(sentences, start=1):
            more = f"restart {n} with fresh noise followed" if digest in material.finished else "unfinished so far"
            found.append(Trouble(digest, _arms(material, digest), f"{sentence} ({more})"))
    return found


def _failed(material: Material, digest: str, reason: str) -> Trouble:
    lines = reason.splitlines() or ["no reason given"]
    return Trouble(digest, _arms(material, digest), lines[-1], reason if len(lines) > 1 else "")


def _sentence(diagnosis: Mapping[str, Any]) -> str:
    try:
        return Diagnosis.from_json(diagnosis).sentence()
    except (RaychainsError, TypeError, ValueError, KeyError):  # a later version's, or not ours
        return str(diagnosis.get("error", "it diverged"))


def _arms(material: Material, digest: str) -> list[str]:
    arms = material.comparison.arms
    return [arm.label for arm in arms if any(spec.digest == digest for group in arm.chains for spec in group)]
