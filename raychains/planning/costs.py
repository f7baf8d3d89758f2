"""The cost of a comparison before anything is spent: gradient evaluations, device hours, money and bytes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from raychains import samplers, schedules
from raychains.chain.planned_network import Sizes, sizes
from raychains.chain.sample_index import expected_samples
from raychains.core.config import Plan
from raychains.core.errors import require
from raychains.core.spec import ChainSpec
from raychains.core.validation import is_number
from raychains.planning.budget import gradient_evaluations
from raychains.planning.comparison import Comparison
from raychains.store.chain_store import CHECKPOINTS_KEPT
from raychains.tasks import Task
from raychains.tasks.splits import check_evaluated


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The cost of the chains that are still to be run."""

    chains: int
    gradients: int
    """Gradient evaluations: per-example gradients."""
    samples: int
    sample_bytes: int
    checkpoint_bytes: int
    """Bytes of the checkpoints that lie in the store at a time: the last `CHECKPOINTS_KEPT` of each chain and one at a
    cycle's end."""
    prediction_bytes: int
    """Bytes of all samples' predictions on the comparison's split, as `--keep-predictions all` keeps them."""

    def device_hours(self, gradients_per_second: float) -> float:
        """Hours of one device at so many gradient evaluations a second, evaluation not counted.

        Raises:
            UserError: no positive number.
        """
        ok = is_number(gradients_per_second) and gradients_per_second > 0
        require(ok, "gradients_per_second", gradients_per_second, "be a finite number above 0")
        return self.gradients / gradients_per_second / 3600


def devices_of(options: Plan, costs: Costs) -> int:
    """Return the devices that a plan counts on: as given, else one for every worker of the chains to run."""
    return options.devices if options.devices is not None else max(1, costs.chains) * options.workers


def costs(comparison: Comparison, task: Task, finished: Collection[str] = ()) -> Costs:
    """The costs of a comparison, whose chains in ``finished`` are not run again."""
    specs = [spec for digest, spec in comparison.chains().items() if digest not in finished]
    known: dict[Any, Sizes] = {}
    totals = dict.fromkeys(("gradients", "samples", "sample_bytes", "checkpoint_bytes"), 0)
    for spec in specs:
        key = (spec.sampler, spec.precision, spec.lanes, spec.block_draws, spec.early_stop, spec.sample_only)
        if key not in known:
            known[key] = sizes(spec, task)
        kept = expected_samples(spec)
        totals["gradients"] += gradient_evaluations(spec)
        totals["samples"] += kept
        totals["sample_bytes"] += draws(spec) * known[key].sample
        totals["checkpoint_bytes"] += (CHECKPOINTS_KEPT + 1) * known[key].checkpoint
    evaluated = sum(expected_samples(spec) for digest, spec in comparison.of_arms().items() if digest not in finished)
    predictions = evaluated * predicted(task, comparison.split)
    return Costs(chains=len(specs), prediction_bytes=predictions, **totals)


def draws(spec: ChainSpec) -> int:
    """Draws of all variables that a chain stores: blocks hold several."""
    per_keep = sum(dict(samplers.variables(spec.sampler)).values())
    return schedules.build(spec.schedule).kept * per_keep


def predicted(task: Task, split: str) -> int:
    """Bytes that are kept of one sample's predictions of a split; 0 of densities."""
    if task.low_dimensional:
        return 0
    splits = task.splits()
    check_evaluated(splits, split, type(task).__name__)
    evaluation: Any = splits[split]
    return int(evaluation.predicted_bytes)
