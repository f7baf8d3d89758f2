"""One bit of a file of a finished run or sweep is flipped, and everything is read: what raychains says of it.

``python -m tests.store.flips`` tries 400 and counts them by kind of file in docs/reliability/flips.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import logging
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import raychains as rc
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.core import bounded
from raychains.core.config import Sweep
from raychains.core.errors import RaychainsError
from raychains.core.sample import Sample, tensors_sha256
from raychains.inference import sweep_results
from raychains.inference.sweep_data import Sweep as SweepData
from raychains.planning import sweep_points
from raychains.planning.reports import report_steps
from raychains.report.sweep import rows
from raychains.status.command import as_json
from raychains.status.reading import Reader
from raychains.store import ChainStore, RunStore, Storage, SweepStore, codec, initial_states
from raychains.store.caches import PointMetrics, Predictions
from raychains.store.leases import Leases
from tests.fuzz import made

COUNTED = Path(__file__).parents[2] / "docs" / "reliability" / "flips.json"
RUN, SWEEP, POINT, SPLIT = "small", "tiny", "a point between", "a split"
KINDS = {
    "chain: specification": "chains/*/spec.json",
    "chain: attempt": "chains/*/incarnations/*.json",
    "chain: sample": "chains/*/samples/*",
    "chain: index of samples": "chains/*/samples.parquet",
    "chain: checkpoint": "chains/*/checkpoints/*",
    "chain: progress": "chains/*/progress/*.jsonl",
    "chain: table of progress": "chains/*/progress.parquet",
    "chain: diagnosis": "chains/*/diagnoses/*.json",
    "run: plan": "runs/*/plan.json",
    "run: table": "runs/*/*.parquet",
    "sweep: plan": "sweeps/*/plan.json",
    "sweep: table": "sweeps/*/*.parquet",
    "sweep: report": "sweeps/*/reports/*/*.json",
    "sweep: stopped chain": "sweeps/*/stops/*.json",
    "sweep: point that was asked": "sweeps/*/asked/*.json",
    "sweep: best.json": "sweeps/*/best.json",
    "start": "starts/*",
    "kept prediction": "predictions/*/*",
    "kept metrics of a point": "points/*/*",
    "driver's lease": "drivers/*",
}
"""Every kind of file that a run and a sweep write and that raychains reads, by its place in the store."""
REFUSED, WARNED, SAME, SILENT = "refused", "warned", "without effect", "silent"


@dataclass(frozen=True)
class Store:
    """A store with a finished run and a finished sweep, every kind of file in it."""

    root: Path
    planned: sweep_points.Planned
    files: dict[str, bytes]

    def readings(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Everything that raychains reads and prints of it, by name."""
        root = Storage(self.root)
        yield from self._of_run(root)
        for digest in sorted({name.split("/")[1] for name in self.files if name.startswith("chains/")}):
            yield from _of_chain(root, digest)
        yield from self._of_sweep(root)
        yield "start", lambda: {d: tensors_sha256(initial_states.read(root, d)) for d in _stems(self.files, "starts/")}
        task, [kept] = made.comparison().task_spec, _stems(self.files, "predictions/")
        yield "prediction", lambda: _or_made(Predictions(root, task, SPLIT, 1).read(kept), _prediction)
        yield "point", lambda: _or_made(PointMetrics(root, task, SPLIT).read(POINT), lambda: _METRICS)
        yield (
            "drivers",
            lambda: [dataclasses.asdict(entry) | {"renewed": 0, "since": 0} for entry in Leases(root).entries()],
        )

    def _of_run(self, root: Storage) -> Iterator[tuple[str, Callable[[], Any]]]:
        path, folder = str(self.root / "runs" / RUN), RunStore(root, RUN)
        yield "table", lambda: rc.load(path).table(full=True).to_csv()
        yield "predictions", lambda: rc.load(path).predict(np.zeros((2, 64), np.float32)).tolist()
        yield "status", lambda: _status(path)
        for file in self.files:
            place, _, name = file.rpartition("/")
            if place == f"runs/{RUN}" and name.endswith(".parquet"):
                yield name, lambda name=name: _rows(folder, name)

    def _of_sweep(self, root: Storage) -> Iterator[tuple[str, Callable[[], Any]]]:
        path, folder, plan = str(self.root / "sweeps" / SWEEP), SweepStore(root, SWEEP), self.planned.plan
        yield "status of the sweep", lambda: _status(path)
        yield "best", folder.best
        yield "asked", folder.asked
        yield "points", lambda: SweepData.of(folder).points.to_csv() + str(rows.build(SweepData.of(folder), "Rank"))
        for spec in [spec for point in plan.points for spec in point.specs]:
            yield f"reports {spec.digest}", lambda spec=spec: folder.reports(spec.digest, plan.metric.name)
            yield f"stopped at {spec.digest}", lambda spec=spec: folder.stopped_at(spec.digest)
        for name in ("results", "reports"):
            yield name, lambda name=name: _rows(folder, f"{name}.parquet")
        yield "resumed", lambda: _resumed(folder, self.planned)

    def restore(self) -> None:
        """Put every file back as it was."""
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if path.is_file() and name not in self.files:
                path.unlink()
        for name, data in self.files.items():
            if (self.root / name).read_bytes() != data:
                (self.root / name).write_bytes(data)


def _or_made(found: Any, make: Callable[[], Any]) -> Any:
    """What a cache has, or what is computed again."""
    found = make() if found is None else found
    return [block.tolist() for block in found] if isinstance(found, list) else found


def _prediction() -> list[Any]:
    return [np.arange(6.0).reshape(2, 3)]


_METRICS = {"nll": 0.25, "error": 0.125}


def _stems(files: dict[str, bytes], below: str) -> list[str]:
    return [Path(name).stem for name in files if name.startswith(below)]


def _rows(folder: RunStore, file: str) -> Any:
    table = folder.table(file.removesuffix(".parquet"))
    return None if table is None else [str(table.schema), *map(str, table.to_pylist())]


def _status(path: str) -> Any:
    """What ``raychains status --json`` prints, without what changes by itself."""
    timeless = {"age", "checkpoint_age", "since", "heard", "bytes"}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items() if key not in timeless}
        return [plain(entry) for entry in value] if isinstance(value, list) else value

    return plain(json.loads(as_json(Reader(path).read())))


def _of_chain(root: Storage, digest: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    chain = ChainStore(root, digest)

    def tensors() -> list[str]:
        return [tensors_sha256(chain.sample(record.file)[0]) for record in chain.records()]

    def checkpoint() -> str:
        parts, tree = codec.flatten(chain.newest_checkpoint())
        return tensors_sha256(parts) + json.dumps(tree, sort_keys=True)

    reads = {
        "spec": lambda: chain.spec().to_json(),
        "attempts": chain.attempts,
        "records": lambda: [repr(record) for record in chain.records()],
        "samples": tensors,
        "checkpoint": checkpoint,
        "progress": chain.progress,
        "diagnoses": chain.diagnoses,
    }
    for name, read in reads.items():
        yield f"{name} of {digest}", read


def _resumed(folder: SweepStore, planned: sweep_points.Planned) -> Any:
    """What a sweep that is resumed after its end writes: its tables and its best point."""
    rows_of = sweep_results.write(folder, planned, planned.plan.points, {})
    return rows_of, folder.best()


# The store


def make(folder: Path) -> Store:
    """Make the store, without Ray: chains run in this process, and files are those of drivers and workers."""
    made.make(folder)
    root, comparison = Storage(folder), made.comparison()
    for spec in comparison.chains().values():
        chain = ChainStore(root, spec.digest)
        chain.begin(
            spec, 1, {**chain.attempt(1), "driver_id": "d" * 32, "from_step": 0, "preemptions": 0, "workers": 1}
        )
    half = comparison.arms[0].chains[0][1]
    steps = range(1, half.steps // 2)
    ChainStore(root, half.digest).publish_progress(
        [{"step": step, "seconds": 0.01 * step, "loss": 1.0 / step} for step in steps], half.steps // 2, 1
    )
    ChainStore(root, half.digest).publish_diagnosis({"step": 3, "reason": "loss", "value": 1e30}, 3, 1)
    RunStore(root, RUN).write_table("views", [{"arm": "all", "view": "chain:0", "nll": 0.5}])
    sample, _ = ChainStore(root, half.digest).sample(ChainStore(root, half.digest).records()[0].file)
    initial_states.publish(root, sample)
    Predictions(root, comparison.task_spec, SPLIT, 1).write("5" * 64, _prediction())
    PointMetrics(root, comparison.task_spec, SPLIT).write(POINT, _METRICS)
    lease = {"driver_id": "d" * 32, "run": RUN, "host": "here", "place": "boot", "pid": 7, "process": "8", "since": 1}
    Leases(root).publish({**lease, "renewals": 3, "given_up": ["9" * 64], "stalled": []})
    return Store(
        folder, _sweep(root), {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    )


def _sweep(root: Storage) -> sweep_points.Planned:
    settings = {"task_settings": ("hidden=[4]", "train=60"), "store": root.uri, "samples_per_cycle": 1}
    planned = plans.sweep(Sweep(task="digits", epochs=4, grid=("exploration=0,0.5", "cycles=1,2"), **settings))
    folder, plan = SweepStore(root, SWEEP), planned.plan
    folder.write_plan(plan.to_json())
    for point in plan.points:
        [spec] = point.specs
        chain, kept = Chain(spec), ChainStore(root, spec.digest)
        kept.begin(spec, 1, {"environment": chain.environment().to_json(), "host": "here", "from_step": 0})
        for event in chain:
            if isinstance(event, Sample):
                kept.publish_sample(event, 1, chain.environment().to_json())
            else:
                kept.publish_progress([{**event.to_json(), "seconds": 0.001 * event.step}], event.step, 1)
        kept.finish()
        steps = report_steps(spec)
        stopped = point.number == 3
        for number, step in enumerate(steps[: len(steps) - stopped], 1):
            metrics = {metric.name: 0.7499 - 0.1 * point.number + 0.01 * number for metric in plan.metrics}
            done = {
                "cycle": step.cycle,
                "epoch": 4.0 * number / len(steps),
                "gradients": 10 * number,
                "samples": number,
            }
            folder.publish_report(spec.digest, {**done, "metrics": metrics})
        if stopped:
            folder.publish_stopped_at(spec.digest, {"epoch": 2.0, "cycle": 0})
        folder.publish_asked(point.number, dict(point.values))
    sweep_results.write(folder, planned, plan.points, {})
    return planned


# One flip


class _Heard(logging.Handler):
    """Counts warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@dataclass(frozen=True)
class Reading:
    """A reading's value as text, `REFUSED` where it is refused; whether a warning came with it; the files that it
    opened."""

    value: str
    warned: bool
    files: frozenset[str]


@contextmanager
def _opened(store: Store) -> Iterator[set[str]]:
    """Collect the names of the store's files that the body reads."""
    opened, unwatched = set[str](), bounded.read

    def watched(path: str, **which: Any) -> bytes:
        opened.add(os.path.relpath(path, store.root))
        return unwatched(path, **which)

    with mock.patch.object(bounded, "read", watched):
        yield opened


def read(store: Store, opening: str | None = None, pristine: Mapping[str, Reading] | None = None) -> dict[str, Reading]:
    """All readings by name, or only those that opened a file when the store was ``pristine``: others cannot tell."""
    found, heard = {}, _Heard()
    logging.getLogger("raychains").addHandler(heard)
    try:
        for name, reading in store.readings():
            if pristine is not None and opening not in pristine[name].files:
                continue
            heard.count = 0
            try:
                with _opened(store) as files, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    value = json.dumps(reading(), sort_keys=True, default=str)
            except RaychainsError as error:
                assert "\n" not in str(error), error
                value = REFUSED
            found[name] = Reading(value, heard.count > 0, frozenset(files))
    finally:
        logging.getLogger("raychains").removeHandler(heard)
    return found


def judge(store: Store, pristine: Mapping[str, Reading], file: str, bit: int) -> tuple[str, list[str]]:
    """Flip a bit and read: what became of it, and the readings that are silently others."""
    data = bytearray(store.files[file])
    data[bit // 8] ^= 1 << bit % 8
    (store.root / file).write_bytes(data)
    try:
        now = read(store, file, pristine)
    finally:
        store.restore()
    other = [name for name, r in now.items() if r.value not in (pristine[name].value, REFUSED) and not r.warned]
    if other:
        return SILENT, other
    if any(r.value == REFUSED for r in now.values()):
        return REFUSED, []
    return (WARNED if any(r.warned for r in now.values()) else SAME), []


def flips(store: Store, count: int, seed: int) -> Iterator[tuple[str, str, int]]:
    """(kind, file, bit), every kind as often as the others."""
    chance = random.Random(seed)
    for number in range(count):
        kind = [*KINDS][number % len(KINDS)]
        files = sorted(str(p.relative_to(store.root)) for p in store.root.glob(KINDS[kind]) if p.is_file())
        file = chance.choice(files)
        yield kind, file, chance.randrange(8 * len(store.files[file]))


def study(
    store: Store, count: int, seed: int = 0, tell: Callable[[str], Any] = lambda line: None
) -> dict[str, Counter[str]]:
    """Outcomes by kind of file."""
    pristine = read(store)
    assert not [name for name, reading in pristine.items() if reading.value == REFUSED or reading.warned]
    found = {kind: Counter({REFUSED: 0, WARNED: 0, SAME: 0, SILENT: 0}) for kind in KINDS}
    for kind, file, bit in flips(store, count, seed):
        outcome, other = judge(store, pristine, file, bit)
        found[kind][outcome] += 1
        tell(
            f"{kind}: {hashlib.sha256(store.files[file]).hexdigest()[:8]} {file} bit {bit}: {outcome} {' '.join(other)}"
        )
    return found


def table(found: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The rows of the page's table."""
    return [
        f"| {kind} | `{KINDS[kind]}` | {counts[REFUSED]} | {counts[WARNED]} | {counts[SAME]} | {counts[SILENT]} |"
        for kind, counts in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.store.flips", description=__doc__)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        found = study(make(Path(folder)), given.count, given.seed, lambda line: print(line, flush=True))
    print(*table(found), sep="\n")
    COUNTED.write_text(json.dumps({"flips": given.count, "seed": given.seed, "kinds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
