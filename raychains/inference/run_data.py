"""A run's results, chains and metrics, read from the store once: what reports and figures are drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from raychains import schedules
from raychains.chain.sample_index import expected_samples
from raychains.core.errors import RaychainsError, UserError
from raychains.core.spec import ChainSpec
from raychains.evaluation.evaluation import Evaluation, Metric
from raychains.inference import results
from raychains.inference.predictive import dropped_chains
from raychains.planning import Arm, Comparison
from raychains.plotting.arm_styles import ArmStyles
from raychains.store import ChainStore, RunStore
from raychains.store.chain_store import preemptions

if TYPE_CHECKING:
    import pandas as pd

NOT_METRICS = {"arm", "group", "repeat", "samples", "chains", "chain_seconds", "gradients"}
"""The columns of results.parquet that describe a row."""


@dataclass(frozen=True)
class RunData:
    """A run's results and chains."""

    store: RunStore
    comparison: Comparison

    @cached_property
    def arm_styles(self) -> ArmStyles:
        """The arms' styles in figures."""
        return ArmStyles(self.comparison)

    @property
    def repeated(self) -> bool:
        """True if an arm has several repeats."""
        return any(arm.repeats > 1 for arm in self.comparison.arms)

    @property
    def over_repeats(self) -> str:
        """Words of captions on means: none where there is one repeat."""
        return ", mean over the repeats" if self.repeated else ""

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
        return tuple(m for m in metrics_of(self.store, self.comparison, columns) if m.name in columns)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics of the comparison's table and of figures."""
        return tuple(m for m in self.measured if not m.minor)

    @property
    def minor(self) -> tuple[Metric, ...]:
        """Metrics of the second table only."""
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
        """True if draws are stored in blocks, as those of a density are."""
        return self.comparison.arms[0].chains[0][0].block_draws > 0

    def of(self, table: pd.DataFrame, arm: Arm) -> pd.DataFrame:
        """One arm's part of `results` or `curves`."""
        return table[table["arm"] == arm.name] if len(table) else table

    def chain(self, digest: str) -> ChainStore:
        """A chain's folder."""
        return ChainStore(self.store.root, digest)

    def losses(self, spec: ChainSpec) -> list[tuple[int, float]]:
        """Steps and training losses that a chain recorded."""
        return [(r["step"], r["loss"]) for r in self.chain(spec.digest).progress() if r.get("loss") is not None]

    def chains(self, arm: Arm) -> list[ChainSpec]:
        """The chains of an arm's first repeats, without those that the run dropped."""
        return [spec for spec in arm.chains[0] if spec.digest not in self._dropped]

    def draws(self, arm: Arm) -> int:
        """Draws that one repeat of an arm keeps."""
        return sum(schedules.build(spec.schedule).kept for spec in self.chains(arm))

    @cached_property
    def _dropped(self) -> set[str]:
        found = dropped_chains(self.store, self.comparison)
        return found - self.finished if found else found

    @cached_property
    def finished(self) -> frozenset[str]:
        """Digests of the chains whose samples are all in the store."""
        return frozenset(
            digest
            for digest, spec in self.comparison.chains().items()
            if self.chain(digest).finished(expected_samples(spec))
        )

    @cached_property
    def _records(self) -> list[dict[int, dict[str, Any]]]:
        """For each chain that ever began the records of its attempts by number; a torn one is empty."""
        found = [self.chain(digest).attempts() for digest in self.comparison.chains()]
        return [attempts for attempts in found if attempts]

    @property
    def restarted(self) -> int:
        """Chains that took more than one attempt: they were resumed, or their worker was lost."""
        return sum(len(attempts) > 1 for attempts in self._records)

    @property
    def preemptions(self) -> int:
        """Times that chains left a draining node."""
        return sum(map(preemptions, self._records))

    @property
    def environments(self) -> list[tuple[str, int]]:
        """Environments that chains ran in, and the number of chains; the most frequent first."""
        return Counter(_describe(attempts[max(attempts)]) for attempts in self._records).most_common()


def planned_metrics(comparison: Comparison) -> list[dict[str, Any]] | None:
    """The metrics of the comparison's split as a plan stores them; None where the task's data are not on this
    machine."""
    from raychains import tasks
    from raychains.data.fetch import without_downloads

    try:
        with without_downloads():
            metrics = tasks.build(comparison.task_spec).splits()[comparison.split].metrics
    except (RaychainsError, OSError, KeyError):
        return None
    return [metric.to_json() for metric in metrics]


def read_metrics(plan: Mapping[str, Any]) -> tuple[Metric, ...] | None:
    """The metrics that a plan stores; None for a plan of an older version, and where they cannot be read."""
    try:
        found = tuple(Metric(**stored) for stored in plan["metrics"] or ())
    except (KeyError, TypeError, UserError):
        return None
    return found or None


def metrics_of(store: RunStore, comparison: Comparison, measured: Collection[str] = ()) -> tuple[Metric, ...]:
    """The metrics of a run, from its plan; from its task, or from the columns ``measured``, where an older version
    planned it."""
    from raychains import tasks

    stored = read_metrics(store.plan()) if store.exists() else None
    known = tasks.is_known(comparison.task_spec)
    if stored is None and known and (planned := planned_metrics(comparison)) is not None:
        stored = tuple(Metric(**metric) for metric in planned)
    return built_in_metrics(measured) if stored is None else stored


def built_in_metrics(measured: Collection[str]) -> tuple[Metric, ...]:
    """The metrics of the built-in evaluation that has most of ``measured``."""
    from raychains.evaluation.classification import Classification, OutOfDistribution
    from raychains.evaluation.exact import ModeCoverage, ModeShare
    from raychains.evaluation.moments import GaussianMoments, SampledMoments
    from raychains.evaluation.position_classification import Positions
    from raychains.evaluation.regression import Pointwise, Regression

    kinds: list[type[Evaluation]] = [Classification, Regression, Pointwise, OutOfDistribution, Positions]
    kinds += [ModeCoverage, ModeShare, GaussianMoments, SampledMoments]
    return max(kinds, key=lambda kind: len({m.name for m in kind.metrics} & set(measured))).metrics


def _describe(record: Mapping[str, Any]) -> str:
    stored = record.get("environment")
    e = stored if isinstance(stored, dict) else {}
    parts = [f"torch {e.get('torch', '?')}", "CPU" if e.get("device") == "cpu" else str(e.get("device", "?"))]
    if e.get("cuda"):
        parts.append(f"CUDA {e['cuda']}")
    elif e.get("cpu_capability"):
        parts.append(str(e["cpu_capability"]))
    if threads := e.get("threads"):
        parts.append(f"{threads} thread{'s' * (threads != 1)}")
    return ", ".join(parts)
