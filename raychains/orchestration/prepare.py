"""Preparing an image set on the cluster: Ray Data hands shards to whatever cores there are; what is written stays."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from raychains.core.errors import UserError
from raychains.data.prepared.manifest import NAME, Manifest
from raychains.data.prepared.plan import Plan, Work, Written, encode, read_report, report_of, unfinished
from raychains.orchestration.cluster import ray_watch
from raychains.store import Storage

PLAN, REPORTS = "plan.json", "reports"
Progress = Callable[[str, int, int], Any]
"""Called with (what, pictures done, pictures in all)."""


def prepare(plan: Plan, to: Storage, *, skip_damaged: bool = False, progress: Progress | None = None) -> Manifest:
    """Write a set's shards and, last of all, its manifest; what an earlier attempt wrote is not written again.

    Ray must be connected; every node reads the source and writes the target under the same path or URI.

    Raises:
        UserError: the target holds something else or takes no files, or there are damaged pictures that are not to be
            skipped.
        RayLost: Ray is gone; the same call goes on with what is left.
    """
    done = _begun(plan, to)
    total = sum(len(w.items) for w in plan.works)
    if not to.exists(NAME):
        left = unfinished(plan.works, done)
        count = total - sum(len(w.items) for w in left)
        sizes = {w.name: len(w.items) for w in left}
        for name, written in _write(left, plan.row_group, to.uri):
            done[name] = written
            count += sizes[name]
            if progress is not None:
                progress(f"preparing {plan.name}", count, total)
        to.publish(NAME, plan.manifest(done, skip_damaged=skip_damaged).dumps())
    return Manifest.loads(to.read(NAME), to.location(NAME))


def check_target(plan: Plan, to: Storage) -> None:
    """Refuse a target that this set cannot go to; changes nothing.

    Raises:
        UserError: it holds something else.
    """
    if to.exists(PLAN):
        found, described = to.read_object(PLAN) or {}, plan.described
        if found != described:
            different = ", ".join(k for k in described if found.get(k) != described[k])
            raise UserError(
                f"to must be empty or hold the same set, got {to.location()}, which was prepared from others "
                f"({different}): choose another place"
            )
    elif there := to.top():
        raise UserError(f"to must be empty or hold the same set, got {to.location()} with {there[0]!r} in it")


def _begun(plan: Plan, to: Storage) -> dict[str, Written]:
    """Return what the target has already, once it is known to be this plan's."""
    check_target(plan, to)
    if not to.exists(PLAN):
        to.publish(PLAN, json.dumps(plan.described, indent=1).encode())
    done = {}
    for name in to.names(REPORTS):
        try:
            written = read_report(to.read(f"{REPORTS}/{name}"))
        except ValueError:
            continue  # torn: the shard is written again
        if to.size(written.shard.file) == written.shard.bytes:
            done[written.shard.file] = written
    return done


def _write(works: Sequence[Work], row_group: int, uri: str) -> Iterator[tuple[str, Written]]:
    """Write shards wherever there is a core; (name, what was written) as each is done."""
    if not works:
        return
    import ray.data

    logging.getLogger("ray.data").setLevel(
        logging.CRITICAL
    )  # whatever it tells as an error, with its stack, it raises as well
    rows = [{"work": json.dumps(w.to_json())} for w in works]

    def begun() -> Iterator[dict[str, Any]]:
        shards = ray.data.from_items(rows, override_num_blocks=len(rows))
        shards.context.enable_progress_bars = False  # ours is shown
        shards.context.print_on_execution_start = False
        shards.context.target_max_block_size = 1 << 20  # reports are small, and so may be the object store
        return iter(shards.map(_one_shard, fn_kwargs={"row_group": row_group, "uri": uri}).iter_rows())

    done = ray_watch.ask(begun, within=math.inf)
    while (row := ray_watch.ask(partial(next, done, None), within=math.inf)) is not None:
        if row["refused"]:
            raise UserError(row["refused"])
        written = read_report(row["report"])
        yield written.shard.file, written


def _one_shard(row: dict[str, Any], *, row_group: int, uri: str) -> dict[str, Any]:
    """On a worker: the shard first, its report after it, so that a report means a whole shard; or why it was
    refused."""
    work = Work.from_json(json.loads(row["work"]))
    try:
        data, written = encode(work.items, work.name, row_group)
    except OSError as error:  # nothing is published: the next call tries again
        return {"report": b"", "refused": f"source must be readable on every node, got {error}"}
    try:
        to = Storage(uri)
        to.publish(work.name, data)
        to.publish(f"{REPORTS}/{work.name}.json", report_of(written))
    except UserError as error:  # raised, Ray Data would wrap it, with stacks of both processes
        return {"report": b"", "refused": str(error)}
    return {"report": report_of(written), "refused": ""}
