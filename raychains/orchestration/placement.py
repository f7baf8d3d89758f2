"""Where and how chains run and are evaluated; nothing of it changes a sample."""

from __future__ import annotations

from dataclasses import dataclass

from raychains.errors import require, unknown_name
from raychains.orchestration import session
from raychains.planning.failure import MAX_FAILURES, POLICIES, Policy
from raychains.schedules.base import positive, positive_int

MOST_BINS = 1000
"""Of a calibration error: more say nothing about any split that people have."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and how chains run; nothing of it is in a digest."""

    cpus_per_chain: int = 1
    gpus_per_chain: float | None = None
    """Of each of a chain's workers."""
    workers_per_chain: int = 1
    """Processes that run a chain together, each with so many CPUs and GPUs."""
    evaluators: int | None = None
    """None: one for every two slots; one in all where they hold GPUs."""
    gpus_per_evaluator: float = 0.0
    decoders: int | None = None
    """Actors of one CPU that decode pictures for all chains; None: processes beside each chain do."""
    accelerator_type: str | None = None
    """Of the GPUs that chains and evaluators hold, as Ray names it; None is any."""
    concurrent: int | None = None
    """The most chains that may run at once; None is as many as the cluster holds."""
    slot_timeout: float | None = None
    """Seconds that a run of which no chain runs waits for a slot; None is `raychains.orchestration.shortage.TIMEOUT` for
    one that no node has, and without end for one that others hold."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints of each chain; one is written at the ends of cycles as well."""
    max_failures: int = MAX_FAILURES
    """Losses in a row without progress that a chain survives; also the most restarts of one that diverges."""
    on_divergence: Policy = "stop"
    data_root: str | None = None
    evaluate: bool = True
    bins: int = 15
    """Of calibration errors, at most `MOST_BINS`."""
    keep_predictions: str = "auto"
    """Which predictions stay in the store: `raychains.store.predictions.POLICIES`."""

    def __post_init__(self) -> None:
        from raychains.store.predictions import check_policy

        positive_int("cpus_per_chain", self.cpus_per_chain)
        positive("checkpoint_every", self.checkpoint_every)
        ok = isinstance(self.max_failures, int) and not isinstance(self.max_failures, bool) and self.max_failures >= 0
        require(ok, "max_failures", self.max_failures, "be an integer of at least 0")
        if self.on_divergence not in POLICIES:
            raise unknown_name("on_divergence", self.on_divergence, POLICIES)
        if self.evaluators is not None:
            positive_int("evaluators", self.evaluators)
        if self.decoders is not None:
            positive_int("decoders", self.decoders)
        session.check_share(self.gpus_per_chain)
        positive_int("workers_per_chain", self.workers_per_chain)
        ok = self.workers_per_chain == 1 or self.gpus_per_chain is None or self.gpus_per_chain <= 1
        require(ok, "gpus_per_chain", self.gpus_per_chain, "be at most 1 for each of several workers_per_chain")
        session.check_share(self.gpus_per_evaluator, "gpus_per_evaluator")
        if self.concurrent is not None:
            positive_int("concurrent", self.concurrent)
        if self.slot_timeout is not None:
            positive("slot_timeout", self.slot_timeout)
        if self.accelerator_type is not None:
            require(bool(self.accelerator_type.strip()), "accelerator_type", self.accelerator_type, "be a type of GPU")
            used = self.gpus_per_chain != 0 or self.gpus_per_evaluator != 0
            require(used, "accelerator_type", self.accelerator_type, "be left out where nothing holds a GPU")
        ok = isinstance(self.bins, int) and not isinstance(self.bins, bool) and 1 <= self.bins <= MOST_BINS
        require(ok, "bins", self.bins, f"be an integer in [1, {MOST_BINS}]")
        check_policy(self.keep_predictions)

    def slots(self, *, run_chains: bool = True) -> session.Slots:
        """The cluster's slots now, beside the GPUs that evaluators hold. Ray must be connected.

        Raises:
            UserError: no part of the cluster holds one, and it adds no nodes on demand.
        """
        number = self.evaluators or 1
        return session.slots(
            self.cpus_per_chain,
            self.gpus_per_chain if run_chains else 0.0,
            self.gpus_per_evaluator * number if self.evaluate else 0.0,
            evaluators=number,
            accelerator_type=self.accelerator_type,
            concurrent=self.concurrent,
            ranks=self.workers_per_chain if run_chains else 1,
            decoders=(self.decoders or 0) if run_chains else 0,
        )
