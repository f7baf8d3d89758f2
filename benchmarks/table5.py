"""cSG-MCMC's Table 5: effective sample sizes of SGLD, cSGLD, SGHMC and cSGHMC on Bayesian logistic regression.

Reads RAYCHAINS_DATA/uci. Chains run one after another in this process; what the rules are is told in docs/blr.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

from benchmarks.machine import facts  # noqa: E402
from raychains.data.root import rooted  # noqa: E402
from raychains.errors import UserError  # noqa: E402
from raychains.experiments import table5  # noqa: E402

Rows = Sequence[Mapping[str, Any]]


def table(rows: Rows) -> str:
    """One data set's rows as a Markdown table, a line per arm and three columns per rule."""
    rules = list(dict.fromkeys(r["rule"] for r in rows))
    head = "| method | schedule | published |" + "".join(f" {rule}: lr | ESS | sd ratio |" for rule in rules)
    lines = [head, "|---" * (3 + 3 * len(rules)) + "|"]
    for method, arm in dict.fromkeys((r["method"], r["arm"]) for r in rows):
        mine = {r["rule"]: r for r in rows if (r["method"], r["arm"]) == (method, arm)}
        cells = [method, arm, str(next(iter(mine.values()))["published_ess"])]
        for rule in rules:
            r = mine[rule]
            lr = "none" if r["lr"] is None else f"{r['lr']:.3g}"
            cells += [lr, measured(r, "ess", 0), measured(r, "sd_ratio", 2)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measured(row: Mapping[str, Any], name: str, digits: int) -> str:
    """A figure with its standard error, or that there is none."""
    if row[name] is None:
        return "none" if row["lr"] is None else "diverged"
    error = row[f"{name}_se"]
    return f"{row[name]:.{digits}f}" + (f" ± {error:.{digits}f}" if error is not None else "")


def comparisons(rows: Rows) -> str:
    """What the paper says of its figures, beside what ours say."""
    found = table5.verdicts(rows)
    rules = list(dict.fromkeys(v["rule"] for v in found))
    lines = ["| data | ESS of … against … | published |" + "".join(f" {rule} |" for rule in rules)]
    lines.append("|---" * (3 + len(rules)) + "|")
    for dataset, first, second in dict.fromkeys((v["dataset"], v["first"], v["second"]) for v in found):
        mine = [v for v in found if (v["dataset"], v["first"], v["second"]) == (dataset, first, second)]
        ours = [v["found"] or "none" for v in mine]
        lines.append("| " + " | ".join([dataset, f"{first} against {second}", mine[0]["published"], *ours]) + " |")
    return "\n".join(lines)


def write(rows: Rows, out: Path) -> None:
    """The rows as JSON, or as parquet where the name says so."""
    if out.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([dict(r) for r in rows]), out)
    else:
        out.write_text(json.dumps(list(rows), indent=1))


def run(datasets: Iterable[str], plan: table5.Plan, quiet: bool) -> list[dict[str, Any]]:
    """Every data set's rows, each table printed as soon as it is known."""
    every: list[dict[str, Any]] = []
    for dataset in datasets:
        began = time.perf_counter()
        tell = (lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr, flush=True))
        rows = list(table5.rows([dataset], plan, tell))
        print(f"\n{dataset} ({time.perf_counter() - began:.0f} s)\n\n{table(rows)}", flush=True)
        every += rows
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", nargs="+", choices=table5.DATASETS, default=list(table5.DATASETS))
    parser.add_argument("--minibatch", type=int, help="examples per step; default all of them")
    parser.add_argument("--lanes", type=int, default=table5.Plan.lanes, help="independent chains of each figure")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the rows here: .parquet, else JSON")
    parser.add_argument("--data-root", help="folder with uci/; default RAYCHAINS_DATA")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs: 120 steps, a coarse grid")
    args = parser.parse_args()
    short = {"steps": 120, "grid": (1.0, 10.0, 2)} if args.smoke else {}
    plan = table5.Plan(lanes=args.lanes, seed=args.seed, minibatch=args.minibatch, **short)
    print(facts())
    try:
        with rooted(args.data_root):
            rows = run(args.dataset, plan, args.quiet)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"\n{comparisons(rows)}")
    if args.out is not None:
        write(rows, args.out)


if __name__ == "__main__":
    main()
