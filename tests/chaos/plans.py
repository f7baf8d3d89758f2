"""Plans of deaths, drawn from a seed; what was achieved of them; and where each of them hit."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from raychains.chain.random_streams import stream_seed
from raychains.core.spec import ChainSpec

MOMENTS = ("before", "half", "written", "torn", "renamed", "returned")
"""Of a publish: before anything is written; half of the temporary file is; all of it; half of the bytes under the final
name; the final name is there, `publish` has not returned; it has."""
WHOLE = ("before", "half", "written", "renamed", "returned")
"""Those that a local disk can leave behind for files that are not read by length and checksum."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL at the ``nth`` step or publish of a kind that an attempt comes to."""

    where: str
    """step, sample, checkpoint, progress, begin (the attempt's record), finish (the two indexes), predict; or the name
    of a file that the driver publishes."""
    nth: int
    moment: str
    target: str = "worker"
    """worker (the process itself), node (the raylet above it) or driver."""


Plan = Mapping[str, Sequence[Kill]]
"""Deaths by key in the order in which they come; an attempt has at most one."""


def key(spec: ChainSpec) -> str:
    """A chain's key: the seed that its model is built with."""
    return str(stream_seed(spec, "init"))


def every_place(rng: random.Random) -> list[Kill]:
    """Deaths of workers in random order: every moment of samples and checkpoints, some of other files, and within
    steps."""
    kills = [Kill("sample", rng.randint(1, 4), moment) for moment in MOMENTS]
    kills += [Kill("checkpoint", rng.randint(1, 3), moment) for moment in MOMENTS]
    kills += [Kill("progress", rng.randint(1, 2), rng.choice(MOMENTS))]
    kills += [Kill("begin", 1, rng.choice(WHOLE))]
    kills += [Kill("finish", n, rng.choice(WHOLE)) for n in (1, 2)]
    kills += [Kill("step", rng.randint(5, 75), "gradient") for _ in range(4)]
    rng.shuffle(kills)
    return kills


def spread(kills: Iterable[Kill], specs: Iterable[ChainSpec]) -> dict[str, list[Kill]]:
    """Deaths dealt out to chains in turn; a finishing chain's come last."""
    plan: dict[str, list[Kill]] = {key(spec): [] for spec in specs}
    keys = list(plan)
    for n, kill in enumerate(kills):
        plan[keys[n % len(keys)]].append(kill)
    return {k: sorted(deaths, key=lambda kill: kill.where == "finish") for k, deaths in plan.items()}


def write(folder: Path, plan: Plan) -> None:
    """From here on tasks made with this folder die."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({k: [asdict(kill) for kill in deaths] for k, deaths in plan.items()})
    (folder / "plan.json").write_text(text)


def planned(folder: Path) -> int:
    return sum(len(deaths) for deaths in json.loads((folder / "plan.json").read_text()).values())


def achieved(folder: Path) -> list[dict[str, Any]]:
    """The markers of the deaths that came, each with the life's last state."""
    return [json.loads(f.read_text()) for f in sorted(folder.glob("killed-*"))]


def read_life(file: Path) -> dict[str, Any]:
    """A life's state now; a read that meets a write halfway is repeated."""
    for _ in range(10_000):
        with contextlib.suppress(ValueError):
            return dict(json.loads(file.read_text()))
        time.sleep(0.01)
    raise AssertionError(f"{file} is no life")


def lives(folder: Path) -> list[dict[str, Any]]:
    """The last state of every attempt at a chain that a process ever began, in the order in which they began.

    Of one that died with a marker, the state at that moment: an orphan may have gone on for a while, to ``reached``.
    """
    dead = {(m["key"], m["began"]): m for m in achieved(folder)}
    found = [read_life(f) for f in (folder / "lives").iterdir()]
    last = [{**dead.get((f["key"], f["began"]), f), "reached": f["from_step"] + f["steps"]} for f in found]
    return sorted(last, key=lambda life: life["began"])


def check_where_it_hit(marker: Mapping[str, Any]) -> None:
    """The files at the moment of the death are those of the moment that was planned."""
    where, moment = marker["where"], marker["moment"]
    if where in ("step", "predict"):
        assert marker["counts"][where] == marker["nth"]
        return
    length, was, half = marker["length"], marker["was"], marker["length"] // 2
    assert 0 < half < length and marker["writing"]
    expected = {
        "before": (None, was), "half": (half, was), "written": (length, was), "torn": (None, half),
        "renamed": (None, length), "returned": (None, length),
    }  # fmt: skip
    assert (marker["temporary"], marker["final"]) == expected[moment], marker
    assert was is None or where in ("begin", "finish", "results"), marker
