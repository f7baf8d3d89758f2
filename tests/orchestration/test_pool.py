"""Selections from the sample pool: by chain, cycle, stage and variable, first draws of all chains first."""

from __future__ import annotations

import pytest

from raychains.orchestration.pool import SamplePool
from raychains.sample import SampleMeta
from raychains.store import SampleRecord

CHAINS = ("b", "a", "c")


def record(digest: str, index: int, variable: str = "theta") -> SampleRecord:
    """Two samples a cycle; the first of them still exploring."""
    stage = "exploration" if index % 2 == 0 else "sampling"
    meta = SampleMeta(
        digest=digest, index=index, variable=variable, cycle=index // 2, epoch=index, step=index + 1,
        lr=0.1, temperature=1.0, stage=stage, train_nll=None,
    )  # fmt: skip
    return SampleRecord(meta=meta, file=f"{digest}{index}", sha256="")


@pytest.fixture
def pool() -> SamplePool:
    """Three chains of four samples, arrived chain by chain and backwards."""
    pool = SamplePool()
    for digest in CHAINS:
        for index in reversed(range(4)):
            pool.add(record(digest, index), ref=f"ref-{digest}{index}")
    return pool


def files(pool: SamplePool, *args: object, **kwargs: object) -> list[str]:
    return [p.record.file for p in pool.select(*args, **kwargs)]  # type: ignore[arg-type]


def test_chains_contribute_in_turn_in_the_arms_order(pool: SamplePool) -> None:
    assert files(pool, ["b", "a"]) == ["b0", "a0", "b1", "a1", "b2", "a2", "b3", "a3"]
    assert files(pool, ["a", "b"], first=3) == ["a0", "b0", "a1"]
    assert len(files(pool)) == len(pool) == 12


def test_cycle_stage_and_variable_narrow_the_selection(pool: SamplePool) -> None:
    pool.add(record("b", 1, variable="anchor"), ref=None)
    assert files(pool, ["b"], cycle=1) == ["b2", "b3"]
    assert files(pool, ["b"], stage="sampling", variable="theta") == ["b1", "b3"]
    assert files(pool, ["b", "c"], cycle=1, stage="sampling") == ["b3", "c3"]
    assert files(pool, variable="anchor") == ["b1"]
    assert files(pool, ["unknown"]) == []


def test_a_sample_drawn_again_replaces_the_one_before(pool: SamplePool) -> None:
    pool.add(record("b", 1), ref=None)
    (again,) = [p for p in pool.select(["b"]) if p.record.meta.index == 1]
    assert again.ref is None and len(pool) == 12
