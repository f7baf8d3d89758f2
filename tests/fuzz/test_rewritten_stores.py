"""Stores whose files were written anew with other contents and right checksums, so that what lies behind the checks is
reached."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

import raychains as rc
from raychains.core.checksum import sealed
from raychains.core.errors import RaychainsError
from raychains.core.spec import ChainSpec
from raychains.orchestration import process_identity
from raychains.store import ChainStore, Storage, codec
from raychains.store.chain_store import encode_index
from tests.fuzz import made
from tests.fuzz.rules import comes_to_one_line, examples, no_ray, no_rendering, say
from tests.fuzz.test_damaged_stores import REPLACEMENTS, changed, paths


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A whole run; each example writes one file of it anew, and then puts everything back."""
    folder = tmp_path_factory.mktemp("store")
    made.make(folder)
    entry = {"driver_id": "a" * 32, "run": "small", "since": 1, "renewals": 1, "given_up": []}
    entry |= process_identity.here()
    (folder / "drivers").mkdir()
    (folder / "drivers" / f"{'a' * 32}.json").write_text(json.dumps(entry))
    with pytest.MonkeyPatch.context() as patch:
        no_ray(patch)
        no_rendering(patch)
        yield folder


def altered(value: Any, chance: random.Random) -> Any:
    """JSON with one to three places replaced, removed or given more; an example that comes to the same is no test."""
    given = repr(value)
    for _ in range(chance.choice([1, 1, 2, 3])):
        places = list(paths(value))
        how = chance.choice(["replace", "replace", "remove", "extra"])
        value = changed(value, chance.choice(places[1:] or places), how, chance.choice(REPLACEMENTS))
    assume(repr(value) != given)
    return value


TENSORS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda t: t.flatten()[:1],
    lambda t: t[None],
    lambda t: t.new_zeros(0),
    lambda t: t * float("nan"),
    lambda t: t * 1e30,
    lambda t: t.to(torch.float64),
    lambda t: t.to(torch.float16),
    lambda t: t.to(torch.int8),
    lambda t: t.bool(),
    lambda t: t.new_zeros((1,) * 9),
]


def sample(file: Path, chance: random.Random) -> None:
    tensors, own = codec.decode(file.read_bytes())
    said = {k: v for k, v in own.items() if k != "sha256"}
    name = chance.choice(sorted(tensors))
    match chance.randrange(4):
        case 0:
            tensors[name] = chance.choice(TENSORS)(tensors[name])
        case 1:
            del tensors[name]
        case 2:
            tensors[chance.choice(["more", "", "a.b.c", "\x1b[31m"])] = tensors.pop(name)
        case _:
            said = altered(said, chance)
            assume(isinstance(said, dict))
    file.write_bytes(codec.encode(tensors, json.loads(json.dumps(said))))


def index(file: Path, chance: random.Random) -> None:
    rows = altered(pq.read_table(file).to_pylist(), chance)
    file.write_bytes(encode_index(rows, 1))


def table(file: Path, chance: random.Random) -> None:
    found = before = pq.read_table(file)
    column = chance.choice(found.column_names)
    at = found.column_names.index(column)
    other: Any = pa.nulls(len(found)) if chance.random() < 0.3 else pa.array([chance.choice(REPLACEMENTS)] * len(found))
    match chance.randrange(5):
        case 0:
            found = found.drop_columns([column])
        case 1:
            found = found.rename_columns(
                [*found.column_names[:at], chance.choice(["x", "arm", ""]), *found.column_names[at + 1 :]]
            )
        case 2:
            found = found.slice(0, 0)
        case 3:
            found = pa.concat_tables([found] * 3)
        case _:
            found = found.set_column(at, column, other)
    assume(not found.equals(before))
    pq.write_table(found, file)


def resealed(value: Any) -> Any:
    return sealed(value) if isinstance(value, dict) else value


def text(file: Path, chance: random.Random) -> None:
    file.write_text(json.dumps(resealed(altered(json.loads(file.read_text()), chance))))


def lines(file: Path, chance: random.Random) -> None:
    records = [resealed(altered(json.loads(line), chance)) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def spec(file: Path, chance: random.Random) -> None:
    """A plan whose chain is another one, under the digest that this one has, and the chain's folder with it."""
    plan = json.loads(file.read_text())
    chains = plan["comparison"]["chains"]
    old = chance.choice(sorted(chains))
    chains[old] = altered(chains[old], chance)
    new = ChainSpec.from_json(chains[old]).digest
    file.write_text(json.dumps(resealed(json.loads(json.dumps(plan).replace(old, new)))))
    (file.parents[2] / "chains" / old).rename(file.parents[2] / "chains" / new)
    (file.parents[2] / "chains" / new / "spec.json").write_text(json.dumps(chains[old]))


def checkpoint(file: Path, chance: random.Random) -> None:
    tensors, own = codec.decode(file.read_bytes())
    said = altered({k: v for k, v in own.items() if k != "sha256"}, chance)
    if tensors and chance.random() < 0.3:
        del tensors[chance.choice(sorted(tensors))]
    file.write_bytes(codec.encode(tensors, said if isinstance(said, dict) else {}))


KINDS: dict[str, tuple[str, Callable[[Path, random.Random], None]]] = {
    "sample": ("chains/*/samples/*", sample),
    "index": ("chains/*/samples.parquet", index),
    "progress": ("chains/*/progress.parquet", index),
    "table": ("runs/small/*.parquet", table),
    "attempt": ("chains/*/incarnations/*", text),
    "driver": ("drivers/*", text),
    "plan": ("runs/small/plan.json", text),
    "spec": ("runs/small/plan.json", spec),
    "checkpoint": ("chains/*/checkpoints/*", checkpoint),
}


def rewrite(store: Path, kind: str, seed: int) -> bool:
    """Write a file anew; False where its own format cannot hold what it should."""
    pattern, write = KINDS[kind]
    chance = random.Random(seed)
    file = chance.choice(sorted(store.glob(pattern)))
    if kind == "sample":  # an index would be believed
        for indexed in file.parent.parent.glob("*.parquet"):
            indexed.unlink()
    try:
        write(file, chance)
    except (
        pa.ArrowException,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RaychainsError,
        AttributeError,
        RuntimeError,
    ):
        return False
    return True


@examples(80, "store")
@given(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 2**32))
@example(kind="table", seed=1462)
def test_everything_comes_to_one_line_or_works(store: Path, kind: str, seed: int) -> None:
    copy = store.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)
    assume(rewrite(copy, kind, seed))
    run, target = str(copy / "runs" / "small"), store.parent / "exported.safetensors"
    chance = random.Random(seed)
    target.unlink(missing_ok=True)
    commands = [
        ["status", run],
        ["status", run, "--json"],
        ["report", run],
        ["evaluate", run],
        ["export", run, "--to", str(target)],
    ]
    for command in chance.sample(commands, 1):
        said = say(command)
        if target.exists():
            assert said.status == 0
            exported = rc.PosteriorPredictive.load(target)
            assert all(bool(torch.isfinite(b).all()) for b in exported.buffers() if b.is_floating_point())
            target.unlink()
    result = comes_to_one_line(lambda: rc.load(run))
    if result is not None:
        p = comes_to_one_line(lambda: result.predict(np.zeros((2, 64), np.float32)))
        assert p is None or np.allclose(p.sum(1), 1)
    for digest in [d.name for d in (copy / "chains").iterdir()]:
        chain = ChainStore(Storage(copy), digest)
        for read in (chain.records, chain.newest_checkpoint, chain.progress, chain.spec, chain.seconds, chain.history):
            comes_to_one_line(read)
