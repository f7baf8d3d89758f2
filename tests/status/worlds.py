"""Stores of a run in the middle, written file by file as workers and drivers write them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from raychains.chain.chain import Chain
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.orchestration import process_identity
from raychains.planning import Comparison
from raychains.store import ChainStore, RunStore, Storage
from raychains.store.leases import Leases
from tests.report import runs

OURS, THEIRS = "a" * 32, "b" * 32
"""Ids of drivers."""


def comparison(chains: int = 4) -> Comparison:
    """One arm on digits: 60 steps a chain, 2 cycles of 2 samples."""
    return runs.single(chains=chains)


def planned(root: Storage, plan: Comparison, name: str = "small") -> RunStore:
    folder = RunStore(root, name)
    folder.write_plan({"command": "run", "comparison": plan.to_json(), "notes": []})
    return folder


def enter(root: Storage, run: str = "small", driver: str = OURS, *, pid: int | None = None, **entry: Any) -> None:
    """A driver's entry; of this process unless another pid is given."""
    about = {
        "driver_id": driver,
        "run": run,
        **process_identity.here(),
        "since": None,
        "given_up": [],
        "renewals": 1,
        **entry,
    }
    Leases(root).publish(about | ({"pid": pid} if pid is not None else {}))


def begin(
    root: Storage,
    spec: ChainSpec,
    number: int,
    *,
    driver: str = OURS,
    from_step: int = 0,
    host: str = "here",
    **more: Any,
) -> None:
    about = {"driver_id": driver, "host": host, "pid": 1, "from_step": from_step, "environment": {}, **more}
    ChainStore(root, spec.digest).begin(spec, number, about)


def advance(root: Storage, spec: ChainSpec, number: int, *, to: int) -> None:
    """The chain's samples and progress up to a step, and a checkpoint there, under an attempt."""
    chain, store = Chain(spec), ChainStore(root, spec.digest)
    told: list[dict[str, Any]] = []
    while not chain.done and chain.step < to:
        for event in chain.advance(lambda: chain.step >= to):
            if isinstance(event, Sample):
                store.publish_sample(event, number, {})
            else:
                told.append({**event.to_json(), "seconds": event.step / 20})
    store.publish_progress(told, chain.step, number)
    if not chain.done:
        store.publish_checkpoint({"chain": chain.state_dict()}, chain.step, number)
    else:
        store.finish()


def finish(root: Storage, specs: Iterable[ChainSpec]) -> None:
    """Chains that run to their end at once."""
    for spec in specs:
        begin(root, spec, 1)
        advance(root, spec, 1, to=spec.steps)


def diagnosis(digest: str) -> dict[str, Any]:
    """As a replay writes it."""
    from raychains.chain.divergence_replay import Diagnosis

    return Diagnosis(
        digest=digest,
        kind="loss",
        step=20,
        steps=60,
        seen_at=20,
        replayed_from=0,
        epoch=1,
        cycle=0,
        stage="sampling",
        lr=9.0,
        temperature=1.0,
        noise_std=0.1,
        tensor=None,
        nonfinite=1,
        size=1,
        infinite=0,
        point=None,
        gradient_norm=1e9,
        gradient_norm_before=1.0,
        loss=float("nan"),
        last_loss=2.0,
        last_loss_step=19,
        parameter_scale=1e9,
        start_scale=0.1,
        precision="fp32",
        error="the loss is nan at step 20",
    ).to_json()


def aged(path: Path, seconds: float) -> None:
    changed = path.stat().st_mtime - seconds
    os.utime(path, (changed, changed))


class Calls:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: Counter[str] = Counter()
        self.read: list[str] = []
        for name in ("read", "read_range"):
            self._note(monkeypatch, name)
        listed = Storage._list

        def _list(root: Storage, folder: str, **how: Any) -> Any:
            self.count["list"] += 1
            return listed(root, folder, **how)

        monkeypatch.setattr(Storage, "_list", _list)

    def _note(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        original = getattr(Storage, method)

        def noted(root: Storage, name: str, *args: Any) -> Any:
            self.count["read"] += 1
            self.read.append(name)
            return original(root, name, *args)

        monkeypatch.setattr(Storage, method, noted)
