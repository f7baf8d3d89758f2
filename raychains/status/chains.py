"""One chain's state from its folder: one listing, its newest worker's record, the end of its newest progress file."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from raychains import schedules
from raychains.divergence import Diagnosis
from raychains.errors import UserError
from raychains.planning import gradient_evaluations
from raychains.positions import expected_samples
from raychains.spec import ChainSpec
from raychains.status.state import ChainState, Progress
from raychains.store import ChainStore, Root, checkpoints
from raychains.store.codec import Corrupt
from raychains.store.history import History
from raychains.store.leases import SECOND

TAIL = 4096
"""Bytes of a progress file that are read: its last records."""
RECORDS = 20
"""Workers of a chain whose records are read, the newest ones."""
_SAMPLE = re.compile(r"samples/(\d+)-([a-z]+)-\d+\.safetensors")
_INCARNATION = re.compile(r"incarnations/(\d+)\.json")
_PROGRESS = re.compile(r"progress/(\d+)-(\d+)\.jsonl")
Files = Mapping[str, tuple[int, int]]
"""Bytes and time of the last change by name."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the run says about a chain; its folder does not."""

    now: int
    """Nanoseconds of the storage's clock."""
    living: Collection[str]
    """Ids of the store's living drivers."""
    given_up: Collection[str]
    """Digests of chains that a living driver of the run gave up."""
    failed: Mapping[str, str]
    """Reasons by digest of the chains that the run's last end left failed."""
    failed_at: int
    """When that was written, nanoseconds; a worker that began later makes it history."""


def chain_state(root: Root, spec: ChainSpec, about: Circumstances) -> ChainState:
    """What the store says about one chain, and what the run adds."""
    digest = spec.digest
    files = root.below(f"chains/{digest}")
    numbers = sorted(int(m[1]) for name in files if (m := _INCARNATION.fullmatch(name)))
    records = _records(root, digest, numbers)
    newest = records.get(numbers[-1], {}) if numbers else {}
    told = _progress(root, digest, files, History(_from_steps(records)), numbers)
    samples, expected = _samples(files), expected_samples(spec)
    begun = max((files[f"incarnations/{n}.json"][1] for n in numbers), default=0)
    state, reason = _state(digest, about, newest, bool(numbers), samples >= expected, begun)
    step = spec.steps if state == "finished" else min(spec.steps, max(told.step, _integer(newest.get("from_step"))))
    cost = gradient_evaluations(spec)
    saved = _checkpoint(files, History(_from_steps(records)))
    last = max((changed for _, changed in files.values()), default=None)
    hosts = list(dict.fromkeys(h for n in numbers if isinstance(h := records.get(n, {}).get("host"), str)))
    return ChainState(
        digest=digest,
        state=state,
        step=step,
        steps=spec.steps,
        cycle=told.cycle,
        cycles=schedules.build(spec.schedule).cycle_count,
        stage=told.stage,
        loss=told.loss,
        seconds=told.seconds,
        steps_per_second=told.speed,
        samples=min(samples, expected),
        expected=expected,
        gradients=cost * step // spec.steps,
        to_spend=cost,
        checkpoint_step=saved[0] if saved else None,
        checkpoint_age=_age(about.now, saved[1]) if saved else None,
        age=_age(about.now, last) if last is not None else None,
        incarnations=len(numbers),
        host=hosts[-1] if hosts else None,
        hosts=tuple(hosts),
        reason=reason if reason is not None or state != "failed" else _diagnosis(root, digest, files),
        bytes=sum(size for size, _ in files.values()),
    )


def _state(
    digest: str, about: Circumstances, newest: Mapping[str, Any], begun: bool, complete: bool, since: int
) -> tuple[Progress, str | None]:
    if complete:
        return "finished", None
    if digest in about.given_up or (digest in about.failed and since <= about.failed_at):
        return "failed", about.failed.get(digest)
    if not begun:
        return "waiting", None
    return ("running" if newest.get("driver_id") in about.living else "stopped"), None


@dataclass(frozen=True)
class _Told:
    """What the newest progress record says."""

    step: int = 0
    seconds: float = 0.0
    cycle: int | None = None
    stage: str | None = None
    loss: float | None = None
    speed: float | None = None


def _progress(root: Root, digest: str, files: Files, history: History, numbers: list[int]) -> _Told:
    """From the newest progress file that still counts; superseded records of it are passed over."""
    found = sorted((int(m[2]), int(m[1]), name) for name in files if (m := _PROGRESS.fullmatch(name)))
    for incarnation, _, name in reversed(found):
        size = files[name][0]
        start = max(0, size - TAIL)
        try:
            text = root.read_range(f"chains/{digest}/{name}", start, TAIL)
        except FileNotFoundError:
            continue
        lines = text.splitlines()[1 if start else 0 :]
        good = [r for line in lines if (r := _record(line)) is not None]
        good = [r for r in good if not history.superseded(incarnation, r["step"])]
        if good:
            return _told(good)
    return _Told()


def _record(line: bytes) -> dict[str, Any] | None:
    """A progress record; None for a torn line or one of another kind."""
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict) and isinstance(record.get("step"), int) and _number(record.get("seconds")):
            return record
    return None


def _told(records: list[dict[str, Any]]) -> _Told:
    first, last = records[0], records[-1]
    steps, seconds = last["step"] - first["step"], last["seconds"] - first["seconds"]
    if steps <= 0 or seconds <= 0:
        steps, seconds = last["step"], last["seconds"]
    loss, cycle, stage = last.get("loss"), last.get("cycle"), last.get("stage")
    return _Told(
        step=last["step"],
        seconds=float(last["seconds"]),
        cycle=cycle if isinstance(cycle, int) else None,
        stage=stage if isinstance(stage, str) else None,
        loss=float(loss) if _number(loss) else None,  # type: ignore[arg-type]
        speed=steps / seconds if steps > 0 and seconds > 0 else None,
    )


def _samples(files: Files) -> int:
    """Samples that are there; of one drawn twice, one. Files are not opened, so torn ones count."""
    return len({(m[1], m[2]) for name in files if (m := _SAMPLE.fullmatch(name))})


def _checkpoint(files: Files, history: History) -> tuple[int, int] | None:
    """(step, time) of the checkpoint that the chain would go on from."""
    folder = "checkpoints/"
    names = [name.removeprefix(folder) for name in files if name.startswith(folder)]
    valid = checkpoints.valid(names, history)
    return (valid[-1].step, files[folder + valid[-1].name][1]) if valid else None


def _records(root: Root, digest: str, numbers: list[int]) -> dict[int, dict[str, Any]]:
    store, found = ChainStore(root, digest), {}
    for number in numbers[-RECORDS:]:
        with contextlib.suppress(FileNotFoundError, Corrupt):
            found[number] = store.incarnation(number)
    return found


def _from_steps(records: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    return {n: step for n, record in records.items() if isinstance(step := record.get("from_step"), int)}


def _diagnosis(root: Root, digest: str, files: Files) -> str | None:
    """What was found out about a divergence, where there was one."""
    if not any(name.startswith("diagnoses/") for name in files):
        return None
    found = ChainStore(root, digest).diagnoses()
    with contextlib.suppress(
        UserError, TypeError, ValueError, KeyError, AttributeError
    ):  # a newer one, or none of ours
        return Diagnosis.from_json(found[-1]).sentence() if found else None
    return None


def _age(now: int, then: int) -> float:
    return max(0.0, (now - then) / SECOND)


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
