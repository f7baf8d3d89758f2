"""Tell the fault of one seed, or try faults that were not tried before and count them."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.chaos import ledger
from tests.chaos.real import Workshop, drawn

COUNTED = Path(__file__).parents[2] / "docs" / "reliability" / "chaos.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="faults to add to the count (10)")
    parser.add_argument("--seed", type=int, help="try and tell this one, which is not counted")
    parser.add_argument(
        "--violated", action="store_true", help="instead of new ones try those again that were violated"
    )
    parser.add_argument(
        "--to", type=Path, default=COUNTED, help="the count, which another call goes on from; its page beside it"
    )
    parser.add_argument(
        "--scratch", type=Path, help="folder for templates and disturbed stores; default in the system's one"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folders of faults without violations, too")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what is under way is cleaned up
    with Workshop(given.scratch, keep=given.keep) as shop:
        if given.seed is not None:
            return bool(shop.disturb(drawn(given.seed), print).get("violations"))
        records = ledger.read(given.to)
        again = [r["seed"] for r in records if given.violated and "violations" in r]
        wanted = len(ledger.hits(records)) + given.count
        while again or (not given.violated and len(ledger.hits(records)) < wanted):
            fault = drawn(again.pop(0) if again else ledger.next_seed(records))
            record = shop.disturb(fault)
            records = ledger.taken(records, record)
            ledger.write(given.to, records)
            page = given.to.with_suffix(".md")
            if page.exists():
                page.write_text(ledger.filled(page.read_text(), records))
            said = "; ".join(record.get("violations", []))[:2000]
            ended = f"{record['outcome']} in {record['seconds']} s{f'  VIOLATED: {said}' if said else ''}"
            print(f"{fault.seed:4}  {fault.command}: {fault.signal} to {fault.victim}: {ended}", flush=True)
    print(ledger.table(records))
    return any("violations" in r for r in records)


if __name__ == "__main__":
    raise SystemExit(main())
