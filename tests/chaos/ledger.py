"""The count of real faults, and its tables in docs/reliability/chaos.md."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Record = dict[str, Any]
BEGIN, END = "<!-- faults -->", "<!-- end of faults -->"
SIGNALS = ("SIGKILL", "SIGSTOP", "SIGTERM")
VICTIMS = ("driver", "worker", "evaluator", "raylet", "GCS", "S3 server")


def read(file: Path) -> list[Record]:
    """What was tried before, one fault a line."""
    return list(json.loads(file.read_text())["faults"]) if file.exists() else []


def write(file: Path, records: Sequence[Record]) -> None:
    """Replace the ledger at once."""
    lines = ",\n".join(json.dumps(r) for r in records)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text('{"faults": [\n' + lines + "\n]}\n")
    new.replace(file)


def taken(records: Sequence[Record], news: Sequence[Record]) -> list[Record]:
    """The ledger with those of one more seed; one that is tried again replaces its records and keeps what was wrong
    before."""
    (seed,), last = {n["seed"] for n in news}, news[-1]
    for before in records:
        if before["seed"] == seed and (wrong := before.get("before", before.get("violations"))):
            last = last | {"before": wrong}
    kept = [r for r in records if r["seed"] != seed]
    return sorted([*kept, *news[:-1], last], key=lambda r: (r["seed"], r.get("number", 0)))


def next_seed(records: Sequence[Record], trying: Collection[int] = ()) -> int:
    """The first seed that was not tried, and is not being tried."""
    tried = {r["seed"] for r in records} | set(trying)
    return next(seed for seed in range(len(tried) + 1) if seed not in tried)


def hits(records: Sequence[Record]) -> list[Record]:
    """Faults that came about: a command may end before its moment."""
    return [r for r in records if r["outcome"] != "missed"]


def table(records: Sequence[Record]) -> str:
    """Counts by command and victim, then outcomes and recovery by victim and signal."""
    done, lines = hits(records), []
    violated = sum("violations" in r for r in records)
    repaired = sum("before" in r and "violations" not in r for r in records)
    seconds = sum(r["seconds"] for r in done) / max(1, len(done))
    missed = len(records) - len(done)
    lines += [
        f"When first tried, {violated + repaired} of {len(done)} faults broke the guarantee; {repaired} were repaired. "
        f"Now {violated} break it.",
        f"{missed} further commands ended before their fault. Testing a fault took {seconds:.0f} s on average.",
    ]
    counts: Counter[tuple[str, str, str]] = Counter((r["command"], r["victim"], r["signal"]) for r in done)
    lines += ["", "| SIGKILL/SIGSTOP/SIGTERM | " + " | ".join(VICTIMS) + " |", "|---|" + "---|" * len(VICTIMS)]
    for command in dict.fromkeys(sorted(r["command"] for r in done)):
        cells = ["/".join(str(counts[command, victim, s]) for s in SIGNALS) for victim in VICTIMS]
        lines.append(f"| `{command}` |" + "".join(" |" if c == "0/0/0" else f" {c} |" for c in cells))
    groups: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for r in done:
        groups[r["victim"], r["signal"]].append(r)
    lines += [
        "",
        "| victim | signal | faults | ended by itself | called again | of these, without message | median recovery | "
        "worst |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for victim, number in sorted(groups, key=lambda g: (VICTIMS.index(g[0]), g[1])):
        group = groups[victim, number]
        ended = Counter(r["outcome"] for r in group)
        times = [r["recovery"] for r in group if "recovery" in r]
        cells = [
            victim,
            number,
            str(len(group)),
            str(ended["went on"] + ended["was done"]),
            str(ended["resumed"] + ended["ended by Ray"]),
            str(ended["ended by Ray"]),
            *((f"{median(times):.1f} s", f"{max(times):.1f} s") if times else ("", "")),
        ]
        lines.append("|" + "".join(f" {c} |" if c else " |" for c in cells))
    return "\n".join(lines)


def filled(page: str, records: Sequence[Record]) -> str:
    """The page with its tables written anew."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table(records)}\n\n{END}{tail}"
