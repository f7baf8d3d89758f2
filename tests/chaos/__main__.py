"""Tell the faults of one seed, or try faults that were not tried before and count them."""

from __future__ import annotations

import argparse
import signal
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

from tests.chaos import ledger
from tests.chaos.real import Workshop, drawn

COUNTED = Path(__file__).parents[2] / "docs" / "reliability" / "chaos.json"


def keep(to: Path, records: list[ledger.Record], news: list[ledger.Record]) -> None:
    """Write the count and its page, and print the newest faults."""
    ledger.write(to, records)
    page = to.with_suffix(".md")
    if page.exists():
        page.write_text(ledger.filled(page.read_text(), records))
    for record in news:
        said = "; ".join(record.get("violations", []))[:2000]
        ended = f"{record['outcome']} in {record['seconds']} s{f'  VIOLATED: {said}' if said else ''}"
        print(f"{record['seed']:4}  {record['command']}: {record['signal']} to {record['victim']}: {ended}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="faults to add to the count (10)")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="try N at the same time (default 1)")
    parser.add_argument(
        "--each", type=int, default=4, help="most faults that one command gets, one after the other (4)"
    )
    parser.add_argument("--seed", type=int, help="try and tell those of this one, which are not counted")
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
    with ExitStack() as stack, ThreadPoolExecutor(given.at_once) as pool:
        shops = [stack.enter_context(Workshop(given.scratch, keep=given.keep)) for _ in range(given.at_once)]
        if given.seed is not None:
            return any("violations" in r for r in shops[0].disturb(drawn(given.seed, given.each), print))
        records = ledger.read(given.to)
        again = [r["seed"] for r in records if given.violated and "violations" in r]
        wanted = len(ledger.hits(records)) + given.count
        trying: dict[Future[list[ledger.Record]], tuple[int, Workshop]] = {}
        while True:
            while shops and (again or (not given.violated and len(ledger.hits(records)) + len(trying) < wanted)):
                seeds = {seed for seed, _ in trying.values()}
                seed, shop = again.pop(0) if again else ledger.next_seed(records, seeds), shops.pop()
                trying[pool.submit(shop.disturb, drawn(seed, given.each))] = (seed, shop)
            if not trying:
                break
            for done in wait(trying, return_when=FIRST_COMPLETED).done:
                shops.append(trying.pop(done)[1])
                records = ledger.taken(records, done.result())
                keep(given.to, records, done.result())
    print(ledger.table(records))
    return any("violations" in r for r in records)


if __name__ == "__main__":
    raise SystemExit(main())
