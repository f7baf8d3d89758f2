"""Published and exact values beside which a run's results stand, and their explanations."""

from __future__ import annotations

from raychains import schedules, tasks
from raychains.planning import Arm, Comparison
from raychains.tasks.mixture import AXIS, MORE_THAN

MODES = len(AXIS) ** 2


def is_mixture(comparison: Comparison) -> bool:
    """Return whether the run samples the mixture of 25 Gaussians."""
    return bool(comparison.task_spec.kind == tasks.NAMES["mixture25"])


def expected_modes(arm: Arm) -> float | None:
    """E[modes] = 25·(1 − .96^k) when each of k cycles (or chains without them) lands in a random mode.

    None where that says nothing: without noise, or with too few draws per cycle to cover any mode.
    """
    schedule = schedules.build(arm.chains[0][0].schedule)
    visits = schedule.cycle_count * len(arm.chains[0])
    if schedule.temperature == 0 or schedule.kept / schedule.cycle_count <= MORE_THAN:
        return None
    return MODES * (1 - (1 - 1 / MODES) ** visits)


def notes(comparison: Comparison) -> list[str]:
    """Sentences for the table's caption."""
    published = any(arm.published for arm in comparison.arms)
    if not is_mixture(comparison):
        text = "Published: the paper's value for this arm, where it was run with the paper's settings."
        return [text] if published else []
    theory = (
        "Exact theory: the expected number of modes when every cycle (or every chain without cycles) ends "
        "in a mode drawn uniformly and independently, E = 25·(1 − 0.96^k) for k of them: 1 for one "
        "decreasing chain, 3.77 for four, 17.65 for 30 cycles and 24.81 for 120. A correct sampler comes "
        "close to it."
    )
    paper = (
        "Published: cSG-MCMC (Zhang et al., ICLR 2020), Table 4, mean ± standard error of 10 runs. Its 6.7 "
        "for one cyclical and 18 for four decreasing chains differ from the theory and are not expected "
        "here."
    )
    return [theory, paper] if published else [theory]
