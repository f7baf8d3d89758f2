"""Resources of chains and evaluators, and the number of slots that a cluster has for them; no sample depends on them.

Chains share a GPU by shares of it (`ResourceConfig.slots`, `Slots.with_largest_shares`), or as the rows of a pack
(`raychains.planning.packing.pack_width`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from raychains.coordination.capacity import ACCELERATOR, Capacity, Node, describe, fit
from raychains.coordination.failure import MAX_FAILURES, FailurePolicy, Policy
from raychains.coordination.failure import TIMEOUT as STALL_TIMEOUT
from raychains.core.errors import UserError, require, unknown_name
from raychains.evaluation.evaluation import BINS
from raychains.orchestration.cluster.workers import Cluster

if TYPE_CHECKING:
    from raychains.core.config import Common


@dataclass(frozen=True, kw_only=True)
class ResourceConfig:
    """Resources of chains and evaluators; none of it is in a digest. The options that they come from are checked where
    they are made."""

    cpus_per_chain: int = 1
    gpus_per_worker: float | None = None
    """GPUs of each of a chain's workers."""
    workers_per_chain: int = 1
    """Processes that run a chain together, each with so many CPUs and GPUs."""
    workers_field: str = "workers_per_chain"
    """The option that says how many they are."""
    evaluators: int | None = None
    """Number of evaluators; None: one for every two slots; one in all where they hold GPUs."""
    gpus_per_evaluator: float = 0.0
    accelerator_type: str | None = None
    """Type of the GPUs that chains and evaluators hold, as Ray names it; None is any."""
    concurrent: int | None = None
    """The most chains that may run at once; None is as many as the cluster holds."""
    slot_timeout: float | None = None
    """Seconds that a run of which no chain runs waits for a slot; None is
    `raychains.orchestration.run.resource_wait.TIMEOUT` for one that no node has, and without end for one that others
    hold."""
    stall_timeout: float = STALL_TIMEOUT
    """Seconds of silence that a chain or an evaluation is always allowed: see `raychains.coordination.failure`."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints of each chain; one is written at the ends of cycles as well."""
    max_failures: int = MAX_FAILURES
    """Losses in a row without progress that a chain survives; also the most restarts of one that diverges."""
    max_preemptions: int | None = None
    """Times that a chain leaves a draining node; None is any number."""
    on_divergence: Policy = "stop"
    data_root: str | None = None
    evaluate: bool = True
    bins: int = BINS
    """Bins of calibration errors."""
    keep_predictions: str = "auto"
    """Policy of predictions that stay in the store: auto, all or none."""

    @classmethod
    def of(cls, options: Common) -> ResourceConfig:
        """Return the part of a command's options that says on which resources chains and evaluators run.

        Raises:
            UserError: a share of a GPU that Ray cannot give, or a type of GPU that nothing uses.
        """
        found: dict[str, Any] = {f.name: getattr(options, f.name, None) for f in fields(cls)}
        found["workers_per_chain"] = options.workers
        return cls(**{name: value for name, value in found.items() if value is not None})

    def __post_init__(self) -> None:
        check_share(self.gpus_per_worker, "gpus_per_chain")
        check_share(self.gpus_per_evaluator, "gpus_per_evaluator")
        if self.accelerator_type is not None:
            require(bool(self.accelerator_type.strip()), "accelerator_type", self.accelerator_type, "be a type of GPU")
            used = self.gpus_per_worker != 0 or self.gpus_per_evaluator != 0
            require(used, "accelerator_type", self.accelerator_type, "be left out if nothing uses a GPU")

    @property
    def failure_policy(self) -> FailurePolicy:
        """What becomes of chains whose workers die, whose nodes drain, and that diverge."""
        return FailurePolicy(self.max_failures, self.on_divergence, self.max_preemptions)

    def slots(self, cluster: Cluster, *, run_chains: bool = True) -> Slots:
        """Return the cluster's slots now, beside the GPUs that evaluators hold.

        GPUs are used when the cluster has them, unless ``gpus_per_chain`` says otherwise. A cluster that adds nodes on
        demand may have none yet; one that was joined counts as such where ``concurrent`` says how many chains may run.

        Raises:
            UserError: a slot or a type of GPU that no part of the cluster holds, and it adds no nodes on demand.
        """
        everything, kind = cluster.nodes(), self.accelerator_type
        default = 1.0 if kind is not None or any(node.gpus for node in everything) else 0.0
        gpus = (self.gpus_per_worker if self.gpus_per_worker is not None else default) if run_chains else 0.0
        slots = Slots(
            cpus=self.cpus_per_chain,
            gpus=gpus,
            evaluators=self.evaluators or 1,
            others_gpus=self.gpus_per_evaluator * (self.evaluators or 1) if self.evaluate else 0.0,
            accelerator_type=kind,
            concurrent=self.concurrent,
            ranks=self.workers_per_chain if run_chains else 1,
            ranks_field=self.workers_field,
            grows=not cluster.started_here and (self.concurrent is not None or cluster.grows()),
            cluster=cluster,
        )
        if not slots.grows:
            _check_type(kind, everything)
            slots.check(cluster.nodes(kind), everything)
        return replace(slots, count=slots.room())


@dataclass(frozen=True, kw_only=True)
class Slots:
    """A slot: what one chain holds, and how many of them a cluster has."""

    cpus: float
    gpus: float
    count: int = 0
    """Number of slots at first."""
    others_gpus: float = 0.0
    """GPUs that evaluators hold, all of them together."""
    evaluators: int = 1
    """Number of evaluators that hold them."""
    accelerator_type: str | None = None
    """Type of the GPUs that chains and evaluators hold; None is any."""
    concurrent: int | None = None
    """The most chains that may run at once."""
    ranks: int = 1
    """Workers of one chain, each of which holds so much."""
    ranks_field: str = "workers_per_chain"
    """The option that says how many they are."""
    grows: bool = False
    """Chains wait for slots that no node has yet: an autoscaler adds nodes for them."""
    cluster: Cluster = field(repr=False, compare=False)

    def room(self) -> int:
        """Return how many chains the cluster can hold now, whoever else holds part of it; none where nodes went."""
        return self._most(self._fit(self._nodes()).chains // self.ranks)

    def with_largest_shares(self, chains: int) -> Slots:
        """Return these slots with each chain's share of a GPU as large as it can be without fewer of ``chains`` running
        at once: Ray fills a GPU before it uses the next.

        Only on a cluster that was started here: on another one, runs of others may hold the rest of every GPU.
        """
        if 0 < self.gpus < 1 and self.cluster.started_here:
            for k in range(1, round(1 / self.gpus)):
                larger = replace(self, gpus=1 / k)
                count = larger.room()
                if count >= self.at_once(chains):
                    return replace(larger, count=count)
        return self

    def bundle(self) -> dict[str, float]:
        """Return what one worker holds, as Ray's placement groups take it."""
        return bundle(self.cpus, self.gpus, self.accelerator_type)

    def requested(self, chains: int) -> int:
        """Return how many slots to ask the cluster for when so many chains run or could."""
        return self._most(chains) if self.grows else min(chains, self.room())

    def at_once(self, chains: int) -> int:
        """Return how many of so many chains run at once, as far as that is known; a cluster that grows holds them
        all."""
        return self._most(chains) if self.grows else min(chains, self.count)

    def node_of_evaluator(self, number: int) -> str | None:
        """Return the node on which an evaluator's GPU costs the fewest chains; None where none has room for it."""
        nodes = self._nodes()
        placed = self._fit(nodes).evaluators
        return nodes[placed[number]].id if number < len(placed) else None

    def describe(self) -> str:
        """Return what a slot is, for people: ``1 CPU``, ``1/2 GPU, 1 CPU``."""
        held = f"{self.cpus:g} CPU"
        if self.gpus:
            share = f"1/{round(1 / self.gpus)} GPU" if self.gpus < 1 else f"{self.gpus:g} GPU"
            kind = f" ({self.accelerator_type})" if self.accelerator_type else ""
            held = f"{share}{kind}, {held}"
        return held if self.ranks == 1 else f"{self.ranks} workers of {held}"

    def check(self, nodes: Sequence[Node], everything: Sequence[Node]) -> None:
        """Refuse a slot that none of ``nodes``, those whose GPUs count, holds."""
        cpus, gpus, total = self.cpus, self.gpus, sum(n.gpus for n in nodes)
        most_cpus, most_gpus = max((n.cpus for n in nodes), default=0.0), max((n.gpus for n in nodes), default=0.0)
        if gpus > total:
            raise UserError(f"gpus_per_chain must be at most the cluster's GPUs ({total:g}), got {gpus * self.ranks:g}")
        if gpus > most_gpus:
            raise UserError(f"gpus_per_chain must be at most the GPUs of one node ({most_gpus:g}), got {gpus:g}")
        if cpus > most_cpus:
            raise UserError(f"cpus_per_chain must be at most the CPUs of one node ({most_cpus:g}), got {cpus:g}")
        if gpus and not fit(nodes, cpus, gpus).chains:
            raise UserError(
                f"cpus_per_chain must be at most the CPUs of a node with {gpus:g} GPU, got {cpus:g}: the cluster has "
                f"{describe(nodes)}"
            )
        together = self._fit(nodes)
        if self.others_gpus and (not together.chains or len(together.evaluators) < self.evaluators):
            taken = f", of which a chain takes {gpus:g}" if gpus else ""
            raise UserError(
                f"evaluators × gpus_per_evaluator must fit into the cluster's GPUs ({total:g}{taken}), got "
                f"{self.others_gpus:g}"
            )
        if together.chains < self.ranks:
            raise UserError(
                f"{self.ranks_field} must be at most what the cluster holds ({together.chains}), got {self.ranks}: it "
                f"has {describe(everything)}"
            )

    def _nodes(self) -> list[Node]:
        return self.cluster.nodes(self.accelerator_type)

    def _fit(self, nodes: Sequence[Node]) -> Capacity:
        return fit(nodes, self.cpus, self.gpus, self.evaluators, self.others_gpus / self.evaluators)

    def _most(self, chains: int) -> int:
        return chains if self.concurrent is None else min(chains, self.concurrent)


def bundle(cpus: float, gpus: float, accelerator_type: str | None) -> dict[str, float]:
    """Return resources as Ray's placement groups take them."""
    held = {"CPU": float(cpus)}
    if gpus:
        held["GPU"] = gpus
        if accelerator_type is not None:
            held[f"{ACCELERATOR}{accelerator_type}"] = 0.001  # as Ray itself asks for a type
    return held


def check_share(gpus: float | None, field: str) -> None:
    """Refuse what Ray cannot give one chain or evaluator: neither 1/k of a GPU nor whole GPUs."""
    if gpus is not None:
        inverse = 1 / gpus if 0 < gpus < 1 else gpus
        whole = math.isfinite(inverse) and gpus >= 0 and abs(inverse - round(inverse)) < 1e-6
        require(whole, field, gpus, "be 1/k or a whole number")


def _check_type(accelerator_type: str | None, nodes: Sequence[Node]) -> None:
    kinds = sorted({node.accelerator for node in nodes if node.accelerator is not None and node.gpus})
    if accelerator_type is None or accelerator_type in kinds:
        return
    if kinds:
        raise unknown_name("accelerator_type", accelerator_type, kinds)
    raise UserError(
        f"accelerator_type must be left out, got {accelerator_type!r}: the cluster has no GPU whose type is known to "
        "Ray"
    )
