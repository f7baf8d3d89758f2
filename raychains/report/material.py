"""Everything that the page draws from, read from the store once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from raychains import schedules
from raychains.errors import RaychainsError
from raychains.evaluation.base import Evaluation, Metric
from raychains.planning import Arm, Comparison
from raychains.positions import expected_samples
from raychains.report import results
from raychains.report.looks import Looks
from raychains.store import ChainStore, RunStore

if TYPE_CHECKING:
    import pandas as pd

NOT_METRICS = {"arm", "group", "repeat", "samples", "chains", "chain_seconds"}
"""The columns of results.parquet that describe a row."""


@dataclass(frozen=True)
class Material:
    """A run's results and chains."""

    store: RunStore
    comparison: Comparison

    @cached_property
    def looks(self) -> Looks:
        """How the arms look in figures."""
        return Looks(self.comparison)

    @cached_property
    def results(self) -> pd.DataFrame:
        """Metrics per arm and repeat; empty before any arm is evaluated."""
        return results.read(self.store, "results")

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Metrics of the first n samples per arm and repeat."""
        return results.read(self.store, "curves")

    @cached_property
    def views(self) -> pd.DataFrame:
        """Metrics per view and repeat; empty where only the view of all samples was evaluated."""
        return results.read(self.store, "views")

    @cached_property
    def rows(self) -> pa.Table | None:
        """One row per arm, group and example (or lane)."""
        return self.store.table("rows")

    @cached_property
    def measured(self) -> tuple[Metric, ...]:
        """Every measured metric in the order of the task's evaluation."""
        columns = set(self.results.columns) - NOT_METRICS
        return tuple(m for m in metrics_of(self.comparison, columns) if m.name in columns)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Those of the comparison's table and of figures."""
        return tuple(m for m in self.measured if not m.minor)

    @property
    def minor(self) -> tuple[Metric, ...]:
        """Those of the second table only."""
        return tuple(m for m in self.measured if m.minor)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per arm: see `results.summary`."""
        return results.summary(self.comparison, self.results, self.measured)

    @cached_property
    def plan(self) -> Mapping[str, Any]:
        """The run's plan as stored; empty when the page is drawn for a folder without one."""
        return self.store.plan() if self.store.exists() else {}

    @property
    def unit(self) -> str:
        """``epoch`` or ``step``."""
        return self.comparison.unit.removesuffix("s")

    @property
    def by_blocks(self) -> bool:
        """Whether draws are stored in blocks, as those of a density are."""
        return self.comparison.arms[0].chains[0][0].block_draws > 0

    def of(self, table: pd.DataFrame, arm: Arm) -> pd.DataFrame:
        """One arm's part of `results` or `curves`."""
        return table[table["arm"] == arm.name] if len(table) else table

    def chain(self, digest: str) -> ChainStore:
        """A chain's folder."""
        return ChainStore(self.store.root, digest)

    def draws(self, arm: Arm) -> int:
        """Draws that one repeat of an arm keeps."""
        return sum(schedules.build(spec.schedule).kept for spec in arm.chains[0])

    @cached_property
    def finished(self) -> frozenset[str]:
        """Digests of the chains whose samples are all in the store."""
        return frozenset(
            digest
            for digest, spec in self.comparison.chains().items()
            if self.chain(digest).finished(expected_samples(spec))
        )

    @cached_property
    def _records(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Per chain that ever began: the number of incarnations, and the record of the last."""
        found: list[tuple[int, Mapping[str, Any]]] = []
        for digest in self.comparison.chains():
            chain = self.chain(digest)
            if last := chain.last_incarnation():
                try:
                    found.append((last, chain.incarnation(last)))
                except RaychainsError:  # a torn record says nothing of where the chain ran
                    found.append((last, {}))
        return found

    @property
    def restarted(self) -> int:
        """Chains that took more than one incarnation: they were resumed, or their worker was lost."""
        return sum(1 for n, _ in self._records if n > 1)

    @property
    def environments(self) -> list[tuple[str, int]]:
        """What chains ran on, and how many of them; the most frequent first."""
        return Counter(_describe(record) for _, record in self._records).most_common()


def metrics_of(comparison: Comparison, measured: Collection[str] = ()) -> tuple[Metric, ...]:
    """The task's metrics; where its data are not on this machine, those of the built-in evaluation that has most of ``measured``."""
    from raychains import tasks
    from raychains.data.fetch import without_downloads

    try:
        with without_downloads():
            return tasks.build(comparison.task_spec).splits()[comparison.split].metrics
    except (RaychainsError, OSError, KeyError):
        return built_in_metrics(measured)


def built_in_metrics(measured: Collection[str]) -> tuple[Metric, ...]:
    """The metrics of the built-in evaluation that has most of ``measured``."""
    from raychains.evaluation.classification import Classification
    from raychains.evaluation.mode_share import ModeShare
    from raychains.evaluation.modes import ModeCoverage
    from raychains.evaluation.moments import GaussianMoments
    from raychains.evaluation.out_of_distribution import OutOfDistribution
    from raychains.evaluation.pointwise import Pointwise
    from raychains.evaluation.regression import Regression
    from raychains.evaluation.sampled import SampledMoments

    kinds: tuple[type[Evaluation], ...] = (
        Classification, Regression, Pointwise, OutOfDistribution, ModeCoverage, ModeShare, GaussianMoments,
        SampledMoments,
    )  # fmt: skip
    return max(kinds, key=lambda kind: len({m.name for m in kind.metrics} & set(measured))).metrics


def _describe(record: Mapping[str, Any]) -> str:
    told = record.get("environment")
    e = told if isinstance(told, dict) else {}
    parts = [f"torch {e.get('torch', '?')}", "CPU" if e.get("device") == "cpu" else str(e.get("device", "?"))]
    if e.get("cuda"):
        parts.append(f"CUDA {e['cuda']}")
    elif e.get("cpu_capability"):
        parts.append(str(e["cpu_capability"]))
    if threads := e.get("threads"):
        parts.append(f"{threads} thread{'s' * (threads > 1)}")
    return ", ".join(parts)
