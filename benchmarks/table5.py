"""cSG-MCMC's Table 5: effective sample sizes of SGLD, cSGLD, SGHMC and cSGHMC on Bayesian logistic regression.

Reads RAYCHAINS_DATA/uci. Chains run one after another in this process; docs/reference/blr.md explains the rules.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402
from raychains.core.data_root import rooted  # noqa: E402
from raychains.core.errors import UserError  # noqa: E402
from raychains.papers.claims import judge  # noqa: E402
from raychains.papers.csgmcmc.table5 import ARMS, DATASETS, FIGURES, RULES, Bench, Plan, claims  # noqa: E402

DIGITS = {"ess": 0, "sd_ratio": 2}


def table(rows: pd.DataFrame) -> str:
    """Return one data set's rows as a Markdown table: a line per arm, and the step and each figure's mean by every
    rule."""
    head = "| method |" + "".join(f" {rule}: lr | ESS | sd ratio |" for rule in RULES)
    lines = [head, "|---" * (1 + 3 * len(RULES)) + "|"]
    for arm in ARMS:
        cells = [f"{arm.method}, {arm.schedule}"]
        for rule in RULES:
            mine = rows[(rows["arm"] == arm.key) & (rows["rule"] == rule)]
            cells += (
                [f"{mine['lr'].iloc[0]:.3g}", *(mean(mine[name], DIGITS[name]) for name in FIGURES)]
                if len(mine)
                else ["none"] * 3
            )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean(values: pd.Series, digits: int) -> str:
    """Return a mean with its standard error."""
    return f"{values.mean():.{digits}f}" + (f" ± {values.sem():.{digits}f}" if len(values) > 1 else "")


def run(dataset: str, plan: Plan, quiet: bool) -> pd.DataFrame:
    """Return a data set's rows, and print its table and the verdicts on its claims."""
    began = time.perf_counter()
    bench = Bench(dataset, plan)
    matched = bench.matched()
    made = []
    for arm in ARMS:
        if not quiet:
            print(f"{dataset}: {arm.method}, {arm.schedule}", file=sys.stderr, flush=True)
        made += [{"dataset": dataset, "arm": arm.key, **row} for row in bench.rows(arm, matched)]
    rows = pd.DataFrame(made)
    print(f"\n{dataset} ({time.perf_counter() - began:.0f} s)\n\n{table(rows)}\n", flush=True)
    for claim in claims():
        if claim.part == dataset:
            rule, _, figure = claim.left.column.partition("-")
            mine = rows[rows["rule"] == rule]
            sides = [mine[mine["arm"] == row][figure].tolist() for _, row, _ in claim.cells]
            print(judge(claim, *sides).line("cpu"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--minibatch", type=int, help="examples per step; default all of them")
    parser.add_argument("--lanes", type=int, default=Plan.lanes, help="independent chains of each figure")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the rows here: .parquet, else JSON")
    parser.add_argument("--data-root", help="folder with uci/; default RAYCHAINS_DATA")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs: 120 steps, a coarse grid")
    args = parser.parse_args()
    short = {"steps": 120, "grid": (1.0, 10.0, 2)} if args.smoke else {}
    plan = Plan(lanes=args.lanes, seed=args.seed, minibatch=args.minibatch, **short)
    print(facts())
    try:
        with rooted(args.data_root):
            rows = pd.concat([run(dataset, plan, args.quiet) for dataset in args.dataset])
    except UserError as error:
        sys.exit(f"error: {error}")
    if args.out is not None and args.out.suffix == ".parquet":
        rows.to_parquet(args.out, index=False)
    elif args.out is not None:
        args.out.write_text(json.dumps(rows.to_dict("records"), indent=1))


if __name__ == "__main__":
    main()
