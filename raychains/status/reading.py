"""Reads the status of a run, a sweep or a store: listings, and a few small files per chain; no sample is opened."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from raychains import schedules
from raychains.chain.divergence_replay import Diagnosis
from raychains.chain.sample_index import expected_samples
from raychains.core.errors import UserError, format_error, renamed
from raychains.core.retry import Patience
from raychains.core.spec import ChainSpec
from raychains.orchestration import process_identity
from raychains.planning import Arm, Comparison, gradient_evaluations
from raychains.planning.sweep_plan import WAITING
from raychains.status.state import (
    ArmState,
    ChainPhase,
    ChainState,
    DriverState,
    Line,
    Phase,
    RunState,
    State,
    StoreState,
    SweepState,
)
from raychains.store import RunStore, Storage, SweepStore, split_run_path
from raychains.store.chain_store import ChainListing, preemptions
from raychains.store.leases import SECOND, Entry, Leases, Watch

AT_ONCE = 16
"""Chains that are read at the same time: on an object store each read is a wait."""
PATIENCE = Patience(total=10.0)
"""For storage that does not answer: a user waits for this."""


def status_of(path: str) -> State:
    """Return the status of STORE/runs/NAME, STORE/sweeps/NAME or STORE, once; see `Reader`."""
    return Reader(path).read()


# One chain: one listing, its newest worker's record, the end of its newest progress file


@dataclass(frozen=True, kw_only=True)
class _RunContext:
    """A chain's state as far as its run says it, not its folder."""

    now: int
    """Nanoseconds of the storage's clock."""
    living: Collection[str]
    """Ids of the store's living drivers."""
    given_up: Collection[str]
    """Digests of chains that a living driver of the run gave up."""
    stalled: Collection[str]
    """Digests of chains of which a living driver says that they stall."""
    failed: Mapping[str, str]
    """Reasons by digest of the chains that failed in the run's last session."""
    failed_at: int
    """The time of that record, nanoseconds; a worker that began later makes it history."""


def _diagnosis(folder: ChainListing) -> str | None:
    """Return the sentence on a divergence, where there was one."""
    if folder.diverged and (found := folder.store.diagnoses()):
        # A newer one, or none of ours.
        with contextlib.suppress(UserError, TypeError, ValueError, KeyError, AttributeError):
            return Diagnosis.from_json(found[-1]).sentence()
    return None


def _chain_state(root: Storage, spec: ChainSpec, run: _RunContext) -> ChainState:
    digest, folder = spec.digest, ChainListing(root, spec.digest)
    progress, (checkpoint, saved) = _fields(folder.last_progress()), folder.checkpoint()
    changed = max((changed for _, changed in folder.files.values()), default=None)
    samples, expected, cost = folder.samples, expected_samples(spec), gradient_evaluations(spec)
    state, reason = _state(digest, run, folder, samples >= expected)
    if state == "failed" and reason is None:
        reason = _diagnosis(folder)
    resumed = folder.newest.get("from_step")
    known = [progress.get("step", 0), resumed if isinstance(resumed, int) else 0, checkpoint or 0]
    whole = state == "finished" and spec.early_stop is None
    step = spec.steps if whole else min(spec.steps, max(known))
    made = cost * step // spec.steps
    return ChainState(
        digest=digest,
        state=state,
        **{**progress, "step": step},
        steps=spec.steps,
        cycles=schedules.build(spec.schedule).cycle_count,
        samples=min(samples, expected),
        expected=expected,
        gradients=made,
        to_spend=made if state == "finished" else cost,
        checkpoint_step=checkpoint,
        checkpoint_age=_age(run.now, saved) if saved is not None else None,
        age=_age(run.now, changed) if changed is not None else None,
        stalled=state == "running" and digest in run.stalled,
        attempts=len(folder.attempts),
        preemptions=preemptions(folder.records),
        host=folder.hosts[-1] if folder.hosts else None,
        hosts=folder.hosts,
        reason=reason,
        bytes=sum(size for size, _ in folder.files.values()),
    )


def _state(digest: str, run: _RunContext, folder: ChainListing, complete: bool) -> tuple[ChainPhase, str | None]:
    if complete:
        return "finished", None
    if digest in run.given_up or (digest in run.failed and folder.begun <= run.failed_at):
        return "failed", run.failed.get(digest)
    if not folder.attempts:
        return "waiting", None
    return ("running" if folder.newest.get("driver_id") in run.living else "stopped"), None


def _fields(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return fields of `ChainState` from a chain's last progress records."""
    if not records:
        return {}
    first, last = records[0], records[-1]
    steps, seconds = last["step"] - first["step"], last["seconds"] - first["seconds"]
    if steps <= 0 or seconds <= 0:
        steps, seconds = last["step"], last["seconds"]
    loss, cycle, stage = last.get("loss"), last.get("cycle"), last.get("stage")
    return {
        "step": last["step"],
        "seconds": float(last["seconds"]),
        "cycle": cycle if isinstance(cycle, int) else None,
        "stage": stage if isinstance(stage, str) else None,
        "loss": float(loss) if isinstance(loss, int | float) else None,
        "steps_per_second": steps / seconds if steps > 0 and seconds > 0 else None,
    }


def _age(now: int, then: int) -> float:
    return max(0.0, (now - then) / SECOND)


# Runs, sweeps and stores


class Reader:
    """Reads the status of one place repeatedly; finished chains are not read again.

    Whether a driver lives is judged by the age of its entry in the store's ``drivers/``, on object stores against this
    machine's clock; on the driver's own machine also by its process.

    Args:
        path: STORE/runs/NAME, STORE/sweeps/NAME or STORE.
        filesystem: as for `Storage`.

    Raises:
        UserError: nothing of that kind is there; of `read`, too: a damaged plan, or storage that does not answer.
    """

    def __init__(self, path: str, filesystem: Any = None) -> None:
        self._watch = Watch(lambda entry: process_identity.gone(entry.place, entry.pid, entry.process))
        self._finished: dict[str, ChainState] = {}
        self._comparison: Comparison | None = None
        self._path = path
        with self._readable():
            self._folder = _folder(path, filesystem)
        self._root = self._folder.root if isinstance(self._folder, RunStore) else self._folder

    def read(self) -> State:
        """Return the status now."""
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
        """Turn the system's errors, on the name or on permissions, into one line."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"path must be one that can be read, got {self._path[:200]!r}: {format_error(error, kind=True)[:100]}"
            ) from None

    def _drivers(self, run: str | None = None) -> tuple[list[DriverState], list[Entry], int]:
        """(drivers of the run, the owner first; all living entries; the storage's clock)."""
        entries = Leases(self._root).entries()
        now = max([time.time_ns(), *(e.renewed for e in entries)])
        living = self._watch.living(entries, now, time.monotonic())
        alive = {e.driver_id for e in living}
        ours = [e for e in entries if run in (None, e.run)]
        ours.sort(key=lambda e: (e.driver_id not in alive, e.seniority))
        return [_driver(e, now, e.driver_id in alive) for e in ours], living, now

    def _run(self, folder: RunStore) -> RunState:
        plan = folder.plan()
        if self._comparison is None:
            self._comparison = Comparison.from_json(plan.get("comparison"))
        drivers, living, now = self._drivers(folder.name)
        own = self._root.below(f"runs/{folder.name}")
        run = _RunContext(
            now=now,
            living={e.driver_id for e in living},
            given_up={d for e in living if e.run == folder.name for d in e.given_up},
            stalled={d for e in living for d in e.stalled},
            failed=_failed(folder) if "failed.parquet" in own else {},
            failed_at=own.get("failed.parquet", (0, 0))[1],
        )
        chains = self._chain_states(self._comparison.chains(), run)
        arms = _arms(self._comparison, folder, own, chains)
        return RunState(
            name=folder.name,
            location=folder.location(),
            task=self._comparison.task,
            command=str(plan.get("command", "run")),
            state=_phase(drivers, _run_ended(own, chains, arms)),
            drivers=drivers,
            chains=chains,
            arms=arms,
            report=folder.location("report.html") if "report.html" in own else None,
            bytes=sum(c.bytes for c in chains) + sum(size for size, _ in own.values()),
        )

    def _chain_states(self, specs: Mapping[str, ChainSpec], run: _RunContext) -> list[ChainState]:
        pending = [d for d in specs if d not in self._finished]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            states = pool.map(lambda d: _chain_state(self._root, specs[d], run), pending)
            found = dict(zip(pending, states, strict=True))
        self._finished |= {d: chain for d, chain in found.items() if chain.state == "finished"}
        return [self._finished.get(d) or found[d] for d in specs]

    def _sweep(self, folder: SweepStore) -> SweepState:
        plan = folder.plan()
        drivers, _, now = self._drivers(folder.lease_name)
        own = self._root.below(f"sweeps/{folder.name}")
        reports = {name: changed for name, (_, changed) in own.items() if name.startswith("reports/")}
        statuses = _statuses(folder, own)
        swept, sizes = plan.get("swept"), [plan.get(name) for name in ("count", "repeats", "gradients")]
        points, repeats, cost = (n if isinstance(n, int) else 0 for n in sizes)
        return SweepState(
            name=folder.name,
            location=folder.location(),
            state=_phase(drivers, "results.parquet" in own and WAITING not in statuses),
            drivers=drivers,
            swept=swept if isinstance(swept, Mapping) else {},
            task=str(plan.get("task", "")),
            metric=str(plan.get("metric", "")),
            points=points,
            chains=points * repeats,
            to_spend=points * repeats * cost,
            trials=dict(Counter(map(str, statuses))),
            reported=len({name.split("/")[1] for name in reports}),
            reports=len(reports),
            stopped=sum(name.startswith("stops/") for name in own),
            age=_age(now, max(reports.values())) if reports else None,
            best=folder.best() if "best.json" in own else None,
            report=folder.location("report.html") if "report.html" in own else None,
        )

    def _store(self, root: Storage) -> StoreState:
        drivers, living, _ = self._drivers()
        runs = {e.driver_id: e.run for e in living}
        owners = {runs[d.driver_id]: d for d in reversed(drivers) if d.driver_id in runs}
        dead = {e.run for e in Leases(root).entries() if e.driver_id not in runs}
        folders = [kind(root, n) for kind in (RunStore, SweepStore) for n in _names(root, f"{kind.kind}s")]

        def line(folder: RunStore) -> Line | None:
            return _line(folder, owners.get(folder.lease_name), folder.lease_name in dead)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            lines = list(pool.map(line, folders))
        return StoreState(location=root.location(), lines=[line for line in lines if line is not None])


def _folder(path: str, filesystem: Any) -> RunStore | Storage:
    """The run, sweep or store at the path.

    Raises:
        UserError: there is none; the nearest name is suggested.
    """
    plain, question, query = path.partition("?") if "://" in path else (path, "", "")
    plain = plain.rstrip("/") or plain

    def root(at: str) -> Storage:
        return Storage(f"{at}{question}{query}", filesystem, patience=PATIENCE)

    named: RunStore | None = None
    for kind in (RunStore, SweepStore):
        with contextlib.suppress(UserError):
            store, name = split_run_path(path, kind.kind)
            folder = kind(Storage(store, filesystem, patience=PATIENCE), name)
            if folder.exists():
                return folder
            named = named or folder
    whole = root(plain)
    if _is_store(whole):
        return whole
    parent, _, last = plain.rpartition("/")
    if last in ("runs", "sweeps") and parent and _is_store(root(parent)):
        return root(parent)
    expected = f"path must be STORE/runs/NAME, STORE/sweeps/NAME or STORE, got {path!r}"
    if _is_store(root(f"{plain}/runs")):
        raise UserError(f"{expected}; did you mean '{plain}/runs'?")
    if named is not None:
        with renamed({"run": "path", "sweep": "path"}):
            named.plan(path)  # its error names the existing ones
    raise UserError(f"{expected}: nothing of them is there")


def _is_store(root: Storage) -> bool:
    """Return whether a store lies there, with runs or chains: a folder of stores, or another folder called runs, has
    neither."""
    if any(root.names(kind) for kind in ("chains", "sweeps", "drivers")):
        return True
    return any(root.exists(f"runs/{name}/plan.json") for name in _names(root, "runs"))


def _names(root: Storage, folder: str) -> list[str]:
    found = []
    for name in root.names(folder):
        with contextlib.suppress(UserError):  # another program's file or folder
            found.append(RunStore(root, name).name)
    return found


def _driver(entry: Entry, now: int, lives: bool) -> DriverState:
    times = {"since": entry.since / SECOND, "heard": entry.renewed / SECOND, "age": _age(now, entry.renewed)}
    return DriverState(driver_id=entry.driver_id, host=entry.host, pid=entry.pid, lives=lives, **times)


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


def _evaluated(repeats: Mapping[str, int], folder: RunStore, own: Collection[str]) -> dict[str, int]:
    """Return how many of each arm's ``repeats`` have results."""
    results = folder.table("results") if "results.parquet" in own else None
    rows = results["arm"].to_pylist() if results is not None and "arm" in results.column_names else []
    return {name: min(rows.count(name), most) for name, most in repeats.items()}


def _arms(
    comparison: Comparison, folder: RunStore, own: Collection[str], chains: Iterable[ChainState]
) -> list[ArmState]:
    evaluated = _evaluated({arm.name: arm.repeats for arm in comparison.arms}, folder, own)
    by_digest = {chain.digest: chain for chain in chains}

    def state(arm: Arm) -> ArmState:
        mine = [by_digest[digest] for digest in comparison.needed(spec for group in arm.chains for spec in group)]
        return ArmState(
            name=arm.name,
            label=arm.label,
            evaluated=evaluated[arm.name],
            repeats=arm.repeats,
            gradients=sum(chain.gradients for chain in mine),
            to_spend=sum(chain.to_spend for chain in mine),
        )

    return [state(arm) for arm in comparison.arms]


def _run_ended(own: Collection[str], chains: Sequence[ChainState], arms: Iterable[ArmState]) -> bool:
    if not {"results.parquet", "report.html"} & set(own):  # reproduce draws no pages, failed runs have no results
        return False
    states = {chain.state for chain in chains}
    return states <= {"finished", "failed"} and ("failed" in states or all(a.evaluated == a.repeats for a in arms))


def _statuses(folder: RunStore, own: Collection[str]) -> list[str]:
    """Return the states of a sweep's chains, from the table that it writes where it ends or is stopped; none before."""
    table = folder.table("results") if "results.parquet" in own else None
    return table["status"].to_pylist() if table is not None and "status" in table.column_names else []


def _line(folder: RunStore, driver: DriverState | None, lost: bool) -> Line | None:
    """A run's or sweep's line; None for a folder without a plan."""
    place = f"{folder.kind}s/{folder.name}"
    own = folder.root.modified(place)
    if "plan.json" not in own:
        return None
    kind: Literal["run", "sweep"] = "sweep" if isinstance(folder, SweepStore) else "run"
    plan = None
    with contextlib.suppress(FileNotFoundError):
        plan = folder.root.read_object(f"{place}/plan.json")
    if plan is None:
        return Line(name=folder.name, kind=kind, state="stopped", task="plan.json is damaged")
    planned = plan.get("comparison")
    planned = planned if isinstance(planned, dict) else {}
    chains = planned.get("chains")
    try:
        done = "results.parquet" in own and _complete(folder, own, planned)
    except (UserError, LookupError, TypeError, AttributeError):  # a damaged table or plan
        done = False
    phase = _phase([driver] if driver is not None else [], done)
    return Line(
        name=folder.name,
        kind=kind,
        state="lost" if lost and phase == "stopped" else phase,
        task=str(planned.get("task", plan.get("task", ""))),
        chains=len(chains) if isinstance(chains, dict) else None,
        driver=driver,
    )


def _complete(folder: RunStore, own: Collection[str], planned: Mapping[str, Any]) -> bool:
    """Return whether the results that are there are all that a run's plan or a sweep's waits for."""
    if isinstance(folder, SweepStore):
        return WAITING not in _statuses(folder, own)
    if "failed.parquet" in own:  # after which arms lack results
        return True
    # A `Comparison` would check the specs of all chains, thousands in a large store.
    lanes = {digest: spec.get("lanes", 1) for digest, spec in planned["chains"].items()}
    repeats = {arm["name"]: sum(lanes[group[0]] for group in arm["chains"]) for arm in planned["arms"]}
    return _evaluated(repeats, folder, own) == repeats
