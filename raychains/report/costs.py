"""What a person sees of `raychains plan`."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from raychains.options import Plan
from raychains.planning import Budget, Comparison, gradient_evaluations
from raychains.planning.costs import Costs


def show(
    console: Console, options: Plan, comparison: Comparison, budget: Budget, costs: Costs, rate: float | None
) -> None:
    """The arms, then what is still to be paid for."""
    table = Table(box=box.SIMPLE, title=f"{comparison.task}: the plan", title_justify="left")
    for name in ("arm", "repeats", "chains", f"{comparison.unit} per chain/total", "gradient evaluations"):
        table.add_column(name, justify="left" if name == "arm" else "right")
    for arm in comparison.arms:
        specs = [spec for group in arm.chains for spec in group]
        gradients = sum(gradient_evaluations(spec) for spec in specs)
        table.add_row(arm.label, str(arm.repeats), str(len(specs)), arm.cost, f"{gradients:,}")
    console.print(table)
    for line in lines(options, budget, costs, rate):
        console.print(line, highlight=False, soft_wrap=True)


def lines(options: Plan, budget: Budget, costs: Costs, rate: float | None) -> list[str]:
    """The costs for people, given gradient evaluations a second of one device."""
    done = budget.unique_chains - budget.chains_to_run
    told = [
        f"to run: {costs.chains} chains, {costs.gradients:,} gradient evaluations"
        + (f"; sharing saves {budget.saved:,}" if budget.saved else "")
        + (f"; {done} chains are in the store already" if done else "")
    ]
    if rate is None:
        told.append(
            "device hours: give --images-per-second, which benchmarks/chain.py --device cuda measures, or --measured-on a run"
        )
    else:
        hours = costs.device_hours(rate)
        devices = options.devices if options.devices is not None else max(1, costs.chains)
        told.append(
            f"device hours: {hours:,.1f} at {rate:,.6g} images/s each, "
            f"{hours / devices / 24:,.2f} days on {devices:,} devices, evaluation not counted"
        )
        if options.price is not None:
            told.append(f"price: {hours * options.price:,.2f} at {options.price:,.6g} an hour")
    told.append(
        f"bytes: {decimal(costs.sample_bytes)} of {costs.samples:,} samples, {decimal(costs.checkpoint_bytes)} of checkpoints"
        f" at a time, {decimal(costs.prediction_bytes)} of predictions if all are kept"
    )
    return told
