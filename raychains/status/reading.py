"""Reads the status of a run, a sweep or a store: listings, and a few small files per chain; no sample is opened."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from raychains.errors import UserError, said
from raychains.orchestration import process
from raychains.planning import Comparison
from raychains.retry import Patience
from raychains.status.chains import Circumstances, chain_state
from raychains.status.state import ArmState, ChainState, DriverState, Line, Phase, RunState, StoreState, SweepState
from raychains.store import Root, RunStore, SweepStore, split_run_path
from raychains.store.leases import SECOND, Entry, Leases, Watch

AT_ONCE = 16
"""Chains that are looked at at the same time: on an object store each look is a wait."""
PATIENCE = Patience(total=10.0)
"""For storage that does not answer: somebody waits for this."""


def status_of(path: str) -> RunState | SweepState | StoreState:
    """What STORE/runs/NAME, STORE/sweeps/NAME or STORE says of itself, once; see `Reader`."""
    return Reader(path).read()


class Reader:
    """Looks at one place again and again; what is finished is not read again.

    Whether a driver lives is judged by the age of its entry in the store's ``drivers/``, on object stores against this
    machine's clock; on the driver's own machine also by its process.

    Args:
        path: STORE/runs/NAME, STORE/sweeps/NAME or STORE.
        filesystem: as for `Root`.

    Raises:
        UserError: nothing of that kind is there; of `read`, too: a damaged plan, or storage that does not answer.
    """

    def __init__(self, path: str, filesystem: Any = None) -> None:
        self._watch = Watch(lambda entry: process.gone(entry.place, entry.pid, entry.process))
        self._finished: dict[str, ChainState] = {}
        self._comparison: Comparison | None = None
        self._path = path
        with self._readable():
            self._folder = _folder(path, filesystem)
        self._root = self._folder.root if isinstance(self._folder, RunStore) else self._folder

    def read(self) -> RunState | SweepState | StoreState:
        """The status now."""
        with self._readable():
            match self._folder:
                case SweepStore():
                    return self._sweep(self._folder)
                case RunStore():
                    return self._run(self._folder)
                case _:
                    return self._store(self._folder)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """What the system refuses, be it the name or the person, is one line."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"path must be one that can be read, got {self._path[:200]!r}: {said(error)[:100]}"
            ) from None

    # Drivers

    def _drivers(self, run: str | None = None) -> tuple[list[DriverState], list[Entry], int]:
        """(drivers of the run, the owner first; all living entries; the storage's clock)."""
        entries = Leases(self._root).entries()
        now = max([time.time_ns(), *(e.renewed for e in entries)])
        living = self._watch.living(entries, now, time.monotonic())
        alive = {e.driver_id for e in living}
        ours = sorted(
            (e for e in entries if run in (None, e.run)), key=lambda e: (e.driver_id not in alive, e.seniority)
        )
        return [_driver(e, now, e.driver_id in alive) for e in ours], living, now

    # Kinds

    def _run(self, folder: RunStore) -> RunState:
        plan = folder.plan()
        if self._comparison is None:
            self._comparison = Comparison.from_json(plan.get("comparison"))
        specs = self._comparison.chains()
        drivers, living, now = self._drivers(folder.name)
        own = self._root.below(f"runs/{folder.name}")
        about = Circumstances(
            now=now,
            living={e.driver_id for e in living},
            given_up={d for e in living if e.run == folder.name for d in e.given_up},
            failed=_failed(folder) if "failed.parquet" in own else {},
            failed_at=own.get("failed.parquet", (0, 0))[1],
        )
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = {
                d: pool.submit(chain_state, self._root, spec, about)
                for d, spec in specs.items()
                if d not in self._finished
            }
            found = {d: future.result() for d, future in asked.items()}
        self._finished |= {d: chain for d, chain in found.items() if chain.state == "finished"}
        chains = [self._finished.get(d) or found[d] for d in specs]
        arms = _arms(self._comparison, folder, own)
        return RunState(
            name=folder.name,
            location=folder.location(),
            task=self._comparison.task,
            command=str(plan.get("command", "run")),
            state=_phase(drivers, "report.html" in own and all(c.state in ("finished", "failed") for c in chains)),
            drivers=drivers,
            chains=chains,
            arms=arms,
            report=folder.location("report.html") if "report.html" in own else None,
            bytes=sum(c.bytes for c in chains) + sum(size for size, _ in own.values()),
        )

    def _sweep(self, folder: SweepStore) -> SweepState:
        plan = folder.plan()
        drivers, _, now = self._drivers(_claimed(folder))
        own = self._root.below(f"sweeps/{folder.name}")
        reports = {name: changed for name, (_, changed) in own.items() if name.startswith("reports/")}
        results = folder.table("results") if "results.parquet" in own else None
        trials: dict[str, int] = {}
        if results is not None and "status" in results.column_names:
            for status in results["status"].to_pylist():
                trials[str(status)] = trials.get(str(status), 0) + 1
        swept, sizes = plan.get("swept"), [plan.get(name) for name in ("count", "repeats", "gradients")]
        points, repeats, cost = (n if isinstance(n, int) else 0 for n in sizes)
        return SweepState(
            name=folder.name,
            location=folder.location(),
            state=_phase(drivers, results is not None),
            drivers=drivers,
            swept=swept if isinstance(swept, Mapping) else {},
            task=str(plan.get("task", "")),
            metric=str(plan.get("metric", "")),
            points=points,
            chains=points * repeats,
            to_spend=points * repeats * cost,
            trials=trials,
            reported=len({name.split("/")[1] for name in reports}),
            reports=len(reports),
            stopped=sum(name.startswith("stops/") for name in own),
            age=max(0.0, (now - max(reports.values())) / SECOND) if reports else None,
            best=folder.best() if "best.json" in own else None,
            report=folder.location("report.html") if "report.html" in own else None,
        )

    def _store(self, root: Root) -> StoreState:
        drivers, living, _ = self._drivers()
        of = {e.driver_id: e.run for e in living}
        owners = {of[d.driver_id]: d for d in reversed(drivers) if d.driver_id in of}
        dead = {e.run for e in Leases(root).entries() if e.driver_id not in of}
        folders = [RunStore(root, n) for n in _names(root, "runs")] + [
            SweepStore(root, n) for n in _names(root, "sweeps")
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            lines = list(
                pool.map(lambda folder: _line(folder, owners.get(_claimed(folder)), _claimed(folder) in dead), folders)
            )
        return StoreState(location=root.location(), lines=[line for line in lines if line is not None])


def _folder(path: str, filesystem: Any) -> RunStore | Root:
    """What the path names.

    Raises:
        UserError: nothing of ours; the nearest name is suggested.
    """
    plain, question, query = path.partition("?") if "://" in path else (path, "", "")
    plain = plain.rstrip("/") or plain

    def root(at: str) -> Root:
        return Root(f"{at}{question}{query}", filesystem, patience=PATIENCE)

    named: RunStore | None = None
    for kind in (RunStore, SweepStore):
        with contextlib.suppress(UserError):
            store, name = split_run_path(path, kind.kind)
            folder = kind(Root(store, filesystem, patience=PATIENCE), name)
            if folder.exists():
                return folder
            named = named or folder
    whole = root(plain)
    if _is_store(whole):
        return whole
    parent, _, last = plain.rpartition("/")
    if last in ("runs", "sweeps") and parent and _is_store(root(parent)):
        return root(parent)
    if _is_store(root(f"{plain}/runs")):
        raise UserError(
            f"path must be STORE/runs/NAME, STORE/sweeps/NAME or STORE, got {path!r}; did you mean '{plain}/runs'?"
        )
    if named is not None:
        named.plan()  # says what there is instead
    raise UserError(f"path must be STORE/runs/NAME, STORE/sweeps/NAME or STORE, got {path!r}: nothing of them is there")


def _is_store(root: Root) -> bool:
    """Whether runs or chains lie there: a folder of stores, or anything else that is called runs, has neither."""
    if any(root.names(kind) for kind in ("chains", "sweeps", "drivers")):
        return True
    return any(root.exists(f"runs/{name}/plan.json") for name in _names(root, "runs"))


def _names(root: Root, folder: str) -> list[str]:
    found = []
    for name in root.names(folder):
        with contextlib.suppress(UserError):  # a file or folder of somebody else's
            found.append(RunStore(root, name).name)
    return found


def _claimed(folder: RunStore) -> str:
    """The name under which a driver of it enters itself."""
    return f"sweep:{folder.name}" if isinstance(folder, SweepStore) else folder.name


def _driver(entry: Entry, now: int, lives: bool) -> DriverState:
    return DriverState(
        driver_id=entry.driver_id, host=entry.host, pid=entry.pid, since=entry.since / SECOND,
        heard=entry.renewed / SECOND, age=max(0.0, (now - entry.renewed) / SECOND), lives=lives,
    )  # fmt: skip


def _phase(drivers: Sequence[DriverState], done: bool) -> Phase:
    if any(driver.lives for driver in drivers):
        return "running"
    if done:
        return "finished"
    return "lost" if drivers else "stopped"


def _failed(folder: RunStore) -> dict[str, str]:
    table = folder.table("failed")
    if table is None or not {"digest", "reason"} <= set(table.column_names):
        return {}
    return {str(row["digest"]): str(row["reason"]) for row in table.to_pylist()}


def _arms(comparison: Comparison, folder: RunStore, own: Mapping[str, Any]) -> list[ArmState]:
    results = folder.table("results") if "results.parquet" in own else None
    rows = results["arm"].to_pylist() if results is not None and "arm" in results.column_names else []
    return [
        ArmState(name=a.name, label=a.label, evaluated=min(rows.count(a.name), a.repeats), repeats=a.repeats)
        for a in comparison.arms
    ]


def _line(folder: RunStore, driver: DriverState | None, lost: bool) -> Line | None:
    """None for a folder that no plan ever lay in."""
    own = folder.root.modified(f"{folder.kind}s/{folder.name}")
    if "plan.json" not in own:
        return None
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        plan = json.loads(folder.root.read(f"{folder.kind}s/{folder.name}/plan.json"))
        planned = plan.get("comparison") if isinstance(plan, dict) else None
        planned = planned if isinstance(planned, dict) else {}
        chains = planned.get("chains")
        phase = _phase([driver] if driver is not None else [], "results.parquet" in own)
        return Line(
            name=folder.name,
            kind="sweep" if isinstance(folder, SweepStore) else "run",
            state="lost" if lost and phase == "stopped" else phase,
            task=str(planned.get("task", plan.get("task", "") if isinstance(plan, dict) else "")),
            chains=len(chains) if isinstance(chains, dict) else None,
            driver=driver,
        )
    return replace(Line(name=folder.name, kind="run", state="stopped", task=""), task="plan.json is damaged")
